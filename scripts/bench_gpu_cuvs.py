"""Indexes of cuVS for bench_gpu.py: CAGRA, IVF-PQ with refinement, and IVF-RaBitQ if the wheel has it.

Written for the wheel `cuvs-cu12` 26.10, whose Python has CAGRA and IVF-PQ, while IVF-RaBitQ exists only in
C++. For a wheel that has it, this module calls it like the others, with the names of its C++ interface.
Everything is in the memory of the card, including the vectors, except those of IVF-RaBitQ, which compares
only codes.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda.bindings import runtime
from cuvs.neighbors import refine
from numpy.typing import NDArray
from pylibraft.common import device_ndarray

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
from bathyal_bench.recall import read_groundtruth, recall_at

ELEMENTS = {".fbin": np.float32, ".f16bin": np.float16, ".u8bin": np.uint8, ".i8bin": np.int8}
# Approximate vectors per group.
GROUP = 500
# Candidates of IVF-PQ per neighbour for which exact distances are computed.
REFINED = 4
# Bits of IVF-RaBitQ per dimension.
BITS = 4


@dataclass(frozen=True)
class Peer:
    """A module of cuVS: its build and search calls, and whether searches need the vectors."""

    module: str
    # Takes the module and vectors on the card; returns an index.
    build: Callable[[Any, Any], Any]
    # Takes the module, index, vectors, queries, effort and k; returns ids on the card.
    search: Callable[[Any, Any, Any, Any, int, int], Any]
    keeps_vectors: bool = True
    as_floats: bool = False


def _groups(vectors: Any) -> int:
    return max(16, int(vectors.shape[0]) // GROUP)


def _build_cagra(cagra: Any, vectors: Any) -> Any:
    return cagra.build(cagra.IndexParams(metric="sqeuclidean"), vectors)


def _search_cagra(cagra: Any, index: Any, _vectors: Any, queries: Any, effort: int, k: int) -> Any:
    return cagra.search(cagra.SearchParams(itopk_size=effort), index, queries, k)[1]


def _build_ivf_pq(ivf_pq: Any, vectors: Any) -> Any:
    return ivf_pq.build(ivf_pq.IndexParams(n_lists=_groups(vectors), metric="sqeuclidean"), vectors)


def _search_ivf_pq(ivf_pq: Any, index: Any, vectors: Any, queries: Any, effort: int, k: int) -> Any:
    found = ivf_pq.search(ivf_pq.SearchParams(n_probes=effort), index, queries, REFINED * k)[1]
    return refine(vectors, queries, found, k=k)[1]


def _build_rabitq(rabitq: Any, vectors: Any) -> Any:
    parameters = rabitq.IndexParams(n_lists=_groups(vectors), bits_per_dim=BITS, metric="sqeuclidean")
    return rabitq.build(parameters, vectors)


def _search_rabitq(rabitq: Any, index: Any, _vectors: Any, queries: Any, effort: int, k: int) -> Any:
    return rabitq.search(rabitq.SearchParams(n_probes=effort), index, queries, k)[1]


PEERS = {
    "cagra": Peer("cagra", _build_cagra, _search_cagra),
    "ivf_pq": Peer("ivf_pq", _build_ivf_pq, _search_ivf_pq),
    "ivf_rabitq": Peer("ivf_rabitq", _build_rabitq, _search_rabitq, keeps_vectors=False, as_floats=True),
}


def read_vectors(path: str) -> NDArray[Any]:
    """Reads the rows of a file in the format of big-ann-benchmarks."""
    element = ELEMENTS.get(pathlib.Path(path).suffix)
    if element is None:
        raise ValueError(f"{path}: unknown extension; cuVS is measured on {', '.join(ELEMENTS)}")
    rows, dim = (int(number) for number in np.fromfile(path, "<u4", count=2))
    return np.fromfile(path, element, count=rows * dim, offset=8).reshape(rows, dim)


def free_bytes() -> int:
    """Returns the free memory of the card in bytes."""
    error, free, _ = runtime.cudaMemGetInfo()
    if int(error):
        raise RuntimeError(f"cudaMemGetInfo: {error}")
    return int(free)


class CuvsIndex:
    """An index of cuVS on the card, with the vectors that it needs and the queries."""

    def __init__(self, peer: Peer, options: argparse.Namespace) -> None:
        """Builds the index."""
        self.module = importlib.import_module(f"cuvs.neighbors.{peer.module}")
        vectors, self.queries = read_vectors(options.base), read_vectors(options.query)
        if peer.as_floats:
            vectors, self.queries = vectors.astype(np.float32), self.queries.astype(np.float32)
        self.exact, self.distances = read_groundtruth(pathlib.Path(options.groundtruth))
        self.peer, self.k = peer, options.k
        runtime.cudaFree(0)
        before = free_bytes()
        self.vectors: Any = device_ndarray(vectors)
        began = time.perf_counter()
        self.index: Any = peer.build(self.module, self.vectors)
        self.build_seconds = time.perf_counter() - began
        if not peer.keeps_vectors:
            self.vectors = None
        gc.collect()
        self.card_bytes = before - free_bytes()

    def close(self) -> None:
        """Frees the card's memory."""
        self.index = self.vectors = None
        gc.collect()

    def measure(self, effort: int, batch: int) -> dict[str, Any]:
        """Searches with all queries, ``batch`` per call, including the copies from and to this machine's
        memory.
        """
        rows = [self.queries[first : first + batch] for first in range(0, len(self.queries), batch)]
        self._search(rows[0], effort)
        latencies, found = [], []
        for queries in rows:
            began = time.perf_counter()
            found.append(self._search(queries, effort))
            latencies.append(time.perf_counter() - began)
        recall = recall_at(np.concatenate(found).astype(np.int64), self.exact, self.distances, self.k)
        return {
            "recall": recall,
            "qps": len(self.queries) / sum(latencies),
            "p50_us": statistics.median(latencies) * 1e6,
            "p99_us": float(np.quantile(latencies, 0.99)) * 1e6,
            "card_bytes": self.card_bytes,
            "build_seconds": self.build_seconds,
        }

    def _search(self, queries: NDArray[Any], effort: int) -> NDArray[Any]:
        on_card = device_ndarray(np.ascontiguousarray(queries))
        ids = self.peer.search(self.module, self.index, self.vectors, on_card, effort, self.k)
        copied: NDArray[Any] = ids.copy_to_host()
        return copied
