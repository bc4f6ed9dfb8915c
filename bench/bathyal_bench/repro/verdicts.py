"""Judgements on what was measured, beside what a paper says."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from bathyal_bench.repro.numbers import median


class Verdict(Enum):
    """Whether a measurement agrees with a paper."""

    AGREES = "agrees"
    DIFFERS = "does not"
    NOISE = "within the noise"
    """It does not agree, but it would if the measurement were off by as much as its repeats are apart."""


def spread(samples: Sequence[float]) -> float:
    """How far repeats reach from their median, as a share of it; 0 without repeats.

    >>> spread([90.0, 100.0, 120.0]), spread([5.0]), spread([])
    (0.2, 0.0, 0.0)
    """
    middle = median(samples)
    if not middle:
        return 0.0
    return max(abs(one - middle) for one in samples) / abs(middle)


def in_range(here: Sequence[float], low: float, high: float, noise: float | Sequence[float] = 0.0) -> Verdict:
    """Whether all of ``here`` lie between two numbers; ``noise`` is their :func:`spread`, for all or for each."""
    apart = [noise] * len(here) if isinstance(noise, (int, float)) else list(noise)
    reach = [
        (value - abs(value) * far, value + abs(value) * far) for value, far in zip(here, apart, strict=True)
    ]
    return within(here, low, high, reach)


def within(here: Sequence[float], low: float, high: float, reach: Sequence[tuple[float, float]]) -> Verdict:
    """Whether all of ``here`` lie between two numbers; ``reach`` is from where to where the repeats of each lie."""
    if all(low <= value <= high for value in here):
        return Verdict.AGREES
    if all(least <= high and most >= low for least, most in reach):
        return Verdict.NOISE
    return Verdict.DIFFERS


def at_least(here: float, bound: float, noise: float = 0.0) -> Verdict:
    """Whether a number is at least another."""
    return in_range([here], bound, float("inf"), noise)


def at_most(here: float, bound: float, noise: float = 0.0) -> Verdict:
    """Whether a number is at most another."""
    return in_range([here], float("-inf"), bound, noise)
