"""The measurements of ``bathyal-repro d-hnsw``, by set."""

from __future__ import annotations

from dataclasses import dataclass

from bathyal_bench.repro.records import Record

SCHEMES = ("naive", "without-doorbell", "d-hnsw", "ours")


@dataclass(frozen=True)
class Measured:
    """The measurements of one set."""

    name: str
    rows: list[Record]
    asked: list[Record]
    grown: list[Record]

    def curve(self, scheme: str, k: int) -> list[Record]:
        """Returns the rows of figure 6: a scheme with ``k`` neighbours, by candidate list."""
        return [row for row in self.rows if (row["varied"], row["scheme"], row["k"]) == ("recall", scheme, k)]

    def last(self, scheme: str, k: int) -> Record | None:
        """Returns the row of the largest candidate list."""
        return next(reversed(self.curve(scheme, k)), None)

    def neighbours(self) -> list[int]:
        """Returns the values of k with curves."""
        return sorted({row["k"] for row in self.rows})

    def index(self, name: str, recall: float) -> Record | None:
        """Returns the row of an index at a requested recall."""
        found = (one for one in self.asked if (one["index"], one["asked"]) == (name, recall))
        return next(found, None)


def measured(name: str, records: list[Record]) -> Measured:
    """Selects the records of a set."""

    def rows_of(kind: str) -> list[Record]:
        return [one for one in records if one["of"] == kind and one["set"] == name]

    return Measured(name, rows_of("row"), rows_of("asked"), rows_of("grown"))
