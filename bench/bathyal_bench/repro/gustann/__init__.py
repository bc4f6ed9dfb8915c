"""The report of ``bathyal-repro gustann``: what a card and disks would be asked for, and what that predicts."""

from __future__ import annotations

from bathyal_bench.repro.cells import described, filled, or_dash
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
| index | asked | recall | **predicted** queries/s | bound by | $ a query/s |
|---|---:|---:|---:|---|---:|
"""
PREDICTED_LINE = """\
| {index} | {recall_asked} | {recall:.3f} | {prediction[qps]:.0f} | {prediction[bound]} | \
{prediction[dollars_a_qps]:.4f} |
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
    """The report of a run."""
    document = Document(head(run))
    for one in run["sets"]:

        def of(kind: str, name: str = one["name"]) -> list[Record]:
            # The oldest runs kept searches alone, and did not say so.
            return [row for row in rows if (row["set"], row.get("of", "row")) == (name, kind)]

        searched = of("row")
        document.text += counted(one["name"], searched)
        add_throughput(document, run, one["name"], searched)
        document.text += sent(one["name"], searched)
        beginnings.add(document, run, one, of("begun"))
        sensitivity.add_dimensions(document, run, one["name"], of("copied"))
        add_disks(document, one["name"], searched)
        sensitivity.add_queries(document, one["name"], of("queried"))
        sensitivity.add_loads(document, run, one["name"], of("loaded"))
    document.text += PUBLISHED
    return document


def head(run: Record) -> str:
    sets = "".join(f"* {described(one)}\n" for one in run["sets"])
    machine = run["predicted"]
    return f"""# GustANN

A graph and groups that a graphics card searches: `graph-beam-1` walks as the paper does, a record at a \
time; `graph` four at a
time, as Bathyal does where nothing is said; `cluster` scans groups on the card and reads once. \
`graph-page-local` is searched
by the processor alone, and shows how few pages a graph can do with; so is whatever needs longer lists than \
a card keeps.

**Counted**: recall, pages, rounds, bytes and memory are exact. They were counted by searches of the \
processor, whose reads and
answers a card repeats hop for hop; what a card is sent follows from them by the layout of what is sent, and \
by the mean of the
links of a vector.

**Predicted**: no time was measured. Queries a second are those of the slowest of disks, link, card's \
memory, card and processor
of the machine below, all of which work at once and never wait: a bound from above, of which GustANN reaches \
0.84 by what
its paper says of its disks.

{sets}* metric {run["metric"]}, top-{run["k"]}
* predicted machine: {machine["ssds"]} disks of {machine["ssd_reads"] / 1e6:.2f} million reads/s, \
{machine["link"] / 1e9:.0f} GB/s into the card, {machine["card_memory"] / 1e9:.0f} GB/s and \
{machine["card_operations"] / 1e12:.1f} million million
whole-number operations a second of the card, {machine["cores"]} cores, ${machine["price"]:.0f} and \
${machine["price_ssd"]:.0f} a disk
* counted on {run["machine"]}

    {run["command"]}
"""


def counted(name: str, rows: list[Record]) -> str:
    """What queries read and keep."""
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
## `{name}`: what a query reads and keeps

Exact. *On the card* is memory of the card for a query under way, of which the paper takes 40.22 KB (section \
5.3.1), and for the code of a vector.

{COUNTED_COLUMNS}{lines}"""


def add_throughput(document: Document, run: Record, name: str, rows: list[Record]) -> None:
    """Figures 7 to 10."""
    title = "predicted throughput over recall (figures 7 to 10), and cost (table 1)"
    document.text += f"\n## `{name}`: {title}\n\n{PREDICTED_COLUMNS}"
    document.text += "".join(
        filled(PREDICTED_LINE, row, recall_asked=shown(row["asked"])) for row in rows if row["on_card"]
    )
    drawn = []
    for index in ON_CARD:
        of_index = [row for row in rows if row["index"] == index]
        drawn.append(Curve(index, [(row["recall"], row["prediction"]["qps"] / 1e6) for row in of_index]))
    axes = Axes(
        f"{name}, top-{run['k']}, predicted, {run['predicted']['ssds']} disks",
        "recall",
        "million queries/s, predicted",
    )
    document.plot(f"figure-7-{name}.svg", axes, drawn)


def sent(name: str, rows: list[Record]) -> str:
    """Figure 11: what goes to the card, and what that would mean."""
    lines = "".join(
        filled(SENT_LINE, row, recall_asked=shown(row["asked"])) for row in rows if row["on_card"]
    )
    return f"""
## `{name}`: what is sent to the card (figure 11)

Bytes a query. *Records* are vectors and links, as the paper sends them (section 4.3), of groups the vectors \
of the candidates; *pages* are what a card gets that reads disks by itself.

{SENT_COLUMNS}{lines}"""


def add_disks(document: Document, name: str, rows: list[Record]) -> None:
    """Figure 15."""
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
