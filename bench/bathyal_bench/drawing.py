"""Pictures as SVG text: curves over recall or ratio, and bars. Matplotlib draws them.

A picture is as wide as a phone's screen and only ever grows, so that its words can be read everywhere. It has
no background, and its colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import functools
import io
import math
import re
import textwrap
import xml.etree.ElementTree as xml
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

# In pixels. Text in a picture of this width has the sizes below.
WIDTH, PLOT_HEIGHT = 420, 210
TITLE_SIZE, TEXT_SIZE = 12, 10
TITLE_ROW, TEXT_ROW = 16, 14
EDGE = 8
# Width between the edges.
ROOM = WIDTH - 2 * EDGE
# Gap between a tick's label and its axis, and height below the axis for the labels of ticks and of the axis.
LABEL_GAP, BELOW_AXIS = 6, 36
BAR_HEIGHT, BAR_GAP = 11, 5
# Matplotlib measures in inches; SVG has 72 pixels per inch.
INCH = 72

# The position of a recall is the logarithm of what it lacks to 1: 0.9, 0.99 and 0.999 are equally far apart.
RECALL_TICKS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
# Ticks that have a label on a long axis.
MAIN_RECALLS = (0.5, 0.9, 0.95, 0.99, 0.999)
# Points beyond the highest are drawn at the edge.
LEAST_RECALL, MOST_RECALL = 0.5, 0.9999
# The position of a ratio is the logarithm of its excess over 1, from worse to better.
RATIO_TICKS = (2, 1.5, 1.2, 1.1, 1.05, 1.02, 1.01, 1.005, 1.002, 1.001)
MAIN_RATIOS = (2, 1.5, 1.1, 1.05, 1.01, 1.001)
MOST_RATIO, LEAST_RATIO = 2.0, 1.0001
# An axis over more powers of ten has labels at its main ticks only.
FINE_POWERS, FINE_POWERS_UP = 2.0, 3.0
MOST_TICKS = 10
# Larger numbers have exponents on the axis.
MOST_PLAIN = 1e8

# Colour of text, axes and grids, on a light and on a dark background.
INK, DARK_INK = "#1c1c1c", "#e8e8e8"
# Each system's colour on a light and on a dark background. Markers also distinguish systems, for colour-blind
# readers.
COLOURS = {
    "#0057b7": "#6cb2ff",
    "#d62728": "#ff7b72",
    "#1f8a2f": "#5fd075",
    "#c26a00": "#ffb14d",
    "#7b3fa0": "#c792ea",
    "#007f8b": "#4dd0d8",
    "#a0522d": "#d99a75",
    "#d6308f": "#ff8ac8",
    "#5a6b00": "#c3d24a",
    "#444445": "#b5b5b5",
    "#2f8fd0": "#9fd4ff",
    "#b01e5a": "#f06a9b",
    "#00734d": "#45c79a",
    "#8c6d1f": "#d6b656",
}
DARK = COLOURS | {INK: DARK_INK}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SPREAD = "bars span the repeats, from the least to the most"

SVG = "http://www.w3.org/2000/svg"
HREF = "{http://www.w3.org/1999/xlink}href"
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT_SIZE,
    # Text stays text, in the reader's own font, and a dollar sign starts no formula.
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.7,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True)
class Mark:
    """A point: its position, its tooltip, and the range of its repeats if there are several."""

    x: float
    y: float
    tooltip: str
    least: float | None = None
    most: float | None = None

    def spread(self) -> tuple[float, float]:
        """Returns how far the repeats reach below and above the point."""
        least = self.y if self.least is None else self.least
        most = self.y if self.most is None else self.most
        return max(self.y - least, 0.0), max(most - self.y, 0.0)


@dataclass(frozen=True)
class Curve:
    """A named line through points."""

    name: str
    style: int
    marks: list[Mark]
    strong: bool = False


@dataclass(frozen=True)
class Axis:
    """A horizontal axis."""

    label: str
    ticks: tuple[float, ...]
    main_ticks: tuple[float, ...]
    position: Callable[[float], float]
    """Position of a value before scaling."""
    worst: float
    """Points with worse values are not drawn."""
    best: float
    """Points with better values are drawn here."""
    beyond: str
    """Label of ``best``."""


def colour(style: int) -> str:
    """Returns the colour of a system on a light background."""
    return list(COLOURS)[style % len(COLOURS)]


def recall_position(recall: float) -> float:
    """Returns the position of a recall on its axis, before scaling."""
    return -math.log10(1 - min(max(recall, 0.0), MOST_RECALL))


def ratio_position(ratio: float) -> float:
    """Returns the position of an overall ratio on its axis, before scaling: better ratios are farther
    right.
    """
    return -math.log10(max(ratio, LEAST_RATIO) - 1)


RECALL = Axis(
    "recall@k (logarithm of what is missing)",
    RECALL_TICKS,
    MAIN_RECALLS,
    recall_position,
    LEAST_RECALL,
    MOST_RECALL,
    f"≥{MOST_RECALL}",
)
RATIO = Axis(
    "overall ratio (logarithm of what is above 1)",
    RATIO_TICKS,
    MAIN_RATIOS,
    ratio_position,
    MOST_RATIO,
    LEAST_RATIO,
    f"≤{LEAST_RATIO}",
)


def log_ticks(least: float, most: float) -> list[float]:
    """Returns 1, 2 and 5 times powers of ten between two positive numbers.

    Returns only the powers if the numbers span many, and the nearest ticks outside if at most one is between.

    >>> log_ticks(8, 60)
    [10.0, 20.0, 50.0]
    >>> log_ticks(3, 40000)
    [10.0, 100.0, 1000.0, 10000.0]
    >>> log_ticks(6, 7)
    [5.0, 10.0]
    """
    powers = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 2)
    steps = (1, 2, 5) if math.log10(most / least) <= FINE_POWERS_UP else (1,)
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    between = [tick for tick in ticks if least <= tick <= most]
    if len(between) > 1:
        return between[:: math.ceil(len(between) / MOST_TICKS)]
    return [
        max(tick for tick in ticks if tick <= least),
        *between,
        min(tick for tick in ticks if tick > most),
    ]


def plain(value: float) -> str:
    """Formats a tick's label.

    >>> plain(20000.0), plain(0.5), plain(2.0), plain(1e19)
    ('20,000', '0.5', '2', '1e+19')
    """
    return f"{value:,.0f}" if 1 <= value < MOST_PLAIN else f"{value:g}"


def over(axis: Axis, title: str, unit: str, curves: list[Curve]) -> str:
    """Draws curves over ``axis``, with a logarithmic vertical axis of ``unit``; ``y`` of the marks must be
    positive.
    """
    left = axis.position(axis.worst)
    shown = []
    for curve in curves:
        marks = [one for one in curve.marks if axis.position(one.x) >= left and 0 < one.y < math.inf]
        if marks:
            shown.append((curve, marks))
    if not shown:
        return nothing(title)
    every = [one for _, marks in shown for one in marks]
    spread = any(sum(one.spread()) > 0 for one in every)
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"{title}{shown}"}):
        figure = Figure((WIDTH / INCH, 1), dpi=INCH)
        FigureCanvasSVG(figure)
        plot = figure.add_subplot()
        set_x_axis(plot, axis, [one.x for one in every])
        set_y_axis(plot, every)
        lines = [draw_curve(plot, axis, curve, marks) for curve, marks in shown]
        legend = set_legend(figure, lines, [curve.name for curve, _ in shown], SPREAD if spread else "")
        lay_out(figure, plot, legend, title, unit)
        tooltips = {
            one.get_gid(): [mark.tooltip for mark in marks]
            for one, (_, marks) in zip(lines, shown, strict=True)
        }
        return as_text(figure, title, tooltips)


def nothing(title: str) -> str:
    """Returns a paragraph in place of an empty picture."""
    return f"<p>{escape(title)}: nothing was measured.</p>"


def lay_out(figure: Figure, plot: Axes, legend: Legend, title: str, unit: str) -> None:
    """Places title, unit, plot and legend below each other and fits the figure's height."""
    top = heading_height(title, unit)
    legend_height = legend.get_window_extent().height
    height = math.ceil(top + PLOT_HEIGHT + BELOW_AXIS + TEXT_ROW / 2 + legend_height + EDGE)
    figure.set_figheight(height / INCH)
    labels = [label.get_text() for label in plot.get_yticklabels()]
    left = EDGE + max(words_width(label, TEXT_SIZE) for label in labels) + LABEL_GAP
    # Half of the last label extends beyond the axis.
    right = WIDTH - EDGE - words_width(plot.get_xticklabels()[-1].get_text(), TEXT_SIZE) / 2
    bottom = height - top - PLOT_HEIGHT
    plot.set_position((left / WIDTH, bottom / height, (right - left) / WIDTH, PLOT_HEIGHT / height))
    legend.set_bbox_to_anchor((EDGE / WIDTH, EDGE / height), transform=figure.transFigure)
    heading(figure, title, unit)


