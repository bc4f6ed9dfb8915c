"""Reading a collection: searches, rows by their ids, counts, and all rows batch by batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bathyal import _bathyal, awaiting
from bathyal.arguments import Path, columns, whole
from bathyal.found_rows import FoundRows, Metadata, Rows, Vectors
from bathyal.inputs import ArgumentLabel
from bathyal.results import raise_warnings
from bathyal.search_request import rows as rows_of
from bathyal.search_request import takes_request
from bathyal.tables import Shape, condition, names, plain

Filter = str | Mapping[str, Any]
QUERIES = ArgumentLabel("queries", "query", "the collection")


class CollectionRequest(NamedTuple):
    """Queries of a search in a collection, with its arguments."""

    queries: ArrayLike | Path
    columns: bool | str | Sequence[str]
    arguments: _bathyal._QuestionArguments
    """The arguments by name. The search checks their values; the columns are added later."""


def collection_request(
    queries: ArrayLike | Path,
    k: int = 10,
    recall: float | None = None,
    *,
    filter: Filter | None = None,
    columns: bool | str | Sequence[str] = False,
    vectors: bool = False,
    field: str | None = None,
    search_list: int | None = None,
    threads: int = 0,
    timeout: float | None = None,
    calibration: str | None = None,
) -> CollectionRequest:
    """Returns the request of a search in a collection; :meth:`bathyal.Collection.search` documents the
    arguments."""
    return CollectionRequest(
        queries,
        columns,
        {
            "field": field,
            "k": whole("k", k),
            "recall": None if recall is None else float(recall),
            "search_list": None if search_list is None else whole("search_list", search_list),
            "filter": condition(filter),
            "columns": [],
            "vectors": bool(vectors),
            "threads": whole("threads", threads, most=4096),
            "timeout": None if timeout is None else float(timeout),
            "calibration": calibration,
        },
    )


class Reading:
    """The reading methods of open collections and snapshots."""

    _schema: dict[str, Any]
    _shape: Shape

    def _keep_schema(self, schema: str) -> None:
        """Keeps the schema, as JSON."""
        self._schema = json.loads(schema)
        fields = self._schema["vectors"]
        self._shape = Shape(tuple((field["name"], field["element"], field["dim"]) for field in fields))

    def _source(self) -> _bathyal.SnapshotHandle:
        """Returns the handle to read from."""
        raise NotImplementedError

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the rows: ``id`` (``"string"`` or ``"u64"``), ``vectors`` (``name``, ``dim``,
        ``element``, ``metric``, ``family``, ...), and ``columns`` (``name`` and ``type``)."""
        schema: dict[str, Any] = json.loads(json.dumps(self._schema))
        return schema

    @takes_request(collection_request)
    def search(self, request: CollectionRequest) -> FoundRows:
        """Finds the ``k`` nearest rows of each query, among all rows or those that match a filter.

        Args:
            queries: ``queries x dim``, or one query of ``dim`` (then the answer has one dimension, too), or the
                path of a file of vectors; as :meth:`Index.search` takes them.
            k: neighbours per query; fewer are returned, with a warning, if fewer rows match.
            recall: share of the true ``k`` nearest among the matching rows that should be found, above 0 and
                at most 1. None is 0.95.
            filter: only rows that match are found: a condition in words, such as
                ``"year >= 2020 and lang in ('de', 'en') and not archived"``, or a dictionary, such as
                ``{"year": {"$gte": 2020}}``. None means all.
            columns: columns of metadata to return with the neighbours: names, or True for all.
            vectors: True returns their vectors, too.
            field: the vector field to search, if there are several.
            search_list: length of the candidate list in each segment, in place of ``recall``; at least ``k``.
                Rows in memory and small segments are always compared one by one.
            threads: 0 means all cores.
            timeout: seconds after which the search gives up.
            calibration: name of the calibration (:meth:`Collection.calibrate`) that gives the effort for
                ``recall``; ``"build"`` is that of the builds. None takes the one named ``"default"``, and if
                there is none, the largest effort that any calibration chooses.

        Raises:
            ValueError: queries that do not fit the field, an invalid filter (the message shows the position)
                or one with an unknown column, NaN or infinity.
            TimeoutError: ``timeout`` passed; nothing is answered.
            DamagedIndexError: bytes of the collection are not those that were written.
            OSError: the device failed; a store refused a request or did not answer.

        >>> import numpy as np, bathyal
        >>> grid = np.stack(np.meshgrid(np.arange(20), np.arange(20)), -1).reshape(400, 2).astype(np.float32)
        >>> docs = bathyal.Collection.create("memory://searched", dim=2, id="u64", columns={"even": "bool"})
        >>> docs.add(range(400), grid, {"even": np.arange(400) % 2 == 0})
        Written(added=400, replaced=0, deleted=0, missing=0)
        >>> found = docs.search([3.0, 4.0], k=3, filter="even", columns="even")
        >>> grid[found.ids].tolist(), found.distances.tolist(), found.matches
        ([[2.0, 4.0], [4.0, 4.0], [2.0, 3.0]], [1.0, 1.0, 2.0], 200)
        """
        rows, single, arguments = self._arguments(request)
        return _found(self._source().search(rows, arguments, None), single, len(rows), self._field(request))

    @takes_request(collection_request)
    async def search_async(self, request: CollectionRequest) -> FoundRows:
        """:meth:`search`, awaited under asyncio: the event loop continues meanwhile. Cancelling the task
        stops the search.

        >>> import asyncio, numpy as np, bathyal
        >>> docs = bathyal.Collection.create("memory://awaited", dim=8, id="u64")
        >>> _ = docs.add(range(8), np.eye(8, dtype=np.float32))
        >>> asyncio.run(docs.search_async(np.eye(8, dtype=np.float32)[3], k=1)).ids
        array([3], dtype=uint64)
        """
        rows, single, arguments = self._arguments(request)
        source, cancel = self._source(), _bathyal.Cancel()
        answers = await awaiting.in_thread(lambda: source.search(rows, arguments, cancel), cancel)
        return _found(answers, single, len(rows), self._field(request))

    def explain(
        self,
        query: ArrayLike,
        k: int = 10,
        recall: float | None = None,
        *,
        filter: Filter | None = None,
        field: str | None = None,
        search_list: int | None = None,
    ) -> dict[str, Any]:
        """Answers a single query, and returns how each part of the collection was searched.

        Returns ``ids``, ``distances``, ``matches`` (rows that match the filter), ``plans`` (for each segment
        and the rows in memory: ``part``, ``family``, ``rows``, ``matches``, ``plan`` and the ``reason`` for
        it), ``costs`` (``reads``, ``bytes``, ``seconds``, ...) and ``notes``.

        >>> import numpy as np, bathyal
        >>> docs = bathyal.Collection.create("memory://docs-explained", dim=8, id="u64")
        >>> _ = docs.add(range(8), np.eye(8, dtype=np.float32))
        >>> report = docs.explain(np.eye(8, dtype=np.float32)[3], k=1)
        >>> report["ids"], [plan["part"] for plan in report["plans"]]
        ([3], ['memory'])
        """
        found = self.search(
            query, k=k, recall=recall, filter=filter, field=field, search_list=search_list, threads=1
        )
        if found.ids.ndim != 1:
            raise ValueError(f"query has {found.ids.ndim} dimensions; expected one query")
        return {
            "ids": found.ids.tolist(),
            "distances": found.distances.tolist(),
            "matches": found.matches,
            "plans": list(found.plans),
            "costs": found.costs,
            "notes": list(found.notes),
        }

    def _arguments(
        self, request: CollectionRequest
    ) -> tuple[NDArray[Any], bool, _bathyal._QuestionArguments]:
        field = request.arguments["field"]
        shape = next((shape for shape in self._shape.fields if shape[0] == field), self._shape.fields[0])
        if field is None and len(self._shape.fields) > 1:
            all_fields = ", ".join(self._shape.names)
            raise ValueError(
                f"the collection has several fields of vectors; name one with field=: {all_fields}"
            )
        rows, single = rows_of(request.queries, shape[1], shape[2], QUERIES)
        chosen = names("columns", request.columns, self._columns())
        return rows, single, {**request.arguments, "columns": chosen}

    def _field(self, request: CollectionRequest) -> str:
        return request.arguments["field"] or self._shape.names[0]

    def _columns(self) -> list[str]:
        return [column["name"] for column in self._schema["columns"]]

    def get(
        self,
        ids: Any,
        *,
        columns: bool | str | Sequence[str] = True,
        vectors: bool | str | Sequence[str] = False,
    ) -> Rows:
        """Returns the rows with these ids, in the order of the ids; ids without a row are left out (see
        :attr:`Rows.places`).

        Args:
            ids: a list, an array, a column of pandas, Arrow or polars; or a single id.
            columns: columns of metadata to return: names, True for all, False for none.
            vectors: True returns the vectors, too; with several fields, names select fields. Vectors are as
                they were given, except that under cosine f32 vectors are scaled to length 1.

        >>> import numpy as np, bathyal
        >>> docs = bathyal.Collection.create("memory://gotten", dim=2, columns={"year": "int64"})
        >>> _ = docs.add(["a", "b"], [[0, 1], [2, 3]], {"year": [2020, None]})
        >>> rows = docs.get(["b", "c", "a"], vectors=True)
        >>> rows.ids.tolist(), rows.metadata["year"].tolist(), rows.vectors.tolist(), rows.places.tolist()
        (['b', 'a'], [None, 2020], [[2.0, 3.0], [0.0, 1.0]], [0, 2])
        """
        return self._get(ids, columns, vectors, None)

    async def get_async(
        self,
        ids: Any,
        *,
        columns: bool | str | Sequence[str] = True,
        vectors: bool | str | Sequence[str] = False,
    ) -> Rows:
        """:meth:`get`, awaited under asyncio."""
        cancel = _bathyal.Cancel()
        return await awaiting.in_thread(lambda: self._get(ids, columns, vectors, cancel), cancel)

    def _get(
        self,
        ids: Any,
        columns: bool | str | Sequence[str],
        vectors: bool | str | Sequence[str],
        cancel: _bathyal.Cancel | None,
    ) -> Rows:
        fields = names("vectors", vectors, self._shape.names)
        chosen = names("columns", columns, self._columns())
        places, part = self._source().get(plain(ids), chosen, fields, cancel)
        return self._rows(part, fields, places)

    def _rows(
        self, part: _bathyal._Part, fields: list[str], places: NDArray[np.uint32] | None = None
    ) -> Rows:
        ids, held, vectors = part
        arrays = {name: values(one, (len(ids),)) for name, one in zip(fields, vectors, strict=True)}
        by_field: Vectors = arrays or None
        if arrays and len(self._shape.fields) == 1:
            by_field = arrays[self._shape.names[0]]
        return Rows(ids, Metadata(held, ids.shape), by_field, places, tuple(fields))

    def count(self, filter: Filter | None = None) -> int:
        """Returns the number of rows, or of rows that match ``filter``."""
        return self._source().count(condition(filter), None)

    def batches(
        self,
        *,
        filter: Filter | None = None,
        columns: bool | str | Sequence[str] = True,
        vectors: bool | str | Sequence[str] = False,
        rows: int = 4096,
    ) -> Iterator[Rows]:
        """Yields all rows, or those that match ``filter``, in the order of their ids, ``rows`` at a time.

        Later writes are left out. ``columns`` and ``vectors`` are as for :meth:`get`. Memory holds one batch.

        >>> import numpy as np, bathyal
        >>> docs = bathyal.Collection.create("memory://walked", dim=2, id="u64")
        >>> _ = docs.add(range(300), np.zeros((300, 2), dtype=np.float32))
        >>> [(batch.ids[0].item(), len(batch)) for batch in docs.batches(rows=128)]
        [(0, 128), (128, 128), (256, 44)]
        """
        most = whole("rows", rows, least=1)
        fields = names("vectors", vectors, self._shape.names)
        chosen = names("columns", columns, self._columns())
        # The scan begins here, so that it holds the rows at the time of the call and not of the first batch.
        scan = self._source().scan(condition(filter), chosen, fields)
        return (self._rows(part, fields) for part in iter(lambda: scan.next(most), None))

    def __len__(self) -> int:
        return self._source().count(None, None)

    def __bool__(self) -> bool:
        """Always True, also for an empty collection."""
        return True

    def __contains__(self, id: object) -> bool:
        """Returns True if there is a row with this id."""
        suits = isinstance(id, str) if self._schema["id"] == "string" else isinstance(id, int | np.integer)
        if not suits or isinstance(id, bool):
            return False
        try:
            return len(self._get([id], False, False, None)) == 1
        except ValueError:
            # Not a valid id: negative, empty, or too long.
            return False

    def __iter__(self) -> Iterator[Any]:
        """Yields the ids in ascending order: see :meth:`batches`."""
        for batch in self.batches(columns=False):
            yield from batch.ids.tolist()


