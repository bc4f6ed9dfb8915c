"""Data that arrives batch by batch."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest

import bathyal
from conftest import needed

ROWS = np.random.default_rng(1).random((1000, 8), dtype=np.float32)


def batches(rows, size=64):
    return (rows[start : start + size] for start in range(0, len(rows), size))


class Loader:
    """An object that only supports iteration."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return batches(self.rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int8])
def test_batches_build_the_same_index_as_an_array(tmp_path, dtype):
    rows = (ROWS * 100).astype(dtype)
    expected = bathyal.build(rows, tmp_path / "whole", threads=1, seed=7)
    for number, data in enumerate(
        [
            batches(rows),
            iter(rows),
            Loader(rows),
            map(np.asfortranarray, batches(rows, 1)),
            batches(rows, 5000),
        ]
    ):
        with bathyal.build(data, tmp_path / str(number), threads=1, seed=7) as index:
            assert index.element == expected.element and len(index) == 1000
            assert index.search(rows[:20]) == expected.search(rows[:20])
    assert all(not name.startswith(".bathyal-") for name in os.listdir(tmp_path))


def test_batches_of_lists_and_of_wider_floats(tmp_path):
    with bathyal.build(map(np.ndarray.tolist, batches(ROWS)), tmp_path / "a") as index:
        assert np.array_equal(index.vectors(range(1000)), ROWS)
    with bathyal.build(batches(ROWS.astype(np.float64)), tmp_path / "b") as index:
        assert np.array_equal(index.vectors(range(1000)), ROWS)
    empty_between = [ROWS[:0], ROWS[:10], [], ROWS[10:]]
    with bathyal.build(iter(empty_between), tmp_path / "c") as index:
        assert np.array_equal(index.vectors(range(1000)), ROWS)


class Stop(Exception):
    pass


def broken():
    yield ROWS[:10]
    raise Stop("as it was told")


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (iter([]), ValueError, "data gave no vectors"),
        (iter([ROWS[:0]]), ValueError, "data gave no vectors"),
        (
            iter([ROWS, ROWS[:, :5]]),
            ValueError,
            "data, batch 1: its vectors have 5 dimensions, those before it 8",
        ),
        (iter([ROWS, ROWS.astype(np.float16)]), ValueError, "data, batch 1: it holds float16.*float32"),
        (iter([ROWS, ROWS.astype(bool)]), ValueError, "data, batch 1 holds bool"),
        (iter([ROWS, "more.fbin"]), TypeError, "data, batch 1: it is the path 'more.fbin'"),
        (iter([ROWS, 7]), ValueError, "data, batch 1 has 0 dimensions"),
        (iter([ROWS, None]), TypeError, "data, batch 1 is of type NoneType"),
        (iter([ROWS, np.full((2, 8), np.nan, np.float32)]), ValueError, "data: row 1000"),
        (iter([np.ma.masked_equal(ROWS, 1)]), ValueError, "data, batch 0 is a masked array"),
        (broken(), Stop, "as it was told"),
    ],
)
def test_batches_that_do_not_fit_leave_nothing(tmp_path, data, kind, message):
    with pytest.raises(kind, match=message):
        bathyal.build(data, tmp_path / "i")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_target_is_refused_before_the_first_batch_is_read(tmp_path):
    bathyal.build(ROWS, tmp_path / "i").close()
    data = batches(ROWS)
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        bathyal.build(data, tmp_path / "i")
    assert caught.value.filename == str(tmp_path / "i")
    with bathyal.build(data, tmp_path / "i", overwrite=True) as index:
        assert len(index) == 1000
    with bathyal.build(batches(ROWS), tmp_path / "new" / "folder" / "i") as index:
        assert len(index) == 1000


def test_only_builds_take_batches(tmp_path):
    index = bathyal.build(ROWS, tmp_path / "i", family="lsh")
    for ask, name in (
        (index.search, "queries"),
        (index.insert, "vectors"),
        (lambda rows: bathyal.groundtruth(ROWS, rows), "queries"),
        (lambda rows: bathyal.build(ROWS, tmp_path / "j", calibration=rows), "calibration"),
    ):
        with pytest.raises(TypeError, match=rf"{name} is a generator.*numpy.array\(list\({name}\)\)"):
            ask(batches(ROWS))


def test_batches_go_to_an_address(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with bathyal.build(batches(ROWS), "memory://batches/index") as index:
        assert np.array_equal(index.vectors([999, 0]), ROWS[[999, 0]])
    scratch, seen = tmp_path / "scratch", []
    scratch.mkdir()

    def looking():
        for batch in batches(ROWS):
            seen.append([path.suffix for path in scratch.iterdir()])
            yield batch

    options = {"scratch": str(scratch)}
    bathyal.build(looking(), "memory://batches/scratch", store_options=options).close()
    assert all(suffixes == [".batches"] for suffixes in seen) and list(scratch.glob(".bathyal-*")) == []


def test_a_dataset_of_hdf5_is_read_in_blocks(tmp_path, monkeypatch):
    h5py = needed("h5py")
    monkeypatch.setattr("bathyal.batches.BLOCK_BYTES", 1000)
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_dataset("train", data=ROWS, chunks=(100, 8), compression="gzip")
    with h5py.File(tmp_path / "v.h5") as file, bathyal.build(file["train"], tmp_path / "i") as index:
        assert np.array_equal(index.vectors(range(1000)), ROWS)


PROGRAM = """
import resource, sys, numpy, bathyal
rows, dim, folder = 200_000, 128, sys.argv[1]
def batches():
    for number in range(rows // 2000):
        yield numpy.random.default_rng(number).integers(0, 256, (2000, dim), dtype=numpy.uint8)
resident = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = resident()
goal, name = bathyal.batches.BuildTarget(folder + "/i", False), bathyal.inputs.ArgumentLabel("data", "vector")
with bathyal.batches.path_or_array(batches(), goal, name) as path:
    print(resident() - before, bathyal.read_vectors(path).shape)
"""


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_SELF"), reason="no measure of memory")
def test_memory_holds_one_batch_at_a_time(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True
    )
    kilobytes, shape = ran.stdout.split(maxsplit=1)
    assert shape.strip() == "(200000, 128)"
    # The set has 25 MB.
    assert int(kilobytes) < 10_000
    assert list(tmp_path.iterdir()) == []
