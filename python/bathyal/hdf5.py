"""HDF5 files in the layout of ann-benchmarks: ``train``, ``test``, ``neighbors``, ``distances``."""

from __future__ import annotations

import os
import shutil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal.arguments import DTYPES, Path
from bathyal.ids import narrow_ids
from bathyal.replace import beside

try:
    import h5py
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("HDF5 files need h5py: pip install 'bathyal[hdf5]'", name="h5py") from error


def read_vectors(path: Path, key: str) -> NDArray[Any]:
    """The dataset ``key``, mapped where its bytes lie in the file as one piece."""
    with _opened(path) as file:
        dataset = _dataset(file, path, key)
        dtype = dataset.dtype
        if dataset.ndim != 2 or dtype.newbyteorder("=") not in DTYPES.values():
            raise ValueError(
                f"{os.fspath(path)}: dataset {key!r} is {dataset.shape} of {dtype}, expected vectors x dim of "
                "float32, float16, uint8 or int8"
            )
        holder, offset = _holder(dataset), dataset.id.get_offset()
        if holder is not None and offset is not None and dataset.size > 0:
            return np.memmap(holder, dtype, "r", offset=offset, shape=dataset.shape)
        loaded: NDArray[Any] = dataset[:].astype(dtype.newbyteorder("="), copy=False)
        return loaded


def read_ids(path: Path) -> tuple[NDArray[np.uint32], NDArray[np.float32] | None]:
    """The datasets ``neighbors`` and, if there, ``distances``."""
    with _opened(path) as file:
        ids = _dataset(file, path, "neighbors")[:]
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise ValueError(f"{os.fspath(path)}: 'neighbors' is {ids.shape} of {ids.dtype}, expected ids")
        distances = file["distances"][:].astype(np.float32) if "distances" in file else None
        return narrow_ids(ids, f"{os.fspath(path)}: 'neighbors'"), distances


def write(path: Path, datasets: dict[str, NDArray[Any]]) -> None:
    """Writes ``datasets``; others that the file has stay. The file is replaced in one step at the end."""
    with beside(path) as temporary:
        if os.path.exists(path):
            shutil.copyfile(path, temporary)
        with h5py.File(temporary, "a" if os.path.getsize(temporary) else "w") as file:
            for key, array in datasets.items():
                if key in file:
                    del file[key]
                file.create_dataset(key, data=array)


def _opened(path: Path) -> Any:
    # h5py's own errors do not tell a missing file from a bad one.
    with open(path, "rb"):
        pass
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{os.fspath(path)}: is no HDF5 file, or a damaged one: {error}") from error


def _holder(dataset: Any) -> str | None:
    """The file that a dataset's bytes lie in: of an external link another one than that which was opened. None
    where they lie in several, or where HDF5 alone knows."""
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
        raise ValueError(f"{os.fspath(path)}: has no dataset {key!r}, only {sorted(file)}")
    return found
