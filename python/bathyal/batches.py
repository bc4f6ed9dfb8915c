"""Vectors that arrive batch by batch: written to a file, so that memory holds one batch at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bathyal.arguments import DTYPES, Path
from bathyal.inputs import ArgumentLabel, is_path, path_or_vectors, vectors

MOST_VECTORS = 2**32 - 1
BLOCK_BYTES = 64 << 20
"""Bytes of a dataset that are read at once."""
WHOLE = ("__array__", "__array_interface__", "__dlpack__", "__getitem__", "__buffer__")
"""Attributes that only objects have which hold all of their values."""


class BuildTarget(NamedTuple):
    """The index that is built from the batches."""

    target: str
    """Its path or address."""
    overwrite: bool
    """True if it may replace an existing index."""
    scratch: str | None = None
    """The folder in which an index for an address is built, if one is given."""

    def folder(self) -> str | None:
        """Returns the nearest existing folder above the index; None for the folder of temporary files."""
        if "://" in self.target:
            return self.scratch
        folder = os.path.dirname(os.path.abspath(self.target))
        while not os.path.isdir(folder) and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        return folder


@contextmanager
def path_or_array(data: Any, goal: BuildTarget, label: ArgumentLabel) -> Iterator[Path | NDArray[Any]]:
    """Yields ``data`` as a path or an array. Batches are written to a file beside the index, which exists
    while the block runs."""
    if is_path(data) or not _comes_in_batches(data):
        yield path_or_vectors(data, label)
        return
    if not goal.overwrite and os.path.lexists(goal.target):
        # An iterator can be read only once, so refuse before what the build would refuse later.
        message = "already exists; choose another path, or replace it with overwrite=True"
        raise FileExistsError(errno.EEXIST, message, goal.target)
    handle, temporary = tempfile.mkstemp(prefix=".bathyal-", suffix=".batches", dir=goal.folder())
    try:
        with os.fdopen(handle, "wb") as file:
            element = _write(file, _batches(data), label)
        # The suffix names the element.
        written = temporary.removesuffix(".batches") + ("." + element + "bin").replace("f32", "f")
        os.rename(temporary, written)
        temporary = written
        yield written
    except Exception as error:
        # The caller does not know the temporary file, so the message names the argument.
        if isinstance(error, ValueError) and temporary in str(error):
            raise type(error)(str(error).replace(temporary, label.name)) from None
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _comes_in_batches(data: Any) -> bool:
    if isinstance(data, Iterator) or _is_dataset(data):
        return True
    if isinstance(data, Mapping | Set | memoryview) or not hasattr(data, "__iter__"):
        return False
    return not any(hasattr(data, name) for name in WHOLE)


def _is_dataset(data: Any) -> bool:
    """Returns True if ``data`` is a dataset of an open HDF5 file."""
    h5py = sys.modules.get("h5py")
    return h5py is not None and isinstance(data, h5py.Dataset) and data.ndim == 2


def _batches(data: Any) -> Iterator[Any]:
    if not _is_dataset(data):
        return iter(data)
    rows = max(1, BLOCK_BYTES // max(1, data.shape[1] * data.dtype.itemsize))
    return (data[start : start + rows] for start in range(0, data.shape[0], rows))


def _write(file: BinaryIO, batches: Iterator[Any], label: ArgumentLabel) -> str:
    """Writes a header and all batches; returns their element."""
    name = label.name
    file.write(bytes(8))
    first: NDArray[Any] | None = None
    count = 0
    for number, batch in enumerate(batches):
        rows = _rows(batch, label._replace(name=f"{name}, batch {number}"))
        if rows is None:
            continue
        if first is None:
            first = rows[:1].copy()
        if rows.shape[1] != first.shape[1]:
            raise ValueError(
                f"{name}, batch {number}: its vectors have {rows.shape[1]} dimensions, "
                f"those before it {first.shape[1]}"
            )
        if rows.dtype != first.dtype:
            raise ValueError(
                f"{name}, batch {number}: it holds {rows.dtype}, the batches before it {first.dtype}: "
                "convert all to one"
            )
        count += len(rows)
        if count > MOST_VECTORS:
            raise ValueError(
                f"{name}, batch {number}: more than {MOST_VECTORS} vectors, the most that an index holds"
            )
        file.write(rows.data)
    if first is None:
        raise ValueError(f"{name} gave no vectors; an iterator can be read only once, so pass a new one")
    file.seek(0)
    file.write(struct.pack("<II", count, first.shape[1]))
    return next(element for element, dtype in DTYPES.items() if dtype == first.dtype)


def _rows(batch: Any, label: ArgumentLabel) -> NDArray[Any] | None:
    """Returns the vectors of a batch, which may be a single vector, as they are written; None for an empty
    batch."""
    if is_path(batch):
        raise TypeError(
            f"{label.name}: it is the path {os.fspath(batch)!r}; expected an array of vectors x dim"
        )
    if isinstance(batch, list | tuple) and len(batch) == 1 and getattr(batch[0], "ndim", 0) == 2:
        # A loader of PyTorch yields a list of columns.
        batch = batch[0]
    whole = batch if isinstance(batch, np.ndarray) else None
    if whole is None and hasattr(batch, "__len__") and len(batch) == 0:
        return None
    if whole is not None and whole.size == 0 and whole.ndim <= 2:
        return None
    if whole is not None and whole.ndim == 1 and whole.dtype != object:
        batch = whole.reshape(1, -1)
    rows = vectors(batch, label)
    return rows.astype(rows.dtype.newbyteorder("<"), copy=False)
