"""Bathyal, through its Python package. All options are passed on under the suite's names."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer


class Bathyal(Peer):
    """``build`` goes to ``bathyal.build``, ``open`` to ``bathyal.open``, ``search`` to ``Index.search``."""

    requirement = "bathyal"

    def load_library(self) -> None:
        import bathyal

        self.package = bathyal
        warnings.simplefilter("ignore", bathyal.SearchWarning)

    def build(self, index: Path, options: Options) -> Options:
        built = self.package.build(
            str(self.data.base),
            index / "index",
            metric=self.data.metric,
            threads=self.threads,
            progress=False,
            **options,
        )
        report = built.build_report or {}
        built.close()
        return {"report": report}

    def prepare_queries(self, queries: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(queries)

    def open(self, index: Path, options: Options) -> None:
        self.index = self.package.open(index / "index", **options)

    def set_effort(self, options: Options) -> None:
        self.options = options

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        found = self.index.search(queries, k, threads=self.threads, **self.options)
        self.stats = found.stats
        return found.ids

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        return self.index.search(query, k, threads=1, **self.options).ids

    def counters(self) -> tuple[int, int] | None:
        return int(self.stats.reads.sum()), int(self.stats.bytes.sum())

    def close(self) -> None:
        self.index.close()
