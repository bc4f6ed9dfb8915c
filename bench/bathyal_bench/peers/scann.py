"""ScaNN. ``build``: num_leaves, dimensions_per_block, anisotropic_quantization_threshold, reorder.

``search``: leaves_to_search, pre_reorder_num_neighbors.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer

ASSETS = "scann_assets.pbtxt"
ASSET_PATH = re.compile(r'asset_path: "([^"]*)"')
METRICS = {"l2": "squared_l2", "ip": "dot_product"}
# Vectors for training partitions and codes, as many as in ScaNN's own examples.
TRAINING_VECTORS = 250_000
# Default number of neighbours of an index; each search sets its own.
NEIGHBOURS = 10


def point_into(index: Path) -> Path:
    """Makes the paths in the index's list of files absolute paths into its folder, and returns the folder.

    A build writes paths of its temporary folder, which was renamed afterwards. They must be absolute: ScaNN
    resolves relative ones below the folder that it is given.
    """
    folder = index.resolve()
    assets = folder / ASSETS
    text = assets.read_text(encoding="utf-8")
    pointed = ASSET_PATH.sub(lambda found: f'asset_path: "{folder / Path(found[1]).name}"', text)
    if pointed != text:
        assets.write_text(pointed, encoding="utf-8")
    return folder


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
        self.index = self.package.load_searcher(str(point_into(index)))
        self.index.set_num_threads(self.threads)

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
