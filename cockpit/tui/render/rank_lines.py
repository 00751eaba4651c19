"""The ranks of one job side by side: one line each, so that the odd one out is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cockpit.model.process import Process
from cockpit.model.run import Run, RunDevice
from cockpit.model.text import gib
from cockpit.tui.line import Line, Span
from cockpit.tui.render.cells import fit_line, merged, toned_down
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.memory_bar import Place, amount, bar_line, held, slices_of

Rank = tuple[Run | None, Process | None]
"""A process of a job and its run; no run: it has no agent."""


def rank_lines(rows: Sequence[Rank], pid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """One line a rank and device; none for a run alone."""
    if len(rows) < 2:
        return []
    head = f"   {'rank':>4} {'pid':>7} {'GPU':>3}  "
    names = ("alloc", "reserv", "driver", "stuck", "peak")
    columns = "".join(f"{name:>6} " for name in names) + f"{'retry':>5} {'step':>9}"
    cells = width - len(head) - len(columns) - 2
    lines: list[Line] = [((f"{head}{' ' * (cells + 1 if cells >= 8 else 0)}{columns}", "label"),)]
    for run, process in rows:
        if run is None:
            lines += _bare_lines(process, cells)
            continue
        for device in run.devices:
            lines.append(_rank_line(run, process, device, run.pid == pid, cells, glyphs))
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _rank_line(
    run: Run, process: Process | None, device: RunDevice, here: bool, cells: int, glyphs: Glyphs
) -> Line:
    rank = "–" if process is None or process.rank is None else str(process.rank)
    mark: Span = (" ▸ ", "accent") if here else ("   ", "")
    slices = slices_of(device)
    numbers = "".join(
        f"{gib(value):>6} "
        for value in (
            device.allocated_bytes,
            device.reserved_bytes,
            device.driver_seen_bytes,
            amount(slices, "stuck"),
            device.allocated_peak_bytes,
        )
    )
    retries = "–" if device.alloc_retries is None else f"{device.alloc_retries}"
    step = "–" if run.step is None else f"{run.step:,}"
    spans: list[Span] = [
        mark,
        (f"{rank:>4} {run.pid:>7} {device.gpu:>3}  ", "strong" if here else ""),
    ]
    if cells >= 8:
        spans += [*bar_line(slices, Place(held(slices)), cells, glyphs), (" ", "")]
    spans.append((f"{numbers}{retries:>5} {step:>9}", ""))
    if run.state != "running":
        return toned_down(merged((*spans, (f"  {run.state.replace('_', ' ')}", "warn"))))
    return merged(spans)


def _bare_lines(process: Process | None, cells: int) -> list[Line]:
    """A rank without an agent: what the driver sees of it."""
    if process is None:
        return []
    lines: list[Line] = []
    for use in process.devices:
        words = f"   {process.rank if process.rank is not None else '–':>4} {process.pid:>7} "
        words += f"{use.gpu:>3}  {' ' * (cells + 1 if cells >= 8 else 0)}"
        words += f"{'–':>6} {'–':>6} {gib(use.vram_bytes):>6}   no agent"
        lines.append(((words, "dim"),))
    return lines


def family(pid: int, runs: Sequence[Run], processes: Mapping[int, Process]) -> list[Rank]:
    """The runs of one job: ranks under one launcher; the run alone where it has no rank."""
    own, known = processes.get(pid), {run.pid: run for run in runs}
    if own is None or own.rank is None:
        return [(known[pid], own)] if pid in known else []
    kin = [
        one
        for one in processes.values()
        if one.rank is not None
        and (one.ppid, one.user, one.world_size) == (own.ppid, own.user, own.world_size)
    ]
    return [(known.get(one.pid), one) for one in sorted(kin, key=lambda one: one.rank or 0)]
