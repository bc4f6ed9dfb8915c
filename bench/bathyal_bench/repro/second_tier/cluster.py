"""The report of ``bathyal-repro second-tier cluster``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bathyal_bench.repro.document import Document
from bathyal_bench.repro.numbers import fixed, percent, shown
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record
from bathyal_bench.repro.second_tier.cluster_findings import findings_of
from bathyal_bench.repro.second_tier.findings import findings_table
from bathyal_bench.repro.second_tier.lists import COUPLED, DECOUPLED, GROUPED, LAYOUTS, Lists
from bathyal_bench.repro.second_tier.model import error_line, fetch_ns, payload_qps, processor_ns
from bathyal_bench.repro.second_tier.trial import (
    BY_SIZE,
    DRAM,
    FILE,
    MODEL_HEADS,
    QPS,
    Number,
    bandwidth_qps,
    bounded,
    by_size,
    emulated,
    file_name,
    head,
    model_cells,
    qps,
    ratio,
    share_cells,
)


def report(run: Record, rows: list[Record]) -> Document:
    """Makes the report of a run."""
    lists = Lists(run, rows)
    document = Document(head("Posting lists on second-tier memory", "Figures 4 (lower half), 10 and 12", run))
    document.line(f"Lists per vector: {shown(run['centroid_share'])}.\n")
    document.add(findings_table(findings_of(lists)))
    document.line()
    document.add(error_line(rows))
    figure_4(lists, document)
    figure_10(lists, document)
    figure_12(lists, document)
    latency(lists, document)
    return document


def figure_4(lists: Lists, document: Document) -> None:
    rows = lists.on(FILE, COUPLED)
    if not rows:
        return
    document.add(
        "\n## Figure 4, lower half: the dilemma on files\n\n"
        "Coupled lists, read from the file past the page cache. Not emulated.\n\n"
    )
    heads = [
        "replicas",
        "amplification",
        "lists",
        "recall",
        "queries/s",
        "reads per query",
        "KB per query",
        "KB per read",
    ]
    document.table([*heads, "vectors compared", *MODEL_HEADS], map(row_4, rows))
    axes = Axes("Figure 4a: throughput from files", BY_SIZE, QPS)
    document.plot("figure-4-throughput.svg", axes, [by_size(FILE, rows, qps)])
    axes = Axes("Figure 4c: lists searched", BY_SIZE, "lists a query")
    document.plot("figure-4-lists.svg", axes, [by_size(FILE, rows, lambda row: row["lists_per_query"])])


def row_4(row: Record) -> list[object]:
    return [
        row["replicas"],
        fixed(row["amplification"], 2),
        fixed(row["lists_per_query"], 1),
        fixed(row["recall"], 4),
        fixed(row["qps"]),
        fixed(row["reads_per_query"], 1),
        fixed(row["bytes_per_query"] / 1e3),
        fixed(row["bytes_per_query"] / max(row["reads_per_query"], 1.0) / 1e3, 1),
        fixed(row["full_distances_per_query"]),
        *model_cells(row),
    ]


def figure_10(lists: Lists, document: Document) -> None:
    document.add(
        "\n## Figure 10: coupled, decoupled and grouped lists\n\n"
        "The same lists in three layouts; every layout searches the same lists. "
        "Small reads fetch vectors that no searched\n"
        "list stores; adjacent reads are joined. "
        "*Reads removed* is the share of all reads of decoupled lists that grouping saves.\n"
    )
    heads = ["replicas", "layout", "amplification", "lists", "recall", "reads", "small reads", "KB per query"]
    heads += ["reads removed", "queries/s", "to decoupled", "to coupled", *MODEL_HEADS]
    for device in lists.devices:
        document.add(f"\n### {device}\n\n")
        rows = [row for layout in LAYOUTS for row in lists.on(device, layout)]
        document.table(heads, [row_10(lists, row) for row in rows])
        axes = Axes(f"Figure 10: {device}", "replicas", QPS)
        document.plot(f"figure-10-{file_name(device)}.svg", axes, by_replicas(lists, device, qps))
    axes = Axes("Figure 10 (d) to (f): size", "replicas", BY_SIZE)
    drawn = by_replicas(lists, DRAM, lambda row: row["amplification"])
    document.plot("figure-10-size.svg", axes, drawn)


def by_replicas(lists: Lists, device: str, y: Number) -> list[Curve]:
    """Returns one curve per layout."""
    return [
        Curve(layout, [(row["replicas"], y(row)) for row in lists.on(device, layout)]) for layout in LAYOUTS
    ]


def row_10(lists: Lists, row: Record) -> list[object]:
    decoupled, coupled = lists.counterpart(row, DECOUPLED), lists.counterpart(row, COUPLED)
    removed = None
    if decoupled is not None and row["layout"] == GROUPED:
        removed = 1.0 - ratio(row["reads_per_query"], decoupled["reads_per_query"])
    return [
        row["replicas"],
        row["layout"],
        fixed(row["amplification"], 2),
        fixed(row["lists_per_query"], 1),
        fixed(row["recall"], 4),
        fixed(row["reads_per_query"], 1),
        fixed(row["small_reads_per_query"], 1),
        fixed(row["bytes_per_query"] / 1e3, 1),
        percent(removed),
        fixed(row["qps"]),
        *(
            "-" if other is None else fixed(ratio(row["qps"], other["qps"]), 2)
            for other in (decoupled, coupled)
        ),
        *model_cells(row),
    ]


def figure_12(lists: Lists, document: Document) -> None:
    layout = lists.main_layout
    document.add(
        "\n## Figure 12: throughput against amplification\n\n"
        f"Emulated devices, layout {layout}, {lists.run['in_flight']} queries in flight. "
        "The compute bound is the same search of the same bytes in\n"
        "plain DRAM; the share is the median over rounds. "
        "Equation 3 is the paper's bandwidth bound of the payload; the\n"
        "bound of the link counts whole granules.\n"
    )
    heads = [
        "replicas",
        "amplification",
        "lists",
        "recall",
        "reads",
        "KB per query",
        "queries/s",
        "compute bound",
    ]
    heads += ["share", "share, cpu", "equation 3", "link, granules", *MODEL_HEADS]
    files, bounds = lists.on(FILE, COUPLED), lists.on(DRAM, layout)
    for device in lists.run["devices"]:
        name = emulated(device)
        rows = lists.on(name, layout)
        payloads = [payload_qps(device, row) for row in rows]
        document.add(f"\n### E{name[1:]}\n\n")
        document.table(heads, map(row_12, rows, bounds, payloads))
        near = {
            "bandwidth, equation 3": partial(payload_qps, device),
            "bandwidth, granules": bandwidth_qps,
        }
        drawn = bounded(rows, bounds, near)
        if files:
            drawn.append(by_size("coupled, from files", files, qps))
        document.plot(f"figure-12-{file_name(name)}.svg", Axes(f"Figure 12: {name}", BY_SIZE, QPS), drawn)


def row_12(row: Record, bound: Record, payload: float) -> list[object]:
    return [
        row["replicas"],
        fixed(row["amplification"], 2),
        fixed(row["lists_per_query"], 1),
        fixed(row["recall"], 4),
        fixed(row["reads_per_query"], 1),
        fixed(row["bytes_per_query"] / 1e3, 1),
        fixed(row["qps"]),
        fixed(bound["qps"]),
        *share_cells(row),
        fixed(payload),
        fixed(bandwidth_qps(row)),
        *model_cells(row),
    ]


def latency(lists: Lists, document: Document) -> None:
    """Adds a comparison of equation 1 of cloud-native-vector-search with the latency of one query at a time."""
    document.add(
        "\n## Equation 1 of cloud-native-vector-search: one query at a time\n\n"
        f"Layout {lists.main_layout}. Latency = finding lists + fetching + comparing. "
        "The processor time of the first and the last is\n"
        "that of the same search in DRAM, divided in proportion to its phases there.\n\n"
    )
    heads = [
        "device",
        "replicas",
        "ns per centroid",
        "ns per vector",
        "lists us",
        "fetch us",
        "compare us",
        "sum us",
    ]
    document.table([*heads, "measured us", "error", "fetching"], latency_rows(lists))


def latency_rows(lists: Lists) -> Iterator[list[object]]:
    for device in lists.run["devices"]:
        alone = lists.of(emulated(device), lists.main_layout, 1)
        for row, in_dram in zip(alone, lists.on(DRAM, lists.main_layout), strict=False):
            if row["predicted"] and in_dram.get("finding_share") is not None:
                yield latency_row(row, in_dram, device)


def latency_row(row: Record, in_dram: Record, device: Record) -> list[object]:
    centroid_ns, vector_ns = processor_ns(in_dram)
    finding = row["code_distances_per_query"] * centroid_ns
    comparing = row["full_distances_per_query"] * vector_ns
    # The processor issues each read, whichever thread waits for it.
    posting = row["reads_per_query"] * float(device["issue_ns"])
    fetching = fetch_ns(row, device)
    total = (finding + fetching + comparing + posting) / 1e3
    return [
        row["device"],
        row["replicas"],
        fixed(centroid_ns),
        fixed(vector_ns),
        fixed(finding / 1e3, 1),
        fixed((fetching + posting) / 1e3, 1),
        fixed(comparing / 1e3, 1),
        fixed(total, 1),
        fixed(row["latency_us"], 1),
        percent(ratio(total, row["latency_us"]) - 1.0),
        percent(ratio((fetching + posting) / 1e3, total)),
    ]
