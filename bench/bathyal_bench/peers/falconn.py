"""FALCONN. ``open``: l (tables) and num_hash_bits (of each). ``search``: num_probes, over all tables.

FALCONN cannot save its tables, so they are built when the index is opened. Vectors and queries are centred
and float32, as its documentation advises. It searches one query at a time with one thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer, Unsupported

VECTORS, CENTRE = "vectors.npy", "centre.npy"


class Falconn(Peer):
    """Cross-polytope hashes with several probes, in memory."""

    requirement = "FALCONN"
    metrics = ("l2",)
    note = "builds its tables when opened"

    def load_library(self) -> None:
        import falconn

        self.package = falconn

    def build(self, index: Path, options: Options) -> Options:
        vectors = self.vectors()
        centre = vectors.mean(axis=0)
        np.save(index / VECTORS, vectors - centre)
        np.save(index / CENTRE, centre)
        return {}

    def open(self, index: Path, options: Options) -> None:
        if self.threads != 1:
            raise Unsupported("searches with one thread only")
        self.rows, self.centre = np.load(index / VECTORS), np.load(index / CENTRE)
        distance = self.package.DistanceFunction.EuclideanSquared
        parameters = self.package.get_default_parameters(*self.rows.shape, distance, True)
        parameters.num_setup_threads = self.threads
        parameters.l = options.get("l", parameters.l)
        if "num_hash_bits" in options:
            self.package.compute_number_of_hash_functions(options["num_hash_bits"], parameters)
        self.index = self.package.LSHIndex(parameters)
        self.index.setup(self.rows)
        self.query_object = self.index.construct_query_object()

    def set_effort(self, options: Options) -> None:
        self.query_object.set_num_probes(options["num_probes"])

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        found = np.full((len(queries), k), -1, np.int64)
        for row, query in zip(found, queries, strict=True):
            ids = self.query_object.find_k_nearest_neighbors(query - self.centre, k)
            row[: len(ids)] = ids
        return found

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        return self.search(query[np.newaxis], k)[0]

    def close(self) -> None:
        del self.query_object, self.index, self.rows
