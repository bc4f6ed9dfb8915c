"""The report on E2LSH on storage."""

from __future__ import annotations

from bathyal_bench.repro.document import Document
from bathyal_bench.repro.e2lsh import accuracy, speeds
from bathyal_bench.repro.e2lsh.measured import Measured
from bathyal_bench.repro.numbers import fixed, percent, shown
from bathyal_bench.repro.records import Record


def report(run: Record, rows: list[Record]) -> Document:
    """Makes the report of a run."""
    chosen = next((row for row in rows if row.get("of") == "chosen"), None)
    if chosen is None:
        raise ValueError(f"{run.where}: the run chose no hash tables: it ended too early")
    by_index = {name: [row for row in rows if row.get("index") == name] for name in ("paper", "family")}
    measured = Measured(run, chosen, by_index["paper"], by_index["family"])
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
    """Returns the head: data, conditions and the command."""
    return (
        "# E2LSH on storage\n\n"
        'The measurements of e2lsh-on-storage, and the family `lsh` for comparison. "The paper\'s tables" are\n'
        "hash tables and chains of 512-byte blocks, laid out as in its section 5, with vectors in memory. "
        "**cSSD, eSSD and\n"
        "XLFDD are emulated** in real time on top of DRAM (docs/emulated-devices.md); "
        '"file" is this machine\'s disk.\n\n'
        f"* `{run['data']}`: {run['vectors']} vectors of {run['dim']} {run['element']} (l2), "
        f"{run['queries']} queries of `{run['query_file']}`, overall ratio {shown(run['ratio'])}\n"
        f"* one thread unless stated otherwise, {run['in_flight']} queries in flight, "
        f"medians of {run['repeats']} rounds that measure all cells in turn\n"
        f"* {run['machine']}\n\n    {run['command']}\n\n## Summary\n\n"
    )


def summary(measured: Measured) -> str:
    """Returns the main results in a few lines."""
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
        mapped = fixed(speeds.speed_over_mapped(file, pairs), 1)
        lines.append(f"`lsh` from the file: {mapped} times as fast as the paper's tables mapped")
    family, paper, scan = ("-" if one is None else str(one) for one in measured.growths())
    lines.append(
        f"time grows as n to the power of {family} (`lsh` from a file), {paper} (the paper's tables in memory), "
        f"{scan} (exact scan)"
    )
    promise, found = accuracy.promised(measured), accuracy.found(measured)
    lines.append(
        f"the paper's tables promise success at a radius with probability {percent(promise.probability)}; "
        f"a vector within 4 times the nearest distance was found for {percent(found)}"
    )
    return "".join(f"* {line}\n" for line in lines)


def reached(measured: Measured, k: int) -> list[str]:
    """Returns the results of the paper's tables and of the family, for a k."""
    lines = []
    row = measured.at_ratio(k)
    if row is not None:
        ratio, reads = fixed(row["ratio"], 3), fixed(row["reads"], 1)
        lines.append(f"the paper's tables, top-{k}: ratio {ratio} in {reads} reads, vectors in memory")
    row = measured.family_at("file", k)
    if row is not None:
        target, ratio = shown(measured.run["ratio"]), fixed(row["ratio"], 3)
        reads, of_tables = fixed(row["reads"], 1), fixed(row["table_reads"], 1)
        lines.append(
            f"`lsh` from a file, requested ratio {target}, top-{k}: ratio {ratio} in {reads} reads, "
            f"{of_tables} of them of tables, {fixed(row['qps'])} queries/s, "
            f"{fixed(speeds.speed_over_scan(row), 1)} times as fast as an exact scan in memory"
        )
    return lines
