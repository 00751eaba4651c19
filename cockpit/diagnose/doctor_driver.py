"""Steps of a checkup from the bus to NVML. Pure: facts in, verdict out."""

from __future__ import annotations

from typing import Any

from cockpit.diagnose.devices import names, resolve
from cockpit.diagnose.verdict import (
    Done,
    Verdict,
    command,
    driver_speaks,
    kernel_is_hidden,
    passed,
    seen,
    silent,
    waits_for,
)
from cockpit.model.checkup_facts import Facts
from cockpit.model.finding import Evidence, Fix
from cockpit.model.gpu import DriverError, Gpu
from cockpit.model.text import clean, plural

_HIDDEN = (
    "The kernel shows no NVIDIA device here although the driver answers: a sandbox hides it, "
    "or the driver is a stand-in."
)
_LOAD = command(
    "Load the module",
    "sudo modprobe nvidia nvidia_uvm",
    "it is there for the running kernel and not loaded",
    admin=True,
    verify="cat /proc/driver/nvidia/version",
)
_MAKE_NODES = command(
    "Make the device files",
    "sudo nvidia-modprobe -u -c=0",
    "they are normally made when the first program starts CUDA",
    admin=True,
    verify="ls -l /dev/nvidia*",
)
_KERNEL_WORDS = command(
    "Read what the kernel says",
    "sudo dmesg | grep -E 'NVRM|nvidia' | tail -20",
    "the driver explains there why it does not start a device",
    admin=True,
)

_NO_HARDWARE = Fix(
    title="Use a machine with an NVIDIA GPU; pass it through where this is a virtual one",
    kind="hardware",
    value="lspci -d 10de:",
    risk="safe",
    why="no driver can make up for a card that the bus does not show",
    loses="nothing",
    verify="lspci -d 10de: lists the GPU",
)

NVML_CAUSES = {
    "lib_rm_version_mismatch": "nvml_mismatch",
    "driver_not_loaded": "module_not_built_for_kernel",
    "uninitialized": "module_not_built_for_kernel",
    "library_not_found": "container_without_gpu",
    "no_permission": "dev_permissions",
    "no_devices": "container_without_gpu",
    "gpu_is_lost": "gpu_off_bus",
    "timeout": "gsp_timeout",
}


def pci(facts: Facts, _done: Done) -> Verdict:
    """Is there a GPU on the bus?"""
    kernel = facts.kernel
    if kernel is None or kernel.gpus is None:
        return silent("The PCI bus cannot be seen from here.")
    if kernel.gpus:
        where = ", ".join(f"{one.address} ({one.driver or 'no driver'})" for one in kernel.gpus)
        return passed(f"{plural(len(kernel.gpus), 'NVIDIA GPU')} on the bus: {where}.")
    if kernel.wsl:
        return silent("In WSL the GPU is reached through /dev/dxg, not through the PCI bus.")
    if driver_speaks(facts):
        return silent(_HIDDEN)
    return Verdict(
        "fail",
        "No NVIDIA GPU is on the PCI bus of this machine.",
        (seen("sysfs", "/sys/bus/pci/devices has no display controller of vendor 0x10de"),),
        "container_without_gpu",
        {"without_gpu": True},
        (_NO_HARDWARE,),
    )


def _has_no_gpu(facts: Facts) -> bool:
    """The bus has none. A container's sysfs shows the host's: no option of its start helps."""
    kernel = facts.kernel
    return kernel is not None and kernel.gpus == () and not kernel.wsl and not driver_speaks(facts)