class Snapshot(Reading):
    """A collection as it was at a moment, unaffected by later writes: see :meth:`Collection.snapshot`.

    >>> import numpy as np, bathyal
    >>> docs = bathyal.Collection.create("memory://pinned", dim=2)
    >>> _ = docs.add(["a"], [[0, 1]])
    >>> with docs.snapshot() as before:
    ...     _ = docs.delete("a")
    ...     len(before), len(docs), "a" in before
    (1, 0, True)
    """

    def __init__(self, handle: _bathyal.SnapshotHandle, schema: str) -> None:
        self._handle: _bathyal.SnapshotHandle | None = handle
        self._keep_schema(schema)

    def _source(self) -> _bathyal.SnapshotHandle:
        if self._handle is None:
            raise ValueError("the snapshot is closed; create another one")
        return self._handle

    @property
    def sequence(self) -> int:
        """A number that rises with every written batch. If two snapshots have the same number, nothing was
        written between them."""
        return self._source().sequence

    def close(self) -> None:
        """Releases the snapshot: segments that only it needed are removed."""
        held, self._handle = self._handle, None
        if release := getattr(held, "release", None):
            release()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            "<bathyal.Snapshot, closed>" if self._handle is None else f"<bathyal.Snapshot: {len(self)} rows>"
        )


def values(held: _bathyal._Bytes, shape: tuple[int, ...]) -> NDArray[Any]:
    """Returns vectors as an array of this shape plus one dimension."""
    element, dim, stored = held
    dtype, width = columns(element, dim)
    return stored.view(dtype).reshape(*shape, width)


def _found(answers: _bathyal._FoundRows, single: bool, queries: int, field: str) -> FoundRows:
    ids, distances, held, vectors, matches, report = answers
    text: dict[str, Any] = json.loads(report)
    shape = (text["k"],) if single else (queries, text["k"])
    back = None if vectors is None else values(vectors, shape)
    notes, plans = text["notes"], tuple(text["plans"])
    return FoundRows(
        ids.reshape(shape),
        distances.reshape(shape),
        Metadata(held, shape),
        back,
        matches,
        plans,
        {**text["totals"], "seconds": text["seconds"]},
        raise_warnings(notes, above=3) if notes else (),
        field,
    )
