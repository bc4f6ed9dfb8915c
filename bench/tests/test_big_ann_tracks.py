"""The adapters for the streaming and the filter track of big-ann-benchmarks, called as that program calls
them.

The program's base classes and list of data sets are not installed here; substitutes have the same names and
signatures. ``make check-adapters`` runs the program itself.
"""

import importlib
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import bathyal
from bathyal_bench.recall import recall_at

ADAPTERS = Path(__file__).resolve().parents[1] / "ann_benchmarks/big-ann-benchmarks"
BASES = {
    "neurips23/streaming/base.py": "class BaseStreamingANN:\n    pass\n",
    "neurips23/filter/base.py": "class BaseFilterANN:\n    def track(self):\n        return 'filter'\n",
    "benchmark/datasets.py": "DATASETS = {}\n",
}
COUNT, DIM, QUERIES, K = 2000, 16, 40, 10


@pytest.fixture
def adapter(tmp_path, monkeypatch):
    """Returns a function that imports the adapter of a track."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for file, text in BASES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)

    def imported(track):
        shutil.copytree(ADAPTERS / track / "bathyal", tmp_path / "neurips23" / track / "bathyal")
        return importlib.import_module(f"neurips23.{track}.bathyal.bathyal_{track}")

    yield imported
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("benchmark", "neurips23"):
            del sys.modules[name]


def recall(found, exact):
    pairs = zip(found, exact, strict=True)
    return np.mean([recall_at([one], [other], None, len(other)) for one, other in pairs])


def exact(base, queries, tags):
    """Returns for each query the tags of the nearest vectors among those with these tags."""
    distances = ((queries[:, None].astype(float) - base[tags][None]) ** 2).sum(2)
    return np.asarray(tags)[np.argsort(distances, axis=1)[:, :K]]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_vectors_are_inserted_replaced_and_deleted(adapter, dtype):
    random = np.random.default_rng(3)
    base = random.integers(0, 100, (COUNT, DIM)).astype(dtype)
    queries = random.integers(0, 100, (QUERIES, DIM)).astype(dtype)
    algorithm = adapter("streaming").Bathyal("euclidean", {"write_memory": "1MiB"})
    algorithm.setup(dtype, COUNT, DIM)
    folder = Path(algorithm.folder)
    algorithm.set_query_arguments({"recall": 0.99, "threads": 1})
    algorithm.insert(base[:1500], np.arange(1500, dtype=np.uint32))
    algorithm.query(queries, K)
    assert recall(algorithm.get_results(), exact(base, queries, np.arange(1500))) > 0.97
    with pytest.raises(bathyal.DuplicateIdError):
        algorithm.insert(base[:1], np.arange(1, dtype=np.uint32))
    algorithm.delete(np.arange(500, 1000, dtype=np.uint32))
    # Replace the vectors of the first tags.
    algorithm.replace(base[1500:], np.arange(500, dtype=np.uint32))
    current = base.copy()
    current[:500] = base[1500:]
    algorithm.query(queries, K)
    left = np.r_[0:500, 1000:1500]
    assert recall(algorithm.get_results(), exact(current, queries, left)) > 0.97
    algorithm.delete(left[3:].astype(np.uint32))
    algorithm.query(queries, K)
    assert algorithm.get_results().shape == (QUERIES, K)
    assert set(algorithm.get_results().ravel()) == {0, 1, 2, -1}
    assert algorithm.get_additional()["segments"] >= 0
    algorithm.done()
    assert not folder.exists()


class Tagged:
    """A data set of the filter track."""

    nb, d, dtype = COUNT, DIM, "float32"
    random = np.random.default_rng(4)
    base = random.normal(0, 1, (COUNT, DIM)).astype(np.float32)
    rows = random.random((COUNT, 5)) < 0.4

    def search_type(self):
        return "knn_filtered"

    def short_name(self):
        return "tagged"

    def get_data_in_range(self, start, end):
        return self.base[start:end]

    def get_dataset_metadata(self):
        return sparse(self.rows)


def sparse(held):
    """Substitute for a sparse matrix, with the attributes that the adapter uses."""
    indptr = np.concatenate([[0], np.cumsum(held.sum(1))])
    return SimpleNamespace(indices=np.nonzero(held)[1], indptr=indptr)


def test_rows_have_all_tags_of_the_query(adapter):
    module = adapter("filter")
    module.DATASETS["tagged"] = Tagged
    algorithm = module.Bathyal("euclidean", {"options": {"family": "cluster"}, "flat_below": 500})
    assert algorithm.load_index("tagged") is False
    algorithm.fit("tagged")
    algorithm.done()
    assert algorithm.load_index("tagged") is True

    random = np.random.default_rng(6)
    queries = random.normal(0, 1, (QUERIES, DIM)).astype(np.float32)
    wanted = random.random((QUERIES, 5)) < 0.3
    # No row has the last tag, so queries with it find nothing.
    wanted = np.hstack([wanted, np.zeros((QUERIES, 1), bool)])
    wanted[:3, 5] = True
    algorithm.set_query_arguments({"recall": 0.99, "threads": 2})
    algorithm.filtered_query(queries, sparse(wanted), K)
    found = algorithm.get_results()
    assert (found[:3] == -1).all()
    held = np.hstack([Tagged.rows, np.zeros((COUNT, 1), bool)])
    pairs = [np.flatnonzero((held | ~wanted[query]).all(1)) for query in range(3, QUERIES)]
    expected = [exact(Tagged.base, queries[query, None], tags)[0] for query, tags in enumerate(pairs, 3)]
    assert recall(found[3:], expected) > 0.97
    algorithm.query(queries, K)
    assert recall(algorithm.get_results(), exact(Tagged.base, queries, np.arange(COUNT))) > 0.97
    algorithm.done()


def test_configurations_name_existing_modules_and_options(adapter):
    for track in ("streaming", "filter"):
        module = adapter(track)
        configured = yaml.safe_load((ADAPTERS / track / "bathyal/config.yaml").read_text())
        for name, algorithms in configured.items():
            (one,) = algorithms.values()
            assert one["module"] == module.__name__ and one["docker-tag"] == f"neurips23-{track}-bathyal", (
                name
            )
            for number, group in enumerate(one["run-groups"].values()):
                for options in yaml.safe_load(group["args"]):
                    place = f"memory://configured/{track}/{name}/{number}"
                    bathyal.Collection.create(place, 32, id="u64", **options).close()
                for searching in yaml.safe_load(group["query-args"]):
                    assert searching.keys() <= {"recall", "threads"} and 0 < searching["recall"] < 1
