"""What ``bathyal-repro cloud`` measured: points of indexes, by set, index and effort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bathyal_bench.repro.cloud.curves import Counter, Values, counters, speeds
from bathyal_bench.repro.numbers import shown
from bathyal_bench.repro.records import Record

GRAPH, SPANN, CLUSTER, CODED = "graph", "spann", "cluster", "coded"
# With more links; with twice the centroids; with fewer replicas.
DENSE, FINE = "graph-r256", "spann-s0.32-x8"
FEWER = {4: "spann-s0.16-x4", 2: "spann-s0.16-x2"}
COMPARED = (GRAPH, SPANN, CLUSTER, CODED)
GRAPHS = (GRAPH, DENSE)
# W where nothing else is said (table 3), and of figure 19.
BEAM = 16
BEAMS = (4, 8, 16, 32, 64)
# The one effort that growth is measured with (figure 13).
FIXED: dict[str, dict[str, object]] = {
    GRAPH: {"by": "beam", "search_list": 80, "beam_width": BEAM},
    SPANN: {"by": "probes", "probes": 64},
    CLUSTER: {"by": "recall", "asked": 0.95},
}
# Queries at once of figure 7; and few and many, where one thing is changed.
CONCURRENCIES = (1, 4, 16, 64)
ENDS = (4, 64)


@dataclass(frozen=True)
class Measured:
    """Everything that was measured, and the line about the run."""

    run: Record
    points: list[Record]
    sizes: list[Record]
    cached: list[Record]

    @property
    def first(self) -> str:
        """The set that all figures but those of several sets are of."""
        name: str = self.run["sets"][0]["name"]
        return name

    def of(self, index: str, beam: int | None = None, of_set: str | None = None) -> list[Record]:
        """The points of an index of a set, the first where none is named, by recall; of graphs with this W."""
        beam = (beam or BEAM) if index in GRAPHS else None
        found = [
            point
            for point in self.points
            if (point["set"], point["index"], beam_width(point)) == (of_set or self.first, index, beam)
        ]
        return sorted(found, key=lambda point: point["recall"])

    def speeds(
        self, index: str, concurrency: int, beam: int | None = None, of_set: str | None = None
    ) -> Values:
        """Queries a second over recall."""
        return speeds(self.of(index, beam, of_set), concurrency)

    def counted(self, index: str, of: Counter, beam: int | None = None) -> Values:
        """A counter over recall, of the first set."""
        return counters(self.of(index, beam), of)

    def both(self, concurrency: int, of_set: str | None = None) -> tuple[Values, Values]:
        """Queries a second of graph and posting lists with so many at once."""
        graph, lists = (self.speeds(index, concurrency, of_set=of_set) for index in (GRAPH, SPANN))
        return graph, lists

    def concurrencies(self, wanted: Sequence[int]) -> list[int]:
        """Those of the wanted that there are speeds of; all that there are of where it is none of them."""
        there = {load["concurrency"] for point in self.points for load in point["loads"]}
        return [one for one in wanted if one in there] or sorted(there)

    def growth(self, index: str) -> list[Record]:
        """The points of one effort by the number of vectors (figure 13)."""
        found = [
            point
            for point in self.points
            if point["index"] == index
            and (point["set"] == self.first or point["set"].startswith(f"{self.first}-n"))
            and is_fixed(point)
        ]
        return sorted(found, key=lambda point: point["vectors"])


def is_fixed(point: Record) -> bool:
    """Whether a point is of the effort that growth is measured with."""
    return all(point.get(name) == value for name, value in FIXED[point["index"]].items())


def beam_width(effort: Record) -> int | None:
    """W, of a graph."""
    return effort.get("beam_width")


def effort_words(effort: Record) -> str:
    """An effort as tables have it."""
    if effort["by"] == "beam":
        return f"L {effort['search_list']}, W {effort['beam_width']}"
    if effort["by"] == "probes":
        return f"nprobe {effort['probes']}"
    return f"recall {shown(effort['asked'])}"
