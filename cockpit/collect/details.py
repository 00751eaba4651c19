"""What is read of one process when somebody looks at it: family, environment, files, limits.

Values of variables that look secret are masked here, before they leave the module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cockpit import procfs
from cockpit.collect.holders import PREFIX
from cockpit.collect.kin import Kin, relative_of
from cockpit.errors import TargetGoneError
from cockpit.model.process import ProcessDetails, Relative
from cockpit.model.secret import HIDDEN, hide, is_secret_name
from cockpit.procfs import Gap, Stat

if TYPE_CHECKING:
    from psutil import Process

CHILDREN_LIMIT = 200
LIMITS = (
    "Max open files",
    "Max locked memory",
    "Max processes",
    "Max address space",
    "Max stack size",
)
"""Of /proc/PID/limits: DataLoader workers, pinned memory, NCCL and shared memory run into these."""


def details(pid: int, start_ticks: int | None, *, root: str = "/proc") -> ProcessDetails:
    """Reads one process. Raises TargetGoneError when it is gone or the pid is another's now."""
    stat = procfs.stat(root, pid)
    if isinstance(stat, Gap):
        raise TargetGoneError(_why_not(pid, stat.reason))
    if start_ticks is not None and stat.start_ticks != start_ticks:
        raise TargetGoneError(f"process {pid} has ended; its number belongs to a later process now")
    return _Reader(root, pid, stat).read()


def _why_not(pid: int, reason: str) -> str:
    if reason == "no_permission":
        return f"process {pid} is hidden: /proc is mounted with hidepid"
    return f"there is no process {pid} here (it has ended, or lives in another namespace)"


def _disk(process: Process) -> tuple[int, int]:
    counters = process.io_counters()
    return counters.read_bytes, counters.write_bytes


_MORE_QUESTIONS: tuple[tuple[tuple[str, ...], Callable[[Process], tuple[int, ...]]], ...] = (
    (("nice",), lambda process: (process.nice(),)),
    (("cpus",), lambda process: (len(process.cpu_affinity()),)),
    (("open_files",), lambda process: (process.num_fds(),)),
    (("disk_read_bytes", "disk_write_bytes"), _disk),
)
_MORE = tuple(name for names, _ in _MORE_QUESTIONS for name in names)


class _Reader:
    """Reads the files of one process and notes why some cannot be read."""

    def __init__(self, root: str, pid: int, stat: Stat) -> None:
        self._root, self._pid, self._stat = root, pid, stat
        self._gaps: dict[str, str] = {}

    def read(self) -> ProcessDetails:
        root, pid, stat = self._root, self._pid, self._stat
        cgroup = self._text("cgroup", 16384)
        more = self._more()
        return ProcessDetails(
            pid=pid,
            start_ticks=stat.start_ticks,
            ancestors=Kin(root).ancestors(stat.ppid),
            children=children(root, pid),
            environment=self._environment(),
            executable=self._executable(),
            session_id=stat.session,
            group_id=stat.group,
            threads=stat.threads,
            wchan=self._waits_in(),
            device_files=self._device_files(),
            cgroup=None if cgroup is None else _shortest_truth(cgroup),
            nice=more["nice"],
            cpus=more["cpus"],
            open_files=more["open_files"],
            disk_read_bytes=more["disk_read_bytes"],
            disk_write_bytes=more["disk_write_bytes"],
            limits=self._limits(),
            gaps=self._gaps,
        )

    def _text(self, name: str, limit: int, field: str | None = None) -> str | None:
        raw = procfs.read_long(f"{self._root}/{self._pid}/{name}", limit)
        if isinstance(raw, Gap):
            self._gaps[field or name] = raw.reason
            return None
        return procfs.text(raw)

    def _environment(self) -> tuple[tuple[str, str], ...] | None:
        found = procfs.environment(self._root, self._pid)
        if isinstance(found, Gap):
            self._gaps["environment"] = found.reason
            return None
        return tuple((name, masked(name, found[name])) for name in sorted(found))

    def _executable(self) -> str | None:
        link = procfs.read_link(f"{self._root}/{self._pid}/exe")
        if isinstance(link, Gap):
            self._gaps["executable"] = link.reason
            return None
        return link

    def _device_files(self) -> tuple[str, ...]:
        files = procfs.open_files(self._root, self._pid, PREFIX)
        if isinstance(files, Gap):
            self._gaps["device_files"] = files.reason
            return ()
        return files

    def _more(self) -> dict[str, int | None]:
        """What psutil knows how to ask for. Imported late: no tick needs it."""
        import psutil

        found: dict[str, int | None] = dict.fromkeys(_MORE)
        if self._root != "/proc":  # psutil has one /proc for all
            return found
        for names, ask in _MORE_QUESTIONS:
            try:
                answers = ask(psutil.Process(self._pid))
            except psutil.NoSuchProcess:
                self._gaps.update(dict.fromkeys(names, "gone"))
            except (psutil.AccessDenied, PermissionError):
                self._gaps.update(dict.fromkeys(names, "no_permission"))
            except (OSError, AttributeError, NotImplementedError):  # a kernel without it
                self._gaps.update(dict.fromkeys(names, "not_supported"))
            else:
                found.update(zip(names, answers, strict=True))
        return found

    def _waits_in(self) -> str | None:
        """``0`` stands for running; kernels may also hide the name from other users by it."""
        name = self._text("wchan", 128)
        return None if name in (None, "", "0") else name

    def _limits(self) -> tuple[tuple[str, str], ...]:
        lines = (self._text("limits", 4096) or "").splitlines()
        # The name fills 26 columns, then come the soft and the hard limit.
        table = {line[:26].strip(): line[26:].split() for line in lines}
        return tuple((name, table[name][0]) for name in LIMITS if table.get(name))


def _shortest_truth(cgroup: str) -> str:
    """The v2 path when it says something, else the longest of the v1 hierarchies."""
    paths = [line.split(":", 2)[-1] for line in cgroup.splitlines()]
    unified = [line.split(":", 2)[-1] for line in cgroup.splitlines() if line.startswith("0::")]
    return next((path for path in unified if path != "/"), max(paths, key=len, default=""))


def children(root: str, pid: int) -> tuple[Relative, ...]:
    """Direct children, by pid."""
    found = sorted((child, stat) for child, stat in procfs.all_stats(root) if stat.ppid == pid)
    return tuple(relative_of(root, child, stat) for child, stat in found[:CHILDREN_LIMIT])


def masked(name: str, value: str) -> str:
    """The value, or what may be shown of it: URLs keep their host, tokens nothing."""
    return HIDDEN if value and is_secret_name(name) else hide(value)
