"""RaBitQ-Library. SymphonyQG: ``build``: max_degree, ef_construction; ``search``: ef.

IVF with RaBitQ codes: ``build``: num_clusters, nbits; ``search``: nprobe.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer, Unsupported

FILE = "index.rabitq"
LEAST_DIM = 64


class SymphonyQg(Peer):
    """A graph whose records contain the codes of all neighbours, in memory."""

    requirement = "rabitqlib"
    metrics = ("l2", "ip")

    def load_library(self) -> None:
        import rabitqlib

        self.package = rabitqlib
        if self.data.dim < LEAST_DIM:
            raise Unsupported(f"rabitqlib rotates vectors of {LEAST_DIM} components or more")

    def build(self, index: Path, options: Options) -> Options:
        graph_options = {name: options[name] for name in options if name not in ("ef_construction", "init")}
        graph = self.package.SymqgIndex(self.data.dim, metric=self.data.metric, **graph_options)
        initial = {"init": options["init"]} if "init" in options else {}
        graph.build(self.vectors(), options["ef_construction"], num_threads=self.threads, **initial)
        graph.save(str(index / FILE))
        return {}

    def open(self, index: Path, options: Options) -> None:
        self.index = self.package.SymqgIndex.load(str(index / FILE))

    def set_effort(self, options: Options) -> None:
        self.options = options

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        ids, _ = self.index.search(queries, k, num_threads=self.threads, **self.options)
        return ids.astype(np.int64)

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        return self.index.search(query[np.newaxis], k, num_threads=1, **self.options)[0][0]

    def close(self) -> None:
        del self.index


class IvfRabitq(SymphonyQg):
    """Clusters of RaBitQ codes, scanned in memory."""

    def build(self, index: Path, options: Options) -> Options:
        vectors = self.vectors()
        clusters = self.package.RaBitQKMeans(self.data.dim, options["num_clusters"], num_threads=self.threads)
        clusters.train(vectors)
        count, metric = len(vectors), self.data.metric
        lists = self.package.IvfIndex(self.data.dim, count, metric=metric, **options)
        lists.build(vectors, clusters.centroids, clusters.assignments, num_threads=self.threads)
        lists.save(str(index / FILE))
        return {}

    def open(self, index: Path, options: Options) -> None:
        self.index = self.package.IvfIndex.load(str(index / FILE))
