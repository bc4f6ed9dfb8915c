"""What a search gives back."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bathyal import _bathyal


class SearchWarning(UserWarning):
    """Something that the caller should know about an answer: fewer neighbours, a recall out of reach."""


class Costs:
    """What each query of a batch cost. Arrays have one entry a query, in the order of the queries.

    Each is made when it is first asked for.
    """

    __slots__ = ("_told",)

    def __init__(self, told: _bathyal.Costs) -> None:
        self._told = told

    @property
    def seconds(self) -> float:
        """From the first query's start to the last one's end."""
        return self._told.seconds

    @property
    def threads(self) -> int:
        """Threads used."""
        return self._told.threads

    @property
    def latencies_ns(self) -> NDArray[np.uint64]:
        """Nanoseconds from each query's start to its answer."""
        return self._told.latencies_ns

    @property
    def hops(self) -> NDArray[np.uint64]:
        """Dependent rounds of reads."""
        return self._told.hops

    @property
    def reads(self) -> NDArray[np.uint64]:
        """Reads."""
        return self._told.reads

    @property
    def bytes(self) -> NDArray[np.uint64]:
        """Bytes read."""
        return self._told.bytes

    @property
    def code_distances(self) -> NDArray[np.uint64]:
        """Distances estimated from codes."""
        return self._told.code_distances

    @property
    def full_distances(self) -> NDArray[np.uint64]:
        """Distances computed from full vectors."""
        return self._told.full_distances

    @property
    def requests(self) -> dict[str, Any] | None:
        """What the object store was asked for the whole batch; None of indexes that are here.

        ``reads`` and ``wanted_bytes`` of the queries; ``requests`` that were sent for them and ``received_bytes``:
        near reads are one request, and each ``retries`` (sent again after a failure) and ``hedges`` (sent a second
        time because the first was late; ``hedges_won`` answered first) is one more; ``throttled``, answers that
        asked for fewer requests; ``dollars``, by the prices that the index was opened with; ``cache``, the blocks
        (``hits``, ``disk_hits``, ``misses``) and bytes that came from a cache in front. Searches of an index at the
        same time share its requests, and each counts all.
        """
        return self._told.requests

    @property
    def own(self) -> dict[str, NDArray[np.uint64]]:
        """What only the index's family counts, by name: see ``counters`` of :func:`bathyal.families`. Each is an
        attribute, too: ``lists`` and ``small_reads`` of ``spann``."""
        return self._told.own

    def __getattr__(self, name: str) -> NDArray[np.uint64]:
        # What is being copied or unpickled has no attributes yet.
        own = {} if name == "_told" else self.own
        if name in own:
            return own[name]
        counters = f"; this family counts {', '.join(own)} besides" if own else ""
        raise AttributeError(f"{type(self).__name__!r} has no {name!r}{counters}", name=name, obj=self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _TOLD}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._told = cast(_bathyal.Costs, SimpleNamespace(**{name: state[name] for name in _TOLD}))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(seconds={self.seconds!r}, threads={self.threads!r})"


_TOLD = tuple(name for name, value in vars(Costs).items() if isinstance(value, property))
"""What the compiled half tells of a batch: what a copy of it has to hold."""


