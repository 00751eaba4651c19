"""The process table: one row for each process that holds VRAM, with all its GPUs, and for those
that somebody else wants to see (a run with an agent that trains on the CPU).

What cannot change is read once for a (pid, start ticks); a tick reads /proc/PID/stat alone
(500 processes: 2 ms), and rows in which nothing changed are the same objects as before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from cockpit import procfs
from cockpit.collect.kin import Kin, survivors
from cockpit.collect.owners import ENVIRONMENT_FIELDS
from cockpit.collect.readings import ProcessUse
from cockpit.collect.selection import Selection
from cockpit.collect.stray import Parent, Suspect, judge
from cockpit.collect.turnover import ProcessReading, Turnover
from cockpit.collect.watched import Watched, merge
from cockpit.model.gpu import Gpu
from cockpit.model.process import Process, Relative, Stray
from cockpit.procfs import Gap, Stat

OWNERS_PER_READ = 100
OWNERS_BUDGET_S = 0.03
"""New processes whose environ, cgroup and maps are read in one tick, and how long: the first frame
shall not wait for them (a torch process's maps take 1 to 3 ms)."""
FAMILY_EVERY_S = 5.0
"""How old the list of all processes may be in which a dead leader's survivors are looked for."""

OF_PROC = (
    *("start_ticks", "started_at", "user", "uid", "name", "state", "ppid", "cpu_pct", "rss_bytes"),
    *("tty", "cwd", "framework", "container", "pod", *ENVIRONMENT_FIELDS),
)
"""What only /proc tells of a process."""


class ProcessTable:
    """Keeps what is known of the processes between ticks. Used by one thread."""

    def __init__(self, root: str = "/proc", *, owners_per_read: int = OWNERS_PER_READ) -> None:
        self._root = root
        self._owners_per_read = owners_per_read
        self._complete = False
        self._keepable = procfs.descriptors_to_keep()
        self._watched: dict[int, Watched] = {}
        self._hidden: dict[int, Process] = {}
        self._turnover = Turnover(root)
        self._adopters: dict[int, bool] = {}
        self._kin = Kin(root)
        self._selection = Selection(root)
        self._boot = procfs.boot_time(root)
        self._contained = not procfs.in_initial_namespace(root)
        self._hides = procfs.hides_others(root)
        self._stats: tuple[float, dict[int, Stat]] = (-1e9, {})
        self._samples_lost: frozenset[int] = frozenset()

    def read(
        self,
        uses: Sequence[ProcessUse],
        now: float,
        *,
        gpus: Sequence[Gpu] = (),
        fallback: bool = False,
        holders: Mapping[int, tuple[str, ...]] | None = None,
        complete: bool = False,
        also: Iterable[int] = (),
    ) -> ProcessReading:
        """One tick; ``now`` is monotonic, in seconds.

        ``fallback``: there never was an NVML; the rows are then the ``holders`` of device files
        and the biggest processes of the host. ``complete``: wait until every owner is read.
        ``also``: pids that get a row although NVML does not list them; they neither start nor end.
        """
        self._complete = complete
        if fallback:
            chosen = [*self._selection.choose(now, holders or {}), *also]
            return ProcessReading(tuple(self._rows(dict.fromkeys(chosen, ()), now)))
        self._samples_lost = frozenset(gpu.index for gpu in gpus if gpu.state != "ok")
        grouped: dict[int, list[ProcessUse]] = {}
        for use in uses:
            grouped.setdefault(use.pid, []).append(use)
        for pid in also:
            grouped.setdefault(pid, [])
        rows = self._rows({pid: tuple(group) for pid, group in grouped.items()}, now)
        answering = (gpu.index for gpu in gpus if gpu.state == "ok")
        found = self._turnover.compare([row for row in rows if grouped[row.pid]], answering)
        unlisted = tuple(_unlisted(row) for row in rows if not grouped[row.pid])
        return replace(found, processes=found.processes + unlisted)

    def relatives(self, processes: Sequence[Process]) -> tuple[Relative, ...]:
        """Ancestors of the rows that hold no VRAM themselves: launchers, shells, tmux servers."""
        return self._kin.missing_links((row.pid, row.ppid) for row in processes)

    # -- rows

    def _rows(self, grouped: Mapping[int, tuple[ProcessUse, ...]], now: float) -> list[Process]:
        self._adopters.clear()
        gone: dict[int, str] = {}
        for pid, uses in grouped.items():
            why = self._watch(pid, uses, now)
            if why is not None:
                gone[pid] = why
        self._read_owners(grouped)
        self._forget(grouped)
        return [
            self._hidden_row(pid, uses, gone[pid], now)
            if pid in gone
            else self._visible_row(self._watched[pid], uses, now)
            for pid, uses in grouped.items()
            if uses or pid not in gone
        ]

    def _forget(self, grouped: Mapping[int, object]) -> None:
        """Late, because a process of a GPU that does not answer comes back with its history."""
        if len(self._watched) > 2 * len(grouped) + 1024:
            for pid in [pid for pid in self._watched if pid not in grouped]:
                self._watched.pop(pid).file.close()
            self._hidden = {pid: it for pid, it in self._hidden.items() if pid in grouped}

    def _watch(self, pid: int, uses: Sequence[ProcessUse], now: float) -> str | None:
        """Reads one process; says why when the pid cannot be looked up."""
        watched = self._watched.get(pid)
        gap = watched.tick(uses, now) if watched else Gap("gone")
        if gap is None:
            return None
        # Not known yet, or gone: then the pid may belong to a later process already.
        stat = procfs.stat(self._root, pid)
        if isinstance(stat, Gap):
            return stat.reason
        if watched:
            watched.file.close()
        fresh = self._watched[pid] = Watched(self._root, pid, stat, now, self._boot)
        if len(self._watched) <= self._keepable:
            fresh.file.keep()
        self._hidden.pop(pid, None)
        gap = fresh.tick(uses, now)
        return gap.reason if gap else None

    def _read_owners(self, grouped: Mapping[int, object]) -> None:
        left, deadline = self._owners_per_read, time.perf_counter() + OWNERS_BUDGET_S
        for pid in grouped:
            watched = self._watched.get(pid)
            if watched is None or watched.owner is not None:
                continue
            if not self._complete and (left == 0 or time.perf_counter() > deadline):
                return
            watched.read_owner()
            left -= 1

    def _visible_row(self, watched: Watched, uses: tuple[ProcessUse, ...], now: float) -> Process:
        return watched.process(uses, self._stray(watched, uses, now) if uses else None)

    def _hidden_row(self, pid: int, uses: tuple[ProcessUse, ...], why: str, now: float) -> Process:
        """A pid that NVML lists and that is not in this /proc: a row all the same."""
        known = self._watched.get(pid)
        left = survivors(self._all_stats(now).items(), pid, known.stat if known else None)
        suspect = Suspect(
            pid=pid,
            state=None,
            computes=any(part.sm_pct for part in uses),
            survivors=left if not self._contained or known else (),
        )
        stray = judge(suspect)
        reason = self._why_hidden(why, known is not None or stray is not None)
        row = hidden_process(pid, uses, known.row if known else None, stray, reason)
        before = self._hidden.get(pid)
        self._hidden[pid] = before if before == row else row
        return self._hidden[pid]

    def _why_hidden(self, why: str, was_here: bool) -> str:
        if why == "no_permission":
            return "hidepid"
        if was_here:
            return "gone"
        return "hidepid" if self._hides else "other_namespace"

    # -- stray

    def _stray(self, watched: Watched, uses: tuple[ProcessUse, ...], now: float) -> Stray | None:
        if not self._is_suspicious(watched):
            return None
        known = self._samples_lost.isdisjoint(use.gpu for use in uses)
        facts = watched.facts(uses, now, known)
        return judge(self._with_family(facts, watched, now))

    def _is_suspicious(self, watched: Watched) -> bool:
        """Cheap, for every row of every tick: may one of the four reasons hold at all?"""
        if watched.computes:
            return False
        stat = watched.stat
        if stat.state in "ZX" or stat.ppid in (0, 1) or stat.ppid != watched.first_ppid:
            return True
        return watched.directory_deleted or self._adopts(stat.ppid)

    def _with_family(self, facts: Suspect, watched: Watched, now: float) -> Suspect:
        """Adds what other processes have to say."""
        stat = watched.stat
        dead = stat.state in "ZX"
        owner = watched.owner
        multiplexer = owner.multiplexer if owner else None
        return replace(
            facts,
            parent=self._parent(stat.ppid) if stat.ppid else None,
            leader=self._leader_state(stat),
            survivors=survivors(self._all_stats(now).items(), facts.pid, stat) if dead else (),
            contained=facts.contained or self._contained,
            multiplexed=multiplexer is not None and self._kin.relative(multiplexer) is not None,
        )

    def _parent(self, ppid: int) -> Parent:
        relative = self._kin.relative(ppid)
        return Parent(ppid, relative.name, relative.command) if relative else Parent(ppid, "?")

    def _adopts(self, ppid: int) -> bool:
        """Once a tick for each parent: most rows share a few."""
        known = self._adopters.get(ppid)
        if known is None:
            known = self._adopters[ppid] = self._parent(ppid).adopts
        return known

    def _leader_state(self, stat: Stat) -> str:
        leader = procfs.stat(self._root, stat.group) if stat.group else Gap("gone")
        if isinstance(leader, Gap):
            return "gone" if leader.reason == "gone" and not self._hides else "alive"
        return "zombie" if leader.state in "ZX" else "alive"

    def _all_stats(self, now: float) -> dict[int, Stat]:
        if now - self._stats[0] >= FAMILY_EVERY_S:
            self._stats = (now, dict(procfs.all_stats(self._root)))
        return self._stats[1]


def _unlisted(row: Process) -> Process:
    """There is a driver: it just does not name this process."""
    return msgspec.structs.replace(
        row, gaps={**row.gaps, "vram_bytes": "not_listed", "kind": "not_listed"}
    )


def hidden_process(
    pid: int, uses: Sequence[ProcessUse], last: Process | None, stray: Stray | None, reason: str
) -> Process:
    """The row of a pid that is not in this /proc, with what was known while it was."""
    use = merge(uses)
    row = msgspec.structs.replace(
        last or Process(pid=pid),
        state=None,
        cpu_pct=None,
        rss_bytes=None,
        kind=use.kind,
        vram_bytes=use.vram_bytes,
        devices=use.devices,
        visible=False,
        stray=stray,
    )
    unknown = (name for name in OF_PROC if getattr(row, name) is None)
    return msgspec.structs.replace(
        row, gaps={**dict.fromkeys(unknown, reason), **use.gaps, "pid": reason}
    )
