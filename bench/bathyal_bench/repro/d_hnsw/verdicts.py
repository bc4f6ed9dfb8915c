"""Who is ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bathyal_bench.repro.records import Record

# Times that are nearer to each other than that are as long: each is the median of a few repeats on a machine that
# others use, and the records do not have the repeats.
TIME_NOISE = 0.05


def ahead(rows: Sequence[Record], of: Callable[[Record], float], noise: float = 0.0) -> list[Record]:
    """The rows with the least, first the least of all: several where they are within the noise of each other.

    ``noise`` is a share of the least; 0 for what is counted, of which the first of equals is taken.
    """
    ordered = sorted(rows, key=of)
    if not ordered or not noise:
        return ordered[:1]
    most = of(ordered[0]) * (1.0 + noise)
    return [row for row in ordered if of(row) <= most]
