"""The adapters for ann-benchmarks and big-ann-benchmarks, called as those programs call them.

The programs' base classes and list of data sets are not installed here. Substitutes with the same names and
signatures let the adapters be imported unchanged. ``make check-adapters`` runs the programs themselves.
"""

import functools
import hashlib
import importlib
import itertools
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import bathyal
from bathyal_bench.recall import recall_at

ADAPTERS = Path(__file__).resolve().parents[1] / "ann_benchmarks"
BASE = """
class BaseANN(object):
    def done(self):
        pass

    def get_memory_usage(self):
        return 0.0

    def __str__(self):
        return self.name
"""
DATA_SETS = """
DATASETS = {}
"""
COUNT, DIM, QUERIES, K = 2000, 16, 50, 10


@pytest.fixture
def vectors():
    random = np.random.default_rng(7)
    centres = random.normal(0, 1, (20, DIM))
    rows = centres[random.integers(0, 20, COUNT + QUERIES)]
    rows = (rows + random.normal(0, 0.5, rows.shape)).astype(np.float32)
    return rows[:COUNT], rows[COUNT:]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that modules are imported from; they are unloaded afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("ann_benchmarks", "benchmark", "neurips23"):
            del sys.modules[name]


def recall(found, exact):
    return recall_at(found, exact, None, K)


@pytest.mark.parametrize(("distance", "metric"), [("euclidean", "l2"), ("angular", "cosine")])
def test_ann_benchmarks_builds_and_searches(folder, vectors, distance, metric):
    base, queries = vectors
    algorithms = folder / "ann_benchmarks/algorithms"
    shutil.copytree(ADAPTERS / "ann-benchmarks/bathyal", algorithms / "bathyal")
    (algorithms / "base").mkdir()
    (algorithms / "base/module.py").write_text(BASE)
    module = importlib.import_module("ann_benchmarks.algorithms.bathyal.module")
    options = {"family": "graph", "max_degree": 24, "search_list": 50, "tier": "dram"}
    algorithm = module.Bathyal(distance, options)
    try:
        algorithm.fit(base)
        exact = bathyal.groundtruth(base, queries, metric=metric, k=K, progress=False)[0]
        recalls = []
        for search_list in (10, 100):
            algorithm.set_query_arguments({"search_list": search_list, "beam_width": 4})
            single = [algorithm.query(query, K) for query in queries]
            assert all(len(one) == len(set(one)) == K for one in single)
            algorithm.batch_query(queries, K)
            assert np.array_equal(algorithm.get_batch_results(), single)
            assert len(algorithm.get_batch_latencies()) == QUERIES
            assert algorithm.get_additional()["dist_comps"] > 0
            assert f"'search_list': {search_list}" in str(algorithm)
            recalls.append(recall(single, exact))
        assert recalls[0] <= recalls[1]
        assert recalls[1] > 0.95
        index_folder = Path(algorithm.folder)
    finally:
        algorithm.done()
    assert not index_folder.exists()


def test_ann_benchmarks_gets_an_error_for_an_unsupported_metric(folder):
    algorithms = folder / "ann_benchmarks/algorithms"
    shutil.copytree(ADAPTERS / "ann-benchmarks/bathyal", algorithms / "bathyal")
    (algorithms / "base").mkdir()
    (algorithms / "base/module.py").write_text(BASE)
    module = importlib.import_module("ann_benchmarks.algorithms.bathyal.module")
    with pytest.raises(NotImplementedError, match="hamming"):
        module.Bathyal("hamming", {})


class SmallSet:
    """A data set of big-ann-benchmarks over files in its format."""

    nb, d, nq, dtype = COUNT, DIM, QUERIES, "float32"

    def get_dataset_fn(self):
        # The form of a name for a part of a larger file.
        return "data/small/base.fbin.crop_nb_2000"

    def short_name(self):
        return f"SmallSet-{self.nb}"


