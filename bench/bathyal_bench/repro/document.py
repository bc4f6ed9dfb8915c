"""A report in Markdown, with its plots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bathyal_bench.repro.plots import Axes, Curve, curves

FILE_NAME = "report.md"


@dataclass
class Document:
    """The text of a report, and its plots by the names of their files."""

    text: str = ""
    plots: dict[str, str] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Appends ``text`` unchanged."""
        self.text += text

    def line(self, text: str = "") -> None:
        """Appends a line."""
        self.text += f"{text}\n"

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]] = (), right: str = "") -> None:
        """Appends a table; see :func:`table`."""
        self.text += table(heads, rows, right)

    def plot(self, name: str, axes: Axes, drawn: Sequence[Curve]) -> None:
        """Draws a plot and appends a link to it."""
        self.plots[name] = curves(axes, drawn)
        self.text += f"\n![{axes.title}]({name})\n"

    def write(self, folder: Path) -> list[Path]:
        """Writes the report and its plots; returns all paths, the report's first."""
        written = [folder / FILE_NAME, *(folder / name for name in self.plots)]
        for path, content in zip(written, [self.text, *self.plots.values()], strict=True):
            path.write_text(content, encoding="utf-8")
        return written


def table(heads: Sequence[str], rows: Iterable[Sequence[object]] = (), right: str = "") -> str:
    """Formats a table in Markdown; a head may be empty. Columns with an ``r`` in ``right`` are right-aligned.

    >>> print(table(["a", "b", ""], [[1, 2, "x"]], "r  "), end="")
    | a | b | |
    |---:|---|---|
    | 1 | 2 | x |
    """
    rules = ["---:|" if side == "r" else "---|" for side in right.ljust(len(heads))]
    return "\n".join([row(heads), "|" + "".join(rules), *map(row, rows)]) + "\n"


def row(cells: Sequence[object]) -> str:
    """Formats a row of a table, without a line end; ``None`` becomes two spaces.

    >>> row([1, "", None, "x"])
    '| 1 | |  | x |'
    """
    return "|" + "".join(" |" if cell == "" else f" {'' if cell is None else cell} |" for cell in cells)
