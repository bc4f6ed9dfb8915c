"""Indexes in object stores: what is there, copies from place to place, and removal of what is left over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bathyal import _bathyal
from bathyal.arguments import Path, place, store_pairs, whole
from bathyal.progress import Receiver, shown


def copy(
    source: Path,
    target: Path,
    *,
    overwrite: bool = False,
    store_options: Mapping[str, str] | None = None,
    from_store_options: Mapping[str, str] | None = None,
    progress: bool | Receiver = True,
) -> dict[str, int]:
    """Copies an index from any place to any other: a folder of this machine, or an address in an object store.

    Every file is the same byte for byte, and is compared with the checksums of the index on its way. Nothing
    appears at ``target`` before all is complete; a copy that was killed goes on where it was when it is called
    again.

    Args:
        overwrite: replace an index that is already at ``target``. Who reads it goes on with the old one.
        store_options: how the object store of ``target`` is reached, as :func:`open` takes it.
        from_store_options: how that of ``source`` is reached.
        progress: as :func:`build` takes it.

    Returns a dictionary: ``vectors``, ``index_bytes``.

    Raises:
        FileExistsError: something is at ``target`` and ``overwrite`` is False.
        FileNotFoundError: nothing is at ``source``.
        DamagedIndexError: a file of ``source`` does not match its checksum.
        OSError: the disk is full; a store refused or did not answer.
        ValueError: an index that was changed and not compacted (:func:`compact`); an address or options that no
            store is reached by.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "here.index").close()
    >>> bathyal.copy("here.index", "memory://there.index")["vectors"]
    8
    >>> bathyal.open("memory://there.index").search([1, 0, 0, 0, 0, 0, 0, 0], k=1).ids.tolist()
    [0]
    """
    with shown(progress) as receiver:
        read = (place(source), store_pairs(from_store_options, "from_store_options"))
        written = (place(target), store_pairs(store_options))
        text = _bathyal.copy(read, written, bool(overwrite), receiver)
    report: dict[str, int] = json.loads(text)
    return report


def listing(where: Path = ".", *, store_options: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The indexes and collections directly in a folder, a bucket, a folder of a bucket, or a memory node.

    Args:
        where: a folder of this machine, or an address, such as ``s3://bucket`` or ``s3://bucket/folder``.
        store_options: how the store is reached, as :func:`open` takes it.

    Returns a list of dictionaries, in the order of names: ``name``; ``path``, what :func:`open` takes; ``kind``. An
    ``index`` has ``family``, ``vectors``, ``dim``, ``element``, ``metric`` and ``index_bytes``, too. A
    ``collection`` has nothing more. Of what is ``unreadable``, ``reason`` says why.

    Raises:
        OSError: the folder cannot be read (``FileNotFoundError``: it is not there), the store refused or did not
            answer.
        ValueError: ``where`` is an index or a collection itself; an address or options that no store is reached by.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "memory://shelf/eight.index").close()
    >>> [(one["name"], one["kind"], one["vectors"]) for one in bathyal.listing("memory://shelf")]
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
    """Removes from an object store what of an index was replaced, deleted, or never finished.

    A store does not know who reads from it, so what was replaced stays for a while: those who opened it before that
    and did not open it again are told that it is gone (``OSError``).

    Args:
        index: an address.
        kept_hours: hours for which what was replaced, deleted or left unfinished stays.
        dry_run: say what would be removed, and remove nothing.
        store_options: how the store is reached, as :func:`open` takes it.

    Returns a dictionary: ``generations`` (that were replaced or deleted) and ``unfinished`` (uploads that were
    never published) that were removed, their ``objects`` and ``bytes``; ``kept``, those that are not old enough.

    Raises:
        FileNotFoundError: nothing was ever at ``index``.
        OSError: the store refused or did not answer.
        ValueError: a folder of this machine, where nothing is left over; an address or options that no store is
            reached by.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "memory://twice.index").close()
    >>> bathyal.build(np.eye(8, dtype=np.float32), "memory://twice.index", overwrite=True).close()
    >>> told = bathyal.prune("memory://twice.index")
    >>> told["generations"], told["kept"]
    (0, 1)
    """
    at = (place(index), store_pairs(store_options))
    report: dict[str, int] = json.loads(_bathyal.prune(at, whole("kept_hours", kept_hours), bool(dry_run)))
    return report
