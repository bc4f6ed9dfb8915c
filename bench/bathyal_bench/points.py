"""Turns records into points: medians over repeats, figures at equal recall or ratio, flags of unequal memory."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bathyal_bench.suite import UNEQUAL_MEMORY

# Least distance from a recall or ratio of 1, whose logarithm would be infinite: the resolution of 10,000
# queries with k = 10.
LEAST_MISSING = 1e-5
# A point whose ratio is undefined for a larger share of the queries is not compared: the queries without a
# ratio, because they have too few results, would be the worst ones. Smaller shares may stem from neighbours
# at distance 0, which is no fault of a system.
MOST_LEFT_OUT = 0.05
# Figures of a point, with the field of a record that each comes from.
FIGURES = {
    "recall": ("recall",),
    "ratio": ("ratio",),
    "ratio_p99": ("ratio_p99",),
    "qps": ("qps",),
    "mean_us": ("latency_us", "mean"),
    "p50_us": ("latency_us", "p50"),
    "p99_us": ("latency_us", "p99"),
    "reads": ("reads_per_query",),
    "bytes": ("bytes_per_query",),
    "asked": ("asked_reads_per_query",),
    "dram_bytes": ("dram_bytes",),
    "cached_bytes": ("cached_bytes",),
}


@dataclass(frozen=True)
class Goal:
    """A point of comparison: a ``recall`` of at least ``value``, or an overall ``ratio`` of at most
    ``value``.
    """

    figure: str
    value: float

    def __str__(self) -> str:
        return f"{self.figure} {self.value:g}"

    def missing(self, value: float | None = None) -> float:
        """Returns how far this figure, or the goal itself, is from 1, the figure of an exact search."""
        return max(abs(1 - (self.value if value is None else value)), LEAST_MISSING)


@dataclass(frozen=True)
class Point:
    """A system at one effort: medians over the repeats. None stands for figures that the system does not
    report.
    """

    label: str
    figures: dict[str, float | None]
    spreads: dict[str, tuple[float, float]]
    """Least and greatest value over the repeats, for each reported figure."""
    repeats: int
    left_out: float = 0.0
    """Share of the queries that have no ratio."""

    @property
    def recall(self) -> float:
        """Mean recall; 0 if the system reports none."""
        return self.figures["recall"] or 0.0

    @property
    def qps(self) -> float:
        """Queries per second of a batch."""
        return self.figures["qps"] or 0.0


@dataclass(frozen=True)
class Sweep:
    """A system on one data set with one number of threads, by ascending effort."""

    system: str
    points: list[Point]
    curves: dict[str, list[Point]]
    """The points from the worst to the best recall, or ratio, between which figures are interpolated."""
    reads_source: str | None = None
    dram_source: str | None = None
    ratio_source: str | None = None
    note: str | None = None


@dataclass
class Section:
    """Comparable measurements: one data set, one number of neighbours and of threads, warm or cold."""

    data: str
    cache: str
    threads: int
    k: int | None = None
    """Neighbours per query; None in old records, of runs with a single number."""
    sweeps: list[Sweep] = field(default_factory=list)


@dataclass(frozen=True)
class GoalFigures:
    """Figures at a recall or a ratio."""

    figures: dict[str, float | None]
    above: bool
    """True if even the least effort exceeds the goal: the figures are then those of that effort, and not
    equal.
    """
    label: str


def read_records(path: Path) -> list[dict[str, Any]]:
    """Reads the objects of a file of JSON lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def effort_label(effort: dict[str, Any]) -> str:
    """Formats an effort, such as ``search_list 40``; a dash if it has no options."""
    return ", ".join(f"{name} {value}" for name, value in effort.items()) or "–"


def lookup(record: dict[str, Any], keys: Iterable[str]) -> float | None:
    """Returns a figure of a record by its keys in nested objects; None if it is missing."""
    value: Any = record
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return None if value is None else float(value)


