"""The systems that are compared in an object store: building, opening and searching with each."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.cloud.servers import Store
from bathyal_bench.datasets import DataSet

Effort = dict[str, Any]
# Recalls requested from Bathyal: around those that reports compare at.
RECALLS = (0.85, 0.90, 0.95, 0.98, 0.99, 0.995)
# Lists that LanceDB scans, and candidates beyond k whose vectors it reads, in all combinations.
NPROBES = (4, 8, 16, 32, 64, 128, 256)
REFINE_FACTORS = (1, 2, 5, 10, 20, 40)
# Most requests in flight of LanceDB: Bathyal's default, instead of LanceDB's own 64.
LANCE_IO_THREADS = "512"
# LanceDB's names of metrics, if they differ.
LANCE_METRICS = {"ip": "dot"}
# Rows per batch for LanceDB.
ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Answers:
    """Results of a batch of queries."""

    ids: NDArray[np.int64]
    """``queries x k``; -1 for missing results."""
    latencies_ms: NDArray[np.float64]
    seconds: float


class System(ABC):
    """An index of one data set in one bucket."""

    library: Any
    """The package, once it is loaded."""

    def __init__(self, name: str, data: DataSet, options: dict[str, Any]) -> None:
        self.name, self.data, self.options = name, data, options

    @property
    def place(self) -> str:
        """Name of the index in the bucket: one for each data set and choice of options."""
        key = json.dumps([self.options, self.data.metric, self.data.data_bytes], sort_keys=True)
        return f"{self.data.name}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"

    def version(self) -> str:
        """Returns the version of the package."""
        return str(self.library.__version__)

    @abstractmethod
    def load_library(self) -> None:
        """Imports the package before measurements, so that its time and memory do not count for the index."""

    @abstractmethod
    def build(self, store: Store, scratch: str, rebuild: bool) -> bool:
        """Builds the index in the bucket; returns False if it exists already."""

    @abstractmethod
    def efforts(self) -> list[Effort]:
        """Returns the efforts in ascending order, as far as they have one."""

    @abstractmethod
    def open(self, store: Store) -> None:
        """Opens the index."""

    @abstractmethod
    def warm(self, k: int) -> None:
        """Loads into memory what the system keeps there, with the system's own function."""

    @abstractmethod
    def prepare_queries(self, queries: NDArray[Any]) -> NDArray[Any]:
        """Converts queries to the element that the system takes."""

    @abstractmethod
    def search(self, queries: NDArray[Any], k: int, effort: Effort, concurrency: int) -> Answers:
        """Answers all queries, ``concurrency`` at a time."""


