"""Files of vectors and ids as numpy arrays."""

from __future__ import annotations

import os
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bathyal import _bathyal
from bathyal.arguments import DTYPES, Data, Path, columns, whole
from bathyal.ids import MOST_ID, narrow_ids
from bathyal.inputs import VECTORS, ArgumentLabel, is_path, path_or_vectors, rows
from bathyal.inputs import vectors as vectors_of
from bathyal.progress import Receiver, progress_receiver

BIN_HEADER_BYTES = 8
ROW_PREFIX_BYTES = 4
HDF5 = (".hdf5", ".h5", ".h5ad")
PARQUET = (".parquet", ".pq")
FIXED = {
    ".fbin": "f32",
    ".f16bin": "f16",
    ".u8bin": "u8",
    ".i8bin": "i8",
    ".bf16bin": "bf16",
    ".b1bin": "b1",
    ".fvecs": "f32",
    ".bvecs": "u8",
}
"""The element of the formats that have only one."""
ELEMENTS = ("f32", "f16", "bf16", "u8", "i8", "b1")


class Converted(NamedTuple):
    """The shape and element of the file that :func:`convert` has written."""

    rows: int
    columns: int
    element: str | None
    """``"f32"``, ``"f16"``, ``"u8"``, ``"i8"``; None for a file of ids."""


def extension(path: Path) -> str:
    """Returns the extension of ``path`` in lower case, with its dot."""
    return pathlib.Path(path).suffix.lower()


def source(data: Any, label: ArgumentLabel, key: str | None = None) -> Data:
    """Returns ``data`` as the compiled module takes it: the path of a file that it reads itself, or else an
    array. ``key`` names a part of a file, as for :func:`read_vectors`."""
    if not is_path(data):
        if key is not None:
            raise ValueError(f"key is {key!r}, which names a part of a file, but {label.name} is not a path")
        return path_or_vectors(data, label)
    if extension(data) in HDF5 + PARQUET or key is not None:
        return read_vectors(data, key)
    other = _other_npy(data)
    return path_or_vectors(data, label) if other is None else vectors_of(other, _named(label, data))


def _named(label: ArgumentLabel, path: Path) -> ArgumentLabel:
    """Returns ``label`` with the path of the file as its name."""
    return label._replace(name=os.fspath(path))


def _other_npy(path: Path) -> NDArray[Any] | None:
    """Returns the array of a ``.npy`` file that the compiled module does not read, for example of float64 or
    in Fortran order. None for all other files."""
    if extension(path) != ".npy":
        return None
    try:
        loaded: NDArray[Any] = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        # The compiled module has better messages.
        return None
    if loaded.dtype.kind == "V" or (loaded.dtype in DTYPES.values() and loaded.flags.c_contiguous):
        return None
    return loaded


def describe(data: Data) -> tuple[str, int, int]:
    """Returns the element, the number and the dim of vectors."""
    if not isinstance(data, np.ndarray):
        return _bathyal.describe_vectors(data)
    element = next(element for element, dtype in DTYPES.items() if dtype == data.dtype)
    return element, data.shape[0], data.shape[1]