def sections(records: list[dict[str, Any]]) -> list[Section]:
    """Groups the measured searches into comparable sections, in the order of the run."""
    groups: dict[tuple[str, str, int, int | None], dict[str, dict[str, list[dict[str, Any]]]]] = {}
    for record in records:
        if record.get("kind") != "search":
            continue
        where = (record["data"], record["cache"], record["threads"], record.get("k"))
        section = groups.setdefault(where, {})
        efforts = section.setdefault(record["system"], {})
        efforts.setdefault(effort_label(record["effort"]), []).append(record)
    found = []
    for (data, cache, threads, k), systems in groups.items():
        sweeps = [summarise(name, efforts) for name, efforts in systems.items()]
        found.append(Section(data, cache, threads, k, sweeps))
    return sorted(found, key=lambda one: (one.data, one.k or 0, one.cache != "warm", one.threads))


def summarise(system: str, efforts: dict[str, list[dict[str, Any]]]) -> Sweep:
    """Computes the medians of each effort."""
    points = []
    for label, records in efforts.items():
        figures: dict[str, float | None] = {}
        spreads = {}
        for name, keys in FIGURES.items():
            values = [value for value in (lookup(one, keys) for one in records) if value is not None]
            figures[name] = statistics.median(values) if values else None
            if values:
                spreads[name] = min(values), max(values)
        left_out = max(left_out_share(one) for one in records)
        points.append(Point(label, figures, spreads, len(records), left_out))
    last = next(iter(efforts.values()))[-1]
    options = {tuple(records[0]["effort"]) for records in efforts.values()}
    one_option = options == {tuple(last["effort"])} and len(last["effort"]) == 1
    choose = rising if one_option else frontier
    curves = {figure: choose(points, figure) for figure in ("recall", "ratio")}
    about = [last.get(name) for name in ("reads_source", "dram_source", "ratio_source", "note")]
    return Sweep(system, points, curves, *about)


def left_out_share(record: dict[str, Any]) -> float:
    """Returns the share of a batch's queries without a ratio; 0 if unknown."""
    queries = record.get("batch_queries")
    return (record.get("ratio_left_out") or 0) / queries if queries else 0.0


def rising(points: list[Point], figure: str = "recall") -> list[Point]:
    """Returns the points of one ascending option, without those no better in recall (or ratio) than a lesser
    value.

    Throughput does not select points: it is noisier than recall, and reads at a recall are interpolated, too.
    """
    best: list[Point] = []
    for point in with_figure(points, figure):
        if not best or distance(point, figure) < distance(best[-1], figure):
            best.append(point)
    return best


def frontier(points: list[Point], figure: str = "recall") -> list[Point]:
    """Returns the points that no other beats in both recall (or ratio) and throughput, from the worst to the
    best.
    """
    best: list[Point] = []
    for point in sorted(with_figure(points, figure), key=lambda one: (distance(one, figure), -one.qps)):
        if not best or point.qps > best[-1].qps:
            best.append(point)
    return best[::-1]


def with_figure(points: list[Point], figure: str) -> list[Point]:
    """Returns the points that have a figure.

    Programs may report a recall and no ratio, and queries with too few results have no ratio.
    """
    some = [point for point in points if point.figures[figure] is not None]
    return [point for point in some if figure != "ratio" or point.left_out <= MOST_LEFT_OUT]


def distance(point: Point, figure: str) -> float:
    """Returns how far a recall or a ratio is from 1."""
    value = point.figures[figure]
    return math.inf if value is None else abs(1 - value)


def at_goal(sweep: Sweep, goal: Goal) -> GoalFigures | None:
    """Returns the figures of a system at a goal; None if it does not reach it."""
    return between_points(sweep.curves[goal.figure], goal)


def at_recall(curve: list[Point], target: float) -> GoalFigures | None:
    """Returns the figures at a recall; None if it is not reached."""
    return between_points(curve, Goal("recall", target))


def at_ratio(curve: list[Point], target: float) -> GoalFigures | None:
    """Returns the figures at an overall ratio; None if it is not reached."""
    return between_points(curve, Goal("ratio", target))


