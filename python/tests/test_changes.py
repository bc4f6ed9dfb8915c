"""Inserts, deletes and compaction."""

from __future__ import annotations

import pathlib
import threading

import numpy as np
import pytest

import bathyal

ROWS = np.random.default_rng(5).standard_normal((700, 12), dtype=np.float32)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """An index of the first 500 rows."""
    index = tmp_path / "my.index"
    bathyal.build(ROWS[:500], index, family="lsh", metric="l2", tables=4).close()
    return index


def nearest(index: bathyal.Index, row: int) -> int:
    return int(index.search(ROWS[row], k=1, probes=1000, search_list=700).ids[0])


def test_inserted_vectors_are_found(path: pathlib.Path) -> None:
    with bathyal.open(path) as index:
        assert index.insert(ROWS[500:600]) == range(500, 600)
        assert index.insert(ROWS[600]) == range(600, 601)
        assert index.insert(ROWS[601:603].astype(np.float64)) == range(601, 603)
        assert index.insert(ROWS[603:604].tolist()) == range(603, 604)
        assert len(index) == 604
        assert [nearest(index, row) for row in (3, 555, 600, 602, 603)] == [3, 555, 600, 602, 603]
        assert index.delete([3, 555]) == 2
        assert index.delete(np.array([[3], [555]])) == 0
        assert nearest(index, 3) != 3
        assert index.changed["inserted"] == 104
    assert bathyal.inspect(path)["changed"]["deleted"] == 2
    report = bathyal.compact(path, progress=False)
    assert report["vectors"] == 602
    assert report["changed"]["inserted"] == 104
    assert "vectors" not in bathyal.compact(path, progress=False)
    with bathyal.open(path) as index:
        assert [nearest(index, row) for row in (4, 556, 603)] == [4, 556, 603]
        assert index.insert(ROWS[650:]) == range(604, 654)
        assert bathyal.verify(path, progress=False)["sound"]


def test_a_file_is_inserted(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    bathyal.write_vectors(tmp_path / "more.fbin", ROWS[500:520])
    with bathyal.open(path) as index:
        assert index.insert(tmp_path / "more.fbin") == range(500, 520)


def test_other_handles_see_changes_after_a_refresh(path: pathlib.Path) -> None:
    with bathyal.open(path) as reader, bathyal.open(path) as writer:
        writer.insert(ROWS[500:510])
        assert len(reader) == 500
        with pytest.raises(BlockingIOError, match="changed by another writer"):
            reader.insert(ROWS[500:510])
        with pytest.raises(BlockingIOError):
            bathyal.compact(path, progress=False)
        assert reader.refresh()
        assert not reader.refresh()
        assert len(reader) == 510
        writer.close()
        bathyal.compact(path, progress=False)
        assert nearest(reader, 505) == 505
        with pytest.raises(OSError, match="open it again"):
            reader.refresh()


def test_bad_inserts_and_deletes_are_refused(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with bathyal.open(path) as index:
        for vectors, error, words in [
            (ROWS[:, :5], ValueError, "the vectors have 5 dimensions, the index has 12"),
            (ROWS.astype(bool), ValueError, "vectors holds bool"),
            (np.full((1, 12), np.nan, np.float32), ValueError, "NaN"),
            (ROWS[None], ValueError, "vectors have 3 dimensions"),
        ]:
            with pytest.raises(error, match=words):
                index.insert(vectors)
        for ids, kind, words in [
            ([500], ValueError, "there is no vector 500"),
            ([-1], ValueError, "ids are between -1 and -1"),
            ([1.5], TypeError, "whole numbers"),
            ([2**40], ValueError, "ids are between"),
        ]:
            with pytest.raises(kind, match=words):
                index.delete(ids)
        assert index.delete([]) == 0
        assert index.changed == {"inserted": 0, "deleted": 0, "memory_bytes": 0, "log_bytes": 0}
    bathyal.build(ROWS, tmp_path / "clusters").close()
    with bathyal.open(tmp_path / "clusters") as clusters:
        with pytest.raises(ValueError, match="of the family cluster does not change"):
            clusters.insert(ROWS)
        assert clusters.changed["inserted"] == 0
    with pytest.raises(ValueError, match="of the family cluster does not change"):
        bathyal.compact(tmp_path / "clusters", progress=False)
    with pytest.raises(FileNotFoundError):
        bathyal.compact(tmp_path / "nothing", progress=False)


def test_searches_continue_during_changes(path: pathlib.Path) -> None:
    failed: list[str] = []
    with bathyal.open(path) as index:
        stop = threading.Event()

        def search() -> None:
            while not stop.is_set():
                found = index.search(ROWS[:20], k=5, recall=0.9)
                if found.ids.shape != (20, 5):
                    failed.append(str(found.ids.shape))

        searcher = threading.Thread(target=search)
        searcher.start()
        for row in range(500, 700):
            index.insert(ROWS[row])
            index.delete([row - 500])
        stop.set()
        searcher.join()
        assert not failed
        assert len(index) == 500
