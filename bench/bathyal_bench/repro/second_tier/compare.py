"""The report of ``bathyal-repro second-tier compare``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bathyal_bench.repro.document import Document
from bathyal_bench.repro.numbers import fixed, percent, shown, size
from bathyal_bench.repro.plots import Axes
from bathyal_bench.repro.records import Record
from bathyal_bench.repro.second_tier.findings import Finding, findings, findings_table, plain, share, times
from bathyal_bench.repro.second_tier.model import error_line
from bathyal_bench.repro.second_tier.trial import (
    BY_SIZE,
    DRAM,
    FILE,
    MODEL_HEADS,
    QPS,
    by_size,
    emulated,
    fastest,
    file_name,
    head,
    model_cells,
    qps,
    ratio,
)
from bathyal_bench.repro.second_tier.verdicts import quotients


@dataclass(frozen=True)
class Line:
    """A family in a layout: a line of figure 13 with its columns of table 5 in the paper."""

    family: str
    layout: str
    kilobytes: str = "-"
    intensity: str = "-"

    @property
    def name(self) -> str:
        return f"{self.family}, {self.layout}"


# The paper's indexes on second-tier memory: graphs without padding, and lists that store each vector once.
GRAPH = Line("graph", "csr", "32, 38, 60", "22, 29, 19")
LISTS = Line("lists", "grouped", "139, 745, 2374", "10, 8, 3")
# The others are the paper's indexes on an SSD, and one that the paper does not have.
LINES = (
    GRAPH,
    Line("graph", "padded", GRAPH.kilobytes, GRAPH.intensity),
    LISTS,
    Line("lists", "coupled", LISTS.kilobytes, LISTS.intensity),
    Line("codes", "resident"),
)
# Throughput of the graph divided by that of the lists, on BIGANN and DEEP (section 7).
PAPER_RATIOS = {"emulated rdma": 2.1, "emulated cxl": 2.2, "emulated nvm": 1.2}
# Table 5: for each line the ranges over BIGANN and DEEP, of kilobytes per query and of intensity.
TABLE_5 = ((GRAPH, (38.0, 60.0), (19.0, 29.0)), (LISTS, (745.0, 2374.0), (3.0, 8.0)))


@dataclass(frozen=True)
class Measured:
    """A run and its rows."""

    run: Record
    rows: list[Record]

    @property
    def devices(self) -> list[str]:
        """Files first, as in the paper, then the emulated devices."""
        files = [] if self.run["file_queries"] is None else [FILE]
        return [*files, *map(emulated, self.run["devices"])]

    def on(self, device: str, line: Line) -> list[Record]:
        """Returns the rows of a line on a device, by increasing parameter."""
        wanted = (device, line.family, line.layout)
        return [row for row in self.rows if (row["device"], row["family"], row["layout"]) == wanted]

    def fastest(self, device: str, line: Line) -> Record | None:
        """Returns the fastest row of a line on a device."""
        return fastest(self.on(device, line))


def report(run: Record, rows: list[Record]) -> Document:
    """Makes the report of a run."""
    measured = Measured(run, rows)
    title = "Graph and posting lists on second-tier memory"
    document = Document(head(title, "Figure 13 and table 5", run))
    document.line(
        f"Posting lists: {shown(run['centroid_share'])} per vector. "
        "The paper's numbers are those of BIGANN and DEEP.\n"
    )
    document.add(findings_table(findings_of(measured)))
    document.line()
    document.add(error_line(rows))
    best(measured, document)
    table_5(measured, document)
    figure_13(measured, document)
    return document


def findings_of(measured: Measured) -> Iterator[Finding]:
    """Returns the paper's findings, compared with the results here."""
    for device in measured.devices:
        graph, lists = measured.fastest(device, GRAPH), measured.fastest(device, LISTS)
        if graph is not None and lists is not None:
            yield from findings_on(device, graph, lists)
    for line, kilobytes, intensities in TABLE_5:
        row = measured.fastest(DRAM, line)
        if row is not None:
            yield from findings(
                "KB read per query", line.name, kilobytes, [row["bytes_per_query"] / 1e3], plain
            )
            yield from findings("operations per byte read", line.name, intensities, [intensity(row)], plain)


def findings_on(device: str, graph: Record, lists: Record) -> Iterator[Finding]:
    """Section 7: compares the fastest graph with the fastest lists on a device."""
    if device in PAPER_RATIOS:
        paper = PAPER_RATIOS[device]
        what = f"throughput, fastest graph ({parameter(graph)}) to fastest grouped lists ({parameter(lists)})"
        here, reach = [ratio(qps(graph), qps(lists))], [quotients(graph, lists)]
        yield from findings(what, device, (paper, paper), here, times, reach)
    if device == FILE:
        return
    saved = [1.0 - ratio(graph["bytes_per_query"], lists["bytes_per_query"])]
    yield from findings("bytes per query that the graph saves", device, (0.95, 0.97), saved, share)
    what = "size of the fastest lists / size of the data"
    yield from findings(what, device, (1.1, 1.4), [lists["amplification"]], times)
    smaller = [1.0 - lists["index_bytes"] / max(graph["index_bytes"], 1)]
    what = "how much smaller the fastest lists are than the fastest graph"
    yield from findings(what, device, (0.56, 0.68), smaller, share)


