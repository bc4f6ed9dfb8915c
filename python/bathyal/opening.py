"""Opening an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bathyal import _bathyal
from bathyal.arguments import OnMiss, Path, audited, folders, memory_bytes, place, store_pairs
from bathyal.index import Index
from bathyal.progress import Receiver, progress_receiver

Tier = str


def open(
    path: Path,
    tier: Tier = "file",
    memory: float | str | None = None,
    progress: bool | Receiver = True,
    delay: str | None = None,
    profile: Path | None = None,
    stripe: Sequence[Path] | None = None,
    numa: str | None = None,
    *,
    device: str = "cpu",
    mini_batch: int | None = None,
    wait: bool = False,
    store_options: Mapping[str, str] | None = None,
    audit: float | None = None,
    on_miss: OnMiss = "note",
) -> Index:
    """Opens the index in the directory ``path``, or at an address in an object store: ``"s3://bucket/my.index"``,
    ``"gs://..."``, ``"az://..."``, or ``"memory://..."``, a store within the process; or in the memory of a
    node (``bathyal memory-node``): ``"remote://host:port/my.index"``, or of several:
    ``"remote://host1:port1,host2:port2/my.index"``. An address is a str.

    Args:
        tier: ``"file"`` reads vectors and links from their file without the page cache; ``"dram"`` loads the
            file into memory; ``"mapped"`` loads it into huge pages, ``"mapped:node=1"`` into the memory of a
            NUMA node (CXL memory is one), ``"mapped:/dev/dax0.0"`` or ``"mapped:/mnt/pmem"`` into a DAX
            device or a file of a DAX file system, where the next process finds it loaded already. Mapped
            memory other than ``"mapped"`` does not count towards ``memory``. ``"gpu"`` copies it to the
            memory of the card that ``device`` names, and searches it there without reads; distances of floats
            may then differ in their last bits.
        memory: most bytes of memory that the index and its searches may hold, or text such as ``"1GB"``; None
            means no limit. Outside this limit are Python and the library themselves, the arrays of queries
            and answers, and mapped memory other than ``"mapped"``.
        progress: of loading into mapped memory: True draws a bar if stderr is a terminal, False shows nothing, a
            callable is called with ``(stage, done, total)``.
        delay: a device to emulate on top of the tier: ``"cxl"``, ``"nvm"``, ``"rdma"``, ``"connectx6"``, ``"ssd"``,
            or the path of a JSON file with its profile. Measurements are then of the emulation, and the
            ``repr`` of the index names the device.
        profile: the profile of the index's device, a file that ``bathyal probe --output`` wrote: efforts,
            reads and queries in flight are chosen for it. None uses the built-in profile of the tier.
        stripe: folders to which the parts of a striped index were moved, in any order. Parts that are in none
            of them are looked for in their original folders.
        numa: placement on a machine with several NUMA nodes: ``"off"`` leaves threads and memory to the
            system; ``"interleave"`` binds each search thread to a node and interleaves the index's memory
            over all nodes; ``"copy"`` keeps a copy of that memory on each node, and all copies count towards
            ``memory``. None interleaves if the system allows it.
        device: the device that searches: ``"cpu"``, ``"gpu"``, or ``"gpu:1"`` for the card of that number. A
            graphics card (of NVIDIA, with its driver) searches a ``cluster`` index or a graph. The codes are
            in its own memory, which does not count towards ``memory``; the answers are the same. With
            ``"gpu,cpu"`` (or ``"gpu:1,cpu"``) the processor searches if there is no card, if the card cannot
            search the index, and if the card fails in a search, whose queries are then searched again; a
            :class:`SearchWarning` and ``card_trouble`` in :meth:`Index.stats` report it.
        mini_batch: queries that a launch on a graphics card waits for, or all queries in flight if they are
            fewer (GustANN, section 4.1.3). With None, a query continues when its own page has arrived.
        wait: True waits until everything that an index in an object store keeps in memory has arrived. False
            answers earlier, and reads what queries need of it; :attr:`Index.arrival` reports how much has
            arrived.
        store_options: options of the store of an address, in addition to environment variables and profiles:
            keys as environment variables name them (``region``, ``endpoint``, ``access_key_id``,
            ``secret_access_key``, ...), and ``profile`` (of ``~/.aws``), ``max_requests`` (in flight, 256),
            ``hedge`` (``"off"`` never sends a late request a second time), ``scratch`` (the folder in which
            an index is built), ``emulate`` (``"paper"``, ``"s3"``, ``"s3-express"``, ``"rack"``: makes the
            store slower). For a memory node: ``keys`` (the file ``client.json`` that it wrote), or ``token``
            and ``peer_key``, ``transport`` (``"auto"``, ``"tcp"``, ``"shm"``, ``"verbs"``), ``doorbell``,
            ``timeout`` and ``wait`` (seconds), and ``scratch``. Keys and values are text.
        audit: share of the queries that a background thread answers exactly, too, such as 0.001, in at most 5% of
            its time; :meth:`Index.stats` then has the recall that searches find.
        on_miss: ``"note"`` adds a note if searches find too little; ``"raise_effort"`` also raises their effort.

    Raises:
        FileNotFoundError: nothing is at ``path``, or a part is missing: its disk is named.
        OSError: a store refused a request or did not answer; the message has its reason. There is no driver
            for a graphics card, or no such card, or the card fails, now or in a search.
        ValueError: an unknown tier or device; ``mini_batch`` or ``tier="gpu"`` without a graphics card;
            ``profile`` is not a profile; the index cannot be searched on a graphics card.
        Error: ``path`` holds something else than an index, or an index of a later version.
        DamagedIndexError: a file that is loaded does not match its checksum, or a part is another index's.
        MemoryError: ``memory``, or that of the graphics card, is too small; the message says what is needed.
        ValueError: an invalid address, store option, ``numa`` or ``audit``; memory of ``tier`` that cannot be used.

    >>> import numpy as np, bathyal
    >>> vectors = np.eye(8, dtype=np.float32)
    >>> bathyal.build(vectors, "tiny.index").close()
    >>> with bathyal.open("tiny.index", tier="dram", memory="100MB") as index:
    ...     index
    <bathyal.Index 'tiny.index': 8 x 8 f32, l2>
    >>> bathyal.build(vectors, "memory://tiny.index").close()
    >>> bathyal.open("memory://tiny.index", store_options={"max_requests": "8"})
    <bathyal.Index 'memory://tiny.index': 8 x 8 f32, l2>
    """
    budget, at = memory_bytes(memory), (place(path), folders(stripe), store_pairs(store_options))
    options: dict[str, Any] = dict(tier=tier, memory=budget, delay=delay, profile=profile, stripe=stripe)
    options |= dict(numa=numa, device=device, mini_batch=mini_batch, wait=wait, store_options=store_options)
    options |= dict(audit=audit, on_miss=on_miss)
    emulated, watched = (delay, profile), audited(audit, on_miss)
    with progress_receiver(progress) as receiver:
        handle = _bathyal.IndexHandle.open(
            at, (tier, numa, bool(wait), (device, mini_batch)), budget, receiver, emulated, watched
        )
        return Index(handle, path, options)
