"""HDF5 files in the layout of ann-benchmarks: ``train``, ``test``, ``neighbors``, ``distances``."""

from __future__ import annotations

import os
import shutil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal.arguments import DTYPES, Path
from bathyal.ids import narrow_ids
from bathyal.inputs import ArgumentLabel
from bathyal.inputs import vectors as vectors_of
from bathyal.replace import replacing

try:
    import h5py
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("HDF5 files need h5py: pip install 'bathyal[hdf5]'", name="h5py") from error


VECTORS_KEY = "train"
"""The dataset of vectors in files of ann-benchmarks."""
ANNDATA, ANNDATA_KEY = ".h5ad", "X"
"""The extension of files of AnnData, and their dataset of all observations."""
BLOCK_BYTES = 64 << 20
"""Bytes of a dataset that are converted at once."""


def read_vectors(path: Path, key: str | None) -> NDArray[Any]:
    """Reads the dataset ``key`` (``train`` if None, or ``X`` for AnnData). It is mapped if it is contiguous
    in the file and of an element of Bathyal's; other numbers are converted as arrays are."""
    with _opened(path) as file:
        key = key or (ANNDATA_KEY if os.fspath(path).lower().endswith(ANNDATA) else VECTORS_KEY)
        dataset = _dataset(file, path, key)
        dtype = dataset.dtype
        if dataset.ndim != 2 or dtype.kind not in "fiu":
            raise ValueError(
                f"{os.fspath(path)}: dataset {key!r} is {dataset.shape} of {dtype}, expected vectors x dim of "
                f"numbers; {_others(file)}"
            )
        if dtype.newbyteorder("=") not in DTYPES.values():
            return _converted(dataset, ArgumentLabel(f"{os.fspath(path)}: dataset {key!r}", "vector"))
        holder, offset = _holder(dataset), dataset.id.get_offset()
        if dtype.isnative and holder is not None and offset is not None and dataset.size > 0:
            return np.memmap(holder, dtype, "r", offset=offset, shape=dataset.shape)
        loaded: NDArray[Any] = dataset[:].astype(dtype.newbyteorder("="), copy=False)
        return loaded


def _converted(dataset: Any, label: ArgumentLabel) -> NDArray[Any]:
    """Reads and converts a dataset of other numbers, some rows at a time."""
    rows = max(1, BLOCK_BYTES // max(1, dataset.shape[1] * dataset.dtype.itemsize))
    held = np.empty(dataset.shape, np.float32)
    for start in range(0, len(dataset), rows):
        held[start : start + rows] = vectors_of(dataset[start : start + rows], label, start)
    return held


def _others(file: Any) -> str:
    """Returns a sentence with the datasets that can be named instead."""
    found: list[str] = []

    def note(name: str, held: Any) -> None:
        if isinstance(held, h5py.Dataset) and held.ndim == 2 and held.dtype.kind in "fiu":
            found.append(name)

    file.visititems(note)
    return f"name one of {sorted(found)} with key=" if found else "it has no dataset of vectors x dim"


def read_ids(path: Path) -> tuple[NDArray[np.uint32], NDArray[np.float32] | None]:
    """Reads the dataset ``neighbors``, and ``distances`` if present."""
    with _opened(path) as file:
        ids = _dataset(file, path, "neighbors")[:]
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise ValueError(f"{os.fspath(path)}: 'neighbors' is {ids.shape} of {ids.dtype}, expected ids")
        distances = file["distances"][:].astype(np.float32) if "distances" in file else None
        return narrow_ids(ids, f"{os.fspath(path)}: 'neighbors'"), distances


def write(path: Path, datasets: dict[str, NDArray[Any]]) -> None:
    """Writes ``datasets``, and keeps the others of the file. The file is replaced in one step at the end."""
    with replacing(path) as temporary:
        if os.path.exists(path):
            shutil.copyfile(path, temporary)
        with h5py.File(temporary, "a" if os.path.getsize(temporary) else "w") as file:
            for key, array in datasets.items():
                if key in file:
                    del file[key]
                file.create_dataset(key, data=array)


def _opened(path: Path) -> Any:
    # The errors of h5py do not distinguish a missing file from a bad one.
    with open(path, "rb"):
        pass
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{os.fspath(path)}: is not an HDF5 file, or is damaged: {error}") from error


def _holder(dataset: Any) -> str | None:
    """Returns the file with the bytes of a dataset, which for an external link is not the file that was
    opened. None if the bytes are in several files, or if only HDF5 can locate them."""
    if dataset.is_virtual or dataset.external or dataset.chunks is not None:
        return None
    name = dataset.file.filename
    try:
        opened, named = os.fstat(dataset.file.id.get_vfd_handle()), os.stat(name)
    except (OSError, NotImplementedError, ValueError):
        return None
    return name if os.path.samestat(opened, named) else None


def _dataset(file: Any, path: Path, key: str) -> Any:
    found = file.get(key)
    link = file.get(key, getlink=True) if found is None else None
    if isinstance(link, h5py.ExternalLink):
        raise ValueError(
            f"{os.fspath(path)}: {key!r} is a link to {link.path!r} in the file {link.filename!r}, and nothing "
            "can be read there; put that file beside this one"
        )
    if not isinstance(found, h5py.Dataset):
        sparse = isinstance(found, h5py.Group) and "indptr" in found
        what = f"{key!r} is a sparse matrix" if sparse else f"has no dataset {key!r}"
        raise ValueError(f"{os.fspath(path)}: {what}; {_others(file)}")
    return found
