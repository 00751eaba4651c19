"""What is wrong right now, from one snapshot: sentences, worst first, and the line that shows them.

The engine's findings, and what a reading says outright where no finding states it already; causes
and cures are the diagnosis rooms' business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cockpit.model.event import Severity
from cockpit.model.finding import Finding
from cockpit.model.finding_subject import gpus_of, pids_of
from cockpit.model.gpu import Gpu
from cockpit.model.ledger import Ledger
from cockpit.model.process import Process
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import GIB, gib
from cockpit.model.time import moment
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import crop, fit_line, foreign, merged, width_of
from cockpit.tui.render.finding_words import RANKS, ROLES, bare_title, worst_first
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
from cockpit.tui.render.told import Told

_QUIET_KINDS = frozenset({"context_overhead", "readings_raced"})
_KNOWN_KINDS = frozenset({"other_namespace", "mps", "graphics", "mig", "unified_memory"})
"""Somebody else's memory, but nobody's trouble."""
_MORE = len("  +99 more")
_NAMES_GPUS = re.compile(r"\bGPUs? \d|\d GPUs\b")
_WORTH_BYTES = GIB
"""Unaccounted memory below it is nobody's trouble."""


class Alert(NamedTuple):
    """One thing that is wrong."""

    severity: Severity
    sentence: str
    gpu: int | None = None
    pid: int | None = None
    finding: Finding | None = None
    """The finding that says so (the first of several with one title); None: a reading does."""


def alerts(snapshot: Snapshot) -> list[Alert]:
    """Everything that is wrong, worst first; of one severity the findings, then the list below."""
    found = [*_findings(snapshot), *readings_alone(snapshot)]
    return sorted(found, key=lambda alert: RANKS[alert.severity])


def readings_alone(snapshot: Snapshot) -> list[Alert]:
    """What the readings say and no finding does, worst first."""
    told = Told(snapshot)
    gpus = snapshot.gpus
    found: list[Alert] = []
    found += _driver(snapshot, told)
    found += _lost(snapshot, told)
    found += _xids(snapshot, told)
    found += _grouped(gpus, _has_ecc, "error", "uncorrected ECC errors", told, "ecc")
    found += _grouped(gpus, _is_braked, "error", "slowed by the power brake", told, "brake")
    found += _grouped(gpus, _is_heated, "error", "slowed by heat", told, "heat")
    found += _stale(gpus, told)
    found += _strays(snapshot.processes, told)
    words = "has memory rows to remap: reset it"
    found += _grouped(gpus, _wants_remap, "warning", words, told, "remap")
    found += _unaccounted(snapshot.ledger, told)
    words = "nearly full: more than 97 % of its memory"
    found += _grouped(gpus, _is_full, "info", words, told, "full")
    return sorted(found, key=lambda alert: RANKS[alert.severity])


def alert_line(found: Sequence[Alert], width: int, glyphs: Glyphs, hint: str = "") -> Line:
    """As many alerts as fit in one line; the number of the others stands at its end.

    ``hint`` is what a key does about the first one; it is never cropped away.
    """
    if not found:
        return glyphs.finish(fit_line(((" all quiet", "dim"),), width))
    hint = f"  {hint}" if hint else ""
    shown = _fitting(found, width - 3 - width_of(hint))
    hidden = len(found) - len(shown)
    more = f"{hint}  +{hidden} more" if hidden else hint
    room = width - 3 - width_of(more)
    sign = " · " if found[0].severity == "info" else " ! "
    spans: list[tuple[str, Role]] = [(sign, ROLES[found[0].severity])]
    for number, alert in enumerate(shown):
        text = alert.sentence if len(shown) > 1 else crop(alert.sentence, room)
        spans += [(" · ", "dim")] if number else []
        spans.append((text, ROLES[alert.severity]))
    return glyphs.finish(fit_line(merged([*spans, (more, "dim")]), width))


def _fitting(found: Sequence[Alert], room: int) -> list[Alert]:
    """At least the first one, cropped if it must be."""
    shown = [found[0]]
    used = width_of(found[0].sentence)
    for number, alert in enumerate(found[1:], start=1):
        more = 3 + width_of(alert.sentence)
        rest = len(found) - number - 1
        if used + more + (_MORE if rest else 0) > room:
            break
        shown.append(alert)
        used += more
    return shown


# -- what the engine has found


def _findings(snapshot: Snapshot) -> Iterable[Alert]:
    """One alert for all findings that say the same words of several GPUs."""
    groups: dict[tuple[Severity, str, str], list[Finding]] = {}
    for one in worst_first(snapshot.findings):
        groups.setdefault((one.severity, one.cause, bare_title(one)), []).append(one)
    for group in groups.values():
        yield _of_group(group, snapshot)


