"""Exact neighbours, and recall against them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal import _bathyal
from bathyal.arguments import Data, Metric, whole
from bathyal.files import source
from bathyal.progress import Receiver, shown


def groundtruth(
    base: Data,
    queries: Data,
    metric: Metric = "l2",
    k: int = 100,
    threads: int = 0,
    progress: bool | Receiver = True,
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """The exact ``k`` nearest of ``base`` for each of ``queries``, by measuring every pair.

    Args:
        base: ``vectors x dim``, an array or the path of a file, as for :func:`bathyal.build`.
        queries: ``queries x dim`` of the same element.
        metric: ``"l2"`` (squared), ``"ip"`` (negated) or ``"cosine"`` (one minus it).
        k: neighbours of each query, at most the number of vectors.
        threads: 0 means all cores. The answer does not depend on it.

    Returns:
        ``(ids, distances)``, both ``queries x k``, nearest first, equal distances in order of id.

    >>> import numpy as np, bathyal
    >>> base = np.array([[0], [10], [20], [30]], dtype=np.uint8)
    >>> ids, distances = bathyal.groundtruth(base, np.array([[12]], dtype=np.uint8), metric="l2", k=3)
    >>> ids.tolist(), distances.tolist()
    ([[1, 2, 0]], [[4.0, 64.0, 144.0]])
    """
    with shown(progress) as receiver:
        ids, distances = _bathyal.groundtruth(
            source(base),
            source(queries),
            metric,
            whole("k", k),
            whole("threads", threads, most=4096),
            receiver,
        )
    assert distances is not None
    return ids, distances


def recall(ids: NDArray[Any], truth: NDArray[Any]) -> float:
    """Share of the true neighbours that were found: ``ids`` is ``queries x k``, ``truth`` ``queries x k`` or more.

    >>> import numpy as np, bathyal
    >>> bathyal.recall(np.array([[1, 2], [3, 4]]), np.array([[1, 9, 2], [4, 3, 5]]))
    0.75
    """
    ids, truth = np.atleast_2d(ids), np.atleast_2d(truth)
    if ids.shape[0] != truth.shape[0] or ids.shape[1] > truth.shape[1] or ids.size == 0:
        raise ValueError(
            f"ids are {ids.shape}, the truth is {truth.shape}: expected as many rows, and k or more"
        )
    rows = zip(ids, truth[:, : ids.shape[1]], strict=True)
    return float(np.mean([np.isin(true, found).mean() for found, true in rows]))
