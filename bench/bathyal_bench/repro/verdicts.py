"""Verdicts on measurements, compared with a paper."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from bathyal_bench.repro.numbers import median


class Verdict(Enum):
    """Result of comparing a measurement with a paper."""

    AGREES = "agrees"
    DIFFERS = "does not"
    NOISE = "within the noise"
    """The measurement does not agree, but would if it were off by as much as its repeats vary."""


def spread(samples: Sequence[float]) -> float:
    """Returns the largest distance of repeats from their median, as a share of the median; 0 without repeats.

    >>> spread([90.0, 100.0, 120.0]), spread([5.0]), spread([])
    (0.2, 0.0, 0.0)
    """
    middle = median(samples)
    if not middle:
        return 0.0
    return max(abs(one - middle) for one in samples) / abs(middle)


def in_range(here: Sequence[float], low: float, high: float, noise: float | Sequence[float] = 0.0) -> Verdict:
    """Compares all of ``here`` with a range; ``noise`` is their :func:`spread`, one for all or one for
    each.
    """
    spreads = [noise] * len(here) if isinstance(noise, (int, float)) else list(noise)
    reach = [
        (value - abs(value) * one, value + abs(value) * one) for value, one in zip(here, spreads, strict=True)
    ]
    return within(here, low, high, reach)


def within(here: Sequence[float], low: float, high: float, reach: Sequence[tuple[float, float]]) -> Verdict:
    """Compares all of ``here`` with a range; ``reach`` has the range of the repeats of each."""
    if all(low <= value <= high for value in here):
        return Verdict.AGREES
    if all(least <= high and most >= low for least, most in reach):
        return Verdict.NOISE
    return Verdict.DIFFERS


def at_least(here: float, bound: float, noise: float = 0.0) -> Verdict:
    """Compares a number with a lower bound."""
    return in_range([here], bound, float("inf"), noise)


def at_most(here: float, bound: float, noise: float = 0.0) -> Verdict:
    """Compares a number with an upper bound."""
    return in_range([here], float("-inf"), bound, noise)
