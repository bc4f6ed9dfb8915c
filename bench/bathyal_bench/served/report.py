"""The report on servers."""

from __future__ import annotations

from typing import Any

from bathyal_bench.served import __doc__ as about
from bathyal_bench.tables import markdown, megabytes, number

Records = list[dict[str, Any]]


def report(records: Records) -> str:
    """Returns the report of records as markdown."""
    sections = ["# Servers", "", "`bench/served.py` makes this page from its records.", "", about or ""]
    machine = records[0]["machine"]
    sections.append(
        f"{machine['cpu']}, {machine['cores']} processors, Linux {machine['kernel']}, {machine['time']}. Medians "
        "of three measurements."
    )
    for data in dict.fromkeys(one["data"] for one in records):
        own = [one for one in records if one["data"] == data]
        first = own[0]
        sections += ["", f"## {data}: {first['rows']:,} rows of {first['dim']} x {first['element']}", ""]
        for share in sorted({one["share"] for one in own}, reverse=True):
            matching = [one for one in own if one["share"] == share]
            sections += [f"### {share:.0%} of the rows match", "", table(matching), ""]
        sections += ["### Start and memory", "", start_table([one for one in own if one["share"] == 1.0])]
    return "\n".join(sections) + "\n"


def table(records: Records) -> str:
    """Returns requests a second, with the median and the 99th percentile in milliseconds."""
    connections = [load["connections"] for load in records[0]["loads"]]
    heads = ["queries/s (p50, p99 in ms)", "recall", *(f"{count} connections" for count in connections)]
    rows = []
    for one in records:
        cells = [
            f"{number(load['per_second'])} ({number(load['p50_us'] / 1e3)}, {number(load['p99_us'] / 1e3)})"
            for load in one["loads"]
        ]
        rows.append([one["system"], f"{one['recall']:.3f}", *cells])
    return markdown(heads, rows)


def start_table(records: Records) -> str:
    """Returns the time to the first answer, memory, and the time of filling."""
    heads = ["", "start to first answer, s", "memory after the searches", "filled and settled, s"]
    rows = [
        [
            one["system"],
            number(one["cold_seconds"]),
            megabytes(one["memory_bytes"]),
            number(one["filled_seconds"]),
        ]
        for one in records
    ]
    return markdown(heads, rows)