class SearchStats(Costs):
    """What a batch of queries cost. Arrays have one entry a query, in the order of the queries."""

    __slots__ = ("dram_bytes", "k", "queries", "search_list")

    queries: int
    """Number of queries."""
    k: int
    """Neighbours found for each."""
    search_list: int
    """Size of the candidate list (L in DiskANN): what was given, or what the recall took."""
    dram_bytes: int
    """Memory of the open index during the search."""

    def __init__(self, told: _bathyal.Costs, queries: int, k: int, search_list: int, dram_bytes: int) -> None:
        self._told = told
        self.queries = queries
        self.k = k
        self.search_list = search_list
        self.dram_bytes = dram_bytes

    @property
    def qps(self) -> float:
        """Queries answered a second."""
        return self.queries / self.seconds if self.seconds else float("inf")

    @property
    def latency_us(self) -> dict[str, float]:
        """Microseconds a query: ``mean``, ``p50``, ``p95``, ``p99``."""
        taken = self.latencies_ns / 1000
        p50, p95, p99 = np.percentile(taken, [50, 95, 99])
        return {"mean": float(taken.mean()), "p50": float(p50), "p95": float(p95), "p99": float(p99)}

    @property
    def hops_per_query(self) -> float:
        """Mean dependent rounds of reads."""
        return float(self.hops.mean())

    @property
    def reads_per_query(self) -> float:
        """Mean reads."""
        return float(self.reads.mean())

    @property
    def bytes_per_query(self) -> float:
        """Mean bytes read."""
        return float(self.bytes.mean())

    @property
    def distance_computations_per_query(self) -> float:
        """Mean distances, from codes and from full vectors."""
        return float((self.code_distances + self.full_distances).mean())

    def as_dict(self) -> dict[str, Any]:
        """The means and totals under the names that ``bathyal search --json`` gives them."""
        names = (
            "queries k threads search_list qps latency_us reads_per_query bytes_per_query hops_per_query "
            "distance_computations_per_query dram_bytes seconds"
        )
        told = {name: getattr(self, name) for name in names.split()}
        if self.requests is not None:
            told["requests"] = self.requests
        return told | {f"{name}_per_query": float(counts.mean()) for name, counts in self.own.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in SearchStats.__slots__}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name in SearchStats.__slots__:
            setattr(self, name, state[name])

    def __repr__(self) -> str:
        names = ("queries", "k", "threads", "search_list", "seconds", "dram_bytes")
        return f"SearchStats({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


@dataclass(frozen=True)
class Found:
    """The neighbours of each query, nearest first, equal distances in order of id."""

    ids: NDArray[np.uint32]
    """``queries x k`` row numbers (``k`` for a single query)."""
    distances: NDArray[np.float32]
    """``queries x k`` distances (``k`` for a single query): l2 is squared, ip negated, cosine one minus it."""
    stats: SearchStats = field(repr=False)
    """What it cost."""
    notes: tuple[str, ...] = ()
    """What was also raised as a :class:`SearchWarning`."""


@dataclass(frozen=True)
class FoundRanges:
    """The vectors within the radius of each query: a ragged array. ``found[q]`` are the ids and distances of query
    ``q``."""

    offsets: NDArray[np.int64]
    """The neighbours of query ``q`` are ``ids[offsets[q]:offsets[q + 1]]``; one entry more than queries."""
    ids: NDArray[np.uint32]
    """Row numbers, for each query the nearest first."""
    distances: NDArray[np.float32]
    """Their distances, none above the radius: l2 is squared, ip negated, cosine one minus it."""
    costs: Costs = field(repr=False)
    """What it cost, all rounds of a query together."""
    notes: tuple[str, ...] = ()
    """What was also raised as a :class:`SearchWarning`."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        query = range(len(self))[query]
        part = slice(self.offsets[query], self.offsets[query + 1])
        return self.ids[part], self.distances[part]


@dataclass(frozen=True)
class FoundMany:
    """The neighbours of each query in several indexes, nearest first."""

    indexes: NDArray[np.uint32]
    """``queries x k`` numbers of the indexes, in the order of the call (``k`` for a single query)."""
    ids: NDArray[np.uint32]
    """``queries x k`` row numbers in those indexes (``k`` for a single query)."""
    distances: NDArray[np.float32]
    """``queries x k`` distances (``k`` for a single query): l2 is squared, ip negated, cosine one minus it."""
    costs: Costs = field(repr=False)
    """What it cost, all indexes together."""
    notes: tuple[str, ...] = ()
    """What was also raised as a :class:`SearchWarning`."""


def warned(notes: list[str], above: int = 1) -> tuple[str, ...]:
    """Notes, of which the caller of the caller has been warned; ``above`` calls lie between that one and this."""
    for note in notes:
        warnings.warn(note, SearchWarning, stacklevel=above + 2)
    return tuple(notes)
