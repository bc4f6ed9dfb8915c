"""Bathyal for big-ann-benchmarks: copy this folder to neurips23/ood/bathyal."""

import os
import warnings

import numpy as np
from benchmark.algorithms.base import BaseANN
from benchmark.datasets import DATASETS

import bathyal

METRICS = {"euclidean": "l2", "angular": "cosine", "ip": "ip"}
# Options of opening; all others are those of a build.
OPEN = ("tier", "memory")
HEADER_BYTES = 8
# Range search requests more and more neighbours, between these numbers, until the farthest is out of range.
FIRST_NEIGHBOURS = 100
MOST_NEIGHBOURS = 25_600


class Bathyal(BaseANN):
    """``options`` are those of ``bathyal.build`` and ``bathyal.open``, in one dictionary.

    Query arguments are those of ``Index.search``, in another dictionary. Both refuse options without effect.
    """

    def __init__(self, metric, options):
        if metric not in METRICS:
            raise NotImplementedError(f"Bathyal has no metric {metric}")
        self.metric = METRICS[metric]
        self.opening = {name: options[name] for name in OPEN if name in options}
        self.building = {name: options[name] for name in options if name not in OPEN}
        self.name = "bathyal"
        self.index = None
        self.set_query_arguments({})
        warnings.simplefilter("ignore", bathyal.SearchWarning)

    def track(self):
        return "T2"

    def index_folder(self, dataset):
        """Returns the folder of the index of this data set with these options."""
        parts = [f"{name}-{value}" for name, value in sorted(self.building.items())]
        below = os.path.join("data", "indices", self.track(), str(self), DATASETS[dataset]().short_name())
        return os.path.join(os.getcwd(), below, "_".join(["index", *parts]))

    def vectors(self, dataset):
        """Maps all vectors of the set, since the names of its files do not have the element type."""
        known = DATASETS[dataset]()
        path = known.get_dataset_fn()
        return np.memmap(path, known.dtype, "r", offset=HEADER_BYTES, shape=(known.nb, known.d))

    def fit(self, dataset):
        """Builds from the set's file and opens the index."""
        path = self.index_folder(dataset)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        options = {"metric": self.metric, "overwrite": True, "progress": False} | self.building
        bathyal.build(self.vectors(dataset), path, **options).close()
        self.index = bathyal.open(path, **self.opening)

    def load_index(self, dataset):
        """Opens the index if it exists, and returns whether it does."""
        path = self.index_folder(dataset)
        if not os.path.isdir(path):
            return False
        self.index = bathyal.open(path, **self.opening)
        return True

    def index_files_to_store(self, dataset):
        """Returns the folder of the index, an empty prefix, and the names of its files."""
        path = self.index_folder(dataset)
        return path, "", sorted(os.listdir(path))

    def set_query_arguments(self, query_args):
        """Sets the options of the next searches: ``search_list``, ``recall``, ``probes``, ``threads``."""
        self.searching = dict(query_args)

    def search(self, X, k):
        options = dict(self.searching)
        if "search_list" in options:
            # The list must hold at least as many candidates as the answer.
            options["search_list"] = max(options["search_list"], k)
        queries = np.ascontiguousarray(X, bathyal_dtype(self.index.element))
        return self.index.search(queries, k, **options)

    def query(self, X, k):
        """Finds the ``k`` nearest of each row of ``X``; see :meth:`get_results`."""
        found = self.search(X, k)
        self.res = found.ids
        self.stats = found.stats

    def range_query(self, X, radius):
        """Finds the vectors nearer than ``radius`` (squared under l2); see :meth:`get_range_results`."""
        most = min(MOST_NEIGHBOURS, len(self.index))
        ids = [np.empty(0, np.uint32)] * len(X)
        distances = [np.empty(0, np.float32)] * len(X)
        pending, neighbours = np.arange(len(X)), min(FIRST_NEIGHBOURS, most)
        while len(pending):
            found = self.search(X[pending], neighbours)
            self.stats = found.stats
            for row, query in enumerate(pending):
                near = found.distances[row] < radius
                ids[query], distances[query] = found.ids[row][near], found.distances[row][near]
            # If even the farthest found vector is in range, there may be more.
            again = found.distances[:, -1] < radius
            pending = pending[again] if neighbours < most else pending[:0]
            neighbours = min(4 * neighbours, most)
        limits = np.concatenate([[0], np.cumsum([len(one) for one in ids])])
        self.res = limits, np.concatenate(distances), np.concatenate(ids)

    def get_results(self):
        return self.res

    def get_range_results(self):
        return self.res

    def get_additional(self):
        """Returns the cost of the last search."""
        stats = getattr(self, "stats", None)
        if stats is None:
            return {}
        return {
            "mean_ssd_ios": stats.reads_per_query,
            "mean_latency": stats.latency_us["mean"],
            "dist_comps": int(stats.distance_computations_per_query * stats.queries),
        }

    def done(self):
        if self.index is not None:
            self.index.close()
            self.index = None

    def __str__(self):
        return self.name


def bathyal_dtype(element):
    """Returns the dtype of queries of an index."""
    return {"f32": np.float32, "f16": np.float16, "u8": np.uint8, "i8": np.int8}[element]
