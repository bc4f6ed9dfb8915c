"""The report of ``bathyal-repro d-hnsw``: sub-indexes in the memory of a node, compared with other
families.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from bathyal_bench.repro.cells import describe_set, filled, or_dash
from bathyal_bench.repro.d_hnsw.findings import Finding, all_findings
from bathyal_bench.repro.d_hnsw.measured import SCHEMES, Measured, measured
from bathyal_bench.repro.document import Document
from bathyal_bench.repro.numbers import percent, shown
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record

# Tables 1 and 2 of the paper, for SIFT1M and GIST1M.
PAPER_TABLES = """\
The paper, top-1, efSearch 48, in microseconds of network, sub-index and meta index: SIFT1M naive 90,271,
6,565 and 13.5; without doorbell 608, 287 and 10.0; d-HNSW 528, 269 and 9.8. GIST1M naive 422,900, 35,300
and 61.1; without doorbell 2,900, 1,270 and 52.6; d-HNSW 1,300, 1,480 and 46.9. Round trips per query on
SIFT1M 3.547, 0.896 and 0.00475. If each of its 500 sub-indexes is loaded once in a batch of 2,000, that is
0.25 loads per query; so its 0.896 counts something else, or sub-indexes more than once.
"""
NETWORK = """
Network is the wall time without the processor time for the queries; with a sub-index it includes verifying
the checksum and copying into the cache. If other programs use the machine, their time counts as network.
*card* does not depend on other programs: it is the computed time of the emulated card for these round
trips, reads and bytes, one after the other.

"""
ASKED_FOR_A_RECALL = """
Searches at a requested recall. Partitions cache the given share of their sub-indexes, which is more bytes
with replicas. `cluster` and `graph` get as much memory in the searching process as the paper's partitions
take (without searches and their buffers), or the least that they need. Partitions answer batches, the
others as many queries at once as they choose; *alone* is one query at a time.
"""
ROW_COLUMNS = """\
| scheme | ef | batch | at once | doorbell | kept | recall | us | network us | round trips | reads | bytes | \
queries/s |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""
ROW_LINE = """\
| {scheme} | {search_list} | {batch} | {at_once} | {posted} | {kept} | {recall:.3f} | {wall_us:.1f} | \
{network_us:.1f} | {round_trips:.4f} | {reads:.4f} | {bytes:.0f} | {qps:.0f} |
"""
BREAKDOWN_COLUMNS = """\
| scheme | ef | network us | card us | sub-index us | meta us | round trips | reads |
|---|---:|---:|---:|---:|---:|---:|---:|
"""
BREAKDOWN_LINE = """\
| {scheme} | {search_list} | {network_us:.1f} | {card_us:.1f} | {subindex_us:.1f} | {meta_us:.1f} | \
{round_trips:.5f} | {reads:.4f} |
"""
ASKED_COLUMNS = """\
| index | asked | recall | MB kept | total MB | at once | queries/s | bytes | round trips | alone, p50 us | \
alone, bytes | alone, round trips |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""
ASKED_LINE = """\
| {index} | {recall_asked} | {recall:.3f} | {kept:.1f} | {size:.1f} | {at_once} | {qps:.0f} | {bytes:.0f} | \
{round_trips:.4f} | {alone_p50_us:.0f} | {alone_bytes:.0f} | {alone_round_trips:.2f} |
"""
GROWN_COLUMNS = """\
| vectors | inserts/s | one insert, p50 us | recall | us per query | bytes | alone, p50 us | alone while \
inserting, p50 us |
|---:|---:|---:|---:|---:|---:|---:|---:|
"""
GROWN_LINE = """\
| {vectors} | {inserts_a_second} | {insert_p50_us} | {recall:.3f} | {wall_us:.1f} | {bytes:.0f} | \
{alone_p50_us:.0f} | {alone_while_inserting_p50_us} |
"""
# These are 0 in the first row, before any insert.
INSERT_FIELDS = ("inserts_a_second", "insert_p50_us", "alone_while_inserting_p50_us")


def report(run: Record, rows: list[Record]) -> Document:
    """Makes the report of a run."""
    document = Document(head(run))
    sets = [measured(one["name"], rows) for one in run["sets"]]
    findings = [finding for one in sets for finding in all_findings(one)]
    if findings:
        document.text += findings_table(run, findings)
    for one in sets:
        if one.rows:
            add_curves(document, run, one)
            document.text += breakdown(run, one)
            document.text += variations(run, one)
        if one.asked:
            document.text += families(run, one)
        if one.grown:
            add_inserts(document, run, one)
    notes = [one["note"] for one in rows if one["of"] == "note"]
    if notes:
        document.text += "\n## Notes\n\n" + "".join(f"* {note}\n" for note in notes)
    return document


def label(run: Record) -> str:
    """Returns the line before every table of times."""
    device = run["device"]
    us, gigabytes = device["latency_ns"] / 1e3, device["bandwidth_bytes_per_s"] / 1e9
    profile = f"{shown(us)} us, {shown(gigabytes)} GB/s"
    return f"\n**Emulated `{device['name']}`**: {profile}; one search thread.\n\n"


def head(run: Record) -> str:
    sets = "".join(f"* {describe_set(one)}\n" for one in run["sets"])
    return f"""# d-HNSW

