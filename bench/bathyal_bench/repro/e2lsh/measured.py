"""The rows of a run of e2lsh, by experiment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bathyal_bench.repro.e2lsh.theory import Growth, growth
from bathyal_bench.repro.records import Record


@dataclass(frozen=True)
class Measured:
    """A run: its rows of the paper's tables, those of the family ``lsh``, and the chosen tables."""

    run: Record
    chosen: Record
    paper: Sequence[Record]
    family: Sequence[Record]

    @property
    def k(self) -> int:
        """The k that the parameters were chosen for."""
        found: int = self.run["k"][0]
        return found

    def of(self, experiment: str, k: int) -> list[Record]:
        """Returns the rows of an experiment for a k."""
        return [row for row in self.paper if (row["experiment"], row["k"]) == (experiment, k)]

    def accuracy(self) -> list[Record]:
        """Returns the rows of figure 3 with the chosen hashes, for all k."""
        hashes = self.chosen["hashes"]
        return [row for row in self.paper if (row["experiment"], row["hashes"]) == ("accuracy", hashes)]

    def at_ratio(self, k: int) -> Record | None:
        """Returns the fastest search of the chosen tables in memory that reaches the ratio.

        If none reaches it, returns the one with the smallest ratio.
        """
        of_k = [row for row in self.accuracy() if row["k"] == k]
        enough = [row for row in of_k if row["ratio"] <= self.run["ratio"]]
        if enough:
            return min(enough, key=lambda row: row["processor_ns"])
        return min(of_k, key=lambda row: row["ratio"], default=None)

    def family_on(self, device: str, k: int) -> list[Record]:
        """Returns the family's indexes on a device, for a k, by ascending number of vectors."""
        return [row for row in self.family if (row["device"], row["k"]) == (device, k)]

    def family_at(self, device: str, k: int) -> Record | None:
        """Returns the family's index of all vectors on a device, for a k."""
        rows = self.family_on(device, k)
        return next((row for row in rows if row["vectors"] == self.run["vectors"]), None)

    def growths(self) -> list[Growth | None]:
        """Fits the growth of times with n: the family from its file, the paper's tables in memory, an exact
        scan.
        """
        family = self.family_on("file", self.k)
        return [
            growth([(row["vectors"], query_ns(row)) for row in family]),
            growth([(row["vectors"], query_ns(row)) for row in self.of("growth", self.k)]),
            growth([(row["vectors"], row["scan_ms"] * 1e6) for row in family]),
        ]

    def synchronous(self) -> list[tuple[Record, float]]:
        """Returns each row of synchronous reads, with the speedup of interleaved reads over it."""
        rows = self.of("synchronous", self.k)
        return [(row, interleaved(rows, row)) for row in rows]


def interleaved(rows: Iterable[Record], row: Record) -> float:
    """Returns the speedup of interleaved reads from the device of ``row``."""
    for one in rows:
        if one["in_flight"] > 1 and device_of(one) == device_of(row):
            return float(one["qps"] / max(row["qps"], 1e-9))
    return 1.0


def device_of(row: Record) -> str:
    """Returns the device of a row of synchronous reads: the part of the name before the reading method."""
    device: str = row["variant"].rpartition(", ")[0]
    return device


def query_ns(row: Record) -> float:
    """Returns the nanoseconds of elapsed time per query, with all threads at work."""
    return 1e9 / max(float(row["qps"]), 1e-9)