def heading_height(title: str, unit: str) -> float:
    """Returns the height of :func:`heading` and of the gap between it and a plot."""
    rows = folded(title, TITLE_SIZE, "bold").count("\n"), folded(unit, TEXT_SIZE).count("\n")
    return EDGE / 2 + (rows[0] + 1) * TITLE_ROW + (rows[1] + 1) * TEXT_ROW + EDGE


def heading(figure: Figure, title: str, unit: str) -> None:
    """Draws the title, and below it the unit."""
    lines = folded(title, TITLE_SIZE, "bold").split("\n")
    rows = [(line, TITLE_SIZE, TITLE_ROW, "bold") for line in lines]
    rows += [(line, TEXT_SIZE, TEXT_ROW, "normal") for line in folded(unit, TEXT_SIZE).split("\n")]
    height, below = figure.get_figheight() * INCH, EDGE / 2
    for line, size, row, weight in rows:
        below += row
        figure.text(EDGE / WIDTH, 1 - (below - 4) / height, line, fontsize=size, weight=weight, va="baseline")


# Matplotlib draws text to measure it, and folding measures the same lines repeatedly.
@functools.lru_cache(maxsize=10_000)
def words_width(words: str, size: float, weight: str = "normal") -> float:
    """Returns the width of a line of text, in pixels."""
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    width: float = text_to_path.get_text_width_height_descent(words, font, ismath=False)[0]
    return width