def _of_group(group: Sequence[Finding], snapshot: Snapshot) -> Alert:
    first = group[0]
    gpus = [gpu for one in group for gpu in gpus_of(one, snapshot.processes)]
    pids = [pid for one in group for pid in pids_of(one)]
    title = bare_title(first)
    where = _where(title, gpus, pids)
    gpu, pid = gpus[0] if gpus else None, pids[0] if pids else None
    return Alert(first.severity, f"{where}{title}", gpu, pid, first)


def _where(title: str, gpus: Sequence[int], pids: Sequence[int]) -> str:
    """``GPU 3: ``, unless the title says it itself."""
    if gpus:
        return "" if _NAMES_GPUS.search(title) else f"{_gpus(gpus)}: "
    if pids and str(pids[0]) not in title:
        return f"pid {pids[0]}: "
    return ""


# -- what the readings say


def _driver(snapshot: Snapshot, told: Told) -> Iterable[Alert]:
    error = snapshot.driver.error
    if error is not None and not told.machine("driver"):
        yield Alert("error", foreign(error.message))


def _lost(snapshot: Snapshot, told: Told) -> Iterable[Alert]:
    """With the Xid that told of it, where one did."""
    lost = [gpu for gpu in _lost_gpus(snapshot) if not told.gpu("lost", gpu)]
    if lost:
        verb = "is" if len(lost) == 1 else "are"
        xids = sorted({xid for gpu, xid in recent_xids(snapshot).items() if gpu in lost})
        why = f" (Xid {', '.join(map(str, xids))})" if xids else ""
        words = f"{_gpus(lost)} {verb} lost{why}: a reset or a reboot is needed"
        yield Alert("error", words, lost[0])


def _lost_gpus(snapshot: Snapshot) -> list[int]:
    return [gpu.index for gpu in snapshot.gpus if gpu.state == "lost"]


def _xids(snapshot: Snapshot, told: Told) -> Iterable[Alert]:
    """The newest Xid of each GPU within ten minutes, in the words of its event."""
    now = moment(snapshot.taken_at) or 0.0
    newest: dict[int | None, Alert] = {}
    lost = _lost_gpus(snapshot)
    for event in snapshot.events:
        if (
            event.kind == "xid"
            and event.gpu not in lost
            and not told.gpu("xid", event.gpu, event.xid)
            and now - (moment(event.at) or 0.0) <= XID_FOR_S
        ):
            severity: Severity = "warning" if event.severity == "info" else event.severity
            words = foreign(event.sentence).rstrip(".")
            newest[event.gpu] = Alert(severity, words, event.gpu)
    return newest.values()


def _grouped(
    gpus: Sequence[Gpu],
    is_so: Callable[[Gpu], bool],
    severity: Severity,
    words: str,
    told: Told,
    kind: str,
) -> Iterable[Alert]:
    """One alert for all GPUs that have the same trouble and no finding about it."""
    which = [gpu.index for gpu in gpus if gpu.state == "ok" and is_so(gpu)]
    which = [index for index in which if not told.gpu(kind, index)]
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


def _stale(gpus: Sequence[Gpu], told: Told) -> Iterable[Alert]:
    late = [gpu.index for gpu in gpus if gpu.state == "stale" and not told.gpu("stale", gpu.index)]
    if late:
        verb = "does" if len(late) == 1 else "do"
        yield Alert("warning", f"{_gpus(late)} {verb} not answer, last values shown", late[0])


def _strays(processes: Sequence[Process], told: Told) -> Iterable[Alert]:
    """Where they hold most first."""
    strays = [one for one in processes if one.stray and not told.holder(None, (one.pid,))]
    for process in sorted(strays, key=lambda p: -(p.vram_bytes or 0)):
        where = _gpus([use.gpu for use in process.devices]) if process.devices else "Memory"
        held = "memory" if process.vram_bytes is None else f"{gib(process.vram_bytes)} GiB"
        words = f"{where}: {held} held by a stray (pid {process.pid})"
        gpu = process.devices[0].gpu if process.devices else None
        yield Alert("warning", words, gpu, process.pid)


def _unaccounted(ledgers: Sequence[Ledger], told: Told) -> Iterable[Alert]:
    """Memory that no process accounts for, with the ledger's own explanation."""
    for ledger in ledgers:
        telling = [e for e in ledger.explanations if e.kind not in _QUIET_KINDS]
        unified = any(e.kind == "unified_memory" for e in telling)
        if telling and told.holder(ledger.gpu, [pid for e in telling for pid in e.pids]):
            continue
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
