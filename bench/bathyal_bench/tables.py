"""The report as markdown tables."""

from __future__ import annotations

import math
from typing import Any

from bathyal_bench.points import (
    MOST_LEFT_OUT,
    Goal,
    GoalFigures,
    Section,
    Sweep,
    at_goal,
    data_names,
    gaps,
    held_bytes,
    latest_builds,
    memory_flag,
    nearest_reference,
    reference_names,
    sections,
)
from bathyal_bench.suite import TARGETS

Row = list[str]
# Ratios are near 1, so they need more digits.
RATIO_DIGITS = 5
# A system is noted if it requests this many times the reads that reach the device: its memory answers the
# others.
ASKED_MORE = 2.0


def number(value: float | None, digits: int = 3) -> str:
    """Formats three significant digits without an exponent; a dash for unknown values.

    >>> number(12345.6), number(0.01234), number(None), number(0)
    ('12,346', '0.0123', '–', '0')
    """
    if value is None or math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def megabytes(value: float | None) -> str:
    """Formats bytes in megabytes."""
    return "–" if value is None else f"{number(value / 1e6)} MB"


def markdown(heads: Row, rows: list[Row]) -> str:
    """Returns a table; all columns but the first are right-aligned."""
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def goals_of(records: list[dict[str, Any]]) -> list[Goal]:
    """Returns the recalls, then the ratios, at which the suite compares."""
    run = next((one for one in records if one.get("kind") == "run"), None)
    recalls = run["suite"]["targets"] if run else TARGETS
    ratios = run["suite"].get("ratio_targets", ()) if run else ()
    return [Goal("recall", one) for one in recalls] + [Goal("ratio", one) for one in ratios]


def budgets_of(records: list[dict[str, Any]]) -> list[int]:
    """Returns the memory budgets of the suite."""
    run = next((one for one in records if one.get("kind") == "run"), None)
    return list(run["suite"].get("memory_budgets", ())) if run else []


EQUAL_RECALL_HEADS = [
    "system",
    "queries/s",
    "times reference",
    "p50 µs",
    "p99 µs",
    "reads",
    "KB read",
    "DRAM",
    "page cache",
    "effort",
    "notes",
]


def equal_heads(goal: Goal) -> Row:
    """Returns the columns of :func:`equal_rows`; at equal ratio they include the recall."""
    more = ["recall"] if goal.figure == "ratio" else []
    return EQUAL_RECALL_HEADS[:3] + more + EQUAL_RECALL_HEADS[3:]


def goal_title(goal: Goal) -> str:
    """Formats a goal: ``At recall 0.95``, ``At an overall ratio of 1.05``."""
    return f"At an overall ratio of {goal.value:g}" if goal.figure == "ratio" else f"At {goal}"


def equal_rows(section: Section, goal: Goal, references: tuple[str, ...]) -> list[Row]:
    """Returns a row for each system at one recall or ratio, fastest first; systems that do not reach it come
    last.
    """
    found = {sweep.system: at_goal(sweep, goal) for sweep in section.sweeps}
    reached = {name: one for name in references if (one := found[name]) is not None}
    rows: list[tuple[float, Row]] = []
    for sweep in section.sweeps:
        one = found[sweep.system]
        if one is None:
            blanks = [""] * (len(equal_heads(goal)) - 3)
            rows.append((0.0, [sweep.system, "not reached", *blanks, best_of(sweep, goal)]))
        else:
            row = equal_row(sweep, goal, one, reached)
            rows.append((one.figures["qps"] or 0.0, row))
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def best_of(sweep: Sweep, goal: Goal) -> str:
    """Describes how close a system comes to a goal that it does not reach."""
    if not sweep.curves[goal.figure]:
        return f"no {goal.figure} reported"
    best = sweep.curves[goal.figure][-1].figures[goal.figure]
    return (
        f"lowest ratio {number(best, RATIO_DIGITS)}"
        if goal.figure == "ratio"
        else f"highest recall {best:.3f}"
    )


