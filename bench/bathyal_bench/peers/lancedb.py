"""LanceDB. ``build``: options of ``create_index`` (index_type, num_partitions, ...). ``open``: index_cache,
the most bytes of the index that the package caches. ``search``: nprobes, refine_factor, ef.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer
from bathyal_bench.suite import parse_bytes

TABLE = "vectors"


class LanceDb(Peer):
    """An index in files, read through the page cache; one query per call, ``threads`` calls at once."""

    requirement = "lancedb"
    metrics = ("l2", "cosine")
    note = "one query per call"
    cached_by_kernel = True

    def load_library(self) -> None:
        import lancedb
        import pyarrow

        self.package, self.arrow = lancedb, pyarrow

    def build(self, index: Path, options: Options) -> Options:
        arrow = self.arrow
        vectors = self.vectors()
        lists = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.reshape(-1)), vectors.shape[1])
        ids = arrow.array(np.arange(len(vectors), dtype=np.uint32))
        rows = arrow.table({"id": ids, "vector": lists})
        table = self.package.connect(str(index)).create_table(TABLE, rows)
        table.create_index(metric=self.data.metric, **options)
        return {}

    def open(self, index: Path, options: Options) -> None:
        session = None
        if "index_cache" in options:
            session = self.package.Session(index_cache_size_bytes=parse_bytes(options["index_cache"]))
        self.table = self.package.connect(str(index), session=session).open_table(TABLE)
        self.pool = ThreadPoolExecutor(self.threads)

    def set_effort(self, options: Options) -> None:
        self.options = options

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        answers = list(self.pool.map(lambda query: self.search_one(query, k), queries))
        found = np.full((len(queries), k), -1, np.int64)
        for row, answer in zip(found, answers, strict=True):
            row[: len(answer)] = answer
        return found

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        search = self.table.search(query).distance_type(self.data.metric).limit(k).select(["id", "_distance"])
        for name, value in self.options.items():
            search = getattr(search, name)(value)
        return search.to_arrow()["id"].to_numpy()

    def close(self) -> None:
        self.pool.shutdown()
        del self.table
