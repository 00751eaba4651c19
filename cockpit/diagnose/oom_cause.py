"""Which cause an out-of-memory message has: rules over its numbers, the first that holds.

Their order is part of them: each may take for granted that those before did not hold.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import NamedTuple

from cockpit.diagnose.candidate import search
from cockpit.diagnose.log_reader import Log
from cockpit.diagnose.oom_message import MIB, OomMessage
from cockpit.model.text import size as size_text

ABSURD_BYTES = 100 << 40
"""More than any GPU has: the number is corrupt (rules: 100 TiB)."""
CONTEXT_BYTES = 900 * MIB
"""A CUDA context and libraries, where the message does not say what the process has in all."""
_MEMORY_COLUMN = re.compile(
    r"\b(?:gpu[_ ]?mem\w*|mem(?:ory)?(?:_\w+)?|vram|alloc\w*|reserved)\b\W{0,4}"
    r"(\d{1,6}(?:\.\d{1,4})?)\s*(GiB|GB|G|MiB|MB|M)\b",
    re.IGNORECASE,
)


class Cause(NamedTuple):
    """One cause of the table, how sure, why, and what else it may be."""

    cause: str
    confidence: float
    why: str
    also: tuple[tuple[str, str], ...] = ()


class _Case:
    """The numbers of one message, the log around it, and the other fatal messages."""

    def __init__(self, log: Log, message: OomMessage, fatal: list[OomMessage]) -> None:
        self.log, self.message, self.fatal = log, message, fatal
        self.tried = message.tried or 0
        self.total, self.free = message.get("total"), message.get("free")
        self.stranded, self.allocated = message.reserved_unalloc, message.get("allocated")


_Rule = Callable[[_Case], "Cause | None"]


def cause_of(log: Log, message: OomMessage, fatal: list[OomMessage]) -> Cause:
    """``fatal``: all messages that ended a process, this one among them."""
    if message.tried is None or message.tried > ABSURD_BYTES:
        return Cause("not_oom_corrupt_size", 0.95, "The size asked for is more than any GPU has.")
    case = _Case(log, message, fatal)
    found = (rule(case) for rule in _RULES)
    return next((cause for cause in found if cause is not None), None) or _peak(case)


def _cap(case: _Case) -> Cause | None:
    message = case.message
    if "allowed" not in message.sizes:
        return None
    allowed, free = size_text(message.get("allowed")), size_text(case.free)
    why = f"The message says {allowed} allowed, with {free} free on the card."
    return Cause("oom_fraction_cap", 0.95, why)


def _paging(case: _Case) -> Cause | None:
    if not case.total or case.allocated <= case.total * 1.02:
        return None
    why = f"{size_text(case.allocated)} are allocated on a card of {size_text(case.total)}."
    return Cause("oom_host_paging", 0.85, why)


def _others(case: _Case) -> Cause | None:
    message, foreign = case.message, _foreign(case.message)
    reachable = case.stranded + case.free >= case.tried and foreign < case.stranded
    if not foreign or case.tried > case.free + foreign or reachable:
        return None
    if _ranks_share(case.log, message, case.fatal):
        why = f"{len(message.others)} more processes of about equal size are on this GPU."
        also = (("oom_other_process", "they may belong to another job"),)
        return Cause("oom_ranks_on_one_gpu", 0.8, why, also)
    why = (
        f"{size_text(foreign)} of {size_text(case.total)} belong to other processes; this one has "
        f"{size_text(message.own)}."
    )
    is_big = case.total > 0 and message.own > case.total / 2
    more = (("oom_peak", "this process has much itself"),) if is_big else ()
    return Cause("oom_other_process", 0.9 if foreign > case.total / 4 else 0.65, why, more)


def _graph_pools(case: _Case) -> Cause | None:
    pools = case.message.get("private_pools")
    if not pools or (pools < case.tried and pools <= case.total / 10):
        return None
    return Cause("oom_graph_pools", 0.85, f"{size_text(pools)} lie in private pools of graphs.")


def _much_free(case: _Case) -> Cause | None:
    if not case.total or case.free <= case.tried * 1.5 + 256 * MIB:
        return None
    why = f"{size_text(case.free)} are free and only {size_text(case.tried)} were asked for."
    also = (("oom_fragmentation", "a single large block may be missing"),)
    return Cause("oom_fraction_cap", 0.65, why, also)


def _fragmented(case: _Case) -> Cause | None:
    reserved = case.allocated + case.stranded
    if case.stranded + case.free < case.tried or case.stranded <= reserved / 10:
        return None
    why = (
        f"{size_text(case.stranded)} are reserved and unused; with {size_text(case.free)} free "
        f"that is more than the {size_text(case.tried)} asked for."
    )
    return Cause("oom_fragmentation", 0.9, why)


def _growth(case: _Case) -> Cause | None:
    is_full = case.tried <= 2 * MIB and case.allocated > case.total * 0.9
    if not _grows(case.log) and not is_full:
        return None
    why = (
        f"{size_text(case.allocated)} of {size_text(case.total)} were allocated when "
        f"{size_text(case.tried)} were asked for."
    )
    also = (("oom_peak", "memory may be flat and the card only too small"),)
    return Cause("oom_growth", 0.75, why, also)


_RULES: tuple[_Rule, ...] = (
    _cap,
    _paging,
    _others,
    _graph_pools,
    _much_free,
    _fragmented,
    _growth,
)


def _peak(case: _Case) -> Cause:
    why = f"{size_text(case.allocated)} of {size_text(case.total)} are live tensors of this process"
    border = case.stranded + case.free >= case.tried and bool(case.stranded)
    stranded = f"{size_text(case.stranded)} are stranded: borderline"
    also = (("oom_fragmentation", stranded),) if border else ()
    return Cause("oom_peak", 0.8, f"{why}; {size_text(case.tried)} more did not fit.", also)


def _foreign(message: OomMessage) -> int:
    """Bytes of other processes; 0 where they are within what is normal."""
    total = message.get("total")
    if not total or "free" not in message.sizes:
        return 0
    others = dict(message.others)
    own = message.sizes.get("self")
    if own is None:
        pytorch = message.own
        for pid, size in sorted(others.items(), key=lambda one: -one[1]):
            if pytorch > 512 * MIB and 0 <= size - pytorch < 2048 * MIB:
                del others[pid]  # this process itself, under its pid of another namespace
                own = size
                break
    if message.others:
        foreign = sum(others.values())
        limit = max(512 * MIB, total // 20)
    else:
        known = own if own is not None else message.own + CONTEXT_BYTES
        foreign = total - message.get("free") - known
        limit = max(512 * MIB, total // 20)
    return foreign if foreign > limit else 0


def _ranks_share(log: Log, message: OomMessage, fatal: list[OomMessage]) -> bool:
    same = [one for one in fatal if one.gpu == message.gpu and one.rank is not None]
    if len({one.rank for one in same}) >= 2:
        return True
    ranked = any(line.rank is not None for line in log.lines) or search(
        log, r"torchrun|torch/distributed|LOCAL_RANK|world[_ ]size|nproc_per_node|map_location"
    )
    small = [size for size in message.others.values() if 200 * MIB <= size <= 800 * MIB]
    sizes = sorted(message.others.values())
    alike = len(sizes) >= 2 and sizes[-1] <= 1.3 * sizes[0]
    return bool(ranked) and (len(small) >= 2 or alike)


def _grows(log: Log) -> bool:
    values: list[float] = []
    for line in log.lines:
        if line.is_progress and (found := _MEMORY_COLUMN.search(line.text)):
            values.append(float(found[1]) * (1024 if found[2][0] in "gG" else 1))
    rising = sum(1 for a, b in itertools.pairwise(values) if b > a)
    return len(values) >= 4 and rising >= 0.9 * (len(values) - 1) and values[-1] > 1.15 * values[0]