def read_vectors(path: Path, key: str | None = None) -> NDArray[Any]:
    """Reads a file of vectors into an array of ``vectors x dim``.

    * ``.fbin`` ``.f16bin`` ``.u8bin`` ``.i8bin`` ``.npy``: mapped, read-only
    * ``.bf16bin``: the same, as bfloat16 of ``ml_dtypes``, which must be installed
    * ``.b1bin``: the same, as uint8 with eight bits each
    * ``.fvecs`` ``.bvecs``: mapped, read-only, rows not C-contiguous
    * ``.hdf5`` ``.h5`` ``.h5ad``: mapped if the dataset is contiguous, else in memory
    * ``.parquet`` ``.pq``: in memory; lists of any numbers, all equally long

    Numbers of other types (float64, int32) are converted to float32 in memory, as :func:`bathyal.build`
    converts arrays. A mapped file takes address space but no memory of its own. It must not be truncated
    while it is mapped.

    Args:
        key: the dataset of an HDF5 file (``"train"`` if None, as in ann-benchmarks; ``"X"`` for ``.h5ad``,
            whose other datasets have names such as ``"obsm/X_pca"``), or the column of a Parquet file (its
            only column of lists if None). HDF5 requires ``pip install bathyal[hdf5]``, Parquet ``pip install
            bathyal[parquet]``.

    Raises:
        FileNotFoundError, PermissionError, OSError: the file cannot be read.
        ValueError: an unknown extension, or a file that is not of that format.

    >>> import numpy as np, bathyal
    >>> bathyal.write_vectors("four.u8bin", np.arange(12, dtype=np.uint8).reshape(4, 3))
    >>> bathyal.read_vectors("four.u8bin").tolist()
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    """
    kind = extension(path)
    if kind in HDF5:
        from bathyal import hdf5

        return hdf5.read_vectors(path, key)
    if kind in PARQUET:
        from bathyal import parquet

        return parquet.read_vectors(path, key)
    if key is not None:
        raise ValueError(f"{os.fspath(path)}: a key names a part of .hdf5 and .parquet files, not of {kind}")
    other = _other_npy(path)
    if other is not None:
        return vectors_of(other, _named(VECTORS, path))
    element, count, dim = _bathyal.describe_vectors(path)
    dtype, dim = columns(element, dim)
    if kind == ".npy":
        loaded: NDArray[Any] = np.load(path, mmap_mode="r")
        return loaded
    if kind in (".fvecs", ".bvecs"):
        prefix = ROW_PREFIX_BYTES // dtype.itemsize
        return np.memmap(path, dtype, "r", shape=(count, prefix + dim))[:, prefix:]
    return np.memmap(path, dtype, "r", offset=BIN_HEADER_BYTES, shape=(count, dim))


def write_vectors(path: Path, vectors: Any, key: str | None = None) -> None:
    """Writes ``vectors x dim`` (float32, float16, uint8 or int8) to a file, in the format of its extension.

    An existing file is replaced in one step at the end; an error or Ctrl-C leaves it unchanged. An array that
    is not C-contiguous is copied first.

    Args:
        vectors: an array, or anything else that :func:`bathyal.build` takes except batches. Numbers of
            another dtype (float64, int64) are converted to the element of the format, or to float32 if the
            format has several elements.
        key: the dataset of an HDF5 file (``"train"`` if None; the other datasets of the file are kept), or
            the column of a Parquet file (``"vector"`` if None).

    Raises:
        OSError: the file cannot be written (a full disk, no permission).
        ValueError: an unknown extension, an element that the format does not hold, no vectors.

    >>> import numpy as np, bathyal
    >>> bathyal.write_vectors("ones.fbin", np.ones((2, 3), np.float32))
    >>> bathyal.write_vectors("ones.u8bin", np.ones((2, 3), np.float32))
    Traceback (most recent call last):
    ValueError: ones.u8bin: holds u8, expected f32; convert one of the two
    """
    kind = extension(path)
    array = _to_write(vectors, FIXED.get(kind))
    if kind in HDF5:
        from bathyal import hdf5

        hdf5.write(path, {key or "train": array})
    elif kind in PARQUET:
        from bathyal import parquet

        parquet.write_vectors(path, array, key or "vector")
    elif key is not None:
        raise ValueError(f"{os.fspath(path)}: a key names a part of .hdf5 and .parquet files, not of {kind}")
    else:
        _bathyal.write_vectors(path, array)


