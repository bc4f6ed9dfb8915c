"""Files of vectors and ids, in and out."""

import numpy as np
import pytest

import bathyal
from conftest import DTYPES, clustered, distances, needed

FORMATS = {
    "f32": [".fbin", ".fvecs", ".npy", ".hdf5", ".parquet"],
    "f16": [".f16bin", ".npy", ".h5", ".parquet"],
    "u8": [".u8bin", ".bvecs", ".npy", ".hdf5", ".parquet"],
    "i8": [".i8bin", ".npy", ".hdf5", ".parquet"],
}
OPTIONAL = {".hdf5": "h5py", ".h5": "h5py", ".parquet": "pyarrow"}


@pytest.mark.parametrize(("element", "extension"), [(e, x) for e, many in FORMATS.items() for x in many])
def test_vectors_round_trip(element, extension, tmp_path):
    if extension in OPTIONAL:
        needed(OPTIONAL[extension])
    vectors = clustered(element, 50, 7, 1)
    path = tmp_path / f"vectors{extension}"
    bathyal.write_vectors(path, vectors)
    read = bathyal.read_vectors(path)
    assert read.dtype == DTYPES[element] and read.shape == (50, 7)
    np.testing.assert_array_equal(read, vectors)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    if extension != ".parquet":
        assert isinstance(read, np.memmap) and not read.flags.writeable
    # Written again over itself, and as a slice that is not contiguous.
    bathyal.write_vectors(path, vectors[::2])
    np.testing.assert_array_equal(bathyal.read_vectors(path), vectors[::2])
    if extension in OPTIONAL:
        with bathyal.build(path, tmp_path / "i") as index:
            assert len(index) == 25


def test_datasets_of_ann_benchmarks(tmp_path):
    h5py = needed("h5py")
    path = tmp_path / "d.hdf5"
    with h5py.File(path, "w") as file:
        file["train"] = np.ones((5, 3), np.float32)
        file.create_dataset("test", data=np.zeros((2, 3), np.float32), chunks=(1, 3), compression="gzip")
        file["neighbors"] = np.array([[1, 2], [3, 4]], np.int64)
        file["distances"] = np.array([[0.5, 1], [1, 2]])
    assert bathyal.read_vectors(path).shape == (5, 3)
    assert bathyal.read_vectors(path, key="test").tolist() == np.zeros((2, 3)).tolist()
    ids, far = bathyal.read_ids(path)
    assert ids.dtype == np.uint32 and ids.tolist() == [[1, 2], [3, 4]] and far.dtype == np.float32
    bathyal.write_vectors(path, np.full((2, 3), 7, np.float32), key="test")
    bathyal.write_ids(path, ids[:, ::-1], far)
    assert bathyal.read_vectors(path, "test")[0, 0] == 7 and bathyal.read_vectors(path).shape == (5, 3)
    assert bathyal.read_ids(path)[0].tolist() == [[2, 1], [4, 3]]
    with pytest.raises(ValueError, match="no dataset 'valid'"):
        bathyal.read_vectors(path, "valid")
    path.write_bytes(b"no HDF5")
    with pytest.raises(ValueError, match="not an HDF5 file"):
        bathyal.read_vectors(path)
    with pytest.raises(FileNotFoundError):
        bathyal.read_vectors(tmp_path / "missing.h5")


