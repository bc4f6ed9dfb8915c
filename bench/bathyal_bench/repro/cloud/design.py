"""Variations of one parameter: sets, sizes, centroids, replicas, degrees, beams (figures 10 to 19 and table
4).
"""

from __future__ import annotations

import math

from bathyal_bench.repro.cells import describe_set, filled, or_dash
from bathyal_bench.repro.cloud.curves import Counter, Values, at, bottom, counters, ratio, speeds, top
from bathyal_bench.repro.cloud.lines import (
    COUNTER_COLUMNS,
    SPEED_COLUMNS,
    counter_lines,
    label,
    speed_lines,
    times,
)
from bathyal_bench.repro.cloud.measured import (
    BEAMS,
    CLUSTER,
    DENSE,
    ENDS,
    FEWER,
    FINE,
    GRAPH,
    SPANN,
    Measured,
    effort_words,
)
from bathyal_bench.repro.document import Document
from bathyal_bench.repro.numbers import size
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record

# Recalls for ratios of two indexes, besides the lowest and the highest recall of both.
RECALLS = (0.8, 0.9, 0.95)
PAPER_SETS = """
The paper, SPANN from GIST1M (960 floats) to DEEP10M (96 floats): nprobe 2048 to 512 for 0.995, lists of 166
to 15 KB, up to 28.4 times less data and 7.61 times the queries/s. DiskANN: L 640 to 160, 43 to 15
roundtrips, up to 2.86 times the queries/s. With bytes in place of floats SPANN reads 2.69 times less and is
up to 2.13 times as fast; DiskANN reads whole blocks of 4 KB and gains nothing.
"""
GROWTH = """
## Number of vectors (figure 13)

One effort for each index. Exact.

| index | effort | vectors | recall | rounds | requests | KB |
|---|---|---:|---:|---:|---:|---:|
"""
GROWTH_LINE = """\
| {index} | {effort} | {vectors} | {recall:.3f} | {rounds:.2f} | {requests:.1f} | {kilobytes:.0f} |
"""
SIZES = """
## Sizes (table 4), and opening

Opening waits until memory holds everything that the index keeps there.
"""
SIZE_COLUMNS = """\
| index | index | read in ranges | lists | mean list | in memory | requests to open | bytes to open | seconds |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""
SIZE_LINE = """\
| {index} | {whole} | {paged} | {lists} | {list_size} | {memory} | {opening_requests} | {opening} | \
{opening_s:.2f} |
"""
PAPER_SIZES = """
The paper, GIST1M: 13.0 GB in 159K lists of 166 KB (16%, 8 replicas), 10.5 GB and 138 KB (4), 7.5 GB and 99
KB (2); 14.0 GB in 271K lists of 119 KB (32%, 8).
"""
PAPER_CENTROIDS = """
The paper: up to 3.14 times the queries/s at high recall or with many concurrent queries, and 1.47 times
less data at 0.995; slower with few concurrent queries at low recall.
"""
PAPER_REPLICAS = """
The paper: 2 replicas need 3 to 4 times the nprobe of 8 for a recall, read 2.00 times as much at 0.97 and
are 1.92 times slower.
"""
PAPER_BEAMS = """
The paper, W from 16 to 64: 43 to 14 roundtrips and 1.85 times the queries/s at 0.995 with 4 concurrent
queries; at 0.8 the roundtrips stay 7, requests rise 1.71 times and queries/s fall 1.83 times; with 64
concurrent queries W = 32 is 1.10 times as fast as 64.
"""


def add_design(document: Document, measured: Measured) -> None:
    """Adds the sections on variations."""
    document.text += other_sets(measured)
    add_growth(document, measured)
    document.text += sizes(measured)
    add_centroids(document, measured)
    add_replicas(document, measured)
    add_degrees(document, measured)
    add_beams(document, measured)


def megabytes(point: Record) -> float:
    return float(point["bytes"] / 1e6)


def rounds(point: Record) -> float:
    return float(point["rounds"])


def requests(point: Record) -> float:
    return float(point["requests"])


def other_sets(measured: Measured) -> str:
    """Returns the section on figures 10 to 12."""
    text = "\n## Dimensions and elements (figures 10 to 12)\n\n"
    for one in measured.run["sets"]:
        name = one["name"]
        points = [point for index in (GRAPH, SPANN, CLUSTER) for point in measured.of(index, of_set=name)]
        text += f"\n### {describe_set(one)}\n\n{COUNTER_COLUMNS}{counter_lines(points)}"
        if name != measured.first:
            text += at_ends(measured, points)
    return text + PAPER_SETS


def at_ends(measured: Measured, points: list[Record]) -> str:
    """Returns speeds with few and with many concurrent queries."""
    return "".join(
        f"\n{concurrency} at once:\n{label(measured.run)}{SPEED_COLUMNS}{speed_lines(points, concurrency)}"
        for concurrency in measured.concurrencies(ENDS)
    )


def add_growth(document: Document, measured: Measured) -> None:
    """Adds the section on figure 13."""
    document.text += GROWTH
    growing = {index: measured.growth(index) for index in (GRAPH, SPANN, CLUSTER)}
    document.text += "".join(
        filled(GROWTH_LINE, point, effort=effort_words(point), kilobytes=point["bytes"] / 1e3)
        for points in growing.values()
        for point in points
    )
    for what in ("rounds", "requests"):
        drawn = [
            Curve(index, [(math.log10(point["vectors"]), point[what]) for point in points])
            for index, points in growing.items()
        ]
        axes = Axes(f"{what} of a query by number of vectors", "log10 of vectors", what)
        document.plot(f"figure-13-{what}.svg", axes, drawn)
    document.text += "\nThe paper: DiskANN's roundtrips and requests grow as the logarithm of n.\n"


def sizes(measured: Measured) -> str:
    """Returns table 4, and the cost of opening."""
    text = SIZES + label(measured.run) + SIZE_COLUMNS
    for one in measured.sizes:
        if one["set"] == measured.first:
            mean = one["list_bytes"]
            text += filled(
                SIZE_LINE,
                one,
                whole=size(one["index_bytes"]),
                paged=size(one["paged_bytes"]),
                lists=or_dash(one["lists"]),
                list_size="-" if mean is None else f"{mean / 1e3:.1f} KB",
                memory=size(one["memory_bytes"]),
                opening=size(one["opening_bytes"]),
            )
    return text + PAPER_SIZES


def ratio_lines(what: str, a: Values, b: Values) -> str:
    """Returns the ratios of two indexes at several recalls."""
    low, high = bottom(a, b), top(a, b)
    if low is None or high is None:
        return ""
    recalls = [low, *(recall for recall in RECALLS if low <= recall < high), high]
    text = ""
    for recall in recalls:
        cells = [times(value) for value in (at(a, recall), at(b, recall), ratio(a, b, recall))]
        text += f"| {what} | {recall:.3f} | {' | '.join(cells)} |\n"
    return text


def change(measured: Measured, changed: tuple[str, list[Record]], usual: tuple[str, list[Record]]) -> str:
    """Returns queries per second and counters of ``changed`` and ``usual``, with their ratios."""
    text = label(measured.run)
    text += f"| | recall | {changed[0]} | {usual[0]} | times |\n|---|---:|---:|---:|---:|\n"
    for concurrency in measured.concurrencies(ENDS):
        both = (speeds(changed[1], concurrency), speeds(usual[1], concurrency))
        text += ratio_lines(f"queries/s, {concurrency} at once", *both)
    counted: dict[str, Counter] = {
        "rounds": rounds,
        "requests": requests,
        "KB": lambda point: point["bytes"] / 1e3,
    }
    for what, counter in counted.items():
        text += ratio_lines(what, counters(changed[1], counter), counters(usual[1], counter))
    return text


def add_centroids(document: Document, measured: Measured) -> None:
    """Adds the section on figures 14 and 15."""
    changed, usual = measured.of(FINE), measured.of(SPANN)
    document.text += "\n## Twice the centroids (figures 14 and 15)\n"
    document.text += change(measured, ("0.32", changed), ("0.16", usual)) + PAPER_CENTROIDS
    drawn = [Curve("0.16", counters(usual, megabytes)), Curve("0.32", counters(changed, megabytes))]
    document.plot("figure-15.svg", Axes("MB of a query by centroid share", "recall", "MB"), drawn)


def add_replicas(document: Document, measured: Measured) -> None:
    """Adds the section on figure 16."""
    usual = measured.of(SPANN)
    document.text += "\n## Replicas (figure 16)\n"
    drawn = [Curve("8 replicas", counters(usual, megabytes))]
    for replicas, index in FEWER.items():
        changed, name = measured.of(index), f"{replicas} replicas"
        document.text += change(measured, (name, changed), ("8 replicas", usual))
        drawn.append(Curve(name, counters(changed, megabytes)))
    document.text += PAPER_REPLICAS
    document.plot("figure-16.svg", Axes("MB of a query by replicas", "recall", "MB"), drawn)


def add_degrees(document: Document, measured: Measured) -> None:
    """Adds the section on figures 17 and 18."""
    changed, usual = measured.of(DENSE), measured.of(GRAPH)
    document.text += "\n## A denser graph (figures 17 and 18)\n"
    document.text += change(measured, ("R 256", changed), ("R 64", usual))
    document.text += "\nThe paper: up to 1.85 times the queries/s, at all recalls and concurrencies.\n"
    drawn = [Curve("R 64", counters(usual, rounds)), Curve("R 256", counters(changed, rounds))]
    document.plot("figure-18.svg", Axes("Rounds of a query by degree", "recall", "rounds"), drawn)


def add_beams(document: Document, measured: Measured) -> None:
    """Adds the section on figure 19."""
    by_beam = {beam: measured.of(GRAPH, beam) for beam in BEAMS}
    points = [point for of_beam in by_beam.values() for point in of_beam]
    document.text += f"\n## Width of the beam (figure 19)\n\n{COUNTER_COLUMNS}{counter_lines(points)}"
    document.text += at_ends(measured, points) + PAPER_BEAMS
    counted: dict[str, Counter] = {"rounds": rounds, "requests": requests}
    for what, counter in counted.items():
        drawn = [Curve(f"W {beam}", counters(of_beam, counter)) for beam, of_beam in by_beam.items()]
        axes = Axes(f"{what.capitalize()} of a query by width of the beam", "recall", what)
        document.plot(f"figure-19-{what}.svg", axes, drawn)
