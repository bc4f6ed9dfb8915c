"""The rows of a run of posting lists, by device and layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bathyal_bench.repro.records import Record
from bathyal_bench.repro.second_tier.trial import FILE, emulated

COUPLED, DECOUPLED, GROUPED = "coupled", "decoupled", "grouped"
# In the order of figure 11.
LAYOUTS = (COUPLED, DECOUPLED, GROUPED)


@dataclass(frozen=True)
class Lists:
    """A run and its rows."""

    run: Record
    rows: list[Record]

    @property
    def main_layout(self) -> str:
        """The layout of figure 12."""
        found: str = self.run["layouts"][-1]
        return found

    @property
    def devices(self) -> list[str]:
        """The emulated devices, files last."""
        files = [] if self.run["file_queries"] is None else [FILE]
        return [*map(emulated, self.run["devices"]), *files]

    def of(self, device: str, layout: str, in_flight: int) -> list[Record]:
        """Returns the rows of a layout on a device with ``in_flight`` queries in flight, by increasing
        replicas.
        """
        wanted = ("lists", device, layout, in_flight)
        fields = ("family", "device", "layout", "in_flight")
        return [row for row in self.rows if tuple(row[field] for field in fields) == wanted]

    def on(self, device: str, layout: str) -> list[Record]:
        """Returns the pipelined rows of a layout on a device, by increasing replicas."""
        return self.of(device, layout, self.run["in_flight"])

    def counterpart(self, row: Record, layout: str) -> Record | None:
        """Returns the row of another layout with the same replicas on the same device."""
        others = self.on(row["device"], layout)
        return next((other for other in others if other["replicas"] == row["replicas"]), None)

    def pairs(self, device: str, above: str, below: str) -> Iterator[tuple[Record, Record]]:
        """Returns the rows of two layouts on a device with more than 1 replica; with 1 there is no copy to
        save.
        """
        both = zip(self.on(device, above), self.on(device, below), strict=False)
        return ((one, other) for one, other in both if one["replicas"] > 1)
