"""Opening an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bathyal import _bathyal
from bathyal.arguments import Path, folders, memory_bytes, place, store_pairs
from bathyal.index import Index
from bathyal.progress import Receiver, shown

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
) -> Index:
    """Opens the index in the directory ``path``, or at an address in an object store: ``"s3://bucket/my.index"``,
    ``"gs://..."``, ``"az://..."``, or ``"memory://..."``, a store that is gone with the process; or in the memory
    of a node (``bathyal memory-node``): ``"remote://host:port/my.index"``, or of several:
    ``"remote://host1:port1,host2:port2/my.index"``. An address is a str.

    Args:
        tier: ``"file"`` reads vectors and links from their file, past the page cache; ``"dram"`` loads it now;
            ``"mapped"`` loads it into huge pages, ``"mapped:node=1"`` into the memory of a NUMA node (CXL memory is
            one), ``"mapped:/dev/dax0.0"`` or ``"mapped:/mnt/pmem"`` into a DAX device or a file of a DAX file
            system, where the next process finds it loaded. Mapped memory other than ``"mapped"`` does not count
            towards ``memory``. ``"gpu"`` copies it to the memory of the card that ``device`` names, where it is
            searched without a read; distances of floats may then differ in their last bits.
        memory: most bytes of memory that the index may hold, with the searches that run in it, or text such as
            ``"1GB"``; None means no limit. It does not count Python and the library themselves, the arrays of
            queries and of answers, and mapped memory other than ``"mapped"``.
        progress: of loading into mapped memory: True draws a bar if stderr is a terminal, False shows nothing, a
            callable is called with ``(stage, done, total)``.
        delay: a device to emulate on top of the tier: ``"cxl"``, ``"nvm"``, ``"rdma"``, ``"connectx6"``, ``"ssd"``,
            or the path of a JSON file with its profile. What is measured then is emulated, and the index's text
            says so.
        profile: the file that ``bathyal probe --output`` wrote of the device that the index lies on: efforts, reads
            and queries in flight follow what was measured. None means no more than the tier knows of itself.
        stripe: folders in which the parts of a striped index are, where they were moved, in any order. Parts that
            are in none of them are looked for where they were put.
        numa: on a machine of several NUMA nodes: ``"off"`` leaves threads and memory to the system;
            ``"interleave"`` keeps each search thread to a node and deals what the index keeps in memory out to all
            nodes; ``"copy"`` keeps a copy of that on each node, and all copies count towards ``memory``. None
            interleaves as far as the system lets.
        device: what searches: ``"cpu"``, ``"gpu"``, or ``"gpu:1"`` for the card of that number. A graphics card (of
            NVIDIA, with its driver) searches a ``cluster`` index or a graph. The codes lie in its own memory,
            beside ``memory``; the answers are the same. ``"gpu,cpu"`` (and ``"gpu:1,cpu"``) has this processor go
            on where there is no card, where the index does not suit it, and where it fails in a search, whose
            queries are then searched again: a :class:`SearchWarning` and ``card_trouble`` in :meth:`Index.stats`
            say so.
        mini_batch: queries that a launch on a graphics card waits for, or for all that are under way (GustANN,
            section 4.1.3). None waits for none: a query goes on when its own page is there.
        wait: whether to wait until all is there that an index in an object store keeps in memory. False answers
            before, and reads what queries need of it: :attr:`Index.arrival` says how much has come.
        store_options: how the object store of an address is reached, where the environment and profiles do not say
            it: keys as environment variables name them (``region``, ``endpoint``, ``access_key_id``,
            ``secret_access_key``, ...), and ``profile`` (of ``~/.aws``), ``max_requests`` (in flight, 256),
            ``hedge`` (``"off"`` sends no late request a second time), ``scratch`` (the folder in which an index
            lies while it is built), ``emulate`` (``"paper"``, ``"s3"``, ``"s3-express"``, ``"rack"``: makes the
            store slower). Of a memory node: ``keys`` (the file that it wrote for its peers), or ``token`` and
            ``peer_key``, ``transport`` (``"auto"``, ``"tcp"``, ``"shm"``, ``"verbs"``), ``doorbell``, ``timeout``
            and ``wait`` (seconds), and ``scratch``. Keys and values are text.

    Raises:
        FileNotFoundError: nothing is at ``path``, or a part is missing: its disk is named.
        OSError: a store refused or did not answer; the message says what it said. There is no driver for a
            graphics card, or no such card, or it fails, then or in a search.
        ValueError: no such tier, no such device; ``mini_batch`` without a graphics card, or ``tier="gpu"``;
            ``profile`` is no profile; no graphics card searches the index.
        Error: what is there is no index, or one of a later version.
        DamagedIndexError: a file that is loaded now does not match its checksum; a part is not what it should be.
        MemoryError: ``memory``, or that of the graphics card, is too small; the message says how much is
            needed.
        ValueError: an address or options that no store is reached by.
        ValueError: ``tier`` names memory that is not there, is too small or holds something else; no such ``numa``,
            or the system does not let it.

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
    with shown(progress) as receiver:
        handle = _bathyal.IndexHandle.open(
            at, (tier, numa, bool(wait), (device, mini_batch)), budget, receiver, delay, profile
        )
        return Index(handle, path, options)
