"""Plots as SVG text: curves over recall or ratio, and bars. Nothing is fetched, nothing runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 620, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 16, 34, 52
# Recall is drawn by the logarithm of what is missing: 0.9, 0.99 and 0.999 are equally far apart.
RECALL_TICKS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
# Beyond the most, points are drawn at the edge.
LEAST_RECALL, MOST_RECALL = 0.5, 0.9995
# A ratio is drawn by the logarithm of what is above 1, from the worse to the better.
RATIO_TICKS = (2, 1.5, 1.2, 1.1, 1.05, 1.02, 1.01, 1.005, 1.002, 1.001)
MOST_RATIO, LEAST_RATIO = 2.0, 1.0005
# Dark enough on white, and told apart by eyes that see red and green alike when markers differ too.
COLOURS = (
    "#0057b7",
    "#d62728",
    "#2a9d3a",
    "#e38b00",
    "#7b3fa0",
    "#007f8b",
    "#a0522d",
    "#d6308f",
    "#5a6b00",
    "#444444",
    "#4aa3df",
    "#b01e5a",
    "#00734d",
    "#8c6d1f",
)
MARKERS = ("circle", "square", "triangle", "diamond")
BAR_HEIGHT, BAR_GAP, BAR_LABELS = 18, 7, 210


@dataclass(frozen=True)
class Mark:
    """A point: where it lies and what its tooltip says."""

    x: float
    y: float
    tooltip: str


@dataclass(frozen=True)
class Curve:
    """A named line through points."""

    name: str
    style: int
    marks: list[Mark]
    strong: bool = False


@dataclass(frozen=True)
class Axis:
    """What curves are drawn over."""

    label: str
    ticks: tuple[float, ...]
    position: Callable[[float], float]
    """Where a value lies, before scaling."""
    worst: float
    """Points that are worse are not drawn."""


def colour(style: int) -> str:
    """The colour of a system."""
    return COLOURS[style % len(COLOURS)]


def recall_position(recall: float) -> float:
    """Where a recall lies on its axis, before scaling."""
    return -math.log10(1 - min(max(recall, 0.0), MOST_RECALL))


def ratio_position(ratio: float) -> float:
    """Where an overall ratio lies on its axis, before scaling: the better, the farther to the right."""
    return -math.log10(max(ratio, LEAST_RATIO) - 1)


RECALL = Axis("recall@k (logarithm of what is missing)", RECALL_TICKS, recall_position, LEAST_RECALL)
RATIO = Axis("overall ratio (logarithm of what is above 1)", RATIO_TICKS, ratio_position, MOST_RATIO)


def log_ticks(least: float, most: float) -> list[float]:
    """1, 2 and 5 times powers of ten between two positive numbers; only the powers where they are many.

    >>> log_ticks(8, 60)
    [10.0, 20.0, 50.0]
    """
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    ticks = [float(step * 10.0**power) for power in powers for step in steps]
    return [tick for tick in ticks if least <= tick <= most]


def plain(value: float) -> str:
    """A tick's label.

    >>> plain(20000.0), plain(0.5), plain(2.0)
    ('20,000', '0.5', '2')
    """
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def marker(kind: str, x: float, y: float, fill: str, tooltip: str) -> str:
    """A marker with its tooltip."""
    title = f"<title>{escape(tooltip)}</title>"
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}">{title}</circle>'
    shapes = {
        "square": ((-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)),
        "triangle": ((0, -4.6), (4.4, 3.6), (-4.4, 3.6)),
        "diamond": ((0, -5), (4.6, 0), (0, 5), (-4.6, 0)),
    }
    corners = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shapes[kind])
    return f'<polygon points="{corners}" fill="{fill}">{title}</polygon>'


def text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(words)}</text>'


def over(axis: Axis, title: str, unit: str, curves: list[Curve]) -> str:
    """Curves over an axis, with a logarithmic one of ``unit``; ``y`` of the marks is positive."""
    left = axis.position(axis.worst)
    shown = [
        (curve, [one for one in curve.marks if axis.position(one.x) >= left and one.y > 0])
        for curve in curves
    ]
    marks = [one for _, some in shown for one in some]
    if not marks:
        return f"<p>{escape(title)}: nothing was measured.</p>"
    positions = [axis.position(one.x) for one in marks]
    x_least, x_most = min(positions) - 0.05, max(positions) + 0.05
    y_least, y_most = min(one.y for one in marks) / 1.3, max(one.y for one in marks) * 1.3

    def x_of(value: float) -> float:
        share = (axis.position(value) - x_least) / (x_most - x_least)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        share = math.log(value / y_least) / math.log(y_most / y_least)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    ticks = [one for one in axis.ticks if x_least <= axis.position(one) <= x_most]
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    parts.append(text(WIDTH / 2, 18, title, more='class="title"'))
    parts += axes(ticks, log_ticks(y_least, y_most), x_of, y_of)
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, axis.label))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(text(16, middle, unit, more=f'transform="rotate(-90 16 {middle:.1f})"'))
    for curve, some in shown:
        parts.append(line(curve, [(x_of(one.x), y_of(one.y), one.tooltip) for one in some]))
    return "\n".join([*parts, "</svg>"])


def axes(
    x_ticks: list[float], y_ticks: list[float], x_of: Callable[[float], float], y_of: Callable[[float], float]
) -> list[str]:
    """The frame, the grid and the labels of its lines."""
    frame = f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
    parts = [f'{frame} class="frame"/>']
    for tick in x_ticks:
        x = x_of(tick)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="grid"/>')
        parts.append(text(x, HEIGHT - BOTTOM + 16, f"{tick:g}"))
    for tick in y_ticks:
        y = y_of(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(text(LEFT - 6, y + 4, plain(tick), "end"))
    return parts


def line(curve: Curve, places: list[tuple[float, float, str]]) -> str:
    """A curve and its markers, in a group that the legend can hide."""
    fill = colour(curve.style)
    kind = MARKERS[curve.style % len(MARKERS)]
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
    width = 3 if curve.strong else 1.6
    dash = "" if curve.style < len(COLOURS) else ' stroke-dasharray="5 3"'
    drawn = f'<polyline points="{corners}" fill="none" stroke="{fill}" stroke-width="{width}"{dash}/>'
    marks = "".join(marker(kind, x, y, fill, tooltip) for x, y, tooltip in places)
    return f'<g class="system-{curve.style}">{drawn}{marks}</g>'


def legend_sign(style: int) -> str:
    """The marker of a system, for the legend."""
    fill = colour(style)
    sign = marker(MARKERS[style % len(MARKERS)], 14, 7, fill, "")
    dash = "" if style < len(COLOURS) else ' stroke-dasharray="5 3"'
    stroke = f'<line x1="1" x2="27" y1="7" y2="7" stroke="{fill}" stroke-width="2"{dash}/>'
    return f'<svg class="sign" viewBox="0 0 28 14">{stroke}{sign}</svg>'


@dataclass(frozen=True)
class Bar:
    """A bar with its label and what stands at its end."""

    name: str
    style: int
    value: float
    label: str


def bars(title: str, unit: str, some: list[Bar]) -> str:
    """Horizontal bars from zero, shortest first."""
    ordered = sorted(some, key=lambda one: one.value)
    if not ordered:
        return f"<p>{escape(title)}: nothing was measured.</p>"
    most = max(one.value for one in ordered) or 1.0
    height = TOP + len(ordered) * (BAR_HEIGHT + BAR_GAP) + 24
    space = WIDTH - BAR_LABELS - 90
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    parts.append(text(WIDTH / 2, 18, title, more='class="title"'))
    for row, one in enumerate(ordered):
        y = TOP + row * (BAR_HEIGHT + BAR_GAP)
        length = max(1.0, one.value / most * space)
        parts.append(text(BAR_LABELS - 8, y + 13, one.name, "end"))
        tooltip = f"<title>{escape(f'{one.name}: {one.label}')}</title>"
        parts.append(
            f'<rect x="{BAR_LABELS}" y="{y}" width="{length:.1f}" height="{BAR_HEIGHT}" '
            f'fill="{colour(one.style)}">{tooltip}</rect>'
        )
        parts.append(text(BAR_LABELS + length + 6, y + 13, one.label, "start"))
    parts.append(text(BAR_LABELS + space / 2, height - 6, unit))
    return "\n".join([*parts, "</svg>"])
