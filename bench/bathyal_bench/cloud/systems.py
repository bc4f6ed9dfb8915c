"""The systems that are compared in an object store: how each builds there, opens and answers."""

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
# Recalls that Bathyal is asked for: around those that are compared at.
RECALLS = (0.85, 0.90, 0.95, 0.98, 0.99, 0.995)
# Lists that LanceDB scans, and candidates beyond k that it reads whole, in all combinations.
NPROBES = (4, 8, 16, 32, 64, 128, 256)
REFINE_FACTORS = (1, 2, 5, 10, 20, 40)
# Requests that LanceDB may have in flight, as many as Bathyal may by its default; LanceDB's own is 64.
LANCE_IO_THREADS = "512"
# Metrics as LanceDB calls them, where it does so otherwise.
LANCE_METRICS = {"ip": "dot"}
# Rows that are given to LanceDB at a time.
ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Answers:
    """What came of a batch of queries."""

    ids: NDArray[np.int64]
    """``queries x k``; -1 where nothing was found."""
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
        """Where the index lies in the bucket: a folder for each data set and each choice of options."""
        told = json.dumps([self.options, self.data.metric, self.data.data_bytes], sort_keys=True)
        return f"{self.data.name}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"

    def version(self) -> str:
        """Of the package."""
        return str(self.library.__version__)

    @abstractmethod
    def load_library(self) -> None:
        """Imports the package, whose time and memory are not the index's."""

    @abstractmethod
    def build(self, store: Store, scratch: str, rebuild: bool) -> bool:
        """Builds in the bucket; False if the index is there already."""

    @abstractmethod
    def efforts(self) -> list[Effort]:
        """From the least to the most, as far as they have an order."""

    @abstractmethod
    def open(self, store: Store) -> None:
        """Opens the index."""

    @abstractmethod
    def warm(self, k: int) -> None:
        """Brings into memory what the system keeps there, by its own means."""

    @abstractmethod
    def prepare_queries(self, queries: NDArray[Any]) -> NDArray[Any]:
        """In the element that the system takes."""

    @abstractmethod
    def search(self, queries: NDArray[Any], k: int, effort: Effort, concurrency: int) -> Answers:
        """Answers all, ``concurrency`` at any time."""


class Bathyal(System):
    """``options`` go to ``bathyal.build``."""

    def load_library(self) -> None:
        import bathyal

        warnings.simplefilter("ignore", bathyal.SearchWarning)
        self.library = bathyal

    def address(self, store: Store) -> str:
        """Of the index."""
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
        # It answers before all is in memory that it keeps there.
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

    Answers are row ids, so that no query has to read a column of ids: LanceDB at its best.
    """

    @property
    def metric(self) -> str:
        """As LanceDB calls it."""
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
        """The database, which has one table for each index."""
        return await self.library.connect_async(
            f"s3://{store.bucket}/lance", storage_options=store.as_lance_options()
        )

    async def build_table(self, store: Store, rebuild: bool) -> bool:
        """Writes the vectors as float32, then the index."""
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
        """A number for each row, which says what its row id stands for, and its vector."""
        vector = self.arrow.list_(self.arrow.float32(), self.data.dim)
        return self.arrow.schema([("id", self.arrow.uint32()), ("vector", vector)])

    def batches(self) -> Any:
        """All rows, some at a time."""
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
        """Opens the table; its index is read when it is searched."""
        self.table = await (await self.connect(store)).open_table(self.place)

    def warm(self, k: int) -> None:
        async def all_of_the_index() -> None:
            for index in await self.table.list_indices():
                await self.table.prewarm_index(index.name)

        self.loop.run_until_complete(all_of_the_index())

    def learn_row_ids(self, store: Store) -> None:
        """Reads which row id stands for which vector, off the clock: answers are ids from here on."""

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

        async def ask(row: int, turn: asyncio.Semaphore) -> None:
            async with turn:
                began = time.perf_counter()
                search = self.table.vector_search(queries[row]).distance_type(self.metric).limit(k)
                for name, value in effort.items():
                    search = getattr(search, name)(value)
                answer = (await search.select(["_distance"]).with_row_id().to_arrow())["_rowid"].to_numpy()
                latencies[row] = (time.perf_counter() - began) * 1e3
                found[row, : len(answer)] = answer

        async def ask_all() -> None:
            turn = asyncio.Semaphore(concurrency)
            await asyncio.gather(*(ask(row, turn) for row in range(len(queries))))

        began = time.perf_counter()
        self.loop.run_until_complete(ask_all())
        seconds = time.perf_counter() - began
        return Answers(self.as_ids(found), latencies, seconds)

    def as_ids(self, found: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row ids as numbers of vectors, where :meth:`learn_row_ids` was called."""
        if not hasattr(self, "row_ids"):
            return found
        at = np.minimum(np.searchsorted(self.row_ids, found), len(self.row_ids) - 1)
        return np.where(self.row_ids[at] == found, self.numbers[at], -1)


def sub_vectors(dim: int) -> int:
    """Parts of a vector that LanceDB's product quantisation codes by themselves: 4 components each, or a few more.

    >>> sub_vectors(128), sub_vectors(100), sub_vectors(22)
    (32, 25, 2)
    """
    return next(parts for parts in range(max(1, dim // 4), 0, -1) if dim % parts == 0)


def systems(data: DataSet) -> dict[str, System]:
    """All of them, by the short names that the command line knows; Bathyal's default first."""
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
