"""Reading a collection: search, rows by their ids, counts, and all rows batch by batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bathyal import _bathyal, awaiting
from bathyal.arguments import Path, columns, whole
from bathyal.asking import asks, recall_of
from bathyal.asking import rows as rows_of
from bathyal.found_rows import FoundRows, Metadata, Rows, Vectors
from bathyal.inputs import Called
from bathyal.results import warned
from bathyal.tables import Shape, condition, names, plain

Filter = str | Mapping[str, Any]
QUERIES = Called("queries", "query", "the collection")


class Question(NamedTuple):
    """Queries, and which neighbours of theirs are to be found."""

    queries: ArrayLike | Path
    columns: bool | str | Sequence[str]
    arguments: _bathyal._QuestionArguments
    """Checked as far as can be without the collection; the columns are not in it yet."""


def question(
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
) -> Question:
    """What a search in a collection is asked; :meth:`bathyal.Collection.search` says what the arguments mean."""
    return Question(
        queries,
        columns,
        {
            "field": field,
            "k": whole("k", k),
            "recall": recall_of(recall, search_list=search_list),
            "search_list": None if search_list is None else whole("search_list", search_list),
            "filter": condition(filter),
            "columns": [],
            "vectors": bool(vectors),
            "threads": whole("threads", threads, most=4096),
            "timeout": None if timeout is None else float(timeout),
        },
    )


class Reading:
    """What an open collection and a snapshot have in common: they are read."""

    _schema: dict[str, Any]
    _shape: Shape

    def _know(self, schema: str) -> None:
        """Notes what every row has."""
        self._schema = json.loads(schema)
        fields = self._schema["vectors"]
        self._shape = Shape(tuple((field["name"], field["element"], field["dim"]) for field in fields))

    def _source(self) -> _bathyal.SnapshotHandle:
        """What is read."""
        raise NotImplementedError

    @property
    def schema(self) -> dict[str, Any]:
        """What every row has: ``id`` (``"string"`` or ``"u64"``), ``vectors`` (``name``, ``dim``, ``element``,
        ``metric``, ``family``, ...), and ``columns`` (``name`` and ``type``)."""
        schema: dict[str, Any] = json.loads(json.dumps(self._schema))
        return schema

    @asks(question)
    def search(self, request: Question) -> FoundRows:
        """Finds the ``k`` nearest rows of each query, among all or those that match a filter.

        Args:
            queries: ``queries x dim``, or one query of ``dim`` (then the answer has one dimension, too), or the
                path of a file of vectors; as :meth:`Index.search` takes them.
            k: neighbours wanted; fewer come back, with a warning, if fewer rows match.
            recall: share of the true ``k`` nearest, of those that match, that should be found, above 0 and at
                most 1. None is 0.95.
            filter: which rows may be found: a condition in words, such as
                ``"year >= 2020 and lang in ('de', 'en') and not archived"``, or a dictionary, such as
                ``{"year": {"$gte": 2020}}``. None means all.
            columns: the columns of metadata that come back with the neighbours: names, or True for all.
            vectors: whether their vectors come back, too.
            field: the field of vectors that is searched, where there are several.
            search_list: size of the candidate list of each segment in place of ``recall``, at least ``k``. Rows in
                memory and small segments are compared one by one, whatever it is.
            threads: 0 means all cores.
            timeout: seconds after which the search gives up.

        Raises:
            ValueError: queries that do not fit, a filter that cannot be understood (the place is shown) or names no
                column, NaN or infinity.
            TimeoutError: ``timeout`` passed; nothing is answered.
            DamagedIndexError: bytes of the collection are not those that were written.
            OSError: the device failed; a store refused or did not answer.

        >>> import numpy as np, bathyal
        >>> grid = np.stack(np.meshgrid(np.arange(20), np.arange(20)), -1).reshape(400, 2).astype(np.float32)
        >>> docs = bathyal.Collection.create("memory://searched", dim=2, id="u64", columns={"even": "bool"})
        >>> docs.add(range(400), grid, {"even": np.arange(400) % 2 == 0})
        Written(added=400, replaced=0, deleted=0, missing=0)
        >>> found = docs.search([3.0, 4.0], k=3, filter="even", columns="even")
        >>> grid[found.ids].tolist(), found.distances.tolist(), found.matches
        ([[2.0, 4.0], [4.0, 4.0], [2.0, 3.0]], [1.0, 1.0, 2.0], 200)
        """
        rows, single, arguments = self._asked(request)
        return _found(self._source().search(rows, arguments, None), single, len(rows), self._field(request))

    @asks(question)
    async def search_async(self, request: Question) -> FoundRows:
        """:meth:`search`, awaited under asyncio: the event loop goes on meanwhile. What is cancelled is given up.

        >>> import asyncio, numpy as np, bathyal
        >>> docs = bathyal.Collection.create("memory://awaited", dim=8, id="u64")
        >>> _ = docs.add(range(8), np.eye(8, dtype=np.float32))
        >>> asyncio.run(docs.search_async(np.eye(8, dtype=np.float32)[3], k=1)).ids
        array([3], dtype=uint64)
        """
        rows, single, arguments = self._asked(request)
        source, cancel = self._source(), _bathyal.Cancel()
        answers = await awaiting.in_thread(lambda: source.search(rows, arguments, cancel), cancel)
        return _found(answers, single, len(rows), self._field(request))

    def _asked(self, request: Question) -> tuple[NDArray[Any], bool, _bathyal._QuestionArguments]:
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

    def _field(self, request: Question) -> str:
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
        """The rows with these ids, in their order; ids of which there is no row are left out (see
        :attr:`Rows.places`).

        Args:
            ids: a list, an array, a column of pandas, Arrow or polars; or a single one.
            columns: which columns of metadata: names, True for all, False for none.
            vectors: whether vectors come back, too; of several fields, names choose. They come as they were given,
                but under cosine those of f32 have length 1.

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
        told: Vectors = arrays or None
        if arrays and len(self._shape.fields) == 1:
            told = arrays[self._shape.names[0]]
        return Rows(ids, Metadata(held, ids.shape), told, places, tuple(fields))

    def count(self, filter: Filter | None = None) -> int:
        """How many rows there are, or match ``filter``."""
        return self._source().count(condition(filter), None)

    def batches(
        self,
        *,
        filter: Filter | None = None,
        columns: bool | str | Sequence[str] = True,
        vectors: bool | str | Sequence[str] = False,
        rows: int = 4096,
    ) -> Iterator[Rows]:
        """All rows, or those that match ``filter``, in the order of their ids, ``rows`` at a time.

        What is written meanwhile is left out. ``columns`` and ``vectors`` choose as for :meth:`get`. Memory holds
        one batch.

        >>> import numpy as np, bathyal
        >>> docs = bathyal.Collection.create("memory://walked", dim=2, id="u64")
        >>> _ = docs.add(range(300), np.zeros((300, 2), dtype=np.float32))
        >>> [(batch.ids[0].item(), len(batch)) for batch in docs.batches(rows=128)]
        [(0, 128), (128, 128), (256, 44)]
        """
        most = whole("rows", rows, least=1)
        fields = names("vectors", vectors, self._shape.names)
        chosen = names("columns", columns, self._columns())
        # Begun here, so that it holds what there is at the time of the call, whenever the first batch is asked for.
        scan = self._source().scan(condition(filter), chosen, fields)
        return (self._rows(part, fields) for part in iter(lambda: scan.next(most), None))

    def __len__(self) -> int:
        return self._source().count(None, None)

    def __bool__(self) -> bool:
        """True, as of other things that are opened, whatever is in it."""
        return True

    def __contains__(self, id: object) -> bool:
        """Whether there is a row with this id."""
        suits = isinstance(id, str) if self._schema["id"] == "string" else isinstance(id, int | np.integer)
        if not suits or isinstance(id, bool):
            return False
        try:
            return len(self._get([id], False, False, None)) == 1
        except ValueError:
            # It can be no id: negative, empty, or too long.
            return False

    def __iter__(self) -> Iterator[Any]:
        """The ids, rising: see :meth:`batches`."""
        for batch in self.batches(columns=False):
            yield from batch.ids.tolist()


class Snapshot(Reading):
    """A collection as it was at a moment, whatever is written since: see :meth:`Collection.snapshot`.

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
        self._know(schema)

    def _source(self) -> _bathyal.SnapshotHandle:
        if self._handle is None:
            raise ValueError("the snapshot is closed; make another one")
        return self._handle

    @property
    def sequence(self) -> int:
        """Rises with every batch that is written: of two snapshots that have the same, nothing was written between
        them."""
        return self._source().sequence

    def close(self) -> None:
        """Lets go of what it holds: segments that others have replaced are removed."""
        self._handle = None

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            "<bathyal.Snapshot, closed>" if self._handle is None else f"<bathyal.Snapshot: {len(self)} rows>"
        )


def values(held: _bathyal._Bytes, shape: tuple[int, ...]) -> NDArray[Any]:
    """Vectors as an array of this shape, with one dimension more."""
    element, dim, stored = held
    dtype, width = columns(element, dim)
    return stored.view(dtype).reshape(*shape, width)


def _found(answers: _bathyal._FoundRows, single: bool, queries: int, field: str) -> FoundRows:
    ids, distances, held, vectors, matches, told = answers
    text: dict[str, Any] = json.loads(told)
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
        warned(notes, above=3) if notes else (),
        field,
    )
