"""What is searched, and how: dimension, queries, queries under way (figures 14, 16 and 17)."""

from __future__ import annotations

import math
from collections.abc import Callable

from bathyal_bench.repro.cells import filled, or_dash
from bathyal_bench.repro.document import Document
from bathyal_bench.repro.gustann.subjects import GRAPH_ALONE, GROUPS, LEAST_RECALL, ON_CARD
from bathyal_bench.repro.numbers import shown
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record

KINDS = {
    "own": "the set's own",
    "few": "a tenth of them",
    "held": "vectors of the index",
    "perturbed": "one component in ten of others",
    "scrambled": "all components of others",
}
PREDICTED = "million queries/s, predicted"

COPIED_COLUMNS = """\
| index | copies | dim | stored, bytes | code, bytes | recall | pages | sent, bytes | **predicted** \
queries/s | bound by | of records | of pages |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|
"""
COPIED_LINE = """\
| {index} | {copies} | {dim} | {stored_bytes} | {code_bytes} | {recall:.3f} | {pages:.1f} | {reckoned} |
"""
RECKONED = """\
{sent_bytes:.0f} | {prediction[qps]:.0f} | {prediction[bound]} | {sending_records[qps]:.0f} | \
{sending_pages[qps]:.0f}"""
QUERIED_COLUMNS = """\
| queries | how many | nearest | index | recall | list | groups | pages | rounds | **predicted** queries/s |
|---|---:|---:|---|---:|---:|---:|---:|---:|---:|
"""
QUERIED_LINE = """\
| {asked_with} | {queries} | {nearest:.4f} | {index} | {recall:.3f} | {search_list} | {groups} | {pages:.1f} \
| {rounds:.1f} | {qps} |
"""
LOADED_COLUMNS = """\
| index | under way | **predicted** queries/s | at most | **predicted** latency, ms |
|---|---:|---:|---:|---:|
"""
LOADED_LINE = "| {index} | {in_flight} | {qps:.0f} | {most_qps:.0f} | {latency_ms:.3f} |\n"


def add_dimensions(document: Document, run: Record, name: str, rows: list[Record]) -> None:
    """Figure 14."""
    if not rows:
        return
    document.text += f"""
## `{name}`: longer vectors (figure 14)

As in the paper, vectors are longer by copies of themselves, up to a record that fills a page, or \
{run["most_code_dim"]} dimensions, beyond which a card scores no codes: the first {rows[0]["vectors"]} \
vectors, an index each, recall {shown(LEAST_RECALL)}. *Stored* is the record of a graph, with room for \
{run["max_degree"]} links where the paper has 128.

{COPIED_COLUMNS}"""
    for row in rows:
        reckoned = filled(RECKONED, row) if row["on_card"] else "- | - | - | - | -"
        document.text += filled(COPIED_LINE, row, reckoned=reckoned)
    document.text += "\nWhere `-` stands, no card searches it: its list is longer than a card keeps.\n"
    title = f"{name}, copies of vectors, recall {shown(LEAST_RECALL)}, predicted"
    document.plot(f"figure-14-{name}.svg", Axes(title, "dim", PREDICTED), by_dimension(rows))


def by_dimension(rows: list[Record]) -> list[Curve]:
    """The curves of figure 14."""

    def curve(index: str, what: str, predicted: str) -> Curve:
        of = [row for row in rows if row["on_card"] and row["index"] == index]
        return Curve(f"{index}, {what}", [(row["dim"], row[predicted]["qps"] / 1e6) for row in of])

    return [
        curve(GRAPH_ALONE, "links are sent", "prediction"),
        curve(GRAPH_ALONE, "records are", "sending_records"),
        curve(GRAPH_ALONE, "pages are", "sending_pages"),
        curve(GROUPS, "places are sent", "prediction"),
    ]


def add_queries(document: Document, name: str, rows: list[Record]) -> None:
    """Figure 16."""
    if not rows:
        return
    at = shown(LEAST_RECALL)
    document.text += f"""
## `{name}`: other queries (figure 16)

All ask for recall {at}, of a calibration that knows none of them. *Nearest* is the distance of the middle \
query to the nearest vector. Nothing is cached, so that how many queries there are changes nothing but chance.

{QUERIED_COLUMNS}"""
    for row in rows:
        document.text += filled(
            QUERIED_LINE,
            row,
            asked_with=KINDS[row["kind"]],
            groups=or_dash(row["probes"]),
            qps=f"{row['prediction']['qps']:.0f}" if row["on_card"] else "-",
        )
    numbers = {kind: float(number) for number, kind in enumerate(KINDS, 1)}
    drawn = by_index(rows, lambda row: (numbers[row["kind"]], row["pages"]))
    axes = Axes(f"{name}, recall {at} asked for", "queries, in the order of the table", "pages a query")
    document.plot(f"figure-16-{name}.svg", axes, drawn)


def add_loads(document: Document, run: Record, name: str, rows: list[Record]) -> None:
    """Figure 17."""
    if not rows:
        return
    at, machine = shown(LEAST_RECALL), run["predicted"]
    document.text += f"""
## `{name}`: latency and throughput, predicted (figure 17)

Recall {at}, so many queries under way, of which a card of Bathyal's keeps 4,096 at most. Rounds and what \
they ask for are counted, all else is **predicted** by a closed queueing network: in every round a query \
waits {machine["read_us"]:.0f} us for a read and {machine["launch_us"]:.0f} us for a launch with its copies, \
and queues for disks, link, card's memory, card and processor, each one server with exponential service \
times; nothing is lost to batches, to the system or to the choice of groups. *At most* is what queries could \
be answered if they never queued, or by the slowest part.

{LOADED_COLUMNS}"""
    document.text += "".join(filled(LOADED_LINE, row) for row in rows)
    document.text += """
The paper, SIFT1B, mini-batches in step: some 140 ms at the most queries/s, and less than 25 ms at a fifth \
of them.
"""
    drawn = by_index(rows, lambda row: (row["qps"] / 1e6, math.log10(row["latency_ms"])))
    axes = Axes(
        f"{name}, recall {at}, predicted, {machine['ssds']} disks",
        PREDICTED,
        "decimal logarithm of ms, predicted",
    )
    document.plot(f"figure-17-{name}.svg", axes, drawn)


def by_index(rows: list[Record], point: Callable[[Record], tuple[float, float]]) -> list[Curve]:
    """A curve for each index that a card searches."""
    return [Curve(index, [point(row) for row in rows if row["index"] == index]) for index in ON_CARD]
