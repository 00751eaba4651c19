"""Each must_not of cases.jsonl as a predicate: a forbidden cause, first fix, fix or text."""

from __future__ import annotations

import re
from typing import NamedTuple

from cockpit.model.finding import Finding


class Rule(NamedTuple):
    """What may not be. ``where``: cause, first (fix), fixes, text (title, explanation, fixes)."""

    where: str
    pattern: str

    def broken_by(self, found: Finding) -> bool:
        fixes = [f"{one.title}\n{one.kind}\n{one.value}\n{one.why}" for one in found.fixes]
        text = {
            "cause": found.cause,
            "first": fixes[0] if fixes else "",
            "fixes": "\n".join(fixes),
            "text": "\n".join([found.title, found.explanation, *found.not_, *fixes]),
            "severity": found.severity,
            "safe": "\n".join(
                f"{one.kind} {one.value}" for one in found.fixes if one.risk == "safe"
            ),
            "confirm": "\n".join(one.value for one in found.fixes if one.risk != "admin"),
        }[self.where]
        return re.search(self.pattern, text, re.IGNORECASE) is not None


def cause(pattern: str) -> Rule:
    return Rule("cause", f"^(?:{pattern})$")


def only(names: str) -> Rule:
    """Any other cause is forbidden."""
    return Rule("cause", f"^(?!(?:{names})$)")


def first(pattern: str) -> Rule:
    return Rule("first", pattern)


def fixes(pattern: str) -> Rule:
    return Rule("fixes", pattern)


def text(pattern: str) -> Rule:
    return Rule("text", pattern)


BATCH = fixes(r"batch")
NO_TORCH = fixes(r"pip install[^\n]*\btorch\b")
NO_DRIVER = fixes(r"(?:apt-get|dnf) install|driver branch|nvidia-driver")
NO_RESET = fixes(r"gpu-reset|reboot")
NO_KILL = fixes(r"\bkill\b|pkill|killall")
EMPTY = fixes(r"empty_cache")
FRAGMENTS = fixes(r"expandable_segments|max_split_size")
OOM = cause(r"oom_\w+")

