"""The measurements of ``bathyal-repro cloud``: points of indexes, by set, index and effort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bathyal_bench.repro.cloud.curves import Counter, Values, counters, speeds
from bathyal_bench.repro.numbers import shown
from bathyal_bench.repro.records import Record

GRAPH, SPANN, CLUSTER, CODED = "graph", "spann", "cluster", "coded"
# Indexes with more links, with twice the centroids, and with fewer replicas.
DENSE, FINE = "graph-r256", "spann-s0.32-x8"
FEWER = {4: "spann-s0.16-x4", 2: "spann-s0.16-x2"}
COMPARED = (GRAPH, SPANN, CLUSTER, CODED)
GRAPHS = (GRAPH, DENSE)
# Default W (table 3), and the values of W in figure 19.
BEAM = 16
BEAMS = (4, 8, 16, 32, 64)
# The single effort for measuring growth (figure 13).
FIXED: dict[str, dict[str, object]] = {
    GRAPH: {"by": "beam", "search_list": 80, "beam_width": BEAM},
    SPANN: {"by": "probes", "probes": 64},
    CLUSTER: {"by": "recall", "asked": 0.95},
}
# Concurrencies of figure 7, and the low and high concurrency of comparisons.
CONCURRENCIES = (1, 4, 16, 64)
ENDS = (4, 64)


@dataclass(frozen=True)
class Measured:
    """All measurements of a run, with the line about it."""

    run: Record
    points: list[Record]
    sizes: list[Record]
    cached: list[Record]

    @property
    def first(self) -> str:
        """The set for all figures that do not compare sets."""
        name: str = self.run["sets"][0]["name"]
        return name

    def of(self, index: str, beam: int | None = None, of_set: str | None = None) -> list[Record]:
        """Returns the points of an index, by ascending recall.

        ``of_set`` is the set, by default the first; ``beam`` is W of graphs.
        """
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
        """Returns queries per second over recall."""
        return speeds(self.of(index, beam, of_set), concurrency)

    def counted(self, index: str, counter: Counter, beam: int | None = None) -> Values:
        """Returns a counter over recall, for the first set."""
        return counters(self.of(index, beam), counter)

    def both(self, concurrency: int, of_set: str | None = None) -> tuple[Values, Values]:
        """Returns queries per second of graph and posting lists at this concurrency."""
        graph, lists = (self.speeds(index, concurrency, of_set=of_set) for index in (GRAPH, SPANN))
        return graph, lists

    def concurrencies(self, preferred: Sequence[int]) -> list[int]:
        """Returns the preferred concurrencies that were measured; all measured ones if none of them was."""
        measured = {load["concurrency"] for point in self.points for load in point["loads"]}
        return [one for one in preferred if one in measured] or sorted(measured)

    def growth(self, index: str) -> list[Record]:
        """Returns the points of the single effort, by number of vectors (figure 13)."""
        found = [
            point
            for point in self.points
            if point["index"] == index
            and (point["set"] == self.first or point["set"].startswith(f"{self.first}-n"))
            and is_fixed(point)
        ]
        return sorted(found, key=lambda point: point["vectors"])


def is_fixed(point: Record) -> bool:
    """Returns true if a point has the effort for measuring growth."""
    return all(point.get(name) == value for name, value in FIXED[point["index"]].items())


def beam_width(effort: Record) -> int | None:
    """Returns W of a graph."""
    return effort.get("beam_width")


def effort_words(effort: Record) -> str:
    """Formats an effort for tables."""
    if effort["by"] == "beam":
        return f"L {effort['search_list']}, W {effort['beam_width']}"
    if effort["by"] == "probes":
        return f"nprobe {effort['probes']}"
    return f"recall {shown(effort['asked'])}"
