"""Verifying and describing an index without opening it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bathyal import _bathyal
from bathyal.arguments import Path, folders, place, store_pairs
from bathyal.progress import Receiver, progress_receiver


def verify(
    path: Path,
    progress: bool | Receiver = True,
    stripe: Sequence[Path] | None = None,
    *,
    store_options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Checks every byte of an index against its checksums, and every link of a graph or place of a group.

    ``stripe`` names the folders to which the parts of a striped index were moved. ``store_options`` are the
    options of the store of an address, as for :func:`open`; the whole index is read from it once.

    Returns a dictionary: ``sound`` (bool), ``fault_count``, ``faults`` (the first, in words), ``vectors``,
    ``links``, ``bytes``, ``unlinked``. ``encoded_keys`` is present only if an index in a bucket has keys that
    an earlier version encoded, and which differ from its address; it is the address of these keys. This is
    not a fault.

    Raises:
        FileNotFoundError: nothing is at ``path``, or a part is missing.
        OSError: a file cannot be read; a store refused a request or did not answer.
        ValueError: an invalid address, or invalid options of a store.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "sound.index").close()
    >>> bathyal.verify("sound.index")["sound"]
    True
    """
    with progress_receiver(progress) as receiver:
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
    ``degree_histogram``, and more; for a striped index also ``parts``: the ``file``, number, path and
    ``bytes`` of each.

    ``stripe`` names the folders to which the parts of a striped index were moved. ``store_options`` are the
    options of the store of an address, as for :func:`open`.

    Raises:
        FileNotFoundError: nothing is at ``path``, or a part is missing.
        DamagedIndexError: a record cannot be read; :func:`verify` reports more.
        OSError: a file cannot be read; a store refused a request or did not answer.
        ValueError: an invalid address, or invalid options of a store.

    >>> import numpy as np, bathyal
    >>> bathyal.build(np.eye(8, dtype=np.float32), "described.index").close()
    >>> bathyal.inspect("described.index")["data_bytes"]
    256
    """
    with progress_receiver(progress) as receiver:
        at = (place(path), folders(stripe), store_pairs(store_options))
        report: dict[str, Any] = json.loads(_bathyal.inspect(at, receiver))
    return report
