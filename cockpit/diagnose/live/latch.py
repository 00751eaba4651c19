"""Hysteresis in one place: a claim is shown once it has held, and stays until it is long gone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from cockpit.diagnose.live.claim import Claim, Key, finding_of
from cockpit.model.finding import Finding

REFRESH_S = 5.0
"""The words of a shown finding change at most this often: a row that changes costs bytes."""
_RANKS = {"error": 0, "warning": 1, "info": 2}


class _State:
    """One key over time."""

    def __init__(self) -> None:
        self.samples: deque[tuple[float, bool]] = deque()
        self.claim: Claim | None = None
        self.seen_s = 0.0
        self.told_s = 0.0
        self.finding: Finding | None = None

    def note(self, now_s: float, claim: Claim | None) -> None:
        self.samples.append((now_s, claim is not None))
        if claim is not None:
            self.claim, self.seen_s = claim, now_s
        assert self.claim is not None
        begin_s = now_s - self.claim.hold_s
        while len(self.samples) > 1 and self.samples[1][0] <= begin_s + 1e-6:
            self.samples.popleft()

    @property
    def has_held(self) -> bool:
        claim = self.claim
        if claim is None or not self.samples[-1][1]:
            return False
        span_s = self.samples[-1][0] - self.samples[0][0]
        present = sum(1 for _, there in self.samples if there)
        return span_s >= claim.hold_s - 0.05 and present >= claim.share * len(self.samples)

    def is_over(self, now_s: float) -> bool:
        assert self.claim is not None
        wait_s = self.claim.clear_s if self.finding else self.claim.hold_s
        return now_s > self.seen_s and now_s - self.seen_s >= wait_s

    def told(self, now_s: float) -> Finding:
        """The finding; its words are renewed when the case changes, else now and then."""
        assert self.claim is not None
        old, claim = self.finding, self.claim
        changed = old is None or (old.severity, old.pid) != (claim.weight, claim.pid)
        if old is None or changed or now_s - self.told_s >= REFRESH_S:
            self.finding, self.told_s = finding_of(claim), now_s
        assert self.finding is not None
        return self.finding


class Latch:
    """All claims over time. ``at_once``: there will be no second snapshot."""

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self._states: dict[Key, _State] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._states.clear()

    def turn(self, now_s: float, claims: Iterable[Claim]) -> tuple[Finding, ...]:
        """One snapshot's claims in, what is to be shown out: worst and surest first."""
        if self._at_once:
            return _sorted([finding_of(claim) for claim in claims if claim.at_once])
        by_key: dict[Key, Claim] = {}
        for claim in claims:
            known = by_key.get(claim.key)
            if known is None or claim.confidence > known.confidence:
                by_key[claim.key] = claim
        for key in by_key:
            if key not in self._states:
                self._states[key] = _State()
        shown: list[Finding] = []
        for key, state in list(self._states.items()):
            state.note(now_s, by_key.get(key))
            if state.is_over(now_s):
                del self._states[key]
            elif state.finding is not None or state.has_held:
                shown.append(state.told(now_s))
        return _sorted(shown)


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda one: (_RANKS[one.severity], -one.confidence)))
