"""One watched process: what is cached of it, its CPU and idle history, and its row.

Which processes are watched is the table's affair (process_table.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from cockpit import procfs
from cockpit.collect.owners import ENVIRONMENT_FIELDS, Owner, read_owner
from cockpit.collect.readings import ProcessUse
from cockpit.collect.stray import IDLE_CPU_PCT, Suspect
from cockpit.model.process import DeviceUse, Process, ProcessKind, Stray
from cockpit.model.time import iso
from cockpit.procfs import HZ, Gap, Stat, StatFile, parse_stat

COMMAND_EVERY_S = 30.0
"""argv may change: exec, setproctitle."""
DIRECTORY_EVERY_S = 10.0
IDLE_WINDOW_S = 30.0
"""Over which CPU under 1 % is judged: a single 10 ms tick in one second would already be 1 %."""
RESTS_AFTER_S = 5.0
"""Without any change. At 500 sleeping processes this halves the cost of a tick."""

_NOT_READ_YET = dict.fromkeys(
    (*ENVIRONMENT_FIELDS, "container", "pod", "framework"), "not_read_yet"
)
_NOTHING = Owner(gaps=_NOT_READ_YET)


class Watched:
    """A process of this /proc, known by (pid, start ticks)."""

    def __init__(self, root: str, pid: int, stat: Stat, now: float, boot: float | None) -> None:
        self.pid = pid
        self.stat = stat
        self.first_ppid = stat.ppid
        self.file = StatFile(root, pid)
        self.row: Process | None = None
        self.owner: Owner | None = None
        self.command: tuple[str, ...] = ()
        self.directory: str | None = None
        self.cpu_pct: float | None = None
        self.computes = False
        """An SM sample above 0 in this tick."""
        self.idle_since = now
        self.computed_at: float | None = None
        self.hangup_ignored: bool | None = None
        self._root = root
        self._uid: int | None = None
        self._gaps: dict[str, str] = {}
        self._key: tuple[object, ...] = ()
        self._started_at = None if boot is None else iso(boot + stat.start_ticks / HZ)
        self._raw = b""
        self._read_at = self._changed_at = now
        self._rest_s = 1.5 + pid % 4 * 0.5
        self._due_at = self._command_at = -1e9
        self._window = (now, stat.cpu_ticks)
        self._read_status()

    def _read_status(self) -> None:
        status = procfs.status(self._root, self.pid)
        if isinstance(status, Gap):
            self._gaps |= {"user": status.reason, "uid": status.reason}
            return
        self._uid = status.uid
        self.hangup_ignored = status.hangup_ignored

    def tick(self, uses: Sequence[ProcessUse], now: float) -> Gap | None:
        """Reads stat: CPU, idle history, and what else is due. A Gap: it is gone.

        A sleeping process's line is the same as before, byte by byte, and is not parsed again;
        after some seconds of that it is read in every second or third tick only.
        """
        self._take_samples(uses, now)
        if now - self._changed_at > RESTS_AFTER_S and 0 < now - self._read_at < self._rest_s:
            return None
        raw = self.file.read()
        if isinstance(raw, Gap):
            return raw
        if raw != self._raw:
            stat = parse_stat(raw)
            if stat is None or stat.start_ticks != self.stat.start_ticks:
                return Gap("gone")
            self._raw, self._changed_at = raw, now
        else:
            stat = self.stat
        if now > self._read_at:
            ticks = stat.cpu_ticks - self.stat.cpu_ticks
            self.cpu_pct = round(ticks / HZ / (now - self._read_at) * 100, 1) if ticks > 0 else 0.0
        self.stat, self._read_at = stat, now
        if now >= self._due_at:
            self._read_what_is_due(now)
        return None

    def _take_samples(self, uses: Sequence[ProcessUse], now: float) -> None:
        self.computes = False
        for use in uses:
            if use.sm_pct:
                self.computes = True
                self.computed_at = self.idle_since = now

    def _read_what_is_due(self, now: float) -> None:
        self._due_at = now + DIRECTORY_EVERY_S
        self._judge_window(now)
        self._read_directory()
        if now - self._command_at >= COMMAND_EVERY_S:
            self._read_command(now)

    def _judge_window(self, now: float) -> None:
        since, ticks = self._window
        if now - since < IDLE_WINDOW_S:
            return
        if (self.stat.cpu_ticks - ticks) / HZ / (now - since) * 100 >= IDLE_CPU_PCT:
            self.idle_since = now
        self._window = (now, self.stat.cpu_ticks)

    def _read_command(self, now: float) -> None:
        self._command_at = now
        command = procfs.command(self._root, self.pid)
        if isinstance(command, Gap):
            return
        if not command:  # amid its exec or its end: what was known stays
            if self.stat.state not in "ZX":
                self._due_at = self._command_at = -1e9  # again in the next tick
        elif command != self.command:
            self.command = command
            self.owner = None  # another program, or it now says what it is

    def _read_directory(self) -> None:
        link = procfs.read_link(f"{self._root}/{self.pid}/cwd")
        self.directory = None if isinstance(link, Gap) else link
        if isinstance(link, Gap):
            self._gaps["cwd"] = link.reason

    @property
    def directory_deleted(self) -> bool:
        """The kernel appends this to the link of a removed directory."""
        return self.directory is not None and self.directory.endswith(" (deleted)")

    def read_owner(self) -> None:
        """The expensive part: some 0.1 ms, with a torch process's maps 1 to 3 ms."""
        self.owner = read_owner(self._root, self.pid, self.command, self.stat.name)

    def facts(self, uses: Sequence[ProcessUse], now: float, samples_known: bool) -> Suspect:
        """What this process itself adds to the question whether it is stray."""
        owner, stat = self.owner or _NOTHING, self.stat
        return Suspect(
            pid=self.pid,
            name=stat.name,
            command=self.command,
            state=stat.state,
            computes=self.computes,
            samples_known=samples_known and all(use.mig_instance is None for use in uses),
            graphics_only=bool(uses) and all(use.kind == "graphics" for use in uses),
            cpu_pct=self.cpu_pct,
            quiet_s=None if self.computed_at is None else now - self.computed_at,
            idle_s=now - self.idle_since,
            age_s=procfs.age_s(stat.start_ticks),
            cpu_s=stat.cpu_ticks / HZ,
            first_ppid=None if stat.ppid == self.first_ppid else self.first_ppid,
            group=stat.group,
            session=stat.session,
            threads=stat.threads,
            has_terminal=stat.tty != 0,
            hangup_ignored=self.hangup_ignored,
            contained=owner.container is not None or owner.pod is not None,
            local_rank=owner.local_rank,
            rank=owner.rank,
            launched=owner.launched,
            directory_deleted=self.directory_deleted,
        )

    def process(self, uses: tuple[ProcessUse, ...], stray: Stray | None) -> Process:
        """Its row; the same object as before when nothing has changed (500 rows cost 1.1 ms)."""
        stat = self.stat
        key = (stat, self.cpu_pct, uses, stray, self.command, self.directory, id(self.owner))
        if self.row is None or key != self._key:
            self.row, self._key = self._build(uses, stray), key
        return self.row

    def _build(self, uses: tuple[ProcessUse, ...], stray: Stray | None) -> Process:
        owner, stat = self.owner or _NOTHING, self.stat
        use = merge(uses)
        gaps = {**owner.gaps, **self._gaps, **use.gaps}
        if self.cpu_pct is None:
            gaps["cpu_pct"] = "not_read_yet"
        if self._started_at is None:
            gaps["started_at"] = "not_supported"
        if not uses:
            gaps |= {"vram_bytes": "no_driver", "kind": "no_driver"}
        return Process(
            pid=self.pid,
            start_ticks=stat.start_ticks,
            started_at=self._started_at,
            tty=procfs.terminal(stat.tty),
            framework=owner.framework,
            user=None if self._uid is None else procfs.user_name(self._uid),
            uid=self._uid,
            command=self.command,
            name=stat.name,
            state=stat.state,
            ppid=stat.ppid,
            cpu_pct=self.cpu_pct,
            rss_bytes=stat.rss_bytes,
            kind=use.kind,
            vram_bytes=use.vram_bytes,
            devices=use.devices,
            stray=stray,
            container=owner.container,
            slurm_job=owner.slurm_job,
            pod=owner.pod,
            conda_env=owner.conda_env,
            tmux=owner.tmux,
            cwd=self.directory,
            rank=owner.rank,
            local_rank=owner.local_rank,
            world_size=owner.world_size,
            gaps=gaps,
        )


