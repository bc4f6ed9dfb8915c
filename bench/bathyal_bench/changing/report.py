"""The report on changing rows: tables, and plots of throughput under filters."""

from __future__ import annotations

import math
import statistics
from html import escape
from typing import Any

from bathyal_bench.changing.measure import REPLACED, SHARES, SMALL, SMALL_ROWS, SMALL_SECONDS
from bathyal_bench.changing.systems import SYSTEMS, WANTED
from bathyal_bench.drawing import Axis, Curve, Mark, over
from bathyal_bench.page import STYLE
from bathyal_bench.tables import markdown, megabytes, number

Records = list[dict[str, Any]]
# Least recall of a search that is compared.
LEAST = WANTED - 0.01
SELECTIVITY = Axis(
    "share of the rows that match",
    (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    math.log10,
    1e-4,
    1.0,
    "1",
)


class Medians:
    """Medians over the repeats, by data and system."""

    def __init__(self, records: Records) -> None:
        """Groups records of :func:`bathyal_bench.changing.measure.measure`."""
        self.runs: dict[tuple[str, str], Records] = {}
        for one in records:
            self.runs.setdefault((one["data"], one["system"]), []).append(one)

    def repeats(self, data: str, system: str) -> int:
        """Returns the number of runs: of writing, or of the rest."""
        return max(len(self.all(data, system, key)) for key in ("rows_a_second_1", "recall"))

    def data(self) -> list[str]:
        """Returns the names of the data sets."""
        return list(dict.fromkeys(data for data, _ in self.runs))

    def systems(self, data: str) -> list[str]:
        """Returns the systems measured on a data set."""
        return [system for of, system in self.runs if of == data]

    def all(self, data: str, system: str, key: str) -> list[float]:
        """Returns a figure of all repeats that have it."""
        return [one[key] for one in self.runs[data, system] if one.get(key) is not None]

    def of(self, data: str, system: str, key: str) -> float | None:
        """Returns the median of a figure; ``None`` if it was not measured."""
        values = self.all(data, system, key)
        return statistics.median(values) if values else None


def found(qps: float | None, recall: float | None) -> str:
    """Formats queries per second and recall; in brackets if the recall is too low to compare."""
    if qps is None or recall is None:
        return "–"
    text = f"{number(qps)} ({recall:.3f})"
    return text if recall >= LEAST else f"[{text}]"


def tables(medians: Medians, data: str) -> str:
    """Returns all tables of a data set as markdown."""
    systems = medians.systems(data)

    def table(columns: dict[str, Any]) -> str:
        rows = [[system, *(cell(system) for cell in columns.values())] for system in systems]
        return markdown(["", *columns], rows)

    def plain(key: str) -> Any:
        return lambda system: number(medians.of(data, system, key))

    def size(key: str) -> Any:
        return lambda system: megabytes(medians.of(data, system, key))

    def searched(qps: str, recall: str) -> Any:
        return lambda system: found(medians.of(data, system, qps), medians.of(data, system, recall))

    def synced(threads: int) -> Any:
        """Rates of durable writes: of systems that sync themselves, or with a sync of the disk after each
        call.
        """

        def cell(system: str) -> str:
            syncs = any(kind.name == system and kind.syncs for kind in SYSTEMS)
            key = "rows_a_second" if syncs else "rows_a_second_synced"
            return number(medians.of(data, system, f"{key}_{threads}"))

        return cell

    written = {
        "durable rows/s, one thread": synced(1),
        "durable, two threads": synced(2),
        "as it is, one thread": plain("rows_a_second_1"),
        "as it is, two threads": plain("rows_a_second_2"),
        "until found, ms": plain("searchable_ms"),
        "queries/s as written": searched("qps_written", "recall_written"),
        "settling, s": plain("settle_seconds"),
        "on the disk": size("bytes"),
        "in memory": size("open_bytes"),
        "opening, s": plain("open_seconds"),
        "opening after a kill, s": plain("recovery_seconds"),
    }
    filtered = {f"{100 * share:g}%": searched(f"qps_{share}", f"recall_{share}") for share in SHARES}
    changed: dict[str, Any] = {"none replaced": searched("qps_1.0", "recall_1.0")}
    for share in REPLACED:
        percent = f"{100 * share:g}%"
        changed[f"{percent} replaced"] = searched(f"qps_pending_{share}", f"recall_pending_{share}")
        changed[f"{percent}, settled"] = searched(f"qps_settled_{share}", f"recall_settled_{share}")
        changed["replaced rows/s" if share == REPLACED[0] else "then rows/s"] = plain(
            f"upserts_a_second_{share}"
        )
        changed["settling, s" if share == REPLACED[0] else "then settling, s"] = plain(
            f"settle_seconds_{share}"
        )
    changed["on the disk at the end"] = size("bytes_changed")
    waits = {
        f"{part} {name}, ms": plain(f"{part}_ms_{key}")
        for part in ("p50", "p99")
        for key, name in (("alone", "alone"), ("settling", "while settling"))
    }
    small = {
        "tables": plain("small"),
        "made and filled, s": plain("small_create_seconds"),
        "opened, s": plain("small_open_seconds"),
        "all searched once, s": plain("small_search_seconds"),
        "in memory, opened": size("small_open_bytes"),
        "searched": size("small_searched_bytes"),
    }
    return "\n\n".join(
        [
            "### Written\n\n" + table(written),
            "### Searched under a filter\n\nQueries a second (recall among the rows that match), by the share of"
            f" the rows that match.\n\n{table(filtered)}",
            f"### Rows replaced\n\nQueries a second (recall).\n\n{table(changed)}",
            f"### Single queries while a quarter of the rows is replaced and settled\n\n{table(waits)}",
            f"### {SMALL:,} tables of {SMALL_ROWS} rows in one process, or as many as were made in"
            f" {SMALL_SECONDS:g} s\n\n{table(small)}",
        ]
    )


def heading(records: Records, data: str) -> str:
    """Returns the heading of a data set."""
    one = next(one for one in records if one["data"] == data)
    return f"{data}: {one['rows']:,} rows of {one['dim']} x {one['element']}"


def report(records: Records) -> str:
    """Returns the report as Markdown."""
    medians = Medians(records)
    repeats = [medians.repeats(*cell) for cell in medians.runs]
    least, most = min(repeats), max(repeats)
    times = str(least) if least == most else f"{least} to {most}"
    runs = "One run" if most == 1 else f"Medians of {times} runs, in turns"
    parts = [
        "# Rows that come, change and go",
        f"`bench/changing.py` makes this page from its records. {runs}; two threads unless stated otherwise. "
        f"Efforts are the least with recall {WANTED} among all rows; square brackets mark searches that found "
        "too little to be compared. *Settling* is compaction, or building and updating the index if that is a "
        "separate step. *In memory* is the growth of a process when it opens the rows and answers 1,000 queries. "
        "*Durable* rows are on the device when a call of 1,000 rows returns: Bathyal and Chroma sync themselves; "
        "LanceDB leaves it to the system, so the disk was synced (sync) after each call. *As it is* is without "
        "that sync. Missing figures were not measured; the rates of writing may be from other runs than the rest "
        "(`--writing`).",
    ]
    parts += [
        "Recall is not equal: efforts are steps, and the first sufficient step of one system may find more than"
        " that of another; the recall is in brackets. All queries are in one call, except LanceDB's, which are one"
        " call each, by two threads. Memory is not equal either: each system takes what it needs.",
    ]
    for data in medians.data():
        parts += [f"## {heading(records, data)}", tables(medians, data)]
    return "\n\n".join(parts) + "\n"


def page(records: Records) -> str:
    """Returns plots of throughput over selectivity as one HTML file."""
    medians, parts = Medians(records), []
    styles: dict[str, int] = {}
    for data in medians.data():
        curves = []
        for system in medians.systems(data):
            style = styles.setdefault(system, len(styles))
            marks = []
            for share in SHARES:
                qps, recall = (medians.of(data, system, f"{key}_{share}") for key in ("qps", "recall"))
                if qps is None or recall is None or recall < LEAST:
                    continue
                all_of_them = medians.all(data, system, f"qps_{share}")
                tip = f"{system}: {number(qps)} queries/s at {100 * share:g}%, recall {recall:.3f}"
                marks.append(Mark(share, qps, tip, min(all_of_them), max(all_of_them)))
            curves.append(Curve(system, style, marks, strong=system == "Bathyal"))
        parts.append(over(SELECTIVITY, heading(records, data), "queries/s", curves))
    plots = "".join(f"<figure>{one}</figure>" for one in parts)
    about = f"Points with recall {LEAST:g} or more among the rows that match; {WANTED} was requested."
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Searching under a filter</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>Searching under a filter</h1><p>{escape(about)}</p>"
        f'<div class="plots">{plots}</div></body></html>\n'
    )