@functools.lru_cache(maxsize=1000)
def folded(words: str, size: float, weight: str = "normal", room: float = ROOM) -> str:
    """Breaks text into as many lines as it needs to stay within ``room`` pixels."""
    letters = len(words)
    lines = [words]
    while letters > 1 and max(words_width(line, size, weight) for line in lines) > room:
        letters -= 1
        lines = textwrap.wrap(words, letters)
    return "\n".join(lines)


def set_x_axis(plot: Axes, axis: Axis, values: list[float]) -> None:
    """Sets the part of the axis that the values span, from one tick to another."""
    positions = [axis.position(value) for value in values]
    ticks = {axis.position(one): f"{one:g}" for one in axis.ticks} | {axis.position(axis.best): axis.beyond}
    # Equal values have bit-identical positions.
    first = max((one for one in ticks if one <= min(positions)), default=min(ticks))
    last = min(one for one in ticks if one >= max(positions))
    if first == last:
        first = max((one for one in ticks if one < last), default=first)
        last = min((one for one in ticks if one > first), default=last)
    if last - first > FINE_POWERS:
        main = {axis.position(one) for one in axis.main_ticks}
        ticks = {one: words for one, words in ticks.items() if one in main or one in (first, last)}
    margin = (last - first) * 0.02
    plot.set_xlim(first - margin, last + margin)
    inside = [one for one in ticks if first <= one <= last]
    plot.set_xticks(inside, [ticks[one] for one in inside])
    plot.set_xlabel(axis.label)
    plot.grid(axis="x")


def set_y_axis(plot: Axes, marks: list[Mark]) -> None:
    """Sets a logarithmic axis that includes the range of the repeats."""
    values = [
        value for one in marks for value in (one.y, one.least, one.most) if value and 0 < value < math.inf
    ]
    least, most = min(values) / 1.1, max(values) * 1.1
    ticks = log_ticks(least, most)
    plot.set_yscale("log", nonpositive="clip")
    plot.set_ylim(min(least, ticks[0]), max(most, ticks[-1]))
    plot.set_yticks(ticks, [plain(tick) for tick in ticks])
    plot.minorticks_off()
    plot.grid(axis="y")


