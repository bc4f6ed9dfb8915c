"""Conversion of callers' rows: separate ids, vectors and metadata, or tables with all of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bathyal import _bathyal
from bathyal.found_rows import Rows
from bathyal.inputs import ArgumentLabel
from bathyal.search_request import rows as vectors_of

ID = "id"
"""The column of ids in tables."""


class Shape(NamedTuple):
    """The vector fields of a collection: the name, the element and the dim of each."""

    fields: tuple[tuple[str, str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(name for name, _, _ in self.fields)


class SplitRows(NamedTuple):
    """Rows in the form that the compiled module takes."""

    ids: Any
    vectors: list[NDArray[Any]]
    metadata: Any


def split_rows(shape: Shape, ids: Any, vectors: Any, metadata: Any) -> SplitRows:
    """Returns rows from ids, vectors and metadata, or from a table in ``ids`` with all of them."""
    if vectors is None and metadata is None:
        ids, vectors, metadata = _divided(shape, ids)
    return SplitRows(plain(ids), _of_fields(shape, vectors), plain_columns(metadata))


def _divided(shape: Shape, table: Any) -> tuple[Any, Any, Any]:
    """Returns the ids, vectors and metadata of a table."""
    if isinstance(table, tuple) and 2 <= len(table) <= 3:
        return (*table, None) if len(table) == 2 else table
    if isinstance(table, Rows):
        return table.ids, table.vectors, table.metadata
    if is_frame(table):
        table = {name: table[name] for name in table.columns}
    if isinstance(table, Mapping):
        _complete(shape, list(table))
        rest = {name: value for name, value in table.items() if name not in (ID, *shape.names)}
        return table[ID], {name: table[name] for name in shape.names}, rest
    held = table if isinstance(table, _bathyal.Columns) else _bathyal.Columns.of(table)
    if held is None:
        raise TypeError(
            f"vectors are not given, and the first argument is of type {type(table).__name__}; expected ids and "
            f"vectors, or a table with the columns {', '.join((ID, *shape.names))} and those of the metadata"
        )
    _complete(shape, held.names())
    others = [name for name in held.names() if name not in (ID, *shape.names)]
    # A table without columns has no rows.
    metadata = held.select(others) if others else None
    return held.select([ID]), {name: held.matrix(name) for name in shape.names}, metadata


def _complete(shape: Shape, names: list[str]) -> None:
    missing = [name for name in (ID, *shape.names) if name not in names]
    if missing:
        raise ValueError(
            f"the table has no column {missing[0]!r}; it has {', '.join(map(str, names)) or 'none'}"
        )


def _of_fields(shape: Shape, vectors: Any) -> list[NDArray[Any]]:
    """Returns the vectors of each field, in the order of the schema."""
    if not isinstance(vectors, Mapping):
        if len(shape.fields) > 1:
            raise TypeError(
                f"vectors is of type {type(vectors).__name__}; expected a dictionary with those of each field: "
                f"{', '.join(shape.names)}"
            )
        vectors = {shape.names[0]: vectors}
    unknown = [name for name in vectors if name not in shape.names]
    missing = [name for name in shape.names if vectors.get(name) is None]
    if unknown or missing:
        what = (
            f"there is no field of vectors {unknown[0]!r}"
            if unknown
            else f"vectors of {missing[0]!r} are missing"
        )
        raise ValueError(f"{what}; every row has a vector of each field: {', '.join(shape.names)}")
    return [
        _of_field(vectors[name], name, element, dim, len(shape.fields) > 1)
        for name, element, dim in shape.fields
    ]


def _of_field(vectors: Any, name: str, element: str, dim: int, several: bool) -> NDArray[Any]:
    label = ArgumentLabel(f"vectors[{name!r}]" if several else "vectors", "vector", "the collection")
    rows, single = vectors_of(vectors, element, dim, label)
    return rows.reshape(1, -1) if single else rows


def plain_columns(metadata: Any) -> Any:
    """Returns metadata with columns of pandas converted."""
    if is_frame(metadata):
        return {name: plain(metadata[name]) for name in metadata.columns}
    if isinstance(metadata, Mapping) and not hasattr(metadata, "__arrow_c_stream__"):
        return {name: plain(value) for name, value in metadata.items()}
    return metadata


def is_frame(value: Any) -> bool:
    """Returns True if ``value`` is a DataFrame of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def plain(values: Any) -> Any:
    """Converts a column or an index of pandas to Arrow data or a numpy array, with missing values masked or
    None; returns everything else unchanged."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(values, pandas.Series | pandas.Index):
        return values
    if isinstance(values.dtype, pandas.DatetimeTZDtype):
        index = pandas.DatetimeIndex(values)
        values = index.tz_convert("UTC").tz_localize(None)
    dtype = values.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biufM":
        held: NDArray[Any] = values.to_numpy()
        missing = np.asarray(values.isna())
        return np.ma.masked_array(held, missing) if missing.any() else held
    if "pyarrow" in sys.modules and hasattr(values.array, "__arrow_array__"):
        return values.array.__arrow_array__()
    objects: NDArray[Any] = np.array(values.astype(object), dtype=object)
    objects[np.asarray(values.isna())] = None
    return objects


def condition(filter: str | Mapping[str, Any] | None) -> tuple[bool, str] | None:
    """Returns a filter as ``(is_json, text)``.

    >>> condition("year >= 2020"), condition({"year": {"$gte": np.int64(2020)}}), condition(None)
    ((False, 'year >= 2020'), (True, '{"year": {"$gte": 2020}}'), None)
    >>> condition(["year"])
    Traceback (most recent call last):
    TypeError: filter is of type list; expected text, such as "year >= 2020", or a dictionary
    """
    if filter is None:
        return None
    if isinstance(filter, str):
        return False, filter
    if isinstance(filter, Mapping):
        try:
            return True, json.dumps(dict(filter), default=_as_json, allow_nan=False)
        except RecursionError:
            raise ValueError("the filter is nested more than 100 deep") from None
    kind = type(filter).__name__
    raise TypeError(f'filter is of type {kind}; expected text, such as "year >= 2020", or a dictionary')


def _as_json(value: Any) -> Any:
    """Converts numbers of numpy, arrays, dates and sets in a filter to JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return (value.astype(str) if value.dtype.kind == "M" else value).tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, set | frozenset | range):
        return list(value)
    raise TypeError(f"filter: {value!r} is of type {type(value).__name__}, which no condition compares with")


def names(name: str, wanted: bool | str | Sequence[str], known: Sequence[str]) -> list[str]:
    """Returns the wanted columns or fields: all of ``known`` (True), none (False), or the given names.

    >>> names("columns", True, ["year", "lang"]), names("columns", "year", []), names("columns", False, ["year"])
    (['year', 'lang'], ['year'], [])
    """
    if isinstance(wanted, bool):
        return list(known) if wanted else []
    if isinstance(wanted, str):
        return [wanted]
    chosen = list(wanted)
    if not all(isinstance(one, str) for one in chosen):
        raise TypeError(f"{name} is {wanted!r}; expected True, False or names")
    return chosen
