"""Parquet files with a column of vectors: fixed-size lists, or lists that are all equally long."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal.arguments import DTYPES, Path
from bathyal.replace import beside

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Parquet files need pyarrow: pip install 'bathyal[parquet]'", name="pyarrow"
    ) from error

ROW_GROUP_VALUES = 1 << 22
"""Components of a row group: some 16 MB, so that reading streams."""


def read_vectors(path: Path, key: str | None) -> NDArray[Any]:
    """The column ``key``, or the only column of lists, as ``vectors x dim``."""
    with open(path, "rb"):
        pass
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{os.fspath(path)}: is no Parquet file, or a damaged one: {error}") from error
    with file:
        key, dtype = _column(file.schema_arrow, path, key)
        vectors: NDArray[Any] | None = None
        row = 0
        for batch in file.iter_batches(columns=[key]):
            rows = _matrix(batch.column(0), dtype, path, key, row)
            if vectors is None:
                vectors = np.empty((file.metadata.num_rows, rows.shape[1]), dtype)
            if rows.shape[1] != vectors.shape[1]:
                raise ValueError(_uneven(path, key, row))
            vectors[row : row + len(rows)] = rows
            row += len(rows)
    if vectors is None:
        raise ValueError(f"{os.fspath(path)}: column {key!r} holds no vectors")
    return vectors


def write_vectors(path: Path, vectors: NDArray[Any], key: str) -> None:
    """Writes one column of fixed-size lists. The file is replaced in one step at the end."""
    count, dim = vectors.shape
    if count == 0 or dim == 0:
        raise ValueError(f"the array is {vectors.shape}: there are no vectors to write")
    kind = pa.list_(pa.from_numpy_dtype(vectors.dtype), dim)
    schema = pa.schema([pa.field(key, kind, nullable=False)])
    group = max(1, ROW_GROUP_VALUES // dim)
    with beside(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for start in range(0, count, group):
            values = pa.array(vectors[start : start + group].reshape(-1))
            column = pa.FixedSizeListArray.from_arrays(values, type=kind)
            writer.write_batch(pa.record_batch([column], schema=schema))


def _column(schema: Any, path: Path, key: str | None) -> tuple[str, np.dtype[Any]]:
    lists = [f.name for f in schema if pa.types.is_fixed_size_list(f.type) or pa.types.is_list(f.type)]
    if key is None:
        if len(lists) != 1:
            raise ValueError(f"{os.fspath(path)}: the columns of lists are {lists}: name one with key=")
        key = lists[0]
    elif key not in lists:
        raise ValueError(f"{os.fspath(path)}: has no column {key!r} of lists, only {lists}")
    inner = schema.field(key).type.value_type
    try:
        dtype = np.dtype(inner.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        dtype = np.dtype(object)
    if dtype not in DTYPES.values():
        raise ValueError(
            f"{os.fspath(path)}: column {key!r} holds {inner}, expected float, halffloat, uint8 or int8"
        )
    return key, dtype


def _matrix(column: Any, dtype: np.dtype[Any], path: Path, key: str, row: int) -> NDArray[Any]:
    values = column.flatten()
    if column.null_count or values.null_count:
        raise ValueError(
            f"{os.fspath(path)}: column {key!r} has nulls at or after row {row}; drop those rows"
        )
    if pa.types.is_fixed_size_list(column.type):
        dim = column.type.list_size
    else:
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        dim = int(lengths[0]) if len(lengths) else 0
        if (lengths != dim).any():
            raise ValueError(_uneven(path, key, row + int(np.argmax(lengths != dim))))
    if dim == 0:
        raise ValueError(f"{os.fspath(path)}: column {key!r} holds vectors without components")
    matrix: NDArray[Any] = values.to_numpy(zero_copy_only=False).astype(dtype, copy=False).reshape(-1, dim)
    return matrix


def _uneven(path: Path, key: str, row: int) -> str:
    return f"{os.fspath(path)}: row {row} of column {key!r} has another length than the rows before it"
