"""All causes that a diagnosis may name: family, severity, a title and what it means.

One table, past 400 lines: what all families may answer stands in one place.
"""

from __future__ import annotations

from typing import NamedTuple

from cockpit.model.event import Severity


class Cause(NamedTuple):
    """One answer. ``title`` and ``explanation`` may hold ``{fact}``."""

    flow: str
    title: str
    explanation: str
    severity: Severity = "error"


def _oom(title: str, explanation: str, severity: Severity = "error") -> Cause:
    return Cause("oom", title, explanation, severity)


def _no_cuda(title: str, explanation: str, severity: Severity = "error") -> Cause:
    return Cause("no-cuda", title, explanation, severity)


def _fault(title: str, explanation: str, severity: Severity = "error") -> Cause:
    return Cause("kernel-fault", title, explanation, severity)


def _slow(title: str, explanation: str, severity: Severity = "warning") -> Cause:
    return Cause("slow", title, explanation, severity)


def _multi(title: str, explanation: str, severity: Severity = "error") -> Cause:
    return Cause("multi-gpu", title, explanation, severity)


def _held(title: str, explanation: str, severity: Severity = "warning") -> Cause:
    return Cause("vram-held", title, explanation, severity)


CAUSES: dict[str, Cause] = {
    # ── oom
    "oom_peak": _oom(
        "The live tensors of this process do not fit into the GPU's memory",
        "Weights, gradients, optimizer states and activations together need more than the card "
        "has.",
    ),
    "oom_fragmentation": _oom(
        "GPU memory is fragmented: reserved but unused blocks would have served the request",
        "Tensors of changing sizes split the cached segments; there is enough memory, not in one "
        "piece.",
    ),
    "oom_other_process": _oom(
        "Another process fills the GPU",
        "The memory that this program asked for belongs to somebody else.",
    ),
    "oom_growth": _oom(
        "GPU memory was full already; the failing line is innocent",
        "A tiny request met a full card. Something before it keeps tensors: kept graphs, a list of "
        "losses, a growing cache.",
    ),
    "oom_graph_pools": _oom(
        "CUDA graphs' private pools leave too little memory",
        "Memory in a captured graph's private pool serves only that graph.",
    ),
    "oom_fraction_cap": _oom(
        "A memory limit of this process refused the request, not the card",
        "The card has free memory; a per-process memory fraction is set.",
    ),
    "oom_pool_budget": _oom(
        "The engine's own memory budget is smaller than what it needs",
        "No allocation of the driver failed: the share of the card that the engine may use is too "
        "small for weights, activations and cache.",
    ),
    "oom_ranks_on_one_gpu": _oom(
        "Several ranks load onto the same GPU",
        "Each rank puts a context or a whole checkpoint onto one card instead of its own.",
    ),
    "oom_host_paging": _oom(
        "GPU memory was paged to host RAM until that ran out too",
        "More is allocated than the card has, which WSL and Windows allow: it ran very slowly "
        "before.",
    ),
    "oom_disguised": _oom(
        "Out of GPU memory, in the words of a library",
        "The library could not get memory for its handle or workspace, which it takes outside of "
        "PyTorch's pool.",
    ),
    "oom_on_rank": _oom(
        "One rank ran out of GPU memory; the other ranks' errors follow from it",
        "The collective's error is the echo of the rank that ended first.",
    ),
    "host_oom": _oom(
        "Host memory ran out and the kernel killed the process",
        "Host RAM or the container's limit was full. GPU memory has nothing to do with it.",
    ),
    "kernel_shared_memory": _oom(
        "A kernel needs more on-chip shared memory than this GPU has",
        "It is the memory of one thread block inside the chip; the tile of the kernel is too large "
        "for this generation.",
    ),
    "not_oom_corrupt_size": _oom(
        "An absurd size was asked for: the number is corrupt, memory is not short",
        "No program needs that much. The size comes from an uninitialised or overflowed number.",
    ),
    "recovered": _oom(
        "Memory ran out once, the program handled it and went on", "Steps follow after it.", "info"
    ),
    # ── no-cuda
    "cpu_wheel": _no_cuda(
        "A CPU-only build of PyTorch is installed in this environment",
        "The build has no CUDA in it, whatever the machine has.",
    ),
    "driver_too_old": _no_cuda(
        "The NVIDIA driver is too old for this build of PyTorch",
        "The wheel's CUDA is newer than what the loaded driver supports.",
    ),
    "arch_missing": _no_cuda(
        "This build of PyTorch has no code for this generation of GPU",
        "The wheel's list of architectures lacks the device's compute capability.",
    ),
    "extension_arch_missing": _no_cuda(
        "An extension was built without code for this GPU; PyTorch itself is fine",
        "The message comes from a third-party library's own kernels.",
    ),
    "container_without_gpu": _no_cuda(
        "No GPU is passed into this container or job",
        "The device files or the driver's libraries are not there where the program runs.",
    ),
    "uvm_state": _no_cuda(
        "The kernel module nvidia_uvm is in a broken state",
        "Known after suspend and resume: nvidia-smi works, CUDA does not start.",
    ),
    "uvm_hmm": _no_cuda(
        "nvidia_uvm cannot register the GPU: HMM finds no free address region",
        "Heterogeneous memory management and kernel address randomisation collide on this machine.",
    ),
    "cvd_hides_gpus": _no_cuda(
        "CUDA_VISIBLE_DEVICES hides the GPUs from this process",
        "Its value names no existing device; nvidia-smi ignores the variable and looks healthy.",
    ),
    "cvd_bad_uuid": _no_cuda(
        "A mistyped entry ends the list in CUDA_VISIBLE_DEVICES",
        "Entries are read in order and everything from the first invalid one on is dropped.",
    ),
    "cvd_after_init": _no_cuda(
        "CUDA_VISIBLE_DEVICES was set after CUDA had started",
        "It is read once, at the first CUDA call; a later change does nothing or does harm.",
    ),
    "fabric_manager": _no_cuda(
        "NVIDIA Fabric Manager is not running, so the NVSwitch GPUs are not initialised",
        "Error 802 on NVSwitch machines: the fabric's state is not complete.",
    ),
    "compat_libcuda": _no_cuda(
        "The cuda-compat libcuda is used on hardware that does not support it",
        "Forward compatibility exists for data-centre GPUs; elsewhere CUDA answers with error 804.",
    ),
    "code_uses_cpu": _no_cuda(
        "CUDA is fine: the program itself uses the CPU",
        "A device choice in the code, or in its configuration, says cpu.",
        "warning",
    ),
    "checkpoint_device": _no_cuda(
        "The checkpoint was saved on a GPU that this process does not have",
        "torch.load puts tensors back onto the device that they were saved from.",
    ),
    "module_not_built_for_kernel": _no_cuda(
        "The NVIDIA kernel module is missing for the running kernel",
        "The kernel was changed and the module was not built for it.",
    ),
    "nouveau": _no_cuda(
        "The nouveau driver owns the GPU",
        "The NVIDIA module cannot bind to a device that another driver holds.",
    ),
    "mig_single_instance": _no_cuda(
        "One process can open one MIG instance only",
        "CUDA uses the first MIG instance of the list, whatever else is in it.",
    ),
    "bnb_lib_missing": _no_cuda(
        "bitsandbytes has no library for this CUDA version",
        "It fell back to its CPU library. PyTorch and CUDA work.",
    ),
    "torchvision_mismatch": _no_cuda(
        "torch and torchvision come from different builds",
        "Compiled operators fit exactly one version and one CUDA build of torch.",
    ),
    "fork_after_init": _no_cuda(
        "CUDA is used in a forked child of a process that had started CUDA",
        "A CUDA context does not survive fork(); the driver is fine.",
    ),
    # ── kernel-fault
    "index_out_of_range": _fault(
        "An index, token id or position is outside its table",
        "The index is negative, or not below the size of what it indexes.",
    ),
    "label_out_of_range": _fault(
        "A target is outside the classes",
        "A label is negative or not below the number of classes: often an unmapped ignore value "
        "such as 255, or labels that count from 1.",
    ),
    "sticky_context": _fault(
        "An earlier CUDA error poisoned this process; only the first one counts",
        "After such an error every CUDA call of the process fails in the same way until it "
        "restarts.",
    ),
    "illegal_access": _fault(
        "A kernel read or wrote outside its memory",
        "Usually an index out of range in a kernel without a check, or a bug in a custom kernel. "
        "CUDA reports it late: the Python line need not be the place.",
    ),
    "misaligned": _fault(
        "A kernel used a misaligned address",
        "A custom or compiled kernel assumes an alignment that a view or an odd size does not "
        "have.",
    ),
    "library_shape_or_async": _fault(
        "The library cannot do this shape, or an earlier fault surfaced in it",
        "Sizes past 32-bit indexing, or an asynchronous error of a kernel before.",
    ),
    "foreign_libcublas": _fault(
        "Another CUDA's library is loaded into the process",
        "A library directory of the environment puts a system copy before the wheel's own.",
    ),
    "gpu_off_bus": _fault(
        "A GPU has fallen off the bus",
        "It does not answer on PCIe any more; the other GPUs go on.",
    ),
    "ecc_contained": _fault(
        "A memory error hit one program; the row is queued for remapping",
        "The error was contained: only this process is affected. The spare row comes in with a "
        "reset.",
    ),
    "ecc_dbe": _fault(
        "The GPU had an uncorrectable memory error",
        "A double-bit ECC error: results since then are not to be trusted.",
    ),
    "remap_failure": _fault(
        "The GPU's memory cannot be repaired any more",
        "Row remapping failed or has no spare rows left: the replacement criterion is met.",
    ),
    "gsp_timeout": _fault(
        "The GPU's system processor (GSP) does not answer",
        "The firmware hangs. The process named in the kernel's line is only the victim.",
    ),
    "nvlink_fault": _fault("An NVLink reports errors", "The link between the GPUs is faulty."),
    "device_state_bad": _fault(
        "The GPU is in a bad state: fresh processes fail on it too",
        "Not this program: a new process fails on this GPU until it is reset.",
    ),
    "reset_blocked": _fault(
        "Something holds the GPU, so its reset is refused",
        "Daemons and monitors, this one included, keep the device open without computing.",
        "warning",
    ),
    "benign": _fault("Nothing is wrong", "Nothing in this log needs a repair.", "info"),
    # ── slow
    "dataloader": _slow(
        "The GPU waits for data",
        "Most of a step's time goes into loading: storage or preparation cannot keep up.",
    ),
    "num_workers_low": _slow(
        "Data is loaded in the training process itself",
        "With few or no workers, loading and computing take turns.",
    ),
    "cpu_oversubscribed": _slow(
        "More workers than CPU cores, or the container's CPU limit throttles them",
        "The processes wait for CPU time; the GPU waits for them.",
    ),
    "thermal": _slow("The GPU is too hot and lowers its clock", "Thermal slowdown is active."),
    "power_brake": _slow(
        "The machine's power supply brakes the GPUs",
        "The hardware power brake is a signal of the chassis: power supply, cabling or a cap.",
    ),
    "power_limit_lowered": _slow(
        "The power limit is set below its default",
        "The GPU runs into a limit that somebody lowered.",
    ),
    "sync": _slow(
        "The CPU waits for the GPU in every step",
        "Reading values of the GPU stops the launching of kernels.",
    ),
    "launch_bound": _slow(
        "Tiny kernels: the GPU waits for launches",
        "Utilisation is high at low power: kernels are shorter than their launch.",
    ),
    "alloc_retries": _slow(
        "Memory is so tight that steps free and allocate again",
        "Flushing the allocator's cache stops the GPU: the slowness is a memory problem.",
    ),
    "recompile": _slow(
        "torch.compile compiles again and again",
        "A guard changes from call to call, mostly a shape; then the function runs uncompiled.",
    ),
    "pcie_width": _slow(
        "A GPU's PCIe link is narrower or slower than it can be",
        "Copies to and from this GPU crawl: seat, riser or slot.",
    ),
    "shared_gpu": _slow("Another job runs on the same GPU", "Two programs share its time."),
    "no_mixed_precision": _slow(
        "Computing in fp32 while the tensor cores are idle",
        "Matrix products run without TF32, bf16 or fp16.",
    ),
    # ── multi-gpu
    "rank_behind": _multi(
        "Rank {culprit_rank} never called the collective that the others waited in",
        "The silent rank is the cause, not the ranks that report the time-out.",
    ),
    "collective_timeout": _multi(
        "A collective timed out; the text does not name the rank that was missing",
        "The ranks that report it were waiting. Look at those that do not.",
    ),
    "uneven_inputs": _multi(
        "The ranks do not call the same collectives",
        "Different numbers of batches, or different sizes, on the ranks.",
    ),
    "shm_too_small": _multi(
        "/dev/shm is too small",
        "Workers and NCCL pass data through shared memory; containers have 64 MB by default.",
    ),
    "p2p_acs": _multi(
        "PCIe peer-to-peer traffic between the GPUs is blocked or redirected",
        "ACS or the IOMMU sends it through the root complex, and transfers never arrive.",
    ),
    "duplicate_gpu": _multi(
        "Two ranks use the same GPU", "NCCL needs one GPU a rank: the local rank is not used."
    ),
    "too_many_ranks": _multi(
        "A device number beyond the visible GPUs: more ranks were started than GPUs are there",
        "The process may see fewer GPUs than the machine has.",
    ),
    "io_stall": _multi(
        "The processes are frozen in I/O",
        "No rank makes progress, none has started a collective: storage or imports hang.",
    ),
    "peer_died": _multi(
        "Another rank ended first; the network's error is the echo",
        "The connection had worked and was closed from the other side.",
    ),
    "rendezvous": _multi(
        "The workers cannot reach the master",
        "The ranks never met: address, port, name resolution, firewall or a missing node.",
    ),
    "port_in_use": _multi(
        "The master port is in use already",
        "Another job, or an orphan of an earlier run, listens on it.",
    ),
    "straggler": _multi(
        "One slow rank holds all others back",
        "Waiting in NCCL is a busy kernel: utilisation does not show who is slow.",
        "warning",
    ),
    "nccl_version_mismatch": _multi(
        "The nodes run different versions of NCCL", "All ranks need the same build."
    ),
    # ── vram-held
    "orphans": _held(
        "Orphaned processes of an ended run hold the GPU memory",
        "Their parent is gone; nothing will end them by itself.",
    ),
    "pid_namespace": _held(
        "The holder is outside of this container",
        "The PID namespace hides other containers' and the host's processes.",
    ),
    "notebook_refs": _held(
        "The notebook's traceback or history still holds the tensors",
        "The exception's frames keep references, so that nothing can be freed.",
    ),
    "idle_kernel": _held(
        "A forgotten notebook or process of the same user holds the memory",
        "It is old, idle, and keeps its variables.",
    ),
    "unkillable": _held(
        "A thread of the holder is stuck in the kernel",
        "A process in uninterruptible sleep takes no signal until the driver lets it go.",
        "error",
    ),
    "mps_other_user": _held(
        "Another user's MPS daemon controls the GPU",
        "One MPS server serves one user; others wait or are refused.",
        "error",
    ),
    "exclusive_mode": _held(
        "The GPU is in exclusive-process mode and a process has it",
        "One context at a time is allowed, however much memory is free.",
        "error",
    ),
    "graphics_clients": _held(
        "The desktop uses this memory", "Graphical programs hold it; it is no leak.", "info"
    ),
    "telemetry_stale": _held(
        "A counter is stale; nobody holds anything", "The reading does not follow reality.", "info"
    ),
    "nvml_mismatch": _held(
        "The user-space driver and the loaded kernel module differ",
        "An upgrade replaced the libraries while the old module is still loaded. Jobs that started "
        "before it go on.",
        "error",
    ),
    "cgroup_devices_lost": _held(
        "The container lost its access to the GPU's device files",
        "Known after `systemctl daemon-reload` on the host: the device cgroup was rewritten.",
        "error",
    ),
    "dev_permissions": _held(
        "The device files of the GPU are not open to this user",
        "Mode, group or SELinux deny it.",
        "error",
    ),
    "needs_open_module": _held(
        "This GPU generation needs the open kernel modules",
        "The proprietary flavour of the driver is installed and cannot drive it.",
        "error",
    ),
    "unknown": Cause("unknown", "No known cause", "Nothing in this log fits a known cause."),
}
