"""Advice before a build: which index suits the data, the devices and the limits."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from bathyal import _bathyal
from bathyal.arguments import Metric, Path, memory_bytes, place, store_pairs, whole
from bathyal.files import describe, read_vectors, source
from bathyal.inputs import QUERIES, ArgumentLabel, is_path, rows
from bathyal.progress import Receiver, progress_receiver
from bathyal.report import Report
from bathyal.schema import Element

DATA = ArgumentLabel("data", "vector")
Pace = Literal["quick", "usual", "thorough"]
DEFAULT_RECALL = 0.95
COLUMNS = ("index", "on", "disk MB", "memory MB", "reads", "kB read", "queries/s", "p50 us", "build s")


class Advice:
    """The predicted indexes that meet the limits, the best first. A notebook shows them as a table.

    >>> import numpy as np, bathyal
    >>> vectors = np.random.default_rng(1).standard_normal((4000, 16), dtype=np.float32)
    >>> advice = bathyal.advise(vectors, on=["dram"], pace="quick", families=["cluster"], progress=False)
    >>> advice.ranked[0]["build"]["family"], advice.ranked[0]["disk_bytes"]["value"] > vectors.nbytes
    ('cluster', True)
    >>> index = bathyal.build(vectors, "advised.index", **advice.build_options())
    """

    def __init__(self, report: dict[str, Any], plans: Sequence[str]) -> None:
        self.report = report
        """All numbers, as ``bathyal advise --json`` prints them."""
        self._plans = plans

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """The indexes that meet all limits, the recommended one first. Each number is a dictionary of its
        ``value`` and the ``low`` and ``high`` end of its interval."""
        ranked: list[dict[str, Any]] = self.report["ranked"]
        return ranked

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """The other indexes, with the ``reasons``."""
        left_out: list[dict[str, Any]] = self.report["left_out"]
        return left_out

    @property
    def front(self) -> list[dict[str, Any]]:
        """The indexes that no other one beats in memory, disk and speed."""
        front: list[dict[str, Any]] = self.report["front"]
        return front

    @property
    def other_recalls(self) -> list[Advice]:
        """The advice for the other recalls, if several were given."""
        reports = self.report.get("other_recalls", [])
        return [Advice(report, _bathyal.advice_plans(json.dumps(report))) for report in reports]

    @property
    def notes(self) -> list[str]:
        """Notes about the advice."""
        notes: list[str] = self.report["notes"]
        return notes

    def build_options(self, rank: int = 0) -> dict[str, Any]:
        """Returns the keywords of :func:`build` for the index number ``rank``, from 0: its ``metric``, and its
        plan (``advice``) with the family, the options and the seed. The index keeps the plan.

        Raises:
            ValueError: there is no such index.
        """
        return {"metric": self.report["metric"], "advice": json.loads(self._plan(rank))}

    def save(self, path: Path, rank: int = 0) -> None:
        """Writes the plan of the index number ``rank``, from 0, for the argument ``advice`` of :func:`build`, for
        ``bathyal build --advice`` and for :func:`check_plan`.

        Raises:
            ValueError: there is no such index.
        """
        pathlib.Path(path).write_text(self._plan(rank), encoding="utf-8")

    def _plan(self, rank: int) -> str:
        """Returns the text of a plan."""
        if not 0 <= rank < len(self._plans):
            reasons = "; ".join(reason for one in self.left_out for reason in one["reasons"])
            raise ValueError(f"rank is {rank}, but {len(self.ranked)} indexes meet all limits: {reasons}")
        return self._plans[rank]

    def _rows(self) -> list[tuple[str, ...]]:
        """Returns the cells of the table."""
        shown = []
        for one in self.ranked:
            load = self._load(one)
            numbers = (
                one["disk_bytes"]["value"] / 1e6,
                one["dram_bytes"]["value"] / 1e6,
                one["reads"]["value"],
                one["moved_bytes"]["value"] / 1e3,
                load["queries_per_second"]["value"],
                load["p50_us"]["value"],
                one["build_seconds"]["value"],
            )
            cells = (f"{number:,.1f}" if number < 100 else f"{number:,.0f}" for number in numbers)
            shown.append((one["label"], one["tier"], *cells))
        return shown

    def _further(self, one: dict[str, Any]) -> list[str]:
        """Returns the recall of a ratio, and the speeds under filters and of a collection, in words."""
        searches = [
            (f"a filter that {100 * of['share']:g}% match, by a {of['plan']}", of)
            for of in one.get("filters", [])
        ]
        recall = []
        if ratio := one.get("pilot_ratio"):
            recall = [f"searched with recall {one['recall']:g}, which has ratio {ratio:.4f} in small indexes"]
        if updates := one.get("updates"):
            segments, rows = updates["segments"], updates["rows_a_day"]
            words = f"a collection of {segments:.1f} segments with {rows:,} rows replaced a day"
            searches.append((words, updates))
        speeds = (
            f"{words}: {self._load(of)['queries_per_second']['value']:,.0f} queries/s"
            for words, of in searches
        )
        return [*recall, *speeds]

    def _load(self, searches: dict[str, Any]) -> dict[str, Any]:
        """Returns the speed at the queries in flight of the request."""
        loads: list[dict[str, Any]] = searches["loads"]
        return next(load for load in loads if load["concurrency"] == self.report["concurrency"])

    def __repr__(self) -> str:
        table = [COLUMNS, *self._rows()]
        widths = [max(len(row[at]) for row in table) for at in range(len(COLUMNS))]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table
        ]
        further = [
            f"{one['label']} on {one['tier']}, {words}" for one in self.ranked for words in self._further(one)
        ]
        reasons = [
            f"left out: {one['label']} on {one['tier']}: {'; '.join(one['reasons'])}" for one in self.left_out
        ]
        return "\n".join([*lines, *further, *reasons, *(f"note: {note}" for note in self.notes)])

    def save_page(self, path: Path) -> None:
        """Writes the advice as a page for a browser, which needs no other file: the table, the reasons, and a plot
        of size against speed. A file that ends in ``.svg`` gets the plot alone.

        Raises:
            ValueError: another ending than ``.html`` and ``.svg``, or no such folder.
        """
        file = pathlib.Path(os.fspath(path))
        file.write_text(_bathyal.advice_page(json.dumps(self.report), file), encoding="utf-8")

    def _repr_html_(self) -> str:
        return _bathyal.advice_page(json.dumps(self.report), None)


def advise(
    data: Any = None,
    queries: Any = None,
    metric: Metric = "l2",
    *,
    recall: float | Sequence[float] | None = None,
    ratio: float | None = None,
    k: int = 10,
    key: str | None = None,
    vectors: int | None = None,
    dim: int | None = None,
    element: Element | None = None,
    filters: Sequence[float] = (),
    rows_a_day: int | None = None,
    on: Sequence[Path] = ("dram", "."),
    store_options: Mapping[str, str] | None = None,
    memory: float | str | None = None,
    disk: float | str | None = None,
    p50_ms: float | None = None,
    p99_ms: float | None = None,
    qps: float | None = None,
    build_seconds: float | None = None,
    build_memory: float | str | None = None,
    dollars_per_month: float | None = None,
    prices: Mapping[str, float] | None = None,
    concurrency: int = 64,
    threads: int = 0,
    pace: Pace = "usual",
    families: Sequence[str] = (),
    seed: int | None = None,
    work_folder: Path | None = None,
    progress: bool | Receiver = True,
) -> Advice:
    """Predicts size, memory and speed of indexes over ``data``, and ranks those that meet the limits. Small indexes
    are built from a sample of the vectors, and searched.

    Args:
        data: vectors, as for :func:`build`, but not an iterator; or a sample of them, with ``vectors``. None
            assumes data of ``vectors`` vectors with ``dim`` components: intervals are then wide.
        queries: queries like those to come; None takes vectors that are held out of the sample.
        metric: as for :func:`build`.
        recall: the recall of searches, as a share; None is 0.95. Of several, the answer is for the first; the same
            small indexes answer the others (:attr:`Advice.other_recalls`).
        ratio: the :func:`overall_ratio` of searches instead; each index gets the least ``recall`` that has it.
        k, key: neighbours per query; the part of the HDF5 or Parquet file ``data`` to read.
        vectors: number of vectors of the index, if ``data`` is only a sample of them, or None.
        dim, element: the shape of vectors that do not exist yet; None is ``"f32"``.
        filters: shares of the rows that filters of searches match, such as ``[0.1, 0.01]``. Searches under them
            are predicted, too (``filters`` of a ranked index), and count as much as those without a filter.
        rows_a_day: rows of a collection that are replaced each day: its segments, merges and searches
            (``updates`` of a ranked index) are predicted, and count.
        on: places that are measured: ``"dram"``, ``"mapped"`` or ``"mapped:PLACE"``, folders, and addresses of
            indexes on memory nodes or in buckets; or files with a profile, as :func:`probe` returns it.
        store_options: options of the stores of addresses, as for :func:`open`.
        memory, disk: the most bytes of the open index and of its files, or text such as ``"2GB"``.
        p50_ms, p99_ms: the most milliseconds of the median query and of the 99th percentile.
        qps, build_seconds, build_memory: the fewest queries a second, the most seconds and bytes of the build.
        dollars_per_month: the most dollars for memory, storage and processors.
        prices: dollars that differ from list prices: of a GB for a month in memory (``dram_gb_month``), on a disk
            (``disk_gb_month``) and in an object store (``bucket_gb_month``); ``thread_hour``.
        concurrency, threads: queries in flight at which limits hold; threads, or 0 for all cores.
        pace: ``"quick"`` answers in seconds, from 8,000 vectors; ``"thorough"`` takes 40,000, and more layouts.
        families: consider only these.
        seed, work_folder: a seed, or None for a fixed one; where small indexes are built, or None for the system's
            temporary folder.
        progress: as for :func:`build`.

    Raises:
        ValueError: fewer than 2,000 vectors, vectors that are all the same, a profile that no device has, limits
            that are not positive, filters that match nothing or everything; neither data nor its shape, or both.
    """
    bits, recalls = metric == "hamming", _recalls(recall, ratio)
    _check_shape(data, queries, vectors, dim, element)
    base = None if data is None else source(data, DATA._replace(bits=bits), key)
    others = (qps, build_seconds, dollars_per_month)
    arguments: _bathyal._AdviceArguments = {
        "metric": metric,
        "k": whole("k", k, least=1),
        "recall": recalls[0],
        "more_recalls": recalls[1:],
        "ratio": None if ratio is None else float(ratio),
        "vectors": _count("vectors", vectors),
        "dim": _count("dim", dim, most=2**32 - 1),
        "element": element or "f32",
        "filters": [float(share) for share in filters],
        "rows_a_day": _count("rows_a_day", rows_a_day),
        "places": [place(one) for one in ([on] if isinstance(on, str) else on)],
        "store": store_pairs(store_options),
        "prices": json.dumps({name: float(price) for name, price in (prices or {}).items()}),
        "limits": json.dumps(_limits((memory, disk, build_memory), (p50_ms, p99_ms), others)),
        "concurrency": whole("concurrency", concurrency, least=1),
        "threads": whole("threads", threads, most=4096),
        "pace": pace,
        "families": [families] if isinstance(families, str) else list(families),
        "seed": None if seed is None else whole("seed", seed),
        "work_folder": None if work_folder is None else pathlib.Path(work_folder),
    }
    with progress_receiver(progress) as receiver:
        report, plans = _bathyal.advise(base, _queries(queries, base, bits), arguments, receiver)
    return Advice(json.loads(report), plans)


def _count(name: str, value: int | None, most: int = 2**63 - 1) -> int | None:
    """Returns a number of rows, vectors or components, or None."""
    return None if value is None else whole(name, value, least=1, most=most)


def _recalls(recall: float | Sequence[float] | None, ratio: float | None) -> list[float]:
    """Returns one recall or several as a list."""
    if recall is None:
        return [DEFAULT_RECALL]
    if ratio is not None:
        raise ValueError("recall and ratio are both given; leave one of them out")
    recalls = [float(one) for one in (recall if isinstance(recall, Sequence) else [recall])]
    if not recalls:
        raise ValueError("recall is an empty list; give one recall or more")
    return recalls


def _limits(
    sizes: tuple[float | str | None, float | str | None, float | str | None],
    milliseconds: tuple[float | None, float | None],
    others: tuple[float | None, float | None, float | None],
) -> dict[str, float | None]:
    """Returns the limits: of memory, disk and memory of the build, of p50 and p99, and of queries a second, seconds
    of the build and dollars a month."""
    dram, disk, build_memory = (memory_bytes(size) for size in sizes)
    p50, p99 = (None if limit is None else 1e3 * float(limit) for limit in milliseconds)
    rate, build_seconds, dollars = others
    return {
        "dram_bytes": dram,
        "disk_bytes": disk,
        "p50_us": p50,
        "p99_us": p99,
        "queries_per_second": rate,
        "build_seconds": build_seconds,
        "build_memory_bytes": build_memory,
        "dollars_per_month": dollars,
    }


def _check_shape(data: Any, queries: Any, vectors: Any, dim: Any, element: Any) -> None:
    """Refuses data beside the shape of vectors that do not exist yet, and the lack of both."""
    if data is None and (vectors is None or dim is None):
        raise ValueError("give data, or vectors and dim of vectors that do not exist yet")
    if data is not None and dim is not None:
        raise ValueError("dim is of vectors that do not exist yet; leave it out, since there is data")
    if element is not None and dim is None:
        raise ValueError("element is of vectors that do not exist yet; leave it out, since there is data")
    if data is None and queries is not None:
        raise ValueError("queries need data; leave them out, or give data or a sample of it")


def _queries(queries: Any, base: Any, bits: bool) -> Any:
    """Returns queries in the element of ``base``, or None without any."""
    if queries is None:
        return None
    element, _, dim = describe(base)
    if is_path(queries):
        queries = read_vectors(queries)
    converted, single = rows(queries, element, QUERIES._replace(holder="the data", bits=bits), dim)
    return converted.reshape(1, -1) if single else converted


def check_plan(
    index: Path, queries: Any, plan: Path | None = None, *, progress: bool | Receiver = True
) -> Report:
    """Searches an index with ``queries`` as its plan assumes, and compares what was predicted with what is
    measured. A notebook shows the numbers as a table.

    ``plan`` is a file that :meth:`Advice.save` has written; None takes the plan that the index keeps since its
    build (``advice`` of :func:`build`).

    Returns ``numbers`` (each with its ``name``, ``predicted``, ``measured``, ``ratio``, and whether it is
    ``within`` its interval) and ``failed`` (a sentence for each number that is not).

    Raises:
        ValueError: the index keeps no plan; the plan was changed, or is for other vectors or another family.
    """
    text = None if plan is None else pathlib.Path(plan).read_text(encoding="utf-8")
    prepared = read_vectors(queries) if is_path(queries) else source(queries, QUERIES)
    with progress_receiver(progress) as receiver:
        compared = json.loads(_bathyal.check_plan(pathlib.Path(index), text, prepared, receiver))
    return Report(compared, "numbers")


def probe(folder: Path, *, thorough: bool = False, progress: bool | Receiver = True) -> Report:
    """Measures the device of a folder by reads of a file that is written there and removed again. A notebook shows
    the report as a table.

    Returns ``profile`` (granularity in bytes, latency in nanoseconds, reads a second, bytes a second, useful
    depth; written to a file as JSON, it is a profile for :func:`open` and :func:`advise`), ``cells`` (the reads a
    second of each block size and depth) and ``seconds``.
    """
    with progress_receiver(progress) as receiver:
        report = json.loads(_bathyal.probe(pathlib.Path(folder), bool(thorough), receiver))
    return Report(report, "cells")
