"""Indexes and collections in stores: listing, copying, and removal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bathyal import _bathyal
from bathyal.arguments import Path, place, store_pairs, whole
from bathyal.progress import Receiver, progress_receiver


def copy(
    source: Path,
    target: Path,
    *,
    overwrite: bool = False,
    store_options: Mapping[str, str] | None = None,
    from_store_options: Mapping[str, str] | None = None,
    progress: bool | Receiver = True,
) -> dict[str, int]:
    """Copies an index between any two places: a folder on this machine, or an address.

    Every file is copied byte for byte and compared with the checksums of the index. The copy appears at
    ``target`` only when it is complete; after a kill, the same call continues it.

    Args:
        overwrite: replace an index that is already at ``target``. Processes that have opened it continue with
            the old one.
        store_options: options of the store of ``target``, as for :func:`open`.
        from_store_options: options of the store of ``source``.
        progress: as :func:`build` takes it.

    Returns a dictionary: ``vectors``, ``index_bytes``.

    Raises:
        FileExistsError: ``target`` exists and ``overwrite`` is False.
        FileNotFoundError: nothing is at ``source``.
        DamagedIndexError: a file of ``source`` does not match its checksum.
        OSError: the disk is full; a store refused a request or did not answer.
        ValueError: an index with changes that were not compacted (:func:`compact`); an invalid address, or
            invalid options of a store.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "here.index").close()
    >>> bathyal.copy("here.index", "memory://there.index")["vectors"]
    8
    >>> bathyal.open("memory://there.index").search([1, 0, 0, 0, 0, 0, 0, 0], k=1).ids.tolist()
    [0]
    """
    with progress_receiver(progress) as receiver:
        read = (place(source), store_pairs(from_store_options, "from_store_options"))
        written = (place(target), store_pairs(store_options))
        text = _bathyal.copy(read, written, bool(overwrite), receiver)
    report: dict[str, int] = json.loads(text)
    return report


def listing(where: Path = ".", *, store_options: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Lists the indexes and collections directly in a folder, a bucket, a folder of a bucket, or a memory
    node.

    Args:
        where: a folder on this machine, or an address, such as ``s3://bucket`` or ``s3://bucket/folder``.
        store_options: options of the store, as for :func:`open`.

    Returns a list of dictionaries, in the order of names: ``name``; ``path``, which :func:`open` takes;
    ``kind``. The kind ``index`` also has ``family``, ``vectors``, ``dim``, ``element``, ``metric`` and
    ``index_bytes``; ``collection`` has nothing more; ``unreadable`` has the ``reason``.

    Raises:
        OSError: the folder cannot be read (``FileNotFoundError`` if it does not exist); the store refused a
            request or did not answer.
        ValueError: ``where`` is itself an index or a collection; an invalid address, or invalid options of a
            store.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "memory://indexes/eight.index").close()
    >>> [(one["name"], one["kind"], one["vectors"]) for one in bathyal.listing("memory://indexes")]
    [('eight.index', 'index', 8)]
    """
    found: list[dict[str, Any]] = json.loads(_bathyal.listing((place(where), store_pairs(store_options))))
    return found


def prune(
    index: Path,
    *,
    kept_hours: int = 168,
    dry_run: bool = False,
    store_options: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Removes leftovers of an index from an object store: replaced, deleted or unfinished parts.

    A store cannot tell which processes read from it, so leftovers stay for ``kept_hours``. Searches of a
    process that has had a replaced index open for longer fail with ``OSError``.

    Args:
        index: an address.
        kept_hours: hours for which replaced, deleted and unfinished parts stay.
        dry_run: report what would be removed, and remove nothing.
        store_options: options of the store, as for :func:`open`.

    Returns a dictionary: the numbers of removed ``generations`` (replaced or deleted) and ``unfinished``
    uploads (never published), their ``objects`` and ``bytes``; and ``kept``, the number of those that are
    not old enough.

    Raises:
        FileNotFoundError: there never was an index at ``index``.
        OSError: the store refused a request or did not answer.
        ValueError: a folder on this machine, which has no leftovers; an invalid address, or invalid options of a
            store.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "memory://twice.index").close()
    >>> bathyal.build(np.eye(8, dtype=np.float32), "memory://twice.index", overwrite=True).close()
    >>> report = bathyal.prune("memory://twice.index")
    >>> report["generations"], report["kept"]
    (0, 1)
    """
    at = (place(index), store_pairs(store_options))
    report: dict[str, int] = json.loads(_bathyal.prune(at, whole("kept_hours", kept_hours), bool(dry_run)))
    return report


def remove(path: Path, *, store_options: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Removes an index or a collection with everything that belongs to it: parts of striped files, logs, older
    versions, and what interrupted builds have left.

    Other files in its folder stay there. Indexes and collections that are open go on reading what they have
    open in local files, and in the memory of a node; in a bucket, their searches fail. If the call is killed,
    the index or the collection cannot be opened any more, unless all of it is still there, and the next call
    removes the rest.

    Args:
        path: a folder on this machine, or an address.
        store_options: options of the store, as for :func:`open`.

    Returns a dictionary: ``path``; ``kind``. The kind ``index`` also has ``family``, ``vectors`` and
    ``index_bytes``; ``collection`` has ``rows`` and ``bytes``, which are None if it was damaged; ``leftovers``
    was no index or collection any more, only the rest of one. ``others`` lists the files that stay, if there
    are any.

    Raises:
        FileNotFoundError: nothing is at ``path``.
        Error: something is at ``path`` that is neither an index nor a collection.
        DamagedIndexError: the manifest of an index cannot be read, so its files are not known.
        BlockingIOError: the index or the collection has a writer. In a bucket, only writers of this process are
            seen; the next write of another one fails.
        ValueError: an invalid address, or invalid options of a store.
        OSError: a file cannot be removed; the store refused a request or did not answer.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "memory://gone.index").close()
    >>> bathyal.remove("memory://gone.index")["vectors"]
    8
    """
    report: dict[str, Any] = json.loads(_bathyal.remove((place(path), store_pairs(store_options))))
    return report
