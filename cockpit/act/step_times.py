"""Is a run really faster? Medians, their spread, and a threshold below which nothing is said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Literal, NamedTuple

NOISE_PCT = 3.0
"""A smaller difference of medians is never called a gain or a loss."""
FEWEST = 5
"""Samples on each side; each is a mean over about a second of steps."""


class StepTimes(NamedTuple):
    """Two runs' step times against each other."""

    verdict: Literal["faster", "slower", "same", "unknown"]
    change_pct: float | None
    """Of the median; negative is faster. None: too few samples."""
    sentence: str


def compare_step_times(before: Sequence[float], after: Sequence[float]) -> StepTimes:
    """Seconds a step. A difference counts from 3 % on, and only beyond what the spread explains.

    The spread of a median is taken as 1.57 IQR / sqrt(n), as the notch of a box plot (McGill et
    al. 1978): half-widths of both are added in squares.
    """
    if len(before) < FEWEST or len(after) < FEWEST:
        return StepTimes("unknown", None, "too few steps were seen to compare their times")
    old, new = median(before), median(after)
    if old <= 0:
        return StepTimes("unknown", None, "too few steps were seen to compare their times")
    pct = (new - old) / old * 100
    noise = math.hypot(_notch(before), _notch(after))
    if abs(pct) < NOISE_PCT or abs(new - old) <= noise:
        return StepTimes("same", pct, f"no difference beyond the noise ({pct:+.1f} %)")
    word: Literal["faster", "slower"] = "faster" if pct < 0 else "slower"
    return StepTimes(word, pct, f"{abs(pct):.0f} % {word} a step")


def spread(times: Sequence[float]) -> str:
    """``120 ms (115 to 131)``: median and the middle half; ``–`` where nothing was seen."""
    if not times:
        return "–"
    low, high = _middle(times)
    return f"{median(times) * 1e3:.3g} ms ({low * 1e3:.3g} to {high * 1e3:.3g})"


def _notch(times: Sequence[float]) -> float:
    low, high = _middle(times)
    return 1.57 * (high - low) / math.sqrt(len(times))


def _middle(times: Sequence[float]) -> tuple[float, float]:
    if len(times) < 2:
        return times[0], times[0]
    low, _, high = quantiles(times, n=4, method="inclusive")
    return low, high
