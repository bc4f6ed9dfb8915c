"""Bathyal for ann-benchmarks: copy this folder to ann_benchmarks/algorithms/bathyal."""

import os
import shutil
import tempfile
import warnings

import numpy as np

import bathyal

from ..base.module import BaseANN

METRICS = {"euclidean": "l2", "angular": "cosine", "ip": "ip"}
# Options of opening; all others are those of a build.
OPEN = ("tier", "memory")


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
        self.options = options
        self.index = None
        self.folder = None
        self.set_query_arguments({})
        warnings.simplefilter("ignore", bathyal.SearchWarning)

    def fit(self, X):
        """Builds over ``X`` (``vectors x dim``) and opens the index."""
        vectors = np.ascontiguousarray(X, None if X.dtype in (np.uint8, np.int8) else np.float32)
        self.dtype = vectors.dtype
        self.folder = tempfile.mkdtemp(prefix="bathyal-")
        path = os.path.join(self.folder, "index")
        bathyal.build(vectors, path, metric=self.metric, progress=False, **self.building).close()
        self.index = bathyal.open(path, **self.opening)

    def set_query_arguments(self, query_args):
        """Sets the options of the next searches: ``search_list``, ``recall``, ``probes``, ``beam_width``."""
        self.searching = dict(query_args)
        self.name = f"Bathyal({self.options}, {self.searching})"

    def search(self, queries, n, threads):
        options = dict(self.searching)
        if "search_list" in options:
            # The list must hold at least as many candidates as the answer.
            options["search_list"] = max(options["search_list"], n)
        rows = np.ascontiguousarray(queries, self.dtype)
        return self.index.search(rows, n, threads=threads, **options)

    def query(self, q, n):
        """Returns the ids of the ``n`` nearest of one query."""
        return self.search(q, n, 1).ids

    def batch_query(self, X, n):
        """Finds the ids of the ``n`` nearest of each query, with all threads; see :meth:`get_batch_results`."""
        found = self.search(X, n, 0)
        self.res = found.ids
        self.stats = found.stats

    def get_batch_results(self):
        return self.res

    def get_batch_latencies(self):
        """Returns the seconds from each query's start to its answer."""
        return [float(taken) / 1e9 for taken in self.stats.latencies_ns]

    def get_additional(self):
        """Returns the cost of the last batch."""
        if getattr(self, "stats", None) is None:
            return {}
        return {"reads": self.stats.reads_per_query, "dist_comps": self.stats.distance_computations_per_query}

    def done(self):
        if self.index is not None:
            self.index.close()
            self.index = None
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def __str__(self):
        return self.name
