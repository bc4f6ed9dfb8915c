"""The report of a run in an object store, as markdown: figures at equal recall, relative to Bathyal's
default.
"""

from __future__ import annotations

import statistics
from typing import Any

from bathyal_bench.points import (
    Goal,
    GoalFigures,
    Section,
    Sweep,
    at_goal,
    gaps,
    latest_builds,
    lookup,
    sections,
)
from bathyal_bench.tables import best_of, markdown, number

Row = list[str]
Records = list[dict[str, Any]]
# Columns of the tables at equal recall: the figure, its heading, and its divisor.
WARM = [
    ("qps", "queries/s", 1.0),
    ("p50_us", "p50 ms", 1e3),
    ("p99_us", "p99 ms", 1e3),
    ("reads", "requests", 1.0),
    ("bytes", "KB", 1e3),
    ("dram_bytes", "RSS MB", 1e6),
]
# Groups of systems in the summary, by a part of their names; the fastest of each group stands for it.
GROUPS = ("LanceDB", "-shaped")
SUMMARY_HEADS = ["in flight", "recall", "system", *(name.split()[0] for _, name, _ in WARM)]
SUMMARY_TEXT = (
    "The fastest of LanceDB's indexes, and the faster of the shapes of the paper's two systems. Figures are "
    "multiples of those of Bathyal's default."
)
# Columns of the table of first answers: the field of the record, its heading, and its divisor.
COLD = [
    ("seconds", "first answer ms", 1e-3),
    ("open_seconds", "to open ms", 1e-3),
    ("query_seconds", "the query ms", 1e-3),
    ("reads", "requests", 1.0),
    ("bytes", "MB", 1e6),
    ("dram_bytes", "RSS MB", 1e6),
]


def report(records: Records) -> str:
    """Returns all tables of a run."""
    run = next(one for one in records if one["kind"] == "run")
    plan = run["suite"]
    reference, goals = plan["reference"], [Goal("recall", target) for target in plan["targets"]]
    found = sections(records)
    parts = about_run(run)
    summary = summary_rows(found, goals, reference)
    if summary:
        parts += ["## In short", SUMMARY_TEXT, markdown(SUMMARY_HEADS, summary)]
    heads = ["system", *(name for _, name, _ in WARM), "effort"]
    for section in found:
        for goal in goals:
            parts.append(f"## {section.threads} in flight, {goal}")
            parts.append(markdown(heads, warm_rows(section, goal, reference)))
    cold = cold_rows(records, reference)
    if cold:
        parts.append("## The first answer of a process")
        parts.append(f"Medians of {plan['cold_processes']} processes, each with a different query.")
        parts.append(markdown(["system", *(name for _, name, _ in COLD), "effort"], cold))
    parts += about_builds(records, run["data"])
    missing = [f"* {one['system']}: {one['kind']}: {one['reason']}" for one in gaps(records)]
    if missing:
        parts += ["## Not measured", "\n".join(missing)]
    return "\n\n".join(parts) + "\n"


def about_run(run: dict[str, Any]) -> list[str]:
    """Returns the head of a report: data, machine, store, and how to read the figures."""
    plan, machine = run["suite"], run["machine"]
    return [
        f"# {run['data']} in an object store, emulated: `{plan['emulated']}`",
        f"{run['count']:,} vectors of {run['dim']} components ({run['element']}, {run['metric']}), "
        f"k = {plan['k']}, medians of {plan['repeats']}. {machine['cpu']}, {machine['cores']} cores, shared "
        f"with server and relay; load {machine['load']:.1f} at the start; commit {machine['commit']}, "
        f"{machine['time']}.",
        f"In brackets: the multiple of the figure of {plan['reference']}. Requests and bytes are per query, as "
        "counted by the relay. Warm: Bathyal has in memory what its families keep there, LanceDB its whole index. "
        "Neither caches the vectors that it reads. LanceDB stores them as float32.",
    ]


