"""Bathyal for the filter track of big-ann-benchmarks: copy this folder to neurips23/filter/bathyal."""

import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from benchmark.datasets import DATASETS
from neurips23.filter.base import BaseFilterANN

import bathyal

METRICS = {"euclidean": "l2", "angular": "cosine", "ip": "ip"}
ELEMENTS = {"float32": "f32", "uint8": "u8", "int8": "i8"}
# A batch must be a small part of the memory for writes.
ROWS_PER_BATCH = 1024
TAGS = "tags"


class Bathyal(BaseFilterANN):
    """Vectors in a collection, each with its tags as a list.

    ``options`` are those of ``bathyal.Collection.create``, and query arguments those of
    ``Collection.search``. ``threads`` is the number of filters that are searched concurrently.
    """

    def __init__(self, metric, options):
        if metric not in METRICS:
            raise NotImplementedError(f"Bathyal has no metric {metric}")
        self.metric = METRICS[metric]
        self.creating = dict(options)
        self.name = "bathyal"
        self.docs = None
        self.set_query_arguments({})
        warnings.simplefilter("ignore", bathyal.SearchWarning)

    def collection_folder(self, dataset):
        """Returns the folder of the collection of this data set with these options."""
        options = {**self.creating, **self.creating.get("options", {})}
        options.pop("options", None)
        parts = [f"{name}-{value}" for name, value in sorted(options.items())]
        below = os.path.join("data", "indices", self.track(), str(self), DATASETS[dataset]().short_name())
        return os.path.join(os.getcwd(), below, "_".join(["collection", *parts]))

    def fit(self, dataset):
        """Adds all vectors of the set with their tags, and compacts them into one segment."""
        known = DATASETS[dataset]()
        path = self.collection_folder(dataset)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        columns = {TAGS: "list<int32>"}
        self.docs = bathyal.Collection.create(
            path,
            known.d,
            self.metric,
            element=ELEMENTS[known.dtype],
            id="u64",
            columns=columns if known.search_type() == "knn_filtered" else None,
            durability="system",
            **self.creating,
        )
        self.docs.add_batches(self.batches(known), progress=False)
        self.docs.compact(full=True, progress=False)

    def batches(self, known):
        """Yields ids, vectors and tags in batches."""
        tags = known.get_dataset_metadata() if known.search_type() == "knn_filtered" else None
        for at in range(0, known.nb, ROWS_PER_BATCH):
            end = min(at + ROWS_PER_BATCH, known.nb)
            rows = np.ascontiguousarray(known.get_data_in_range(at, end))
            yield np.arange(at, end), rows, None if tags is None else {TAGS: words(tags, at, end)}

    def load_index(self, dataset):
        """Opens the collection if it exists, and returns whether it does."""
        path = self.collection_folder(dataset)
        if not os.path.isdir(path):
            return False
        self.docs = bathyal.Collection.open(path)
        return True

    def index_files_to_store(self, dataset):
        """Refuses: the program does not upload collections; ``bathyal collection copy`` does."""
        raise NotImplementedError

    def set_query_arguments(self, query_args):
        """Sets the options of the next searches: ``recall``, ``search_list``, ``threads``."""
        self.searching = {"threads": 1, **query_args}

    def query(self, X, k):
        """Finds the ``k`` nearest of each row of ``X`` with any tags; see :meth:`get_results`."""
        found = self.docs.search(np.ascontiguousarray(X), k, **self.searching)
        self.res = padded(found.ids, k)

    def filtered_query(self, X, filter, k):
        """Finds the ``k`` nearest of each row of ``X`` among the vectors that have all tags of the row: the
        columns of the same row in ``filter``, a sparse matrix.
        """
        queries = np.ascontiguousarray(X)
        groups = {}
        for row, tags in enumerate(words(filter, 0, len(X))):
            groups.setdefault(tuple(sorted(tags)), []).append(row)
        self.res = np.full((len(X), k), -1, np.int32)

        def search(group):
            tags, rows = group
            condition = {TAGS: {"$containsAll": list(tags)}} if tags else None
            found = self.docs.search(queries[rows], k, filter=condition, **{**self.searching, "threads": 1})
            self.res[rows] = padded(found.ids, k)

        with ThreadPoolExecutor(max(1, self.searching["threads"])) as pool:
            # Exceptions of the threads are raised here.
            list(pool.map(search, groups.items()))

    def get_results(self):
        return self.res

    def get_additional(self):
        """Returns the size of the collection."""
        return {"bytes": self.docs.inspect()["bytes"]}

    def done(self):
        if self.docs is not None:
            self.docs.close()
            self.docs = None

    def __str__(self):
        return self.name


def words(matrix, start, end):
    """Returns the columns of each row of a sparse matrix."""
    return [matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist() for row in range(start, end)]


def padded(ids, k):
    """Returns ids in the program's form: padded with -1 if fewer than ``k`` match."""
    whole = np.full((len(ids), k), -1, np.int32)
    whole[:, : ids.shape[1]] = ids
    return whole
