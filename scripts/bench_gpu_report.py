"""Records and report of bench_gpu.py: resumable measurements, medians, and throughput at equal recall."""

from __future__ import annotations

import json
import math
import pathlib
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

REPEATS = 5
# Recalls at which systems are compared.
COMPARED = (0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Cell:
    """A measurement that is repeated five times."""

    stage: str
    system: str
    # The requested recall; for cuVS the effort.
    effort: str
    # Concurrent queries, or queries per call.
    batch: int


class Records:
    """Measurements by cell. Each is written to a file as soon as it is made."""

    def __init__(self, path: pathlib.Path) -> None:
        """Reads the records of earlier runs, and removes an incomplete last line."""
        self.path = path
        self.by_cell: dict[Cell, list[dict[str, Any]]] = {}
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole)
        for line in whole.splitlines():
            record = json.loads(line)
            cell = Cell(record["stage"], record["system"], record["effort"], record["batch"])
            self.by_cell.setdefault(cell, []).append(record)

    def count(self, cell: Cell) -> int:
        """Returns the number of measurements of a cell."""
        return len(self.by_cell.get(cell, []))

    def add(self, cell: Cell, measured: dict[str, Any]) -> None:
        """Records a measurement."""
        record = {
            "stage": cell.stage,
            "system": cell.system,
            "effort": cell.effort,
            "batch": cell.batch,
            **measured,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.by_cell.setdefault(cell, []).append(record)

    def median(self, cell: Cell, name: str) -> float | None:
        """Returns the median of a cell's measurements, or None if there are none."""
        values = [record[name] for record in self.by_cell.get(cell, []) if record.get(name) is not None]
        return statistics.median(values) if values else None

    def of(self, *stages: str) -> list[Cell]:
        """Returns the cells of some stages, in the order of measurement."""
        return [cell for cell in self.by_cell if cell.stage in stages]


@dataclass(frozen=True)
class Point:
    """Medians of a cell."""

    recall: float
    qps: float
    card_bytes: float | None


def curve(points: Iterable[Point]) -> list[Point]:
    """Returns the points that no other point beats in both recall and queries/s, by increasing recall."""
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.recall, -point.qps)):
        if not best or point.qps > best[-1].qps:
            best.append(point)
    return best[::-1]


