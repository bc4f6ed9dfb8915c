"""ScaNN. ``build``: num_leaves, dimensions_per_block, anisotropic_quantization_threshold, reorder.

``search``: leaves_to_search, pre_reorder_num_neighbors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer

METRICS = {"l2": "squared_l2", "ip": "dot_product"}
# Vectors that the partitions and codes are trained with: ScaNN's own examples take a fifth of a million.
TRAINING_VECTORS = 250_000
# How many answers an index is made for; each search says its own number.
NEIGHBOURS = 10


class Scann(Peer):
    """A partition tree with anisotropic quantization, scanned fast and re-ranked, in memory."""

    requirement = "scann"
    metrics = ("l2", "ip")

    def load_library(self) -> None:
        import scann

        self.package = scann.scann_ops_pybind

    def build(self, index: Path, options: Options) -> Options:
        vectors = self.vectors()
        leaves = options["num_leaves"]
        builder = self.package.builder(vectors, NEIGHBOURS, METRICS[self.data.metric])
        builder.set_n_training_threads(self.threads)
        sample = min(len(vectors), TRAINING_VECTORS)
        builder.tree(leaves, max(1, leaves // 10), training_sample_size=sample)
        threshold = options.get("anisotropic_quantization_threshold", 0.2)
        builder.score_ah(
            options.get("dimensions_per_block", 2),
            anisotropic_quantization_threshold=threshold,
            training_sample_size=sample,
        )
        builder.reorder(options["reorder"])
        builder.build().serialize(str(index))
        return {}

    def open(self, index: Path, options: Options) -> None:
        # The paths that a build writes into its list of files are those of a folder that was renamed since.
        assets = index / "scann_assets.pbtxt"
        text = assets.read_text(encoding="utf-8")
        lines = [self.beside(line, index) for line in text.splitlines()]
        assets.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.index = self.package.load_searcher(str(index))
        self.index.set_num_threads(self.threads)

    @staticmethod
    def beside(line: str, index: Path) -> str:
        """The line, with a path in it leading into ``index``."""
        key, colon, value = line.partition('asset_path: "')
        return f'{key}{colon}{index / Path(value.rstrip(chr(34))).name}"' if colon else line

    def set_effort(self, options: Options) -> None:
        self.options = options

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        several = self.threads > 1
        run = self.index.search_batched_parallel if several else self.index.search_batched
        ids, _ = run(queries, final_num_neighbors=k, **self.options)
        return ids.astype(np.int64)

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        return self.index.search(query, final_num_neighbors=k, **self.options)[0]

    def close(self) -> None:
        del self.index
