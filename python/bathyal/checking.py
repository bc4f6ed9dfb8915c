"""Checking an index and looking at it, without opening it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bathyal import _bathyal
from bathyal.arguments import Path, folders, place, store_pairs
from bathyal.progress import Receiver, shown


def verify(
    path: Path,
    progress: bool | Receiver = True,
    stripe: Sequence[Path] | None = None,
    *,
    store_options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Checks every byte of an index against its checksums, and every link of a graph or place of a group.

    ``stripe`` names the folders in which the parts of a striped index are, where they were moved.
    ``store_options`` say how the object store of an address is reached, as :func:`open` takes them; the whole index
    is read once from there.

    Returns a dictionary: ``sound`` (bool), ``fault_count``, ``faults`` (the first, in words), ``vectors``,
    ``links``, ``bytes``, ``unlinked``. ``encoded_keys`` is there only if the index lies in a bucket under keys
    that are not the names of its address, because an earlier version encoded them; it is the address of these
    keys, and no fault.

    Raises:
        FileNotFoundError: nothing is at ``path``, or a part is missing.
        OSError: a file cannot be read; a store refused or did not answer.
        ValueError: an address or options that no store is reached by.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "sound.index").close()
    >>> bathyal.verify("sound.index")["sound"]
    True
    """
    with shown(progress) as receiver:
        at = (place(path), folders(stripe), store_pairs(store_options))
        report: dict[str, Any] = json.loads(_bathyal.verify(at, receiver))
    return report


def inspect(
    path: Path,
    progress: bool | Receiver = True,
    stripe: Sequence[Path] | None = None,
    *,
    store_options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Describes an index: ``manifest``, ``index_bytes``, ``data_bytes``, ``amplification``, ``groups`` or
    ``degree_histogram``, and more; of a striped index ``parts``: which ``file``, its number, where, its ``bytes``.

    ``stripe`` names the folders in which the parts of a striped index are, where they were moved.
    ``store_options`` say how the object store of an address is reached, as :func:`open` takes them.

    Raises:
        FileNotFoundError: nothing is at ``path``, or a part is missing.
        DamagedIndexError: a record that cannot be read; :func:`verify` says more.
        OSError: a file cannot be read; a store refused or did not answer.
        ValueError: an address or options that no store is reached by.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "described.index").close()
    >>> bathyal.inspect("described.index")["data_bytes"]
    256
    """
    with shown(progress) as receiver:
        at = (place(path), folders(stripe), store_pairs(store_options))
        report: dict[str, Any] = json.loads(_bathyal.inspect(at, receiver))
    return report
