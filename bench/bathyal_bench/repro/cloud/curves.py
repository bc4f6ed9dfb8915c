"""Curves over recall: values between two efforts, and the recall at which one curve overtakes another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from bathyal_bench.repro.records import Record

Values = list[tuple[float, float]]
"""Pairs of recall and value, by ascending recall."""
Counter = Callable[[Record], float]
"""Returns a counter of a point."""

# Recalls at which two curves are compared: first, last, and step.
LEAST, MOST, STEP = 0.5, 0.995, 0.005
# Stand for a recall from which one curve is ahead: below any recall if it always is, above any if it never
# is.
EVERYWHERE, NOWHERE = 0.0, 2.0


def counters(points: Sequence[Record], counter: Counter) -> Values:
    """Returns a counter of each point."""
    return [(point["recall"], counter(point)) for point in points]


def load_at(point: Record, concurrency: int) -> Record | None:
    """Returns the measurements of a point at this concurrency."""
    return next((load for load in point["loads"] if load["concurrency"] == concurrency), None)


def speeds(points: Sequence[Record], concurrency: int) -> Values:
    """Returns the queries per second of each point at this concurrency."""
    loads = [(point["recall"], load_at(point, concurrency)) for point in points]
    return [(recall, load["qps"]) for recall, load in loads if load is not None]


def at(values: Values, recall: float) -> float | None:
    """Interpolates the logarithm of the value at a recall.

    Returns the first value if even the least effort reaches more, and None beyond the last point.

    >>> curve = [(0.8, 100.0), (0.9, 10.0)]
    >>> at(curve, 0.5), round(at(curve, 0.85), 3), at(curve, 0.91)
    (100.0, 31.623, None)
    """
    if not values or recall > max(values[-1][0], values[0][0]):
        return None
    if recall <= values[0][0]:
        return values[0][1]
    low, high = next(pair for pair in pairwise(values) if recall <= pair[1][0])
    share = (recall - low[0]) / max(high[0] - low[0], 1e-12)
    return math.exp(logarithm(low[1]) * (1.0 - share) + logarithm(high[1]) * share)


def logarithm(value: float) -> float:
    return math.log(max(value, 1e-12))


def ratio(a: Values, b: Values, recall: float) -> float | None:
    """Returns the value of ``a`` divided by that of ``b`` at a recall."""
    of_a, of_b = at(a, recall), at(b, recall)
    return None if of_a is None or of_b is None else of_a / max(of_b, 1e-12)


def top(a: Values, b: Values) -> float | None:
    """Returns the highest recall that both curves reach."""
    return min(a[-1][0], b[-1][0]) if a and b else None


def bottom(a: Values, b: Values) -> float | None:
    """Returns the lowest recall at which both curves have a value."""
    return max(a[0][0], b[0][0]) if a and b else None


def ratios(a: Values, b: Values) -> Values:
    """Returns the ratios of ``a`` to ``b`` at each compared recall, up to the highest that both reach."""
    low, high = bottom(a, b), top(a, b)
    if low is None or high is None:
        return []
    grid = [LEAST + step * STEP for step in range(round((MOST - LEAST) / STEP) + 1)]
    recalls = [recall for recall in grid if low <= recall < high] + [high]
    found = [(recall, ratio(a, b, recall)) for recall in recalls]
    return [(recall, times) for recall, times in found if times is not None]


def crossing(a: Values, b: Values) -> float | None:
    """Returns the recall from which ``a`` stays above ``b``; None if no recall is common to both."""
    found = ratios(a, b)
    behind = [place for place, (_, times) in enumerate(found) if not times > 1.0]
    if not behind:
        return EVERYWHERE if found else None
    return found[behind[-1] + 1][0] if behind[-1] + 1 < len(found) else NOWHERE


def crossing_words(recall: float | None) -> str:
    """Formats a crossing for tables.

    >>> [crossing_words(one) for one in (EVERYWHERE, 0.93, NOWHERE, None)]
    ['at every recall', 'from 0.930 on', 'nowhere', '-']
    """
    if recall is None:
        return "-"
    return {EVERYWHERE: "at every recall", NOWHERE: "nowhere"}.get(recall, f"from {recall:.3f} on")