def test_big_ann_benchmarks_builds_loads_and_searches(folder, vectors):
    base, queries = vectors
    (folder / "benchmark/algorithms").mkdir(parents=True)
    (folder / "benchmark/algorithms/base.py").write_text(BASE)
    (folder / "benchmark/datasets.py").write_text(DATA_SETS)
    shutil.copytree(ADAPTERS / "big-ann-benchmarks/bathyal", folder / "neurips23/ood/bathyal")
    module = importlib.import_module("neurips23.ood.bathyal.bathyal_index")
    module.DATASETS["small"] = SmallSet
    path = folder / SmallSet().get_dataset_fn()
    path.parent.mkdir(parents=True)
    path.write_bytes(np.array(base.shape, "<u4").tobytes() + base.tobytes())
    options = {"family": "graph", "max_degree": 24, "search_list": 50, "tier": "file"}

    algorithm = module.Bathyal("euclidean", options)
    assert algorithm.load_index("small") is False
    algorithm.fit("small")
    algorithm.done()

    again = module.Bathyal("euclidean", options)
    assert again.load_index("small") is True
    where, prefix, names = again.index_files_to_store("small")
    assert names and all((Path(where) / f"{prefix}{name}").exists() for name in names)
    again.set_query_arguments({"search_list": 60, "threads": 1})
    again.query(queries, K)
    exact, distances = bathyal.groundtruth(base, queries, metric="l2", k=COUNT, progress=False)
    assert again.get_results().shape == (QUERIES, K)
    assert recall(again.get_results(), exact[:, :K]) > 0.95
    assert again.get_additional()["mean_ssd_ios"] > 0

    # The queries range from ones with nothing in range to ones with more than a first search returns.
    radius = float(np.quantile(distances, 0.08))
    again.set_query_arguments({"search_list": 200, "threads": 1})
    again.range_query(queries, radius)
    limits, near, ids = again.get_range_results()
    true = [set(exact[row][distances[row] < radius]) for row in range(QUERIES)]
    assert max(map(len, true)) > module.FIRST_NEIGHBOURS
    assert len(limits) == QUERIES + 1 and limits[-1] == len(ids) == len(near)
    assert (near < radius).all()
    hits = sum(len(true[row] & set(ids[limits[row] : limits[row + 1]])) for row in range(QUERIES))
    assert hits > 0.95 * sum(map(len, true))
    again.done()


def ann_configurations():
    """Yields the configurations of ann-benchmarks: ``(options of a build, options of a search)``."""
    configured = yaml.safe_load((ADAPTERS / "ann-benchmarks/bathyal/config.yml").read_text())
    for algorithm in configured["float"]["any"]:
        for group in algorithm["run_groups"].values():
            for options in group["arg_groups"]:
                lists = [value if isinstance(value, list) else [value] for value in options.values()]
                for values in itertools.product(*lists):
                    for query in itertools.product(*group["query_args"]):
                        yield dict(zip(options, values, strict=True)), *(query or ({},))


def big_ann_configurations():
    """Yields the configurations of big-ann-benchmarks: ``(options of a build, options of a search)``."""
    configured = yaml.safe_load((ADAPTERS / "big-ann-benchmarks/bathyal/config.yaml").read_text())
    for algorithms in configured.values():
        for group in algorithms["bathyal"]["run-groups"].values():
            yield from itertools.product(json.loads(group["args"]), json.loads(group["query-args"]))


def distinct(which):
    """Returns the distinct dictionaries at a position."""
    found = {json.dumps(options[which], sort_keys=True) for options in configurations()}
    return [json.loads(text) for text in sorted(found)]


def configurations():
    return [*ann_configurations(), *big_ann_configurations()]


# For each option a different value, with which the index or its results must differ. A new option in a
# configuration needs an entry here.
OTHER_VALUES = {
    "max_degree": 12,
    "search_list": 33,
    "group_vectors": 20,
    "layout": {"padded": "page_local", "page_local": "padded", "grouped": "coupled", "coupled": "grouped"},
    "tier": {"file": "dram", "dram": "file"},
}
OPEN = ("tier", "memory")


