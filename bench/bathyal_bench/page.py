"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

from html import escape
from typing import Any

from bathyal_bench.drawing import RATIO, RECALL, Bar, Curve, Mark, bars, colour, over
from bathyal_bench.points import (
    Point,
    Section,
    at_goal,
    data_names,
    gaps,
    held_bytes,
    latest_builds,
    reference_names,
    sections,
)
from bathyal_bench.tables import (
    BUDGET_HEADS,
    BUILD_HEADS,
    RATIO_DIGITS,
    SWEEP_HEADS,
    budget_rows,
    budgets_of,
    build_rows,
    conditions,
    equal_heads,
    equal_rows,
    goal_title,
    goals_of,
    machine_line,
    megabytes,
    number,
    section_title,
    sweep_rows,
)

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --ground: #fff; --line: #ddd; --head: #f4f4f4; --flag: #ffe9a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --ground: #16181c; --line: #3a3d44; --head: #24272d; --flag: #6b5200; }
}
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1320px; padding: 0 1em;
  color: var(--ink); background: var(--ground); }
@media (max-width: 480px) { body { padding: 0 2px; } }
h1 { font-size: 1.6em; } h2 { margin-top: 2em; border-bottom: 1px solid var(--line); } h3 { margin-top: 1.4em; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px; }
svg.picture { width: 100%; height: auto; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 8px 0; }
.legend label { cursor: pointer; }
table { border-collapse: collapse; margin: 8px 0; font-size: 13px; }
th, td { padding: 3px 9px; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, td.words { text-align: left; } th { background: var(--head); }
.flag { background: var(--flag); padding: 0 4px; } .scroll { overflow-x: auto; } summary { cursor: pointer; }
"""
# A box shows and hides a system in all plots.
SCRIPT = """
document.querySelectorAll('.legend input').forEach(box => box.addEventListener('change', () => {
  document.querySelectorAll('.picture .' + box.value).forEach(g => g.style.display = box.checked ? '' : 'none');
  document.querySelectorAll('.legend input[value="' + box.value + '"]').forEach(o => o.checked = box.checked);
}));
"""


def table(heads: list[str], rows: list[list[str]]) -> str:
    """An HTML table; what is set bold for markdown becomes a flag."""
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(cell(words) for words in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


def cell(words: str) -> str:
    """A cell."""
    shown = escape(words)
    while "**" in shown:
        shown = shown.replace("**", '<span class="flag">', 1).replace("**", "</span>", 1)
    kind = ' class="words"' if any(letter.isalpha() for letter in words) else ""
    return f"<td{kind}>{shown}</td>"


def tooltip(system: str, point: Point) -> str:
    """Everything about a point."""
    figures = point.figures
    parts = [
        system,
        point.label,
        f"recall {point.recall:.4f}, ratio {number(figures['ratio'], RATIO_DIGITS)}",
    ]
    parts.append(f"{number(point.qps)} queries/s")
    parts.append(f"p50 {number(figures['p50_us'])} µs, p99 {number(figures['p99_us'])} µs")
    parts.append(f"{number(figures['reads'])} reads, memory {megabytes(held_bytes(figures))}")
    return "\n".join(parts)


PLOTS = (
    ("qps", "Throughput", "queries a second; up is better"),
    ("p50_us", "Latency, median", "microseconds, one query at a time; down is better"),
    ("p99_us", "Latency, 99th percentile", "microseconds, one query at a time; down is better"),
    ("reads", "Reads", "reads a query; down is better, less than one is not drawn"),
)


def plots(section: Section, styles: dict[str, int], references: tuple[str, ...], figure: str) -> str:
    """The curves of a section over recall or ratio."""
    drawn, axis = [], RATIO if figure == "ratio" else RECALL
    for name, title, unit in PLOTS:
        curves = []
        for sweep in section.sweeps:
            marks = []
            for point in sweep.points:
                place, value = point.figures[figure], point.figures[name]
                # Stray reads through the page cache would stretch the axis.
                if place is not None and value is not None and (name != "reads" or value >= 1):
                    about = tooltip(sweep.system, point)
                    marks.append(Mark(place, value, about, *point.spreads.get(name, (None, None))))
            curves.append(Curve(sweep.system, styles[sweep.system], marks, sweep.system in references))
        drawn.append(over(axis, title, unit, curves))
    return f'<div class="plots">{"".join(f"<div>{one}</div>" for one in drawn)}</div>'


def legend(section: Section, styles: dict[str, int]) -> str:
    """The systems; a box hides one."""
    entries = []
    for sweep in section.sweeps:
        style = styles[sweep.system]
        box = f'<input type="checkbox" checked value="system-{style}" style="accent-color:{colour(style)}">'
        entries.append(f"<label>{box} {escape(sweep.system)}</label>")
    return f'<div class="legend">Shown: {"".join(entries)}</div>'


def size_bars(records: list[dict[str, Any]], section: Section, styles: dict[str, int]) -> str:
    """Index, memory and build time of each system."""
    builds = latest_builds(records, section.data)
    goals = goals_of(records)
    middle = goals[len(goals) // 2]
    sizes, seconds, peaks, memory = [], [], [], []
    for name, build in builds.items():
        style = styles.get(name, len(styles))
        index, spent, peak = build["index_bytes"], build["build_seconds"], build["build_peak_rss_bytes"]
        sizes.append(Bar(name, style, index / 1e6, megabytes(index)))
        seconds.append(Bar(name, style, spent, f"{number(spent)} s"))
        peaks.append(Bar(name, style, peak / 1e6, megabytes(peak)))
    for sweep in section.sweeps:
        found = at_goal(sweep, middle)
        held = held_bytes(found.figures if found else sweep.points[-1].figures)
        if held is not None:
            memory.append(Bar(sweep.system, styles[sweep.system], held / 1e6, megabytes(held)))
    drawn = [
        bars("Index on disk", "less is better", sizes),
        bars("Memory of a search", f"DRAM and page cache, at {middle} or at the most effort", memory),
        bars("Build time", "less is better", seconds),
        bars("Memory of the build", "the most that its process held", peaks),
    ]
    return f'<div class="plots">{"".join(f"<div>{one}</div>" for one in drawn)}</div>'


def section_parts(records: list[dict[str, Any]], section: Section, styles: dict[str, int]) -> list[str]:
    """A section: plots, tables at equal recall, and all points."""
    references = reference_names(records, section)
    parts = [f"<h2>{escape(section_title(section))}</h2>", legend(section, styles)]
    for figure in dict.fromkeys(goal.figure for goal in goals_of(records)):
        parts.append(plots(section, styles, references, figure))
    for goal in goals_of(records):
        parts.append(f"<h3>{escape(goal_title(goal))}</h3>")
        parts.append(table(equal_heads(goal), equal_rows(section, goal, references)))
        for budget in budgets_of(records):
            rows = budget_rows(section, budget, goal)
            if rows:
                parts.append(f"<p>Within {megabytes(budget)}:</p>{table(BUDGET_HEADS, rows)}")
    every = table(SWEEP_HEADS, sweep_rows(section))
    parts.append(f"<details><summary>Every point</summary>{every}</details>")
    return parts


def page(records: list[dict[str, Any]]) -> str:
    """The whole file."""
    found = sections(records)
    names = dict.fromkeys(sweep.system for section in found for sweep in section.sweeps)
    styles = {name: place for place, name in enumerate(names)}
    parts = ["<h1>Measured side by side</h1>", f"<p>{escape(machine_line(records))}</p>"]
    parts.append(f"<p>{escape(conditions(records))}</p>")
    missing = [[one["system"], one["kind"], one["reason"]] for one in gaps(records)]
    if missing:
        parts += ["<h3>Not measured</h3>", table(["system", "what", "why"], missing)]
    for data in data_names(records):
        own = [section for section in found if section.data == data]
        parts.append(f"<h2>{escape(data)}: sizes and building</h2>")
        if own:
            parts.append(size_bars(records, own[0], styles))
        parts.append(table(BUILD_HEADS, build_rows(records, data)))
        for section in own:
            parts += section_parts(records, section, styles)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>Bathyal, measured side by side</title><style>{STYLE}</style>"
    body = "\n".join(parts)
    inner = f"<head>{head}</head><body>\n{body}\n<script>{SCRIPT}</script></body>"
    return f'<!doctype html>\n<html lang="en">{inner}</html>\n'
