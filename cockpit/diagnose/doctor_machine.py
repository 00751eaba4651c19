"""Steps of a checkup about the machine round the job: container, limits, health of the GPUs. Pure.

Most of them warn: they cost speed or will bite later, and keep no job from its first step.
"""

from __future__ import annotations

from cockpit.diagnose.devices import names, resolve
from cockpit.diagnose.verdict import (
    Done,
    Verdict,
    command,
    passed,
    seen,
    setting,
    silent,
)
from cockpit.model.checkup_facts import Facts
from cockpit.model.finding import Evidence
from cockpit.model.gpu import Gpu
from cockpit.model.text import GIB, MIB, clean, plural, size

SHM_BASE_BYTES, SHM_PER_GPU_BYTES = GIB, 64 * MIB
"""rules.md section 5: what workers and NCCL want."""
DOCKER_SHM_BYTES = 64 * MIB
MEMORY_FULL = 0.95
FEW_CPUS = 2.0
THROTTLED = 0.05
"""Of the periods in which the job wanted to run."""
P2P_NORMAL = frozenset(("ok", "chipset_not_supported", "gpu_not_supported", "not_supported"))
"""Peer access that works, or that such cards never have."""


def container(facts: Facts, _done: Done) -> Verdict:
    """Which container, and does it ask for the GPU's compute part?"""
    kind, variables = facts.job.container, facts.job.variables
    if kind is None:
        return silent("The job runs in no container that can be seen.")
    shown = clean(kind)
    devices = variables.get("NVIDIA_VISIBLE_DEVICES")
    abilities = variables.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if devices in ("", "void", "none") and not facts.snapshot.gpus:
        return Verdict(
            "fail",
            f"The container ({shown}) was started without a GPU.",
            (seen("environment", f"NVIDIA_VISIBLE_DEVICES='{devices}'"),),
            "container_without_gpu",
        )
    if abilities and not {"compute", "all"} & set(abilities.split(",")):
        fix = setting(
            "Ask for the compute part",
            "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility <image>",
            "libcuda is passed in with this capability only",
        )
        evidence = (seen("environment", f"NVIDIA_DRIVER_CAPABILITIES={clean(abilities)}"),)
        sentence = f"The container ({shown}) was started without the capability `compute`."
        return Verdict("warn", sentence, evidence, None, {}, (fix,))
    return passed(f"The job runs in a container ({shown}).")


def shared_memory(facts: Facts, _done: Done) -> Verdict:
    """/dev/shm where the job sees it."""
    limits = facts.limits
    if limits is None or limits.shm_total_bytes is None:
        return silent(facts.unread.get("limits", "/dev/shm cannot be looked at."))
    total, free = limits.shm_total_bytes, limits.shm_free_bytes or 0
    wanted = SHM_BASE_BYTES + SHM_PER_GPU_BYTES * max(1, len(facts.snapshot.gpus))
    sizes = f"/dev/shm has {size(total)}, {size(free)} free"
    if total <= DOCKER_SHM_BYTES:
        sentence = f"{sizes}: Docker's default, too little for data workers and NCCL."
        return Verdict("warn", sentence, (), "shm_too_small")
    if total < wanted:
        sentence = f"{sizes}; {size(wanted)} are wanted for this many GPUs."
        return Verdict("warn", sentence, (), "shm_too_small")
    if free < total * 0.05:
        fix = command(
            "See what fills it",
            "ls -lhS /dev/shm | head",
            "files of ended jobs (torch_*, nccl-*) stay there",
        )
        return Verdict("warn", f"{sizes}: nearly full.", fixes=(fix,))
    return passed(f"{sizes}.")


def cgroup_limits(facts: Facts, _done: Done) -> Verdict:
    """Memory, CPU time and locked memory that the job may have."""
    limits = facts.limits
    if limits is None:
        return silent(facts.unread.get("limits", "The job's limits cannot be looked at."))
    words: list[str] = []
    limit, used = limits.memory_limit_bytes, limits.memory_used_bytes or 0
    if limit is not None:
        words.append(f"memory {size(used)} of {size(limit)}")
    if limits.cpu_quota is not None:
        words.append(f"{limits.cpu_quota:g} CPUs' time")
    if limits.cpus is not None:
        words.append(plural(limits.cpus, "CPU"))
    if limits.locked_memory_bytes is not None:
        words.append(f"locked memory {size(limits.locked_memory_bytes)}")
    told = ", ".join(words) or "none"
    if limit is not None and used > limit * MEMORY_FULL:
        return Verdict("warn", f"The cgroup's memory is nearly used up: {told}.", (), "host_oom")
    few = limits.cpu_quota is not None and limits.cpu_quota < FEW_CPUS
    if few or (limits.throttled_share or 0) > THROTTLED:
        share = limits.throttled_share
        evidence = () if share is None else (_stopped(share),)
        return Verdict("warn", f"CPU time is short: {told}.", evidence, "cpu_oversubscribed")
    return passed(f"Limits: {told}.")


