"""The compared systems, behind one interface."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

K = 10
WANTED = 0.95
Vectors = NDArray[Any]


class System:
    """A table of rows: an id, a vector, and a number that conditions compare to select a share of the rows.

    Several tables may be in one folder, by their names.
    """

    name: str
    package: str
    # From the least effort to the largest.
    efforts: tuple[Any, ...]
    # True if written rows survive a kill without a call that saves them.
    is_durable = True
    # True if rows also survive a loss of power once the call returns.
    syncs = False

    def __init__(self, work: Path, table: str = "rows") -> None:
        """Uses the folder of the system below ``work`` that :meth:`clear` made; opens nothing."""
        self.path = next(path for path in (work / self.package).iterdir() if path.is_dir())
        self.table_name = table
        self.effort = self.efforts[0]
        self.table: Any = None

    @classmethod
    def clear(cls, work: Path) -> None:
        """Removes all tables. The new folder has another name: some systems cache the content of the old
        one.
        """
        shutil.rmtree(work / cls.package, ignore_errors=True)
        (work / cls.package / str(time.monotonic_ns())).mkdir(parents=True)

    def create(self, dim: int, element: np.dtype[Any]) -> None:
        """Creates a table and opens it."""
        raise NotImplementedError

    def open(self) -> None:
        """Opens an existing table."""
        raise NotImplementedError

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        """Adds new rows."""
        raise NotImplementedError

    def upsert(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        """Replaces the vectors of existing rows."""
        raise NotImplementedError

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        """Returns for each query the ids of the nearest rows whose number is below ``share``."""
        raise NotImplementedError

    def search_one(self, query: Vectors, share: float = 1.0) -> Vectors:
        """Returns the ids of the nearest rows to one query."""
        return self.search(query[None], share)[0]

    def count(self) -> int:
        """Returns the number of rows."""
        raise NotImplementedError

    def settle(self) -> None:
        """Does the work that the system does in a separate step: builds the index, or merges written rows."""

    def tuned(self) -> None:
        """Applies a changed ``effort``."""

    def close(self) -> None:
        """Closes the table."""
        self.table = None


class Bathyal(System):
    """A collection, searched at a requested recall."""

    name = "Bathyal"
    package = "bathyal"
    efforts = (WANTED,)
    syncs = True

    def create(self, dim: int, element: np.dtype[Any]) -> None:
        import bathyal

        kind = {np.dtype(np.uint8): "u8", np.dtype(np.int8): "i8"}.get(np.dtype(element), "f32")
        shape: dict[str, Any] = {"dim": dim, "element": kind, "metric": "l2"}
        where = self.path / self.table_name
        self.table = bathyal.Collection.create(where, **shape, id="u64", columns={"share": "float32"})

    def open(self) -> None:
        import bathyal

        self.table = bathyal.Collection.open(self.path / self.table_name)

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.table.add(ids, vectors, {"share": shares})

    def upsert(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.table.upsert(ids, vectors, {"share": shares})

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        condition = None if share >= 1 else f"share < {share}"
        found = self.table.search(queries, k=K, recall=self.effort, filter=condition)
        return list(found.ids)

    def count(self) -> int:
        return len(self.table)

    def settle(self) -> None:
        """Merges all segments."""
        self.table.compact(full=True, progress=False)

    def close(self) -> None:
        self.table.close()


class LanceDB(System):
    """IVF-PQ on disk; added rows are scanned until the index is updated."""

    name = "LanceDB IVF-PQ"
    package = "lancedb"
    efforts = tuple((probes, refine) for refine in (4, 10, 30) for probes in (8, 20, 50, 120))

    def create(self, dim: int, element: np.dtype[Any]) -> None:
        import lancedb
        import pyarrow

        self.dim, self.indexed = dim, False
        fields = [("id", pyarrow.int64()), ("vector", pyarrow.list_(pyarrow.float32(), dim))]
        schema = pyarrow.schema([*fields, ("share", pyarrow.float32())])
        self.table = lancedb.connect(str(self.path)).create_table(self.table_name, schema=schema)

    def open(self) -> None:
        import lancedb

        self.table = lancedb.connect(str(self.path)).open_table(self.table_name)
        self.dim = self.table.schema.field("vector").type.list_size
        self.indexed = bool(self.table.list_indices())

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

    def search_one(self, query: Vectors, share: float = 1.0) -> Vectors:
        probes, refine = self.effort
        search = self.table.search(query.astype(np.float32)).nprobes(probes).refine_factor(refine).limit(K)
        search = search.select(["id", "_distance"])
        search = search if share >= 1 else search.where(f"share < {share}", prefilter=True)
        ids: Vectors = search.to_arrow()["id"].to_numpy()
        return ids

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(lambda query: self.search_one(query, share), queries))

    def count(self) -> int:
        return int(self.table.count_rows())

    def settle(self) -> None:
        """Builds the index, or merges written rows into it."""
        if not self.indexed:
            parts, pieces = max(1, int(self.table.count_rows() ** 0.5)), max(1, self.dim // 8)
            self.table.create_index("l2", num_partitions=parts, num_sub_vectors=pieces)
            self.table.create_scalar_index("id")
            self.table.create_scalar_index("share")
            self.indexed = True
        self.table.optimize()


class Chroma(System):
    """A graph in memory, with a log and metadata in SQLite."""

    name = "Chroma"
    package = "chromadb"
    efforts = (20, 50, 100, 200, 400)
    syncs = True

    def client(self) -> Any:
        import chromadb

        # Chroma returns the same client for the same path.
        return chromadb.PersistentClient(str(self.path))

    def create(self, dim: int, element: np.dtype[Any]) -> None:
        configuration: Any = {"hnsw": {"space": "l2", "ef_search": self.effort}}
        self.table = self.client().create_collection(self.table_name, configuration=configuration)

    def open(self) -> None:
        self.table = self.client().get_collection(self.table_name)

    def tuned(self) -> None:
        self.table.modify(configuration={"hnsw": {"ef_search": self.effort}})

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        names = [str(number) for number in ids]
        metadata = [{"share": float(share)} for share in shares]
        self.table.add(ids=names, embeddings=vectors.astype(np.float32), metadatas=metadata)

    def upsert(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        names = [str(number) for number in ids]
        metadata = [{"share": float(share)} for share in shares]
        self.table.upsert(ids=names, embeddings=vectors.astype(np.float32), metadatas=metadata)

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        condition = None if share >= 1 else {"share": {"$lt": share}}
        options: dict[str, Any] = {"n_results": K, "include": [], "where": condition}
        found = self.table.query(query_embeddings=queries.astype(np.float32), **options)
        return [np.array([int(name) for name in names], np.int64) for names in found["ids"]]

    def count(self) -> int:
        return int(self.table.count())


class MilvusLite(System):
    """Milvus in this process, in one file."""

    name = "Milvus Lite"
    package = "pymilvus"
    efforts = (16, 64, 128, 256)

    def client(self) -> Any:
        from pymilvus import MilvusClient

        return MilvusClient(str(self.path / "milvus.db"))

    def create(self, dim: int, element: np.dtype[Any]) -> None:
        from pymilvus import DataType

        self.table = self.client()
        schema = self.table.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
        schema.add_field("share", DataType.FLOAT)
        index = self.table.prepare_index_params()
        index.add_index("vector", index_type="IVF_FLAT", metric_type="L2", params={"nlist": 256})
        self.table.create_collection(self.table_name, schema=schema, index_params=index)

    def open(self) -> None:
        self.table = self.client()
        self.table.load_collection(self.table_name)

    def rows(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> list[dict[str, Any]]:
        floats = vectors.astype(np.float32)
        columns = zip(ids, floats, shares, strict=True)
        return [{"id": int(i), "vector": vector, "share": float(share)} for i, vector, share in columns]

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.table.insert(self.table_name, self.rows(ids, vectors, shares))

    def upsert(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        self.table.upsert(self.table_name, self.rows(ids, vectors, shares))

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        parameters = {"metric_type": "L2", "params": {"nprobe": self.effort}}
        condition = "" if share >= 1 else f"share < {share}"
        vectors = list(queries.astype(np.float32))
        found = self.table.search(
            self.table_name, vectors, filter=condition, limit=K, search_params=parameters
        )
        return [np.array([hit["id"] for hit in hits], np.int64) for hits in found]

    def count(self) -> int:
        return int(self.table.query(self.table_name, output_fields=["count(*)"])[0]["count(*)"])

    def close(self) -> None:
        from milvus_lite.server_manager import server_manager_instance

        self.table.close()
        # No other process can open the file while this one serves it.
        server_manager_instance.release_server(str(self.path / "milvus.db"))


class Hnswlib(System):
    """A graph in memory, saved as a whole."""

    name = "hnswlib, saved"
    package = "hnswlib"
    efforts = (20, 40, 80, 160, 320)
    is_durable = False
    lock = threading.Lock()

    def index(self, dim: int) -> Any:
        import hnswlib

        return hnswlib.Index("l2", dim)

    def create(self, dim: int, element: np.dtype[Any]) -> None:
        self.dim = dim
        self.table = self.index(dim)
        # The capacity grows on demand, because unused capacity takes memory at once.
        self.table.init_index(1000, M=16, ef_construction=200, allow_replace_deleted=True)
        self.table.set_num_threads(2)
        self.shares: dict[int, float] = {}

    def open(self) -> None:
        where = self.path / self.table_name
        shares = np.load(f"{where}.npz")
        self.dim = int(shares["dim"])
        self.table = self.index(self.dim)
        self.table.load_index(str(where))
        self.table.set_num_threads(2)
        self.shares = dict(zip(shares["ids"].tolist(), shares["shares"].tolist(), strict=True))

    def add(self, ids: Vectors, vectors: Vectors, shares: Vectors) -> None:
        # hnswlib adds the rows of a call with two threads, but calls must not overlap with a resize.
        with self.lock:
            count = self.table.get_current_count()
            if count + len(ids) > self.table.get_max_elements():
                self.table.resize_index(2 * (count + len(ids)))
            self.table.add_items(vectors.astype(np.float32), ids, num_threads=2)
        self.shares.update(zip(ids.tolist(), shares.tolist(), strict=True))

    upsert = add

    def search(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        self.table.set_ef(max(K, self.effort))
        condition = None if share >= 1 else (lambda label: self.shares[label] < share)
        # A condition in Python holds the interpreter's lock, so more threads would not help.
        threads = 2 if condition is None else 1
        try:
            found = self.table.knn_query(queries.astype(np.float32), K, num_threads=threads, filter=condition)
        except RuntimeError:
            # hnswlib raises and returns nothing if it finds fewer than k.
            return [np.empty(0, np.int64)] * len(queries)
        return list(found[0].astype(np.int64))

    def count(self) -> int:
        return int(self.table.get_current_count())

    def settle(self) -> None:
        """Saves the whole graph."""
        where = self.path / self.table_name
        self.table.save_index(str(where))
        ids, shares = np.array(list(self.shares)), np.array(list(self.shares.values()))
        np.savez(where, dim=self.dim, ids=ids, shares=shares)


SYSTEMS: list[type[System]] = [Bathyal, LanceDB, Chroma, MilvusLite, Hnswlib]


def named(package: str) -> type[System]:
    """Returns the system of a package."""
    return next(kind for kind in SYSTEMS if kind.package == package)
