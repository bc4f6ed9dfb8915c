"""What a search gives back."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bathyal import _bathyal

NO_ID = 2**32 - 1
"""In place of a neighbour that there is none of."""


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
        return self.queries / self.seconds if self.seconds else float("inf" if self.queries else 0)

    @property
    def latency_us(self) -> dict[str, float]:
        """Microseconds a query: ``mean``, ``p50``, ``p95``, ``p99``."""
        if not self.queries:
            return dict.fromkeys(("mean", "p50", "p95", "p99"), 0.0)
        taken = self.latencies_ns / 1000
        p50, p95, p99 = np.percentile(taken, [50, 95, 99])
        return {"mean": float(taken.mean()), "p50": float(p50), "p95": float(p95), "p99": float(p99)}

    @property
    def hops_per_query(self) -> float:
        """Mean dependent rounds of reads."""
        return _mean(self.hops)

    @property
    def reads_per_query(self) -> float:
        """Mean reads."""
        return _mean(self.reads)

    @property
    def bytes_per_query(self) -> float:
        """Mean bytes read."""
        return _mean(self.bytes)

    @property
    def distance_computations_per_query(self) -> float:
        """Mean distances, from codes and from full vectors."""
        return _mean(self.code_distances + self.full_distances)

    def as_dict(self) -> dict[str, Any]:
        """The means and totals under the names that ``bathyal search --json`` gives them."""
        names = (
            "queries k threads search_list qps latency_us reads_per_query bytes_per_query hops_per_query "
            "distance_computations_per_query dram_bytes seconds"
        )
        told = {name: getattr(self, name) for name in names.split()}
        if self.requests is not None:
            told["requests"] = self.requests
        return told | {f"{name}_per_query": _mean(counts) for name, counts in self.own.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in SearchStats.__slots__}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name in SearchStats.__slots__:
            setattr(self, name, state[name])

    def __repr__(self) -> str:
        names = ("queries", "k", "threads", "search_list", "seconds", "dram_bytes")
        return f"SearchStats({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def _mean(counts: NDArray[Any]) -> float:
    return float(counts.mean()) if counts.size else 0.0


class _Neighbors:
    """What all results have in common: neighbours, one after the other."""

    __slots__ = ()
    # Answers are arrays, which have no hash.
    __hash__ = None  # type: ignore[assignment]

    def _columns(self) -> dict[str, NDArray[Any]]:
        """One entry a neighbour, each column by its name."""
        raise NotImplementedError

    def _answers(self) -> tuple[NDArray[Any], ...]:
        """What two results have to agree in."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Whether the answers are the same: what they cost, and warnings, do not count."""
        if type(self) is not type(other) or not isinstance(other, _Neighbors):
            return NotImplemented
        pairs = zip(self._answers(), other._answers(), strict=True)
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def to_pandas(self) -> Any:
        """A DataFrame with one row a neighbour, in the order of the queries and of their ranks: ``query``, ``rank``
        (0 is the nearest), ``id`` and ``distance``; of several indexes ``index`` before the id. Needs pandas."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "to_pandas() needs pandas: pip install pandas", name="pandas"
            ) from error
        return pandas.DataFrame(self._columns())

    def to_arrow(self) -> Any:
        """The same as a Table of Arrow. Needs pyarrow."""
        try:
            import pyarrow
        except ModuleNotFoundError as error:
            message = "to_arrow() needs pyarrow: pip install 'bathyal[parquet]'"
            raise ModuleNotFoundError(message, name="pyarrow") from error
        return pyarrow.table(self._columns())


def _of_matrix(
    ids: NDArray[np.uint32], distances: NDArray[np.float32], indexes: NDArray[np.uint32] | None = None
) -> dict[str, NDArray[Any]]:
    """The columns of ``queries x k`` neighbours, without those that are none."""
    whole = np.atleast_2d(ids)
    held = whole != NO_ID
    query, rank = np.nonzero(held)
    columns = {"query": query, "rank": rank}
    if indexes is not None:
        columns["index"] = np.atleast_2d(indexes)[held]
    return {**columns, "id": whole[held], "distance": np.atleast_2d(distances)[held]}


@dataclass(frozen=True, eq=False)
class Found(_Neighbors):
    """The neighbours of each query, nearest first, equal distances in order of id.

    Two are equal if their ids and distances are.

    >>> import numpy as np, bathyal
    >>> line = np.arange(100, dtype=np.float32).reshape(100, 1)
    >>> index = bathyal.build(line, "told.index")
    >>> found = index.search([[3.0], [70.0]], k=2)
    >>> found == index.search([[3.0], [70.0]], k=2), found == index.search([[3.0], [71.0]], k=2)
    (True, False)
    >>> found.to_pandas()
       query  rank  id  distance
    0      0     0   3       0.0
    1      0     1   2       1.0
    2      1     0  70       0.0
    3      1     1  69       1.0
    """

    ids: NDArray[np.uint32]
    """``queries x k`` row numbers (``k`` for a single query)."""
    distances: NDArray[np.float32]
    """``queries x k`` distances (``k`` for a single query): l2 is squared, ip negated, cosine one minus it."""
    stats: SearchStats = field(repr=False)
    """What it cost."""
    notes: tuple[str, ...] = ()
    """What was also raised as a :class:`SearchWarning`."""

    def _columns(self) -> dict[str, NDArray[Any]]:
        return _of_matrix(self.ids, self.distances)

    def _answers(self) -> tuple[NDArray[Any], ...]:
        return self.ids, self.distances


@dataclass(frozen=True, eq=False)
class FoundRanges(_Neighbors):
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

    def _columns(self) -> dict[str, NDArray[Any]]:
        counts = np.diff(self.offsets)
        rank = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], counts)
        query = np.repeat(np.arange(len(self)), counts)
        return {"query": query, "rank": rank, "id": self.ids, "distance": self.distances}

    def _answers(self) -> tuple[NDArray[Any], ...]:
        return self.offsets, self.ids, self.distances


@dataclass(frozen=True, eq=False)
class FoundMany(_Neighbors):
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

    def _columns(self) -> dict[str, NDArray[Any]]:
        return _of_matrix(self.ids, self.distances, self.indexes)

    def _answers(self) -> tuple[NDArray[Any], ...]:
        return self.indexes, self.ids, self.distances


def warned(notes: list[str], above: int = 1) -> tuple[str, ...]:
    """Notes, of which the caller of the caller has been warned; ``above`` calls lie between that one and this."""
    for note in notes:
        warnings.warn(note, SearchWarning, stacklevel=above + 2)
    return tuple(notes)
