"""Rows of a collection, and the results of searches in collections."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bathyal import _bathyal

Vectors = NDArray[Any] | dict[str, NDArray[Any]] | None
"""Vectors of rows: an array if the collection has one field, a dictionary of arrays if it has several; None
if they were not requested."""


class Written(NamedTuple):
    """The result of a write: the numbers of rows added, replaced and deleted, and of ids without a row."""

    added: int = 0
    replaced: int = 0
    deleted: int = 0
    missing: int = 0


class Metadata(Mapping[str, NDArray[Any]]):
    """Columns of metadata by their names, as arrays with the shape of the ids.

    Numbers and booleans have their own dtype if no value is missing; dates are ``datetime64[D]`` and times
    ``datetime64[us]`` (in UTC), with NaT for missing values. Other columns are arrays of objects: text,
    lists, and None for missing values. An array is created when it is first read.

    It offers Arrow data (``__arrow_c_stream__``), which pyarrow, polars, duckdb and others read.
    """

    __slots__ = ("_columns", "_made", "_shape")
    # Arrays have no hash.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, columns: _bathyal.Columns, shape: tuple[int, ...]) -> None:
        self._columns = columns
        self._shape = shape
        self._made: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._made:
            self._made[name] = self._columns.values(name).reshape(self._shape)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.names())

    def __len__(self) -> int:
        return len(self._columns.names())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Metadata):
            return NotImplemented
        return self._shape == other._shape and self.to_list() == other.to_list()

    def __repr__(self) -> str:
        return f"Metadata({', '.join(self)})"

    def to_list(self) -> list[dict[str, Any]]:
        """Returns a dictionary for each row, in order."""
        return self._columns.rows()

    def to_pandas(self) -> Any:
        """Returns a DataFrame with these columns. Requires pandas."""
        return _frame({name: self[name].reshape(-1) for name in self})

    def to_arrow(self) -> Any:
        """Returns an Arrow Table. Requires pyarrow."""
        return _arrow_table(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._columns.__arrow_c_stream__(requested_schema)


class _Table:
    """Conversions to tables, for results that consist of rows."""

    __slots__ = ()
    # Arrays have no hash.
    __hash__ = None  # type: ignore[assignment]

    def _named(self) -> dict[str, NDArray[Any]]:
        """Returns the columns before those of the metadata."""
        raise NotImplementedError

    def _metadata(self) -> Metadata:
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Returns a DataFrame with the columns of :meth:`to_arrow`; vectors are arrays. Requires pandas."""
        named = {name: values if values.ndim == 1 else list(values) for name, values in self._named().items()}
        metadata = self._metadata()
        return _frame({**named, **{name: metadata[name].reshape(-1) for name in metadata}})

    def to_arrow(self) -> Any:
        """Returns an Arrow Table with all columns, including ids and vectors. Requires pyarrow."""
        return _arrow_table(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        named = [(name, np.ascontiguousarray(values)) for name, values in self._named().items()]
        return self._metadata()._columns.behind(named).__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, eq=False)
class Rows(_Table):
    """Rows of a collection. :meth:`Collection.add` takes them as they are.

    It offers Arrow data (``__arrow_c_stream__``), with the column ``id``, a column per vector field, and the
    metadata.
    """

    ids: NDArray[Any]
    """Ids: uint64, or objects that are text."""
    metadata: Metadata
    """The requested columns of metadata."""
    vectors: Vectors = None
    """Vectors, ``rows x dim``; a dictionary by field if there are several fields; None unless requested."""
    places: NDArray[np.uint32] | None = None
    """The position of each row among the requested ids; None if the rows were not requested by ids."""
    fields: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    """The fields of the vectors."""

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            return NotImplemented
        mine, theirs = self._named(), other._named()
        same = list(mine) == list(theirs) and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        return same and self.metadata == other.metadata

    def _named(self) -> dict[str, NDArray[Any]]:
        return {"id": self.ids, **_by_field(self.vectors, self.fields)}

    def _metadata(self) -> Metadata:
        return self.metadata


