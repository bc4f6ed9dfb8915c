"""The report of ``bathyal-repro d-hnsw``: sub-indexes in the memory of a node, and other families on its network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bathyal_bench.repro.document import Document, float_text, or_dash, set_line
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.verdicts import SPEED_NOISE, least

Record = dict[str, Any]

SCHEMES = ("naive", "without-doorbell", "d-hnsw", "ours")
# What the paper builds, the same with sub-indexes of about one size, and groups with all codes in memory.
PAPER, BALANCED, GROUPS = "partitioned-sampled-x1", "partitioned-balanced-x1", "cluster"
RECALLS = (0.9, 0.95, 0.99)
# From here on, times have one digit behind the point.
LARGE = 10.0

# Tables 1 and 2 of the paper, for SIFT1M and GIST1M.
PAPER_TABLES = """\
The paper, top-1, efSearch 48, in microseconds of network, sub-index and meta index: SIFT1M naive 90,271, 6,565 and 13.5; without
doorbell 608, 287 and 10.0; d-HNSW 528, 269 and 9.8. GIST1M naive 422,900, 35,300 and 61.1; without doorbell 2,900, 1,270 and 52.6;
d-HNSW 1,300, 1,480 and 46.9. Round trips a query on SIFT1M 3.547, 0.896 and 0.00475. Each of its 500 sub-indexes loaded once in a
batch of 2,000 is 0.25 loads a query, so that its 0.896 counts something else, or sub-indexes more than once.
"""
NETWORK = """
Network is what is left of the wall's time without the processor's for the queries; with a sub-index come its checksum and
a copy into what is kept. On a machine that others use their time counts as network; *card* does not depend on them: it is
computed, what the emulated card takes for these round trips, reads and bytes one after the other.

"""
ASKED_FOR_A_RECALL = """
Asked for a recall. Partitions keep the share that was asked for of their sub-indexes, which of replicas is more; `cluster` and
`graph` are given as much memory in the searching process as the paper's partitions take (searches and their buffers
aside), or as little as they do with. Partitions answer batches, the others as many queries at once as they choose;
*alone* is one query at a time.
"""
ROW_COLUMNS = """\
| scheme | ef | batch | at once | doorbell | kept | recall | us | network us | round trips | reads | bytes | queries/s |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""
ASKED_COLUMNS = """\
| index | asked | recall | MB kept | MB in all | at once | queries/s | bytes | round trips | alone, p50 us | alone, bytes | alone, round trips |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""
GROWN_COLUMNS = """\
| vectors | inserts/s | one insert, p50 us | recall | us a query | bytes | alone, p50 us | alone while inserting, p50 us |
|---:|---:|---:|---:|---:|---:|---:|---:|
"""


@dataclass(frozen=True)
class Finding:
    """What follows from the rows of a set, and what the paper has beside it."""

    of: str
    what: str
    here: str
    paper: str = "-"


@dataclass(frozen=True)
class Measured:
    """What was measured of one set."""

    name: str
    rows: list[Record]
    asked: list[Record]
    grown: list[Record]

    def curve(self, scheme: str, k: int) -> list[Record]:
        """Figure 6: a scheme with ``k`` neighbours, by the list of candidates."""
        return [
            row
            for row in self.rows
            if (row["varied"], row["scheme"], row["k"]) == ("recall", scheme, k)
        ]

    def last(self, scheme: str, k: int) -> Record | None:
        """The row of the largest list of candidates."""
        return next(reversed(self.curve(scheme, k)), None)

    def neighbours(self) -> list[int]:
        """The numbers of neighbours that there are curves of."""
        return sorted({row["k"] for row in self.rows})

    def index(self, name: str, recall: float) -> Record | None:
        """An index asked for a recall."""
        found = (one for one in self.asked if (one["index"], one["asked"]) == (name, recall))
        return next(found, None)


def write(records: list[Record], document: Document) -> None:
    """Adds the report of a run to ``document``; the first record is the run itself."""
    run = records[0]
    sets = [measured(one["name"], records) for one in run["sets"]]
    findings = [finding for one in sets for finding in all_findings(one)]
    document.text += head(run)
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
    notes = [one["note"] for one in records if one["of"] == "note"]
    if notes:
        document.text += "\n## Notes\n\n" + "".join(f"* {note}\n" for note in notes)


def measured(name: str, records: list[Record]) -> Measured:
    """The records of a set."""

    def of(kind: str) -> list[Record]:
        return [one for one in records if one["of"] == kind and one["set"] == name]

    return Measured(name, of("row"), of("asked"), of("grown"))


def label(run: Record) -> str:
    """What every table of times begins with."""
    device = run["device"]
    us, gigabytes = device["latency_ns"] / 1e3, device["bandwidth_bytes_per_s"] / 1e9
    told = f"{float_text(us)} us, {float_text(gigabytes)} GB/s"
    return f"\n**Emulated `{device['name']}`**: {told}; one thread searches.\n\n"


def head(run: Record) -> str:
    sets = "".join(f"* {set_line(one)}\n" for one in run["sets"])
    return f"""# d-HNSW

