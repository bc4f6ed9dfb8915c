"""usearch. ``build``: connectivity, expansion_add, dtype. ``open``: view. ``search``: expansion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer

FILE = "index.usearch"
METRICS = {"l2": "l2sq", "ip": "ip", "cosine": "cos"}


class Usearch(Peer):
    """HNSW with small elements; ``view = true`` maps the file instead of loading it."""

    requirement = "usearch"

    def load_library(self) -> None:
        import usearch.index

        self.package = usearch.index

    def build(self, index: Path, options: Options) -> Options:
        metric = METRICS[self.data.metric]
        graph = self.package.Index(ndim=self.data.dim, metric=metric, **{"dtype": "f32"} | options)
        graph.add(np.arange(self.data.count, dtype=np.uint64), self.vectors(), threads=self.threads)
        graph.save(str(index / FILE))
        return {}

    def open(self, index: Path, options: Options) -> None:
        self.index = self.package.Index.restore(str(index / FILE), **options)

    def set_effort(self, options: Options) -> None:
        self.index.expansion_search = options["expansion"]

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        return self.index.search(queries, k, threads=self.threads).keys.astype(np.int64)

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        return self.index.search(query, k, threads=1).keys

    def close(self) -> None:
        self.index.reset()