def parameter(row: Record) -> str:
    """Returns the parameter in which the indexes of a line differ."""
    if "max_degree" in row:
        return f"max_degree {row['max_degree']}"
    return f"{row['replicas']} replicas" if "replicas" in row else "-"


def intensity(row: Record) -> float:
    """Returns the arithmetic operations per byte that is read."""
    found: float = row["operations_per_query"] / max(row["bytes_per_query"], 1.0)
    return found


def best(measured: Measured, document: Document) -> None:
    document.add(
        "\n## The fastest of each kind\n\n"
        'Size is that of all files, divided by that of the data; "on the device" excludes the part in DRAM.\n\n'
    )
    heads = [
        "device",
        "index",
        "fastest",
        "queries/s",
        "to graph, csr",
        "size",
        "on the device",
        "in DRAM per vector",
    ]
    document.table([*heads, "recall", "hops", "reads", "KB per query"], best_rows(measured))


def best_rows(measured: Measured) -> Iterator[list[object]]:
    for device in measured.devices:
        graph = measured.fastest(device, GRAPH)
        for line in LINES:
            row = measured.fastest(device, line)
            if row is None:
                continue
            vectors = row["data_bytes"] // max(row["vector_bytes"], 1)
            yield [
                device,
                line.name,
                parameter(row),
                fixed(row["qps"]),
                "-" if graph is None else fixed(ratio(qps(row), qps(graph)), 2),
                fixed(row["amplification"], 2),
                fixed(row["device_bytes"] / max(row["data_bytes"], 1), 2),
                f"{fixed((row['index_bytes'] - row['device_bytes']) / max(vectors, 1), 1)} B",
                fixed(row["recall"], 4),
                fixed(row["hops_per_query"], 1),
                fixed(row["reads_per_query"], 1),
                fixed(row["bytes_per_query"] / 1e3, 1),
            ]


def table_5(measured: Measured, document: Document) -> None:
    document.add(
        "\n## Table 5: computational intensity\n\n"
        "The table describes the index that is the fastest in DRAM. "
        "The paper does not say how it counts operations;\n"
        "here a distance to a full vector or to a centroid is three operations per dimension, "
        "a distance to a code two per\n"
        "byte of the code. *ns per byte* is the processor time of the whole search in DRAM, "
        "divided by the bytes read.\n\n"
    )
    heads = [
        "index",
        "fastest",
        "KB per query",
        "full distances",
        "codes or centroids",
        "operations per byte",
        "ns per byte",
    ]
    rows = ((line, measured.fastest(DRAM, line)) for line in LINES)
    cells = [row_5(line, row) for line, row in rows if row is not None]
    document.table([*heads, "the paper, KB", "the paper, intensity"], cells)
    document.add("\nThe paper's columns: SPACEV, BIGANN, DEEP.\n")


def row_5(line: Line, row: Record) -> list[object]:
    compute_ns = row["threads"] * 1e9 / max(row["processor_qps"], 1e-9)
    return [
        line.name,
        parameter(row),
        fixed(row["bytes_per_query"] / 1e3, 1),
        fixed(row["full_distances_per_query"]),
        fixed(row["code_distances_per_query"]),
        fixed(intensity(row), 1),
        fixed(compute_ns / max(row["bytes_per_query"], 1.0), 2),
        line.kilobytes,
        line.intensity,
    ]


def figure_13(measured: Measured, document: Document) -> None:
    document.add("\n## Figure 13: throughput against amplification\n")
    heads = [
        "index",
        "parameter",
        "amplification",
        "size",
        "recall",
        "queries/s",
        "share of DRAM",
        "reads",
        "KB per query",
    ]
    for device in measured.devices:
        found = {line: rows for line in LINES if (rows := measured.on(device, line))}
        document.add(f"\n### {device}\n\n")
        cells = [row_13(line, row) for line, rows in found.items() for row in rows]
        document.table([*heads, *MODEL_HEADS], cells)
        drawn = [by_size(line.name, rows, qps) for line, rows in found.items()]
        document.plot(f"figure-13-{file_name(device)}.svg", Axes(f"Figure 13: {device}", BY_SIZE, QPS), drawn)


def row_13(line: Line, row: Record) -> list[object]:
    return [
        line.name,
        parameter(row),
        fixed(row["amplification"], 2),
        size(row["index_bytes"]),
        fixed(row["recall"], 4),
        fixed(row["qps"]),
        percent(row["share_of_dram"]),
        fixed(row["reads_per_query"], 1),
        fixed(row["bytes_per_query"] / 1e3, 1),
        *model_cells(row),
    ]