def equal_row(sweep: Sweep, goal: Goal, one: GoalFigures, references: dict[str, GoalFigures]) -> Row:
    """Returns the figures of one system, and remarks that a reader needs to compare them."""
    figures = one.figures
    is_reference = sweep.system in references
    name = sweep.system if is_reference else nearest_reference(one, references)
    baseline = references[name] if name is not None else None
    ratio = None
    if baseline is not None and baseline.figures["qps"]:
        ratio = (figures["qps"] or 0.0) / baseline.figures["qps"]
    read = figures["bytes"]
    reference_note = [f"compared with {name}"] if len(references) > 1 and not is_reference else []
    return [
        sweep.system,
        number(figures["qps"]),
        number(ratio),
        *([number(figures["recall"])] if goal.figure == "ratio" else []),
        number(figures["p50_us"]),
        number(figures["p99_us"]),
        number(figures["reads"]),
        number(None if read is None else read / 1e3),
        megabytes(figures["dram_bytes"]),
        megabytes(figures["cached_bytes"] or None),
        one.label,
        "; ".join(reference_note + remarks(sweep, goal, one, baseline, is_reference)),
    ]


def remarks(
    sweep: Sweep, goal: Goal, one: GoalFigures, baseline: GoalFigures | None, is_reference: bool
) -> list[str]:
    """Returns remarks on what makes a row unequal to the reference's."""
    found = ["reference"] if is_reference else []
    if sweep.note:
        found.append(sweep.note)
    if one.above:
        digits = RATIO_DIGITS if goal.figure == "ratio" else 3
        found.append(f"{goal.figure} is {number(one.figures[goal.figure], digits)}")
    if goal.figure == "ratio" and sweep.ratio_source is not None:
        found.append(f"the ratio is the {sweep.ratio_source}'s own figure")
    if baseline is not None and not is_reference:
        flag = memory_flag(held_bytes(one.figures), held_bytes(baseline.figures))
        found += [f"**{flag}**"] if flag else []
    asked, reads = one.figures["asked"], one.figures["reads"]
    if asked is not None and reads is not None and asked > ASKED_MORE * reads:
        found.append(f"requests {number(asked)} reads, most or all of which its memory answers")
    if sweep.reads_source == "kernel" and one.figures["reads"]:
        found.append("reads are pages counted by the kernel")
    if sweep.dram_source and sweep.dram_source != "system":
        found.append(f"DRAM is the {sweep.dram_source}")
    return found


def sweep_rows(section: Section) -> list[Row]:
    """Returns every measured point."""
    rows = []
    for sweep in section.sweeps:
        for point in sweep.points:
            figures = point.figures
            spread = " to ".join(map(number, point.spreads["qps"]))
            recall = figures["recall"]
            row = [sweep.system, point.label, "–" if recall is None else f"{recall:.4f}"]
            left_out = f" ({point.left_out:.0%} left out)" if point.left_out > MOST_LEFT_OUT else ""
            row += [f"{number(figures['ratio'], RATIO_DIGITS)}{left_out}"]
            row += [number(figures["ratio_p99"], RATIO_DIGITS)]
            row += [number(point.qps), spread]
            row += [number(figures[name]) for name in ("mean_us", "p50_us", "p99_us", "reads")]
            rows.append([*row, megabytes(figures["dram_bytes"]), megabytes(figures["cached_bytes"] or None)])
    return rows


SWEEP_HEADS = [
    "system",
    "effort",
    "recall",
    "ratio",
    "ratio p99",
    "queries/s",
    "least to most",
    "mean µs",
    "p50 µs",
    "p99 µs",
    "reads",
    "DRAM",
    "page cache",
]
BUILD_HEADS = ["system", "build s", "build peak", "index", "index / data", "version"]


def build_rows(records: list[dict[str, Any]], data: str) -> list[Row]:
    """Returns time, memory and size of each build, fastest first."""
    facts = next(one for one in records if one.get("kind") == "data" and one["data"] == data)
    rows = []
    for name, build in latest_builds(records, data).items():
        share = build["index_bytes"] / facts["data_bytes"]
        cells = [name, number(build["build_seconds"]), megabytes(build["build_peak_rss_bytes"])]
        version = str(build.get("version", ""))
        if "commit" in build:
            # A reused index may be from earlier sources than those that search it.
            version += f", built by {build['commit']}"
        cells += [megabytes(build["index_bytes"]), f"{share:.2f}", version]
        rows.append((build["build_seconds"], cells))
    return [cells for _, cells in sorted(rows, key=lambda pair: pair[0])]