def _to_write(vectors: Any, element: str | None) -> NDArray[Any]:
    """Returns the array to write, converted to ``element`` if the format has only one and the array has no
    element of Bathyal's."""
    own = getattr(vectors, "dtype", None)
    if element is None or (isinstance(own, np.dtype) and own.newbyteorder("=") in DTYPES.values()):
        return vectors_of(vectors, VECTORS)
    array, single = rows(vectors, element, VECTORS._replace(holder="the file"))
    if single or not array.size:
        what = "has 1 dimension" if single else "holds no vectors"
        raise ValueError(f"vectors {what}, expected vectors x components")
    return array


def read_ids(path: Path) -> tuple[NDArray[np.uint32], NDArray[np.float32] | None]:
    """Reads the ids of neighbours (``.ibin``, ``.ivecs``, and ``neighbors`` of ``.hdf5``).

    Returns:
        ``(ids, distances)``, both ``queries x k``; distances are None if the file has none. A missing id (-1
        in the file) becomes 4294967295.

    Raises:
        ValueError: ids that are not row numbers: below -1, or beyond 32 bits.

    >>> import numpy as np, bathyal
    >>> bathyal.write_ids("truth.ibin", np.array([[3, 1], [2, 0]]))
    >>> ids, distances = bathyal.read_ids("truth.ibin")
    >>> ids.tolist(), distances
    ([[3, 1], [2, 0]], None)
    """
    if extension(path) in HDF5:
        from bathyal import hdf5

        return hdf5.read_ids(path)
    return _bathyal.read_ids(path)


def true_neighbors(given: ArrayLike | Path) -> tuple[NDArray[np.uint32], NDArray[np.float32] | None]:
    """Returns the ids of true neighbours, and their distances if ``given`` is a file that has them."""
    if isinstance(given, str | os.PathLike):
        return read_ids(given)
    ids = np.asarray(given)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(f"groundtruth is {ids.shape} of {ids.dtype}; expected ids, queries x k")
    return narrow_ids(ids, "groundtruth"), None


def write_ids(path: Path, ids: NDArray[Any], distances: NDArray[Any] | None = None) -> None:
    """Writes ids, and distances unless the format is ``.ivecs``, both ``queries x k``. The file appears only
    when it is complete.

    An id of -1 or 4294967295 marks a missing neighbour, if a query has fewer than ``k``. It is written as -1
    to ``.ivecs`` and ``.hdf5``, and as 4294967295 to ``.ibin``, whose ids are unsigned.

    Raises:
        ValueError: an unknown extension, shapes that do not agree, ids beyond 32 bits, or 31 bits in
            ``.ivecs``.
    """
    whole_ids = np.asarray(ids)
    if whole_ids.ndim != 2 or whole_ids.dtype.kind not in "iu":
        raise ValueError(
            f"ids are {whole_ids.shape} of {whole_ids.dtype}, expected queries x k whole numbers"
        )
    small = narrow_ids(whole_ids, "ids")
    far = None if distances is None else np.asarray(distances, dtype=np.float32)
    if far is not None and far.shape != small.shape:
        raise ValueError(f"ids are {small.shape}, distances {far.shape}; expected the same shape")
    if extension(path) in HDF5:
        from bathyal import hdf5

        # Other programs expect -1 for a missing id.
        missing = small == MOST_ID
        signed = np.where(missing, -1, small.astype(np.int64)) if missing.any() else small
        parts: dict[str, NDArray[Any]] = {"neighbors": signed}
        hdf5.write(path, parts if far is None else {**parts, "distances": far})
    else:
        _bathyal.write_ids(path, small, far)


def read_here(path: Path, key: str | None) -> bool:
    """Returns True if only Python, and not the compiled module, reads the vectors of a file."""
    return extension(path) in HDF5 or key is not None or _other_npy(path) is not None


