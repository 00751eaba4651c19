"""The columns of the process table and what stands in their cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.model.process import Process
from cockpit.model.text import GIB, MIB, age
from cockpit.model.time import seconds_since
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import foreign, merged
from cockpit.tui.render.columns import REST, Column
from cockpit.tui.render.process_words import (
    STATE_SHORT,
    command_words,
    gpus_words,
    hidden_words,
    is_idle,
    place_words,
    stray_words,
)
from cockpit.tui.sorting import sm_pct

WIDE = 110
"""From this width on, rank, place and memory have columns of their own."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One process as the cells see it."""

    process: Process
    now_s: float | None
    mark: str
    branch: str
    wide: bool
    """The rank has a column of its own."""
    trouble: str = ""
    """Short word of what a finding says about it."""


def process_columns(width: int, processes: Sequence[Process]) -> list[Column[Seen]]:
    """Optional ones only where some process has the value."""
    wide = width >= WIDE
    users = max((len(process.user or "") for process in processes), default=0)
    gpus = max((len(gpus_words(process)) for process in processes), default=0)
    more_user, more_gpu = (min(4, max(0, users - 8)), min(7, max(0, gpus - 5))) if wide else (0, 0)
    columns = [
        Column("", 1, _mark_cell, "left"),
        Column("PID", 7, _pid, name="pid"),
        Column("USER", 8, _user, "left", 3, grow=more_user, name="user"),
        Column("GPU", 5, _gpu, "left", 1, grow=more_gpu, name="gpu"),
        Column("VRAM", 7, _vram, priority=0, name="vram"),
        Column("SM%", 4, _sm, priority=2, name="sm"),
        Column("CPU%", 5, _cpu, priority=4, name="cpu"),
        Column("AGE", 5, _age, priority=5, name="age"),
        Column("COMMAND", 30 if wide else 8, _command, "left", gap=2, grow=REST, name="command"),
    ]
    if wide:
        columns[8:8] = _wide_columns(processes)
    return columns


def _wide_columns(processes: Sequence[Process]) -> list[Column[Seen]]:
    """Rank and place only where somebody has one."""
    columns = [Column("RSS", 7, _rss, priority=6, name="rss")]
    columns.append(Column("STATE", 6, _state, "left", 7, gap=2))
    if any(process.rank is not None for process in processes):
        columns.append(Column("RANK", 5, _rank_cell, priority=6))
    places = [place_words(process) for process in processes]
    longest = max(map(len, places), default=0)
    if longest:
        least = min(max(longest, 5), 14)
        more = min(longest, 30) - least
        columns.append(Column("WHERE", least, _where, "left", 8, gap=2, grow=max(0, more)))
    return columns


def _text(text: str, role: Role = "") -> Line:
    return ((text, role),)


def _mark_cell(seen: Seen, _: int) -> Line:
    return _text(seen.mark, "warn" if seen.mark == "!" else "accent")


def _pid(seen: Seen, _: int) -> Line:
    return _text(str(seen.process.pid))


def _user(seen: Seen, _: int) -> Line:
    process = seen.process
    if process.user is not None:
        return _text(foreign(process.user))
    return _text("–" if process.uid is None else str(process.uid))


def _gpu(seen: Seen, _: int) -> Line:
    return _text(gpus_words(seen.process))


def _vram(seen: Seen, _: int) -> Line:
    return _text(short_size(seen.process.vram_bytes))


def short_size(size_bytes: int | None) -> str:
    """``14.1G``, ``512M``: at most seven cells."""
    if size_bytes is None:
        return "–"
    if size_bytes >= 0.95 * GIB:
        return f"{size_bytes / GIB:.1f}G"
    return f"{size_bytes / MIB:.0f}M"


def _sm(seen: Seen, _: int) -> Line:
    value = sm_pct(seen.process)
    return _text("–" if value is None else f"{value:.0f}")


def _cpu(seen: Seen, _: int) -> Line:
    value = seen.process.cpu_pct
    return _text("–" if value is None else f"{value:.0f}")


def _age(seen: Seen, _: int) -> Line:
    return _text(age(seconds_since(seen.process.started_at, seen.now_s)))


def _rss(seen: Seen, _: int) -> Line:
    return _text(short_size(seen.process.rss_bytes))


def _state(seen: Seen, _: int) -> Line:
    state = seen.process.state or ""
    if state == "Z" or state == "D":
        return _text(STATE_SHORT[state], "warn")
    if is_idle(seen.process):
        return _text("idle", "dim")
    return _text(STATE_SHORT.get(state, foreign(state) or "–"))


def _rank_cell(seen: Seen, _: int) -> Line:
    rank, world = seen.process.rank, seen.process.world_size
    if rank is None:
        return _text("–", "dim")
    return merged(((str(rank), ""), ("" if world is None else f"/{world}", "dim")))


def _where(seen: Seen, _: int) -> Line:
    return _text(place_words(seen.process))


def _command(seen: Seen, _: int) -> Line:
    process = seen.process
    branch: Line = _text(seen.branch, "dim") if seen.branch else ()
    if not process.visible and not process.command:
        return merged((*branch, (hidden_words(process), "dim")))
    words = _text(command_words(process, with_rank=not seen.wide))
    if process.stray is not None:
        # The reason first: the end of a command is cut off, and the reason must not be.
        words = ((f"{stray_words(process.stray)}: ", "warn"), *words)
    elif seen.trouble:
        words = ((f"{seen.trouble}: ", "warn"), *words)
    elif process.state == "Z" and not seen.wide:
        words = (("zombie: ", "warn"), *words)
    elif not process.visible:
        words = ((f"{hidden_words(process)}: ", "dim"), *words)
    return merged((*branch, *words))
