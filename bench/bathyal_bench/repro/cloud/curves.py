"""Curves over recall: what an index takes for a recall between two efforts, and where one overtakes another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from bathyal_bench.repro.records import Record

Values = list[tuple[float, float]]
"""Values by recall, rising."""
Counter = Callable[[Record], float]
"""What is counted of a point."""

# Recalls at which two curves are compared: from, to, and the step.
LEAST, MOST, STEP = 0.5, 0.995, 0.005
# In place of a recall from which one is ahead: less than any recall where it always is, more where it never is.
EVERYWHERE, NOWHERE = 0.0, 2.0


def counters(points: Sequence[Record], of: Counter) -> Values:
    """A counter of each point."""
    return [(point["recall"], of(point)) for point in points]


def load_at(point: Record, concurrency: int) -> Record | None:
    """What was measured of a point with so many queries at once."""
    return next((load for load in point["loads"] if load["concurrency"] == concurrency), None)


def speeds(points: Sequence[Record], concurrency: int) -> Values:
    """Queries a second of each point with so many at once."""
    loads = [(point["recall"], load_at(point, concurrency)) for point in points]
    return [(recall, load["qps"]) for recall, load in loads if load is not None]


def at(values: Values, recall: float) -> float | None:
    """The value at a recall, between two points by its logarithm; that of the first where even the least \
effort
    reaches more, None beyond the last.

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
    """How many times the value of ``b`` that of ``a`` is at a recall."""
    of_a, of_b = at(a, recall), at(b, recall)
    return None if of_a is None or of_b is None else of_a / max(of_b, 1e-12)


def top(a: Values, b: Values) -> float | None:
    """The highest recall that both reach."""
    return min(a[-1][0], b[-1][0]) if a and b else None


def bottom(a: Values, b: Values) -> float | None:
    """The lowest recall that both were measured at."""
    return max(a[0][0], b[0][0]) if a and b else None


def ratios(a: Values, b: Values) -> Values:
    """How many times ``b`` is ``a`` at each recall that they are compared at, up to the highest that both reach."""
    low, high = bottom(a, b), top(a, b)
    if low is None or high is None:
        return []
    grid = [LEAST + step * STEP for step in range(round((MOST - LEAST) / STEP) + 1)]
    recalls = [recall for recall in grid if low <= recall < high] + [high]
    found = [(recall, ratio(a, b, recall)) for recall in recalls]
    return [(recall, times) for recall, times in found if times is not None]


def crossing(a: Values, b: Values) -> float | None:
    """From which recall on ``a`` is above ``b``; None where there is no recall that both reach."""
    found = ratios(a, b)
    behind = [place for place, (_, times) in enumerate(found) if not times > 1.0]
    if not behind:
        return EVERYWHERE if found else None
    return found[behind[-1] + 1][0] if behind[-1] + 1 < len(found) else NOWHERE


def crossing_words(recall: float | None) -> str:
    """A crossing as tables have it.

    >>> [crossing_words(one) for one in (EVERYWHERE, 0.93, NOWHERE, None)]
    ['at every recall', 'from 0.930 on', 'nowhere', '-']
    """
    if recall is None:
        return "-"
    return {EVERYWHERE: "at every recall", NOWHERE: "nowhere"}.get(recall, f"from {recall:.3f} on")
