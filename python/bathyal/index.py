"""An open index."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bathyal import _bathyal, awaiting
from bathyal.arguments import Path, columns, whole
from bathyal.checking import inspect
from bathyal.files import true_neighbors
from bathyal.inputs import VECTORS, ArgumentLabel
from bathyal.progress import Receiver, progress_receiver
from bathyal.results import Costs, Found, FoundRanges, SearchStats, raise_warnings
from bathyal.search_request import Mode, SearchRequest, search_request, takes_request
from bathyal.search_request import rows as rows_of

QUERY = ArgumentLabel("query", "query")


class Index:
    """An open index. Returned by :func:`build` and :func:`open`; several threads may search it.

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

    @takes_request(search_request)
    def search(self, request: SearchRequest) -> Found:
        """Finds the ``k`` nearest vectors of each query.

        Args:
            queries: ``queries x dim``, or one query of ``dim`` (then the answer has one dimension, too), or the
                path of a file of vectors. An array, a list, a tensor of PyTorch, a DataFrame or a column of pandas,
                Arrow or polars, or anything else that numpy makes an array of. Queries of another element
                than the index's, or that are not C-contiguous, are copied: silently if that loses nothing,
                with a warning the first time if floats lose digits. Values that the element cannot hold are
                refused.
            k: neighbours per query; fewer are returned, with a warning, if the index holds fewer vectors.
            recall: share of the true ``k`` nearest that should be found, above 0 and at most 1. The
                calibration of the index converts it to a length of the candidate list. None is 0.95.
            search_list: that length itself (L in DiskANN), at least ``k``, in place of ``recall``.
            probes: groups that a query of a cluster index scans, or the most posting lists that it reads;
                None takes the number from the calibration: for groups an average, more for queries that need
                them.
            beam_width: reads of one hop of a graph (W in DiskANN), 1 to 128; None is 4.
            threads: at most so many; 0 means all cores. An index that was opened with little ``memory`` may
                use fewer, with a warning that names the memory for all.
            mode: for a graph or posting lists: ``"batched"`` gives the same answers on every tier;
                ``"pipelined"`` continues with the read that arrives first, for lower latency. None is
                batched, but pipelined for a graph in an object store.
            timeout: seconds after which the search gives up.
            prune: leave out posting lists more than ``1 + prune`` times as far as the nearest one; 0 leaves
                none out. None takes the value from the calibration.
            in_flight: queries interleaved on each thread; None chooses a number for the tier. More queries
                take more memory.
            multi_probe: additional buckets that a query reads in each hash table, up to 64, each with as many
                blocks as its own bucket (T in multi-probe LSH); None is 0. Only for the family ``lsh``. The
                promise does not cover them, and ``recall`` and ``ratio`` are calibrated without them.
            ratio: overall ratio to aim for in place of ``recall``, at least 1: on average, the neighbours
                found are so many times as far away as the true ones (see :class:`bathyal.OverallRatio`). Only
                for the family ``lsh``, under ``"l2"`` and ``"cosine"``.
            calibration: name of the calibration (:meth:`calibrate`) that gives the effort for ``recall``;
                ``"build"`` is the one of the build. None is the one named ``"default"``; if there is none,
                the largest effort that any of them chooses.
            probability: in place of ``recall``: the probability that is promised, for any data, of finding a
                vector at most ``within`` times as far away as the nearest. A note of the answers says for
                which distances of the nearest vector the promise holds. A promise that takes more than
                comparing all vectors is refused, with what it would take. Only for the family ``lsh``, under
                ``"l2"`` and ``"cosine"``.
            within: the ratio for which ``probability`` is promised, above 1; None is 4.

        Raises:
            ValueError: queries that do not fit the index, an effort that its family does not have, NaN or
                infinity (the message names the row).
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

    @takes_request(search_request)
    async def search_async(self, request: SearchRequest) -> Found:
        """:meth:`search`, awaited under asyncio: the event loop continues meanwhile, and any number of
        searches may be awaited at once. Arguments, answers and exceptions are the same. Cancelling the task
        stops the search.

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

        The search is approximate: it finds about the share ``recall`` of the vectors within the radius, and
        none outside it. It searches the k nearest of each query, and raises k until the k-th is beyond
        the radius.

        Args:
            queries: as for :meth:`search`.
            radius: largest distance, in the unit of answers: squared for l2 (never negative), the negated
                inner product for ip, one minus the cosine for cosine.
            recall: share of the vectors within the radius that should be found.
            limit: most neighbours of a query: the nearest ones. None means no limit.
            threads, mode, timeout, in_flight: as for :meth:`search`.

        >>> import numpy as np, bathyal
        >>> line = np.arange(100, dtype=np.float32).reshape(100, 1)
        >>> index = bathyal.build(line, "line.index", metric="l2")
        >>> found = index.range_search([[3.0], [99.0], [500.0]], radius=4.0)
        >>> [sorted(found[query][0].tolist()) for query in range(len(found))]
        [[1, 2, 3, 4, 5], [97, 98, 99], []]
        """
        request = search_request(
            queries, recall=recall, threads=threads, mode=mode, timeout=timeout, in_flight=in_flight
        )
        rows, _ = request.rows(self._element, self._dim)
        most = None if limit is None else whole("limit", limit, least=1)
        offsets, ids, distances, notes, costs = _bathyal.range_search(
            self._handle, rows, float(radius), most, request.arguments
        )
        return FoundRanges(offsets, ids, distances, Costs(costs), raise_warnings(notes))

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
        probability: float | None = None,
        within: float | None = None,
    ) -> dict[str, Any]:
        """Finds the ``k`` nearest vectors of each query in a file, and writes them to another file: ``.ibin``
        (with distances) or ``.ivecs``.

        Memory holds the queries and answers of ``block`` queries at a time, so both files may be larger than
        memory. ``output`` appears only when it is complete. Returns ``queries``, ``k``, ``seconds``,
        ``reads``, ``bytes``, ``hops``, ``code_distances``, ``full_distances``, counters that only the family
        has (``counters`` of :func:`families`, such as ``lists`` and ``small_reads`` of ``spann``), all of
        them totals, ``requests`` (as :attr:`Costs.requests`), and ``notes``.

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
        request = search_request(
            queries,
            k,
            recall,
            search_list,
            probes,
            threads=threads,
            in_flight=in_flight,
            ratio=ratio,
            multi_probe=multi_probe,
            probability=probability,
            within=within,
        )
        most = whole("block", block, least=1)
        text = _bathyal.search_file(self._handle, queries, output, most, request.arguments)
        report: dict[str, Any] = json.loads(text)
        report["notes"] = list(raise_warnings(report["notes"]))
        return report

    def warm(
        self, k: int = 10, recall: float = 0.95, threads: int = 0, in_flight: int | None = None
    ) -> dict[str, Any]:
        """Starts search threads, grows their buffers and fills caches, so that the first queries do not wait
        for that.

        Pass the arguments of the searches that follow. Returns ``queries`` (the number of generated queries
        that it has searched), ``reads``, ``bytes`` and ``seconds``.

        >>> import numpy as np, bathyal
        >>> index = bathyal.build(np.eye(300, 8, dtype=np.float32), "warm.index")
        >>> index.warm(threads=1)["queries"] > 0
        True
        """
        request = search_request((), k, recall, threads=threads, in_flight=in_flight)
        report: dict[str, Any] = json.loads(_bathyal.warm(self._handle, request.arguments))
        return report

    def calibrate(
        self,
        queries: ArrayLike | Path,
        *,
        name: str = "default",
        groundtruth: ArrayLike | Path | None = None,
        max_queries: int = 1000,
        threads: int = 0,
        progress: bool | Receiver = True,
    ) -> dict[str, Any]:
        """Measures which effort reaches which recall with ``queries``, for searches that ask for a recall.

        A build calibrates with vectors of the data. Queries from another source, such as texts that search
        images, find less than the recall that they ask for. This call measures the recall of such queries, and
        publishes the result beside the index: searches use it from then on, also after the index was opened
        again. Nothing of the index is built again.

        Args:
            queries: queries like those to come, some hundred or more, converted as :meth:`search` converts
                them.
            name: name of the calibration; one of the same name is replaced. A search uses the one named in
                ``calibration``, or else ``"default"``. If there is none of that name, it takes the largest
                effort that any calibration of the index chooses.
            groundtruth: ids of the exact neighbours of all ``queries``, nearest first, or their file. None
                finds them by one pass over the vectors of the index.
            max_queries: most queries to measure; of more, a sample is taken.
            threads: 0 means all cores.
            progress: as :func:`build` takes it.

        Returns ``name``, ``queries`` (the number measured), ``before`` (for each ``k``, the recall that these
        queries ``found`` by the calibration of the build when they ``asked`` for a recall), ``curves``,
        ``seconds`` and ``truth_seconds``.

        Raises:
            ValueError: arguments that do not fit the index, an index that compares all its vectors, or one
                that has changed since its build.
            BlockingIOError: another process calibrates the index now.

        >>> import numpy as np, bathyal
        >>> random = np.random.default_rng(1)
        >>> index = bathyal.build(random.normal(size=(2000, 16)).astype(np.float32), "images.index")
        >>> report = index.calibrate(random.uniform(-9, 9, (300, 16)).astype(np.float32), name="text")
        >>> report["name"], report["queries"], index.calibrations()[0]["name"]
        ('text', 300, 'text')
        >>> index.remove_calibration("text"), index.calibrations()
        (True, [])
        """
        rows, _ = rows_of(queries, self._element, self._dim)
        truth = None if groundtruth is None else true_neighbors(groundtruth)
        counts = (whole("max_queries", max_queries, least=1), whole("threads", threads))
        with progress_receiver(progress) as receiver:
            text = self._handle.calibrate(rows, name, truth, counts, receiver)
        report: dict[str, Any] = json.loads(text)
        return report

    def calibrations(self) -> list[dict[str, Any]]:
        """Returns the calibrations of :meth:`calibrate`: ``name``, ``measured_at`` (seconds since 1970),
        ``queries``, ``curves`` and ``reach`` of each."""
        found: list[dict[str, Any]] = json.loads(self._handle.calibrations())
        return found

    def remove_calibration(self, name: str) -> bool:
        """Removes a calibration of :meth:`calibrate`. Returns False if there is none of this name."""
        return self._handle.remove_calibration(name)

    def audit(
        self,
        queries: ArrayLike | Path,
        *,
        k: int = 10,
        recall: float | Sequence[float] = 0.95,
        calibration: str | None = None,
        max_queries: int = 1000,
        threads: int = 0,
        progress: bool | Receiver = True,
    ) -> dict[str, Any]:
        """Answers ``queries`` by searches for each ``recall``, and exactly by one pass over the vectors, and
        reports the recall that the searches found.

        Args:
            queries: queries like those of users, some hundred or more, converted as :meth:`search` converts
                them.
            k, calibration, threads: as for :meth:`search`.
            recall: the recall to ask for, or several.
            max_queries: most queries to answer; of more, a sample is taken.
            progress: as :func:`build` takes it.

        Returns ``queries``, ``k``, ``notes``, ``seconds``, ``exact_seconds``, ``exact_bytes`` (read for the
        exact answers) and ``recalls``: for each, the recall ``asked`` for and ``found``, the 95% confidence
        interval from ``low`` to ``high``, ``poor`` (the share of the queries that found less than half), and
        ``reached`` (False if ``asked`` lies above the interval; :meth:`calibrate` with such queries mends
        that).

        Raises:
            ValueError: arguments that do not fit the index, or an index that has changed since its build.

        >>> import numpy as np, bathyal
        >>> vectors = np.random.default_rng(1).standard_normal((2000, 16), dtype=np.float32)
        >>> index = bathyal.build(vectors[:1900], "audited.index")
        >>> audited = index.audit(vectors[1900:], recall=[0.5, 0.9])["recalls"]
        >>> [one["reached"] for one in audited], audited[1]["low"] <= audited[1]["found"]
        ([True, True], True)
        """
        rows, _ = rows_of(queries, self._element, self._dim)
        recalls = [float(one) for one in np.atleast_1d(recall)]
        counts = (
            whole("k", k, least=1),
            whole("max_queries", max_queries, least=1),
            whole("threads", threads),
        )
        with progress_receiver(progress) as receiver:
            text = self._handle.audit(rows, recalls, calibration, counts, receiver)
        report: dict[str, Any] = json.loads(text)
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
        probability: float | None = None,
        within: float | None = None,
    ) -> dict[str, Any]:
        """Answers a single query, or several one after the other, and returns their costs.

        Returns ``hops``, ``reads``, ``bytes``, ``code_distances``, ``full_distances``, ``small_reads``,
        ``groups_scanned`` (None for a graph), ``probes`` and ``prune`` (the effort that determines it),
        ``total_ns`` and ``phases`` (time by phase: navigate, scan, read, rerank), ``memory`` (the memory of
        the open index, by part), ``search_list``, ``ids``, ``distances`` and ``notes``. For an index in an
        object store also ``store``: the query is then answered twice, and the report is of the second answer.
        ``first`` and ``again`` are the requests until each answer, as in :attr:`Costs.requests`, including
        background loading; ``cache`` (by kind of file) and ``cache_rounds`` (by round of reads) are the
        lookups of the cache until the first answer.

        ``predicted`` is the prediction of the cost model, and ``failed`` the assumptions of the model by which
        the query differs from it by more than ``factor``: for each ``assumption``, ``predicted``, ``actual``
        and ``sentence``. Several queries (2-D, more than one row) are explained by their means: ``queries``,
        ``predicted`` and ``actual`` with the same keys (``rounds``, ``reads``, ``bytes``, ``code_distances``,
        ``full_distances``, ``navigate_ns``, ``scan_ns``, ``read_ns``, ``rerank_ns``, ``total_ns``,
        ``processor_ns``), ``tiers`` (the reads by tier), ``failed``, ``factor``, ``memory`` and ``notes``.

        If the index keeps the plan of an advice (``advice`` of :func:`build`), ``plan`` compares the costs with
        it: ``numbers`` (each with ``name``, ``predicted``, ``measured``, ``ratio`` and ``within``), the
        ``differences`` between the search and what the plan assumes, and what ``failed``.

        >>> import numpy as np, bathyal
        >>> vectors = np.random.default_rng(1).standard_normal((500, 8), dtype=np.float32)
        >>> index = bathyal.build(vectors, "explained.index")
        >>> batch = index.explain(vectors[:20], k=3)
        >>> batch["queries"], sorted(batch["actual"]) == sorted(batch["predicted"])
        (20, True)
        >>> report = index.explain(vectors[7], k=3)
        >>> report["ids"][0], [phase["phase"] for phase in report["phases"]]
        (7, ['navigate', 'scan', 'read', 'rerank'])
        """
        request = search_request(
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
            probability=probability,
            within=within,
        )
        rows, _ = rows_of(query, self._element, self._dim, QUERY)
        rows = np.atleast_2d(rows)
        text = (
            _bathyal.explain_batch(self._handle, rows, request.arguments)
            if len(rows) > 1
            else _bathyal.explain(self._handle, rows, 0, request.arguments)
        )
        report: dict[str, Any] = json.loads(text)
        return report

    def insert(self, vectors: ArrayLike | Path) -> range:
        """Inserts vectors into an index of the family ``lsh``, and returns their ids.

        Inserts all vectors or none. Every search that begins afterwards finds them, and they survive a crash.
            One process at a time may change an index: the first to do so, until it closes the index. Other
            processes see the changes when they open the index or call :meth:`refresh`.

        An index of the family ``partitioned`` that was built with ``growth`` takes inserts in the memory of a
        node (``remote://``), from any number of machines at once. Searches on all machines see them at once.
        They are lost when the node stops.

        Args:
            vectors: ``vectors x dim``, or one vector of ``dim``, or the path of a file, converted as
                :meth:`search` converts queries.

        Raises:
            ValueError: vectors that do not fit the index, or an index whose family does not change.
            MemoryError: the index must be compacted first (:func:`bathyal.compact`).
            BlockingIOError: another process, or another open index, changes it.
            OSError: the disk is full, a store refused a request or did not answer, or the index was replaced;
                nothing was inserted. If a store did not answer, the vectors may be inserted all the same:
                :meth:`refresh` shows it.

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
        """Deletes vectors by their ids from an index that takes inserts (see :meth:`insert`), and returns the
        number of vectors deleted.

        No search that begins afterwards finds them. Deleted ids are never given to other vectors, and ids
        that were deleted before are ignored. :func:`bathyal.compact` frees the space.

        Raises:
            ValueError: an id that no vector ever had (then nothing is deleted), or an index whose family does not
                change.
            BlockingIOError: another process, or another open index, changes it.
        """
        return self._handle.delete(_ids(ids).ravel().tolist())

    def vectors(self, ids: ArrayLike) -> NDArray[Any]:
        """Returns the vectors of ``ids``, an array of any shape, as an array with one more dimension; for a
        single id its vector. Ids may repeat.

        Vectors are as they were given, in the element of the index, with two exceptions: under cosine, f32
            vectors are scaled to length 1, as they are stored, and with ``store_as`` they have the precision
            of the smaller element.

        Of the families ``cluster``, ``flat``, ``lsh``, ``graph`` (layout ``padded``) and ``spann`` (layout
        ``decoupled``) only the requested vectors are read. Other indexes, and cluster indexes of older
        versions without the file ``positions.bin``, are read as a whole at the first call; afterwards the
        index keeps the position of each vector, in 4 bytes per vector, if its ``memory`` allows it. If not,
        each call reads the whole index, so pass many ids at once.

        Raises:
            ValueError: an id without a vector, or of a deleted vector; the message names it.
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
        """Yields all ids and their vectors, as :meth:`vectors` returns them, ``rows`` at a time in the order
        of the ids.

        Memory holds one batch, so the index may be larger than memory; :func:`build` takes such batches of
        vectors. Vectors inserted meanwhile are left out.

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
        """Yields the vectors in the order of their ids, read in batches: see :meth:`batches`."""
        for _, vectors in self.batches():
            yield from vectors

    def refresh(self) -> bool:
        """Reads the changes of other processes since the index was opened; returns True if there were any.

        Raises:
            OSError: the index was replaced, as by :func:`bathyal.compact`: open it again.
        """
        return self._handle.refresh()

    @property
    def changed(self) -> dict[str, int]:
        """The changes since the index was built or compacted: ``inserted`` and ``deleted`` vectors, and their
        ``memory_bytes`` and ``log_bytes``."""
        changed: dict[str, int] = json.loads(self._handle.changed())
        return changed

    def stats(self) -> dict[str, Any]:
        """Counters of this index since it was opened: ``queries``, ``errors`` (batches that failed),
        ``reads``, ``bytes``, ``hops``, ``latency_seconds``, ``latency_histogram``, ``cache`` (hits and
        misses; None without one), ``requests`` (requests to the object store, as in :attr:`Costs.requests`;
        None for an index on this machine), ``store_cache`` (lookups of the cache in front of the store, by
        kind of file), ``store_cache_rounds`` (the same by round of reads: the first 12 one by one, then all
        later ones together) and more. See :meth:`prometheus`.

        With ``audit`` of :func:`bathyal.open`, ``audit`` has the queries ``sampled``, ``waiting``, ``dropped``
        (the audit had no time for them) and ``discarded`` (the vectors or the effort had changed), the
        ``seconds`` and ``bytes`` that it took, and ``recalls``: for each recall ``asked`` for, the recall
        ``found`` by the last 500 to 1000 audited ``queries``, its 95% confidence interval from ``low`` to
        ``high``, ``missed`` (True if ``asked`` lies above it), and ``effort_for`` (the recall for which searches
        make the effort now).

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

    # `in` would compare whole vectors one by one; use :meth:`vectors` for ids.
    __contains__ = None

    def __len__(self) -> int:
        return self._handle.len

    def __bool__(self) -> bool:
        """Always True, also for an empty index."""
        return True

    def __copy__(self) -> Index:
        """Another handle of the same open index, which is closed when all its copies are."""
        return type(self)(self._handle.share(), self._path, self._options, self._report)

    def __deepcopy__(self, memo: dict[int, Any]) -> Index:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the path and the options, with which the index is opened again. The options of its store
        may be secrets. A closed index cannot be pickled."""
        if self.closed:
            raise ValueError(f"{self._path}: the index is closed; only an open index can be pickled")
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
        """``"l2"``, ``"ip"`` or ``"cosine"``; for bits ``"hamming"`` in place of ``"l2"``."""
        return self._handle.metric

    @property
    def path(self) -> str:
        """The directory of the index, or its address."""
        return self._path

    @property
    def opening_requests(self) -> dict[str, Any] | None:
        """The requests to the object store for opening the index, as in :attr:`Costs.requests`; None for an
        index on this machine.

        >>> import numpy as np, bathyal
        >>> index = bathyal.build(np.eye(8, dtype=np.float32), "memory://opened.index")
        >>> index.opening_requests["requests"] > 0
        True
        """
        return self._handle.opening_requests()

    @property
    def arrival(self) -> dict[str, Any] | None:
        """For an index in an object store that was opened without ``wait``, how much of its memory has
        arrived: the bytes that are ``here``, the bytes of ``all``, and the error (``failed``) if loading has
        ended early. None if opening has waited for everything.

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
        """The stored form of the vectors, if they are not stored as they were given (``store_as`` of
        :func:`build`), else None.

        ``element`` (``"f16"`` or ``"i8"``), ``scale`` (the value of a stored component of 1), and ``loss``,
        measured when the index was built: ``recall``, the share of the true ``k`` nearest that exact search
        of the stored vectors finds, over ``queries``, and ``distance_error``, the mean error of their
        distances relative to their mean distance.

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
        """The manifest of the index: parameters, files, calibration."""
        manifest: dict[str, Any] = json.loads(self._handle.manifest())
        return manifest

    @property
    def build_report(self) -> dict[str, Any] | None:
        """The report of the build (seconds, bytes, stages); None for an index that was opened."""
        return self._report

    def inspect(self) -> dict[str, Any]:
        """See :func:`bathyal.inspect`."""
        return inspect(self._path, store_options=self._options.get("store_options"))

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._handle.closed

    def close(self) -> None:
        """Releases files, memory and threads, after searches in other threads have finished. Copies
        (``copy.copy``) stay open, and keep what they share with it."""
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
    """Opens a pickled index."""
    from bathyal.opening import open

    return open(path, progress=False, **options)


def _ids(ids: ArrayLike) -> NDArray[np.uint32]:
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise ValueError(f"ids have rows of different lengths: {error}") from error
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
    return Found(ids, distances, stats, raise_warnings(notes, above=3) if notes else ())