@functools.cache
def built(text, folder):
    """Returns the hash of the index that these options build, and its path."""
    options = json.loads(text)
    base = np.random.default_rng(3).normal(0, 1, (1500, DIM)).astype(np.float32)
    path = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    bathyal.build(base, path, seed=1, threads=1, progress=False, **options).close()
    state = hashlib.sha256()
    for file in sorted(path.iterdir()):
        state.update(file.read_bytes())
    return state.hexdigest(), path


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    return tmp_path_factory.mktemp("indexes")


def build_options(options):
    return json.dumps({name: options[name] for name in options if name not in OPEN}, sort_keys=True)


def other_value(name, value):
    values = OTHER_VALUES[name]
    return values[value] if isinstance(values, dict) else values


def test_configurations_name_existing_families():
    named = {options["family"] for options, _ in configurations()}
    assert {"cluster", "graph", "spann", "flat"} <= named <= bathyal.families().keys()


@pytest.mark.parametrize("options", distinct(0), ids=str)
def test_every_option_of_a_build_takes_effect(options, indexes):
    digest, path = built(build_options(options), indexes)
    for name, value in options.items():
        if name == "family":
            continue
        changed = options | {name: other_value(name, value)}
        if name not in OPEN:
            assert built(build_options(changed), indexes)[0] != digest, name
            continue
        queries = np.random.default_rng(4).normal(0, 1, (20, DIM)).astype(np.float32)
        costs = []
        for opening in (options, changed):
            with bathyal.open(path, **{name: opening[name]}) as index:
                costs.append(index.search(queries, K).stats.dram_bytes)
        assert costs[0] != costs[1], name


@pytest.mark.parametrize(("options", "search_options"), configurations(), ids=str)
def test_every_option_of_a_search_takes_effect(options, search_options, indexes):
    _, path = built(build_options(options), indexes)
    queries = np.random.default_rng(5).normal(0, 1, (40, DIM)).astype(np.float32)
    with bathyal.open(path) as index:

        def cost(search_options):
            stats = index.search(queries, K, **search_options).stats
            threads = stats.threads if "threads" in search_options else None
            return threads, stats.distance_computations_per_query

        original = cost(search_options)
        if "threads" in search_options:
            assert cost(search_options | {"threads": 1})[0] != original[0]
        if "search_list" in search_options:
            # A longer list already covers all of so small a set.
            longer = 2 * search_options["search_list"]
            changed = longer if longer < 600 else search_options["search_list"] // 4
            assert cost(search_options | {"search_list": changed})[1] != original[1]
        if "recall" in search_options:
            recall = 0.999 if search_options["recall"] < 0.9 else 0.5
            assert cost(search_options | {"recall": recall})[1] != original[1]
        assert search_options.keys() <= {"threads", "search_list", "recall"}


@pytest.mark.parametrize(
    ("options", "search_options", "complaint"),
    [
        ({"family": "cluster", "max_degree": 32}, {}, "max_degree"),
        ({"family": "flat", "group_vectors": 32}, {}, "group_vectors"),
        ({"family": "graph", "maxdegree": 32}, {}, "maxdegree"),
        ({"family": "cluster", "teir": "file"}, {}, "teir"),
        ({"family": "cluster"}, {"beam_width": 8}, "beam_width"),
        ({"family": "flat"}, {"search_list": 40}, "search_list"),
        ({"family": "graph"}, {"probes": 4}, "probes"),
        ({"family": "graph"}, {"serach_list": 40}, "serach_list"),
    ],
)
def test_options_without_effect_are_refused(folder, vectors, options, search_options, complaint):
    base, queries = vectors
    algorithms = folder / "ann_benchmarks/algorithms"
    shutil.copytree(ADAPTERS / "ann-benchmarks/bathyal", algorithms / "bathyal")
    (algorithms / "base").mkdir()
    (algorithms / "base/module.py").write_text(BASE)
    module = importlib.import_module("ann_benchmarks.algorithms.bathyal.module")
    algorithm = module.Bathyal("euclidean", options)
    algorithm.set_query_arguments(search_options)
    try:
        with pytest.raises((ValueError, TypeError), match=complaint):
            algorithm.fit(base)
            algorithm.query(queries[0], K)
    finally:
        algorithm.done()
