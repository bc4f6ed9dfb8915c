"""scalable-vs (SVS). ``build``: alpha, graph_max_degree, window_size, and for LVQ primary, residual, padding.

``search``: search_window_size. ``build.primary`` chooses LVQ; without it vectors stay float32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer

LVQ = ("primary", "residual", "padding")


class ScalableVs(Peer):
    """A Vamana graph in memory, over float32 or over vectors compressed by LVQ."""

    requirement = "scalable-vs"
    metrics = ("l2",)

    def load_library(self) -> None:
        import svs

        self.package = svs

    def build(self, index: Path, options: Options) -> Options:
        svs = self.package
        graph = {name: value for name, value in options.items() if name not in LVQ}
        lvq = {name: value for name, value in options.items() if name in LVQ}
        parameters = svs.VamanaBuildParameters(**graph)
        data: Any = self.vectors()
        if lvq:
            vectors = index / "uncompressed.fvecs"
            svs.write_vecs(data, str(vectors))
            loader = svs.VectorDataLoader(str(vectors), svs.DataType.float32, self.data.dim)
            data = svs.LVQLoader(loader, **lvq)
        built = svs.Vamana.build(parameters, data, svs.DistanceType.L2, self.threads)
        built.save(*(str(index / part) for part in ("config", "graph", "data")))
        (index / "uncompressed.fvecs").unlink(missing_ok=True)
        return {}

    def open(self, index: Path, options: Options) -> None:
        svs = self.package
        data = svs.VectorDataLoader(str(index / "data"))
        if "lvq" in options:
            source = svs.VectorDataLoader(str(index / "data"), svs.DataType.float32, self.data.dim)
            data = svs.LVQLoader(source, **options["lvq"]).reload_from(str(index / "data"))
        graph = svs.GraphLoader(str(index / "graph"))
        distance = svs.DistanceType.L2
        self.index = svs.Vamana(str(index / "config"), graph, data, distance, num_threads=self.threads)

    def set_effort(self, options: Options) -> None:
        self.index.search_window_size = options["search_window_size"]

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        if self.index.num_threads != self.threads:
            self.index.num_threads = self.threads
        return self.index.search(queries, k)[0].astype(np.int64)

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        if self.index.num_threads != 1:
            self.index.num_threads = 1
        return self.index.search(query, k)[0][0]

    def close(self) -> None:
        del self.index
