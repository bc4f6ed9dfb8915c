"""Tables that several parts of the report share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bathyal_bench.repro.cells import filled
from bathyal_bench.repro.cloud.curves import load_at
from bathyal_bench.repro.cloud.measured import effort_words
from bathyal_bench.repro.numbers import shown
from bathyal_bench.repro.records import Record

COUNTER_COLUMNS = """\
| index | effort | recall | rounds | waits | requests | reads | KB | processor us |
|---|---|---:|---:|---:|---:|---:|---:|---:|
"""
COUNTER_LINE = """\
| {index} | {effort} | {recall:.3f} | {rounds:.2f} | {waves:.1f} | {requests:.1f} | {reads:.1f} | \
{kilobytes:.0f} | {compute_us:.0f} |
"""
SPEED_COLUMNS = """\
| index | effort | recall | queries/s | ms | p99 | MB/s | GET/s | bound by the equations |
|---|---|---:|---:|---:|---:|---:|---:|---|
"""
SPEED_LINE = """\
| {index} | {effort} | {recall:.3f} | {qps:.1f} | {mean_ms:.0f} | {p99_ms:.0f} | {megabytes:.1f} | \
{gets:.0f} | {bound} |
"""


def label(run: Record) -> str:
    """Returns the line before every table of speeds."""
    return f"\n{store_words(run)}\n\n"


def store_words(run: Record) -> str:
    """Describes the emulated store."""
    store = run["store"]
    first_byte = f"first byte {shown(store['first_byte_ms'])} ms (median)"
    gigabits = store["bytes_per_s"] * 8.0 / 1e9
    limits = f"{store['requests_per_s']:.0f} GET/s, {gigabits:.1f} Gbit/s"
    return f"**Emulated store `{store['name']}`**: {first_byte}, {limits}."


def counter_lines(points: Iterable[Record]) -> str:
    """Returns the lines of figure 8."""
    return "".join(
        filled(COUNTER_LINE, point, effort=effort_words(point), kilobytes=point["bytes"] / 1e3)
        for point in points
    )


def speed_lines(points: Iterable[Record], concurrency: int) -> str:
    """Returns the lines of figure 7, for the points that were measured at this concurrency."""
    return "".join(
        filled(
            SPEED_LINE,
            load,
            index=point["index"],
            effort=effort_words(point),
            recall=point["recall"],
            megabytes=load["bytes_per_s"] / 1e6,
            gets=load["qps"] * load["requests"],
        )
        for point in points
        if (load := load_at(point, concurrency)) is not None
    )


def times(ratio: float | None) -> str:
    """Formats a ratio for tables.

    >>> times(1.266), times(None)
    ('1.27', '-')
    """
    return "-" if ratio is None else f"{ratio:.2f}"


def aligned(heads: Sequence[str], left: int) -> str:
    """Returns the head of a table whose first ``left`` columns are text and whose other columns are numbers.

    >>> print(aligned(["index", "1", "4"], 1), end="")
    | index | 1 | 4 |
    |---|---:|---:|
    """
    return f"| {' | '.join(heads)} |\n|{'---|' * left}{'---:|' * (len(heads) - left)}\n"
