"""What the theory of E2LSH says of hash tables, and how a time grows.

The formulas are those of ``crates/index/src/families/lsh/promise.rs`` and ``crates/kernels/src/lsh.rs``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bathyal_bench.repro.numbers import fixed

# From one radius to the next (c).
RATIO = 2.0
# Widths at which the least exponent is looked for: so many, so far apart.
WIDTHS, WIDTH_STEP = 200, 0.1
# The 97.5th percentile of Student's distribution with 1, 2, ... degrees of freedom; the last for all beyond.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 1.96)


def collision(widths: float) -> float:
    """How likely two points share a hash that is ``widths`` times as wide as they are apart.

    >>> f"{collision(4.0):.4f} {collision(2.0):.4f}"
    '0.8005 0.6095'
    """
    outside = max(1.0 - math.erf(widths / math.sqrt(2.0)), 0.0)
    edges = 2.0 / (math.sqrt(math.tau) * widths) * (1.0 - math.exp(-widths * widths / 2.0))
    return min(max(1.0 - outside - edges, 0.0), 1.0)


def least_exponent() -> float:
    """The exponent rho = ln(1/p1) / ln(1/p2) that is least of all widths: equation 5 asks for n^rho tables.

    >>> f"{least_exponent():.3f}"
    '0.449'
    """
    widths = (step * WIDTH_STEP for step in range(1, WIDTHS + 1))
    return min(math.log(collision(width)) / math.log(collision(width / RATIO)) for width in widths)


def hashes_of_theory(width: float, vectors: int) -> float:
    """``log n / log(1/p2)``: the values of a compound hash that equation 5 asks for."""
    return math.log(max(vectors, 2)) / math.log(1.0 / collision(width / RATIO))


@dataclass(frozen=True)
class Promise:
    """That something within c R is found where there is something within R, and what it is made of.

    ``near`` is how likely something within R shares a bucket with the query, ``far`` the most entries from beyond
    c R that do in the mean.
    """

    probability: float
    near: float
    far: float


def promise(vectors: int, tables: int, hashes: int, width: float, looked_at: int) -> Promise:
    """The promise of a radius where ``looked_at`` entries are looked at (S)."""
    near = 1.0 - (1.0 - collision(width) ** hashes) ** tables
    far = tables * vectors * collision(width / RATIO) ** hashes
    missed = min(far / looked_at, 1.0) if looked_at > 0 else 1.0
    return Promise(max(near - missed, 0.0), near, far)


@dataclass(frozen=True)
class Growth:
    """``y`` as a power of ``x``, and by how much its exponent may be more or less with a confidence of 95%."""

    exponent: float
    within: float | None

    def __str__(self) -> str:
        within = "" if self.within is None else f" ± {fixed(self.within, 2)}"
        return f"{fixed(self.exponent, 2)}{within}"


def growth(points: Sequence[tuple[float, float]]) -> Growth | None:
    """Fits the logarithms of points with positive coordinates; nothing of fewer than two.

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