def test_parquet_columns(tmp_path):
    pa = needed("pyarrow")
    pq = needed("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    rows = [[1.0, 2.0], [3.0, 4.0]]
    column = pa.array(rows, pa.list_(pa.float32()))
    pq.write_table(pa.table({"name": ["a", "b"], "embedding": column}), path)
    assert bathyal.read_vectors(path).tolist() == rows
    assert bathyal.convert(path, tmp_path / "t.u8bin", rows=(1, 2)) == bathyal.Converted(1, 2, "u8")
    pq.write_table(pa.table({"a": column, "b": column}), path)
    with pytest.raises(ValueError, match="key="):
        bathyal.read_vectors(path)
    assert bathyal.read_vectors(path, "b").tolist() == rows
    for bad, message in (
        ([[1.0, 2.0], [3.0]], "row 1"),
        ([[1.0], None], "nulls"),
        ([[1.0], [None]], "nulls"),
    ):
        pq.write_table(pa.table({"a": pa.array(bad, pa.list_(pa.float32()))}), path)
        with pytest.raises(ValueError, match=message):
            bathyal.read_vectors(path)
    pq.write_table(pa.table({"a": pa.array([["x", "y"]], pa.list_(pa.string()))}), path)
    with pytest.raises(ValueError, match=r"column 'a' holds string, expected"):
        bathyal.read_vectors(path)
    path.write_bytes(b"no Parquet")
    with pytest.raises(ValueError, match="not a Parquet file"):
        bathyal.read_vectors(path)


@pytest.mark.parametrize("extension", [".ibin", ".ivecs"])
def test_ids_round_trip(extension, tmp_path):
    ids = np.arange(12, dtype=np.uint32).reshape(4, 3)
    far = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    path = tmp_path / f"ids{extension}"
    bathyal.write_ids(path, ids.astype(np.int64), far)
    read, read_far = bathyal.read_ids(path)
    np.testing.assert_array_equal(read, ids)
    assert read.dtype == np.uint32
    if extension == ".ibin":
        np.testing.assert_array_equal(read_far, far)
    else:
        assert read_far is None


@pytest.mark.parametrize(
    ("ids", "far", "message"),
    [
        (np.zeros((2, 3)), None, "whole numbers"),
        (np.zeros(3, np.uint32), None, "queries x k"),
        (np.full((1, 1), -2), None, "-2 is not a valid id; expected 0"),
        (np.full((1, 1), 2**32), None, "from 0"),
        (np.zeros((2, 3), np.uint32), np.zeros((3, 2), np.float32), "same shape"),
    ],
)
def test_bad_ids_are_refused(ids, far, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        bathyal.write_ids(tmp_path / "ids.ibin", ids, far)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("element", DTYPES)
def test_groundtruth_is_brute_force(metric, element, tmp_path):
    base, queries = clustered(element, 300, 12, 1), clustered(element, 9, 12, 2)
    ids, far = bathyal.groundtruth(base, queries, metric, k=7)
    exact = distances(metric, base, queries)
    np.testing.assert_allclose(np.take_along_axis(exact, ids.astype(np.int64), 1), far, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.sort(exact, axis=1)[:, :7], far, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(bathyal.groundtruth(base, queries, metric, k=7, threads=1)[0], ids)


def test_groundtruth_refuses_bad_arguments():
    base = np.ones((3, 4), np.float32)
    for queries, k, message in (
        (np.ones((2, 5), np.float32), 1, "dimensions"),
        (np.ones((2, 4), bool), 1, "queries holds bool"),
        (base, 4, "k = 4"),
        (base, 0, "k = 0"),
    ):
        with pytest.raises(ValueError, match=message):
            bathyal.groundtruth(base, queries, k=k)
    with pytest.raises(ValueError, match="as many rows"):
        bathyal.recall(np.zeros((2, 3)), np.zeros((2, 2)))


def test_the_ratio_measures_the_distance_of_misses():
    base = np.array([[1.0], [2.0], [4.0], [9.0]], np.float32)
    truth, exact = bathyal.groundtruth(base, np.zeros((3, 1), np.float32), k=3)
    assert exact[0].tolist() == [1, 4, 16]
    ids = np.array([[0, 1], [0, 2], [3, 2]])
    found = bathyal.overall_ratio(ids, base[ids, 0] ** 2, truth, exact)
    # Roots by true roots, nearest first: 1 and 2 of 1 and 2; 1 and 4; 4 and 9.
    assert (found.mean, found.p99, found.left_out) == (pytest.approx((1 + 1.5 + 4.25) / 3), 4.25, 0)
    assert bathyal.overall_ratio(ids[1], base[ids[1], 0] ** 2, truth[1], exact[1]).mean == 1.5


def test_queries_without_a_ratio_are_left_out_and_counted():
    truth, exact = np.array([[0, 1]] * 3), np.array([[0.0, 0.5]] * 3, np.float32)
    ids, distances = np.array([[0, 1], [0, -1], [7, 1]]), np.array([[0, 0.5], [0, 0], [0.5, 0.5]])
    for metric in ("l2", "cosine"):
        found = bathyal.overall_ratio(ids, distances, truth, exact, metric)
        assert found == bathyal.OverallRatio(mean=1.0, p99=1.0, left_out=2)
    nothing = bathyal.overall_ratio(ids[1:], distances[1:], truth[1:], exact[1:])
    assert nothing == bathyal.OverallRatio(mean=None, p99=None, left_out=2)


def test_the_ratio_refuses_bad_arguments():
    ids, distances = np.array([[0, 1]]), np.array([[1.0, 2.0]])
    with pytest.raises(ValueError, match="inner product is no distance"):
        bathyal.overall_ratio(ids, distances, ids, distances, metric="ip")
    with pytest.raises(ValueError, match="no distances"):
        bathyal.overall_ratio(ids, distances, ids, None)
    with pytest.raises(ValueError, match="as many rows"):
        bathyal.overall_ratio(ids, distances[:, :1], ids, distances)
    with pytest.raises(ValueError, match="as many rows"):
        bathyal.overall_ratio(ids, distances, ids[:, :1], distances[:, :1])
    with pytest.raises(ValueError, match="manhattan"):
        bathyal.overall_ratio(ids, distances, ids, distances, metric="manhattan")


def test_conversion(tmp_path):
    vectors = clustered("u8", 30, 5, 1)
    bathyal.write_vectors(tmp_path / "a.bvecs", vectors)
    assert bathyal.convert(tmp_path / "a.bvecs", tmp_path / "a.fbin") == (30, 5, "f32")
    np.testing.assert_array_equal(bathyal.read_vectors(tmp_path / "a.fbin"), vectors)
    assert bathyal.convert(tmp_path / "a.fbin", tmp_path / "a.npy", element="f16", rows=(3, 9)).rows == 6
    np.testing.assert_array_equal(bathyal.read_vectors(tmp_path / "a.npy"), vectors[3:9])
    for options in ({"element": "f64"}, {"rows": (9, 3)}, {"rows": (0, 31)}):
        with pytest.raises(ValueError):
            bathyal.convert(tmp_path / "a.fbin", tmp_path / "b.npy", **options)
    bathyal.write_vectors(tmp_path / "half.fbin", np.full((1, 2), 0.5, np.float32))
    with pytest.raises(ValueError, match="row 0"):
        bathyal.convert(tmp_path / "half.fbin", tmp_path / "b.u8bin")
    assert not (tmp_path / "b.u8bin").exists()


def test_keys_belong_to_two_formats(tmp_path):
    bathyal.write_vectors(tmp_path / "a.fbin", np.ones((2, 2), np.float32))
    with pytest.raises(ValueError, match="key"):
        bathyal.read_vectors(tmp_path / "a.fbin", key="train")
    with pytest.raises(ValueError, match="key"):
        bathyal.write_vectors(tmp_path / "a.fbin", np.ones((2, 2), np.float32), key="train")
