"""The theory of E2LSH about hash tables, and a fit of the growth of times.

The formulas are those of ``crates/index/src/families/lsh/promise.rs`` and ``crates/kernels/src/lsh.rs``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bathyal_bench.repro.numbers import fixed

# Ratio of successive radii (c).
RATIO = 2.0
# Number and step of the widths among which the least exponent is searched.
WIDTHS, WIDTH_STEP = 200, 0.1
# The 97.5th percentile of Student's distribution with 1, 2, ... degrees of freedom; the last for all higher
# ones.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 1.96)


def collision(widths: float) -> float:
    """Returns the probability that two points share a hash ``widths`` times as wide as their distance.

    >>> f"{collision(4.0):.4f} {collision(2.0):.4f}"
    '0.8005 0.6095'
    """
    outside = max(1.0 - math.erf(widths / math.sqrt(2.0)), 0.0)
    edges = 2.0 / (math.sqrt(math.tau) * widths) * (1.0 - math.exp(-widths * widths / 2.0))
    return min(max(1.0 - outside - edges, 0.0), 1.0)


def least_exponent() -> float:
    """Returns the least exponent rho = ln(1/p1) / ln(1/p2) over all widths: equation 5 requires n^rho tables.

    >>> f"{least_exponent():.3f}"
    '0.449'
    """
    widths = (step * WIDTH_STEP for step in range(1, WIDTHS + 1))
    return min(math.log(collision(width)) / math.log(collision(width / RATIO)) for width in widths)


def hashes_of_theory(width: float, vectors: int) -> float:
    """Returns ``log n / log(1/p2)``, the number of values of a compound hash in equation 5."""
    return math.log(max(vectors, 2)) / math.log(1.0 / collision(width / RATIO))


@dataclass(frozen=True)
class Promise:
    """The promise to find a vector within c R if there is one within R, and its parts.

    ``near`` is the probability that a vector within R shares a bucket with the query, ``far`` the largest
    mean number of entries from beyond c R that do.
    """

    probability: float
    near: float
    far: float


def promise(vectors: int, tables: int, hashes: int, width: float, candidates: int) -> Promise:
    """Computes the promise at a radius if ``candidates`` entries are compared (S)."""
    near = 1.0 - (1.0 - collision(width) ** hashes) ** tables
    far = tables * vectors * collision(width / RATIO) ** hashes
    missed = min(far / candidates, 1.0) if candidates > 0 else 1.0
    return Promise(max(near - missed, 0.0), near, far)


@dataclass(frozen=True)
class Growth:
    """An exponent of growth, ``y`` ~ ``x`` ** ``exponent``, with the half width of its 95% confidence
    interval.
    """

    exponent: float
    within: float | None

    def __str__(self) -> str:
        within = "" if self.within is None else f" ± {fixed(self.within, 2)}"
        return f"{fixed(self.exponent, 2)}{within}"


def growth(points: Sequence[tuple[float, float]]) -> Growth | None:
    """Fits the logarithms of points with positive coordinates; None for fewer than two points.

    >>> print(growth([(1e4, 1.0), (1e6, 10.0)]), growth([(1e4, 1.0)]))
    0.50 None
    """
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len(logs) < 2 or len(logs) < len(points):
        return None
    x, y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    apart = sum((one - x) ** 2 for one, _ in logs)
    if apart <= 0.0:
        return None
    exponent = sum((one - x) * (other - y) for one, other in logs) / apart
    free = len(logs) - 2
    if free == 0:
        return Growth(exponent, None)
    left = sum((other - y - exponent * (one - x)) ** 2 for one, other in logs)
    error = math.sqrt(left / free / apart)
    return Growth(exponent, error * STUDENT[min(free, len(STUDENT)) - 1])
