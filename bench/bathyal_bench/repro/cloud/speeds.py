"""Speeds over recall, counters of queries, and shares of their time: figures 2 to 4 and 7 to 9; the
equations.
"""

from __future__ import annotations

from collections.abc import Sequence

from bathyal_bench.repro.cells import filled
from bathyal_bench.repro.cloud.curves import counters, crossing, crossing_words, load_at, ratio, speeds
from bathyal_bench.repro.cloud.lines import (
    COUNTER_COLUMNS,
    SPEED_COLUMNS,
    aligned,
    counter_lines,
    label,
    speed_lines,
    times,
)
from bathyal_bench.repro.cloud.measured import (
    BEAM,
    CLUSTER,
    CODED,
    COMPARED,
    CONCURRENCIES,
    Measured,
    beam_width,
    effort_words,
)
from bathyal_bench.repro.document import Document
from bathyal_bench.repro.numbers import median, percent, shown
from bathyal_bench.repro.plots import Axes, Curve

# Recalls for tables of ratios.
RECALLS = (0.8, 0.9, 0.95, 0.99)
# Figure 8, for GIST1M.
PAPER_COUNTERS = """
The paper, GIST1M (960 dimensions, a million vectors): SPANN reads 2.5 MB per query at 0.7 and 256 MB at
0.995, which is 9.39 and 94.8 times what DiskANN reads. DiskANN makes 7 and 43 roundtrips. SPANN sends 7.9
and 2,003.6 requests, DiskANN 38.4 and 660.0.
"""
PAPER_CROSSINGS = """
The paper: on GIST1M DiskANN is ahead from 0.8 on with 16 concurrent queries, nowhere with 1 and 4,
everywhere with 64; on DEEP10M from 0.99 with 16, on MSSPACE10M from 0.96 with 64, on BIGANN1B from 0.99
with 64.
"""
PAPER_WAITS = """
The paper, SPANN on GIST1M at 0.995 with 64 concurrent queries: 21.6 seconds for a posting list, 416 times
as long as DiskANN waits for a batch.
"""
PAPER_TIME = """
The paper, I/O on the remote store: SPANN 54% (nprobe 8) and 64% (640; 55% with twice the centroids),
DiskANN 71% (L 10) and 80% (640; 71% with R 256).
"""
COUNTERS = """
## Requests of a query (figure 8)

Exact, over all queries. Waits are as many as rounds, or more if the buffers of a thread do not hold all
reads of a round.

"""
WAITS = """
## Waits for reads (figure 9)

Mean milliseconds that a round waits for all of its reads.
"""
TIME = """
## Where the time goes (figures 2 and 4)

Shares of a query's time, one query at a time. Distances are to codes (scan) and to vectors (rerank);
finding is the search for centroids or for the next nodes.
"""
EQUATIONS = """
## Equations (1) and (2)

As in the paper: rounds times the median first byte, plus bytes over the link, plus processor time. Refined:
each wait is as long as the slowest of its requests, with more than one wait per round if buffers do not
hold it; throughput is the least of concurrent queries over latency, GET limit, link and processor. Errors
are relative to the measurement: medians over the efforts, with the largest in brackets.
"""


def other_indexes(measured: Measured) -> str:
    """Returns the speeds of the indexes that the paper lacks, relative to the better of its two."""
    text = "\n## What the paper lacks\n\n"
    text += "Queries per second, relative to the better of `graph` and `spann` at the same recall.\n"
    pairs = [(index, recall) for index in (CLUSTER, CODED) for recall in RECALLS]
    heads = ["concurrent queries", *(f"{index} at {shown(recall)}" for index, recall in pairs)]
    text += label(measured.run) + aligned(heads, 0)
    for concurrency in measured.concurrencies(CONCURRENCIES):
        cells = [times(over_both(measured, index, concurrency, recall)) for index, recall in pairs]
        text += f"| {concurrency} | {' | '.join(cells)} |\n"
    return text


def over_both(measured: Measured, index: str, concurrency: int, recall: float) -> float | None:
    """Returns the speed of another index at a recall, relative to the better of the paper's two."""
    own = measured.speeds(index, concurrency)
    over = [ratio(own, other, recall) for other in measured.both(concurrency)]
    # The ratio to the faster of the two is the smaller one.
    return min((one for one in over if one is not None), default=None)


def add_speeds(document: Document, measured: Measured) -> None:
    """Adds the section on figures 3 and 7."""
    document.text += "\n## Queries per second against recall (figures 3 and 7)\n"
    for concurrency in measured.concurrencies(CONCURRENCIES):
        document.text += f"\n### {concurrency} at once\n{label(measured.run)}{SPEED_COLUMNS}"
        drawn = []
        for index in COMPARED:
            points = measured.of(index)
            document.text += speed_lines(points, concurrency)
            drawn.append(Curve(index, speeds(points, concurrency)))
        title = f"{concurrency} at once, emulated store `{measured.run['store']['name']}`"
        document.plot(f"figure-7-c{concurrency}.svg", Axes(title, "recall", "queries/s"), drawn)