def draw_curve(plot: Axes, axis: Axis, curve: Curve, marks: list[Mark]) -> Line2D:
    """Draws a line with its markers and the range of its repeats, all of one class, by which a page hides a
    system.
    """
    fill = colour(curve.style)
    apart = [one for one in marks if sum(one.spread()) > 0]
    if apart:
        below, above = zip(*(one.spread() for one in apart), strict=True)
        drawn = plot.errorbar(
            [axis.position(one.x) for one in apart],
            [one.y for one in apart],
            yerr=[below, above],
            fmt="none",
            ecolor=fill,
            elinewidth=1,
            capsize=2.5,
        )
        for cap in drawn.lines[1]:
            cap.set_markerfacecolor("none")
        for part, artist in enumerate([*drawn.lines[1], *drawn.lines[2]]):
            artist.set_gid(f"system-{curve.style}.spread-{part}")
    (line,) = plot.plot(
        [axis.position(one.x) for one in marks],
        [one.y for one in marks],
        color=fill,
        linestyle="-" if curve.style < len(COLOURS) else (0, (4, 2)),
        linewidth=2.2 if curve.strong else 1.2,
        marker=MARKERS[curve.style % len(MARKERS)],
        markersize=6 if curve.strong else 5,
        markeredgewidth=0,
        clip_on=False,
        gid=f"system-{curve.style}.line",
    )
    return line


def set_legend(figure: Figure, lines: list[Line2D], names: list[str], about: str) -> Legend:
    """Draws the legend: the meaning of the bars, and the systems in as many columns as fit."""
    # Widths of a sample line and of the gap between columns; legends measure in letters.
    sign, gap = 2.2, 0.9
    labels = [folded(name, TEXT_SIZE, room=ROOM - sign * TEXT_SIZE) for name in names]
    for columns in (3, 2, 1):
        legend = figure.legend(
            lines,
            ["."] * len(lines),
            title=about or None,
            title_fontsize=TEXT_SIZE,
            alignment="left",
            loc="lower left",
            ncols=columns,
            frameon=False,
            handlelength=sign - 0.5,
            handletextpad=0.5,
            columnspacing=gap,
            labelspacing=0.35,
            borderpad=0,
            borderaxespad=0,
        )
        # Set the labels afterwards, because Matplotlib omits labels that begin with an underscore.
        for text, label in zip(legend.get_texts(), labels, strict=True):
            text.set_text(label)
        if columns == 1 or legend.get_window_extent().width <= ROOM:
            return legend
        legend.remove()
    raise AssertionError("one column is the last")


@dataclass(frozen=True)
class Bar:
    """A bar, its name, and the label at its end."""

    name: str
    style: int
    value: float
    label: str


def bars(title: str, unit: str, some: list[Bar]) -> str:
    """Draws horizontal bars from zero, shortest first, each below its name."""
    ordered = sorted(some, key=lambda one: one.value)
    if not ordered:
        return nothing(title)
    names = [folded(one.name, TEXT_SIZE).split("\n") for one in ordered]
    row = BAR_HEIGHT + BAR_GAP
    top = heading_height(title, unit)
    height = top + sum(row + TEXT_ROW * len(lines) for lines in names)
    most = max(one.value for one in ordered) or 1.0
    longest = ROOM - LABEL_GAP - max(words_width(one.label, TEXT_SIZE) for one in ordered)
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"{title}{ordered}"}):
        figure = Figure((WIDTH / INCH, height / INCH), dpi=INCH)
        FigureCanvasSVG(figure)
        heading(figure, title, unit)
        # Coordinates are pixels, from the upper left corner.
        plot = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(height, 0))
        plot.set_axis_off()
        below = top
        for one, lines in zip(ordered, names, strict=True):
            for line in lines:
                below += TEXT_ROW
                plot.text(EDGE, below - 4, line, va="baseline")
            # Every bar is long enough to be visible.
            length = max(one.value / most * longest, 1.0)
            middle = below + BAR_HEIGHT / 2
            plot.barh(
                middle, length, BAR_HEIGHT, left=EDGE, color=colour(one.style), gid=f"system-{one.style}.bar"
            )
            plot.text(EDGE + length + LABEL_GAP, middle, one.label, va="center_baseline")
            below += row
        return as_text(figure, title, {})


