"""Vectors of other dtypes than an index holds: every function takes them, from a path and from an array."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bathyal
from conftest import needed

ROWS = np.random.default_rng(7).standard_normal((60, 4)).astype(np.float32)
WHOLE = np.random.default_rng(8).integers(-(2**20), 2**20, (60, 4)).astype(np.int32)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Writer = Callable[[pathlib.Path, "np.ndarray[Any, Any]"], pathlib.Path]


def parquet(kind: str) -> Writer:
    def write(folder: pathlib.Path, rows: np.ndarray[Any, Any]) -> pathlib.Path:
        pa = needed("pyarrow")
        pq = needed("pyarrow.parquet")
        item = pa.from_numpy_dtype(rows.dtype)
        made = {"list": pa.list_(item), "large": pa.large_list(item), "fixed": pa.list_(item, rows.shape[1])}
        column = pa.array(rows.tolist(), made[kind])
        pq.write_table(
            pa.table({"name": list(range(len(rows))), "vector": column}),
            folder / "v.parquet",
            row_group_size=25,
        )
        return folder / "v.parquet"

    return write


def hdf5(name: str, key: str) -> Writer:
    def write(folder: pathlib.Path, rows: np.ndarray[Any, Any]) -> pathlib.Path:
        h5py = needed("h5py")
        with h5py.File(folder / name, "w") as file:
            file[key] = rows
        return folder / name

    return write


def npy(order: str) -> Writer:
    def write(folder: pathlib.Path, rows: np.ndarray[Any, Any]) -> pathlib.Path:
        np.save(folder / "v.npy", np.asarray(rows, order=order))  # type: ignore[call-overload]
        return folder / "v.npy"

    return write


WRITERS = {
    "parquet list": parquet("list"),
    "parquet large_list": parquet("large"),
    "parquet fixed_size_list": parquet("fixed"),
    "npy": npy("C"),
    "npy in Fortran's order": npy("F"),
    "h5": hdf5("v.h5", "train"),
    "h5ad": hdf5("v.h5ad", "X"),
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "i8", "u2", ">f4", "f2"])
def test_every_function_takes_other_numbers(writer: Writer, dtype: str, tmp_path: pathlib.Path) -> None:
    if dtype == ">f4" and writer in (
        WRITERS["parquet list"],
        WRITERS["parquet large_list"],
        WRITERS["parquet fixed_size_list"],
    ):
        dtype = "f4"
    rows = (WHOLE % 1000 if dtype in ("i4", "i8", "u2") else ROWS).astype(dtype)
    path = writer(tmp_path, rows)
    element = "f16" if dtype == "f2" else "f32"
    expected = rows.astype("f2" if dtype == "f2" else "f4")
    assert np.array_equal(bathyal.read_vectors(path), expected)
    with bathyal.build(path, tmp_path / "i", family="flat", progress=False) as index:
        assert index.element == element
        assert np.array_equal(index.vectors(range(60)), expected)
        assert index.search(path, k=1).ids[:, 0].tolist() == list(range(60))
    bathyal.write_vectors(tmp_path / "base.fbin", expected.astype("f4"))
    ids, _ = bathyal.groundtruth(path, path, k=1, progress=False)
    assert ids[:, 0].tolist() == list(range(60))
    ids, _ = bathyal.groundtruth(tmp_path / "base.fbin", path, k=1, progress=False)
    assert ids[:, 0].tolist() == list(range(60))
    assert bathyal.convert(path, tmp_path / "c.npy", progress=False).rows == 60
    assert np.array_equal(bathyal.read_vectors(tmp_path / "c.npy"), expected)
    docs = bathyal.Collection.create(tmp_path / "c", dim=4, id="u64")
    report = (
        docs.add_file(path, first_id=5, progress=False)
        if path.suffix != ".parquet"
        else docs.add_file(path, id_column="name", columns=[], progress=False)
    )
    first = 0 if path.suffix == ".parquet" else 5
    assert report["added"] == report["rows"] == 60 and next(iter(docs)) == first
    assert np.array_equal(docs.get([first + 9], vectors=True).vectors, expected[9:10].astype("f4"))
    assert docs.search(path, k=1).ids[:, 0].tolist() == list(range(first, first + 60))
    docs.close()


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_values_that_overflow_are_refused_with_their_row(writer: Writer, tmp_path: pathlib.Path) -> None:
    rows = ROWS.astype("f8")
    rows[37, 2] = 1e300
    path = writer(tmp_path, rows)
    for work in (
        lambda: bathyal.read_vectors(path),
        lambda: bathyal.build(path, tmp_path / "i", family="flat", progress=False),
        lambda: bathyal.groundtruth(path, ROWS, k=1, progress=False),
    ):
        with pytest.raises(ValueError, match=r"v\..*row 37, dimension 2 is 1e\+300"):
            work()


def test_nulls_are_named_by_their_row(tmp_path: pathlib.Path) -> None:
    pa = needed("pyarrow")
    pq = needed("pyarrow.parquet")
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float64(), 4), pa.large_list(pa.int32())):
        for broken in (None, [1, None, 3, 4]):
            rows = [[1, 2, 3, 4]] * 57 + [broken] + [[1, 2, 3, 4]] * 2
            column = pa.array(rows, kind)
            pq.write_table(pa.table({"v": column}), tmp_path / "n.parquet", row_group_size=20)
            message = r"column 'v': row 57 has missing values \(nulls\)"
            with pytest.raises(ValueError, match=message):
                bathyal.build(tmp_path / "n.parquet", tmp_path / "i", progress=False)
            for given in (column, pa.chunked_array([column[:30], column[30:]])):
                with pytest.raises(ValueError, match=r"data: row 57 has missing values \(nulls\)"):
                    bathyal.build(given, tmp_path / "i", progress=False)


def test_a_key_names_a_part_wherever_a_message_says_so(tmp_path: pathlib.Path) -> None:
    h5py = needed("h5py")
    path = tmp_path / "cells.h5ad"
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        for name in ("data", "indices", "indptr"):
            group[name] = np.arange(3)
        file["obsm/X_pca"] = ROWS.astype("f8")
        file["obsm/X_umap"] = ROWS[:, :2]
    with pytest.raises(
        ValueError, match=r"'X' is a sparse matrix; name one of \['obsm/X_pca', 'obsm/X_umap'\] with key="
    ):
        bathyal.build(path, tmp_path / "i", progress=False)
    with bathyal.build(path, tmp_path / "i", family="flat", key="obsm/X_pca", progress=False) as index:
        assert np.array_equal(index.vectors(range(60)), ROWS)
    ids, _ = bathyal.groundtruth(path, ROWS, k=1, progress=False, key="obsm/X_pca")
    assert ids[:, 0].tolist() == list(range(60))
    assert bathyal.convert(path, tmp_path / "u.fbin", key="obsm/X_umap", progress=False).columns == 2
    docs = bathyal.Collection.create(tmp_path / "c", dim=4, id="u64")
    assert docs.add_file(path, key="obsm/X_pca", progress=False)["added"] == 60
    docs.close()
    with pytest.raises(ValueError, match="has no dataset 'layers'; name one of"):
        bathyal.read_vectors(path, "layers")
    with pytest.raises(
        ValueError, match="key is 'train', which names a part of a file, but data is not a path"
    ):
        bathyal.build(ROWS, tmp_path / "k", key="train", progress=False)
    bathyal.write_vectors(tmp_path / "v.fbin", ROWS)
    with pytest.raises(ValueError, match=r"a key names a part of .hdf5 and .parquet files"):
        bathyal.build(tmp_path / "v.fbin", tmp_path / "k", key="train", progress=False)


def test_a_parquet_file_of_several_columns_is_built_by_its_key(tmp_path: pathlib.Path) -> None:
    pa = needed("pyarrow")
    pq = needed("pyarrow.parquet")
    column = pa.array(ROWS.tolist(), pa.list_(pa.float64()))
    pq.write_table(pa.table({"a": column, "b": column}), tmp_path / "two.pq")
    with pytest.raises(ValueError, match=r"the columns of lists are \['a', 'b'\]: name one with key="):
        bathyal.build(tmp_path / "two.pq", tmp_path / "i", progress=False)
    with bathyal.build(tmp_path / "two.pq", tmp_path / "i", family="flat", key="b", progress=False) as index:
        assert np.array_equal(index.vectors(range(60)), ROWS)
