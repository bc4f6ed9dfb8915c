"""Plots of a reproduction: curves over one pair of linear axes, as self-contained SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import matplotlib
from matplotlib.axes import Axes as Plot
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from bathyal_bench import drawing

# Margin beyond the outermost points, as a share of their range, and the least margin, for equal points.
BEYOND = 0.06
LEAST_ROOM = 1e-3
LEAST_TOP = 1e-9
# Labels of this size or more count thousands.
LARGE = 10_000.0
# Tick steps whose labels have few digits.
STEPS = (1, 2, 2.5, 5, 10)
# Most ticks: more labels would touch.
MOST_X_TICKS, MOST_Y_TICKS = 6, 7


@dataclass(frozen=True)
class Curve:
    """A named series of points: ``marks`` for measurements, a ``thin`` line for a bound or a prediction."""

    name: str
    points: Sequence[tuple[float, float]]
    pen: Literal["marks", "thin"] = "marks"

    def finite(self) -> list[tuple[float, float]]:
        """Returns the points that can be drawn."""
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]


@dataclass(frozen=True)
class Axes:
    """Title and axis labels of a plot."""

    title: str
    x: str
    y: str


def curves(axes: Axes, drawn: Sequence[Curve]) -> str:
    """Draws curves as SVG; y begins at 0, and x below the lowest point.

    The same curves give the same text, with the same version of Matplotlib.
    """
    salt = f"{axes}{[(curve.name, curve.finite(), curve.pen) for curve in drawn]}"
    with matplotlib.rc_context(drawing.STYLE | {"svg.hashsalt": salt}):
        figure = Figure((drawing.WIDTH / drawing.INCH, 1), dpi=drawing.INCH)
        FigureCanvasSVG(figure)
        plot = figure.add_subplot()
        set_limits(plot, [point for curve in drawn for point in curve.finite()])
        set_ticks(plot)
        plot.set_xlabel(axes.x)
        plot.grid()
        lines = [draw(plot, curve, style) for style, curve in enumerate(drawn)]
        legend = drawing.set_legend(figure, lines, [curve.name for curve in drawn], "")
        drawing.lay_out(figure, plot, legend, axes.title, axes.y)
        return drawing.as_text(figure, axes.title, {}) + "\n"


def set_limits(plot: Plot, points: list[tuple[float, float]]) -> None:
    """Sets limits with a margin around the points; an empty plot has limits, too."""
    left = min((x for x, _ in points), default=0.0)
    right = max((x for x, _ in points), default=1.0)
    top = max((y for _, y in points), default=1.0)
    room = max((right - left) * BEYOND, LEAST_ROOM)
    plot.set_xlim(left - room, right + room)
    plot.set_ylim(0.0, max(top * (1.0 + 2.0 * BEYOND), LEAST_TOP))


def set_ticks(plot: Plot) -> None:
    """Sets ticks within the limits, with labels that distinguish them."""
    for axis, (low, high), most in (
        (plot.xaxis, plot.get_xlim(), MOST_X_TICKS),
        (plot.yaxis, plot.get_ylim(), MOST_Y_TICKS),
    ):
        ticks = [
            tick for tick in MaxNLocator(most, steps=STEPS).tick_values(low, high) if low <= tick <= high
        ]
        axis.set_ticks(ticks, [short(tick) for tick in ticks])


def draw(plot: Plot, curve: Curve, style: int) -> Line2D:
    """Draws a line, with a marker at each measured point."""
    points = curve.finite()
    measured = curve.pen == "marks"
    (line,) = plot.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=drawing.colour(style),
        linewidth=1.6 if measured else 0.9,
        marker=drawing.MARKERS[style % len(drawing.MARKERS)] if measured else "",
        markersize=5,
        markeredgewidth=0,
        clip_on=False,
    )
    return line


def short(value: float) -> str:
    """Formats a label with at most four decimals, enough to distinguish close ticks, or in thousands.

    >>> [short(one) for one in (0.665, 0.1 + 0.2, 0.0, 950.0, 10_000.0, 512_500.0)]
    ['0.665', '0.3', '0', '950', '10k', '512.5k']
    """
    value, unit = (value / 1e3, "k") if value >= LARGE else (value, "")
    return f"{value:.4f}".rstrip("0").rstrip(".") + unit
