"""The results of searches."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bathyal import _bathyal

NO_ID = 2**32 - 1
"""Marks a missing neighbour in arrays of ids."""


class SearchWarning(UserWarning):
    """A note on an answer, such as fewer neighbours than requested or a recall that cannot be reached."""


class Costs:
    """The costs of each query of a batch. Arrays have one entry per query, in the order of the queries.

    An array is created when it is first read.
    """

    __slots__ = ("_costs",)

    def __init__(self, costs: _bathyal.Costs) -> None:
        self._costs = costs

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first query to the end of the last one."""
        return self._costs.seconds

    @property
    def threads(self) -> int:
        """Number of threads used."""
        return self._costs.threads

    @property
    def latencies_ns(self) -> NDArray[np.uint64]:
        """Nanoseconds from each query's start to its answer."""
        return self._costs.latencies_ns

    @property
    def hops(self) -> NDArray[np.uint64]:
        """Dependent rounds of reads."""
        return self._costs.hops

    @property
    def reads(self) -> NDArray[np.uint64]:
        """Reads."""
        return self._costs.reads

    @property
    def bytes(self) -> NDArray[np.uint64]:
        """Bytes read."""
        return self._costs.bytes

    @property
    def code_distances(self) -> NDArray[np.uint64]:
        """Distances estimated from codes."""
        return self._costs.code_distances

    @property
    def full_distances(self) -> NDArray[np.uint64]:
        """Distances computed from full vectors."""
        return self._costs.full_distances

    @property
    def requests(self) -> dict[str, Any] | None:
        """The requests to the object store for the whole batch; None for an index on this machine.

        ``reads`` and ``wanted_bytes`` of the queries; the ``requests`` sent for them and their
        ``received_bytes``: near reads share a request, and each of ``retries`` (sent again after a failure)
        and ``hedges`` (sent a second time because the first was late; of these, ``hedges_won`` answered
        first) is one more; ``throttled``, refusals by the store; ``dollars``, by the prices given to
        :func:`open`; ``cache``, the blocks (``hits``, ``disk_hits``, ``misses``) and bytes looked up in the
        cache in front. Searches of an index at the same time share its requests, and each counts all of them.
        """
        return self._costs.requests

    @property
    def own(self) -> dict[str, NDArray[np.uint64]]:
        """Counters that only the index's family has, by name: see ``counters`` of :func:`bathyal.families`.
        Each is also an attribute, such as ``lists`` and ``small_reads`` of ``spann``."""
        return self._costs.own

    def __getattr__(self, name: str) -> NDArray[np.uint64]:
        # An object that is being copied or unpickled has no attributes yet.
        own = {} if name == "_costs" else self.own
        if name in own:
            return own[name]
        counters = f"; the counters of this family are {', '.join(own)}" if own else ""
        raise AttributeError(f"{type(self).__name__!r} has no {name!r}{counters}", name=name, obj=self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _COST_NAMES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._costs = cast(_bathyal.Costs, SimpleNamespace(**{name: state[name] for name in _COST_NAMES}))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(seconds={self.seconds!r}, threads={self.threads!r})"


_COST_NAMES = tuple(name for name, value in vars(Costs).items() if isinstance(value, property))
"""The properties of the compiled object, which a copy must hold."""


class SearchStats(Costs):
    """The costs of a batch of queries. Arrays have one entry per query, in the order of the queries."""

    __slots__ = ("dram_bytes", "k", "queries", "search_list")

    queries: int
    """Number of queries."""
    k: int
    """Neighbours per query."""
    search_list: int
    """Length of the candidate list (L in DiskANN): as given, or as the recall required."""
    dram_bytes: int
    """Memory of the open index during the search."""

    def __init__(
        self, costs: _bathyal.Costs, queries: int, k: int, search_list: int, dram_bytes: int
    ) -> None:
        self._costs = costs
        self.queries = queries
        self.k = k
        self.search_list = search_list
        self.dram_bytes = dram_bytes

    @property
    def qps(self) -> float:
        """Queries per second."""
        return self.queries / self.seconds if self.seconds else float("inf" if self.queries else 0)

    @property
    def latency_us(self) -> dict[str, float]:
        """Microseconds per query: ``mean``, ``p50``, ``p95``, ``p99``."""
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
        """Returns the means and totals under their names in ``bathyal search --json``."""
        names = (
            "queries k threads search_list qps latency_us reads_per_query bytes_per_query hops_per_query "
            "distance_computations_per_query dram_bytes seconds"
        )
        figures = {name: getattr(self, name) for name in names.split()}
        if self.requests is not None:
            figures["requests"] = self.requests
        return figures | {f"{name}_per_query": _mean(counts) for name, counts in self.own.items()}

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
    """The methods that all results share."""

    __slots__ = ()
    # Arrays have no hash.
    __hash__ = None  # type: ignore[assignment]

    def _columns(self) -> dict[str, NDArray[Any]]:
        """Returns columns by their names, with one entry per neighbour."""
        raise NotImplementedError

    def _answers(self) -> tuple[NDArray[Any], ...]:
        """Returns the arrays by which results are compared."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Compares the answers; costs and warnings do not count."""
        if type(self) is not type(other) or not isinstance(other, _Neighbors):
            return NotImplemented
        pairs = zip(self._answers(), other._answers(), strict=True)
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def to_pandas(self) -> Any:
        """Returns a DataFrame with one row per neighbour, in the order of queries and ranks: ``query``,
        ``rank`` (0 is the nearest), ``id`` and ``distance``; for several indexes also ``index``, before the
        id. Requires pandas."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "to_pandas() needs pandas: pip install pandas", name="pandas"
            ) from error
        return pandas.DataFrame(self._columns())

    def to_arrow(self) -> Any:
        """Returns the same as an Arrow Table. Requires pyarrow."""
        try:
            import pyarrow
        except ModuleNotFoundError as error:
            message = "to_arrow() needs pyarrow: pip install 'bathyal[parquet]'"
            raise ModuleNotFoundError(message, name="pyarrow") from error
        return pyarrow.table(self._columns())


def _of_matrix(
    ids: NDArray[np.uint32], distances: NDArray[np.float32], indexes: NDArray[np.uint32] | None = None
) -> dict[str, NDArray[Any]]:
    """Returns the columns of ``queries x k`` neighbours, without missing ones."""
    whole = np.atleast_2d(ids)
    held = whole != NO_ID
    query, rank = np.nonzero(held)
    columns = {"query": query, "rank": rank}
    if indexes is not None:
        columns["index"] = np.atleast_2d(indexes)[held]
    return {**columns, "id": whole[held], "distance": np.atleast_2d(distances)[held]}


@dataclass(frozen=True, eq=False)
class Found(_Neighbors):
    """The neighbours of each query, nearest first; equal distances are in the order of ids.

    Two results are equal if their ids and distances are.

    >>> import numpy as np, bathyal
    >>> line = np.arange(100, dtype=np.float32).reshape(100, 1)
    >>> index = bathyal.build(line, "result.index")
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
    """``queries x k`` distances (``k`` for a single query): squared for l2, negated products for ip, one
    minus cosine."""
    stats: SearchStats = field(repr=False)
    """The costs."""
    notes: tuple[str, ...] = ()
    """Notes, which were also raised as :class:`SearchWarning`."""

    def _columns(self) -> dict[str, NDArray[Any]]:
        return _of_matrix(self.ids, self.distances)

    def _answers(self) -> tuple[NDArray[Any], ...]:
        return self.ids, self.distances


@dataclass(frozen=True, eq=False)
class FoundRanges(_Neighbors):
    """The vectors within the radius of each query, as a ragged array: ``found[q]`` are the ids and distances
    of query ``q``."""

    offsets: NDArray[np.int64]
    """The neighbours of query ``q`` are ``ids[offsets[q]:offsets[q + 1]]``; there is one offset more than
    queries."""
    ids: NDArray[np.uint32]
    """Row numbers, nearest first for each query."""
    distances: NDArray[np.float32]
    """Their distances, none above the radius: squared for l2, negated products for ip, one minus cosine."""
    costs: Costs = field(repr=False)
    """The costs, for all rounds of a query together."""
    notes: tuple[str, ...] = ()
    """Notes, which were also raised as :class:`SearchWarning`."""

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
    """``queries x k`` numbers of indexes, counted in the order of the call (``k`` for a single query)."""
    ids: NDArray[np.uint32]
    """``queries x k`` row numbers in those indexes (``k`` for a single query)."""
    distances: NDArray[np.float32]
    """``queries x k`` distances (``k`` for a single query): squared for l2, negated products for ip, one
    minus cosine."""
    costs: Costs = field(repr=False)
    """The costs, for all indexes together."""
    notes: tuple[str, ...] = ()
    """Notes, which were also raised as :class:`SearchWarning`."""

    def _columns(self) -> dict[str, NDArray[Any]]:
        return _of_matrix(self.ids, self.distances, self.indexes)

    def _answers(self) -> tuple[NDArray[Any], ...]:
        return self.indexes, self.ids, self.distances


def raise_warnings(notes: list[str], above: int = 1) -> tuple[str, ...]:
    """Raises each note as a :class:`SearchWarning` for the user's call, which is ``above`` calls above the
    caller of this function; returns the notes."""
    told = tuple(_bathyal.message_in_python(note) for note in notes)
    for note in told:
        warnings.warn(note, SearchWarning, stacklevel=above + 2)
    return told
