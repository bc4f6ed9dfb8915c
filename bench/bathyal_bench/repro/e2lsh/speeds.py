"""Requirements, speeds on devices, growth, and sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bathyal_bench.repro.document import Document
from bathyal_bench.repro.e2lsh.measured import Measured, query_ns
from bathyal_bench.repro.numbers import fixed, percent, size
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record

# Share of a query's time in memory for which it waits for the larger part of its memory, as measured in the
# paper (equation 16).
STALLED = 0.1
PAGE_BYTES = 4096


def speed_over_scan(row: Record) -> float:
    """Returns the speed of the family relative to an exact scan in memory."""
    return float(row["qps"] * row["scan_ms"] / 1e3)


def speed_over_mapped(file: Record, pairs: Sequence[tuple[Record, float]]) -> float:
    """Returns the speed of the family relative to the paper's mapped tables, which are the first of the
    pairs.
    """
    return float(file["qps"] / max(pairs[0][0]["qps"], 1e-9))


def emulated(row: Record) -> str | None:
    """Returns the word ``emulated`` for an emulated device."""
    return "emulated" if row["emulated"] else None


def rate(value: float) -> str:
    """Formats a rate per second.

    >>> rate(1.5e6), rate(25_800.0), rate(999.0), rate(math.inf)
    ('1.50 M', '25.8 k', '999', 'unreachable')
    """
    if not math.isfinite(value):
        return "unreachable"
    if value >= 1e6:
        return f"{fixed(value / 1e6, 2)} M"
    return f"{fixed(value / 1e3, 1)} k" if value >= 1e3 else fixed(value)


def per_second(count: float, time_ns: float) -> float:
    """Returns a rate per second; infinite if no time is left."""
    if count <= 0:
        return 0.0
    return count * 1e9 / time_ns if time_ns > 0 else math.inf


def requirements(measured: Measured, document: Document) -> None:
    """Adds figures 2 and 4 to 8: the requirements on a device, from counters and the time in memory."""
    document.add(
        "\n## Requirements (figures 4 to 8, equations 12 to 16)\n\n"
        "Random reads per second that a device needs so that a query takes no longer than with SRS, "
        "or than the same search in\n"
        "memory; and requests per second that a core must issue for the latter.\n\n"
    )
    heads = ["k", "S", "ratio", "reads", "us in memory", "for the speed of SRS", "for the speed of memory"]
    rows = [row_of_requirements(measured, row) for row in measured.accuracy()]
    document.table([*heads, "requests for that"], rows, "r" * 8)
    srs, row = measured.run["srs_us"], measured.at_ratio(measured.k)
    if srs is not None and row is not None:
        times = fixed(srs * 1e3 / query_ns(row), 1)
        document.add(
            f"\nSRS takes {fixed(srs)} us at this ratio; "
            f"the same search in memory is {times} times as fast (figure 2).\n"
        )


def row_of_requirements(measured: Measured, row: Record) -> list[object]:
    srs, time = measured.run["srs_us"], query_ns(row)
    known = srs is not None and row["k"] == measured.k
    return [
        row["k"],
        row["candidates"],
        fixed(row["ratio"], 3),
        fixed(row["reads"], 1),
        fixed(time / 1e3),
        rate(per_second(row["reads"], srs * 1e3)) if known else "-",
        rate(per_second(row["reads"], time)),
        rate(per_second(row["reads"], time * STALLED)),
    ]


def devices(measured: Measured, document: Document) -> None:
    document.add(
        "\n## Devices (figures 11 to 13 and 15)\n\n"
        "The inputs of equation 7 are the time in memory, the reads, and the device's numbers; "
        "its error is relative to the measurement.\n\n"
    )
    heads = ["k", "device", "", "queries/s", "reads/s", "us per query", "of memory's speed", "times SRS"]
    document.table([*heads, "equation 7", "error"], device_rows(measured), "r  rrrrrrr")


def device_rows(measured: Measured) -> Iterator[list[object]]:
    srs = measured.run["srs_us"]
    for k in measured.run["k"]:
        rows = measured.of("devices", k)
        memory = next((row for row in rows if row["variant"] == "memory"), None)
        known = srs is not None and k == measured.k
        for row in rows:
            yield [
                k,
                row["variant"],
                emulated(row),
                fixed(row["qps"]),
                rate(row["qps"] * row["reads"]),
                fixed(row["latency_ns"] / 1e3),
                percent(None if memory is None else row["qps"] / memory["qps"]),
                fixed(srs * row["qps"] / 1e6, 1) if known else "-",
                "-" if row["predicted_ns"] is None else fixed(1e9 / row["predicted_ns"]),
                percent(row["error"]),
            ]


def threads(measured: Measured, document: Document) -> None:
    document.add("\n## Threads (figure 16)\n\n")
    rows = measured.of("threads", measured.k)
    alone = {row["variant"]: row["qps"] for row in reversed(rows) if row["threads"] == 1}
    cells = [
        [
            row["variant"],
            emulated(row),
            row["threads"],
            fixed(row["qps"]),
            fixed(row["qps"] / alone.get(row["variant"], row["qps"]), 2),
        ]
        for row in rows
    ]
    document.table(["device", "", "threads", "queries/s", "times one thread"], cells, "  rrr")


def synchronous(measured: Measured, document: Document) -> None:
    queries = min(measured.run["synchronous_queries"], measured.run["queries"])
    document.add(
        "\n## Synchronous reads (section 6.5)\n\n"
        f"The first {queries} queries. In every round the mapped file begins with an empty page cache, "
        "and at most the pages that it\n"
        "reads in that round are cached; "
        "the paper limits the cache, and misses 93% of the pages.\n\n"
    )
    heads = [
        "",
        "",
        "queries/s",
        "us per query",
        "reads",
        "page faults that waited",
        "in the cache at the end",
    ]
    pairs = measured.synchronous()
    cells = [row_of_synchronous(row, times, queries) for row, times in pairs]
    document.table([*heads, "interleaved is faster by"], cells, "  rrrrrr")
    file = measured.family_at("file", measured.k)
    if file is not None and pairs:
        times = fixed(speed_over_mapped(file, pairs), 1)
        document.add(f"\n`lsh` from the file is {times} times as fast as the paper's tables mapped.\n")


def row_of_synchronous(row: Record, times: float, queries: int) -> list[object]:
    faults = row.get("faults")
    held = None if faults is None else faults * queries * PAGE_BYTES / row["index_bytes"]
    return [
        row["variant"],
        emulated(row),
        fixed(row["qps"]),
        fixed(row["latency_ns"] / 1e3),
        fixed(row["reads"], 1),
        "-" if faults is None else fixed(faults, 1),
        percent(held),
        fixed(times, 1),
    ]


def figure_14(measured: Measured, document: Document) -> None:
    k = measured.k
    document.add(
        "\n## Time over n (figure 14)\n\n"
        f"Microseconds per query of top-{k} at the ratio, one thread; "
        "exponents with 95% confidence are in the summary.\n\n"
    )
    heads = [
        "n",
        "`lsh`, file",
        "ratio",
        "reads",
        "`lsh`, memory",
        "the paper's tables, memory",
        "ratio",
        "reads",
    ]
    grown = list(sizes_of(measured))
    document.table([*heads, "exact scan"], [row_14(*one) for one in grown], "r" * 9)
    names = ["lsh, file", "lsh, memory", "the paper's tables, memory", "exact scan"]
    points = [(math.log10(one[0]["vectors"]), [math.log10(us) for us in times(*one)]) for one in grown]
    curves = [Curve(name, [(x, us[at]) for x, us in points]) for at, name in enumerate(names)]
    axes = Axes("Time of a query over n", "log10 of n", "log10 of microseconds")
    document.plot("figure-14.svg", axes, curves)


def sizes_of(measured: Measured) -> Iterator[tuple[Record, Record, Record | None]]:
    """Yields for each number of vectors the family from its file and in memory, and the paper's tables if
    they reached the ratio.
    """
    grown = {row["vectors"]: row for row in reversed(measured.of("growth", measured.k))}
    file, memory = (measured.family_on(device, measured.k) for device in ("file", "memory"))
    for one, other in zip(file, memory, strict=False):
        yield one, other, grown.get(one["vectors"])


def times(file: Record, memory: Record, paper: Record | None) -> list[float]:
    """Returns the microseconds per query."""
    of_paper = math.nan if paper is None else query_ns(paper) / 1e3
    return [1e6 / file["qps"], 1e6 / memory["qps"], of_paper, file["scan_ms"] * 1e3]


def row_14(file: Record, memory: Record, paper: Record | None) -> list[object]:
    us = times(file, memory, paper)
    return [
        file["vectors"],
        fixed(us[0]),
        fixed(file["ratio"], 3),
        fixed(file["reads"], 1),
        fixed(us[1]),
        "-" if paper is None else fixed(us[2]),
        "-" if paper is None else fixed(paper["ratio"], 3),
        "-" if paper is None else fixed(paper["reads"], 1),
        fixed(us[3]),
    ]


def family_table(measured: Measured, document: Document) -> None:
    document.add("\n## The family `lsh` at the ratio\n\n")
    heads = [
        "k",
        "from",
        "ratio",
        "p99",
        "recall",
        "blocks per table",
        "candidates",
        "reads",
        "queries/s",
    ]
    all_vectors = measured.run["vectors"]
    rows = [row_of_family(row) for row in measured.family if row["vectors"] == all_vectors]
    document.table([*heads, "us per query", "times an exact scan"], rows, "r rrrrrrrrr")


def row_of_family(row: Record) -> list[object]:
    return [
        row["k"],
        row["device"],
        *(fixed(row[name], 3) for name in ("ratio", "ratio_p99", "recall")),
        row["probes"],
        row["search_list"],
        fixed(row["reads"], 1),
        fixed(row["qps"]),
        fixed(row["latency_ns"] / 1e3),
        fixed(speed_over_scan(row), 1),
    ]


def sizes(measured: Measured, document: Document) -> None:
    """Adds table 6."""
    data, chosen = measured.run["data_bytes"], measured.chosen
    held = chosen["hash_bytes"]
    rows = [
        ["vectors", size(data), "", ""],
        ["the paper's tables", size(chosen["index_bytes"]), size(data + held), size(held)],
    ]
    family = measured.family_at("file", measured.k)
    if family is not None:
        memory = size(family["memory_bytes"])
        rows.append(["`lsh`, including vectors", size(family["index_bytes"]), memory, memory])
    document.add("\n## Sizes (table 6)\n\n")
    document.table(["", "on the device", "in memory", "of that besides the vectors"], rows, " rrr")
    if chosen["build_seconds"] is not None:
        document.add(f"\nThe paper's tables were built in {fixed(chosen['build_seconds'])} s.\n")