@dataclass(frozen=True, eq=False)
class FoundRows(_Table):
    """The neighbours of each query, nearest first.

    It offers Arrow data (``__arrow_c_stream__``): a row per neighbour, with ``query``, ``rank`` (0 is the
    nearest), ``id``, ``distance``, and the requested columns and vectors. If the collection has a column
    ``query`` or ``rank``, these are named ``query_`` and ``rank_``.
    """

    ids: NDArray[Any]
    """``queries x k`` ids (``k`` for a single query): uint64, or objects that are text."""
    distances: NDArray[np.float32]
    """``queries x k`` distances (``k`` for a single query): squared for l2, negated products for ip, one
    minus cosine."""
    metadata: Metadata
    """The requested columns of each neighbour."""
    vectors: NDArray[Any] | None = dataclasses.field(repr=False)
    """``queries x k x dim`` (``k x dim`` for a single query); None unless requested."""
    matches: int
    """Number of rows that match the filter; of all rows without a filter."""
    plans: tuple[dict[str, Any], ...] = dataclasses.field(repr=False)
    """How each part of the collection was searched: ``part``, ``family``, ``rows``, ``matches``, ``plan`` and
    the ``reason`` for it, ``search_list``."""
    costs: dict[str, Any] = dataclasses.field(repr=False)
    """The costs of all queries together: ``reads``, ``bytes``, ``hops``, ``code_distances``,
    ``full_distances``, ``seconds``, ..."""
    notes: tuple[str, ...] = ()
    """Notes, which were also raised as :class:`SearchWarning`."""
    field: str = dataclasses.field(default="vector", repr=False)
    """The vector field that was searched."""

    def __eq__(self, other: object) -> bool:
        """Compares the answers; plans and costs do not count."""
        if not isinstance(other, FoundRows):
            return NotImplemented
        mine, theirs = self._named(), other._named()
        same = list(mine) == list(theirs) and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        return same and self.metadata == other.metadata

    def _named(self) -> dict[str, NDArray[Any]]:
        beside = {"id": self.ids, "distance": self.distances}
        return _of_queries(beside, self.vectors, {*self.metadata, self.field}, self.field)

    def _metadata(self) -> Metadata:
        return self.metadata


@dataclass(frozen=True, eq=False)
class FoundInMany(_Table):
    """The neighbours of each query in several collections, nearest first: see :func:`search_many`.

    It offers Arrow data as :class:`FoundRows` does, with a column ``collection`` before ``id``.
    """

    collections: NDArray[np.uint32]
    """``queries x k`` numbers of collections, counted in the order of the call (``k`` for a single query)."""
    ids: NDArray[Any]
    """``queries x k`` ids in those collections (``k`` for a single query): uint64, or objects that are
    text."""
    distances: NDArray[np.float32]
    """``queries x k`` distances (``k`` for a single query): squared for l2, negated products for ip, one
    minus cosine."""
    metadata: Metadata
    """The requested columns of each neighbour."""
    vectors: NDArray[Any] | None = dataclasses.field(repr=False)
    """``queries x k x dim`` (``k x dim`` for a single query); None unless requested."""
    matches: int
    """Number of rows that match the filter in all collections together."""
    notes: tuple[str, ...] = ()
    """Notes, which were also raised as :class:`SearchWarning`."""
    field: str = dataclasses.field(default="vector", repr=False)
    """The vector field that was searched."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FoundInMany):
            return NotImplemented
        mine, theirs = self._named(), other._named()
        same = list(mine) == list(theirs) and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        return same and self.metadata == other.metadata

    def _named(self) -> dict[str, NDArray[Any]]:
        beside = {"collection": self.collections, "id": self.ids, "distance": self.distances}
        return _of_queries(beside, self.vectors, {*self.metadata, self.field}, self.field)

    def _metadata(self) -> Metadata:
        return self.metadata


def _of_queries(
    beside: dict[str, NDArray[Any]], vectors: NDArray[Any] | None, taken: set[str], field: str
) -> dict[str, NDArray[Any]]:
    """Returns columns with a row per neighbour: the query, its rank, and the columns of ``beside``, which
    have one shape."""
    query, rank = np.indices(np.atleast_2d(beside["id"]).shape).reshape(2, -1)
    named = {"query": query, "rank": rank, **beside}
    # A column or a field of the collection may have one of these names already.
    named = {f"{name}_" if name in taken else name: one.reshape(-1) for name, one in named.items()}
    if vectors is not None:
        named[field] = vectors.reshape(query.size, vectors.shape[-1])
    return named


def _by_field(vectors: Vectors, fields: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    if vectors is None:
        return {}
    return vectors if isinstance(vectors, dict) else dict(zip(fields, [vectors], strict=True))


def _frame(columns: dict[str, Any]) -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("to_pandas() needs pandas: pip install pandas", name="pandas") from error
    return pandas.DataFrame(columns)


def _arrow_table(value: Any) -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        message = "to_arrow() needs pyarrow: pip install 'bathyal[parquet]'"
        raise ModuleNotFoundError(message, name="pyarrow") from error
    return pyarrow.table(value)