Sub-indexes in the memory of a node, each read whole (d-HNSW). *naive* answers one query at a time, reads
each sub-index in a round trip of its own and caches as little as possible. *without doorbell* answers
batches of {run["batch"]}, reads each sub-index once per batch and caches a share of
{shown(run["cache_share"])}. *d-HNSW* reads up to {run["doorbell"]} per round trip. *ours* sends all reads
that are ready, and waits for no batch. All four are the same code with other parameters.

**Every time here is emulated.** The node is in this process and shares its memory with the search, behind
the latency and the link of a network card. The searching processor copies what a card would transfer; that
counts as network, as does everything else that the processor does for no query. Recall, round trips, reads
and bytes are exact.

**One compute instance, one thread.** The paper's 24 instances of 18 threads share the node's network card,
which its naive scheme saturates, so its naive scheme is even slower. Ratios here are those of one instance
that has the card to itself.

A search refuses a candidate list (efSearch) shorter than k, so curves of top-k begin at k.
{label(run)}{sets}* metric {run["metric"]}, {run["probes"]} sub-indexes per query (b), of \
{run["partition_vectors"]} vectors on average; each time is the median of {run["repeats"]}
* {run["machine"]}

    {run["command"]}
"""


def findings_table(run: Record, findings: list[Finding]) -> str:
    lines = [f"| `{one.of}` | {one.what} | {one.here} | {one.paper} |\n" for one in findings]
    title = "\n## Findings\n\nComputed from the tables below.\n"
    return title + label(run) + "| set | | here | the paper |\n|---|---|---|---|\n" + "".join(lines)


def row_lines(rows: Iterable[Record]) -> str:
    """Returns the lines below ``ROW_COLUMNS``."""
    return "".join(
        filled(ROW_LINE, row, posted=or_dash(row["doorbell"]), kept=percent(row["cache_share"]))
        for row in rows
    )


def add_curves(document: Document, run: Record, one: Measured) -> None:
    """Adds the section on figure 6."""
    for k in one.neighbours():
        document.text += f"\n## `{one.name}`: latency against recall, top-{k} (figure 6)\n"
        document.text += label(run) + ROW_COLUMNS
        drawn = []
        for scheme in SCHEMES:
            rows = one.curve(scheme, k)
            document.text += row_lines(rows)
            points = [(row["recall"], math.log10(max(row["wall_us"], 1.0))) for row in rows]
            drawn.append(Curve(scheme, points))
        title = f"{one.name}, top-{k}, emulated {run['device']['name']}"
        axes = Axes(title, "recall", "us a query, by its decimal logarithm")
        document.plot(f"figure-6-{one.name}-top{k}.svg", axes, drawn)


def breakdown(run: Record, one: Measured) -> str:
    """Returns the section on tables 1 and 2."""
    k = one.neighbours()[0]
    text = f"\n## `{one.name}`: where the time goes, top-{k} (tables 1 and 2)\n"
    text += label(run) + BREAKDOWN_COLUMNS
    rows = [one.last(scheme, k) for scheme in SCHEMES]
    text += "".join(filled(BREAKDOWN_LINE, row) for row in rows if row)
    return text + NETWORK + PAPER_TABLES


def variations(run: Record, one: Measured) -> str:
    """Returns the sections on batches, doorbells and caches."""
    kinds = {"batch": "queries per batch", "doorbell": "reads per doorbell", "cache": "size of the cache"}
    parts = []
    for varied, what in kinds.items():
        rows = row_lines(row for row in one.rows if row["varied"] == varied)
        parts.append(f"\n## `{one.name}`: {what}\n{label(run)}{ROW_COLUMNS}{rows}")
    return "".join(parts)


def families(run: Record, one: Measured) -> str:
    """Returns the section on requested recalls."""
    text = f"\n## `{one.name}`: other families on the same network\n"
    text += ASKED_FOR_A_RECALL + label(run) + ASKED_COLUMNS
    return text + "".join(
        filled(
            ASKED_LINE,
            row,
            recall_asked=shown(row["asked"]),
            kept=row["kept_bytes"] / 1e6,
            size=row["index_bytes"] / 1e6,
            at_once=or_dash(row["in_flight"]),
        )
        for row in one.asked
    )


def add_inserts(document: Document, run: Record, one: Measured) -> None:
    """Adds the section on inserts and their effect on searches."""
    first = one.grown[0]
    document.text += f"""
## `{one.name}`: inserts until there are twice as many vectors (section 3.2)

The index is built over the first half (balanced pivots, room for as many vectors again). One machine
inserts the other half in calls of a thousand vectors, and another one searches, with the effort that recall
0.95 took at first: {first["search_list"]} candidates in each of {first["probes"]} sub-indexes.
Inserts change memory that is shared with the node: **their times are those of this machine's processors and
are not emulated**. The inserting process rebuilds the graphs. *While inserting* is a single query during
calls of a thousand inserts, on the same cores.
{label(run)}{GROWN_COLUMNS}"""
    for row in one.grown:
        inserts = {field: f"{row[field]:.0f}" if row[field] > 0 else "-" for field in INSERT_FIELDS}
        document.text += filled(GROWN_LINE, row, **inserts)
    curves = [
        Curve(name, [(row["vectors"], row[field]) for row in one.grown])
        for name, field in (("in batches", "wall_us"), ("alone", "alone_p50_us"))
    ]
    title = f"{one.name}, inserts, emulated {run['device']['name']}"
    document.plot(f"inserts-{one.name}.svg", Axes(title, "vectors", "us a query"), curves)
