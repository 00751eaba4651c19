"""Memory held by nobody in sight, and NVML that does not answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cockpit.diagnose.candidate import (
    EXCEPTION,
    SPECIFIC,
    STATE,
    Candidate,
    Facts,
    Sign,
    candidates,
    search,
)
from cockpit.diagnose.log_reader import Log

DAEMONS = re.compile(
    r"nvidia-persis|nv-hostengine|nv-fabric|fabricmanager|dcgm|Xorg|Xwayland|gnome-shell|kwin|mps"
    r"|sshd"
    r"|systemd|jupyter-(?:lab|server|notebook)|sddm|gdm",
    re.IGNORECASE,
)
_FUSER = re.compile(
    r"^(?:/dev/nvidia\S*:)?\s+(\S+)\s+(\d{1,9})\s+[F.][.\w]{3,4}\s+(\S+)", re.MULTILINE
)
_PS_PARENT = re.compile(
    r"^\s*(?P<pid>\d{1,9})\s+(?P<ppid>\d{1,9})\s+(?P<stat>[RSDTZI][sl+<LN]*)\s", re.MULTILINE
)
_MEMORY = re.compile(r"(\d{1,7})MiB\s*/\s*(\d{2,7})MiB")
_GRAPHICS = re.compile(r"N/A\s+N/A\s+(\d{1,9})\s+(C\+G|G)\s+(\S.{0,80}?)\s+(\d{1,7})MiB")


def _mismatch(log: Log) -> Facts:
    facts: Facts = {}
    lib = search(
        log, r"NVML library version: ?(\d[\d.]{2,16}\d)|client has the version (\d[\d.]{2,16}\d)"
    )
    module = search(
        log,
        r"kernel module has the version (\d[\d.]{2,16}\d)|Kernel Module(?: for x86_64)? "
        r"(\d[\d.]{2,16}\d)",
    )
    if lib:
        facts["lib"] = lib[1] or lib[2]
    if module:
        facts["module"] = module[1] or module[2]
    return facts


def _group(log: Log) -> Facts:
    found = re.search(r"crw-rw----\S* \d+ root (?!root)(\S{1,40})", log.text)
    facts: Facts = {"group": found[1]} if found else {}
    if re.search(r"avc: {1,2}denied [^\n]{0,400}:container", log.text):
        facts["selinux"] = True
    return facts


def _stuck(log: Log) -> Facts:
    found = re.search(r"^\s*(\d{2,9})\s+.{0,60}?\bD[sl+<LN]*\s", log.text, re.MULTILINE)
    return {"pid": int(found[1])} if found else {}


SIGNS: tuple[Sign, ...] = (
    Sign(
        "nvml_mismatch",
        r"Driver/library version mismatch|NVRM: API mismatch|NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        SPECIFIC + 3,
        0.97,
        facts=_mismatch,
    ),
    Sign(
        "cgroup_devices_lost",
        r"Failed to initialize NVML: Unknown Error",
        SPECIFIC,
        0.85,
        unless=(r"Xid \(PCI", r"fallen off the bus"),
    ),
    Sign(
        "cgroup_devices_lost",
        r"/dev/nvidia\S{0,12}['\"]?: Operation not permitted|Operation not "
        r"permitted.{0,40}/dev/nvidia",
        SPECIFIC - 1,
        0.85,
    ),
    Sign(
        "dev_permissions",
        r"Failed to initialize NVML: Insufficient Permissions|/dev/nvidia\S{0,12}['\"]?: "
        r"Permission denied"
        r"|NVML_ERROR_NO_PERMISSION|avc: ?denied .{0,200}?nvidia",
        SPECIFIC,
        0.93,
        facts=_group,
    ),
    Sign(
        "needs_open_module",
        r"requires use of the NVIDIA open kernel modules",
        SPECIFIC + 3,
        0.97,
        more=(r"NVRM: (?:The NVIDIA )?GPU (?P<pci>[0-9a-fA-F:]{4,}[:][0-9a-fA-F]{2}\.\d)",),
    ),
    Sign(
        "needs_open_module",
        r"RmInitAdapter failed",
        SPECIFIC - 8,
        0.55,
        more=(r"GPU (?P<pci>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)",),
        also=(("gpu_off_bus", "power, seat or Above 4G decoding give the same line"),),
    ),
    Sign(
        "mps_other_user",
        r"MPS client failed to connect|cudaErrorMps\w+|CUDA_ERROR_MPS\w+|MPS server is not ready",
        SPECIFIC + 2,
        0.93,
    ),
    Sign(
        "exclusive_mode",
        r"busy or unavailable|cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE|"
        r"exclusive[- ]thread or process",
        EXCEPTION + 6,
        0.7,
        more=(
            r"(?P<gpu>\d{1,2}), (?P<mode>Exclusive_Process)",
            r"(?P<mode>E\. Process|Exclusive_Process)",
            r"(?:^|\n)(?P<pid>\d{2,9}), \S{0,80} ?\d{1,7} MiB",
        ),
        unless=(r"\bMPS\b|nvidia-cuda-mps",),
    ),
    Sign(
        "pid_namespace",
        r"ps [^\n]{0,60}-p ?(?P<pid>\d{2,9})\n[^\n]{0,20}PID[^\n]{0,80}(?!\s+(?:\S+\s+)?(?P=pid)\b)"
        r"(?:\n|$)(?!\s*(?:\S+\s+)?(?P=pid)\b)",
        STATE + 3,
        0.8,
        needs=(r"\d MiB", r"docker|container|kubepods|lxc|root@[0-9a-f]{6,12}:"),
    ),
    Sign(
        "unkillable",
        r"(?:^|\n)\s*\d{2,9}\s.{0,80}?\b(?:D|Dl|Ds|Dsl|Zl|Zsl|Dl\+)\s.{0,200}",
        STATE + 4,
        0.75,
        needs=(
            r"nvidia|python|pt_main|MiB",
            r"kill -(?:9|KILL)|uvm_|os_acquire|nv_|<defunct>|wchan",
        ),
        facts=_stuck,
    ),
)


def find(log: Log) -> Iterator[Candidate]:
    """Candidates of this family."""
    yield from candidates(log, SIGNS)
    yield from _notebook(log)
    yield from _holders(log)
    yield from _kernels(log)


def _notebook(log: Log) -> Iterator[Candidate]:
    """An error in a cell, references deleted, and the memory still allocated."""
    if not re.search(r"In \[\d{1,5}\]|ipykernel|IPython", log.text):
        return
    freed = search(log, r"(?:\bdel \w|empty_cache\(\)|gc\.collect\(\))")
    error = search(log, r"OutOfMemoryError|out of memory")
    if freed is None or error is None:
        return
    still = re.search(r"^(?:Out\[\d+\]: )?(\d{3,14})\s*$", log.text[freed.start() :], re.MULTILINE)
    again = log.text.lower().find("out of memory", freed.end()) >= 0
    if still is None and not again:
        return
    facts: Facts = {}
    pid = search(log, r"/proc/(\d{2,9})/cmdline|(?:^|\n)(\d{2,9}), [^\n]{0,80}python")
    if pid:
        facts["pid"] = int(pid[1] or pid[2])
    at = log.index_at(freed.start())
    why = "Memory stays allocated after references were deleted."
    yield Candidate("notebook_refs", EXCEPTION + 8, at, 0.88, facts, why=why)


def _holders(log: Log) -> Iterator[Candidate]:
    used = [(int(a), int(b)) for a, b in _MEMORY.findall(log.text) if int(b) > 0]
    nobody = search(log, r"No running processes found")
    rows = _FUSER.findall(log.text)
    orphans = [
        int(row["pid"])
        for row in _PS_PARENT.finditer(log.text)
        if row["ppid"] == "1" and not DAEMONS.search(_rest(log.text, row.end()))
    ]
    holders = {int(pid) for _, pid, name in rows if not DAEMONS.search(name)}
    listed = {int(pid) for pid in re.findall(r"\bN/A\s+(\d{2,9})\s+(?:M\+)?C\b", log.text)}
    listed |= {int(pid) for pid in re.findall(r"^(\d{2,9}), .{0,100}MiB", log.text, re.MULTILINE)}
    stray = [pid for pid in orphans if not (holders | listed) or pid in holders | listed]
    kernel = re.search(r"ipykernel", log.text) is not None
    if stray and (used or rows or listed) and not kernel and not _mps(log):
        daemons = [int(pid) for _, pid, name in rows if DAEMONS.search(name)]
        row = next(one for one in _PS_PARENT.finditer(log.text) if int(one["pid"]) == stray[0])
        facts: Facts = {"kill": stray, "not_kill": daemons, "pid": stray[0]}
        yield Candidate("orphans", STATE + 5, log.index_at(row.start()), 0.9, facts)
        return
    graphics = _GRAPHICS.findall(log.text)
    if graphics and not _mps(log):
        keep = [int(pid) for pid, _, name, _ in graphics if DAEMONS.search(name)]
        where = log.index_at(max(0, log.text.find(graphics[0][2])))
        mib = sum(int(one[3]) for one in graphics)
        why = f"{len(graphics)} graphical programs hold {mib} MiB."
        yield Candidate("graphics_clients", STATE - 4, where, 0.85, {"not_kill": keep}, why=why)
        return
    yield from _nobody(log, used, nobody, holders)


def _rest(text: str, start: int) -> str:
    return text[start : text.find("\n", start) if text.find("\n", start) >= 0 else len(text)]


def _mps(log: Log) -> bool:
    return "nvidia-cuda-mps" in log.text or "MPS client" in log.text


def _nobody(
    log: Log, used: list[tuple[int, int]], nobody: re.Match[str] | None, holders: set[int]
) -> Iterator[Candidate]:
    if nobody is None or not used:
        return
    at = log.index_at(nobody.start())
    most, total = max(used)
    busy = re.search(r"MiB\s*\|\s*(\d{2,3})%", log.text)
    inside = search(
        log, r"root@[0-9a-f]{6,12}:|/\.dockerenv|docker|containerd|kubepods|container|lxc"
    )
    if most > max(600, total // 20):
        if not holders:
            confidence = 0.85 if inside else 0.65
            why = f"{most} MiB are used and no process is listed."
            yield Candidate("pid_namespace", STATE + 2, at, confidence, why=why)
    elif busy and int(busy[1]) >= 90:
        why = f"{busy[1]} % utilisation with no process and {most} MiB used."
        yield Candidate("telemetry_stale", STATE + 2, at, 0.85, why=why)


def _kernels(log: Log) -> Iterator[Candidate]:
    """A notebook's kernel in a process list, days old, on an idle GPU."""
    row = re.search(
        r"^\s*(?P<pid>\d{2,9})\s.{0,80}?(?:\d+-)?\d{1,2}:\d\d(?::\d\d)?.{0,120}?ipykernel",
        log.text,
        re.M,
    )
    if row is None or search(log, r"out of memory|OutOfMemoryError"):
        return
    facts: Facts = {"pid": int(row["pid"])}
    also = (("orphans", "if its Jupyter server is gone"),)
    yield Candidate("idle_kernel", STATE + 4, log.index_at(row.start()), 0.85, facts, also)