def as_text(figure: Figure, title: str, tooltips: dict[str, list[str]]) -> str:
    """Returns a figure as SVG for pages or single files: with tooltips and dark colours, without unused
    elements.
    """
    written = io.StringIO()
    figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = xml.fromstring(written.getvalue())
    for group in root.iter(f"{{{SVG}}}g"):
        marks = group.iter(f"{{{SVG}}}use")
        for mark, words in zip(marks, tooltips.get(group.get("id", ""), ()), strict=False):
            xml.SubElement(mark, f"{{{SVG}}}title").text = words
    # Remove the metadata, and a style for all elements.
    for name in ("metadata", "defs"):
        one = root.find(f"{{{SVG}}}{name}")
        if one is not None:
            root.remove(one)
    used = {one.get(HREF, "")[1:] for one in root.iter(f"{{{SVG}}}use")}
    used |= set(re.findall(r"url\(#([^)]+)\)", written.getvalue()))
    for one in root.iter():
        tidy(one, used)
    flatten(root)
    root.insert(0, dark_rules(root))
    height = root.get("viewBox", "").split()[-1]
    root.attrib.clear()
    root.attrib |= {"class": "picture", "role": "img", "aria-label": title}
    root.attrib |= {"viewBox": f"0 0 {WIDTH} {height}", "width": str(WIDTH), "height": height}
    root.attrib |= {"font-family": "system-ui, sans-serif", "stroke-linejoin": "round"}
    xml.register_namespace("", SVG)
    return xml.tostring(root, encoding="unicode")


def tidy(one: xml.Element, used: set[str]) -> None:
    """Turns an element's style into attributes, which rules for dark backgrounds can override, and its id
    into a class.
    """
    for declaration in filter(None, one.attrib.pop("style", "").split(";")):
        name, _, value = (words.strip() for words in declaration.partition(":"))
        if name == "font":
            # Matplotlib before 3.11 writes weight and size in one property, in any order.
            one.attrib |= {"font-size": found[0]} if (found := re.search(r"[\d.]+px", value)) else {}
            one.attrib |= {"font-weight": found[0]} if (found := re.match(r"bold|\d+(?= )", value)) else {}
        elif name != "font-family":
            one.set(name, value)
    name = one.get("id", "")
    if name not in used:
        one.attrib.pop("id", None)
    if name.startswith("system-"):
        one.set("class", name.partition(".")[0])
    if HREF in one.attrib:
        one.set("href", one.attrib.pop(HREF))
    moved = re.match(r"translate\((\S+) (\S+)\)( rotate\(-0\))?$", one.get("transform", ""))
    if moved:
        one.set("x", moved[1])
        one.set("y", moved[2])
    if moved or "rotate(-0" in one.get("transform", ""):
        del one.attrib["transform"]
    for name in ("d", "x", "y", "transform"):
        if name in one.attrib:
            one.set(name, rounded(one.attrib[name]))
    one.tail = None
    if not one.tag.endswith(("text", "title")):
        one.text = None


def rounded(numbers: str) -> str:
    """Rounds numbers to hundredths, in one line.

    >>> rounded("M 36.080865 2.000001 \\n L -0.5 7")
    'M 36.08 2 L -0.5 7'
    """
    short = re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), numbers)
    return " ".join(short.split())


def flatten(parent: xml.Element) -> None:
    """Removes groups without attributes, and invisible paths."""
    for place in reversed(range(len(parent))):
        child = parent[place]
        flatten(child)
        drawn = child.get("fill") != "none" or child.get("stroke", "none") != "none"
        if child.tag == f"{{{SVG}}}path" and not drawn:
            parent.remove(child)
        elif child.tag == f"{{{SVG}}}g" and not child.attrib:
            parent[place : place + 1] = list(child)


def dark_rules(root: xml.Element) -> xml.Element:
    """Returns the rules that replace a picture's colours on a dark background."""
    present = {(name, one.get(name)) for one in root.iter() for name in ("fill", "stroke")}
    rules = [
        f'.picture [{name}="{light}"]{{{name}:{dark}}}'
        for light, dark in DARK.items()
        for name in ("fill", "stroke")
        if (name, light) in present
    ]
    style = xml.Element(f"{{{SVG}}}style")
    style.text = f"@media (prefers-color-scheme:dark){{{''.join(rules)}}}"
    return style
