"""Results are compared, pickled and converted to tables; indexes are copied and pickled."""

import copy
import multiprocessing
import os
import pickle

import numpy as np
import pytest

import bathyal
from conftest import needed

LINE = np.arange(400, dtype=np.float32).reshape(200, 2)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "index"
    bathyal.build(LINE, path, family="graph", max_degree=16).close()
    return path


@pytest.fixture
def opened(path):
    with bathyal.open(path) as index:
        yield index


def all_kinds(index):
    return [
        index.search(LINE[:3], k=4),
        index.search(LINE[3], k=4),
        index.search([], k=4),
        index.range_search(LINE[:3], 20.0),
        index.range_search([], 20.0),
        bathyal.search([index, index], LINE[:3], k=4),
        bathyal.search([index, index], LINE[3], k=4),
    ]


def test_results_are_equal_if_their_answers_are(opened):
    for one, same in zip(all_kinds(opened), all_kinds(opened), strict=True):
        assert one == same
        assert one == pickle.loads(pickle.dumps(one)) == copy.deepcopy(one)
        assert one != 3 and one != (one.ids, one.distances)
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)
    assert opened.search(LINE[:3], k=4) != opened.search(LINE[:3], k=3)
    assert opened.search(LINE[:3], k=4) != opened.search(LINE[1:4], k=4)
    assert opened.search(LINE[3:4], k=4) != opened.search(LINE[3], k=4)
    assert opened.search(LINE[:3], k=4) != bathyal.search([opened], LINE[:3], k=4)
    assert opened.range_search(LINE[:3], 20.0) != opened.range_search(LINE[:3], 5.0)


def test_results_become_frames(opened):
    needed("pandas")
    for found in all_kinds(opened):
        frame = found.to_pandas()
        many = ["index"] if isinstance(found, bathyal.FoundMany) else []
        assert list(frame.columns) == ["query", "rank", *many, "id", "distance"]
        assert np.array_equal(frame["id"], found.ids.ravel())
        assert np.array_equal(frame["distance"], found.distances.ravel())
        assert frame["id"].dtype == np.uint32 and frame["distance"].dtype == np.float32
        for _, of_query in frame.groupby("query"):
            assert of_query["rank"].tolist() == list(range(len(of_query)))
    frame = opened.range_search(LINE[:3], 8.0).to_pandas()
    assert frame["query"].tolist() == [0, 0, 1, 1, 1, 2, 2, 2]
    assert frame["rank"].tolist() == [0, 1, 0, 1, 2, 0, 1, 2]


def test_results_become_tables(opened):
    needed("pyarrow")
    for found in all_kinds(opened):
        table = found.to_arrow()
        assert table.num_rows == found.ids.size
        assert np.array_equal(table["id"].to_numpy(), found.ids.ravel())


def test_missing_neighbours_give_no_rows():
    needed("pandas")
    ids = np.array([[3, 2**32 - 1]], np.uint32)
    found = bathyal.Found(ids, np.array([[1.0, np.nan]], np.float32), stats=None)
    assert found.to_pandas()["id"].tolist() == [3]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_that_is_closed_leaves_the_original_open(path, copied):
    original = bathyal.open(path)
    other = copied(original)
    assert other.path == original.path and other.search(LINE[0], k=1) == original.search(LINE[0], k=1)
    other.close()
    assert other.closed and not original.closed
    assert original.search(LINE[7], k=1).ids.tolist() == [7]
    third = copied(original)
    original.close()
    assert third.search(LINE[7], k=1).ids.tolist() == [7]
    with pytest.raises(ValueError, match="closed"):
        copied(original)
    third.close()


def test_an_index_is_pickled_as_its_path_and_options(path, monkeypatch, tmp_path):
    folder, name = os.path.split(path)
    monkeypatch.chdir(folder)
    options = {"tier": "dram", "memory": "1GB", "delay": "cxl", "numa": "off"}
    with bathyal.open(name, **options) as index:
        text = pickle.dumps(index)
        # From any folder.
        monkeypatch.chdir(tmp_path)
        with pickle.loads(text) as again:
            assert "emulated cxl" in repr(again) and again._options == index._options
            assert again.search(LINE[:9], k=3) == index.search(LINE[:9], k=3)
        assert not index.closed
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(index)
    monkeypatch.chdir(tmp_path)
    with bathyal.build(LINE, "built", memory=2e9) as built, pickle.loads(pickle.dumps(built)) as again:
        assert again._options["memory"] == 2 * 10**9 and len(again) == 200
    os.rename("built", "elsewhere")
    with pytest.raises(FileNotFoundError):
        pickle.loads(text.replace(os.fsencode(folder), b"/" * len(os.fsencode(folder))))


def nearest(index, query):
    return index.search(query, k=1).ids.tolist()


def test_other_processes_open_pickled_indexes(path):
    with bathyal.open(path) as index, multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.starmap(nearest, [(index, LINE[5]), (index, LINE[150])]) == [[5], [150]]


def test_an_index_is_always_true(tmp_path):
    with bathyal.build(LINE, tmp_path / "i", family="lsh") as index:
        index.delete(range(200))
        assert len(index) == 0 and bool(index)
    assert bool(index)


def test_no_radius_of_l2_is_below_0(opened, tmp_path):
    with pytest.raises(ValueError, match=r"the radius is -1.*squared l2"):
        opened.range_search(LINE[:1], -1.0)
    with pytest.raises(ValueError, match="not a number"):
        opened.range_search(LINE[:1], float("nan"))
    with bathyal.build(LINE, tmp_path / "i", metric="ip") as index:
        assert index.range_search([[1.0, 1.0]], -790.0).ids.tolist() == [199, 198]
