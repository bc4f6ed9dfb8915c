"""Variations: dimension, queries, and queries in flight (figures 14, 16 and 17)."""

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
    "own": "the set's queries",
    "few": "a tenth of them",
    "held": "vectors of the index",
    "perturbed": "one component in ten from other queries",
    "scrambled": "all components from other queries",
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
| index | under way | **predicted** queries/s | at most | **predicted** latency, ms | **predicted** \
queries/s, system | **predicted** latency, ms, system |
|---|---:|---:|---:|---:|---:|---:|
"""
LOADED_LINE = """\
| {index} | {in_flight} | {qps:.0f} | {most_qps:.0f} | {latency_ms:.3f} | {through_system[qps]:.0f} | \
{through_system[latency_ms]:.3f} |
"""


def add_dimensions(document: Document, run: Record, name: str, rows: list[Record]) -> None:
    """Adds the section on figure 14."""
    if not rows:
        return
    document.text += f"""
## `{name}`: longer vectors (figure 14)

As in the paper, vectors are made longer by repeating them, up to a record that fills a page, or up to
{run["most_code_dim"]} dimensions, beyond which a card scores no codes: the first
{rows[0]["vectors"]} vectors, one index for each length, recall {shown(LEAST_RECALL)}. *Stored* is the
record of a graph, with room for {run["max_degree"]} links, while the paper has 128.

{COPIED_COLUMNS}"""
    for row in rows:
        reckoned = filled(RECKONED, row) if row["on_card"] else "- | - | - | - | -"
        document.text += filled(COPIED_LINE, row, reckoned=reckoned)
    document.text += "\nRows with `-` are not searched by a card, because their list exceeds its limit.\n"
    title = f"{name}, copies of vectors, recall {shown(LEAST_RECALL)}, predicted"
    document.plot(f"figure-14-{name}.svg", Axes(title, "dim", PREDICTED), by_dimension(rows))


def by_dimension(rows: list[Record]) -> list[Curve]:
    """Returns the curves of figure 14."""

    def curve(index: str, what: str, predicted: str) -> Curve:
        shown_rows = [row for row in rows if row["on_card"] and row["index"] == index]
        return Curve(f"{index}, {what}", [(row["dim"], row[predicted]["qps"] / 1e6) for row in shown_rows])

    return [
        curve(GRAPH_ALONE, "links are sent", "prediction"),
        curve(GRAPH_ALONE, "records are", "sending_records"),
        curve(GRAPH_ALONE, "pages are", "sending_pages"),
        curve(GROUPS, "places are sent", "prediction"),
    ]


def add_queries(document: Document, name: str, rows: list[Record]) -> None:
    """Adds the section on figure 16."""
    if not rows:
        return
    at = shown(LEAST_RECALL)
    document.text += f"""
## `{name}`: other queries (figure 16)

All searches request recall {at}, by a calibration without these queries. *Nearest* is the median over
queries of the distance to the nearest vector. Nothing is cached, so the number of queries matters only by
chance.

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
    """Adds the section on figure 17."""
    if not rows:
        return
    at, machine = shown(LEAST_RECALL), run["predicted"]
    document.text += f"""
## `{name}`: latency and throughput, predicted (figure 17)

Recall {at}, for each number of queries in flight, of which a card with Bathyal holds at most 4,096. Rounds
and their demands are counted; everything else is **predicted** by a closed queueing network. In every round
a query waits {machine["read_us"]:.0f} us for a read and {machine["launch_us"]:.0f} us for a launch with its
copies, and queues for disks, link, card's memory, card and processor, each one server with exponential
service times. Batches cost nothing, and the system and the choice of groups only in the columns *system*.
*At most* is the throughput without
queueing, or that of the slowest resource if it is less.

{LOADED_COLUMNS}"""
    document.text += "".join(filled(LOADED_LINE, row) for row in rows)
    document.text += """
The paper, SIFT1B, mini-batches in step: some 140 ms at the highest queries/s, and less than 25 ms at a
fifth of it.
"""
    drawn = by_index(rows, lambda row: (row["qps"] / 1e6, math.log10(row["latency_ms"])))
    axes = Axes(
        f"{name}, recall {at}, predicted, {machine['ssds']} disks",
        PREDICTED,
        "decimal logarithm of ms, predicted",
    )
    document.plot(f"figure-17-{name}.svg", axes, drawn)


def by_index(rows: list[Record], point: Callable[[Record], tuple[float, float]]) -> list[Curve]:
    """Returns a curve for each index that a card searches."""
    return [Curve(index, [point(row) for row in rows if row["index"] == index]) for index in ON_CARD]
