"""What a failed NVML start means, and what to do next. Text only: the facts come from outside."""

from __future__ import annotations

from collections.abc import Callable

from cockpit.collect.driver_files import DriverFacts
from cockpit.model.gpu import DriverError

_RESTART_CONTAINER = "Restart the container: only a new start gets the device files back."
_RUN_WITH_GPUS = (
    "Start the container with --gpus all (or --device nvidia.com/gpu=all with CDI); "
    "the host needs the NVIDIA Container Toolkit."
)
_ON_THE_HOST = (
    "On the host (or here, if this is no container after all) look whether nvidia-smi works. If it "
    "does not: sudo modprobe nvidia, then sudo dmesg | grep -E 'NVRM|nvidia' | tail -20"
)
_WSL = "In WSL the driver is the Windows one: install or update it there, then run: wsl --shutdown"


def explain(code: str, facts: DriverFacts, library_version: str | None = None) -> DriverError:
    """The message and next steps for an NVML error name (or ``no_devices``, ``timeout``)."""
    make = _EXPLAINED.get(code)
    if make is None:
        message = f"The NVIDIA driver answers: {code.replace('_', ' ')}."
        return DriverError(code=code, message=message, advice=(_dmesg(),))
    message, advice = make(facts, library_version)
    return DriverError(code=code, message=message, advice=advice)


_Told = tuple[str, tuple[str, ...]]


def _dmesg() -> str:
    return "Look at the kernel's words: sudo dmesg | grep -E 'NVRM|nvidia' | tail -20"


def _mismatch(facts: DriverFacts, library: str | None) -> _Told:
    module = facts.module_version
    versions = f" (loaded module {module}, library {library})" if module and library else ""
    message = (
        f"The loaded NVIDIA kernel module and the NVIDIA library differ{versions}: "
        "the driver was updated, and the old module is still loaded."
    )
    if facts.in_container:
        return message, (
            "The library comes from the image or from an earlier host driver: "
            "restart the container, and remove NVIDIA driver packages from the image.",
            "If nvidia-smi says the same on the host, its driver was updated: reboot the host.",
        )
    return message, (
        "Reboot: the new module is loaded at boot.",
        "Without a reboot, when nothing uses the GPUs: stop what does "
        "(sudo fuser -v /dev/nvidia*), then "
        "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
        "To keep it from happening again, hold the driver packages (apt-mark hold, versionlock).",
    )


def _not_loaded(facts: DriverFacts, _library: str | None) -> _Told:
    message = "The NVIDIA kernel module is not loaded."
    if facts.in_wsl:
        return message, (_WSL,)
    if facts.worked_before:
        return _went_away(facts)
    if facts.in_container and not facts.has_device_files:
        return "This container has no way to the NVIDIA driver.", (_RUN_WITH_GPUS, _ON_THE_HOST)
    if facts.in_container:
        return message, (_ON_THE_HOST, _RUN_WITH_GPUS)
    if facts.module_version:
        return "The NVIDIA kernel module is loaded, but does not answer.", (
            f"Module {facts.module_version} may be starting or being unloaded: wait a moment.",
            _dmesg(),
        )
    return message, (
        "Load it: sudo modprobe nvidia",
        "If that says 'Key was rejected': Secure Boot wants a signed module (mokutil --sb-state).",
        "If it finds no module: a new kernel has none built for it: "
        "dkms status, then sudo dkms autoinstall",
        "If nouveau holds the GPU (lsmod | grep nouveau), blacklist it and reboot.",
    )


def _went_away(facts: DriverFacts) -> _Told:
    message = (
        "The NVIDIA driver answered before and does not now: it is being restarted, updated or "
        "unloaded."
    )
    wait = "Wait a moment: the cockpit asks again every two seconds."
    if facts.in_container:
        return message, (wait, _ON_THE_HOST, _RESTART_CONTAINER)
    load = "Load it: sudo modprobe nvidia"
    return message, (wait, _dmesg()) if facts.module_version else (wait, load, _dmesg())


