"""The report of ``bathyal-repro cloud``: indexes in an object store behind an emulated network."""

from __future__ import annotations

from bathyal_bench.repro.cells import describe_set
from bathyal_bench.repro.cloud import caches, design, speeds
from bathyal_bench.repro.cloud.claims import all_claims
from bathyal_bench.repro.cloud.lines import store_words
from bathyal_bench.repro.cloud.measured import BEAM, Measured
from bathyal_bench.repro.cloud.verdicts import WORDS
from bathyal_bench.repro.document import Document
from bathyal_bench.repro.records import Record

ANSWERS = """
## The paper's answers

Computed from the measurements below. Speeds that differ by less than 5% count as equal.

| | the paper's claim | here | holds |
|---|---|---|---|
"""


def report(run: Record, rows: list[Record]) -> Document:
    """Makes the report of a run."""

    def rows_of(kind: str) -> list[Record]:
        return [row for row in rows if row["of"] == kind]

    notes = [row["note"] for row in rows_of("note")]
    measured = Measured(run, rows_of("point"), rows_of("size"), rows_of("cached"))
    document = Document(head(run))
    document.text += answers(measured)
    document.text += speeds.other_indexes(measured)
    speeds.add_speeds(document, measured)
    document.text += speeds.crossings(measured)
    speeds.add_counters(document, measured)
    document.text += speeds.waits(measured)
    document.text += speeds.time(measured)
    design.add_design(document, measured)
    document.text += speeds.equations(measured)
    caches.add_caches(document, measured)
    if notes:
        document.text += "\n## Left out\n\n" + "".join(f"* {note}\n" for note in notes)
    return document


def head(run: Record) -> str:
    sets = "".join(f"* {describe_set(one)}\n" for one in run["sets"])
    hedge = "are sent a second time" if run["hedge"] else "are not sent a second time"
    return f"""# Cloud-native vector search

The measurements of cloud-native-vector-search: `graph` has DiskANN's layout (one page per vector with its
links, codes in memory, W = {BEAM}), `spann` has SPANN's (lists of whole vectors, 0.16 centroids per vector,
8 replicas). Two indexes that the paper lacks are measured as well: `cluster`, groups with all codes in
memory and one round for the best candidates, and `coded`, lists of codes.

**Every speed here is emulated.** Indexes are in an object store in the memory of this process, behind a
lognormal first byte, a limit of requests, and one link for all responses. Recall, rounds, requests and
bytes are exact. A speed comes from a few to some twenty times as many queries as run concurrently; the last
of them run with fewer others. The paper's numbers are for other and larger sets on other machines: only
which index is faster, where and why, can be compared.

{store_words(run)}
{sets}* metric {run["metric"]}, {run["k"]} neighbours per query; late requests {hedge}
* {run["machine"]}

    {run["command"]}
"""


def answers(measured: Measured) -> str:
    """Returns the answers A1 to A3."""
    return ANSWERS + "".join(
        f"| {one.answer} | {one.claim} | {one.here} | {WORDS[one.verdict]} |\n"
        for one in all_claims(measured)
    )
