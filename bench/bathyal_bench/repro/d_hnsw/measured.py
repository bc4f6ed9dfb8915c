"""What ``bathyal-repro d-hnsw`` measured, by set."""

from __future__ import annotations

from dataclasses import dataclass

from bathyal_bench.repro.records import Record

SCHEMES = ("naive", "without-doorbell", "d-hnsw", "ours")


@dataclass(frozen=True)
class Measured:
    """What was measured of one set."""

    name: str
    rows: list[Record]
    asked: list[Record]
    grown: list[Record]

    def curve(self, scheme: str, k: int) -> list[Record]:
        """Figure 6: a scheme with ``k`` neighbours, by the list of candidates."""
        return [row for row in self.rows if (row["varied"], row["scheme"], row["k"]) == ("recall", scheme, k)]

    def last(self, scheme: str, k: int) -> Record | None:
        """The row of the largest list of candidates."""
        return next(reversed(self.curve(scheme, k)), None)

    def neighbours(self) -> list[int]:
        """The numbers of neighbours that there are curves of."""
        return sorted({row["k"] for row in self.rows})

    def index(self, name: str, recall: float) -> Record | None:
        """An index asked for a recall."""
        found = (one for one in self.asked if (one["index"], one["asked"]) == (name, recall))
        return next(found, None)


def measured(name: str, records: list[Record]) -> Measured:
    """The records of a set."""

    def of(kind: str) -> list[Record]:
        return [one for one in records if one["of"] == kind and one["set"] == name]

    return Measured(name, of("row"), of("asked"), of("grown"))