def crossings(measured: Measured) -> str:
    """Returns the section on the recalls at which the graph overtakes the lists."""
    text = "\n## Where graph and lists cross\n\nQueries per second of `graph`, relative to `spann`.\n"
    text += label(measured.run)
    heads = " | ".join(f"at {shown(recall)}" for recall in RECALLS)
    text += f"| set | concurrent queries | {heads} | graph ahead |\n"
    text += "|---|---:|---:|---:|---:|---:|---|\n"
    for name in (one["name"] for one in measured.run["sets"]):
        for concurrency in CONCURRENCIES:
            graph, lists = measured.both(concurrency, of_set=name)
            if graph and lists:
                cells = [times(ratio(graph, lists, recall)) for recall in RECALLS]
                cells.append(crossing_words(crossing(graph, lists)))
                text += f"| `{name}` | {concurrency} | {' | '.join(cells)} |\n"
    return text + PAPER_CROSSINGS


def add_counters(document: Document, measured: Measured) -> None:
    """Adds the section on figure 8."""
    document.text += COUNTERS + COUNTER_COLUMNS
    document.text += "".join(counter_lines(measured.of(index)) for index in COMPARED) + PAPER_COUNTERS
    for name, what, field, scale in (
        ("bytes", "MB read", "bytes", 1e6),
        ("rounds", "rounds", "rounds", 1.0),
        ("requests", "requests", "requests", 1.0),
    ):
        drawn = [
            Curve(index, counters(measured.of(index), lambda point, of=field, scale=scale: point[of] / scale))
            for index in COMPARED
        ]
        document.plot(f"figure-8-{name}.svg", Axes(f"{what} of a query", "recall", what), drawn)


def waits(measured: Measured) -> str:
    """Returns the section on figure 9."""
    concurrencies = measured.concurrencies(CONCURRENCIES)
    heads = ["index", "effort", "recall", *(f"{concurrency} at once" for concurrency in concurrencies)]
    text = WAITS + label(measured.run) + aligned(heads, 2)
    for point in (point for index in COMPARED for point in measured.of(index)):
        loads = [load_at(point, concurrency) for concurrency in concurrencies]
        cells = [f"{load['round_ms']:.0f}" if load else "-" for load in loads]
        known = f"{point['index']} | {effort_words(point)} | {point['recall']:.3f}"
        text += f"| {known} | {' | '.join(cells)} |\n"
    return text + PAPER_WAITS


def time(measured: Measured) -> str:
    """Returns the section on figures 2 and 4."""
    text = TIME + label(measured.run)
    text += "| index | effort | recall | reads | finding | codes | vectors |\n|---|---|---:|---:|---:|---:|---:|\n"
    for point in measured.points:
        load = load_at(point, 1)
        if point["set"] == measured.first and beam_width(point) in (None, BEAM) and load:
            shares = {name: percent(load[f"{name}_share"]) for name in ("read", "navigate", "scan", "rerank")}
            text += filled(
                "| {index} | {effort} | {recall:.3f} | {read} | {navigate} | {scan} | {rerank} |\n",
                point,
                effort=effort_words(point),
                **shares,
            )
    return text + PAPER_TIME


def equations(measured: Measured) -> str:
    """Returns the errors of equations (1) and (2)."""
    text = EQUATIONS + label(measured.run)
    text += (
        "| index | concurrent queries | as in the paper, latency | refined, latency | refined, queries/s |\n"
    )
    text += "|---|---:|---:|---:|---:|\n"
    for index in COMPARED:
        for concurrency in measured.concurrencies(CONCURRENCIES):
            all_loads = [load_at(point, concurrency) for point in measured.of(index)]
            loads = [load for load in all_loads if load is not None]
            cells = [
                errors([load[field] for load in loads if load[field] is not None])
                for field in ("plain_error", "latency_error", "qps_error")
            ]
            text += f"| {index} | {concurrency} | {' | '.join(cells)} |\n"
    return text


def errors(all_errors: Sequence[float]) -> str:
    """Formats the median of errors, and the one farthest from 0.

    >>> errors([-0.1, 0.02, 0.05]), errors([])
    ('+2% (-10%)', '-')
    """
    if not all_errors:
        return "-"
    # Of two equally far ones, choose the later.
    worst = max(reversed(all_errors), key=abs)
    return f"{100.0 * median(all_errors):+.0f}% ({100.0 * worst:+.0f}%)"
