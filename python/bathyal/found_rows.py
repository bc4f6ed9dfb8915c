"""Rows of a collection, and what a search in one gives back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bathyal import _bathyal

Vectors = NDArray[Any] | dict[str, NDArray[Any]] | None
"""Vectors of rows: an array of a collection with one field, an array a field of one with several; None where they
were not asked for."""


class Written(NamedTuple):
    """What a change of a collection came to: rows that are new, took the place of others with their ids, or are
    gone, and ids of which there was no row."""

    added: int = 0
    replaced: int = 0
    deleted: int = 0
    missing: int = 0


class Metadata(Mapping[str, NDArray[Any]]):
    """Columns of metadata by their names, as arrays of the shape of the ids beside them.

    Numbers and truth values have their own dtype where no value is missing; dates are ``datetime64[D]`` and times
    ``datetime64[us]`` (in UTC), NaT where missing. All else are arrays of objects: text, lists, and None for what
    is missing. An array is made when it is first asked for.

    It offers Arrow data (``__arrow_c_stream__``): pyarrow, polars, duckdb and others take it as it is.
    """

    __slots__ = ("_columns", "_made", "_shape")
    # Columns are arrays, which have no hash.
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
        """A dictionary for each row, one row after the other."""
        return self._columns.rows()

    def to_pandas(self) -> Any:
        """A DataFrame with one row a row. Needs pandas."""
        return _frame({name: self[name].reshape(-1) for name in self})

    def to_arrow(self) -> Any:
        """A Table of Arrow. Needs pyarrow."""
        return _arrow_table(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._columns.__arrow_c_stream__(requested_schema)


class _Table:
    """What is a table of rows, too."""

    __slots__ = ()
    # Results are arrays, which have no hash.
    __hash__ = None  # type: ignore[assignment]

    def _named(self) -> dict[str, NDArray[Any]]:
        """The columns that stand before those of the metadata."""
        raise NotImplementedError

    def _metadata(self) -> Metadata:
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """A DataFrame with the columns of :meth:`to_arrow`; vectors are arrays. Needs pandas."""
        named = {name: values if values.ndim == 1 else list(values) for name, values in self._named().items()}
        metadata = self._metadata()
        return _frame({**named, **{name: metadata[name].reshape(-1) for name in metadata}})

    def to_arrow(self) -> Any:
        """A Table of Arrow: one row a row, with all that is here as its columns. Needs pyarrow."""
        return _arrow_table(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        named = [(name, np.ascontiguousarray(values)) for name, values in self._named().items()]
        return self._metadata()._columns.behind(named).__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, eq=False)
class Rows(_Table):
    """Rows of a collection. What :meth:`Collection.add` takes as it is.

    It offers Arrow data (``__arrow_c_stream__``), with a column ``id``, one a field of vectors, and the metadata.
    """

    ids: NDArray[Any]
    """Their ids: uint64, or objects that are text."""
    metadata: Metadata
    """Their metadata: the columns that were asked for."""
    vectors: Vectors = None
    """Their vectors, ``rows x dim``, of each field by its name where there are several; None unless asked for."""
    places: NDArray[np.uint32] | None = None
    """Where each of them stands among the ids that were asked for; None where no ids were."""
    fields: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    """The fields that the vectors are of."""

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

    It offers Arrow data (``__arrow_c_stream__``): a row a neighbour, with ``query``, ``rank`` (0 is the nearest),
    ``id``, ``distance``, and what was asked for beside. Where the collection has a column of such a name, it is
    ``query_`` or ``rank_``.
    """

    ids: NDArray[Any]
    """``queries x k`` ids (``k`` of a single query): uint64, or objects that are text."""
    distances: NDArray[np.float32]
    """``queries x k`` distances (``k`` of a single query): l2 is squared, ip negated, cosine one minus it."""
    metadata: Metadata
    """The columns that were asked for, of each neighbour."""
    vectors: NDArray[Any] | None = dataclasses.field(repr=False)
    """``queries x k x dim`` (``k x dim`` of a single query); None unless asked for."""
    matches: int
    """Rows that are there and match the filter."""
    plans: tuple[dict[str, Any], ...] = dataclasses.field(repr=False)
    """How each part of the collection was searched: ``part``, ``family``, ``rows``, ``matches``, ``plan`` and the
    ``reason`` for it, ``search_list``."""
    costs: dict[str, Any] = dataclasses.field(repr=False)
    """What all queries cost together: ``reads``, ``bytes``, ``hops``, ``code_distances``, ``full_distances``,
    ``seconds``, ..."""
    notes: tuple[str, ...] = ()
    """What was also raised as a :class:`SearchWarning`."""
    field: str = dataclasses.field(default="vector", repr=False)
    """The field of vectors that was searched."""

    def __eq__(self, other: object) -> bool:
        """Whether the answers are the same: how they were found, and what they cost, does not count."""
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
    """``queries x k`` numbers of the collections, in the order of the call (``k`` of a single query)."""
    ids: NDArray[Any]
    """``queries x k`` ids in those collections (``k`` of a single query): uint64, or objects that are text."""
    distances: NDArray[np.float32]
    """``queries x k`` distances (``k`` of a single query): l2 is squared, ip negated, cosine one minus it."""
    metadata: Metadata
    """The columns that were asked for, of each neighbour."""
    vectors: NDArray[Any] | None = dataclasses.field(repr=False)
    """``queries x k x dim`` (``k x dim`` of a single query); None unless asked for."""
    matches: int
    """Rows that are there and match the filter, in all of them."""
    notes: tuple[str, ...] = ()
    """What was also raised as a :class:`SearchWarning`."""
    field: str = dataclasses.field(default="vector", repr=False)
    """The field of vectors that was searched."""

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
    """A row a neighbour: the query, its rank, and what stands ``beside``, of which all have one shape."""
    query, rank = np.indices(np.atleast_2d(beside["id"]).shape).reshape(2, -1)
    named = {"query": query, "rank": rank, **beside}
    # A column or a field of the collection may have one of these names.
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
