"""Columns and frames of pandas, Arrow and polars as arrays. None of these libraries is imported here, because
a caller who passes such an object has imported it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bathyal.inputs import ArgumentLabel


def array(value: Any, label: ArgumentLabel) -> NDArray[Any] | None:
    """Returns the vectors of a frame or a column; None for anything else."""
    for module, convert in (("pandas", _of_pandas), ("pyarrow", _of_arrow), ("polars", _of_polars)):
        library = sys.modules.get(module)
        # A module whose import is not complete, or failed, lacks its classes.
        if library is not None and type(value).__module__.partition(".")[0] == module:
            return convert(library, value, label)
    return None


def _one_column(columns: list[str], lists: list[str], label: ArgumentLabel, kind: str) -> str | None:
    """Returns the column of lists to use; None if all columns are numbers."""
    if not lists:
        return None
    if len(columns) > 1:
        raise ValueError(
            f"{label.name} is a {kind} with the columns {columns}; expected one of vectors, or numbers in all: "
            f"choose one, as {label.name}[{lists[0]!r}]"
        )
    return lists[0]


def _nulls(label: ArgumentLabel, row: int) -> ValueError:
    return ValueError(f"{label.name}: row {row} has missing values (nulls); leave such rows out")


def _of_pandas(pandas: Any, value: Any, label: ArgumentLabel) -> NDArray[Any] | None:
    if isinstance(value, pandas.DataFrame):
        lists = [
            str(name)
            for name, kind in value.dtypes.items()
            if kind == np.dtype(object) or _is_list(pandas, kind)
        ]
        if _one_column([str(name) for name in value.columns], lists, label, "DataFrame") is not None:
            return _of_pandas(pandas, value.iloc[:, 0], label)
        numbers: NDArray[Any] = value.to_numpy()
        missing = value.isna().to_numpy().any(axis=1)
        if numbers.dtype == object and bool(missing.any()):
            raise _nulls(label, int(np.argmax(missing)))
        numeric = all(pandas.api.types.is_numeric_dtype(kind) for kind in value.dtypes)
        # numpy has nullable whole numbers as objects.
        return value.to_numpy(dtype=np.float64) if numbers.dtype == object and numeric else numbers
    if not isinstance(value, pandas.Series):
        return None
    if _is_list(pandas, value.dtype):
        return _of_arrow(sys.modules["pyarrow"], value.array.__arrow_array__(), label)
    held: NDArray[Any] = value.to_numpy()
    if held.dtype == object:
        missing = [row for row, one in enumerate(held) if one is None or one is pandas.NA or _is_nan(one)]
        if missing:
            raise ValueError(f"{label.name}: row {missing[0]} is missing; leave such rows out")
        if not len(held):
            return np.empty((0, 0), np.float32)
    return held


def _is_nan(one: Any) -> bool:
    return isinstance(one, float) and one != one


def _is_list(pandas: Any, kind: Any) -> bool:
    """Returns True if a dtype of pandas is an Arrow list."""
    arrow = getattr(pandas, "ArrowDtype", None)
    if arrow is None or not isinstance(kind, arrow):
        return False
    return are_lists(sys.modules["pyarrow"], kind.pyarrow_dtype)


def are_lists(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    if isinstance(kind, arrow.BaseExtensionType):
        kind = kind.storage_type
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _of_arrow(arrow: Any, value: Any, label: ArgumentLabel, first: int = 0) -> NDArray[Any] | None:
    if isinstance(value, arrow.Table | arrow.RecordBatch):
        lists = [field.name for field in value.schema if are_lists(arrow, field.type)]
        if _one_column(value.schema.names, lists, label, type(value).__name__) is not None:
            return _of_arrow(arrow, value.column(0), label)
        raise ValueError(
            f"{label.name} is a {type(value).__name__} without a column of lists; expected one of vectors"
        )
    if isinstance(value, arrow.ChunkedArray):
        held, row = [], 0
        for chunk in value.chunks:
            part = _of_arrow(arrow, chunk, label, row) if len(chunk) else None
            row += len(chunk)
            if part is not None:
                held.append(part)
        if len({part.shape[1:] for part in held}) > 1:
            raise ValueError(f"{label.name}: its lists are not equally long; expected {label.name} x dim")
        if not held:
            return np.empty((0, 0), np.float32)
        return held[0] if len(held) == 1 else np.concatenate(held)
    if not isinstance(value, arrow.Array):
        return None
    if isinstance(value, arrow.ExtensionArray):
        value = value.storage
    if are_lists(arrow, value.type):
        return of_lists(arrow, value, label, first)
    if value.null_count:
        raise _nulls(label, first + int(np.argmax(value.is_null().to_numpy(zero_copy_only=False))))
    return _numbers(arrow, value, label)


def of_lists(arrow: Any, column: Any, label: ArgumentLabel, first: int = 0) -> NDArray[Any]:
    """Returns the vectors of a column of lists of equal length; ``first`` is the number of its first row in
    messages."""
    if isinstance(column, arrow.ExtensionArray):
        column = column.storage
    if column.null_count:
        raise _nulls(label, first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))))
    if arrow.types.is_fixed_size_list(column.type):
        dim = column.type.list_size
    else:
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        dim = int(lengths[0]) if len(lengths) else 0
        if (lengths != dim).any():
            row = int(np.argmax(lengths != dim))
            raise ValueError(
                f"{label.name}: row {first + row} has another length ({lengths[row]}) than row {first} ({dim}); "
                f"expected {label.name} x dim"
            )
    values = column.flatten()
    if values.null_count:
        raise _nulls(label, first + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // dim)
    return _numbers(arrow, values, label).reshape(len(column), dim)


def _numbers(arrow: Any, values: Any, label: ArgumentLabel) -> NDArray[Any]:
    if not (arrow.types.is_integer(values.type) or arrow.types.is_floating(values.type)):
        raise ValueError(
            f"{label.name} holds {values.type}, expected float, halffloat, uint8 or int8: use .cast(...)"
        )
    numbers: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return numbers


def _of_polars(polars: Any, value: Any, label: ArgumentLabel) -> NDArray[Any] | None:
    if isinstance(value, polars.LazyFrame):
        raise TypeError(f"{label.name} is a LazyFrame, which has no data yet: pass {label.name}.collect()")
    if isinstance(value, polars.DataFrame):
        lists = [name for name, kind in value.schema.items() if kind.is_nested() or kind == polars.Object]
        if _one_column(value.columns, lists, label, "DataFrame") is not None:
            return _of_polars(polars, value.to_series(0), label)
        missing = [column.is_null().to_numpy() for column in value.iter_columns()]
        if any(column.any() for column in missing):
            raise _nulls(label, int(np.argmax(np.any(missing, axis=0))))
        numbers: NDArray[Any] = value.to_numpy()
        return numbers
    if not isinstance(value, polars.Series):
        return None
    if value.null_count():
        raise _nulls(label, int(np.argmax(value.is_null().to_numpy())))
    if isinstance(value.dtype, polars.Array):
        value = value.arr.to_list()
    if not isinstance(value.dtype, polars.List):
        held: NDArray[Any] = value.to_numpy()
        return held
    lengths = value.list.len()
    if lengths.n_unique() > 1:
        raise ValueError(f"{label.name}: its lists are not equally long; expected {label.name} x dim")
    values = value.explode()
    if len(value) and lengths[0] and values.null_count():
        raise _nulls(label, int(np.argmax(values.is_null().to_numpy())) // int(lengths[0]))
    dim = lengths[0] if len(value) else 0
    flat: NDArray[Any] = values.to_numpy() if dim else np.empty(0, np.float32)
    return flat.reshape(len(value), dim)
