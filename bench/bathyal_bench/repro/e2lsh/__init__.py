"""E2LSH on storage."""

from __future__ import annotations

from bathyal_bench.repro.document import Document
from bathyal_bench.repro.e2lsh import accuracy, speeds
from bathyal_bench.repro.e2lsh.measured import Measured
from bathyal_bench.repro.numbers import fixed, percent, shown
from bathyal_bench.repro.records import Record


def report(run: Record, rows: list[Record]) -> Document:
    """All of it."""
    chosen = next((row for row in rows if row.get("of") == "chosen"), None)
    if chosen is None:
        raise ValueError(f"{run.where}: the run chose no hash tables: it ended before that")
    of = {name: [row for row in rows if row.get("index") == name] for name in ("paper", "family")}
    measured = Measured(run, chosen, of["paper"], of["family"])
    document = Document(head(run))
    document.add(summary(measured))
    accuracy.parameters(measured, document)
    accuracy.reads(measured, document)
    accuracy.figure_3(measured, document)
    speeds.requirements(measured, document)
    accuracy.fingerprints(measured, document)
    accuracy.ideas(measured, document)
    speeds.devices(measured, document)
    speeds.threads(measured, document)
    speeds.synchronous(measured, document)
    speeds.figure_14(measured, document)
    speeds.family_table(measured, document)
    speeds.sizes(measured, document)
    return document


def head(run: Record) -> str:
    """What was measured of what, on what, how, and with which command."""
    return (
        "# E2LSH on storage\n\n"
        'What e2lsh-on-storage measures, and the family `lsh` beside. "The paper\'s tables" '
        "are hash tables and chains of\n"
        "512-byte blocks as its section 5 lays them out, vectors in memory. "
        "**cSSD, eSSD and XLFDD are emulated** in real\n"
        'time on top of DRAM (docs/emulated-devices.md); "file" is this machine\'s disk.\n\n'
        f"* `{run['data']}`: {run['vectors']} vectors of {run['dim']} {run['element']} (l2), "
        f"{run['queries']} queries of `{run['query_file']}`, overall ratio {shown(run['ratio'])}\n"
        f"* one thread where nothing else is said, {run['in_flight']} queries in flight, "
        f"medians of {run['repeats']} rounds in which all cells take turns\n"
        f"* {run['machine']}\n\n    {run['command']}\n\n## Summary\n\n"
    )


def summary(measured: Measured) -> str:
    """What was reached, in a few lines."""
    lines = [line for k in measured.run["k"] for line in reached(measured, k)]
    pairs = measured.synchronous()
    for row, times in pairs:
        if row["in_flight"] == 1:
            on = "emulated " if row["emulated"] else ""
            lines.append(
                f"the paper's tables, interleaved asynchronous reads: {fixed(times, 1)} times {on}{row['variant']}"
            )
    file = measured.family_at("file", measured.k)
    if file is not None and pairs:
        mapped = fixed(speeds.beside_mapped(file, pairs), 1)
        lines.append(f"`lsh` from the file: {mapped} times the paper's tables mapped")
    family, paper, scan = ("-" if one is None else str(one) for one in measured.growths())
    lines.append(
        f"time grows as n to the power of {family} (`lsh` from a file), {paper} (the paper's tables in memory), "
        f"{scan} (exact scan)"
    )
    promise, found = accuracy.promised(measured), accuracy.found(measured)
    lines.append(
        f"promised of each radius by the paper's tables: {percent(promise.probability)}; "
        f"something within 4 times the nearest was found for {percent(found)}"
    )
    return "".join(f"* {line}\n" for line in lines)


def reached(measured: Measured, k: int) -> list[str]:
    """What the paper's tables and the family come to, for a k."""
    lines = []
    row = measured.at_ratio(k)
    if row is not None:
        ratio, reads = fixed(row["ratio"], 3), fixed(row["reads"], 1)
        lines.append(f"the paper's tables, top-{k}: ratio {ratio} in {reads} reads, vectors in memory")
    row = measured.family_at("file", k)
    if row is not None:
        asked, ratio = shown(measured.run["ratio"]), fixed(row["ratio"], 3)
        reads, of_tables = fixed(row["reads"], 1), fixed(row["table_reads"], 1)
        lines.append(
            f"`lsh` from a file, asked for {asked}, top-{k}: ratio {ratio} in {reads} reads of which {of_tables} "
            f"of tables, {fixed(row['qps'])} queries/s, {fixed(speeds.beside_scan(row), 1)} times an exact scan "
            "in memory"
        )
    return lines