def kernel_module(facts: Facts, done: Done) -> Verdict:
    """Is NVIDIA's module loaded, and does it own the GPUs?"""
    kernel = facts.kernel
    if blocked := waits_for(done, "pci"):
        return blocked
    if kernel is None or (not kernel.module_version and kernel_is_hidden(facts)):
        return silent("No module is shown here either.")
    if kernel.wsl:
        return silent("In WSL the driver is the Windows one.")
    drivers = {one.driver for one in kernel.gpus or ()}
    if "nouveau" in drivers:
        return Verdict("fail", "The nouveau driver owns the GPU.", _bound(facts), "nouveau")
    if drivers == {"vfio-pci"}:
        sentence = "Every GPU is handed to a virtual machine (vfio-pci): not to be used here."
        return Verdict("fail", sentence, _bound(facts))
    if kernel.module_version is None:
        return _not_loaded(facts)
    flavour = {True: "open, ", False: "proprietary, ", None: ""}[kernel.open_module]
    sentence = f"Module nvidia {kernel.module_version} is loaded ({flavour}{kernel.release})."
    if drivers and "nvidia" not in drivers:
        return Verdict(
            "fail",
            f"{sentence[:-1]}, but drives none of the GPUs.",
            _bound(facts),
            "needs_open_module" if kernel.open_module is False else None,
            fixes=(_KERNEL_WORDS,),
        )
    return passed(sentence)


def _bound(facts: Facts) -> tuple[Evidence, ...]:
    gpus = facts.kernel.gpus if facts.kernel else None
    return tuple(
        seen("sysfs", f"{one.address}: driver in use: {one.driver or 'none'}") for one in gpus or ()
    )


def _not_loaded(facts: Facts) -> Verdict:
    kernel = facts.kernel
    assert kernel is not None
    if driver_speaks(facts):
        return silent(
            "NVML answers, so a module is loaded; its files in /proc and /sys are hidden."
        )
    evidence = [seen("proc", "there is no /proc/driver/nvidia/version")]
    if kernel.module_on_disk is False:
        evidence.append(seen("modules.dep", f"no nvidia.ko for kernel {kernel.release}"))
    return Verdict(
        "fail",
        "The NVIDIA kernel module is not loaded.",
        (*evidence, *_bound(facts)),
        "container_without_gpu" if facts.job.container else "module_not_built_for_kernel",
        {"kernel": kernel.release},
        (_LOAD,) if kernel.module_on_disk else (),
    )


def device_nodes(facts: Facts, done: Done) -> Verdict:
    """Are /dev/nvidia* there in the job's namespace, and do they open?"""
    if blocked := waits_for(done, "pci", "kernel_module"):
        return blocked
    nodes = facts.nodes
    if nodes is None:
        return silent("The job's /dev cannot be looked at.")
    if facts.kernel is not None and facts.kernel.wsl:
        return silent("In WSL there is /dev/dxg instead.")
    if not nodes:
        if kernel_is_hidden(facts):
            return silent("No device files are shown here either.")
        return Verdict(
            "fail",
            "There are no device files /dev/nvidia* where the job runs.",
            cause="container_without_gpu",
            fixes=() if facts.job.container else (_MAKE_NODES,),
        )
    if refused := _refused(facts):
        return refused
    return _missing(facts) or _all_there(facts)


def _refused(facts: Facts) -> Verdict | None:
    """EPERM is the word of the device cgroup, EACCES that of the mode."""
    opened = facts.driver.opened if facts.driver else {}
    bad = {path: answer for path, answer in opened.items() if answer not in ("ok", "EBUSY")}
    if not bad:
        return None
    listed = {node.path: node for node in facts.nodes or ()}
    evidence = tuple(
        seen("open", f"{path}: {answer}" + (f" ({listed[path].mode})" if path in listed else ""))
        for path, answer in bad.items()
    )
    cause = {"EPERM": "cgroup_devices_lost", "EACCES": "dev_permissions"}.get(
        next(iter(bad.values()))
    )
    words = _rights(facts) if cause == "dev_permissions" else {}
    some = "ok" in opened.values() and not {"/dev/nvidiactl", "/dev/nvidia-uvm"} & bad.keys()
    sentence = f"{plural(len(bad), 'device file')} of the GPU cannot be opened."
    return Verdict("warn" if some else "fail", sentence, evidence, cause, words)


def _rights(facts: Facts) -> dict[str, Any]:
    """The group that may open the files, and whether SELinux keeps a container from them."""
    groups = (node.group for node in facts.nodes or () if node.group != "root")
    is_confined = facts.kernel is not None and facts.kernel.selinux and facts.job.container
    return {"group": next(groups, None), "selinux": True if is_confined else None}


