"""The report of ``bathyal-repro gustann``: counts of a card's and the disks' work, and predictions from
them.
"""

from __future__ import annotations

from bathyal_bench.repro.cells import describe_set, filled, or_dash
from bathyal_bench.repro.document import Document
from bathyal_bench.repro.gustann import beginnings, sensitivity
from bathyal_bench.repro.gustann.published import PUBLISHED
from bathyal_bench.repro.gustann.subjects import LEAST_RECALL, ON_CARD
from bathyal_bench.repro.numbers import shown
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record

COUNTED_COLUMNS = """\
| index | asked | recall | list | groups | pages | rounds | on the card, bytes | code, bytes |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""
COUNTED_LINE = """\
| {index} | {recall_asked} | {recall:.3f} | {search_list} | {groups} | {pages:.1f} | {rounds:.1f} | {slot} | \
{code_bytes} |
"""
PREDICTED_COLUMNS = """\
| index | asked | recall | **predicted** queries/s, SPDK | bound by | $ a query/s, SPDK | **predicted** \
queries/s, system | bound by | $ a query/s, system |
|---|---:|---:|---:|---|---:|---:|---|---:|
"""
PREDICTED_LINE = """\
| {index} | {recall_asked} | {recall:.3f} | {prediction[qps]:.0f} | {prediction[bound]} | \
{prediction[dollars_a_qps]:.4f} | {through_system[qps]:.0f} | {through_system[bound]} | \
{through_system[dollars_a_qps]:.4f} |
"""
SENT_COLUMNS = """\
| index | asked | sent | records | pages | **predicted** queries/s | of records | of pages |
|---|---:|---:|---:|---:|---:|---:|---:|
"""
SENT_LINE = """\
| {index} | {recall_asked} | {sent_bytes:.0f} | {record_bytes:.0f} | {page_bytes:.0f} | \
{prediction[qps]:.0f} | {sending_records[qps]:.0f} | {sending_pages[qps]:.0f} |
"""


def report(run: Record, rows: list[Record]) -> Document:
    """Makes the report of a run."""
    document = Document(head(run))
    for one in run["sets"]:

        def rows_of(kind: str, name: str = one["name"]) -> list[Record]:
            # The records of the oldest runs have searches only, and no field `of`.
            return [row for row in rows if (row["set"], row.get("of", "row")) == (name, kind)]

        searched = rows_of("row")
        document.text += counted(one["name"], searched)
        add_throughput(document, run, one["name"], searched)
        document.text += sent(one["name"], searched)
        beginnings.add(document, run, one, rows_of("begun"))
        sensitivity.add_dimensions(document, run, one["name"], rows_of("copied"))
        add_disks(document, one["name"], searched)
        sensitivity.add_queries(document, one["name"], rows_of("queried"))
        sensitivity.add_loads(document, run, one["name"], rows_of("loaded"))
    document.text += PUBLISHED
    return document


def head(run: Record) -> str:
    sets = "".join(f"* {describe_set(one)}\n" for one in run["sets"])
    machine = run["predicted"]
    system = machine["through_system"]
    tables = system["tables_ns"]
    of_graphs = f"{tables:.0f} ns" if tables > 0.0 else "which was not measured alone and counts as 0"
    return f"""# GustANN

A graph and groups that a graphics card searches: `graph-beam-1` reads one record at a time, as the paper
does; `graph` four, Bathyal's default; `cluster` scans groups on the card and reads once. `graph-page-local`
is searched by the processor only, and shows how few pages a graph needs; searches whose candidate list
exceeds a card's limit also run on the processor.

**Counted**: recall, pages, rounds, bytes and memory are exact. They were counted by searches on the
processor, whose reads and results a card repeats hop for hop. The bytes sent to a card follow from them,
from the layout of the data sent, and from the mean number of links of a vector.

**Predicted**: no time was measured. Queries per second are those of the slowest of disks, link, card's
memory, card and processor of the machine below, all of which work at once and never wait. That is an upper
bound: GustANN reaches 0.84 of it, by what its paper states about its disks.

Two processor costs are compared. *SPDK* is the paper's: {machine["read_ns"]:.0f} ns of a core for a read,
and nothing for a query besides. *System* is Bathyal's: {system["read_ns"]:.0f} ns for a read through the
system, as measured where this was predicted, and for a query {system["groups_ns"]:.0f} ns to find groups and
make tables. A query of a graph makes tables only, {of_graphs}. Tables and plots without a column
*system* assume SPDK.

