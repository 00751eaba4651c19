"""Short words and signs for findings: behind a GPU, before a command, in lists."""

from __future__ import annotations

from collections.abc import Iterable

from cockpit.model.event import Severity
from cockpit.model.finding import Finding
from cockpit.model.finding_subject import pids_of, xids_of
from cockpit.tui.line import Role
from cockpit.tui.render.cells import foreign

ROLES: dict[Severity, Role] = {"error": "error", "warning": "warn", "info": ""}
RANKS: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
"""Worst first."""
SIGNS: dict[Severity, str] = {"error": "!!", "warning": "!", "info": "·"}
"""Of a list, where error and warning stand under each other: colour alone must not tell them."""

CAUSE_WORDS: dict[str, str] = {
    "oom_peak": "OOM",
    "oom_fragmentation": "fragmented",
    "oom_other_process": "filled by others",
    "oom_growth": "memory grows",
    "oom_graph_pools": "graph pools",
    "oom_fraction_cap": "fraction cap",
    "oom_pool_budget": "pool budget",
    "oom_ranks_on_one_gpu": "ranks on one GPU",
    "oom_host_paging": "paged to host",
    "oom_disguised": "OOM",
    "oom_on_rank": "OOM",
    "host_oom": "host OOM",
    "cpu_wheel": "CPU wheel",
    "driver_too_old": "old driver",
    "arch_missing": "no code for it",
    "code_uses_cpu": "runs on CPU",
    "fabric_manager": "fabric manager",
    "gpu_off_bus": "lost",
    "ecc_contained": "ECC",
    "ecc_dbe": "ECC",
    "remap_failure": "remap failed",
    "gsp_timeout": "GSP",
    "nvlink_fault": "NVLink",
    "device_state_bad": "needs reset",
    "index_out_of_range": "index range",
    "label_out_of_range": "label range",
    "dataloader": "waits for data",
    "num_workers_low": "few workers",
    "cpu_oversubscribed": "CPU overload",
    "thermal": "heat",
    "power_brake": "power brake",
    "power_limit_lowered": "limit",
    "sync": "syncs each step",
    "launch_bound": "tiny kernels",
    "alloc_retries": "alloc retries",
    "recompile": "recompiles",
    "pcie_width": "PCIe",
    "shared_gpu": "shared",
    "no_mixed_precision": "fp32",
    "rank_behind": "rank behind",
    "collective_timeout": "NCCL",
    "uneven_inputs": "uneven ranks",
    "duplicate_gpu": "ranks share it",
    "shm_too_small": "shm",
    "p2p_acs": "P2P",
    "io_stall": "I/O stall",
    "orphans": "stray",
    "pid_namespace": "other namespace",
    "notebook_refs": "notebook",
    "idle_kernel": "idle holder",
    "mps_other_user": "MPS",
    "graphics_clients": "desktop",
    "telemetry_stale": "stale counter",
    "nvml_mismatch": "driver mismatch",
}
"""Where the id of a cause, read as words, is too long or not what people say."""


def cause_word(finding: Finding) -> str:
    """``heat``, ``stray``, ``Xid 31``: what stands behind a row of a GPU or before a command."""
    if finding.flow == "kernel-fault" and finding.cause not in CAUSE_WORDS:
        xids = xids_of(finding)
        if xids:
            return f"Xid {xids[0]}"
    return CAUSE_WORDS.get(finding.cause) or foreign(finding.cause).replace("_", " ")


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity; within one in the engine's order, which has its reasons."""
    return sorted(findings, key=lambda one: RANKS[one.severity])


def bare_title(finding: Finding) -> str:
    """Without ``GPU 3: `` at its front, for where the GPU stands beside it; no full stop."""
    title = foreign(finding.title).strip().rstrip(".")
    return title if finding.gpu is None else title.removeprefix(f"GPU {finding.gpu}: ")


def troubled(findings: Iterable[Finding]) -> dict[int, str]:
    """Pid → short word of the worst finding about it; what is only ``info`` is no trouble."""
    words: dict[int, str] = {}
    for one in worst_first(findings):
        if one.severity != "info":
            for pid in pids_of(one):
                words.setdefault(pid, cause_word(one))
    return words