def budget_rows(section: Section, budget: int, goal: Goal) -> list[Row]:
    """At one goal: returns the systems within a budget, fastest first, then the memory that the others
    need.
    """
    within, beyond = [], []
    for sweep in section.sweeps:
        one = at_goal(sweep, goal)
        if one is None:
            continue
        dram = held_bytes(one.figures) or 0.0
        cells = [sweep.system, number(one.figures["qps"]), number(one.figures["reads"]), megabytes(dram)]
        if dram <= budget:
            within.append((-(one.figures["qps"] or 0.0), [*cells, ""]))
        else:
            beyond.append((dram, [cells[0], "", "", cells[3], "over the budget"]))
    return [row for _, row in sorted(within, key=first)] + [row for _, row in sorted(beyond, key=first)]


def first(pair: tuple[float, Row]) -> float:
    """Sort key of rows."""
    return pair[0]


BUDGET_HEADS = ["system", "queries/s", "reads", "DRAM and page cache", "notes"]


def section_title(section: Section) -> str:
    """Formats a title such as ``sift-a, k = 10, 1 thread, warm``."""
    threads = f"{section.threads} thread{'' if section.threads == 1 else 's'}"
    neighbours = "" if section.k is None else f"k = {section.k}, "
    return f"{section.data}, {neighbours}{threads}, {section.cache}"


def repeats_line(records: list[dict[str, Any]], planned: int) -> str:
    """Formats the number of measured repeats, such as ``medians of 3 repeats``: a run may end before the last
    one.
    """
    measured = 1 + max((one["repeat"] for one in records if one["kind"] == "search"), default=planned - 1)
    text = "one repeat" if measured == 1 else f"medians of {measured} repeats"
    return text if measured >= planned else f"{text} ({planned} were planned)"


def machine_line(records: list[dict[str, Any]]) -> str:
    """Describes machine, time and suite of the run."""
    run = next((one for one in records if one.get("kind") == "run"), None)
    if run is None:
        return "Machine not recorded."
    about, ks = run["machine"], run["suite"]["k"]
    neighbours = ", ".join(map(str, ks)) if isinstance(ks, list) else ks
    repeats = repeats_line(records, run["suite"]["repeats"])
    return (
        f"{about['cpu']}, {about['cores']} processors, {about['memory_bytes'] / 2**30:.0f} GiB, Linux "
        f"{about['kernel']}, commit {about['commit']}, {about['time']}, load {about['load']:.1f} at the start; "
        f"suite {run['suite']['name']}, {repeats}, k = {neighbours}."
    )


EXPLANATION = (
    "Throughput is that of batches with the section's number of threads; latency is that of one query at a "
    "time with one thread; both are measured by the caller. Figures at a recall or a ratio are interpolated. "
    "The ratio is the distance of the found neighbours divided by that of the true ones: the mean, and the "
    "99th percentile over queries. DRAM is the peak of the process since it opened the index, less what it "
    "held before, including mapped pages of files. Page cache is what the kernel additionally cached of the "
    "files of a system that reads through it. The sum of both is compared with that of the reference with "
    "the most similar sum, and flagged if it differs by more than 10%."
)


def conditions(records: list[dict[str, Any]]) -> str:
    """Describes the suite's conditions of measurement."""
    run = next((one for one in records if one.get("kind") == "run"), None)
    limit = run["suite"].get("page_cache") if run else None
    if limit is None:
        return EXPLANATION
    return f"{EXPLANATION} While measuring cold, the page cache held at most {megabytes(limit)} of an index."


def section_parts(records: list[dict[str, Any]], section: Section) -> list[str]:
    """Returns the tables of a section."""
    parts = [f"## {section_title(section)}"]
    references = reference_names(records, section)
    for goal in goals_of(records):
        parts.append(f"### {goal_title(goal)}")
        parts.append(markdown(equal_heads(goal), equal_rows(section, goal, references)))
        for budget in budgets_of(records):
            rows = budget_rows(section, budget, goal)
            if rows:
                parts += [f"Within {megabytes(budget)}:", markdown(BUDGET_HEADS, rows)]
    return [*parts, "### Every point", markdown(SWEEP_HEADS, sweep_rows(section))]


def report(records: list[dict[str, Any]]) -> str:
    """Returns the whole report."""
    parts = ["# Measured side by side", machine_line(records), conditions(records)]
    found = sections(records)
    for data in data_names(records):
        parts += [f"## {data}: building", markdown(BUILD_HEADS, build_rows(records, data))]
        for section in found:
            if section.data == data:
                parts += section_parts(records, section)
    missing = [[one["system"], one["kind"], one["reason"].replace("|", "/")] for one in gaps(records)]
    if missing:
        parts += ["## Not measured", markdown(["system", "what", "why"], missing)]
    return "\n\n".join(parts) + "\n"