{sets}* metric {run["metric"]}, top-{run["k"]}
* predicted machine: {machine["ssds"]} disks of {machine["ssd_reads"] / 1e6:.2f} million reads/s,
{machine["link"] / 1e9:.0f} GB/s into the card, {machine["card_memory"] / 1e9:.0f} GB/s and \
{machine["card_operations"] / 1e12:.1f} million million
integer operations per second of the card, {machine["cores"]} cores, ${machine["price"]:.0f} and
${machine["price_ssd"]:.0f} per disk
* counted on {run.get("counted_on", run["machine"])}

    {run.get("counted_by", run["command"])}
{predicted_again(run)}"""


def predicted_again(run: Record) -> str:
    """Returns the command of a later prediction; nothing if the run that counted also predicted."""
    if "counted_by" not in run:
        return ""
    return f"""
Predicted again, from the same counts, by

    {run["command"]}
"""


def counted(name: str, rows: list[Record]) -> str:
    """Returns the section on reads and memory of queries."""
    lines = "".join(
        filled(
            COUNTED_LINE,
            row,
            recall_asked=shown(row["asked"]),
            groups=or_dash(row["probes"]),
            slot=row["slot_bytes"] if row["on_card"] else "-",
        )
        for row in rows
    )
    return f"""
## `{name}`: reads and memory of a query

Exact. *On the card* are the bytes of the card's memory for a query in flight, for which the paper needs
40.22 KB (section 5.3.1), and for the code of a vector.

{COUNTED_COLUMNS}{lines}"""


def add_throughput(document: Document, run: Record, name: str, rows: list[Record]) -> None:
    """Adds the section on figures 7 to 10."""
    title = "predicted throughput over recall (figures 7 to 10), and cost (table 1)"
    document.text += f"\n## `{name}`: {title}\n\n{PREDICTED_COLUMNS}"
    document.text += "".join(
        filled(PREDICTED_LINE, row, recall_asked=shown(row["asked"])) for row in rows if row["on_card"]
    )
    drawn = []
    for index in ON_CARD:
        of_index = [row for row in rows if row["index"] == index]
        for what, predicted in (("SPDK", "prediction"), ("system", "through_system")):
            points = [(row["recall"], row[predicted]["qps"] / 1e6) for row in of_index]
            drawn.append(Curve(f"{index}, {what}", points, "marks" if what == "SPDK" else "thin"))
    axes = Axes(
        f"{name}, top-{run['k']}, predicted, {run['predicted']['ssds']} disks",
        "recall",
        "million queries/s, predicted",
    )
    document.plot(f"figure-7-{name}.svg", axes, drawn)


def sent(name: str, rows: list[Record]) -> str:
    """Returns the section on figure 11: bytes to the card, and predictions for them."""
    lines = "".join(
        filled(SENT_LINE, row, recall_asked=shown(row["asked"])) for row in rows if row["on_card"]
    )
    return f"""
## `{name}`: bytes sent to the card (figure 11)

Bytes per query. *Records* are vectors and links, as the paper sends them (section 4.3), or for groups the
vectors of the candidates; *pages* are what a card that reads the disks itself would receive.

{SENT_COLUMNS}{lines}"""


def add_disks(document: Document, name: str, rows: list[Record]) -> None:
    """Adds the section on figure 15."""
    at = shown(LEAST_RECALL)
    document.text += f"\n## `{name}`: predicted throughput over disks, recall {at} (figure 15)\n\n"
    document.text += "| index | 1 | 2 | 3 | 4 | 5 | 6 |\n|---|---:|---:|---:|---:|---:|---:|\n"
    shown_rows = [row for row in rows if row["asked"] == LEAST_RECALL and row["on_card"]]
    drawn = []
    for row in shown_rows:
        cells = [f"{one['qps']:.0f} ({one['bound']})" for one in row["by_disks"]]
        document.text += f"| {row['index']} | {' | '.join(cells)} |\n"
        points = [(float(disks), one["qps"] / 1e6) for disks, one in enumerate(row["by_disks"], 1)]
        drawn.append(Curve(row["index"], points))
    axes = Axes(f"{name}, recall {at}, predicted", "disks", "million queries/s, predicted")
    document.plot(f"figure-15-{name}.svg", axes, drawn)