def at_recall(points: Iterable[Point], recall: float) -> Point | None:
    """Returns queries/s and memory at a recall, or None above the last point.

    Between two points of the curve, the logarithm of queries/s is interpolated linearly over recall. Below
    the first point, the first point is returned, which exceeds the recall.
    """
    best = curve(points)
    for number, above in enumerate(best):
        if above.recall < recall:
            continue
        if number == 0 or above.recall == recall:
            return Point(recall, above.qps, above.card_bytes)
        below = best[number - 1]
        part = (recall - below.recall) / (above.recall - below.recall)
        qps = math.exp((1 - part) * math.log(below.qps) + part * math.log(above.qps))
        known = [point.card_bytes for point in (below, above) if point.card_bytes is not None]
        return Point(recall, qps, max(known) if known else None)
    return None


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Returns the quotient, or None if a number is missing."""
    return ours / theirs if ours and theirs else None


def compare(records: Records) -> list[dict[str, Any]]:
    """Returns each system at each recall and batch, with quotients of systems of Bathyal and of cuVS."""
    points: dict[tuple[str, str, int], list[Point]] = {}
    for cell in records.of("search", "cuvs"):
        recall, qps = records.median(cell, "recall"), records.median(cell, "qps")
        if recall is not None and qps:
            point = Point(recall, qps, records.median(cell, "card_bytes"))
            points.setdefault((cell.stage, cell.system, cell.batch), []).append(point)
    compared = []
    for recall in COMPARED:
        reached = {key: at_recall(cell_points, recall) for key, cell_points in points.items()}
        found = {key: point for key, point in reached.items() if point is not None}
        for (stage, system, batch), point in found.items():
            over = {
                other: {
                    "qps": ratio(point.qps, theirs.qps),
                    "card_bytes": ratio(point.card_bytes, theirs.card_bytes),
                }
                for (other_stage, other, size), theirs in found.items()
                if (stage, other_stage, size) == ("search", "cuvs", batch)
            }
            row = {"recall": recall, "batch": batch, "system": system, "is_ours": stage == "search"}
            compared.append({**row, "qps": point.qps, "card_bytes": point.card_bytes, "over": over})
    return sorted(compared, key=lambda row: (row["recall"], row["batch"], not row["is_ours"], row["system"]))


def best(compared: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns for each recall the fastest system of Bathyal on a card and of each of cuVS, over all batches."""
    found = []
    for recall in COMPARED:
        rows = [row for row in compared if row["recall"] == recall]
        ours = [row for row in rows if row["is_ours"] and row["card_bytes"]]
        if not ours:
            continue
        first = max(ours, key=lambda row: float(row["qps"]))
        for other in sorted({row["system"] for row in rows if not row["is_ours"]}):
            theirs = max((row for row in rows if row["system"] == other), key=lambda row: float(row["qps"]))
            both = {"recall": recall, "ours": first["system"], "ours_batch": first["batch"]}
            both |= {"theirs": other, "theirs_batch": theirs["batch"]}
            both |= {name: ratio(first[name], theirs[name]) for name in ("qps", "card_bytes")}
            found.append(both)
    return found


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table with the first column left-aligned and the others right-aligned."""
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(value: float | None, digits: int = 0, unit: float = 1.0) -> str:
    """Formats a number for tables; `-` if there is none."""
    return "-" if value is None else f"{value / unit:.{digits}f}"


def measured(records: Records) -> str:
    """Returns the table of the medians of every cell."""
    heads = [
        "system",
        "effort",
        "batch",
        "repeats",
        "recall",
        "queries/s",
        "p50 us",
        "p99 us",
        "MB on the card",
    ]
    rows = []
    for cell in records.of("search", "cuvs"):
        middle = {
            name: records.median(cell, name) for name in ("recall", "qps", "p50_us", "p99_us", "card_bytes")
        }
        rows.append(
            [cell.system, cell.effort, str(cell.batch), str(records.count(cell)), number(middle["recall"], 4)]
            + [number(middle[name]) for name in ("qps", "p50_us", "p99_us")]
            + [number(middle["card_bytes"], 1, 1e6)]
        )
    return table(heads, rows)


def report(records: Records, notes: list[str]) -> tuple[str, dict[str, Any]]:
    """Returns the report as Markdown and as data for JSON."""
    compared = compare(records)
    cards = {
        record["card"] for repeats in records.by_cell.values() for record in repeats if record.get("card")
    }
    text = "# Graphics card, processor and cuVS\n\n"
    text += f"Card: {', '.join(sorted(cards)) or 'not used'}. Medians of up to {REPEATS} repeats.\n"
    text += "".join(f"\n* {note}" for note in notes) + ("\n" if notes else "")
    timed = [[cell.system, number(records.median(cell, "seconds"), 2)] for cell in records.of("commands")]
    if timed:
        text += "\n## Whole commands\n\n" + table(["command", "seconds"], timed)
    text += (
        "\n## At equal recall\n\nInterpolated over recall between measurements. A batch is the number of "
        "concurrent queries, for cuVS that of a call. *MB on the card* is the memory of an index, for cuVS "
        "with the vectors that it needs and without temporary memory. Ratios are Bathyal / cuVS: more "
        "queries/s is better, less memory is better.\n\n"
    )
    others = sorted({other for row in compared for other in row["over"]})
    heads = ["system", "recall", "batch", "queries/s", "MB on the card"]
    heads += [f"{what} over {other}" for other in others for what in ("queries/s", "memory")]
    rows = []
    for row in compared:
        ratios = [row["over"].get(other, {}) for other in others]
        cells = [number(ratio.get(name), 2) for ratio in ratios for name in ("qps", "card_bytes")]
        head = [row["system"], str(row["recall"]), str(row["batch"]), number(row["qps"])]
        rows.append([*head, number(row["card_bytes"], 1, 1e6), *cells])
    text += table(heads, rows)
    first = best(compared)
    if first:
        text += "\n## The fastest of Bathyal on a card, over all batches\n\n"
        heads = ["Bathyal", "batch", "recall", "cuVS", "batch", "queries/s ratio", "memory ratio"]
        rows = [
            [row["ours"], str(row["ours_batch"]), str(row["recall"]), row["theirs"], str(row["theirs_batch"])]
            + [number(row[name], 2) for name in ("qps", "card_bytes")]
            for row in first
        ]
        text += table(heads, rows)
    text += "\n## Measurements\n\nLatencies of cuVS are per call.\n\n" + measured(records)
    return text, {"cards": sorted(cards), "notes": notes, "compared": compared, "best": first}
