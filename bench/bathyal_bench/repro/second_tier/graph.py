"""The report of ``bathyal-repro second-tier graph``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from bathyal_bench.repro.document import Document
from bathyal_bench.repro.numbers import fixed, percent, size
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record
from bathyal_bench.repro.second_tier.model import error_line
from bathyal_bench.repro.second_tier.trial import (
    BY_SIZE,
    DRAM,
    FILE,
    MODEL_HEADS,
    QPS,
    bandwidth_qps,
    bounded,
    by_size,
    emulated,
    fastest,
    file_name,
    head,
    model_cells,
    qps,
    ratio,
    share_cells,
)
from bathyal_bench.repro.second_tier.verdicts import PAPER_AMPLIFICATION, small_enough
from bathyal_bench.repro.verdicts import Verdict


def report(run: Record, rows: list[Record]) -> Document:
    """Makes the report of a run."""
    measured = Measured(run, rows)
    document = Document(head("The graph on second-tier memory", "Figures 4 (upper half), 8 and 9", run))
    document.add(measured.summary())
    document.line()
    figure_4(measured, document)
    figure_8_pipeline(measured, document)
    figure_8_layouts(measured, document)
    figure_9(measured, document)
    sweep(measured, document)
    return document


@dataclass(frozen=True)
class Measured:
    """A run and its rows."""

    run: Record
    rows: list[Record]

    @property
    def main_layout(self) -> str:
        """The layout of figure 9 and of the sweep."""
        found: str = self.run["layouts"][-1]
        return found

    @property
    def devices(self) -> list[str]:
        """DRAM, then the emulated devices."""
        return [DRAM, *map(emulated, self.run["devices"])]

    def of(self, device: str, layout: str, in_flight: int) -> list[Record]:
        """Returns the rows of a layout on a device with ``in_flight`` queries in flight, by increasing
        degree.
        """
        wanted = (device, layout, in_flight)
        return [row for row in self.rows if (row["device"], row["layout"], row["in_flight"]) == wanted]

    def pipelined(self, device: str) -> list[Record]:
        """Returns the rows of the pipelined search on a device, in the layout of figure 9."""
        return self.of(device, self.main_layout, self.run["in_flight"])

    def summary(self) -> str:
        """Returns each device's share of the compute bound, and the error of the model."""
        lines = [summary_line(device, self.pipelined(device)) for device in self.devices[1:]]
        return "".join(lines) + error_line(self.rows)


def summary_line(device: str, rows: list[Record]) -> str:
    """Describes the fastest graph that is smaller than the paper's, or the smallest if every graph is larger."""
    agrees = [row for row in rows if small_enough(row["amplification"]) is Verdict.AGREES]
    row = fastest(agrees) or min(rows, key=lambda row: row["amplification"], default=None)
    if row is None:
        return ""
    where = "the fastest below" if agrees else "above"
    shares = share_cells(row)
    return (
        f"* {device}: {shares[0]} of the compute bound (cpu {shares[1]}) at amplification "
        f"{fixed(row['amplification'], 2)}, {where} the paper's {PAPER_AMPLIFICATION}: "
        f"degree {row['max_degree']}, {row['layout']}\n"
    )


def read_bytes(row: Record) -> str:
    """Returns the bytes per read."""
    return fixed(row["bytes_per_query"] / max(row["reads_per_query"], 1.0))


def figure_4(measured: Measured, document: Document) -> None:
    rows = [row for row in measured.rows if row["device"] == FILE]
    if not rows:
        return
    document.add(
        "## Figure 4, upper half: the dilemma on files\n\n"
        "The index is read from its file past the page cache. Not emulated.\n\n"
    )
    document.table(
        [
            "max_degree",
            "amplification",
            "search_list",
            "recall",
            "queries/s",
            "reads per query",
            "bytes per read",
        ],
        [
            [
                row["max_degree"],
                fixed(row["amplification"], 2),
                row["search_list"],
                fixed(row["recall"], 4),
                fixed(row["qps"]),
                fixed(row["reads_per_query"], 1),
                read_bytes(row),
            ]
            for row in rows
        ],
    )
    axes = Axes("Figure 4a: throughput from files", BY_SIZE, QPS)
    document.plot("figure-4-throughput.svg", axes, [by_size(FILE, rows, qps)])
    axes = Axes("Figure 4c: reads from files", BY_SIZE, "reads a query")
    document.plot("figure-4-reads.svg", axes, [by_size(FILE, rows, lambda row: row["reads_per_query"])])


def figure_8_pipeline(measured: Measured, document: Document) -> None:
    width = measured.run["in_flight"]
    document.add(
        "\n## Figure 8 (a) to (c): the software pipeline\n\n"
        f"Emulated devices, layout {measured.main_layout}: one query in flight, which waits for every hop, "
        f"compared with {width}.\n\n"
    )
    heads = ["device", "max_degree", "one, queries/s", f"{width} in flight", "gain", "gain, cpu"]
    document.table([*heads, "mean latency us, one", "in flight"], pipeline_rows(measured))