Sub-indexes in the memory of a node, each read whole (d-HNSW). *naive* answers a query at a time, reads each sub-index in a
round trip of its own and keeps as little as will do; *without doorbell* answers batches of {run["batch"]}, reads each sub-index once
a batch and keeps a share of {float_text(run["cache_share"])}; *d-HNSW* reads up to {run["doorbell"]} a round trip; *ours* posts whatever is ready, and waits
for no batch. All four are one code with other parameters.

**Every time here is emulated.** The node is in this process, its memory is shared with the search, and a network card's latency
and link are put before it. What a card would move, a copy by the searching processor moves here; it counts as network, as
does whatever else the processor does for no query. Recall, round trips, reads and bytes are exact.

**One compute instance, one thread.** The paper's 24 instances of 18 threads share the node's network card, which its naive
scheme fills: that is why its naive is slower still. Ratios here are those of one instance that has the card to itself.

A search refuses a list of candidates (efSearch) that is shorter than the answer: curves of top-k begin at k.
{label(run)}{sets}* metric {run["metric"]}, {run["probes"]} sub-indexes a query (b), of {run["partition_vectors"]} vectors on average; each time is the median of {run["repeats"]}
* {run["machine"]}

    {run["command"]}
"""


def findings_table(run: Record, findings: list[Finding]) -> str:
    lines = [f"| `{one.of}` | {one.what} | {one.here} | {one.paper} |\n" for one in findings]
    title = "\n## Findings\n\nComputed from the tables below.\n"
    return title + label(run) + "| set | | here | the paper |\n|---|---|---|---|\n" + "".join(lines)


def all_findings(one: Measured) -> list[Finding]:
    """Everything that can be said of a set."""
    found = [finding for k in one.neighbours() for finding in scheme_findings(one, k)]
    found += load_findings(one)
    return found + [finding for recall in RECALLS for finding in family_findings(one, recall)]


def over(a: float, b: float) -> float:
    return a / max(b, 1e-12)


def times(value: float) -> str:
    """``17.1 times``, ``0.97 times``."""
    return f"{value:.{1 if value >= LARGE else 2}f} times"


def scheme_findings(one: Measured, k: int) -> list[Finding]:
    """Ratios of time at the largest list."""
    naive, without = {
        1: ("some 110 times by table 1 (SIFT1M)", "1.12 times (SIFT1M)"),
        10: ("up to 117 times (SIFT1M), 121 (GIST1M)", "up to 1.12 times (SIFT1M), 1.30 (GIST1M)"),
    }.get(k, ("-", "-"))
    pairs = [
        ("naive over d-HNSW", "naive", "d-hnsw", naive),
        ("without doorbell over d-HNSW", "without-doorbell", "d-hnsw", without),
        ("naive over ours", "naive", "ours", "-"),
        ("d-HNSW over ours", "d-hnsw", "ours", "-"),
    ]
    found = []
    for what, of, than, paper in pairs:
        ours, theirs = one.last(of, k), one.last(than, k)
        if ours and theirs:
            ratio = times(over(ours["wall_us"], theirs["wall_us"]))
            found.append(Finding(one.name, f"{what}, time a query, top-{k}", ratio, paper))
    return found


def load_findings(one: Measured) -> list[Finding]:
    """How often sub-indexes are read."""
    for k in one.neighbours()[:1]:
        naive, batched = one.last("naive", k), one.last("d-hnsw", k)
        if naive and batched:
            reads, trips = (times(over(naive[of], batched[of])) for of in ("reads", "round_trips"))
            paper = "3.547 over 0.00475, 747 times (SIFT1M)"
            return [
                Finding(one.name, "reads, naive over d-HNSW", reads),
                Finding(one.name, "round trips, naive over d-HNSW", trips, paper),
            ]
    return []


def family_findings(one: Measured, recall: float) -> list[Finding]:
    """Who is ahead for a recall, and what sub-indexes cost beside other families."""
    there = [asked for asked in one.asked if asked["asked"] == recall]
    at = float_text(recall)
    # Times vary from run to run; bytes are counted.
    goals: list[tuple[str, Callable[[Record], float], str, float]] = [
        ("most queries a second", lambda row: over(1.0, row["qps"]), "{qps:.0f} queries/s", SPEED_NOISE),
        ("shortest query alone", lambda row: row["alone_p50_us"], "{alone_p50_us:.0f} us", SPEED_NOISE),
        ("fewest bytes in a batch", lambda row: row["bytes"], "{bytes:.0f} bytes a query", 0.0),
        ("fewest bytes alone", lambda row: row["alone_bytes"], "{alone_bytes:.0f} bytes a query", 0.0),
    ]
    found = []
    for what, of, words, noise in goals:
        ahead = [f"{row['index']} ({words.format(**row)})" for row in least(there, of, noise)]
        if ahead:
            found.append(Finding(one.name, f"{what}, recall {at}", " and ".join(ahead)))
    sampled, balanced, groups = (one.index(name, recall) for name in (PAPER, BALANCED, GROUPS))
    if sampled and groups and groups["bytes"] > 0:
        for how, of_bytes in (("in a batch", "bytes"), ("alone", "alone_bytes")):
            ratio = times(over(sampled[of_bytes], groups[of_bytes]))
            what = f"bytes of partitions over groups, {how}, recall {at}"
            found.append(Finding(one.name, what, ratio))
    if sampled and balanced:
        what = f"bytes, sampled over balanced pivots, in a batch, recall {at}"
        found.append(Finding(one.name, what, times(over(sampled["bytes"], balanced["bytes"]))))
    return found


def row_lines(rows: Iterable[Record]) -> str:
    return "".join(
        f"| {row['scheme']} | {row['search_list']} | {row['batch']} | {row['at_once']} | {or_dash(row['doorbell'])} "
        f"| {100.0 * row['cache_share']:.1f}% | {row['recall']:.3f} | {row['wall_us']:.1f} | {row['network_us']:.1f} "
        f"| {row['round_trips']:.4f} | {row['reads']:.4f} | {row['bytes']:.0f} | {row['qps']:.0f} |\n"
        for row in rows
    )


def add_curves(document: Document, run: Record, one: Measured) -> None:
    """Figure 6."""
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
    """Tables 1 and 2."""
    k = one.neighbours()[0]
    text = f"\n## `{one.name}`: where the time goes, top-{k} (tables 1 and 2)\n" + label(run)
    text += "| scheme | ef | network us | card us | sub-index us | meta us | round trips | reads |\n"
    text += "|---|---:|---:|---:|---:|---:|---:|---:|\n"
    for row in (one.last(scheme, k) for scheme in SCHEMES):
        if row:
            text += (
                f"| {row['scheme']} | {row['search_list']} | {row['network_us']:.1f} | {row['card_us']:.1f} "
                f"| {row['subindex_us']:.1f} | {row['meta_us']:.1f} | {row['round_trips']:.5f} | {row['reads']:.4f} |\n"
            )
    return text + NETWORK + PAPER_TABLES


def variations(run: Record, one: Measured) -> str:
    """Batches, doorbells and caches."""
    kinds = {"batch": "queries of a batch", "doorbell": "reads of a doorbell", "cache": "how much is kept"}
    parts = []
    for varied, what in kinds.items():
        rows = row_lines(row for row in one.rows if row["varied"] == varied)
        parts.append(f"\n## `{one.name}`: {what}\n{label(run)}{ROW_COLUMNS}{rows}")
    return "".join(parts)


def families(run: Record, one: Measured) -> str:
    """Recalls that were asked for."""
    text = f"\n## `{one.name}`: other families on the same network\n"
    text += ASKED_FOR_A_RECALL + label(run) + ASKED_COLUMNS
    for row in one.asked:
        text += (
            f"| {row['index']} | {float_text(row['asked'])} | {row['recall']:.3f} | {row['kept_bytes'] / 1e6:.1f} "
            f"| {row['index_bytes'] / 1e6:.1f} | {or_dash(row['in_flight'])} | {row['qps']:.0f} | {row['bytes']:.0f} "
            f"| {row['round_trips']:.4f} | {row['alone_p50_us']:.0f} | {row['alone_bytes']:.0f} "
            f"| {row['alone_round_trips']:.2f} |\n"
        )
    return text


def add_inserts(document: Document, run: Record, one: Measured) -> None:
    """Inserts, and what they do to searches."""
    first = one.grown[0]
    document.text += f"""
