"""What is wrong right now, from one snapshot: sentences, worst first, and the line that shows them.

Only what a reading says outright; causes and cures are the diagnosis rooms' business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cockpit.model.event import Severity
from cockpit.model.gpu import Gpu
from cockpit.model.ledger import Ledger
from cockpit.model.process import Process
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import GIB, gib
from cockpit.model.time import moment
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import crop, fit_line, foreign, merged, width_of
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.gpu_ranges import ranges
from cockpit.tui.render.remarks import (
    FULL_SHARE,
    HEAT,
    POWER_BRAKE,
    XID_FOR_S,
    full_share,
    recent_xids,
)

_ROLES: dict[Severity, Role] = {"error": "error", "warning": "warn", "info": ""}
_RANKS: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
_QUIET_KINDS = frozenset({"context_overhead", "readings_raced"})
_KNOWN_KINDS = frozenset({"other_namespace", "mps", "graphics", "mig", "unified_memory"})
"""Somebody else's memory, but nobody's trouble."""
_WORTH_BYTES = GIB
"""Unaccounted memory below it is nobody's trouble."""


class Alert(NamedTuple):
    """One thing that is wrong."""

    severity: Severity
    sentence: str
    gpu: int | None = None
    pid: int | None = None


def alerts(snapshot: Snapshot) -> list[Alert]:
    """Everything that is wrong, worst first; of one severity in the order of the list below."""
    found: list[Alert] = []
    found += _driver(snapshot)
    found += _lost(snapshot)
    found += _xids(snapshot)
    found += _grouped(snapshot.gpus, _has_ecc, "error", "uncorrected ECC errors")
    found += _grouped(snapshot.gpus, _is_braked, "error", "slowed by the power brake")
    found += _grouped(snapshot.gpus, _is_heated, "error", "slowed by heat")
    found += _stale(snapshot.gpus)
    found += _strays(snapshot.processes)
    found += _grouped(snapshot.gpus, _wants_remap, "warning", "has memory rows to remap: reset it")
    found += _unaccounted(snapshot.ledger)
    found += _grouped(snapshot.gpus, _is_full, "info", "nearly full: more than 97 % of its memory")
    return sorted(found, key=lambda alert: _RANKS[alert.severity])


def alert_line(found: Sequence[Alert], width: int, glyphs: Glyphs, hint: str = "") -> Line:
    """As many alerts as fit in one line; the number of the others stands at its end.

    ``hint`` is what a key does about the first one; it is never cropped away.
    """
    if not found:
        return glyphs.finish(fit_line(((" all quiet", "dim"),), width))
    shown = _fitting(found, width - 3 - width_of(hint))
    hidden = len(found) - len(shown)
    more = f" (+{hidden})" if hidden else ""
    more = f"  {hint}{more}" if hint else more
    room = width - 3 - len(more)
    sign = " · " if found[0].severity == "info" else " ! "
    spans: list[tuple[str, Role]] = [(sign, _ROLES[found[0].severity])]
    for number, alert in enumerate(shown):
        text = alert.sentence if len(shown) > 1 else crop(alert.sentence, room)
        spans += [(" · ", "dim")] if number else []
        spans.append((text, _ROLES[alert.severity]))
    return glyphs.finish(fit_line(merged([*spans, (more, "dim")]), width))


def _fitting(found: Sequence[Alert], room: int) -> list[Alert]:
    """At least the first one, cropped if it must be."""
    shown = [found[0]]
    used = width_of(found[0].sentence)
    for number, alert in enumerate(found[1:], start=1):
        more = 3 + width_of(alert.sentence)
        rest = len(found) - number - 1
        if used + more + (5 if rest else 0) > room:
            break
        shown.append(alert)
        used += more
    return shown


# -- what is looked for


def _driver(snapshot: Snapshot) -> Iterable[Alert]:
    error = snapshot.driver.error
    if error is not None:
        yield Alert("error", foreign(error.message))


def _lost(snapshot: Snapshot) -> Iterable[Alert]:
    """With the Xid that told of it, where one did."""
    lost = _lost_gpus(snapshot)
    if lost:
        verb = "is" if len(lost) == 1 else "are"
        xids = sorted({xid for gpu, xid in recent_xids(snapshot).items() if gpu in lost})
        why = f" (Xid {', '.join(map(str, xids))})" if xids else ""
        words = f"{_gpus(lost)} {verb} lost{why}: a reset or a reboot is needed"
        yield Alert("error", words, lost[0])


