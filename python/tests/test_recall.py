"""Recall, tested with the table of special cases that Rust and the benchmarks also use."""

import json
import pathlib

import numpy as np
import pytest

import bathyal
from conftest import needed

TABLE = json.loads((pathlib.Path(__file__).parents[2] / "testdata/recall.json").read_text(encoding="utf-8"))[
    "cases"
]


@pytest.mark.parametrize("case", TABLE, ids=[case["name"] for case in TABLE])
def test_recall_agrees_with_the_table(case):
    def counted():
        return bathyal.recall(case["found"], case["truth"], case.get("distances"), k=case["k"])

    if case.get("recall") is None:
        with pytest.raises(ValueError, match="no neighbour" if "left_out" in case else "as many rows"):
            counted()
    else:
        assert counted() == case["recall"]


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64])
def test_a_missing_id_may_be_signed_or_unsigned(kind):
    missing = np.array([[3, -1, -1]]).astype(kind)
    assert bathyal.recall(missing, np.array([[3, 7, -1]])) == 0.5
    assert bathyal.recall(np.array([[-1] * 10]), np.array([[3, 7, 9] + [-1] * 7]).astype(kind)) == 0.0


def test_ids_beyond_32_bits_are_counted_and_never_wrap():
    truth = np.array([[2**32 + 5, 2**63 + 1, 7]], np.uint64)
    assert bathyal.recall(np.array([[5, 1, 7]]), truth) == pytest.approx(1 / 3)
    assert bathyal.recall(truth[:, ::-1], truth) == 1.0
    assert bathyal.recall(np.array([[2**32 + 5, -1]]), truth) == 0.5


def test_ids_may_be_text():
    truth = np.array([["a", "b", "c"]], object)
    assert bathyal.recall(np.array([["c", "x", "x"]]), truth) == pytest.approx(1 / 3)
    assert bathyal.recall(np.array([["a", None, None]], object), np.array([["a", None, None]], object)) == 1.0
    with pytest.raises(ValueError, match="numbers in both, or text"):
        bathyal.recall(np.array([[1, 2]]), truth)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[-2, 1]], "-2 is not a valid id"),
        ([[0.5, 1.0]], "float64"),
        ([[True, False]], "bool"),
        ([[1, 2, 3, 4]], "as many rows"),
    ],
)
def test_invalid_ids_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        bathyal.recall(np.array(ids), np.array([[1, 2, 3]]))
    if message.startswith("-2"):
        with pytest.raises(ValueError, match=message):
            bathyal.recall(np.array([[1, 2]]), np.array(ids))


def test_distances_belong_to_the_truth():
    with pytest.raises(ValueError, match="a distance for each id"):
        bathyal.recall([[1, 3]], [[1, 2, 3]], [[0.0, 1.0]])
    truth, far = bathyal.groundtruth(
        np.array([[0], [10], [10], [20]], np.uint8), np.array([[9]], np.uint8), k=4
    )
    assert bathyal.recall([[2]], truth) == 0.0 and bathyal.recall([[2]], truth, far) == 1.0


@pytest.mark.parametrize("extension", ["ibin", "ivecs", "hdf5"])
def test_missing_ids_stay_missing_in_files(tmp_path, extension):
    path = tmp_path / f"ids.{extension}"
    bathyal.write_ids(path, np.array([[3, -1], [0, 7]]))
    read, _ = bathyal.read_ids(path)
    assert read.tolist() == [[3, 2**32 - 1], [0, 7]] and read.dtype == np.uint32
    assert bathyal.recall(read, np.array([[3, -1], [0, 7]])) == 1.0
    for unfit in (-2, 2**32, 2**40):
        with pytest.raises(ValueError, match=str(unfit)):
            bathyal.write_ids(path, np.array([[unfit]]))
    assert bathyal.read_ids(path)[0].tolist() == read.tolist(), "the file is as it was"


def test_ids_of_hdf5_beyond_32_bits_are_refused(tmp_path):
    h5py = needed("h5py")
    for ids, message in ((np.array([[2**32 + 1]]), str(2**32 + 1)), (np.array([[-2]]), "-2")):
        with h5py.File(tmp_path / "truth.hdf5", "w") as file:
            file["neighbors"] = ids
        with pytest.raises(ValueError, match=f"neighbors.*{message}"):
            bathyal.read_ids(tmp_path / "truth.hdf5")
    with h5py.File(tmp_path / "truth.hdf5", "w") as file:
        file["neighbors"] = np.array([[4, -1]])
    assert bathyal.read_ids(tmp_path / "truth.hdf5")[0].tolist() == [[4, 2**32 - 1]]
