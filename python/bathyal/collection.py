"""Collections: rows with the user's ids, vectors and metadata, which can change at any time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from bathyal import _bathyal, awaiting
from bathyal.arguments import Metric, OnMiss, Path, audited, columns, memory_bytes, place, store_pairs, whole
from bathyal.calibrating import Calibrating
from bathyal.files import read_here, with_ids
from bathyal.found_rows import Written
from bathyal.progress import Receiver, progress_receiver
from bathyal.reading import Filter, Snapshot, collection_request
from bathyal.schema import Element, Field, IdKind, schema
from bathyal.tables import condition, is_frame, names, plain, plain_columns, split_rows

Durability = Literal["disk", "system"]

ROWS_A_BATCH = 8192
"""Rows per batch when a stream of Arrow data is written: enough that waiting for the disk takes a small share
of the time."""


class Collection(Calibrating):
    """An open collection: rows with an id, vectors and metadata, in a folder or a bucket.

    Returned by :meth:`create` and :meth:`open`. Once a write has returned, searches find its rows, and they
    survive a crash. Several threads may use a collection. Any number of processes may read it, and one at a
    time may write: the first to do so, until it closes the collection.

    >>> import numpy as np, bathyal
    >>> vectors = np.random.default_rng(1).standard_normal((3, 16), dtype=np.float32)
    >>> with bathyal.Collection.create(
    ...     "docs.collection", dim=16, metric="cosine", columns={"year": "int64", "lang": "string"}
    ... ) as docs:
    ...     docs.add(["a", "b", "c"], vectors, {"year": [2019, 2020, 2021], "lang": ["de", "en", None]})
    ...     docs.search(vectors[1], k=2, filter="year >= 2020", columns=True).metadata.to_list()
    ...     docs.delete(filter="lang = 'de'").deleted, len(docs), "a" in docs
    Written(added=3, replaced=0, deleted=0, missing=0)
    [{'year': 2020, 'lang': 'en'}, {'year': 2021, 'lang': None}]
    (1, 2, False)
    """

    def __init__(self, handle: _bathyal.CollectionHandle, path: Path) -> None:
        self._handle = handle
        self._path = os.fspath(path)
        self._keep_schema(handle.schema())

    @classmethod
    def create(
        cls,
        path: Path,
        dim: int | None = None,
        metric: Metric = "l2",
        *,
        element: Element = "f32",
        vectors: Mapping[str, Field] | None = None,
        id: IdKind = "string",
        columns: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        memory: float | str | None = None,
        write_memory: float | str | None = None,
        build_memory: float | str | None = None,
        compact_memory: float | str | None = None,
        compact_speed: float | str | None = None,
        threads: int = 0,
        durability: Durability = "disk",
        compact: bool = True,
        background: bool = True,
        flat_below: int | None = None,
        keep_versions: int = 0,
        tier: str = "file",
        store_options: Mapping[str, str] | None = None,
    ) -> Collection:
        """Creates a collection at ``path``, a folder that does not exist or is empty, or an address
        (``s3://...``), and opens it.

        Args:
            dim: components of the vectors, if every row has one vector; the field is called ``"vector"``.
            metric: as for :func:`build`.
            element: of the vectors: ``"f32"``, ``"f16"``, ``"bf16"``, ``"u8"``, ``"i8"`` or ``"b1"`` (a bit).
            vectors: the vector fields, if every row has several vectors: ``{"title": (384, "f32",
                "cosine")}``, or ``{"title": {"dim": 384, "metric": "cosine", "family": "graph"}}``. Fields
                that name no element or metric have ``element`` and ``metric``.
            id: kind of ids: ``"string"`` or ``"u64"``.
            columns: the columns of metadata and their types: ``"bool"``, ``"int8"`` to ``"int64"``, ``"uint8"`` to
                ``"uint64"``, ``"float32"``, ``"float64"``, ``"string"``, ``"date"``, ``"timestamp"`` (to the
                microsecond, in UTC), or lists of them: ``"list<string>"``. Every value may be missing. Dates and
                times may also be text: ``"2024-02-29"``, ``"2024-02-29T12:00:00"``. ``"json"`` takes any value that
                the module ``json`` writes, such as a dictionary; filters take its keys: ``"meta.year >= 2020"``.
            options: the index of large segments: ``family``, ``store_as`` and the options of the family, as
                for :func:`build`.
            memory, ...: as for :meth:`open`.

        Raises:
            FileExistsError: something is at ``path``.
            ValueError: an invalid schema.

        >>> import bathyal
        >>> docs = bathyal.Collection.create(
        ...     "memory://two", vectors={"title": (8, "f32", "cosine"), "body": (16, "u8")}, id="u64"
        ... )
        >>> docs
        <bathyal.Collection 'memory://two': 0 rows, title 8 f32 cosine, body 16 u8 l2>
        """
        text = schema((dim, metric, element), vectors, id, columns, options or {})
        arguments = _opening(
            memory=memory,
            write_memory=write_memory,
            build_memory=build_memory,
            compact_memory=compact_memory,
            compact_speed=compact_speed,
            threads=threads,
            durability=durability,
            compact=compact,
            background=background,
            flat_below=flat_below,
            keep_versions=keep_versions,
            tier=tier,
            store_options=store_options,
        )
        return cls(_bathyal.CollectionHandle.create(place(path), text, arguments), path)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        version: int | None = None,
        memory: float | str | None = None,
        write_memory: float | str | None = None,
        build_memory: float | str | None = None,
        compact_memory: float | str | None = None,
        compact_speed: float | str | None = None,
        threads: int = 0,
        durability: Durability = "disk",
        compact: bool = True,
        background: bool = True,
        flat_below: int | None = None,
        keep_versions: int = 0,
        tier: str = "file",
        store_options: Mapping[str, str] | None = None,
        audit: float | None = None,
        on_miss: OnMiss = "note",
    ) -> Collection:
        """Opens the collection at ``path``.

        Args:
            version: one of the kept versions (:meth:`versions`), as it was when it was published; it cannot
                be written to. None means the latest version, with all later writes.
            memory: most bytes that the indexes of its segments may hold, or text such as ``"1GB"``; None means no
                limit.
            write_memory: bytes for rows that are not in segments yet; None is 128 MiB. A batch larger than
                one eighth of it is written as a segment at once.
            build_memory: bytes that building the index of a segment may take; None means no limit.
            compact_memory: bytes that merging segments may take, which runs beside the writes; None means
                ``build_memory``.
            compact_speed: most bytes of rows that merging reads per second; None or 0 means no limit.
            threads: of builds; 0 means all cores.
            durability: what written rows survive once the call has returned: ``"disk"``, a power failure;
                ``"system"``, only the end of the process, which is faster.
            compact: True merges segments automatically.
            background: True writes and merges segments in a background thread; False does so in the call that
                fills the memory.
            flat_below: segments with fewer rows are searched without codes or groups; None takes 10,000.
            keep_versions: number of versions to keep besides the latest.
            tier: as for :func:`bathyal.open`, for the indexes of segments.
            store_options: as for :func:`bathyal.open`.
            audit, on_miss: as for :func:`bathyal.open`. Answers are compared with all rows that the search saw
                and that match its filter. Searches of snapshots are not audited.

        Raises:
            FileNotFoundError: nothing is at ``path``.
            Error: ``path`` holds something else than a collection, or a collection of a later version.
            DamagedIndexError: bytes of the collection are not those that were written.
            ValueError: the version does not exist.
            OSError: a store refused or did not answer.
        """
        arguments = _opening(
            memory=memory,
            write_memory=write_memory,
            build_memory=build_memory,
            compact_memory=compact_memory,
            compact_speed=compact_speed,
            threads=threads,
            durability=durability,
            compact=compact,
            background=background,
            flat_below=flat_below,
            keep_versions=keep_versions,
            tier=tier,
            store_options=store_options,
            audit=audited(audit, on_miss),
        )
        number = None if version is None else whole("version", version, most=2**63 - 1)
        if number is not None:
            writing = {"write_memory": write_memory, "build_memory": build_memory, "flat_below": flat_below}
            writing |= {"compact_memory": compact_memory, "compact_speed": compact_speed}
            for name, value in writing.items():
                if value is not None:
                    raise ValueError(f"{name} is {value!r}, but a version is not written to; leave it out")
        return cls(_bathyal.CollectionHandle.open(place(path), number, arguments), path)

    @staticmethod
    def repair(
        path: Path,
        to: Path,
        *,
        keep_uncertain: bool = False,
        lost_ids: Path | None = None,
        build_memory: float | str | None = None,
        threads: int = 0,
        store_options: Mapping[str, str] | None = None,
        to_store_options: Mapping[str, str] | None = None,
        progress: bool | Receiver = True,
    ) -> dict[str, Any]:
        """Saves all undamaged parts of the damaged collection at ``path`` into a new one at ``to``, where
        nothing exists, and reports what is lost. The damaged collection is only read; no process should write
        to it meanwhile.

        Args:
            keep_uncertain: keep rows that may have been deleted or replaced: rows of segments whose list of
                deleted rows is damaged, of segments that only unreadable versions name (such as a large
                batch), and of all segments if no version can be read.
            lost_ids: a file for the known ids of lost rows: JSON lines, each ``{"id": ...}``.
            build_memory, threads: as for :meth:`open`, for the indexes that are built anew.
            store_options, to_store_options: as for :func:`bathyal.open`, for ``path`` and for ``to``.

        Returns ``complete`` (bool: nothing is lost), ``rows``, ``lost_rows``, ``unknown_rows`` (those whose
        ids are not known), ``uncertain_rows``, ``version``, ``unreadable_versions``, ``segments``, ``batches``,
        ``lost_batches``, ``lost_log``, ``lost_ids`` and ``gaps`` (the first of them), ``faults``,
        ``fault_count`` and ``notes``.

        Raises:
            FileExistsError: a collection is at ``to``.
            DamagedIndexError: no version can be read, and ``keep_uncertain`` is not given.
        """
        arguments = _opening(
            memory=None,
            write_memory=None,
            build_memory=build_memory,
            compact_memory=None,
            compact_speed=None,
            threads=threads,
            durability="disk",
            compact=True,
            background=True,
            flat_below=None,
            keep_versions=0,
            tier="file",
            store_options=store_options,
        )
        target = (place(to), store_pairs(to_store_options))
        file = None if lost_ids is None else place(lost_ids)
        with progress_receiver(progress) as receiver:
            report: dict[str, Any] = json.loads(
                _bathyal.CollectionHandle.repair(
                    place(path), target, bool(keep_uncertain), file, arguments, receiver
                )
            )
        return report

    def _source(self) -> _bathyal.SnapshotHandle:
        return self._handle.reading()

    def snapshot(self) -> Snapshot:
        """Returns a snapshot: the collection as it is now, whatever is written later. It is read like the
        collection."""
        return Snapshot(self._handle.snapshot(), json.dumps(self._schema))

    def add(self, ids: Any, vectors: Any = None, metadata: Any = None) -> Written:
        """Adds rows with new ids: all of them, or none.

        Args:
            ids: a list, an array, a column of pandas, Arrow or polars; or a single id. Without ``vectors``, a
                table with everything: of pandas, Arrow, polars, duckdb, a dictionary of columns, or
                :class:`Rows`. Its columns are ``id``, a column of lists for each vector field (``vector``),
                and those of the metadata.
            vectors: ``rows x dim``, converted as :meth:`Index.search` converts queries; with several fields,
                a dictionary of arrays by field.
            metadata: a dictionary of columns (a single value applies to all rows), a list with a dictionary
                for each row, or a table of pandas, Arrow or polars. Values that are not given are missing.
                Times without a zone are in UTC. Values of another type are converted if nothing is lost.

        Returns the number of rows ``added``. The arguments may be changed afterwards.

        Raises:
            DuplicateIdError: an id exists already, or is twice among the rows (a ValueError).
            ValueError: rows that do not fit the collection, or each other.
            BlockingIOError: another process, or another open collection, writes to it.
            OSError: the disk is full, a store refused a request or did not answer, or another process has
                taken over the writing.

        >>> import numpy as np, bathyal
        >>> columns = {"year": "int64", "tags": "list<string>"}
        >>> docs = bathyal.Collection.create("memory://added", dim=2, columns=columns)
        >>> docs.add(["a", "b"], np.eye(2), {"year": 2020, "tags": [["x", "y"], None]}).added
        2
        >>> docs.add({"id": ["c"], "vector": [[1, 1]], "year": [None]}).added
        1
        >>> docs.add("a", [0, 0])
        Traceback (most recent call last):
        bathyal.DuplicateIdError: memory://added: 1 of the ids are there already: "a"; nothing was written. Replace
        rows with upsert
        """
        return self._write(ids, vectors, metadata, False)

    def upsert(self, ids: Any, vectors: Any = None, metadata: Any = None) -> Written:
        """Replaces the rows with these ids, and adds the others. Arguments are those of :meth:`add`.

        A row is replaced as a whole: metadata that is not given is missing afterwards.
        """
        return self._write(ids, vectors, metadata, True)

    def _write(self, ids: Any, vectors: Any, metadata: Any, upsert: bool) -> Written:
        rows = split_rows(self._shape, ids, vectors, metadata)
        return Written(*self._handle.write(rows.ids, rows.vectors, rows.metadata, upsert))

    def update(self, ids: Any, metadata: Any) -> Written:
        """Changes the given columns of the metadata of the rows with these ids.

        Returns the number of rows ``replaced``, and of ids without a row (``missing``).

        >>> import bathyal
        >>> columns = {"year": "int64", "seen": "bool"}
        >>> docs = bathyal.Collection.create("memory://updated", dim=2, columns=columns)
        >>> _ = docs.add(["a", "b"], [[0, 1], [1, 0]], {"year": [2020, 2021]})
        >>> docs.update(["a", "z"], {"seen": True})
        Written(added=0, replaced=1, deleted=0, missing=1)
        >>> docs.get(["a", "b"]).metadata.to_list()
        [{'year': 2020, 'seen': True}, {'year': 2021, 'seen': None}]
        """
        return Written(*self._handle.update(plain(ids), plain_columns(metadata)))

    def delete(self, ids: Any = None, *, filter: Filter | None = None) -> Written:
        """Deletes the rows with these ids, or those that match ``filter``.

        The filter ``"true"`` deletes all rows. A filter that contains ``{}`` is refused.

        Returns the number of rows ``deleted``, and of ids without a row (``missing``).
        """
        if (ids is None) == (filter is None):
            raise TypeError("delete() takes ids or a filter; give one of them")
        matching = condition(filter)
        if matching is not None:
            return Written(*self._handle.delete_matching(matching))
        return Written(*self._handle.delete(plain(ids)))

    async def add_async(self, ids: Any, vectors: Any = None, metadata: Any = None) -> Written:
        """:meth:`add`, awaited under asyncio. Calls that are awaited at once share one wait for the disk. A
        cancelled call may have written its rows all the same.

        >>> import asyncio, bathyal
        >>> docs = bathyal.Collection.create("memory://added_async", dim=2, id="u64")
        >>> async def add():
        ...     await asyncio.gather(*(docs.add_async(row, [row, 1]) for row in range(20)))
        >>> asyncio.run(add())
        >>> len(docs)
        20
        """
        return await awaiting.in_thread(lambda: self.add(ids, vectors, metadata))

    async def upsert_async(self, ids: Any, vectors: Any = None, metadata: Any = None) -> Written:
        """:meth:`upsert`, awaited under asyncio as :meth:`add_async`."""
        return await awaiting.in_thread(lambda: self.upsert(ids, vectors, metadata))

    async def update_async(self, ids: Any, metadata: Any) -> Written:
        """:meth:`update`, awaited under asyncio as :meth:`add_async`."""
        return await awaiting.in_thread(lambda: self.update(ids, metadata))

    async def delete_async(self, ids: Any = None, *, filter: Filter | None = None) -> Written:
        """:meth:`delete`, awaited under asyncio as :meth:`add_async`."""
        return await awaiting.in_thread(lambda: self.delete(ids, filter=filter))

    def add_batches(
        self,
        batches: Any,
        *,
        upsert: bool = False,
        rows: int | None = None,
        total: int | None = None,
        progress: bool | Receiver = True,
    ) -> Written:
        """Adds rows batch by batch, so that they may be larger than memory. Each batch is written whole or
        not at all; after an error, the batches before it are in the collection.

        Args:
            batches: an iterator of tables, :class:`Rows`, or tuples of ids, vectors and metadata, as
                :meth:`add` takes them; or Arrow data, which is written ``rows`` at a time: a table, a reader,
                a result of duckdb.
            upsert: whether rows take the place of those with their ids (:meth:`upsert`).
            rows: rows per batch of Arrow data and frames; None is 8,192.
            total: number of all rows, if known, for the progress.
            progress: as :func:`build` takes it.

        >>> import numpy as np, bathyal
        >>> docs = bathyal.Collection.create("memory://many", dim=4, id="u64")
        >>> docs.add_batches((range(at, at + 100), np.ones((100, 4))) for at in range(0, 1000, 100)).added
        1000
        >>> copy = bathyal.Collection.create("memory://copy", dim=4, id="u64")
        >>> copy.add_batches(docs.batches(vectors=True)).added
        1000
        """
        arrow = hasattr(batches, "__arrow_c_stream__") or hasattr(batches, "__arrow_c_array__")
        if rows is not None and not (arrow or is_frame(batches)):
            raise ValueError(
                f"rows is {rows}, but batches of an iterator are written as they are; leave it out"
            )
        most = ROWS_A_BATCH if rows is None else whole("rows", rows, least=1)
        expected = _length(batches) if total is None else total
        added = replaced = 0
        # A bar without a known end is of no use.
        with progress_receiver(progress if callable(progress) or expected else False) as receiver:
            for batch in self._batches_of(batches, most):
                try:
                    written = self._write(batch, None, None, upsert)
                except Exception as error:
                    if added + replaced and hasattr(error, "add_note"):
                        error.add_note(f"{added + replaced} rows of earlier batches were written")
                    raise
                added, replaced = added + written.added, replaced + written.replaced
                if receiver is not None:
                    receiver("writing", added + replaced, max(expected, added + replaced))
        return Written(added, replaced)

    def _batches_of(self, batches: Any, rows: int) -> Iterator[Any]:
        if is_frame(batches):
            yield from (batches.iloc[at : at + rows] for at in range(0, len(batches), rows))
            return
        if not (hasattr(batches, "__arrow_c_stream__") or hasattr(batches, "__arrow_c_array__")):
            yield from batches
            return
        shapes = [columns(element, dim) for _, element, dim in self._shape.fields]
        row = sum(dtype.itemsize * width for dtype, width in shapes)
        # Half of the bytes are for the vectors, the rest for everything else.
        most = max(1, min(rows, self._handle.largest_batch_bytes // (2 * row)))
        reader = _bathyal.BatchReader(batches, most)
        while (batch := reader.next()) is not None:
            yield batch

    def add_file(
        self,
        file: Path,
        *,
        upsert: bool = False,
        id_column: str | None = None,
        columns: Sequence[str] | None = None,
        ids: Path | None = None,
        first_id: int | None = None,
        key: str | None = None,
        progress: bool | Receiver = True,
    ) -> dict[str, Any]:
        """Adds the rows of a file batch by batch, with a few megabytes in memory.

        Args:
            file: Parquet, Arrow IPC (``.arrow``, ``.feather``), JSON lines (``.jsonl``), or a file of vectors (see
                :func:`read_vectors`). Its columns or keys are the vector fields and the metadata, by name.
            upsert: whether rows take the place of those with their ids (:meth:`upsert`).
            id_column: the column of ids; None means ``"id"``.
            columns: columns of metadata to take; None means all that the file has.
            ids: for a file of vectors, the file of their ids: ``.npy``, or text with an id per line. None
                numbers them from ``first_id`` on, or from 0.
            key: for an HDF5 file, the dataset of vectors, as :func:`read_vectors` takes it.
            progress: as :func:`build` takes it.

        Returns ``rows``, ``added``, ``replaced``, ``batches`` and ``seconds``. After an error, the batches
        written before stay; a note of the exception has the number of their rows.

        >>> import numpy as np, bathyal
        >>> bathyal.write_vectors("rows.fbin", np.eye(8, dtype=np.float32))
        >>> docs = bathyal.Collection.create("memory://file", dim=8, id="u64")
        >>> docs.add_file("rows.fbin", first_id=100)["added"], list(docs)[:2]
        (8, [100, 101])
        """
        first = None if first_id is None else whole("first_id", first_id, most=2**64 - 1)
        if read_here(file, key):
            if ids is not None and first is not None:
                raise ValueError(f"{os.fspath(file)}: ids and first_id are both given; give one of them")
            for name, value in {"id_column": id_column, "columns": columns}.items():
                if value is not None:
                    raise ValueError(
                        f"{os.fspath(file)}: holds only vectors and no columns; leave {name} out"
                    )
            return self._add_vectors(file, key, ids, first or 0, upsert, progress)
        chosen = None if columns is None else names("columns", columns, ())
        with progress_receiver(progress) as receiver:
            text = self._handle.import_file(
                file,
                {
                    "upsert": bool(upsert),
                    "id_column": id_column,
                    "columns": chosen,
                    "ids": ids,
                    "first_id": first,
                },
                receiver,
            )
        report: dict[str, Any] = json.loads(text)
        return report

    def _add_vectors(
        self,
        file: Path,
        key: str | None,
        ids: Path | None,
        first_id: int,
        upsert: bool,
        progress: bool | Receiver,
    ) -> dict[str, Any]:
        """:meth:`add_file` for a file of only vectors that only Python reads."""
        began = time.monotonic()
        vectors, all_ids = with_ids(file, key, ids, first_id, self._schema["id"] == "string")
        starts = range(0, len(vectors), ROWS_A_BATCH)
        batches = ((all_ids[at : at + ROWS_A_BATCH], vectors[at : at + ROWS_A_BATCH]) for at in starts)
        written = self.add_batches(batches, upsert=upsert, total=len(vectors), progress=progress)
        counts = {"rows": len(vectors), "added": written.added, "replaced": written.replaced}
        return {**counts, "batches": len(starts), "seconds": time.monotonic() - began}

    def export(
        self,
        file: Path,
        *,
        filter: Filter | None = None,
        columns: Sequence[str] | None = None,
        vectors: Sequence[str] | None = None,
        progress: bool | Receiver = True,
    ) -> dict[str, Any]:
        """Writes all rows, or those that match ``filter``, to a file that :meth:`add_file` reads, in the order of
        their ids: ``.parquet``, ``.arrow``, ``.jsonl``, or a file of only vectors (their ids go to a file
            beside it).

        ``columns`` and ``vectors`` name the columns and fields to write; None means all. Returns ``rows``,
        ``output``, ``ids`` and ``seconds``.
        """
        chosen = None if columns is None else names("columns", columns, ())
        fields = None if vectors is None else names("vectors", vectors, ())
        with progress_receiver(progress) as receiver:
            text = self._handle.export_file(file, condition(filter), chosen, fields, receiver)
        report: dict[str, Any] = json.loads(text)
        return report

    def flush(self) -> None:
        """Writes the rows in memory as a segment. This is never necessary; it makes opening the collection
        quicker."""
        self._handle.flush()

    def compact(self, full: bool = False, progress: bool | Receiver = True) -> dict[str, Any]:
        """Merges segments and frees the space of deleted rows, as a collection does automatically from time
        to time; ``full`` merges all into one segment. Reads and writes continue meanwhile.

        Returns ``segments_before``, ``segments_after``, ``rows_written``, ``rows_resumed`` (those of them
        that an interrupted merge had written before), ``bytes_before``, ``bytes_after`` and ``seconds``.
        """
        with progress_receiver(progress) as receiver:
            report: dict[str, Any] = json.loads(self._handle.compact(bool(full), receiver))
        return report

    def copy(
        self,
        path: Path,
        *,
        store_options: Mapping[str, str] | None = None,
        progress: bool | Receiver = True,
    ) -> dict[str, Any]:
        """Copies the collection as it is now to ``path``, where nothing exists, while writes continue. Call
        it again to continue an interrupted copy. Returns ``rows``, ``segments`` and ``bytes``."""
        with progress_receiver(progress) as receiver:
            target = (place(path), store_pairs(store_options))
            report: dict[str, Any] = json.loads(self._handle.copy_to(target, receiver))
        return report

    def refresh(self) -> bool:
        """Reads what other processes have written since the collection was opened or last refreshed; returns
        True if there was anything. A process sees its own writes at once."""
        return self._handle.refresh()

    def inspect(self) -> dict[str, Any]:
        """Describes the collection: ``version``, ``sequence`` (batches so far), ``rows``, ``rows_in_memory``,
        ``memory_bytes``, ``bytes``, ``space_amplification``, ``segments``, ``schema``, ``path``, and if there
        are any, ``calibrations`` (``name``, ``field``, ``queries``, ``measured_at`` in seconds since 1970, and
        ``segments`` measured)."""
        report: dict[str, Any] = json.loads(self._handle.describe())
        return report

    def warm(self, k: int = 10, recall: float | None = None, *, field: str | None = None) -> dict[str, Any]:
        """Opens the indexes of all segments, and answers queries that are made from them, so that later
        searches find their memory and their pages.

        Args:
            k, recall: those of the later searches.
            field: only this field of vectors; None means all.

        Returns a dictionary: ``queries``, ``reads``, ``bytes`` and ``seconds``.

        >>> import numpy as np, bathyal
        >>> docs = bathyal.Collection.create("memory://warmed", dim=8, id="u64")
        >>> _ = docs.add(range(8), np.eye(8, dtype=np.float32))
        >>> docs.flush()
        >>> sorted(docs.warm())
        ['bytes', 'queries', 'reads', 'seconds']
        """
        request = collection_request([], k, recall, field=field)
        report: dict[str, Any] = json.loads(self._handle.warm(request.arguments))
        return report

    def stats(self) -> dict[str, Any]:
        """Counters for a monitoring system: those of :meth:`inspect`, and of the searches of this object,
        except those of snapshots: ``searches`` (batches of queries), ``queries``, ``errors`` (batches that
        failed), ``reads``, ``read_bytes``, ``code_distances``, ``full_distances`` and ``search_seconds``, and
        ``audit`` as in :meth:`Index.stats`. See :meth:`prometheus`.

        >>> import numpy as np, bathyal
        >>> docs = bathyal.Collection.create("memory://counted", dim=8, id="u64")
        >>> _ = docs.add(range(8), np.eye(8, dtype=np.float32))
        >>> _ = docs.search(np.eye(8, dtype=np.float32), k=1)
        >>> docs.stats()["queries"], docs.stats()["rows"]
        (8, 8)
        """
        counters: dict[str, Any] = json.loads(self._handle.stats()[0])
        return counters

    def prometheus(self) -> str:
        """The counters of :meth:`stats` in the text exposition format of Prometheus.

        >>> import bathyal
        >>> docs = bathyal.Collection.create("memory://exposed", dim=8, id="u64")
        >>> docs.prometheus().splitlines()[2]
        'bathyal_collection_rows{collection="memory://exposed"} 0'
        """
        return self._handle.stats()[1]

    def verify(self, progress: bool | Receiver = True) -> dict[str, Any]:
        """Checks every byte of every segment against its checksums. Returns ``sound`` (bool), ``fault_count``
        and ``faults`` (sentences)."""
        with progress_receiver(progress) as receiver:
            faults = self._handle.verify(receiver)
        return {"sound": not faults, "fault_count": len(faults), "faults": faults}

    def versions(self) -> list[int]:
        """The kept versions: see ``keep_versions`` and ``version`` of :meth:`open`."""
        return self._handle.versions()

    @property
    def path(self) -> str:
        """The folder of the collection, or its address."""
        return self._path

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._handle.closed

    def close(self) -> None:
        """Releases files, memory and threads, and lets other processes write, after calls in other threads
        have finished."""
        self._handle.close()

    def __enter__(self) -> Collection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"<bathyal.Collection {self._path!r}, closed>"
        fields = [
            f"{field['name']} {field['dim']} {field['element']} {field['metric']}"
            for field in self._schema["vectors"]
        ]
        return f"<bathyal.Collection {self._path!r}: {len(self)} rows, {', '.join(fields)}>"


def _opening(
    *,
    memory: float | str | None,
    write_memory: float | str | None,
    build_memory: float | str | None,
    compact_memory: float | str | None,
    compact_speed: float | str | None,
    threads: int,
    durability: Durability,
    compact: bool,
    background: bool,
    flat_below: int | None,
    keep_versions: int,
    tier: str,
    store_options: Mapping[str, str] | None,
    audit: tuple[float, str] | None = None,
) -> _bathyal._CollectionArguments:
    """Returns the checked arguments for opening a collection."""
    return {
        "store": store_pairs(store_options),
        "tier": tier,
        "memory": memory_bytes(memory),
        "write_memory": memory_bytes(write_memory),
        "build_memory": memory_bytes(build_memory),
        "compact_memory": memory_bytes(compact_memory),
        "compact_speed": memory_bytes(compact_speed),
        "threads": whole("threads", threads, most=4096),
        "durability": durability,
        "compact": bool(compact),
        "background": bool(background),
        "flat_below": None if flat_below is None else whole("flat_below", flat_below),
        "keep_versions": whole("keep_versions", keep_versions),
        "audit": audit,
    }


def _length(batches: Any) -> int:
    """Returns the number of rows of a table; 0 if unknown."""
    if hasattr(batches, "__arrow_c_stream__") or is_frame(batches):
        rows = getattr(batches, "num_rows", None)
        return rows if isinstance(rows, int) else len(batches) if hasattr(batches, "__len__") else 0
    return 0
