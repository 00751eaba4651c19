"""CUDA is not available, or the program silently computes on the CPU.

Past 400 lines: two thirds of it are rows (what a log says → which cause), one table of one shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cockpit.diagnose.candidate import (
    EXCEPTION,
    HARDWARE,
    SPECIFIC,
    STATE,
    Candidate,
    Facts,
    Sign,
    candidates,
    compiled,
    search,
)
from cockpit.diagnose.log_reader import Log
from cockpit.diagnose.tables import cuda_compat
from cockpit.diagnose.visible_devices import number_of

_CVD = r"CUDA_VISIBLE_DEVICES ?[=:] ?['\"]?(?P<cvd>[\w,.:/-]{0,400})"
_ARCH_LIST = r"(?:sm_\d{2,3}a?[\s,'\"]{1,4}){2,}"
_NO_DRIVER = r"Found no NVIDIA driver on your system"
_NO_GPUS = r"No CUDA GPUs are available|no CUDA-capable device is detected|cudaErrorNoDevice"


def _torch_build(log: Log) -> Facts:
    facts: Facts = {}
    found = search(log, r"\b(?P<torch>\d\.\d{1,2}\.\d{1,2}(?:\.\w+)?\+cpu)\b")
    if found:
        facts["torch"] = found["torch"]
    before = search(
        log, r"(?:Found existing installation: torch |Uninstalling torch-)(?P<b>\d[\w.+]{2,30})"
    )
    after = search(log, r"Successfully installed .{0,600}?\btorch-(?P<a>\d[\w.+]{2,30})")
    if before and after:
        facts |= {"before": before["b"].rstrip("."), "after": after["a"]}
    base = str(facts.get("before") or facts.get("torch") or "<version>")
    facts["torch_base"], _, local = base.partition("+")
    facts["wheel"] = local if local.startswith("cu") else "cu126"
    pair = search(log, r"\btorchvision (\d+\.\d+\.\d+)")
    vision = f"torchvision=={pair[1]}" if pair else "torchvision"
    audio = f"torchaudio=={facts['torch_base']}" if "before" in facts else "torchaudio"
    facts["companions"] = f"{vision} {audio}"
    return facts


def _old_driver(log: Log) -> Facts:
    found = search(log, r"found version (\d{4,5})\)?")
    if found is None:
        found = search(log, r"driver version is insufficient for CUDA runtime version")
        return {"wheel": "cu118"} if found else {}
    cuda = cuda_compat.cuda_of_driver(int(found[1]))
    wheel = cuda_compat.wheel_for_driver(cuda)
    return {"driver_cuda": cuda, "wheel": wheel or "cu118"}


def _architectures(log: Log) -> Facts:
    facts: Facts = {}
    device = search(log, r"CUDA capability sm_(\d{2,3})")
    if device:
        facts["device_sm"] = f"{device[1][:-1]}.{device[1][-1]}"
    device = search(
        log,
        r"compute capability \(CC\) (\d+\.\d)|cuda capability (\d+\.\d)\b|\((\d{1,2}\.\d)\) smoke",
    )
    if device and "device_sm" not in facts:
        facts["device_sm"] = device[1] or device[2] or device[3]
    wheel = search(log, rf"supports .{{0,60}}?({_ARCH_LIST}(?:sm_\d{{2,3}})?)")
    if wheel:
        facts["wheel_sms"] = " ".join(re.findall(r"sm_(\d{2,3})", wheel[1]))
    facts["wheel"] = cuda_compat.wheel_for_capability(str(facts.get("device_sm", "12.0")))
    return facts


def _extension(log: Log) -> Facts:
    facts = _architectures(log)
    found = search(
        log,
        r"(?P<extension>flash[-_]attn|flashinfer|xformers|apex|bitsandbytes|deepspeed|mamba[-_]ssm"
        r"|causal[-_]conv1d|transformer[-_]engine|vllm|sgl[-_]kernel|natten|torchvision|spconv"
        r"|detectron2|pytorch3d|tinycudann|gsplat|auto[-_]gptq|awq|exllama\w*)\S{0,120}\.(?:cuh?|h"
        r"|so|cpp|py)\b",
    )
    facts["extension"] = found["extension"].lower().replace("_", "-") if found else "the extension"
    return facts


def _cvd(log: Log) -> Facts:
    found = search(log, _CVD)
    return {"cvd": found["cvd"]} if found else {}


def _fabric(log: Log) -> Facts:
    found = search(
        log, r"driver version (?P<driver_version>(?P<driver_branch>\d{3})\.[\d.]{2,12}\d)"
    )
    return dict(found.groupdict()) if found else {}


SIGNS: tuple[Sign, ...] = (
    Sign("cpu_wheel", r"Torch not compiled with CUDA enabled", SPECIFIC, 0.96, facts=_torch_build),
    Sign(
        "cpu_wheel",
        r"Successfully installed .{0,600}?\btorch-\d[\w.]{2,30}\+cpu",
        SPECIFIC,
        0.96,
        facts=_torch_build,
    ),
    Sign(
        "cpu_wheel",
        r"\b\d\.\d{1,2}\.\d{1,2}\+cpu\b",
        SPECIFIC - 6,
        0.85,
        needs=(
            r"\bNone False\b|is_available\(\)\W{0,12}False|cuda\W{0,4}(?:None|False)|[Dd]evice: "
            r"cpu",
        ),
        facts=_torch_build,
    ),
    Sign(
        "driver_too_old",
        r"NVIDIA driver on your system is too old|driver version is insufficient for CUDA runtime"
        r"|cudaErrorInsufficientDriver|unsatisfied condition: cuda ?>= ?[\d.]+",
        SPECIFIC + 2,
        0.96,
        facts=_old_driver,
        not_=("Not the CUDA toolkit: wheels bring their own, only the driver counts.",),
    ),
    Sign(
        "compat_libcuda",
        r"Error 804:|forward compatibility was attempted on non supported HW"
        r"|cudaErrorCompatNotSupportedOnDevice",
        SPECIFIC + 2,
        0.95,
    ),
    Sign(
        "fabric_manager",
        r"(?:Error (?P<code>802)\W{1,3})?system not yet initialized|cudaErrorSystemNotReady"
        r"|fabricmanager\[\d+\]: fabric manager NVIDIA GPU driver interface version",
        SPECIFIC + 2,
        0.95,
        facts=_fabric,
    ),
    Sign("nvml_mismatch", r"Error 803:|cudaErrorSystemDriverMismatch", SPECIFIC, 0.9),
    Sign(
        "uvm_hmm",
        r"request_free_mem_region\(\) err -34|devmem_alloc_pagemap|uvm_disable_hmm",
        HARDWARE,
        0.95,
    ),
    Sign(
        "cvd_after_init",
        r"os\.environ\[['\"]CUDA_VISIBLE_DEVICES['\"]\] ?=(?!=)"
        r"|CUDA_VISIBLE_DEVICES (?:was )?(?:set|changed) after",
        SPECIFIC + 1,
        0.85,
        needs=(rf"{_NO_GPUS}|device_count|is_available|invalid device ordinal|CUDA unknown error",),
        unless=(r"request_free_mem_region", r"Cannot re-initialize CUDA"),
        facts=_cvd,
    ),
    Sign(
        "uvm_state",
        r"CUDA unknown error - this may be due to an incorrectly set up environment"
        r"|cudaErrorUnknown|CUDA error: unknown error|Error 999:",
        SPECIFIC - 4,
        0.7,
        unless=(
            r"request_free_mem_region",
            r"os\.environ\[['\"]CUDA_VISIBLE_DEVICES['\"]\] ?=(?!=)",
            r"Xid \(PCI",
        ),
        also=(
            (
                "cvd_after_init",
                "the same text comes when the visible devices change after the start",
            ),
        ),
    ),
    Sign(
        "uvm_state",
        r"(?:PM: suspend|systemd-sleep|Waking up from system sleep|suspend (?:entry|exit))",
        SPECIFIC - 2,
        0.85,
        needs=(r"CUDA unknown error|error 999|cuInit\D{0,20}999|No CUDA GPUs|unknown error",),
    ),
    Sign(
        "arch_missing",
        r"with CUDA capability sm_\d{2,3} is not compatible with the current PyTorch"
        r"|Found GPU\d{1,2} .{0,80}? which is of (?:compute|cuda) capability"
        r"|The minimum CUDA capability supported",
        SPECIFIC + 3,
        0.95,
        facts=_architectures,
    ),
    Sign(
        "extension_arch_missing",
        r"CUDA error \([^()\n]{3,300}:\d+\): no kernel image is available",
        SPECIFIC + 2,
        0.93,
        facts=_extension,
        unless=(r"is not compatible with the current PyTorch",),
    ),
    Sign(
        "extension_arch_missing",
        r"no kernel image is available for execution on the device",
        SPECIFIC,
        0.85,
        needs=(
            r"smoke test matmul: ok|site-packages/(?:flash_attn|xformers|apex|bitsandbytes"
            r"|flashinfer"
            r"|deepspeed|mamba_ssm|causal_conv1d|transformer_engine|vllm|natten|spconv"
            r"|detectron2)/",
        ),
        unless=(
            r"is not compatible with the current PyTorch",
            r"which is of (?:compute|cuda) capab",
        ),
        facts=_extension,
    ),
    Sign(
        "arch_missing",
        r"no kernel image is available for execution|cudaErrorNoKernelImageForDevice"
        r"|cudaErrorUnsupportedPtxVersion|device kernel image is invalid",
        EXCEPTION + 4,
        0.8,
        facts=_architectures,
        also=(("extension_arch_missing", "if PyTorch's own matmul works, an extension lacks it"),),
    ),
    Sign(
        "module_not_built_for_kernel",
        r"modprobe: FATAL: Module nvidia\S* not found in directory "
        r"/lib/modules/(?P<kernel>[\w.+-]+)"
        r"|Key was rejected by service",
        HARDWARE - 4,
        0.95,
    ),
    Sign(
        "module_not_built_for_kernel",
        r"couldn't communicate with the NVIDIA driver|Failed to initialize NVML: Driver Not Loaded",
        SPECIFIC - 5,
        0.6,
        unless=(r"nouveau",),
        more=(r"(?:^|\n)(?P<kernel>\d+\.\d+\.\d+-\S{1,40})(?:\n|$)",),
        also=(("nouveau", "another driver may own the GPU: lspci -nnk -d 10de:"),),
    ),
    Sign(
        "nouveau",
        r"Kernel driver in use: nouveau|NVRM: nouveau, rivafb|loaded and obtained ownership of "
        r"the NVIDIA",
        HARDWARE - 3,
        0.95,
    ),
    Sign("fork_after_init", r"Cannot re-initialize CUDA in forked subprocess", SPECIFIC, 0.97),
    Sign(
        "fork_after_init",
        r"CUDA error: initialization error|cudaErrorInitializationError",
        EXCEPTION,
        0.7,
        needs=(r"_worker_loop|multiprocessing/process\.py|forked|os\.fork",),
    ),
    Sign(
        "bnb_lib_missing",
        r"Could not find the bitsandbytes CUDA binary at "
        r".{0,300}?libbitsandbytes_(?P<wanted>cuda\d{3})"
        r"|Configured CUDA binary not found at .{0,300}?libbitsandbytes_"
        r"|bitsandbytes was compiled without GPU support|'NoneType' object has no attribute "
        r"'cget_managed"
        r"|CUDA Setup failed despite (?:GPU|CUDA) being available",
        SPECIFIC + 1,
        0.95,
        more=(r"libbitsandbytes_(?P<wanted>cuda\d{3})",),
    ),
    Sign(
        "torchvision_mismatch",
        r"operator torchvision::\w+ does not exist|Couldn't load custom C\+\+ ops"
        r"|PyTorch and torchvision (?:were|has been) compiled with different CUDA"
        r"|Detected that PyTorch and torchvision",
        SPECIFIC,
        0.95,
        facts=_torch_build,
    ),
    Sign(
        "torchvision_mismatch",
        r"(?:torchvision|torchaudio)\S{0,80}: undefined symbol",
        SPECIFIC - 1,
        0.85,
        facts=_torch_build,
    ),
    Sign(
        "container_without_gpu",
        r"nvidia-container-cli: .{0,120}?load library failed: libnvidia-ml"
        r"|could not select device driver .{0,40}?capabilities: \[\[gpu|unknown or invalid "
        r"runtime name:"
        r" nvidia|Auto-detected mode as .legacy.|WARNING: The NVIDIA Driver was not detected",
        SPECIFIC,
        0.92,
        more=(r"docker context show\s+(?P<docker_context>[\w-]{1,40})",),
    ),
    Sign(
        "container_without_gpu",
        _NO_DRIVER,
        SPECIFIC - 2,
        0.8,
        unless=(r"nouveau", r"modprobe: FATAL"),
        also=(
            ("module_not_built_for_kernel", "if this is no container, the driver is not loaded"),
        ),
    ),
    Sign(
        "container_without_gpu",
        r"cannot access '?/dev/nvidia|libcuda\.so\.1: cannot open shared object file",
        SPECIFIC - 5,
        0.7,
        unless=(r"modprobe: FATAL|nouveau|couldn't communicate",),
    ),
    Sign(
        "container_without_gpu",
        r"Can't initialize NVML",
        SPECIFIC - 3,
        0.7,
        needs=(_NO_GPUS,),
        unless=(r"CUDA_VISIBLE_DEVICES ?=", r"modprobe: FATAL|nouveau|couldn't communicate"),
        also=(
            ("module_not_built_for_kernel", "if this is no container, the driver is not loaded"),
        ),
        why="NVML, which CUDA_VISIBLE_DEVICES does not touch, does not answer either.",
    ),
    Sign(
        "mig_single_instance",
        r"MIG-[0-9a-fA-F]{8}.{0,400}?(?:,MIG-)",
        SPECIFIC + 1,
        0.85,
        needs=(
            r"invalid device ordinal|device_count\(\) ?[=:] ?1\b|No CUDA GPUs|MIG .{0,40}not "
            r"supported"
            r"|Duplicate GPU",
        ),
    ),
    Sign(
        "mig_single_instance",
        r"\bMIG\b.{0,80}?(?:M\. |Enabled|mode)|MIG-GPU-|MIG \d+g\.\d+gb",
        SPECIFIC - 8,
        0.7,
        needs=(
            r"invalid device ordinal|device_count\(\) ?[=:] ?[01]\b|No CUDA GPUs|Duplicate GPU",
        ),
    ),
    Sign(
        "checkpoint_device",
        r"Attempting to deserialize object on CUDA device (?P<ordinal>\d{1,3}) but "
        r"torch\.cuda\.device_count\(\) is (?P<devices>\d{1,3})",
        SPECIFIC,
        0.93,
    ),
    Sign(
        "checkpoint_device",
        r"Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is "
        r"False",
        SPECIFIC - 7,
        0.8,
        also=(
            ("cpu_wheel", "CUDA is not there for this Python at all: `cockpit doctor` says why"),
        ),
    ),
    Sign(
        "code_uses_cpu",
        r"Expected all tensors to be on the same device[^\n]{0,200}?\bcpu\b"
        r"|Input type \(torch\.(?:cuda\.\w{1,20}Tensor\) and weight type \(torch\.(?!cuda\.)"
        r"|(?!cuda\.)\w{1,20}Tensor\) and weight type \(torch\.cuda\.)"
        r"|Expected object of device type cuda but got|tensor is on cpu, different from",
        SPECIFIC,
        0.85,
    ),
    Sign(
        "code_uses_cpu",
        r"GPU available: True(?: \(cuda\))?, used: False|offloaded 0/\d+ layers to GPU"
        r"|n_gpu_layers ?= ?0\b"
        r"|use_cpu ?[=:] ?True|no_cuda ?[=:] ?True|using CPUExecutionProvider"
        r"|'?CUDAExecutionProvider'? is not (?:in|available)|not compiled with GPU offload support",
        STATE,
        0.85,
    ),
    Sign(
        "code_uses_cpu",
        r"is_available\(\)\W{0,30}True",
        STATE - 5,
        0.6,
        needs=(r"(?:using|running on|device)\W{0,12}(?:device\W{0,4})?cpu\b",),
    ),
)


def find(log: Log) -> Iterator[Candidate]:
    """Candidates of this family."""
    yield from candidates(log, SIGNS)
    yield from _hidden(log)


def _hidden(log: Log) -> Iterator[Candidate]:
    """CUDA_VISIBLE_DEVICES in the log against what CUDA answered."""
    failed = search(log, rf"{_NO_GPUS}|invalid device ordinal|device_count\(\)\D{{0,6}}\d")
    if failed is None or search(log, r"MIG-[0-9a-fA-F]{8}|request_free_mem_region"):
        return
    setting = None
    for setting in compiled(_CVD).finditer(log.text):
        if setting["cvd"]:
            break
    index = log.index_at(failed.start())
    if setting is None:
        if search(log, _NO_GPUS):
            also = (("container_without_gpu", "no device files in a container look the same"),)
            why = "The log does not show the variable. Where it is set:"
            title = "CUDA sees no GPU here: CUDA_VISIBLE_DEVICES may hide them"
            yield Candidate(
                "cvd_hides_gpus", SPECIFIC - 4, index, 0.65, also=also, why=why, title=title
            )
        return
    entries = [entry.strip() for entry in setting["cvd"].strip("'\"").split(",")]
    place = log.index_at(setting.start())
    bad = _bad_uuid(log, entries)
    if bad is not None:
        known = re.findall(r"UUID: (GPU-[0-9a-f-]{8,40})", log.text)
        fixed = ",".join(_nearest(entry, known) for entry in entries)
        facts: Facts = {"bad_entry": bad, "cvd": setting["cvd"], "cvd_fixed": fixed}
        yield Candidate("cvd_bad_uuid", SPECIFIC + 4, index, 0.95, facts, lines=(place,))
    elif search(log, _NO_GPUS) or entries in (["-1"], [""], ["NoDevFiles"]):
        facts = {"cvd": setting["cvd"]}
        yield Candidate("cvd_hides_gpus", SPECIFIC + 1, index, 0.93, facts, lines=(place,))
    elif "invalid device ordinal" in log.text and log.lines[index].rank is None:
        facts = {"cvd": setting["cvd"]}
        yield Candidate("cvd_hides_gpus", EXCEPTION + 2, index, 0.7, facts, lines=(place,))


def _bad_uuid(log: Log, entries: list[str]) -> str | None:
    known = re.findall(r"UUID: (GPU-[0-9a-fA-F-]{8,40})", log.text)
    for entry in entries:
        if entry.startswith("GPU-"):
            fits = any(uuid.startswith(entry) for uuid in known)
            if (known and not fits) or not re.fullmatch(r"GPU-[0-9a-fA-F-]{1,36}", entry):
                return entry
        elif entry and number_of(entry) is None and not entry.startswith("MIG"):
            return entry if entry != "NoDevFiles" else None
    return None


def _nearest(entry: str, known: list[str]) -> str:
    best = max(known, key=lambda uuid: _shared(uuid, entry), default=entry)
    return entry if any(uuid.startswith(entry) for uuid in known) else best[:12]


def _shared(left: str, right: str) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count