def with_ids(
    path: Path, key: str | None, ids: Path | None, first_id: int, named: bool
) -> tuple[NDArray[Any], Any]:
    """Returns the vectors of a file that is :func:`read_here`, and their ids: those of the file ``ids`` (text
    if ``named``), or numbers from ``first_id`` on."""
    if extension(path) in PARQUET:
        raise ValueError(f"{os.fspath(path)}: its columns are taken by their names; key is for .hdf5 files")
    vectors = read_vectors(path, key)
    if ids is None and named:
        raise ValueError(
            f"{os.fspath(path)}: holds no ids, and the ids of the collection are strings: give a text file with an "
            "id on each line, too"
        )
    if ids is None:
        return vectors, np.arange(first_id, first_id + len(vectors), dtype=np.uint64)
    if extension(ids) == ".npy":
        all_ids: Any = np.load(ids, mmap_mode="r")
    else:
        lines = pathlib.Path(ids).read_text(encoding="utf-8").splitlines()
        all_ids = lines if named else [int(line) for line in lines]
    if len(all_ids) != len(vectors):
        raise ValueError(
            f"{os.fspath(ids)}: has {len(all_ids)} ids for the {len(vectors)} vectors of {os.fspath(path)}"
        )
    return vectors, all_ids


def convert(
    input: Path,
    output: Path,
    element: str | None = None,
    rows: tuple[int, int] | None = None,
    progress: bool | Receiver = True,
    *,
    key: str | None = None,
) -> Converted:
    """Copies a file of vectors or of ids to another format, in a stream.

    f32 is rounded to f16; values for 8-bit elements must be whole numbers in range. Files that
    :func:`read_vectors` reads into memory are converted in memory.

    Args:
        element: the element of the output: ``"f32"``, ``"f16"``, ``"bf16"``, ``"u8"``, ``"i8"`` or ``"b1"``;
            None takes that of its format, else that of the input.
        rows: ``(start, end)``, the rows to copy; None copies all.
        key: the part of the input, as for :func:`read_vectors`.

    >>> import numpy as np, bathyal
    >>> bathyal.write_vectors("rows.fbin", np.arange(20, dtype=np.float32).reshape(10, 2))
    >>> bathyal.convert("rows.fbin", "rows.u8bin", rows=(2, 5))
    Converted(rows=3, columns=2, element='u8')
    """
    if element is not None and element not in ELEMENTS:
        raise ValueError(f"unknown element {element!r}: it is one of {', '.join(ELEMENTS)}")
    here = extension(input) in HDF5 + PARQUET or extension(output) in HDF5 + PARQUET
    if here or key is not None or _other_npy(input) is not None:
        return _convert_here(input, output, element, rows, key)
    span = None if rows is None else (whole("rows", rows[0]), whole("rows", rows[1]))
    with progress_receiver(progress) as receiver:
        return Converted(*_bathyal.convert(input, output, element, span, receiver))


def _convert_here(
    input: Path, output: Path, element: str | None, rows: tuple[int, int] | None, key: str | None
) -> Converted:
    """Converts from or to a format that only Python reads."""
    vectors = read_vectors(input, key)
    if rows is not None:
        start, end = whole("rows", rows[0]), whole("rows", rows[1])
        if not start < end <= len(vectors):
            raise ValueError(
                f"{os.fspath(input)}: rows {start} to {end} were requested, and there are {len(vectors)}"
            )
        vectors = vectors[start:end]
    name = element or FIXED.get(extension(output))
    if name == "b1":
        raise ValueError(f"{os.fspath(input)}: this format cannot be converted to bits; write a .fbin first")
    if name is not None and vectors.dtype != DTYPES[name]:
        with np.errstate(over="ignore", invalid="ignore"):
            changed = vectors.astype(DTYPES[name])
        exact = DTYPES[name].kind != "f"
        if not (np.array_equal(changed, vectors) if exact else np.isfinite(changed).all()):
            raise ValueError(
                f"{os.fspath(input)}: holds values that {name} cannot hold: scale or round them first"
            )
        vectors = changed
    write_vectors(output, vectors)
    written = next(element for element, dtype in DTYPES.items() if dtype == vectors.dtype)
    return Converted(vectors.shape[0], vectors.shape[1], written)