def summary_rows(found: list[Section], goals: list[Goal], reference: str) -> list[Row]:
    """Rows for the fastest of LanceDB and the fastest of the two papers' shapes, relative to the
    reference.
    """
    rows = []
    for section in found:
        for goal in goals:
            reached = {sweep.system: at_goal(sweep, goal) for sweep in section.sweeps}
            baseline = reached.get(reference)
            for group in GROUPS:
                rivals = {name: one for name, one in reached.items() if group in name and one is not None}
                if baseline is None or not rivals:
                    continue
                name, best = max(rivals.items(), key=lambda pair: pair[1].figures["qps"] or 0.0)
                times = [quotient(best.figures[figure], baseline.figures[figure]) for figure, _, _ in WARM]
                rows.append([str(section.threads), f"{goal.value:g}", name, *times])
    return rows


def quotient(own: float | None, other: float | None) -> str:
    """Formats a figure as a multiple of ``other``.

    >>> quotient(3.0, 2.0), quotient(None, 1.0), quotient(1.0, 0.0)
    ('1.50', '–', '–')
    """
    return number(own / other) if own is not None and other else "–"


def warm_rows(section: Section, goal: Goal, reference: str) -> list[Row]:
    """Returns a row for each system at one recall."""
    reached = {sweep.system: at_goal(sweep, goal) for sweep in section.sweeps}
    baseline = reached.get(reference)
    return [warm_row(sweep, goal, reached[sweep.system], baseline) for sweep in section.sweeps]


def warm_row(sweep: Sweep, goal: Goal, one: GoalFigures | None, baseline: GoalFigures | None) -> Row:
    """Returns the figures of one system, each with its multiple of the reference's."""
    if one is None:
        return [sweep.system, "not reached", *[""] * (len(WARM) - 1), best_of(sweep, goal)]
    cells = []
    for figure, _, unit in WARM:
        other = baseline.figures[figure] if baseline is not None else None
        cells.append(with_ratio(one.figures[figure], other, unit))
    more = f" (recall {one.figures['recall']:.3f})" if one.above else ""
    return [sweep.system, *cells, one.label + more]


def with_ratio(own: float | None, other: float | None, unit: float) -> str:
    """Formats a figure and its multiple of ``other``.

    >>> with_ratio(3000.0, 1500.0, 1000.0), with_ratio(3.0, None, 1.0), with_ratio(0.0, 0.0, 1.0)
    ('3.00 (2.00)', '3.00', '0')
    """
    if own is None:
        return "–"
    return number(own / unit) + (f" ({number(own / other)})" if other else "")


def cold_rows(records: Records, reference: str) -> list[Row]:
    """Returns a row for each system, with medians over its processes."""
    processes: dict[str, Records] = {}
    for record in records:
        if record["kind"] == "cold":
            processes.setdefault(record["system"], []).append(record)
    medians = {
        system: {
            figure: statistics.median(lookup(one, (figure,)) or 0.0 for one in some) for figure, _, _ in COLD
        }
        for system, some in processes.items()
    }
    baseline = medians.get(reference, {})
    rows = []
    for system, figures in medians.items():
        cells = [with_ratio(figures[figure], baseline.get(figure), unit) for figure, _, unit in COLD]
        effort = ", ".join(f"{name} {value}" for name, value in processes[system][0]["effort"].items())
        rows.append([system, *cells, effort])
    return rows


def about_builds(records: Records, data: str) -> list[str]:
    """Returns how each index was built, and the time and bytes of warming, which measurements leave out."""
    warming = {one["system"]: one for one in records if one["kind"] == "search"}
    rows = []
    for system, build in latest_builds(records, data).items():
        options = ", ".join(f"{name} {value}" for name, value in build["options"].items())
        one = warming.get(system)
        seconds = one["warming_seconds"] if one else None
        read = one["warming_counts"]["read_bytes"] / 1e6 if one else None
        rows.append([system, options, build["version"], number(seconds), number(read)])
    heads = ["system", "built with", "version", "warmed in s", "warming read MB"]
    return ["## How they were built and warmed", markdown(heads, rows)] if rows else []