def _no_permission(facts: DriverFacts, _library: str | None) -> _Told:
    message = "This user may not open the NVIDIA device files."
    if facts.in_container:
        return message, (
            "Look at ls -l /dev/nvidia* inside the container; rootless containers need "
            "the devices by CDI and, with SELinux, setsebool -P container_use_devices on.",
        )
    return message, (
        "Look who may: ls -l /dev/nvidia* and id",
        "Where a group owns the files, join it: sudo usermod -aG GROUP $USER, then log in again.",
        "With SELinux, look for denials: sudo ausearch -m avc -ts recent",
    )


def _unknown(facts: DriverFacts, _library: str | None) -> _Told:
    if facts.in_container:
        return (
            "The NVIDIA driver answers 'unknown error': this container has lost its right to "
            "the device files.",
            (
                _RESTART_CONTAINER,
                "It happens when systemd reloads on the host (systemctl daemon-reload). To "
                "prevent it: use CDI devices, or the cgroupfs cgroup driver, or run on the host "
                "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            ),
        )
    return (
        "The NVIDIA driver answers 'unknown error'.",
        (
            "Look for an Xid (79, 119, 62): sudo dmesg | grep -i xid | tail",
            "If /dev/nvidia-uvm is missing, or after a suspend: "
            "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm",
            "If it stays, reboot.",
        ),
    )


def _no_library(facts: DriverFacts, _library: str | None) -> _Told:
    message = "The NVIDIA library libnvidia-ml.so.1 is not installed or not found."
    if facts.in_wsl:
        return message, (_WSL, "It lives in /usr/lib/wsl/lib: that has to be in the library path.")
    if facts.in_container:
        return message, (
            _RUN_WITH_GPUS,
            "On the host (or here, if this is no container after all) nvidia-smi has to work: "
            "install the NVIDIA driver there (ubuntu-drivers install, dnf install nvidia-driver).",
        )
    if facts.module_version:
        return message, (
            "The kernel module is there, its user-space part is not: install the "
            f"package of the same version ({facts.module_version}), such as nvidia-utils.",
            "If it is installed: ldconfig -p | grep libnvidia-ml",
        )
    return message, (
        "Install the NVIDIA driver (ubuntu-drivers install, dnf install nvidia-driver, …).",
        "On a machine without an NVIDIA GPU this is normal; see the program with: cockpit --demo",
    )


def _no_devices(facts: DriverFacts, _library: str | None) -> _Told:
    message = "The NVIDIA driver works, but it shows no GPU here."
    if facts.in_container:
        return message, (
            "NVIDIA_VISIBLE_DEVICES may be empty or 'void': " + _RUN_WITH_GPUS,
            "In Kubernetes the pod needs the limit nvidia.com/gpu, in Slurm the job --gres=gpu:1",
        )
    return message, (
        "In a Slurm job, ask for GPUs: --gres=gpu:1",
        "Does the bus see one? lspci -d 10de:",
        "If so, the driver failed to start it: sudo dmesg | grep -E 'NVRM|RmInitAdapter'",
    )


def _timeout(_facts: DriverFacts, _library: str | None) -> _Told:
    return (
        "The NVIDIA driver has not answered yet.",
        (
            "Without persistence mode the first question wakes the GPUs, which takes seconds.",
            "If it stays: a call is stuck in the kernel; look for Xid 119 or 79: "
            "sudo dmesg | grep -i xid | tail",
        ),
    )


_EXPLAINED: dict[str, Callable[[DriverFacts, str | None], _Told]] = {
    "lib_rm_version_mismatch": _mismatch,
    "driver_not_loaded": _not_loaded,
    "uninitialized": _not_loaded,
    "no_permission": _no_permission,
    "unknown": _unknown,
    "library_not_found": _no_library,
    "no_devices": _no_devices,
    "timeout": _timeout,
}
