"""An open index."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bathyal import _bathyal, awaiting
from bathyal.arguments import Path, columns, whole
from bathyal.asking import Asked, Mode, asked, asks
from bathyal.asking import rows as rows_of
from bathyal.checking import inspect
from bathyal.inputs import VECTORS, Called
from bathyal.results import Costs, Found, FoundRanges, SearchStats, warned

QUERY = Called("query", "query")


class Index:
    """An open index. Made by :func:`build` and :func:`open`; may be searched from several threads.

    >>> import numpy as np, bathyal
    >>> vectors = np.random.default_rng(1).integers(0, 256, (500, 8), dtype=np.uint8)
    >>> with bathyal.build(vectors, "small.index", metric="l2") as index:
    ...     len(index), index.dim, index.element, index.metric
    ...     int(index.search(vectors[7], k=3).ids[0])
    (500, 8, 'u8', 'l2')
    7
    >>> index.closed
    True
    """

    def __init__(
        self,
        handle: _bathyal.IndexHandle,
        path: Path,
        options: Mapping[str, Any],
        report: dict[str, Any] | None = None,
    ) -> None:
        self._handle = handle
        self._element = handle.element
        self._dim = handle.dim
        self._path = os.fspath(path)
        self._options = dict(options)
        self._report = report

    @asks(asked)
    def search(self, request: Asked) -> Found:
        """Finds the ``k`` nearest vectors of each query.

        Args:
            queries: ``queries x dim``, or one query of ``dim`` (then the answer has one dimension, too), or the
                path of a file of vectors. An array, a list, a tensor of PyTorch, a DataFrame or a column of pandas,
                Arrow or polars, or anything else that numpy makes an array of. What is not of the element of the
                index, or not C-contiguous, is copied: in silence where that loses nothing, with a warning the
                first time where floats lose digits; values that the element cannot hold are refused.
            k: neighbours wanted; fewer come back, with a warning, if the index holds fewer.
            recall: share of the true ``k`` nearest that should be found, above 0 and at most 1. The
                calibration of the index turns it into a size of the candidate list. None is 0.95.
            search_list: that size itself (L in DiskANN), at least ``k``, in place of ``recall``.
            probes: groups that a cluster index scans, or posting lists at most; None chooses by the calibration: of
                groups an average, more for queries that need them.
            beam_width: reads of one hop of a graph (W in DiskANN), 1 to 128; None is 4.
            threads: 0 means all cores.
            mode: of a graph or posting lists: ``"batched"`` gives the same answers on every tier;
                ``"pipelined"`` goes on with whatever read arrives first, for lower latency. None is batched, but of
                a graph in an object store pipelined.
            timeout: seconds after which the search gives up.
            prune: posting lists more than ``1 + prune`` times as far as the nearest are left out, none at 0; None
                chooses by the calibration.
            in_flight: queries interleaved on each thread; None suits the tier. More take more memory.
            multi_probe: further places that are looked at in each hash table, up to 64, each with as many blocks as
                the query's own (T in multi-probe LSH); None is 0. Of the family ``lsh``. Nothing is promised of
                what they add, and ``recall`` and ``ratio`` are aimed for without them.
            ratio: overall ratio to aim for instead of a recall, at least 1: answers lie that many times as far away
                as the true nearest, in the mean (see :class:`bathyal.OverallRatio`). Of the family ``lsh``, under
                ``"l2"`` and ``"cosine"``, in place of ``recall``.

        Raises:
            ValueError: queries that do not fit the index, an effort that its family has no use for, NaN or infinity
                (the row is named).
            TimeoutError: ``timeout`` passed; nothing is answered.
            DamagedIndexError: bytes of the index are not those that were written.
            OSError: the device failed.

        >>> import numpy as np, bathyal
        >>> grid = np.stack(np.meshgrid(np.arange(20), np.arange(20)), -1).reshape(400, 2).astype(np.float32)
        >>> index = bathyal.build(grid, "grid.index", metric="l2")
        >>> found = index.search([[3.0, 4.0], [0.2, 0.0]], k=3, search_list=50)
        >>> grid[found.ids[0, 0]].tolist(), found.distances.shape
        ([3.0, 4.0], (2, 3))
        >>> index.search([3.0, 4.0], k=3).distances.tolist()
        [0.0, 1.0, 1.0]
        """
        rows, single = request.rows(self._element, self._dim)
        return _found(self._handle.search(rows, request.arguments), single)

    @asks(asked)
    async def search_async(self, request: Asked) -> Found:
        """:meth:`search`, awaited under asyncio: the event loop goes on meanwhile, and any number of searches
        may be awaited at once. Arguments, answers and exceptions are the same. What is cancelled is given up.

        >>> import asyncio, numpy as np, bathyal
        >>> vectors = np.random.default_rng(1).standard_normal((500, 8), dtype=np.float32)
        >>> index = bathyal.build(vectors, "awaited.index")
        >>> async def ask():
        ...     found = await asyncio.gather(*(index.search_async(vector, k=1) for vector in vectors[:20]))
        ...     return [int(one.ids[0]) for one in found]
        >>> asyncio.run(ask()) == list(range(20))
        True
        """
        rows, single = request.rows(self._element, self._dim)
        if not rows.size:
            return _found(self._handle.search(rows, request.arguments), single)
        return _found(await awaiting.search(self._handle, rows, request.arguments), single)

    def range_search(
        self,
        queries: ArrayLike | Path,
        radius: float,
        recall: float = 0.95,
        limit: int | None = None,
        threads: int = 0,
        mode: Mode | None = None,
        timeout: float | None = None,
        in_flight: int | None = None,
    ) -> FoundRanges:
        """Finds all vectors within ``radius`` of each query.

        Approximate, as every search is: about ``recall`` of the vectors within the radius are found, and none
        outside it. Each query is searched for its k nearest, with k rising until the k-th lies beyond the radius.

        Args:
            queries: as for :meth:`search`.
            radius: largest distance, as answers give it: l2 is squared (none is below 0), ip negated, cosine
                one minus it.
            recall: share of the vectors within the radius that should be found.
            limit: most neighbours of a query; the nearest are kept. None means all that the index holds.
            threads, mode, timeout, in_flight: as for :meth:`search`.

        >>> import numpy as np, bathyal
        >>> line = np.arange(100, dtype=np.float32).reshape(100, 1)
        >>> index = bathyal.build(line, "line.index", metric="l2")
        >>> found = index.range_search([[3.0], [99.0], [500.0]], radius=4.0)
        >>> [sorted(found[query][0].tolist()) for query in range(len(found))]
        [[1, 2, 3, 4, 5], [97, 98, 99], []]
        """
        request = asked(
            queries, recall=recall, threads=threads, mode=mode, timeout=timeout, in_flight=in_flight
        )
        rows, _ = request.rows(self._element, self._dim)
        most = None if limit is None else whole("limit", limit, least=1)
        offsets, ids, distances, notes, costs = _bathyal.range_search(
            self._handle, rows, float(radius), most, request.arguments
        )
        return FoundRanges(offsets, ids, distances, Costs(costs), warned(notes))

    def search_file(
        self,
        queries: Path,
        output: Path,
        k: int = 10,
        recall: float | None = None,
        search_list: int | None = None,
        probes: int | None = None,
        threads: int = 0,
        block: int = 65536,
        in_flight: int | None = None,
        ratio: float | None = None,
        multi_probe: int | None = None,
    ) -> dict[str, Any]:
        """Finds the ``k`` nearest of each query of a file and writes them to another: ``.ibin`` (with distances) or
        ``.ivecs``.

        Queries and answers are in memory for ``block`` queries at a time, so both files may be larger than memory.
        Nothing is at ``output`` before it is complete. Returns ``queries``, ``k``, ``seconds``, ``reads``,
        ``bytes``, ``hops``, ``code_distances``, ``full_distances``, what only the family counts (``counters`` of
        :func:`families`: ``lists`` and ``small_reads`` of ``spann``), all of them totals, ``requests`` (as
        :attr:`Costs.requests`), and ``notes``.

        >>> import numpy as np, bathyal
        >>> vectors = np.random.default_rng(1).standard_normal((500, 8), dtype=np.float32)
        >>> bathyal.write_vectors("queries.fbin", vectors[:50])
        >>> index = bathyal.build(vectors, "file.index")
        >>> index.search_file("queries.fbin", "found.ibin", k=3, block=20)["queries"]
        50
        >>> ids, distances = bathyal.read_ids("found.ibin")
        >>> ids[:4, 0].tolist()
        [0, 1, 2, 3]
        """
        request = asked(
            queries,
            k,
            recall,
            search_list,
            probes,
            threads=threads,
            in_flight=in_flight,
            ratio=ratio,
            multi_probe=multi_probe,
        )
        most = whole("block", block, least=1)
        text = _bathyal.search_file(self._handle, queries, output, most, request.arguments)
        report: dict[str, Any] = json.loads(text)
        report["notes"] = list(warned(report["notes"]))
        return report

    def warm(
        self, k: int = 10, recall: float = 0.95, threads: int = 0, in_flight: int | None = None
    ) -> dict[str, Any]:
        """Starts search threads, grows their buffers and fills caches, so that the first queries wait for nothing.

        The arguments are those of the searches to come. Returns ``queries`` (made up from the index and answered),
        ``reads``, ``bytes`` and ``seconds``.

        >>> import numpy as np, bathyal
        >>> index = bathyal.build(np.eye(300, 8, dtype=np.float32), "warm.index")
        >>> index.warm(threads=1)["queries"] > 0
        True
        """
        request = asked((), k, recall, threads=threads, in_flight=in_flight)
        report: dict[str, Any] = json.loads(_bathyal.warm(self._handle, request.arguments))
        return report

    def explain(
        self,
        query: ArrayLike,
        k: int = 10,
        recall: float | None = None,
        search_list: int | None = None,
        probes: int | None = None,
        beam_width: int | None = None,
        mode: Mode | None = None,
        prune: float | None = None,
        ratio: float | None = None,
        multi_probe: int | None = None,
    ) -> dict[str, Any]:
        """Answers one query alone and says what it took.

        Returns ``hops``, ``reads``, ``bytes``, ``code_distances``, ``full_distances``, ``small_reads``,
        ``groups_scanned`` (None of a graph), ``probes`` and ``prune`` (the effort that led to as many),
        ``total_ns`` and ``phases`` (where the time went: navigate, scan, read, rerank), ``memory`` (what the
        open index keeps), ``search_list``, ``ids``, ``distances`` and ``notes``. Of an index in an object store
        also ``store``: the query is answered twice and the second answer is told, ``first`` and ``again`` say
        what the store was asked until each was there, as :attr:`Costs.requests` says it, what is loaded on the
        side included; ``cache`` (by kind of file) and ``cache_rounds`` (by round of reads) say where the blocks
        were that were looked for until the first.

        >>> import numpy as np, bathyal
        >>> vectors = np.random.default_rng(1).standard_normal((500, 8), dtype=np.float32)
        >>> index = bathyal.build(vectors, "explained.index")
        >>> told = index.explain(vectors[7], k=3)
        >>> told["ids"][0], [phase["phase"] for phase in told["phases"]]
        (7, ['navigate', 'scan', 'read', 'rerank'])
        """
        request = asked(
            query,
            k,
            recall,
            search_list,
            probes,
            beam_width,
            1,
            mode,
            prune=prune,
            ratio=ratio,
            multi_probe=multi_probe,
        )
        rows, _ = rows_of(query, self._element, self._dim, QUERY)
        told: dict[str, Any] = json.loads(
            _bathyal.explain(self._handle, np.atleast_2d(rows)[:1], 0, request.arguments)
        )
        return told

    def insert(self, vectors: ArrayLike | Path) -> range:
        """Inserts vectors into an index of the family ``lsh``, and returns the ids that they have.

        Every search that begins after this finds them, and when it returns they outlive a crash: all of them are
        inserted or none. One process at a time changes an index, the first to do so until it closes the index;
        others see what it did when they open the index or :meth:`refresh`.

        An index of the family ``partitioned`` that was built with ``growth`` takes inserts in the memory of a node
        (``remote://``), from any number of machines at once: all searches see them from then on, whatever machine
        they are of. They are gone with the node's memory.

        Args:
            vectors: ``vectors x dim``, or one vector of ``dim``, or the path of a file, converted as
                :meth:`search` converts queries.

        Raises:
            ValueError: vectors that do not fit the index, or an index whose family does not change.
            MemoryError: the index has to be compacted first (:func:`bathyal.compact`).
            BlockingIOError: another process, or another open index, changes it.
            OSError: the disk is full, a store refused or did not answer, or the index was replaced; nothing was
                inserted. If a store did not answer it may have been done all the same: :meth:`refresh` shows it.

        >>> import numpy as np, bathyal
        >>> vectors = np.random.default_rng(1).standard_normal((600, 16), dtype=np.float32)
        >>> with bathyal.build(vectors[:500], "grows.index", family="lsh", metric="l2") as index:
        ...     index.insert(vectors[500:])
        ...     index.delete([7, 501])
        ...     len(index), int(index.search(vectors[502], k=1).ids[0])
        range(500, 600)
        2
        (598, 502)
        >>> bathyal.compact("grows.index")["vectors"]
        598
        >>> int(bathyal.open("grows.index").search(vectors[502], k=1).ids[0])
        502
        """
        rows, _ = rows_of(vectors, self._element, self._dim, VECTORS)
        return range(*self._handle.insert(rows))

    def delete(self, ids: ArrayLike) -> int:
        """Deletes vectors from an index that takes inserts (see :meth:`insert`) by their ids, and returns how many
        there were.

        No search that begins after this finds them. Ids are not given again; those that were deleted before are
        passed over. The space comes back with :func:`bathyal.compact`.

        Raises:
            ValueError: an id that no vector ever had (then nothing is deleted), or an index whose family does not
                change.
            BlockingIOError: another process, or another open index, changes it.
        """
        return self._handle.delete(_ids(ids).ravel().tolist())

    def vectors(self, ids: ArrayLike) -> NDArray[Any]:
        """The vectors of ``ids``, an array of any shape, as an array of that shape and one more dimension; of a
        single id its vector alone. An id may be there more than once.

        They come as they were given, of the element of the index: under cosine those of f32 have length 1, as
        which they are stored, and with ``store_as`` what the smaller element has left of them.

        Of the families ``cluster``, ``flat``, ``lsh``, ``graph`` (layout ``padded``) and ``spann`` (layout
        ``decoupled``) only what is wanted is read. Others, and cluster indexes without the file
        ``positions.bin``, which older versions have built, are read once as a whole, the first time; from then on
        the index knows where each vector lies, in 4 bytes a vector, if its ``memory`` allows that. Where it does
        not, each call reads all: ask for many at once then.

        Raises:
            ValueError: an id that no vector has, or whose vector was deleted: it is named.
            DamagedIndexError, OSError: as :meth:`search`.

        >>> import numpy as np, bathyal
        >>> rows = np.arange(600, dtype=np.uint8).reshape(200, 3)
        >>> index = bathyal.build(rows, "back.index")
        >>> index.vectors(7).tolist(), index.vectors([[0, 1], [199, 0]]).shape
        ([21, 22, 23], (2, 2, 3))
        >>> index.vectors(200)
        Traceback (most recent call last):
        ValueError: back.index: there is no vector 200: ids are below 200
        """
        wanted = _ids(ids)
        held = self._vectors(wanted.ravel())
        return held.reshape(*wanted.shape, held.shape[-1])

    def _vectors(self, ids: NDArray[np.uint32]) -> NDArray[Any]:
        element, held = self._handle.vectors(ids)
        dtype, width = columns(element, self._dim)
        return held.view(dtype).reshape(len(ids), width)

    def batches(self, rows: int = 4096) -> Iterator[tuple[NDArray[np.uint32], NDArray[Any]]]:
        """All ids and their vectors, as :meth:`vectors` gives them, ``rows`` at a time in the order of the ids.

        Memory holds one batch, so a set may be larger than that; :func:`build` takes the vectors of them. What
        others insert meanwhile is left out.

        >>> import numpy as np, bathyal
        >>> index = bathyal.build(np.eye(300, 8, dtype=np.float32), "walked.index")
        >>> [(int(ids[0]), vectors.shape) for ids, vectors in index.batches(rows=128)]
        [(0, (128, 8)), (128, (128, 8)), (256, (44, 8))]
        >>> copy = bathyal.build((vectors for _, vectors in index.batches()), "copied.index")
        >>> len(copy)
        300
        """
        return self._batches(whole("rows", rows, least=1))

    def _batches(self, rows: int) -> Iterator[tuple[NDArray[np.uint32], NDArray[Any]]]:
        wanted: list[NDArray[np.uint32]] = []
        for start, end in self._handle.ids():
            while start < end:
                stop = min(end, start + rows - sum(map(len, wanted)))
                wanted.append(np.arange(start, stop, dtype=np.uint32))
                start = stop
                if sum(map(len, wanted)) == rows:
                    ids, wanted = np.concatenate(wanted), []
                    yield ids, self._vectors(ids)
        if wanted:
            ids = np.concatenate(wanted)
            yield ids, self._vectors(ids)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """The vectors in the order of their ids, read in batches: see :meth:`batches`."""
        for _, vectors in self.batches():
            yield from vectors

    def refresh(self) -> bool:
        """Sees what others have changed since the index was opened; returns whether there was anything.

        Raises:
            OSError: the index was replaced, as by :func:`bathyal.compact`: open it again.
        """
        return self._handle.refresh()

    @property
    def changed(self) -> dict[str, int]:
        """How far it has changed since it was built or compacted: ``inserted`` and ``deleted`` vectors, and what
        this takes, ``memory_bytes`` and ``log_bytes``."""
        changed: dict[str, int] = json.loads(self._handle.changed())
        return changed

    def stats(self) -> dict[str, Any]:
        """What this index has done since it was opened: ``queries``, ``errors`` (batches that failed), ``reads``,
        ``bytes``, ``hops``, ``latency_seconds``, ``latency_histogram``, ``cache`` (hits and misses; None
        without one), ``requests`` (what the object store was asked, as :attr:`Costs.requests` says it; None of an
        index that is here), ``store_cache`` (where blocks came from that lie behind a cache of this machine, by
        kind of file), ``store_cache_rounds`` (the same by round of reads: the first 12 one by one, then all
        later ones together) and more. See :meth:`prometheus`.

        >>> import numpy as np, bathyal
        >>> index = bathyal.build(np.eye(8, dtype=np.float32), "counted.index")
        >>> _ = index.search(np.eye(8, dtype=np.float32), k=1)
        >>> index.stats()["queries"]
        8
        """
        counters: dict[str, Any] = json.loads(_bathyal.stats(self._handle)[0])
        return counters

    def prometheus(self) -> str:
        """The counters of :meth:`stats` in the text exposition format of Prometheus.

        >>> import numpy as np, bathyal
        >>> index = bathyal.build(np.eye(8, dtype=np.float32), "exposed.index")
        >>> index.prometheus().splitlines()[2]
        'bathyal_vectors{index="exposed.index"} 8'
        """
        return _bathyal.stats(self._handle)[1]

    # `in` would compare whole vectors, one after the other; ids are asked for by :meth:`vectors`.
    __contains__ = None

    def __len__(self) -> int:
        return self._handle.len

    def __bool__(self) -> bool:
        """True, as of other things that are opened, whatever is in it."""
        return True

    def __copy__(self) -> Index:
        """Another hold of the same open index: it is closed when all its copies are."""
        return type(self)(self._handle.share(), self._path, self._options, self._report)

    def __deepcopy__(self, memo: dict[int, Any]) -> Index:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """What opens it again, from the same path with the same options: those of its store are among them, which
        may be secrets. One that was closed is not opened again."""
        if self.closed:
            raise ValueError(f"{self._path}: the index is closed; only an open one is pickled")
        here = "://" not in self._path
        return _opened, (os.path.abspath(self._path) if here else self._path, self._options)

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return self._handle.dim

    @property
    def element(self) -> str:
        """Type of the components: ``"f32"``, ``"f16"``, ``"bf16"``, ``"u8"``, ``"i8"`` or ``"b1"`` (a bit)."""
        return self._handle.element

    @property
    def metric(self) -> str:
        """``"l2"``, ``"ip"`` or ``"cosine"``; of bits ``"hamming"`` in place of ``"l2"``."""
        return self._handle.metric

    @property
    def path(self) -> str:
        """The directory of the index, or its address."""
        return self._path

    @property
    def opening_requests(self) -> dict[str, Any] | None:
        """What the object store was asked to open the index, as :attr:`Costs.requests` says it; None of one that is
        here.

        >>> import numpy as np, bathyal
        >>> index = bathyal.build(np.eye(8, dtype=np.float32), "memory://opened.index")
        >>> index.opening_requests["requests"] > 0
        True
        """
        return self._handle.opening_requests()

    @property
    def arrival(self) -> dict[str, Any] | None:
        """How much has come of what the index keeps in memory, of one in an object store that was opened without
        ``wait``: bytes that are ``here``, bytes of ``all``, and why no more of them come (``failed``), or None.
        None where all was waited for.

        >>> import numpy as np, bathyal
        >>> bathyal.build(np.eye(8, dtype=np.float32), "memory://arriving.index").close()
        >>> bathyal.open("memory://arriving.index", wait=True).arrival is None
        True
        """
        text = self._handle.arrival()
        return None if text is None else json.loads(text)

    @property
    def dram_bytes(self) -> int:
        """Bytes of memory that the open index holds between searches."""
        return self._handle.dram_bytes

    @property
    def stored(self) -> dict[str, Any] | None:
        """How the vectors are stored where not as they were given (``store_as`` of :func:`build`), else None.

        ``element`` (``"f16"`` or ``"i8"``), ``scale`` (what a stored component of 1 stands for), and, measured
        when the index was built, ``loss``: ``recall``, the share of the true ``k`` nearest that exact search of
        what is stored finds, over ``queries``, and ``distance_error``, the mean error of their distances by their
        mean distance.

        >>> import numpy as np, bathyal
        >>> vectors = np.random.default_rng(1).standard_normal((1000, 32), dtype=np.float32)
        >>> index = bathyal.build(vectors, "half.index", store_as="f16")
        >>> index.element, index.stored["element"], index.stored["loss"]["recall"] > 0.99
        ('f32', 'f16', True)
        """
        stored: dict[str, Any] | None = self.manifest.get("stored")
        return stored

    @property
    def manifest(self) -> dict[str, Any]:
        """What the index says about itself: parameters, files, calibration."""
        manifest: dict[str, Any] = json.loads(self._handle.manifest())
        return manifest

    @property
    def build_report(self) -> dict[str, Any] | None:
        """What the build came to (seconds, bytes, stages); None for an index that was opened."""
        return self._report

    def inspect(self) -> dict[str, Any]:
        """See :func:`bathyal.inspect`."""
        return inspect(self._path, store_options=self._options.get("store_options"))

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._handle.closed

    def close(self) -> None:
        """Gives back files, memory and threads. Searches that run in other threads are finished first. Copies
        (``copy.copy``) stay open, and hold what they share with it."""
        self._handle.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"<bathyal.Index {self._path!r}, closed>"
        text = f"<bathyal.Index {self._path!r}: {len(self)} x {self.dim} {self.element}, {self.metric}"
        emulated = self._options.get("delay")
        return text + (f", emulated {emulated}>" if emulated else ">")


def _opened(path: str, options: dict[str, Any]) -> Index:
    """An index that was pickled, in the process that wants it."""
    from bathyal.opening import open

    return open(path, progress=False, **options)


def _ids(ids: ArrayLike) -> NDArray[np.uint32]:
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise ValueError(f"ids are not equally many in each row: {error}") from error
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"ids hold {array.dtype}; expected whole numbers")
    if array.size and not 0 <= array.min() <= array.max() < 2**32:
        raise ValueError(f"ids are between {array.min()} and {array.max()}; expected 0 to {2**32 - 1}")
    return array.astype(np.uint32)


def _found(answers: _bathyal._Answers, single: bool) -> Found:
    ids, distances, notes, costs, search_list, dram_bytes = answers
    stats = SearchStats(costs, ids.shape[0], ids.shape[1], search_list, dram_bytes)
    if single:
        ids, distances = ids[0], distances[0]
    return Found(ids, distances, stats, warned(notes, above=3) if notes else ())
