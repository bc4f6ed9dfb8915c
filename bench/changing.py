"""Rows that come, change and go, under conditions: collections beside LanceDB, Chroma, Milvus Lite and hnswlib.

One run, in turns, medians over the repeats; two threads where nothing else is said. Searches are compared at the
effort at which a system finds 0.95 of the neighbours among all rows. What Bathyal and LanceDB have written is on
the device when the call returns; Chroma and Milvus Lite write by SQLite and their own logs; hnswlib is in memory,
and saved as a whole. Qdrant's server is no Python package, and its client alone compares all rows in Python: it is
left out. A system that is not installed is left out as well.

    python bench/changing.py base.fbin queries.fbin --work FOLDER [--rows 100000] [--only bathyal]
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.datasets import read_vectors

# Rows of one call.
BATCH = 1000
K = 10
WANTED = 0.95
# Shares of the rows that match.
SHARES = [1.0, 0.5, 0.1, 0.01, 0.001, 0.0001]
# Shares of the rows that are replaced.
REPLACED = [0.0, 0.1, 0.5]
Vectors = NDArray[Any]


class Bathyal:
    """A collection that is asked for a recall."""

    name = "Bathyal"
    package = "bathyal"
    efforts = (WANTED,)

    def __init__(self, work: Path) -> None:
        self.path = work / "bathyal"
        self.effort = WANTED

    def create(self, vectors: Vectors) -> None:
        import bathyal

        shutil.rmtree(self.path, ignore_errors=True)
        kind = {np.dtype(np.uint8): "u8", np.dtype(np.int8): "i8"}.get(vectors.dtype, "f32")
        shape = {"dim": vectors.shape[1], "element": kind, "metric": "l2"}
        columns = {"share": "float32"}
        self.table = bathyal.Collection.create(self.path, **shape, id="u64", columns=columns)

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.table.add(ids, vectors, {"share": shares})

    def upsert(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.table.upsert(ids, vectors, {"share": shares})

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        condition = None if share >= 1 else f"share < {share}"
        found = self.table.search(queries, k=K, recall=self.effort, filter=condition)
        return list(found.ids)

    def settle(self) -> None:
        """Merges all segments."""
        self.table.compact(full=True, progress=False)

    def close(self) -> None:
        self.table.close()


class LanceDB:
    """IVF-PQ on the disk; what was added is scanned until the index is brought up to date."""

    name = "LanceDB IVF-PQ"
    package = "lancedb"
    efforts = tuple((probes, refine) for refine in (4, 10, 30) for probes in (8, 20, 50, 120))

    def __init__(self, work: Path) -> None:
        self.path = work / "lance"
        self.effort = self.efforts[0]

    def create(self, vectors: Vectors) -> None:
        import lancedb
        import pyarrow

        shutil.rmtree(self.path, ignore_errors=True)
        self.dim, self.indexed = vectors.shape[1], False
        fields = [("id", pyarrow.int64()), ("vector", pyarrow.list_(pyarrow.float32(), self.dim))]
        schema = pyarrow.schema([*fields, ("share", pyarrow.float32())])
        self.table = lancedb.connect(str(self.path)).create_table("rows", schema=schema)

    def rows(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> Any:
        import pyarrow

        flat = pyarrow.array(vectors.astype(np.float32).reshape(-1))
        lists = pyarrow.FixedSizeListArray.from_arrays(flat, self.dim)
        columns = {"id": ids.astype(np.int64), "vector": lists, "share": shares.astype(np.float32)}
        return pyarrow.table(columns)

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.table.add(self.rows(ids, vectors, shares))

    def upsert(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        merge = self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self.rows(ids, vectors, shares))

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        def one(query: Vectors) -> Vectors:
            probes, refine = self.effort
            asked = (
                self.table.search(query)
                .nprobes(probes)
                .refine_factor(refine)
                .limit(K)
                .select(["id", "_distance"])
            )
            asked = asked if share >= 1 else asked.where(f"share < {share}", prefilter=True)
            return asked.to_arrow()["id"].to_numpy()

        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(one, queries.astype(np.float32)))

    def settle(self) -> None:
        """Builds the index, or takes what was written into it."""
        if not self.indexed:
            parts, pieces = max(1, int(self.table.count_rows() ** 0.5)), max(1, self.dim // 8)
            self.table.create_index("l2", num_partitions=parts, num_sub_vectors=pieces)
            self.table.create_scalar_index("id")
            self.table.create_scalar_index("share")
            self.indexed = True
        self.table.optimize()

    def close(self) -> None:
        del self.table


class Chroma:
    """A graph in memory, with a log and metadata in SQLite."""

    name = "Chroma"
    package = "chromadb"
    efforts = (20, 50, 100, 200, 400)

    def __init__(self, work: Path) -> None:
        self.path = work / "chroma"
        self.effort = self.efforts[0]

    def create(self, vectors: Vectors) -> None:
        import chromadb

        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self.client = chromadb.PersistentClient(str(self.path / str(time.monotonic_ns())))
        kept = {"hnsw": {"space": "l2", "ef_search": self.effort}}
        self.table = self.client.create_collection("rows", configuration=kept)

    def tuned(self) -> None:
        self.table.modify(configuration={"hnsw": {"ef_search": self.effort}})

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        names = [str(number) for number in ids]
        kept = [{"share": float(share)} for share in shares]
        self.table.add(ids=names, embeddings=vectors.astype(np.float32), metadatas=kept)

    def upsert(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        names = [str(number) for number in ids]
        kept = [{"share": float(share)} for share in shares]
        self.table.upsert(ids=names, embeddings=vectors.astype(np.float32), metadatas=kept)

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        condition = None if share >= 1 else {"share": {"$lt": share}}
        asked = {"query_embeddings": queries.astype(np.float32), "n_results": K, "include": []}
        found = self.table.query(**asked, where=condition)
        return [np.array([int(name) for name in names], np.int64) for names in found["ids"]]

    def close(self) -> None:
        self.client = self.table = None


class MilvusLite:
    """Milvus in this process, in a file."""

    name = "Milvus Lite"
    package = "pymilvus"
    efforts = (16, 64, 128, 256)

    def __init__(self, work: Path) -> None:
        self.path = work / "milvus"
        self.effort = self.efforts[0]

    def create(self, vectors: Vectors) -> None:
        from pymilvus import DataType, MilvusClient

        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self.client = MilvusClient(str(self.path / f"{time.monotonic_ns()}.db"))
        schema = self.client.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
        schema.add_field("share", DataType.FLOAT)
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type="IVF_FLAT", metric_type="L2", params={"nlist": 256})
        self.client.create_collection("rows", schema=schema, index_params=index)

    def rows(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> list[dict[str, Any]]:
        floats = vectors.astype(np.float32)
        each = zip(ids, floats, shares, strict=True)
        return [{"id": int(i), "vector": vector, "share": float(share)} for i, vector, share in each]

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.client.insert("rows", self.rows(ids, vectors, shares))

    def upsert(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.client.upsert("rows", self.rows(ids, vectors, shares))

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        how = {"metric_type": "L2", "params": {"nprobe": self.effort}}
        condition = "" if share >= 1 else f"share < {share}"
        asked = list(queries.astype(np.float32))
        found = self.client.search("rows", asked, filter=condition, limit=K, search_params=how)
        return [np.array([hit["id"] for hit in hits], np.int64) for hits in found]

    def close(self) -> None:
        self.client.close()


class Hnswlib:
    """A graph in memory, saved as a whole."""

    name = "hnswlib, saved"
    package = "hnswlib"
    efforts = (20, 40, 80, 160, 320)

    def __init__(self, work: Path) -> None:
        self.path = work / "hnswlib"
        self.effort = self.efforts[0]

    def create(self, vectors: Vectors) -> None:
        import hnswlib

        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self.index = hnswlib.Index("l2", vectors.shape[1])
        self.index.init_index(1_000_000, M=16, ef_construction=200, allow_replace_deleted=True)
        self.index.set_num_threads(2)
        self.shares: dict[int, float] = {}

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.index.add_items(vectors.astype(np.float32), ids, num_threads=1)
        self.shares.update(zip(ids.tolist(), shares.tolist(), strict=True))

    upsert = add

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        self.index.set_ef(max(K, self.effort))
        condition = None if share >= 1 else (lambda label: self.shares[label] < share)
        # A condition in Python holds the interpreter.
        threads = 2 if condition is None else 1
        found = self.index.knn_query(queries.astype(np.float32), K, num_threads=threads, filter=condition)
        return list(found[0].astype(np.int64))

    def settle(self) -> None:
        """Saves all of it."""
        self.index.save_index(str(self.path / "index.bin"))

    def close(self) -> None:
        del self.index


SYSTEMS: list[Any] = [Bathyal, LanceDB, Chroma, MilvusLite, Hnswlib]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def batches(rows: int) -> Iterator[Vectors]:
    """Row numbers of each call."""
    for first in range(0, rows, BATCH):
        yield np.arange(first, min(first + BATCH, rows))


class Rows:
    """What the systems hold: vectors and a number of each row."""

    def __init__(self, base: Vectors, rows: int) -> None:
        self.vectors, self.spare = base[:rows], base[rows : 2 * rows]
        self.shares = np.random.default_rng(7).random(rows, dtype=np.float32)
        self.ids = np.arange(rows, dtype=np.uint64)

    def exact(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        """The ids of the nearest rows that match, of each query."""
        matching = np.flatnonzero(self.shares < share) if share < 1 else np.arange(len(self.vectors))
        held = self.vectors[matching].astype(np.float32)
        squares = (held * held).sum(axis=1)
        answers = []
        for query in queries.astype(np.float32):
            distances = squares - 2 * held @ query
            nearest = np.argsort(distances, kind="stable")[:K]
            answers.append(self.ids[matching[nearest]])
        return answers


def recall(exact: list[Vectors], found: list[Vectors]) -> float:
    """The share of the true neighbours that were found."""
    each = zip(exact, found, strict=True)
    hits = sum(len(np.intersect1d(true.astype(np.int64), told.astype(np.int64))) for true, told in each)
    return hits / max(1, sum(len(a) for a in exact))


def fill(system: Any, rows: Rows, threads: int) -> float:
    """Rows a second that are added, by so many threads at once."""
    system.create(rows.vectors)

    def add(some: Vectors) -> None:
        system.add(rows.ids[some], rows.vectors[some], rows.shares[some])

    with ThreadPoolExecutor(threads) as pool:
        seconds, _ = timed(lambda: list(pool.map(add, batches(len(rows.vectors)))))
    return len(rows.vectors) / seconds


def settle(system: Any) -> float:
    """Seconds of what a system does with what was written, where that is a step of its own."""
    return timed(system.settle)[0] if hasattr(system, "settle") else 0.0


def tune(system: Any, queries: Vectors, exact: list[Vectors]) -> float:
    """Takes the least effort with the recall that is wanted, or the largest; what it finds."""
    found = 0.0
    for effort in system.efforts:
        system.effort = effort
        if hasattr(system, "tuned"):
            system.tuned()
        found = recall(exact, system.search(queries))
        if found >= WANTED:
            break
    return found


def speed(system: Any, queries: Vectors, share: float = 1.0) -> tuple[float, list[Vectors]]:
    """Queries a second, and what was found."""
    system.search(queries[:100], share)
    seconds, found = timed(lambda: system.search(queries, share))
    return len(queries) / seconds, found


def replaced(system: Any, rows: Rows, queries: Vectors, share: float) -> dict[str, float]:
    """Searches after a share of the rows was given other vectors: before and after they were taken in."""
    fill(system, rows, 2)
    settle(system)
    now = Rows(rows.vectors.copy(), len(rows.vectors))
    changed = np.random.default_rng(8).choice(
        len(rows.vectors), int(share * len(rows.vectors)), replace=False
    )
    now.vectors[changed] = rows.spare[: len(changed)]
    for first in range(0, len(changed), BATCH):
        some = changed[first : first + BATCH]
        system.upsert(now.ids[some], now.vectors[some], now.shares[some])
    exact = now.exact(queries)
    pending, found = speed(system, queries)
    told = {"qps_pending": pending, "recall_pending": recall(exact, found)}
    told["settle_seconds"] = settle(system)
    settled, found = speed(system, queries)
    return told | {"qps_settled": settled, "recall_settled": recall(exact, found)}


def meanwhile(system: Any, queries: Vectors) -> dict[str, float]:
    """Latencies of single queries, alone and while a system takes in what was written."""

    def latencies(until: Callable[[], bool]) -> list[float]:
        times: list[float] = []
        while not until() or len(times) < 100:
            query = queries[len(times) % len(queries)]
            times.append(timed(lambda query=query: system.search(query[None]))[0])
        return times

    began = time.perf_counter()
    alone = latencies(lambda: time.perf_counter() - began > 2)
    worker = threading.Thread(target=lambda: settle(system))
    worker.start()
    beside = latencies(lambda: not worker.is_alive())
    worker.join()
    tail = lambda times: float(np.quantile(times, 0.99)) * 1e3  # noqa: E731
    return {"p99_ms_alone": tail(alone), "p99_ms_settling": tail(beside)}


def measure(system: Any, rows: Rows, queries: Vectors) -> dict[str, Any]:
    """One repeat."""
    told: dict[str, Any] = {f"rows_per_second_{threads}": fill(system, rows, threads) for threads in (1, 2)}
    one = np.array([len(rows.ids)], np.uint64)
    target = rows.spare[:1]
    system.add(one, target, rows.shares[:1])
    told["searchable_ms"] = 1e3 * timed(lambda: _until_found(system, target, int(one[0])))[0]
    fill(system, rows, 2)
    told["settle_seconds"] = settle(system)
    told["recall"] = tune(system, queries, rows.exact(queries))
    told["bytes"] = sum(file.stat().st_size for file in system.path.rglob("*") if file.is_file())
    for share in SHARES:
        qps, found = speed(system, queries, share)
        told[f"qps_of_{share}"] = qps
        told[f"recall_of_{share}"] = recall(rows.exact(queries, share), found)
    for share in REPLACED:
        for key, value in replaced(system, rows, queries, share).items():
            told[f"{key}_after_{share}"] = value
    changed = slice(0, len(rows.ids) // 4)
    system.upsert(rows.ids[changed], rows.spare[changed], rows.shares[changed])
    told |= meanwhile(system, queries)
    system.close()
    return told


def _until_found(system: Any, target: Vectors, number: int) -> None:
    while number not in system.search(target)[0].astype(np.int64):
        pass


def main() -> int:
    """Measures every system that is installed, and prints a line of JSON for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", help="the package of a system")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    base, queries = read_vectors(arguments.base), read_vectors(arguments.queries)[:1000]
    rows = Rows(base, min(arguments.rows, len(base) // 2))
    for kind in SYSTEMS:
        if arguments.only and kind.package not in arguments.only:
            continue
        try:
            importlib.import_module(kind.package)
        except ImportError as error:
            print(f"{kind.name}: left out: {error}", file=sys.stderr)
            continue
        runs = [measure(kind(arguments.work), rows, queries) for _ in range(arguments.repeats)]
        middle = {key: round(statistics.median(run[key] for run in runs), 4) for key in runs[0]}
        told = {"system": kind.name, "data": arguments.base.name, "rows": len(rows.ids), **middle}
        print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
