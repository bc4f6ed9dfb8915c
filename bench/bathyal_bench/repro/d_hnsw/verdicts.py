"""Selects the leading rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bathyal_bench.repro.records import Record

# Times that differ by less than this share count as equal: each is the median of a few repeats on a shared
# machine, and the records do not contain the repeats.
TIME_NOISE = 0.05


def ahead(rows: Sequence[Record], value: Callable[[Record], float], noise: float = 0.0) -> list[Record]:
    """Returns the row with the least value, and rows within the noise of it, in ascending order.

    ``noise`` is a share of the least value. It is 0 for counters; then only the first of equal rows is
    returned.
    """
    ordered = sorted(rows, key=value)
    if not ordered or not noise:
        return ordered[:1]
    most = value(ordered[0]) * (1.0 + noise)
    return [row for row in ordered if value(row) <= most]
