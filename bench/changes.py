"""Compares inserts of systems: the last tenth of a set is inserted into an index over the other nine tenths.

All numbers are for one thread and medians over the repeats: vectors inserted per second; queries per second
and overall ratio while the inserts are pending, after they were merged into the index if that is a separate
step, and for an index built over all vectors. Inserts into Bathyal and LanceDB are on the device when the
call returns; hnswlib and faiss change memory, which is lost with the process. Systems that are not installed
are skipped.

    PYTHONPATH=bench python bench/changes.py base.fbin queries.fbin gt.ibin --work FOLDER
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.datasets import read_vectors
from bathyal_bench.ratio import lengths, of_queries

# Vectors per call.
BATCH = 1000
K = 10
Vectors = NDArray[Any]


class Bathyal:
    """Hash tables that search at a requested overall ratio."""

    name = "bathyal lsh, file"
    package = "bathyal"

    def __init__(self, work: Path, ratio: float) -> None:
        self.path, self.ratio = work / "bathyal", ratio

    def build(self, vectors: Vectors) -> None:
        import bathyal

        shutil.rmtree(self.path, ignore_errors=True)
        self.index = bathyal.build(vectors, self.path, metric="l2", family="lsh", progress=False)

    def insert(self, vectors: Vectors) -> None:
        self.index.insert(vectors)

    def search(self, queries: Vectors) -> Vectors:
        return self.index.search(queries, k=K, ratio=self.ratio, threads=1).ids

    def settle(self) -> None:
        """Makes the inserted vectors part of the tables."""
        import bathyal

        self.index.close()
        bathyal.compact(self.path, progress=False)
        self.index = bathyal.open(self.path)


class Hnswlib:
    """A graph in memory."""

    name = "hnswlib, memory"
    package = "hnswlib"

    def __init__(self, work: Path, ratio: float) -> None:
        self.count = 0

    def build(self, vectors: Vectors) -> None:
        import hnswlib

        self.index = hnswlib.Index("l2", vectors.shape[1])
        self.index.init_index(2 * len(vectors), M=16, ef_construction=200)
        self.index.add_items(vectors)
        self.index.set_num_threads(1)
        self.index.set_ef(K)

    def insert(self, vectors: Vectors) -> None:
        self.index.add_items(vectors, num_threads=1)

    def search(self, queries: Vectors) -> Vectors:
        return self.index.knn_query(queries, K, num_threads=1)[0]


class Faiss:
    """Lists of exact vectors in memory."""

    name = "faiss IVF flat, memory"
    package = "faiss"

    def __init__(self, work: Path, ratio: float) -> None:
        pass

    def build(self, vectors: Vectors) -> None:
        import faiss

        faiss.omp_set_num_threads(os.cpu_count())
        self.index = faiss.index_factory(vectors.shape[1], f"IVF{int(4 * len(vectors) ** 0.5)},Flat")
        self.index.train(vectors.astype(np.float32))
        self.index.add(vectors.astype(np.float32))
        self.index.nprobe = 4
        faiss.omp_set_num_threads(1)

    def insert(self, vectors: Vectors) -> None:
        self.index.add(vectors.astype(np.float32))

    def search(self, queries: Vectors) -> Vectors:
        return self.index.search(queries.astype(np.float32), K)[1]


class LanceDB:
    """IVF-PQ on the disk. Added rows are scanned until the index is updated."""

    name = "LanceDB IVF-PQ, file"
    package = "lancedb"

    def __init__(self, work: Path, ratio: float) -> None:
        self.path = work / "lance"

    def build(self, vectors: Vectors) -> None:
        import lancedb

        shutil.rmtree(self.path, ignore_errors=True)
        self.rows = 0
        database = lancedb.connect(str(self.path))
        self.table = database.create_table("vectors", self.batch(vectors))
        self.table.create_index(
            "l2", num_partitions=int(len(vectors) ** 0.5), num_sub_vectors=vectors.shape[1] // 8
        )

    def batch(self, vectors: Vectors) -> Any:
        import pyarrow

        flat = pyarrow.array(vectors.astype(np.float32).reshape(-1))
        lists = pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        ids = pyarrow.array(range(self.rows, self.rows + len(vectors)), pyarrow.int64())
        self.rows += len(vectors)
        return pyarrow.table({"id": ids, "vector": lists})

    def insert(self, vectors: Vectors) -> None:
        self.table.add(self.batch(vectors))

    def search(self, queries: Vectors) -> Vectors:
        answers = []
        for query in queries[:100].astype(np.float32):
            found = self.table.search(query).nprobes(8).refine_factor(4).limit(K).to_arrow()
            answers.append(found["id"].to_numpy())
        return np.stack(answers)

    def settle(self) -> None:
        """Merges added rows into the index."""
        self.table.optimize()


SYSTEMS = [Bathyal, Hnswlib, Faiss, LanceDB]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Returns the seconds that ``work`` took, and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def ratio(base: Vectors, queries: Vectors, exact: Vectors, found: Vectors) -> float:
    """Returns the mean overall ratio of the found ids."""
    searched = queries[: len(found)]
    returned, true = (
        np.sort(lengths(base[ids[:, :K]], searched, "l2"), axis=1) for ids in (found, exact[: len(found)])
    )
    each = of_queries(returned, true, K)
    return float(each[np.isfinite(each)].mean())


def measure(system: Any, base: Vectors, queries: Vectors, exact: Vectors) -> dict[str, float]:
    """Measures one repeat."""
    rest = len(base) * 9 // 10
    system.build(base[:rest])
    batches = [base[at : at + BATCH] for at in range(rest, len(base), BATCH)]
    inserting, _ = timed(lambda: [system.insert(batch) for batch in batches])
    system.search(queries)
    pending, found = timed(lambda: system.search(queries))
    figures = {
        "inserted_per_second": (len(base) - rest) / inserting,
        "qps_pending": len(found) / pending,
        "ratio_pending": ratio(base, queries, exact, found),
    }
    if hasattr(system, "settle"):
        figures["settle_seconds"], _ = timed(system.settle)
        system.search(queries)
        after, found = timed(lambda: system.search(queries))
        figures |= {"qps_settled": len(found) / after, "ratio_settled": ratio(base, queries, exact, found)}
    system.build(base)
    system.search(queries)
    whole, found = timed(lambda: system.search(queries))
    return figures | {"qps_built": len(found) / whole, "ratio_built": ratio(base, queries, exact, found)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("groundtruth", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--ratio", type=float, default=1.05)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", help="the package of a system")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    base, queries = read_vectors(arguments.base), read_vectors(arguments.queries)[:1000]
    count, k = np.fromfile(arguments.groundtruth, np.uint32, 2)
    exact = np.fromfile(arguments.groundtruth, np.int32, count * k, offset=8).reshape(count, k)
    for kind in SYSTEMS:
        if arguments.only and kind.package not in arguments.only:
            continue
        try:
            importlib.import_module(kind.package)
        except ImportError as error:
            print(f"{kind.name}: skipped: {error}", file=sys.stderr)
            continue
        system = kind(arguments.work, arguments.ratio)
        runs = [measure(system, base, queries, exact) for _ in range(arguments.repeats)]
        middle = {key: round(statistics.median(run[key] for run in runs), 4) for key in runs[0]}
        print(
            json.dumps({"system": kind.name, "data": arguments.base.name, "vectors": len(base), **middle}),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
