"""Parquet files with a column of vectors: fixed-size lists, or lists of equal length."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal.arguments import Path
from bathyal.frames import are_lists, of_lists
from bathyal.inputs import ArgumentLabel
from bathyal.inputs import vectors as vectors_of
from bathyal.replace import replacing

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Parquet files need pyarrow: pip install 'bathyal[parquet]'", name="pyarrow"
    ) from error

ROW_GROUP_VALUES = 1 << 22
"""Components of a row group: some 16 MB, so that readers can stream."""


def read_vectors(path: Path, key: str | None) -> NDArray[Any]:
    """Reads the column ``key``, or the only column of lists, as ``vectors x dim``. Numbers of any type are
    converted as arrays are."""
    with open(path, "rb"):
        pass
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{os.fspath(path)}: is not a Parquet file, or is damaged: {error}") from error
    with file:
        key = _column(file.schema_arrow, path, key)
        label = ArgumentLabel(f"{os.fspath(path)}: column {key!r}", "vector")
        vectors: NDArray[Any] | None = None
        row = 0
        for batch in file.iter_batches(columns=[key]):
            if not batch.num_rows:
                continue
            rows = vectors_of(of_lists(pa, batch.column(0), label, row), label, row)
            if vectors is None:
                vectors = np.empty((file.metadata.num_rows, rows.shape[1]), rows.dtype)
            if rows.shape[1] != vectors.shape[1]:
                raise ValueError(
                    f"{label.name}: row {row} has another length ({rows.shape[1]}) than row 0 "
                    f"({vectors.shape[1]}); expected vectors x dim"
                )
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
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for start in range(0, count, group):
            values = pa.array(vectors[start : start + group].reshape(-1))
            column = pa.FixedSizeListArray.from_arrays(values, type=kind)
            writer.write_batch(pa.record_batch([column], schema=schema))


def _column(schema: Any, path: Path, key: str | None) -> str:
    columns = [field.name for field in schema if are_lists(pa, field.type)]
    if key is None:
        if len(columns) != 1:
            problem = (
                f"the columns of lists are {columns}: name one with key="
                if columns
                else "has no column of lists"
            )
            raise ValueError(f"{os.fspath(path)}: {problem}")
        return str(columns[0])
    if key not in columns:
        raise ValueError(f"{os.fspath(path)}: has no column {key!r} of lists, only {columns}")
    return key