def _stopped(share: float) -> Evidence:
    return seen("cpu.stat", f"stopped in {share:.0%} of the scheduler's periods")


def fabric_manager(facts: Facts, done: Done) -> Verdict:
    """On machines with NVSwitch."""
    kernel = facts.kernel
    if kernel is None or kernel.nvswitches == 0:
        return silent("No NVSwitch is seen on this machine.")
    switches = plural(kernel.nvswitches, "NVSwitch")
    if facts.driver is not None and facts.driver.init == 0:
        return passed(f"{switches}, and CUDA starts: the fabric is up.")
    if kernel.fabric_manager is None:
        return silent(f"{switches}; whether Fabric Manager runs cannot be seen from here.")
    if kernel.fabric_manager:
        return passed(f"{switches}, and Fabric Manager runs.")
    if kernel.module_version is None or "libcuda" not in done:
        return silent(f"{switches}; the driver comes first.")
    words = {
        "driver_version": kernel.module_version,
        "driver_branch": kernel.module_version.partition(".")[0],
    }
    sentence = f"{switches}, and no process of Fabric Manager is seen."
    return Verdict("warn", sentence, (), "fabric_manager", dict(words))


def _gpus(facts: Facts) -> list[Gpu]:
    """Those of the job; all where its variable leaves none."""
    visible = resolve(facts.job.variables.get("CUDA_VISIBLE_DEVICES"), facts.snapshot.gpus)
    chosen = [gpu for gpu in facts.snapshot.gpus if gpu.index in visible.gpus]
    return [gpu for gpu in chosen or facts.snapshot.gpus if gpu.state != "lost"]


_NO_GPU = silent("NVML shows no GPU that answers.")


def mig(facts: Facts, _done: Done) -> Verdict:
    """Divided GPUs."""
    gpus = _gpus(facts)
    if not gpus:
        return _NO_GPU
    divided = [gpu for gpu in gpus if gpu.mig_enabled]
    if not divided:
        known = any(gpu.mig_enabled is not None for gpu in gpus)
        return passed("MIG is off.") if known else silent("These GPUs have no MIG.")
    lists = tuple(
        seen("nvml", f"GPU {gpu.index}: {one.profile} {one.uuid}")
        for gpu in divided
        for one in gpu.mig_instances
    )
    first = divided[0].index
    where = names([gpu.index for gpu in divided])
    if any(not gpu.mig_instances for gpu in divided):
        sentence = f"MIG is on, and an instance is missing: {where}."
        fix = command(
            "Make an instance",
            f"sudo nvidia-smi mig -i {first} -cgi 0 -C",
            "without an instance no program can use the GPU",
            admin=True,
            verify="nvidia-smi -L lists the instance",
        )
        return Verdict("warn", sentence, lists, None, {}, (fix,))
    if len(lists) == 1:
        return passed(f"MIG is on: {where} with one instance.", *lists)
    sentence = f"MIG is on: {where} with {len(lists)} instances; a process uses one."
    return Verdict("warn", sentence, lists, "mig_single_instance", {"gpu": first})


def persistence(facts: Facts, _done: Done) -> Verdict:
    """Does the driver keep idle GPUs awake?"""
    gpus = _gpus(facts)
    if not any(gpu.persistence_mode is not None for gpu in gpus):
        return silent("Persistence mode cannot be read.") if gpus else _NO_GPU
    off = [gpu.index for gpu in gpus if gpu.persistence_mode is False]
    if not off:
        return passed("Persistence mode is on.")
    fix = command(
        "Keep the driver loaded",
        "sudo systemctl enable --now nvidia-persistenced  # or: sudo nvidia-smi -pm 1",
        "without it the first program waits seconds for each GPU, and settings are lost",
        admin=True,
        verify="nvidia-smi --query-gpu=persistence_mode --format=csv",
    )
    return Verdict("warn", f"Persistence mode is off: {names(off)}.", fixes=(fix,))


