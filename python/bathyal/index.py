"""Building, opening and searching an index."""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction, signature
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast

from numpy.typing import ArrayLike

from bathyal import _bathyal, awaiting
from bathyal.arguments import Data, Path, family_options, memory_bytes, refuse_renamed, whole
from bathyal.asking import Asked, Mode, asked
from bathyal.files import source
from bathyal.progress import Receiver, shown
from bathyal.results import Costs, Found, FoundMany, FoundRanges, SearchStats, SearchWarning

Metric = Literal["l2", "ip", "cosine"]
StoreAs = Literal["f16", "i8"]
Family = str
Tier = str
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def _asks(
    request: Callable[_Arguments, Asked],
) -> Callable[[Callable[[Index, Asked], _Answer]], Callable[Concatenate[Index, _Arguments], _Answer]]:
    """Gives a method the arguments of ``request``, and hands it what they come to: searches that are asked the same
    have one list of arguments and defaults, and one check of them."""

    def give(
        answer: Callable[[Index, Asked], _Answer],
    ) -> Callable[Concatenate[Index, _Arguments], _Answer]:
        if iscoroutinefunction(answer):

            async def begun(self: Index, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Any:
                return await answer(self, request(*args, **kwargs))

            method: Any = functools.wraps(answer)(begun)
        else:

            def called(self: Index, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
                return answer(self, request(*args, **kwargs))

            method = functools.wraps(answer)(called)
        told, given = signature(answer), signature(request)
        parameters = [told.parameters["self"], *given.parameters.values()]
        method.__signature__ = told.replace(parameters=parameters)
        return cast("Callable[Concatenate[Index, _Arguments], _Answer]", method)

    return give


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
        report: dict[str, Any] | None = None,
        emulated: str | None = None,
    ) -> None:
        self._handle = handle
        self._element = handle.element
        self._path = os.fspath(path)
        self._report = report
        self._emulated = emulated

    @_asks(asked)
    def search(self, request: Asked) -> Found:
        """Finds the ``k`` nearest vectors of each query.

        Args:
            queries: ``queries x dim``, or one query of ``dim``, or the path of a file of vectors. Arrays of one
                of Bathyal's elements have to have the element of the index; lists, float64 and integers are
                converted, which copies them. Others are copied only if they are not C-contiguous.
            k: neighbours wanted; fewer come back, with a warning, if the index holds fewer.
            recall: share of the true ``k`` nearest that should be found, above 0 and at most 1. The
                calibration of the index turns it into a size of the candidate list.
            search_list: that size itself (L in DiskANN), at least ``k``; then ``recall`` is not looked at.
            probes: groups that a cluster index scans, or posting lists at most; None chooses by the calibration.
            beam_width: reads of one hop of a graph (W in DiskANN), 1 to 128; None is 4.
            threads: 0 means all cores.
            mode: of a graph or posting lists: ``"batched"`` (the default) gives the same answers on every tier;
                ``"pipelined"`` goes on with whatever read arrives first, for lower latency.
            timeout: seconds after which the search gives up.
            prune: posting lists more than ``1 + prune`` times as far as the nearest are left out, none at 0; None
                chooses by the calibration.
            in_flight: queries interleaved on each thread; None suits the tier. More take more memory.

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
        rows, single = request.rows(self._element)
        return _found(self._handle.search(rows, request.arguments), single)

    @_asks(asked)
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
        rows, single = request.rows(self._element)
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
            radius: largest distance, as answers give it: l2 is squared, ip negated, cosine one minus it.
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
        rows, _ = request.rows(self._element)
        most = None if limit is None else whole("limit", limit, least=1)
        offsets, ids, distances, notes, costs = _bathyal.range_search(
            self._handle, rows, float(radius), most, request.arguments
        )
        return FoundRanges(offsets, ids, distances, Costs(costs), _warned(notes))

    def search_file(
        self,
        queries: Path,
        output: Path,
        k: int = 10,
        recall: float = 0.95,
        search_list: int | None = None,
        probes: int | None = None,
        threads: int = 0,
        block: int = 65536,
        in_flight: int | None = None,
    ) -> dict[str, Any]:
        """Finds the ``k`` nearest of each query of a file and writes them to another: ``.ibin`` (with distances) or
        ``.ivecs``.

        Queries and answers are in memory for ``block`` queries at a time, so both files may be larger than memory.
        Nothing is at ``output`` before it is complete. Returns ``queries``, ``k``, ``seconds``, ``reads``,
        ``bytes``, ``hops``, ``code_distances``, ``full_distances``, what only the family counts (``counters`` of
        :func:`families`: ``lists`` and ``small_reads`` of ``spann``), all of them totals, and ``notes``.

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
        request = asked(queries, k, recall, search_list, probes, threads=threads, in_flight=in_flight)
        most = whole("block", block, least=1)
        text = _bathyal.search_file(self._handle, queries, output, most, request.arguments)
        report: dict[str, Any] = json.loads(text)
        report["notes"] = list(_warned(report["notes"]))
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
        recall: float = 0.95,
        search_list: int | None = None,
        probes: int | None = None,
        beam_width: int | None = None,
        mode: Mode | None = None,
        prune: float | None = None,
    ) -> dict[str, Any]:
        """Answers one query alone and says what it took.

        Returns ``hops``, ``reads``, ``bytes``, ``code_distances``, ``full_distances``, ``small_reads``,
        ``groups_scanned`` (None of a graph), ``total_ns`` and ``phases`` (where the time went: navigate, scan,
        read, rerank), ``memory`` (what the open index keeps), ``search_list``, ``ids``, ``distances`` and
        ``notes``.

        >>> import numpy as np, bathyal
        >>> vectors = np.random.default_rng(1).standard_normal((500, 8), dtype=np.float32)
        >>> index = bathyal.build(vectors, "explained.index")
        >>> told = index.explain(vectors[7], k=3)
        >>> told["ids"][0], [phase["phase"] for phase in told["phases"]]
        (7, ['navigate', 'scan', 'read', 'rerank'])
        """
        request = asked(query, k, recall, search_list, probes, beam_width, 1, mode, prune=prune)
        rows, _ = request.rows(self._element)
        told: dict[str, Any] = json.loads(_bathyal.explain(self._handle, rows, 0, request.arguments))
        return told

    def stats(self) -> dict[str, Any]:
        """What this index has done since it was opened: ``queries``, ``errors`` (batches that failed), ``reads``,
        ``bytes``, ``hops``, ``latency_seconds``, ``latency_histogram``, ``cache`` (hits and misses; None
        without one) and more. See :meth:`prometheus`.

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

    def __len__(self) -> int:
        return self._handle.len

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return self._handle.dim

    @property
    def element(self) -> str:
        """Type of the components: ``"f32"``, ``"f16"``, ``"u8"`` or ``"i8"``."""
        return self._handle.element

    @property
    def metric(self) -> str:
        """``"l2"``, ``"ip"`` or ``"cosine"``."""
        return self._handle.metric

    @property
    def path(self) -> str:
        """The directory of the index."""
        return self._path

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
        return inspect(self._path)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._handle.closed

    def close(self) -> None:
        """Gives back files, memory and threads. Searches that run in other threads are finished first."""
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
        return text + (f", emulated {self._emulated}>" if self._emulated else ">")


def _warned(notes: list[str], above: int = 1) -> tuple[str, ...]:
    """Notes, of which the caller of the caller has been warned; ``above`` calls lie between that one and this."""
    for note in notes:
        warnings.warn(note, SearchWarning, stacklevel=above + 2)
    return tuple(notes)


def _found(answers: _bathyal._Answers, single: bool) -> Found:
    ids, distances, notes, costs, search_list, dram_bytes = answers
    stats = SearchStats(costs, ids.shape[0], ids.shape[1], search_list, dram_bytes)
    if single:
        ids, distances = ids[0], distances[0]
    return Found(ids, distances, stats, _warned(notes, above=3) if notes else ())


def search(
    indexes: Sequence[Index],
    queries: ArrayLike | Path,
    k: int = 10,
    recall: float = 0.95,
    search_list: int | None = None,
    probes: int | None = None,
    beam_width: int | None = None,
    threads: int = 0,
    mode: Mode | None = None,
    timeout: float | None = None,
    prune: float | None = None,
    in_flight: int | None = None,
) -> FoundMany:
    """Finds the ``k`` nearest vectors of each query in several indexes, merged by distance.

    Arguments are those of :meth:`Index.search`; ``timeout`` is for all indexes together. The indexes must agree in
    dim, element and metric.

    Raises:
        ValueError: no index, or indexes that do not agree (the message says in what).

    >>> import numpy as np, bathyal
    >>> line = np.arange(20, dtype=np.float32).reshape(20, 1)
    >>> even = bathyal.build(line[::2].copy(), "even.index")
    >>> odd = bathyal.build(line[1::2].copy(), "odd.index")
    >>> found = bathyal.search([even, odd], [7.0], k=3)
    >>> list(zip(found.indexes.tolist(), found.ids.tolist(), found.distances.tolist()))
    [(1, 3, 0.0), (0, 3, 1.0), (0, 4, 1.0)]
    """
    if not indexes:
        raise ValueError("no index to search; give at least one")
    request = asked(
        queries, k, recall, search_list, probes, beam_width, threads, mode, timeout, prune, in_flight
    )
    rows, single = request.rows(indexes[0].element)
    numbers, ids, distances, notes, costs = _bathyal.search_many(
        [index._handle for index in indexes], rows, request.arguments
    )
    if single:
        numbers, ids, distances = numbers[0], ids[0], distances[0]
    return FoundMany(numbers, ids, distances, Costs(costs), _warned(notes))


def build(
    data: Data,
    path: Path,
    metric: Metric = "l2",
    family: Family | None = None,
    *,
    threads: int = 0,
    seed: int | None = None,
    memory: int | str | None = None,
    overwrite: bool = False,
    store_as: StoreAs | None = None,
    calibration: Data | None = None,
    progress: bool | Receiver = True,
    **options: int | float | str | None,
) -> Index:
    """Builds an index over ``data`` in the new directory ``path``, and opens it.

    Nothing appears at ``path`` before the index is complete; an error or Ctrl-C leaves nothing behind.

    Args:
        data: the path of a file of vectors (see :func:`read_vectors`), or an array of ``vectors x dim``:
            float32, float16, uint8 or int8, C-contiguous. It is not copied by this call and must not be
            changed meanwhile.
        metric: ``"l2"``, ``"ip"`` (inner product) or ``"cosine"``.
        family: ``"cluster"`` (the default: near vectors share pages, codes in memory: few reads, quick to build),
            ``"graph"`` (Vamana, as in DiskANN), ``"spann"`` (posting lists with full vectors: hardly any memory),
            ``"flat"`` (all vectors are compared: exact, for small sets).
            :func:`families` lists all with their options.
        threads: 0 means all cores. One ``seed`` gives the same cluster index bit for bit; a graph
            needs one thread, too.
        seed: of everything random; None takes a fixed one.
        memory: budget of the build in bytes, or text such as ``"2GB"``; None means no limit. It counts what the
            library takes with 24 MB for the library itself, but neither Python nor an array that is ``data``.
        overwrite: replace an index that is already there.
        store_as: ``"f16"`` or ``"i8"`` stores vectors of float32 in half or a quarter of the bytes. Queries stay
            float32, and so do distances in the units of ``data``; recall is calibrated by ``data`` as it is.
            :attr:`Index.stored` says what that loses. None stores vectors as they are given.
        calibration: queries like those to come, to measure recall with; None holds out vectors of ``data``.
        progress: True draws a bar if stderr is a terminal, False shows nothing, a callable is called with
            ``(stage, done, total)``.
        options: what only the family is told, by name; None is the same as leaving it out. ``cluster``:
            ``group_vectors``, ``code_bytes``, ``code_kind``. ``graph``: ``layout``, ``max_degree``,
            ``search_list``, ``alpha``, ``code_bytes``, ``code_kind``. ``spann``: ``layout``, ``centroid_share``,
            ``replicas``, ``list_limit``, ``alpha``, ``code_bytes``, ``code_kind``. An option of another family is
            refused.

    Raises:
        FileNotFoundError, PermissionError, OSError: ``data`` cannot be read or ``path`` cannot be written.
        FileExistsError: something is at ``path`` and ``overwrite`` is False.
        MemoryError: ``memory`` is too small; the message says how much is needed.
        ValueError: bad parameters, NaN or infinity, zero vectors under cosine (rows are named).

    >>> import numpy as np, bathyal
    >>> vectors = np.random.default_rng(1).standard_normal((300, 10), dtype=np.float32)
    >>> index = bathyal.build(vectors, "cosine.index", metric="cosine", family="graph", max_degree=16)
    >>> index.build_report["vectors"], index.build_report["element"]
    (300, 'f32')
    >>> bathyal.build(vectors, "cosine.index")
    Traceback (most recent call last):
    FileExistsError: ...
    """
    refuse_renamed("build", options)
    budget = memory_bytes(memory)
    with shown(progress) as receiver:
        report = _bathyal.build(
            source(data),
            path,
            {
                "metric": metric,
                "family": family,
                "options": json.dumps(family_options(options)),
                "threads": whole("threads", threads, most=4096),
                "seed": None if seed is None else whole("seed", seed),
                "memory": budget,
                "overwrite": bool(overwrite),
                "store_as": store_as,
                "calibration": None if calibration is None else source(calibration),
            },
            receiver,
        )
    return Index(_bathyal.IndexHandle.open(path, "file", budget, None, None), path, json.loads(report))


def families() -> dict[str, dict[str, Any]]:
    """The index families: what each is (``about``), the ``options`` of a build with what they do, and the
    ``counters`` that its searches have besides those of all.

    >>> import bathyal
    >>> list(bathyal.families()["cluster"]["options"])
    ['group_vectors', 'code_bytes', 'code_kind']
    >>> list(bathyal.families()["spann"]["counters"])
    ['lists', 'small_reads']
    """
    listed: list[dict[str, Any]] = json.loads(_bathyal.list_families())
    return {
        family["name"]: {
            "about": family["about"],
            "options": {option["name"]: option["help"] for option in family["options"]},
            "counters": {counter["name"]: counter["help"] for counter in family["counters"]},
        }
        for family in listed
    }


def open(
    path: Path,
    tier: Tier = "file",
    memory: int | str | None = None,
    progress: bool | Receiver = True,
    delay: str | None = None,
) -> Index:
    """Opens the index in the directory ``path``.

    Args:
        tier: ``"file"`` reads vectors and links from their file, past the page cache; ``"dram"`` loads it now;
            ``"mapped"`` loads it into huge pages, ``"mapped:node=1"`` into the memory of a NUMA node (CXL memory is
            one), ``"mapped:/dev/dax0.0"`` or ``"mapped:/mnt/pmem"`` into a DAX device or a file of a DAX file
            system, where the next process finds it loaded. Mapped memory other than ``"mapped"`` does not count
            towards ``memory``.
        memory: most bytes of memory that the index may hold, with the searches that run in it, or text such as
            ``"1GB"``; None means no limit. It does not count Python and the library themselves, the arrays of
            queries and of answers, and mapped memory other than ``"mapped"``.
        progress: of loading into mapped memory: True draws a bar if stderr is a terminal, False shows nothing, a
            callable is called with ``(stage, done, total)``.
        delay: a device to emulate on top of the tier: ``"cxl"``, ``"nvm"``, ``"rdma"``, ``"ssd"``, or the path of
            a JSON file with its profile. What is measured then is emulated, and the index's text says so.

    Raises:
        FileNotFoundError: nothing is at ``path``.
        ValueError: no such tier, no such device.
        Error: what is there is no index, or one of a later version.
        DamagedIndexError: a file that is loaded now does not match its checksum.
        MemoryError: ``memory`` is too small; the message says how much is needed.
        ValueError: ``tier`` names memory that is not there, is too small or holds something else.

    >>> import numpy as np, bathyal
    >>> vectors = np.eye(8, dtype=np.float32)
    >>> bathyal.build(vectors, "tiny.index").close()
    >>> with bathyal.open("tiny.index", tier="dram", memory="100MB") as index:
    ...     index
    <bathyal.Index 'tiny.index': 8 x 8 f32, l2>
    """
    with shown(progress) as receiver:
        handle = _bathyal.IndexHandle.open(path, tier, memory_bytes(memory), receiver, delay)
        return Index(handle, path, emulated=delay)


def verify(path: Path, progress: bool | Receiver = True) -> dict[str, Any]:
    """Checks every byte of an index against its checksums, and every link of a graph or place of a group.

    Returns a dictionary: ``sound`` (bool), ``fault_count``, ``faults`` (the first, in words), ``vectors``,
    ``links``, ``bytes``, ``unlinked``.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "sound.index").close()
    >>> bathyal.verify("sound.index")["sound"]
    True
    """
    with shown(progress) as receiver:
        report: dict[str, Any] = json.loads(_bathyal.verify(path, receiver))
    return report


def inspect(path: Path, progress: bool | Receiver = True) -> dict[str, Any]:
    """Describes an index: ``manifest``, ``index_bytes``, ``data_bytes``, ``amplification``, ``groups`` or
    ``degree_histogram``, and more.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "described.index").close()
    >>> bathyal.inspect("described.index")["data_bytes"]
    256
    """
    with shown(progress) as receiver:
        report: dict[str, Any] = json.loads(_bathyal.inspect(path, receiver))
    return report


def convert_layout(
    index: Path,
    output: Path,
    layout: Literal["padded", "csr"],
    threads: int = 0,
    progress: bool | Receiver = True,
) -> dict[str, Any]:
    """Copies a graph index to another layout: the same links, codes and calibration, not a rebuild.

    ``"csr"`` is the smallest, for memory; ``"padded"`` suits disks. ``page_local`` has no links of single vectors,
    so it is neither read nor written here. Returns a dictionary: ``from``, ``to``, ``vectors``, ``links``,
    ``index_bytes``, ``index_bytes_before``, ``amplification``.

    Raises:
        FileExistsError: something is at ``output``.
        ValueError: the index is no graph, or has that layout already.

    >>> import numpy as np, bathyal
    >>> rows = np.random.default_rng(1).standard_normal((300, 10), dtype=np.float32)
    >>> bathyal.build(rows, "disk.index", family="graph", max_degree=16).close()
    >>> report = bathyal.convert_layout("disk.index", "memory.index", layout="csr")
    >>> report["to"], report["index_bytes"] < report["index_bytes_before"]
    ('csr', True)
    """
    with shown(progress) as receiver:
        count = whole("threads", threads)
        report: dict[str, Any] = json.loads(_bathyal.convert_layout(index, output, layout, count, receiver))
    return report
