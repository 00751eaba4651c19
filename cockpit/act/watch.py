"""After the signals: waits until each process is gone and the driver has its memory back.

Measured on an H200: a killed holder's memory is free 0.11 s after its end, so looking each 50 ms
gives times worth printing. Sends nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cockpit.act.identity import Handle, wait_any
from cockpit.model import kill_words
from cockpit.model.action import KillResult, PlannedTarget
from cockpit.model.text import MIB
from cockpit.procfs import Stat

VERIFY_S = 3.0
"""How long memory may take after the last process went."""
VERIFY_ZOMBIE_S = 0.5
"""The same for who was dead before: it waits for its heirs, which have their own time."""
LOOK_S = 0.05
_TRIES = 3
"""List and "used" are read one after the other: again when the list has moved meanwhile."""


class VramSource(Protocol):
    """The driver's account of device memory, asked for now."""

    def vram_by_pid(self) -> dict[int, int] | None:
        """Bytes each listed pid holds, summed over GPUs; None: no answer in time."""

    def used_by_gpu(self) -> dict[int, int]:
        """Used bytes per GPU index; a GPU that did not answer is absent."""


@dataclass(slots=True)
class Attempt:
    """One planned target on its way to a result. Times are of the monotonic clock."""

    planned: PlannedTarget
    handle: Handle | None = None
    relatives: tuple[Stat, ...] = ()
    """Who could keep its device open, as seen before the signal."""
    gpus: frozenset[int] = frozenset()
    """Where it held memory in the last snapshot; empty: not known."""
    before: int | None = None
    after: int | None = None
    """What the driver lists for it now; None: not known."""
    sent: bool = False
    zombie: bool = False
    """Dead before the signal: its memory waits for the processes that it left behind."""
    gone_at: float | None = None
    back_at: float | None = None
    result: KillResult | None = None

    @property
    def pid(self) -> int:
        """Short for ``planned.pid``."""
        return self.planned.pid

    @property
    def alive(self) -> bool:
        """Waited for."""
        return self.result is None and self.gone_at is None

    @property
    def owing(self) -> bool:
        """Gone, its memory not seen to be back."""
        return self.result is None and self.gone_at is not None and self.back_at is None


@dataclass(slots=True)
class Books:
    """What the driver said before and says now, to tell whether memory really came back."""

    vram: VramSource
    listed_before: dict[int, int] | None = None
    used_before: dict[int, int] = field(default_factory=dict)
    missing: int = 0
    """Bytes that left the list, but are still in use."""

    def open(self) -> None:
        """Read the state before the first signal."""
        for _ in range(_TRIES):
            self.listed_before = self.vram.vram_by_pid()
            self.used_before = self.vram.used_by_gpu()
            if self.vram.vram_by_pid() == self.listed_before:
                return

    def held(self, attempt: Attempt) -> int | None:
        """Bytes before the signal: the list's, or the snapshot's where a GPU gave no list."""
        shown = attempt.planned.vram_bytes
        if self.listed_before is None:
            return shown
        listed = self.listed_before.get(attempt.pid)
        unheard = attempt.gpus - self.used_before.keys()
        return max(listed or 0, shown or 0) if unheard and self.used_before else listed

    def settle(self, attempts: Sequence[Attempt], now: float) -> None:
        """Mark the memory of gone processes that has come back."""
        owing = [attempt for attempt in attempts if attempt.owing]
        if any(attempt.before for attempt in owing):
            self._account(attempts, owing)
        for attempt in owing:
            if not attempt.before or (attempt.after == 0 and not self.missing):
                attempt.back_at = now

    def _account(self, attempts: Sequence[Attempt], owing: Sequence[Attempt]) -> None:
        listed, used = self.vram.vram_by_pid(), self.vram.used_by_gpu()
        for attempt in owing:
            silent = self._unheard(attempt, used)
            attempt.after = None if listed is None or silent else listed.get(attempt.pid, 0)
        if listed is not None:
            self.missing = self._still_used(attempts, listed, used)

    def _unheard(self, attempt: Attempt, used: dict[int, int]) -> bool:
        """A GPU that it was on does not answer: that no list has its pid proves nothing."""
        return bool(self.used_before and (attempt.gpus or self.used_before.keys()) - used.keys())

    def _still_used(
        self, attempts: Sequence[Attempt], listed: dict[int, int], used: dict[int, int]
    ) -> int:
        """Bytes by which "used" has fallen too little for what has left the list; 0: it fits.

        What the others took or gave meanwhile is allowed for. 64 MiB or 5 % may differ: contexts
        and the driver's own tables are not listed to the byte.
        """
        if self.listed_before is None or not used or used.keys() != self.used_before.keys():
            return 0
        left = {a.pid: a.before or 0 for a in attempts if a.gone_at is not None and a.after == 0}
        expected = sum(left.values())
        others = _sum(listed, left) - _sum(self.listed_before, left)
        fallen = sum(self.used_before.values()) - sum(used.values()) + others
        missing = expected - fallen
        return missing if missing > max(64 * MIB, expected // 20) else 0


def watch(
    attempts: Sequence[Attempt], books: Books, grace_s: float, say: Callable[[str], None]
) -> None:
    """Returns when all is settled, or the grace time and the time for the memory have passed."""
    start = time.monotonic()
    told = 0
    while True:
        now = time.monotonic()
        _mark_gone(attempts, now)
        books.settle(attempts, now)
        alive = [attempt for attempt in attempts if attempt.alive]
        owing = any(attempt.owing for attempt in attempts)
        if _over(attempts, now, start + grace_s if alive else start, owing):
            return
        if int(now - start) > told:
            told = int(now - start)
            say(kill_words.waiting(told, grace_s, len(alive)))
        _sleep(alive, LOOK_S if owing else LOOK_S * 4)


def _over(attempts: Sequence[Attempt], now: float, patience: float, owing: bool) -> bool:
    gone = ((a.gone_at, VERIFY_ZOMBIE_S if a.zombie else VERIFY_S) for a in attempts)
    until = max((at + more for at, more in gone if at is not None), default=0.0)
    return now >= patience and (not owing or now >= until)


def _mark_gone(attempts: Sequence[Attempt], now: float) -> None:
    for attempt in attempts:
        if attempt.alive and attempt.handle is not None and attempt.handle.gone():
            attempt.gone_at = now


def _sleep(alive: Sequence[Attempt], seconds: float) -> None:
    wait_any([attempt.handle for attempt in alive if attempt.handle is not None], seconds)


def _sum(listed: dict[int, int], without: dict[int, int]) -> int:
    return sum(held for pid, held in listed.items() if pid not in without)
