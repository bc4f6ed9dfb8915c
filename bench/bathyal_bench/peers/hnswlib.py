"""hnswlib. ``build``: M, ef_construction. ``search``: ef."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer

FILE = "index.bin"


class Hnswlib(Peer):
    """The reference implementation of HNSW, float32, in memory."""

    requirement = "hnswlib"

    def load_library(self) -> None:
        import hnswlib

        self.package = hnswlib

    def build(self, index: Path, options: Options) -> Options:
        graph = self.package.Index(space=self.data.metric, dim=self.data.dim)
        graph.init_index(max_elements=self.data.count, **options)
        graph.set_num_threads(self.threads)
        graph.add_items(self.vectors())
        graph.save_index(str(index / FILE))
        return {}

    def open(self, index: Path, options: Options) -> None:
        self.index = self.package.Index(space=self.data.metric, dim=self.data.dim)
        self.index.load_index(str(index / FILE), **options)

    def set_effort(self, options: Options) -> None:
        self.index.set_ef(options["ef"])

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        labels, _ = self.index.knn_query(queries, k=k, num_threads=self.threads)
        return labels.astype(np.int64)

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        labels, _ = self.index.knn_query(query, k=k, num_threads=1)
        return labels[0]

    def close(self) -> None:
        del self.index
