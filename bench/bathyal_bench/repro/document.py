"""A report as it is written: Markdown, and the plots beside it."""

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
        """Appends to the text as it stands."""
        self.text += text

    def line(self, text: str = "") -> None:
        """Appends a line."""
        self.text += f"{text}\n"

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]] = ()) -> None:
        """Appends a table."""
        self.text += table(heads, rows)

    def plot(self, name: str, axes: Axes, drawn: Sequence[Curve]) -> None:
        """Draws a plot and shows it at the end of the text so far."""
        self.plots[name] = curves(axes, drawn)
        self.text += f"\n![{axes.title}]({name})\n"

    def write(self, folder: Path) -> list[Path]:
        """Writes the report and its plots; the paths of all, the report's first."""
        written = [folder / FILE_NAME, *(folder / name for name in self.plots)]
        for path, content in zip(written, [self.text, *self.plots.values()], strict=True):
            path.write_text(content, encoding="utf-8")
        return written


def table(heads: Sequence[str], rows: Iterable[Sequence[object]] = ()) -> str:
    """A table in Markdown; a head may be empty.

    >>> print(table(["a", "b", ""], [[1, 2, "x"]]), end="")
    | a | b | |
    |---|---|---|
    | 1 | 2 | x |
    """
    lines = [row(heads), "|" + "---|" * len(heads), *map(row, rows)]
    return "\n".join(lines) + "\n"


def row(cells: Sequence[object]) -> str:
    """A row of a table, without the end of its line."""
    return "|" + "".join(f" {cell} |" if f"{cell}" else " |" for cell in cells)