FORBIDDEN: dict[str, tuple[Rule, ...]] = {
    "001-oom-modern-basic": (first(r"expandable_segments"), EMPTY),
    "002-oom-torch1-cached": (only("oom_peak"), FRAGMENTS),
    "004-oom-torch20-max-split-hint": (fixes(r"-i 1\b"), FRAGMENTS),
    "006-oom-fragmentation": (text(r"too large|bigger GPU"), cause("oom_peak")),
    "007-oom-other-users-process": (BATCH, NO_KILL, FRAGMENTS),
    "008-oom-tiny-2mib": (fixes(r"logging code|2 MiB tensor"), text(r"driver bug")),
    "010-oom-memory-fraction-cap": (
        fixes(r"batch|another GPU|idle GPU"),
        cause("oom_fragmentation"),
    ),
    "012-oom-1eb-bogus-size": (fixes(r"batch|expandable|another GPU|idle GPU"),),
    "013-oom-caught-and-retried": (OOM, only("recovered")),
    "015-oom-deepspeed-interleaved": (text(r"GPU 3.*62\.75|GPU 1.*74\.75"), only("oom_peak")),
    "016-oom-vllm-no-cache-blocks": (
        fixes(r"lower|decrease|utilization 0\.[0-8]"),
        text(r"CUDA OOM|CUDA out of memory"),
    ),
    "017-oom-vllm-startup-free-less": (fixes(r"gpu.memory.utilization"),),
    "019-oom-tensorflow-bfc": (cause("oom_growth"),),
    "020-oom-triton-shared-memory": (fixes(r"batch|shm-size|empty_cache|free"),),
    "021-oom-hip-rocm": (fixes(r"nvidia-smi"),),
    "023-oom-acceleratorerror-wording": (cause("illegal_access"),),
    "024-oom-host-ram-killed": (fixes(r"batch_size|expandable"), text(r"ctrl-c|pressed")),
    "027-oom-numbers-exceed-capacity": (text(r"parsing|bug"), text(r"-\d+\.\d GiB|other process")),
    "028-oom-torch210-alloc-conf-name": (fixes(r"\bPYTORCH_ALLOC_CONF"),),
    "029-cuda-cpu-only-wheel": (fixes(r"driver|nvcc|toolkit"), fixes(r"cockpit")),
    "030-cuda-dependency-swapped-wheel": (
        text(r"driver"),
        Rule("fixes", r"install[^\n]* torch==\S+ +--index-url"),
    ),
    "031-cuda-driver-too-old-11040": (
        text(r"11040"),
        fixes(r"cuda-toolkit|nvcc"),
        Rule("confirm", r"driver branch|apt-get install"),
    ),
    "033-cuda-found-no-driver": (NO_DRIVER, Rule("confirm", r"systemctl restart docker")),
    "035-cuda-visible-devices-empty": (only("cvd_hides_gpus"), fixes(r"os\.environ\[")),
    "036-cuda-visible-devices-uuid-typo": (
        text(r"too few GPUs"),
        Rule("fixes", r"CUDA_VISIBLE_DEVICES=GPU-5a3c1f0e,GPU-c0914f77$"),
    ),
    "038-cuda-error-802-fabric-manager": (NO_TORCH, only("fabric_manager")),
    "040-cuda-no-kernel-image-sm120": (
        fixes(r"CUDA_LAUNCH_BLOCKING"),
        only("arch_missing"),
        fixes(r"TORCH_CUDA_ARCH_LIST"),
    ),
    "042-cuda-flash-attn-arch-missing": (
        fixes(r"pip install[^\n]* torch( |$)"),
        only("extension_arch_missing"),
    ),
    "044-cuda-smi-cannot-communicate": (cause("gpu_off_bus"), fixes(r"\.run\b")),
    "045-cuda-container-cli-libnvidia-ml": (NO_DRIVER, fixes(r"docker pull|another image")),
    "047-cuda-bitsandbytes-binary-missing": (NO_TORCH, fixes(r"BNB_CUDA_VERSION=")),
    "048-cuda-forked-subprocess": (only("fork_after_init"), fixes(r"num_workers=0")),
    "050-cuda-uvm-hmm-kaslr": (fixes(r"modprobe (?:-r|nvidia)"), text(r"CUDA_VISIBLE_DEVICES")),
    "051-cuda-nouveau-owns-gpu": (NO_DRIVER, fixes(r"vfio|unbind")),
    "052-fault-embedding-assert": (text(r"layer_norm"), fixes(r"try again|retry")),
    "053-fault-label-out-of-range": (text(r"scaler|backward"),),
    "056-fault-assert-poisons-later-calls": (
        text(r"In \[17\]"),
        fixes(r"empty_cache|gc\.collect|\.cpu\(\)"),
    ),
    "057-fault-illegal-access-index-oor": (NO_RESET, text(r"bug in (?:py)?torch")),
    "058-fault-illegal-access-acceleratorerror": (
        Rule("fixes", r"(?<!ssh )(?<!10\.0\.0\.12 )(?:dmesg|^journalctl)"),
        text(r"clip_grads"),
    ),
    "061-fault-bus-fallen-no-xid": (only("gpu_off_bus"), text(r"all is well")),
    "062-fault-cublas-not-init-is-oom": (
        fixes(r"pip install|cublas reinstall"),
        only("oom_disguised"),
    ),
    "064-fault-cublas-execution-failed": (OOM, fixes(r"\brm\b|apt-get remove|delete")),
    "065-fault-cudnn-mapping-error": (OOM, first(r"cudnn\.enabled")),
    "067-fault-ecc-uncorrectable-contained": (
        fixes(r"ecc=?\s*0|-e 0|ECC off"),
        fixes(r"RMA|replace"),
        cause("illegal_access"),
    ),
    "069-fault-xid31-mmu-app-bug": (only("illegal_access"), NO_RESET),
    "070-fault-xid45-alone-after-kill": (Rule("severity", "error|warning"), only("benign")),
    "071-fault-xid64-remap-failure": (cause("ecc_contained"), fixes(r"back into|gpu-reset")),
    "072-fault-xid119-gsp-timeout": (fixes(r"2024380"), Rule("safe", r"^command nvidia-smi")),
    "074-fault-gpu-reset-refused": (
        fixes(r"kill -9|kill -KILL|SIGKILL"),
        Rule("fixes", r"\A(?![\s\S]*cockpit)"),
    ),
    "076-fault-xid92-high-sbe": (NO_KILL, text(r"corrupt")),
    "077-slow-dataloader-bound": (
        BATCH._replace(pattern=r"bigger batch|larger batch"),
        text("50 %"),
    ),
    "078-slow-num-workers-zero-lightning": (fixes(r"num_workers=31"),),
    "080-slow-thermal-throttle": (
        text(r"644864106|31180022"),
        only("thermal"),
        fixes(r"raise the power limit"),
    ),
    "081-slow-sw-power-cap-is-normal": (only("benign"), fixes(r"-pl")),
    "083-slow-sync-every-step": (text(r"wandb|network"), Rule("severity", "error")),
    "085-slow-cache-flushes-deepspeed": (text(r"out of memory"), cause("dataloader|rank_behind")),
    "086-slow-dynamo-recompile": (
        cause("thermal|power_brake|pcie_width"),
        fixes(r"recompile_limit|cache_size_limit"),
    ),
    "087-slow-pcie-x1-gen1": (text(r"gen ?1\b"), first(r"num_workers")),
    "089-nccl-watchdog-one-rank-behind": (
        text(r"Rank [12] never"),
        fixes(r"NCCL_P2P_DISABLE|NCCL_SOCKET"),
        first(r"timeout="),
    ),
    "090-nccl-watchdog-old-format": (cause("unknown"),),
    "093-nccl-shm-too-small-docker": (fixes(r"NCCL_SOCKET|firewall"), fixes(r"mount -o remount")),
    "094-dataloader-bus-error-shm": (text(r"bad RAM|memtest"), OOM),
    "095-nccl-p2p-acs-hang": (cause("straggler"), Rule("confirm", r"setpci|iommu=")),
    "097-nccl-invalid-device-ordinal": (fixes(r"CUDA_LAUNCH_BLOCKING"),),
    "099-nccl-remote-process-exited": (first(r"firewall|NCCL_SOCKET_IFNAME"),),
    "100-torchrun-exitcode-minus9-host-oom": (
        cause("oom_peak|oom_other_process"),
        cause("unknown|peer_died"),
    ),
    "102-torchrun-port-in-use": (Rule("fixes", r"\bkill -"),),
    "103-nccl-barrier-unknown-device": (only("benign"),),
    "104-nccl-straggler-slow-gpu": (fixes(r"utilization\.gpu"), text(r"network|NCCL_\w+=")),
    "106-vram-orphan-dataloader-workers": (fixes(r"1482"), fixes(r"pkill|killall")),
    "108-vram-container-sees-no-processes": (
        text(r"driver leak|leaks"),
        cause("telemetry_stale|benign"),
    ),
    "109-vram-notebook-kernel-exception-frames": (fixes(r"jupyter stop|kill"), EMPTY),
    "110-vram-idle-notebook-of-same-user": (Rule("safe", r"^kill"), text(r"zombie")),
    "112-vram-mps-server": (NO_KILL, cause("orphans|pid_namespace")),
    "113-vram-exclusive-process-mode": (
        text(r"out of memory"),
        Rule("confirm", r"nvidia-smi -i \S+ -c 0"),
    ),
    "114-nvml-driver-library-mismatch": (
        fixes(r"apt-get install|reinstall"),
        Rule("confirm", r"modprobe -r|rmmod"),
    ),
    "116-nvml-insufficient-permissions": (fixes(r"chmod"), fixes(r"sudo python")),
    "117-nvml-no-devices-rminitadapter": (
        text(r"no GPU is installed"),
        cause("gpu_off_bus|device_state_bad"),
    ),
    "118-nvml-gpu-is-lost": (cause("nvml_mismatch|dev_permissions"), NO_KILL),
    "121-vram-xorg-and-desktop": (NO_KILL, cause("pid_namespace|telemetry_stale|orphans")),
}