def between_points(curve: list[Point], goal: Goal) -> GoalFigures | None:
    """Interpolates the figures at a goal between the points on either side; None if it is not reached.

    Logarithms of figures are interpolated over the logarithm of the distance from a recall or ratio of 1,
    where such curves are nearly straight. Figures of zero are interpolated linearly.
    """
    gaps = [goal.missing(point.figures[goal.figure]) for point in curve]
    target = goal.missing()
    if not curve or gaps[-1] > target:
        return None
    if gaps[0] <= target:
        return GoalFigures(dict(curve[0].figures), gaps[0] < target, curve[0].label)
    for (low, low_gap), (high, high_gap) in itertools.pairwise(zip(curve, gaps, strict=True)):
        if high_gap <= target:
            share = math.log(target / low_gap) / math.log(high_gap / low_gap)
            figures = {name: between(low.figures[name], high.figures[name], share) for name in FIGURES}
            return GoalFigures(figures | {goal.figure: goal.value}, False, f"{low.label} to {high.label}")
    return None


def between(low: float | None, high: float | None, share: float) -> float | None:
    """Interpolates a figure at ``share`` of the way from ``low`` to ``high``."""
    if low is None or high is None:
        return None
    if low <= 0 or high <= 0:
        return low + share * (high - low)
    return math.exp((1 - share) * math.log(low) + share * math.log(high))


def memory_flag(own: float | None, reference: float | None) -> str | None:
    """Describes a difference in memory from the reference; None if the two are equal enough.

    >>> memory_flag(100e6, 95e6), memory_flag(150e6, 100e6), memory_flag(40e6, 100e6)
    (None, 'unequal memory: +50%', 'unequal memory: -60%')
    """
    if own is None or reference is None:
        return "memory not known"
    if reference <= 0:
        return None if own <= 0 else "unequal memory"
    difference = own / reference - 1
    # A difference of a tenth in either direction: 10% more of one is 9.1% less of the other.
    if max(own, reference) <= min(own, reference) * (1 + UNEQUAL_MEMORY):
        return None
    return f"unequal memory: {difference:+.0%}"


def reference_names(records: list[dict[str, Any]], section: Section) -> tuple[str, ...]:
    """Returns the systems that others are compared with: the suite's, or the first measured one."""
    names = [sweep.system for sweep in section.sweeps]
    suite = next((one["suite"] for one in records if one.get("kind") == "run"), {})
    # Old records name a single reference.
    wanted = suite.get("references", [suite.get("reference")])
    return tuple(name for name in wanted if name in names) or tuple(names[:1])


def held_bytes(figures: dict[str, float | None]) -> float | None:
    """Returns the memory that a system needs, including what the kernel caches for it."""
    own = figures["dram_bytes"]
    return None if own is None else own + (figures["cached_bytes"] or 0.0)


def nearest_reference(own: GoalFigures, references: dict[str, GoalFigures]) -> str | None:
    """Returns the reference with the most similar memory; the first if memory is unknown."""

    def difference(name: str) -> float:
        other, held = held_bytes(references[name].figures), held_bytes(own.figures)
        return abs(math.log(max(held, 1.0) / max(other, 1.0))) if held and other else 0.0

    return min(references, key=difference, default=None)


def latest_builds(records: list[dict[str, Any]], data: str) -> dict[str, dict[str, Any]]:
    """Returns the last build of each system on a data set."""
    return {one["system"]: one for one in records if one.get("kind") == "build" and one["data"] == data}


def data_names(records: list[dict[str, Any]]) -> list[str]:
    """Returns the data sets of a run, in its order."""
    return list(dict.fromkeys(one["data"] for one in records if one.get("kind") == "data"))


def gaps(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the records of skipped and failed systems, once per system and reason."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        if record.get("kind") in ("skipped", "failed"):
            seen.setdefault((record["system"], record["reason"]), record)
    return list(seen.values())
