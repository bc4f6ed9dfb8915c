"""Bathyal for the streaming track of big-ann-benchmarks: copy this folder to neurips23/streaming/bathyal."""

import os
import shutil
import tempfile
import warnings

import numpy as np
from neurips23.streaming.base import BaseStreamingANN

import bathyal

METRICS = {"euclidean": "l2", "angular": "cosine", "ip": "ip"}
ELEMENTS = {"float32": "f32", "uint8": "u8", "int8": "i8"}
# A batch must be a small part of the memory for writes.
ROWS_PER_BATCH = 1024


class Bathyal(BaseStreamingANN):
    """Vectors in a collection, by their tags. ``options`` are those of ``bathyal.Collection.create``.

    Query arguments are those of ``Collection.search``. A runbook runs once for each group of them, but only
    the first run begins without vectors, so a configuration has one group.
    """

    def __init__(self, metric, options):
        if metric not in METRICS:
            raise NotImplementedError(f"Bathyal has no metric {metric}")
        self.metric = METRICS[metric]
        self.creating = dict(options)
        self.name = "bathyal"
        self.docs = None
        self.folder = None
        self.searching = {}
        warnings.simplefilter("ignore", bathyal.SearchWarning)

    def setup(self, dtype, max_pts, ndims):
        """Creates an empty collection. It can hold any number of vectors, so ``max_pts`` is ignored."""
        self.folder = tempfile.mkdtemp(prefix="bathyal-")
        path = os.path.join(self.folder, "collection")
        element = ELEMENTS[np.dtype(dtype).name]
        self.docs = bathyal.Collection.create(
            path, ndims, self.metric, element=element, id="u64", **self.creating
        )

    def batches(self, X, ids):
        for at in range(0, len(ids), ROWS_PER_BATCH):
            yield ids[at : at + ROWS_PER_BATCH], np.ascontiguousarray(X[at : at + ROWS_PER_BATCH])

    def insert(self, X, ids):
        """Adds the vectors ``X`` (``vectors x dim``) with the new tags ``ids``."""
        self.docs.add_batches(self.batches(X, ids), progress=False)

    def replace(self, X, ids):
        """Replaces the vectors with the tags ``ids`` by ``X``."""
        self.docs.add_batches(self.batches(X, ids), upsert=True, progress=False)

    def delete(self, ids):
        """Deletes the vectors with the tags ``ids``."""
        self.docs.delete(ids)

    def set_query_arguments(self, query_args):
        """Sets the options of the next searches: ``recall``, ``search_list``, ``threads``."""
        self.searching = dict(query_args)

    def query(self, X, k):
        """Finds the ``k`` nearest of each row of ``X``; see :meth:`get_results`."""
        found = self.docs.search(np.ascontiguousarray(X), k, **self.searching)
        self.costs = found.costs
        # Tags have 32 bits; -1 pads rows with fewer results.
        self.res = np.full((len(X), k), -1, np.int32)
        self.res[:, : found.ids.shape[1]] = found.ids

    def get_results(self):
        return self.res

    def get_additional(self):
        """Returns the cost of the last search and the shape of the collection."""
        about = self.docs.inspect()
        return {
            "reads": self.costs["reads"],
            "segments": len(about["segments"]),
            "space_amplification": about["space_amplification"],
        }

    def done(self):
        if self.docs is not None:
            self.docs.close()
            self.docs = None
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def __str__(self):
        return self.name