def _missing(facts: Facts) -> Verdict | None:
    paths = {node.path for node in facts.nodes or ()}
    works = facts.driver is not None and facts.driver.init == 0
    gone = [path for path in ("/dev/nvidiactl", "/dev/nvidia-uvm") if path not in paths]
    numbered = [path for path in paths if path[len("/dev/nvidia") :].isdigit()]
    if not numbered:
        gone.append("/dev/nvidia0 or another number")
    if not gone or works:
        return None
    return Verdict(
        "fail",
        f"Missing where the job runs: {', '.join(gone)}.",
        tuple(seen("dev", path) for path in sorted(paths)),
        "container_without_gpu" if facts.job.container else "uvm_state" if numbered else None,
        fixes=(_MAKE_NODES,),
    )


def _all_there(facts: Facts) -> Verdict:
    count = len(facts.nodes or ())
    if facts.driver is None or not facts.driver.opened:
        how = "they were not opened, for the job has a /dev of its own"
        if not facts.job.own_devices:
            how = "they could not be tried"
        return passed(f"{plural(count, 'device file')} /dev/nvidia* there; {how}.")
    return passed(f"{plural(count, 'device file')} /dev/nvidia* there, and the job may open them.")


def nvml(facts: Facts, _done: Done) -> Verdict:
    """What the management library says of the GPUs."""
    driver = facts.snapshot.driver
    if driver.error is not None:
        return _nvml_error(facts, driver.error)
    lost = [gpu for gpu in facts.snapshot.gpus if gpu.state == "lost"]
    if lost:
        return _lost(facts, lost)
    stale = [gpu.index for gpu in facts.snapshot.gpus if gpu.state == "stale"]
    if stale:
        sentence = f"{names(stale)} did not answer NVML in time."
        ages = tuple(
            seen("nvml", f"GPU {gpu.index}: last answer {gpu.age_s:.1f} s ago")
            for gpu in facts.snapshot.gpus
            if gpu.state == "stale"
        )
        return Verdict("warn", sentence, ages, "gsp_timeout", {"gpu": stale[0]})
    what = ", ".join(sorted({clean(gpu.name or "?") for gpu in facts.snapshot.gpus}))
    return passed(
        f"{plural(len(facts.snapshot.gpus), 'GPU')} ({what}), driver {driver.version}, "
        f"CUDA up to {driver.cuda_version}."
    )


def _nvml_error(facts: Facts, error: DriverError) -> Verdict:
    cause = NVML_CAUSES.get(error.code)
    kernel = facts.kernel
    if error.code == "unknown" and facts.job.container:
        cause = "cgroup_devices_lost"
    elif error.code in ("driver_not_loaded", "uninitialized") and facts.job.container:
        cause = "container_without_gpu"
    elif error.code == "no_devices" and kernel and kernel.gpus and kernel.open_module is False:
        cause = "needs_open_module"
    words = {
        "module": kernel.module_version if kernel else None,
        "lib": facts.snapshot.driver.nvml_version,
        "kernel": kernel.release if kernel else None,
        "without_gpu": True if _has_no_gpu(facts) else None,
    }
    if cause == "dev_permissions":
        words |= _rights(facts)
    advice = tuple(seen("advice", sentence) for sentence in error.advice) if not cause else ()
    evidence = (seen("nvml", f"NVML answers: {error.code}"), *advice)
    return Verdict("fail", error.message, evidence, cause, words)


def _lost(facts: Facts, lost: list[Gpu]) -> Verdict:
    """A GPU that the job does not use must not stop it."""
    visible = resolve(facts.job.variables.get("CUDA_VISIBLE_DEVICES"), facts.snapshot.gpus)
    first = lost[0]
    evidence = tuple(
        seen("nvml", f"GPU {gpu.index} ({gpu.pci_bus_id or '?'}): GPU_IS_LOST") for gpu in lost
    )
    return Verdict(
        "fail" if any(gpu.index in visible.gpus for gpu in lost) else "warn",
        f"{names([gpu.index for gpu in lost])} fell off the bus.",
        evidence,
        "gpu_off_bus",
        {"gpu": first.index, "pci": first.pci_bus_id},
    )
