"""Start points of searches: figures 12 and 13, and the number of pivots."""

from __future__ import annotations

import math

from bathyal_bench.repro.cells import filled
from bathyal_bench.repro.document import Document
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record

BEGINNINGS = {
    "entry_point": "the entry point",
    "nearest": "the nearest of a thousandth",
    "pivots": "eight of the pivots",
}
THROUGHPUT_COLUMNS = """\
| beginning | list | recall | pages | **predicted** queries/s | of the disks' reads, in step | **predicted** \
queries/s, in step |
|---|---:|---:|---:|---:|---:|---:|
"""
THROUGHPUT_LINE = """\
| {beginning} | {list} | {recall:.3f} | {pages:.1f} | {prediction[qps]:.0f} | {in_step:.2f} | \
{predicted_in_step_qps:.0f} |
"""
LOAD_COLUMNS = """\
| beginning | round | reads | pages | of the most read | of the middle page | fullest |
|---|---:|---:|---:|---:|---:|---:|
"""
LOAD_LINE = "| {beginning} | {round} | {reads} | {pages} | {most} | {median} | {fullest:.2f} |\n"
NUMBER_COLUMNS = """\
| pivots | of the vectors | on the card, bytes | recall | pages | scored | **predicted** queries/s | bound \
by |
|---:|---:|---:|---:|---:|---:|---:|---|
"""
NUMBER_LINE = """\
| {pivots} | {share:.3f}% | {pivot_bytes} | {recall:.3f} | {pages:.1f} | {scored:.0f} | \
{prediction[qps]:.0f} | {prediction[bound]} |
"""


def add(document: Document, run: Record, one: Record, rows: list[Record]) -> None:
    """Adds the sections on walks over the set ``one``."""
    if not rows:
        return
    name, disks = one["name"], run["predicted"]["ssds"]
    figure_12 = [row for row in rows if row["is_figure_12"]]
    document.text += throughput(name, figure_12)
    drawn = [curve(figure_12, begin, in_step) for in_step in (False, True) for begin in BEGINNINGS]
    axes = Axes(f"{name}, beginnings, predicted, {disks} disks", "recall", "million queries/s, predicted")
    document.plot(f"figure-12-{name}.svg", axes, drawn)
    document.text += loads(name, disks, figure_12)
    add_numbers(document, one, rows)


def curve(rows: list[Record], begin: str, in_step: bool) -> Curve:
    """Returns predicted throughput over recall; with ``in_step``, queries wait for each other."""
    points = [
        (row["recall"], (row["predicted_in_step_qps"] if in_step else row["prediction"]["qps"]) / 1e6)
        for row in rows
        if row["begin"] == begin
    ]
    if in_step:
        return Curve(f"{BEGINNINGS[begin]}, in step", points, "thin")
    return Curve(BEGINNINGS[begin], points)


def throughput(name: str, rows: list[Record]) -> str:
    """Returns the section on figure 12."""
    lines = "".join(filled(THROUGHPUT_LINE, row, beginning=BEGINNINGS[row["begin"]]) for row in rows)
    return f"""
## `{name}`: where searches begin (figure 12)

Walks over the records of `graph-beam-1`, one record at a time, so that a page is a round and a hop. *The
nearest of a thousandth* is the paper's start: the nearest, by its code, of a thousandth of the vectors,
found without a graph over them and at no cost (section 4.4.2). *In step*, all queries of a mini-batch of
1,120 wait in every round for the disk with the most reads; otherwise no query waits for another, as in
Bathyal.

{THROUGHPUT_COLUMNS}{lines}
The paper, SIFT1B: up to 1.50 times the queries/s and 1.23 times the disks' bytes/s with pivots, most with
short lists.
"""


def loads(name: str, disks: int, rows: list[Record]) -> str:
    """Returns the section on figure 13."""
    lines = "".join(
        filled(LOAD_LINE, one, beginning=BEGINNINGS[row["begin"]]) for row in rows for one in row["rounds"]
    )
    return f"""
## `{name}`: concurrent reads of the disks (figure 13)

The paper shows latencies of reads; here the loads behind them are counted, with the list for recall 0.9.
Consecutive pages are on consecutive disks of {disks}. *Fullest* is the number of reads of the busiest disk
for a mini-batch of 1,120 queries, relative to the mean disk; chance alone makes it 1.09 for six disks.

{LOAD_COLUMNS}{lines}
The paper, a billion vectors and 10,000 queries from one entry point: 103 vectors in the first round, the
most often read one 657 times and the median one 48 times; 99 of 100 reads take 2.17 times as long on the
slowest disk as on the fastest (section 4.4.1, figure 3).
"""


def add_numbers(document: Document, one: Record, rows: list[Record]) -> None:
    """Adds the section on the number of pivots."""
    list_length = next((row["list"] for row in rows if not row["is_figure_12"]), None)
    if list_length is None:
        return
    compared = [row for row in rows if row["list"] == list_length and row["begin"] != "nearest"]
    compared.sort(key=lambda row: row["pivots"])
    name = one["name"]
    document.text += f"""
## `{name}`: number of pivots, {list_length} candidates

All pivots are scored before the first read, and a search begins at the nearest eight and at the entry
point. *Scored* are the codes of pivots and links per query; *on the card* are the bytes that pivots take in
its memory in addition to the codes.

{NUMBER_COLUMNS}"""
    document.text += "".join(
        filled(NUMBER_LINE, row, share=100.0 * row["pivots"] / one["vectors"]) for row in compared
    )
    points = [(math.log10(1.0 + row["pivots"]), row["pages"]) for row in compared]
    axes = Axes(f"{name}, {list_length} candidates", "decimal logarithm of 1 + pivots", "pages a query")
    document.plot(f"pivots-{name}.svg", axes, [Curve("pages", points)])