class Bathyal(System):
    """``options`` go to ``bathyal.build``."""

    def load_library(self) -> None:
        import bathyal

        warnings.simplefilter("ignore", bathyal.SearchWarning)
        self.library = bathyal

    def address(self, store: Store) -> str:
        """Returns the address of the index."""
        return f"s3://{store.bucket}/bathyal/{self.place}"

    def build(self, store: Store, scratch: str, rebuild: bool) -> bool:
        options = store.as_bathyal_options()
        if not rebuild:
            try:
                self.library.open(self.address(store), store_options=options).close()
                return False
            except FileNotFoundError:
                pass
        self.library.build(
            str(self.data.base),
            self.address(store),
            metric=self.data.metric,
            overwrite=True,
            progress=False,
            store_options=options | {"scratch": scratch},
            **self.options,
        ).close()
        return True

    def efforts(self) -> list[Effort]:
        return [{"recall": recall} for recall in RECALLS]

    def open(self, store: Store) -> None:
        self.store = store
        self.index = self.library.open(self.address(store), store_options=store.as_bathyal_options())

    def warm(self, k: int) -> None:
        # A plain open returns before everything is in memory, so open again and wait.
        self.index.close()
        options = self.store.as_bathyal_options()
        self.index = self.library.open(self.address(self.store), wait=True, store_options=options)
        self.index.warm(k=k)

    def prepare_queries(self, queries: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(queries)

    def search(self, queries: NDArray[Any], k: int, effort: Effort, concurrency: int) -> Answers:
        threads = min(concurrency, len(os.sched_getaffinity(0)))
        began = time.perf_counter()
        found = self.index.search(
            queries, k, threads=threads, in_flight=math.ceil(concurrency / threads), **effort
        )
        seconds = time.perf_counter() - began
        return Answers(found.ids.astype(np.int64), found.stats.latencies_ns / 1e6, seconds)


class LanceDb(System):
    """``options``: ``index``, the name of a class of ``lancedb.index``, and its arguments.

    Results are row ids, so that no query reads a column of ids: the fastest way for LanceDB.
    """

    @property
    def metric(self) -> str:
        """LanceDB's name of the metric."""
        return LANCE_METRICS.get(self.data.metric, self.data.metric)

    def load_library(self) -> None:
        os.environ.setdefault("LANCE_IO_THREADS", LANCE_IO_THREADS)
        import lancedb
        import lancedb.index
        import pyarrow

        self.library, self.arrow = lancedb, pyarrow
        self.loop = asyncio.new_event_loop()

    def build(self, store: Store, scratch: str, rebuild: bool) -> bool:
        return self.loop.run_until_complete(self.build_table(store, rebuild))

    async def connect(self, store: Store) -> Any:
        """Connects to the database, which has one table for each index."""
        return await self.library.connect_async(
            f"s3://{store.bucket}/lance", storage_options=store.as_lance_options()
        )

    async def build_table(self, store: Store, rebuild: bool) -> bool:
        """Writes the vectors as float32, then builds the index."""
        database = await self.connect(store)
        try:
            table = await database.open_table(self.place)
        except ValueError:
            table = None
        if table is not None and await table.list_indices() and not rebuild:
            return False
        table = await database.create_table(
            self.place, self.batches(), schema=self.schema(), mode="overwrite"
        )
        kind = getattr(self.library.index, self.options["index"])
        more = {name: value for name, value in self.options.items() if name != "index"}
        await table.create_index("vector", config=kind(distance_type=self.metric, **more))
        return True

    def schema(self) -> Any:
        """Columns: the number of each row, to translate row ids, and its vector."""
        vector = self.arrow.list_(self.arrow.float32(), self.data.dim)
        return self.arrow.schema([("id", self.arrow.uint32()), ("vector", vector)])

    def batches(self) -> Any:
        """Yields all rows, some at a time."""
        vectors = self.data.vectors()
        for first in range(0, len(vectors), ROWS_AT_ONCE):
            rows = np.asarray(vectors[first : first + ROWS_AT_ONCE], np.float32)
            flat = self.arrow.array(rows.reshape(-1))
            lists = self.arrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
            ids = self.arrow.array(np.arange(first, first + len(rows), dtype=np.uint32))
            yield self.arrow.record_batch([ids, lists], schema=self.schema())

    def efforts(self) -> list[Effort]:
        return [{"nprobes": lists, "refine_factor": more} for lists in NPROBES for more in REFINE_FACTORS]

    def open(self, store: Store) -> None:
        self.loop.run_until_complete(self.open_table(store))

    async def open_table(self, store: Store) -> None:
        """Opens the table; its index is read by the first search."""
        self.table = await (await self.connect(store)).open_table(self.place)

    def warm(self, k: int) -> None:
        async def all_of_the_index() -> None:
            for index in await self.table.list_indices():
                await self.table.prewarm_index(index.name)

        self.loop.run_until_complete(all_of_the_index())

    def learn_row_ids(self, store: Store) -> None:
        """Reads which row id stands for which vector, outside of measurements; later results are numbers of
        vectors.
        """

        async def read() -> Any:
            table = await (await self.connect(store)).open_table(self.place)
            return await table.query().select(["id"]).with_row_id().to_arrow()

        rows = self.loop.run_until_complete(read())
        row_ids = rows["_rowid"].to_numpy().astype(np.int64)
        order = np.argsort(row_ids)
        self.row_ids, self.numbers = row_ids[order], rows["id"].to_numpy()[order]

    def prepare_queries(self, queries: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(queries, np.float32)

    def search(self, queries: NDArray[Any], k: int, effort: Effort, concurrency: int) -> Answers:
        latencies = np.zeros(len(queries))
        found = np.full((len(queries), k), -1, np.int64)

        async def search_one(row: int, slots: asyncio.Semaphore) -> None:
            async with slots:
                began = time.perf_counter()
                search = self.table.vector_search(queries[row]).distance_type(self.metric).limit(k)
                for name, value in effort.items():
                    search = getattr(search, name)(value)
                answer = (await search.select(["_distance"]).with_row_id().to_arrow())["_rowid"].to_numpy()
                latencies[row] = (time.perf_counter() - began) * 1e3
                found[row, : len(answer)] = answer

        async def search_all() -> None:
            slots = asyncio.Semaphore(concurrency)
            await asyncio.gather(*(search_one(row, slots) for row in range(len(queries))))

        began = time.perf_counter()
        self.loop.run_until_complete(search_all())
        seconds = time.perf_counter() - began
        return Answers(self.as_ids(found), latencies, seconds)

    def as_ids(self, found: NDArray[np.int64]) -> NDArray[np.int64]:
        """Translates row ids to numbers of vectors, if :meth:`learn_row_ids` was called."""
        if not hasattr(self, "row_ids"):
            return found
        at = np.minimum(np.searchsorted(self.row_ids, found), len(self.row_ids) - 1)
        return np.where(self.row_ids[at] == found, self.numbers[at], -1)


def sub_vectors(dim: int) -> int:
    """Number of sub-vectors of LanceDB's product quantisation: 4 components each, or a few more.

    >>> sub_vectors(128), sub_vectors(100), sub_vectors(22)
    (32, 25, 2)
    """
    return next(parts for parts in range(max(1, dim // 4), 0, -1) if dim % parts == 0)


def systems(data: DataSet) -> dict[str, System]:
    """All systems, by the short names of the command line; Bathyal's default first."""
    lists = max(1, round(math.sqrt(data.count)))
    spann = {"family": "spann", "layout": "coupled"}
    product = {"index": "IvfPq", "num_partitions": lists, "num_sub_vectors": sub_vectors(data.dim)}
    return {
        "cluster": Bathyal("Bathyal cluster", data, {"family": "cluster"}),
        "graph": Bathyal("DiskANN-shaped (graph, padded)", data, {"family": "graph", "layout": "padded"}),
        "spann": Bathyal("SPANN-shaped (spann, coupled)", data, spann),
        "spann-codes": Bathyal("Bathyal spann, lists of codes", data, spann | {"code_kind": "axes"}),
        "lance-pq": LanceDb("LanceDB IVF-PQ", data, product),
        "lance-rq": LanceDb("LanceDB IVF-RaBitQ", data, {"index": "IvfRq", "num_partitions": lists}),
    }