## `{one.name}`: inserts until there are twice as many vectors (section 3.2)

An index of the first half (balanced pivots, room for as many again); the other half is inserted, by one machine, in calls of a
thousand vectors, and searches by another have the effort that recall 0.95 took at first: {first["search_list"]} candidates in each of {first["probes"]} sub-indexes.
Inserts change memory that is shared with the node: **their times are of this machine's processors and are not emulated**; graphs
are made anew by the inserting process. *While inserting* is a query alone while calls of a thousand go on, on the same cores.
{label(run)}{GROWN_COLUMNS}"""
    for row in one.grown:
        inserted, single, meanwhile = (
            f"{row[of]:.0f}" if row[of] > 0 else "-"
            for of in ("inserts_a_second", "insert_p50_us", "alone_while_inserting_p50_us")
        )
        document.text += (
            f"| {row['vectors']} | {inserted} | {single} | {row['recall']:.3f} | {row['wall_us']:.1f} "
            f"| {row['bytes']:.0f} | {row['alone_p50_us']:.0f} | {meanwhile} |\n"
        )
    curves = [
        Curve(name, [(row["vectors"], row[of]) for row in one.grown])
        for name, of in (("in batches", "wall_us"), ("alone", "alone_p50_us"))
    ]
    title = f"{one.name}, inserts, emulated {run['device']['name']}"
    document.plot(f"inserts-{one.name}.svg", Axes(title, "vectors", "us a query"), curves)