class Merged:
    """The GPU side of a row: all uses of one pid together."""

    __slots__ = ("devices", "gaps", "kind", "vram_bytes")

    def __init__(self, uses: Sequence[ProcessUse]) -> None:
        self.devices = tuple(
            DeviceUse(
                gpu=use.gpu,
                vram_bytes=use.vram_bytes,
                sm_pct=use.sm_pct,
                mig_instance=use.mig_instance,
            )
            for use in sorted(uses, key=lambda use: (use.gpu, use.mig_instance or 0))
        )
        known = [use.vram_bytes for use in uses if use.vram_bytes is not None]
        self.vram_bytes = sum(known) if known else None
        self.kind: ProcessKind | None = _kind({use.kind for use in uses})
        self.gaps: dict[str, str] = {}
        if len(known) < len(uses):
            missing = next(use.gap for use in uses if use.vram_bytes is None)
            self.gaps["vram_bytes"] = "partial" if known else missing or "not_supported"


def merge(uses: Sequence[ProcessUse]) -> Merged:
    """One pid's uses as a row shows them."""
    return Merged(uses)


def _kind(kinds: set[ProcessKind]) -> ProcessKind | None:
    if len(kinds) > 1:
        return "mps" if "mps" in kinds else "both"
    return next(iter(kinds), None)