def pipeline_rows(measured: Measured) -> Iterator[list[object]]:
    for device in measured.devices[1:]:
        alone = measured.of(device, measured.main_layout, 1)
        for one, many in zip(alone, measured.pipelined(device), strict=False):
            yield [
                device,
                one["max_degree"],
                fixed(one["qps"]),
                fixed(many["qps"]),
                fixed(ratio(many["qps"], one["qps"]), 2),
                fixed(ratio(many["processor_qps"], one["processor_qps"]), 2),
                fixed(one["latency_us"]),
                fixed(many["latency_us"]),
            ]


def figure_8_layouts(measured: Measured, document: Document) -> None:
    if not {"padded", "csr"} <= set(measured.run["layouts"]):
        return
    width = measured.run["in_flight"]
    document.add(f"\n## Figure 8 (d) to (f): records back to back\n\n{width} queries in flight.\n\n")
    heads = [
        "device",
        "max_degree",
        "padded",
        "csr",
        "size saved",
        "padded, queries/s",
        "csr",
        "ratio",
        "ratio, cpu",
    ]
    document.table(heads, layout_rows(measured, width))


def layout_rows(measured: Measured, width: int) -> Iterator[list[object]]:
    for device in measured.devices:
        both = zip(measured.of(device, "padded", width), measured.of(device, "csr", width), strict=False)
        for padded, csr in both:
            saved = 1.0 - csr["index_bytes"] / max(padded["index_bytes"], 1)
            yield [
                device,
                csr["max_degree"],
                size(padded["index_bytes"]),
                size(csr["index_bytes"]),
                percent(saved),
                fixed(padded["qps"]),
                fixed(csr["qps"]),
                fixed(ratio(csr["qps"], padded["qps"]), 2),
                fixed(ratio(csr["processor_qps"], padded["processor_qps"]), 2),
            ]


def figure_9(measured: Measured, document: Document) -> None:
    document.add(
        "\n## Figure 9: throughput against amplification\n\n"
        f"Emulated devices, layout {measured.main_layout}, {measured.run['in_flight']} queries in flight. "
        "The compute bound is the same search of the same bytes in\n"
        "plain DRAM; the share is the median over rounds.\n"
    )
    heads = ["max_degree", "amplification", "search_list", "recall", "reads", "bytes per read", "queries/s"]
    heads += ["compute bound", "share", "share, cpu", "bandwidth bound", *MODEL_HEADS]
    bounds = measured.pipelined(DRAM)
    for device in measured.devices[1:]:
        rows = measured.pipelined(device)
        document.add(f"\n### E{device[1:]}\n\n")
        document.table(heads, [row_9(row, bound) for row, bound in zip(rows, bounds, strict=False)])
        drawn = bounded(rows, bounds, {"bandwidth bound": bandwidth_qps})
        document.plot(f"figure-9-{file_name(device)}.svg", Axes(f"Figure 9: {device}", BY_SIZE, QPS), drawn)


def row_9(row: Record, bound: Record) -> list[object]:
    return [
        row["max_degree"],
        fixed(row["amplification"], 2),
        row["search_list"],
        fixed(row["recall"], 4),
        fixed(row["reads_per_query"], 1),
        read_bytes(row),
        fixed(row["qps"]),
        fixed(bound["qps"]),
        *share_cells(row),
        fixed(bandwidth_qps(row)),
        *model_cells(row),
    ]


def sweep(measured: Measured, document: Document) -> None:
    run, layout = measured.run, measured.main_layout
    degree = run["sweep_degree"]
    widths = sorted({*run["sweep"], 1, run["in_flight"]})
    document.add(
        "\n## Queries in flight\n\n"
        f"max_degree {degree}, layout {layout}. "
        "The share is relative to plain DRAM with as many queries in flight.\n\n"
    )
    swept = {
        device: [
            row
            for width in widths
            for row in measured.of(device, layout, width)
            if row["max_degree"] == degree
        ]
        for device in measured.devices
    }
    heads = [
        "device",
        "in flight",
        "queries/s",
        "cpu",
        "share",
        "share, cpu",
        "mean latency us",
        *MODEL_HEADS,
    ]
    document.table(heads, [row_of_sweep(row) for rows in swept.values() for row in rows])
    drawn = [
        Curve(device, [(math.log2(row["in_flight"]), row["qps"]) for row in rows])
        for device, rows in swept.items()
    ]
    title = "Queries in flight on each thread (devices emulated)"
    document.plot("in-flight.svg", Axes(title, "log2 of the queries in flight", QPS), drawn)


def row_of_sweep(row: Record) -> list[object]:
    return [
        row["device"],
        row["in_flight"],
        fixed(row["qps"]),
        fixed(row["processor_qps"]),
        *share_cells(row),
        fixed(row["latency_us"]),
        *model_cells(row),
    ]
