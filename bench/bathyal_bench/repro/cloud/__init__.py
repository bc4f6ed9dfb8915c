"""The report of ``bathyal-repro cloud``: indexes in an object store behind an emulated network."""

from __future__ import annotations

from bathyal_bench.repro.cells import described
from bathyal_bench.repro.cloud import caches, design, speeds
from bathyal_bench.repro.cloud.claims import all_claims
from bathyal_bench.repro.cloud.lines import store_words
from bathyal_bench.repro.cloud.measured import BEAM, Measured
from bathyal_bench.repro.cloud.verdicts import WORDS
from bathyal_bench.repro.document import Document
from bathyal_bench.repro.records import Record

ANSWERS = """
## The paper's answers

Computed from the measurements below; speeds that differ by less than 5% count as the same.

| | the paper says | here | holds |
|---|---|---|---|
"""


def report(run: Record, rows: list[Record]) -> Document:
    """The report of a run."""

    def of(kind: str) -> list[Record]:
        return [row for row in rows if row["of"] == kind]

    notes = [row["note"] for row in of("note")]
    measured = Measured(run, of("point"), of("size"), of("cached"))
    document = Document(head(run))
    document.text += answers(measured)
    document.text += speeds.beside(measured)
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
    sets = "".join(f"* {described(one)}\n" for one in run["sets"])
    hedge = "are sent a second time" if run["hedge"] else "are not sent a second time"
    return f"""# Cloud-native vector search

What cloud-native-vector-search measures: `graph` is laid out as DiskANN (a page a vector with its links, \
codes in memory,
W = {BEAM}), `spann` as SPANN (lists of whole vectors, 0.16 centroids a vector, 8 replicas). Beside them \
what the paper
lacks: `cluster`, groups with all codes in memory and one round for the best candidates, and `coded`, lists \
of codes.

**Every speed here is emulated.** Indexes lie in an object store in the memory of this process; a lognormal \
first byte, a
limit of requests and one link for all answers are put before it. Recall, rounds, requests and bytes are \
exact. Queries
a second are of a few to some twenty times as many queries as run at once, the last of which run with fewer \
beside them.
The paper's numbers are of other and larger sets on other machines: what can be compared is who is ahead, \
where, and why.

{store_words(run)}
{sets}* metric {run["metric"]}, {run["k"]} neighbours a query; requests that are late {hedge}
* {run["machine"]}

    {run["command"]}
"""


def answers(measured: Measured) -> str:
    """The answers A1 to A3."""
    return ANSWERS + "".join(
        f"| {one.answer} | {one.claim} | {one.here} | {WORDS[one.verdict]} |\n"
        for one in all_claims(measured)
    )