def pcie_link(facts: Facts, _done: Done) -> Verdict:
    """The width: the generation falls by itself while a GPU is idle, the width does not."""
    gpus = [gpu for gpu in _gpus(facts) if gpu.pcie_width and gpu.pcie_width_max]
    if not gpus:
        return silent("The PCIe link cannot be read.")
    narrow = [gpu for gpu in gpus if (gpu.pcie_width or 0) < (gpu.pcie_width_max or 0)]
    evidence = tuple(seen("nvml", _link(gpu)) for gpu in narrow or gpus[:1])
    if narrow:
        where = names([gpu.index for gpu in narrow])
        sentence = f"The PCIe link is narrower than it can be: {where}."
        return Verdict("warn", sentence, evidence, "pcie_width", {"gpu": narrow[0].index})
    return passed(f"PCIe: {_link(gpus[0])}." if len(gpus) == 1 else "PCIe links are full width.")


def _link(gpu: Gpu) -> str:
    return (
        f"GPU {gpu.index} has x{gpu.pcie_width} of x{gpu.pcie_width_max}, "
        f"generation {gpu.pcie_generation} of {gpu.pcie_generation_max}"
    )


def memory_health(facts: Facts, _done: Done) -> Verdict:
    """ECC errors and remapped rows."""
    gpus = _gpus(facts)
    if not gpus:
        return _NO_GPU
    for gpu in gpus:
        words = {"gpu": gpu.index, "pci": gpu.pci_bus_id}
        if gpu.remapped_rows_failed:
            sentence = f"GPU {gpu.index}: row remapping failed, its memory cannot be repaired."
            return Verdict("fail", sentence, _health(gpu), "remap_failure", dict(words))
    for gpu in gpus:
        words = {"gpu": gpu.index, "pci": gpu.pci_bus_id}
        if gpu.remapped_rows_pending:
            sentence = f"GPU {gpu.index}: a memory row waits for its remapping."
            return Verdict("warn", sentence, _health(gpu), "ecc_contained", dict(words))
        if gpu.ecc_uncorrected:
            sentence = f"GPU {gpu.index}: {gpu.ecc_uncorrected} uncorrected memory errors."
            return Verdict("warn", sentence, _health(gpu), "ecc_dbe", dict(words))
    if all(gpu.ecc_uncorrected is None and gpu.remapped_rows_failed is None for gpu in gpus):
        return silent("These GPUs tell nothing of ECC or remapped rows.")
    return passed("No uncorrected memory errors, no row waits for remapping.")


def _health(gpu: Gpu) -> tuple[Evidence, ...]:
    return (
        seen(
            "nvml",
            f"GPU {gpu.index}: uncorrected {gpu.ecc_uncorrected}, corrected {gpu.ecc_corrected}, "
            f"remapping pending {gpu.remapped_rows_pending}, failed {gpu.remapped_rows_failed}",
        ),
    )


def peer_to_peer(facts: Facts, _done: Done) -> Verdict:
    """How the job's GPUs reach each other."""
    inside = {gpu.index for gpu in _gpus(facts)}
    if not inside:
        return silent("There is no GPU.")
    if len(inside) < 2:
        return silent("One GPU has no peer.")
    links = [one for one in facts.snapshot.topology if {one.a, one.b} <= inside]
    if not links:
        return silent("The topology could not be read.")
    bad = [one for one in links if one.p2p is not None and one.p2p not in P2P_NORMAL]
    bad += [one for one in links if one.nvlinks and one.p2p not in (None, "ok") and one not in bad]
    evidence = tuple(
        seen("nvml", f"GPU {one.a} and {one.b}: {one.level}, {one.nvlinks} NVLinks, P2P {one.p2p}")
        for one in (bad or links)[:8]
    )
    if bad:
        sentence = f"{plural(len(bad), 'pair')} of GPUs cannot reach each other's memory."
        fix = setting(
            "Only if collectives hang",
            "NCCL_P2P_DISABLE=1",
            "they then go through host memory, slower",
        )
        return Verdict("warn", sentence, evidence, None, {}, (fix,))
    works = sum(1 for one in links if one.p2p == "ok")
    ways = sorted({f"NV{one.nvlinks}" if one.nvlinks else one.level or "?" for one in links})
    if works < len(links):
        return passed(f"Peer access is not supported by these GPUs ({', '.join(ways)}).", *evidence)
    return passed(f"Peer access works between all {plural(works, 'pair')} ({', '.join(ways)}).")