def _lost_gpus(snapshot: Snapshot) -> list[int]:
    return [gpu.index for gpu in snapshot.gpus if gpu.state == "lost"]


def _xids(snapshot: Snapshot) -> Iterable[Alert]:
    """The newest Xid of each GPU within ten minutes, in the words of its event."""
    now = moment(snapshot.taken_at) or 0.0
    newest: dict[int | None, Alert] = {}
    lost = _lost_gpus(snapshot)
    for event in snapshot.events:
        if (
            event.kind == "xid"
            and event.gpu not in lost
            and now - (moment(event.at) or 0.0) <= XID_FOR_S
        ):
            severity: Severity = "warning" if event.severity == "info" else event.severity
            words = foreign(event.sentence).rstrip(".")
            newest[event.gpu] = Alert(severity, words, event.gpu)
    return newest.values()


def _grouped(
    gpus: Sequence[Gpu], is_so: Callable[[Gpu], bool], severity: Severity, words: str
) -> Iterable[Alert]:
    """One alert for all GPUs that have the same trouble."""
    which = [gpu.index for gpu in gpus if gpu.state == "ok" and is_so(gpu)]
    if which:
        yield Alert(severity, f"{_gpus(which)} {words}", which[0])


def _has_ecc(gpu: Gpu) -> bool:
    return bool(gpu.ecc_uncorrected)


def _is_braked(gpu: Gpu) -> bool:
    return POWER_BRAKE in (gpu.throttle_reasons or ())


def _is_heated(gpu: Gpu) -> bool:
    return bool(HEAT & set(gpu.throttle_reasons or ()))


def _wants_remap(gpu: Gpu) -> bool:
    return bool(gpu.remapped_rows_pending or gpu.remapped_rows_failed)


def _is_full(gpu: Gpu) -> bool:
    return not gpu.unified_memory and (full_share(gpu) or 0.0) > FULL_SHARE


def _stale(gpus: Sequence[Gpu]) -> Iterable[Alert]:
    late = [gpu for gpu in gpus if gpu.state == "stale"]
    if late:
        verb = "does" if len(late) == 1 else "do"
        words = f"{_gpus([gpu.index for gpu in late])} {verb} not answer, last values shown"
        yield Alert("warning", words, late[0].index)


def _strays(processes: Sequence[Process]) -> Iterable[Alert]:
    """Where they hold most first."""
    strays = [process for process in processes if process.stray is not None]
    for process in sorted(strays, key=lambda p: -(p.vram_bytes or 0)):
        where = _gpus([use.gpu for use in process.devices]) if process.devices else "Memory"
        held = "memory" if process.vram_bytes is None else f"{gib(process.vram_bytes)} GiB"
        words = f"{where}: {held} held by a stray (pid {process.pid})"
        gpu = process.devices[0].gpu if process.devices else None
        yield Alert("warning", words, gpu, process.pid)


def _unaccounted(ledgers: Sequence[Ledger]) -> Iterable[Alert]:
    """Memory that no process accounts for, with the ledger's own explanation."""
    for ledger in ledgers:
        telling = [e for e in ledger.explanations if e.kind not in _QUIET_KINDS]
        unified = any(e.kind == "unified_memory" for e in telling)
        if telling and (unified or ledger.unaccounted_bytes >= _WORTH_BYTES):
            pid = telling[0].pids[0] if telling[0].pids else None
            why = foreign(telling[0].sentence).rstrip(".")
            if "GiB" not in why and not unified:
                why = f"{gib(ledger.unaccounted_bytes)} GiB unaccounted: {why}"
            severity: Severity = "info" if telling[0].kind in _KNOWN_KINDS else "warning"
            words = why if f"GPU {ledger.gpu}" in why else f"GPU {ledger.gpu}: {why}"
            yield Alert(severity, words, ledger.gpu, pid)


def _gpus(numbers: Sequence[int]) -> str:
    """``GPU 3``, ``GPUs 0-3``."""
    return f"{'GPU' if len(set(numbers)) == 1 else 'GPUs'} {ranges(numbers)}"
