"""Exact neighbours, and the quality of answers compared with them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bathyal import _bathyal
from bathyal.arguments import Data, Metric, whole
from bathyal.files import describe, read_vectors, source
from bathyal.ids import as_numbers
from bathyal.inputs import QUERIES, ArgumentLabel, is_path, rows
from bathyal.progress import Receiver, progress_receiver

BASE = ArgumentLabel("base", "vector")


def groundtruth(
    base: Any,
    queries: Any,
    metric: Metric = "l2",
    k: int = 100,
    threads: int = 0,
    progress: bool | Receiver = True,
    device: str = "cpu",
    *,
    key: str | None = None,
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Finds the exact ``k`` nearest vectors of ``base`` for each query, by computing every distance.

    Args:
        base: ``vectors x dim``, an array or the path of a file, as for :func:`bathyal.build`.
        queries: ``queries x dim`` or one query of ``dim``, converted to the element of ``base`` as
            :meth:`Index.search` converts queries; or the path of a file of the same element.
        metric: ``"l2"`` (squared), ``"ip"`` (negated) or ``"cosine"`` (one minus it).
        k: neighbours per query, at most the number of vectors.
        threads: 0 means all cores. The answer does not depend on it.
        device: the device that compares: ``"cpu"``, ``"gpu"``, or ``"gpu:1"`` for the graphics card of that
            number. The answer does not depend on it.
        key: the part of the HDF5 or Parquet file ``base`` to read, as for :func:`read_vectors`. For queries
            in such a file, pass the array that :func:`read_vectors` returns.

    Returns:
        ``(ids, distances)``, both ``queries x k`` (``k`` for a single query), nearest first; equal distances
        are in the order of ids.

    >>> import numpy as np, bathyal
    >>> base = np.array([[0], [10], [20], [30]], dtype=np.uint8)
    >>> ids, distances = bathyal.groundtruth(base, np.array([[12]], dtype=np.uint8), metric="l2", k=3)
    >>> ids.tolist(), distances.tolist()
    ([[1, 2, 0]], [[4.0, 64.0, 144.0]])
    """
    bits = metric == "hamming"
    from_base, k = source(base, BASE._replace(bits=bits), key), whole("k", k)
    element, _, dim = describe(from_base)
    single = False
    if is_path(queries):
        prepared: Data = source(queries, QUERIES)
        if describe(prepared)[0] != element:
            queries_of_file = QUERIES._replace(name=os.fspath(queries), holder="the base", bits=bits)
            prepared, _ = rows(read_vectors(queries), element, queries_of_file, dim)
    else:
        prepared, single = rows(queries, element, QUERIES._replace(holder="the base", bits=bits), dim)
        if not prepared.size:
            return np.empty((0, k), np.uint32), np.empty((0, k), np.float32)
        prepared = np.atleast_2d(prepared)
    with progress_receiver(progress) as receiver:
        ids, distances = _bathyal.groundtruth(
            from_base,
            prepared,
            metric,
            k,
            (whole("threads", threads, most=4096), device),
            receiver,
        )
    assert distances is not None
    return (ids[0], distances[0]) if single else (ids, distances)


def recall(
    ids: ArrayLike, truth: ArrayLike, true_distances: ArrayLike | None = None, k: int | None = None
) -> float:
    """Returns the mean share of the true neighbours of each query that were found.

    ``docs/guide/recall.md`` has the rule and its special cases. An id is missing if it is -1, or the largest
    unsigned number of 32 or 64 bits (None among text); missing ids count on neither side. A repeated id
    counts once. A query should find as many neighbours as ``truth`` names, but at most ``k``. A query for
    which ``truth`` names no neighbour is left out of the mean.

    Args:
        ids: ``queries x k`` ids that a search found: numbers, or text as in a collection.
        truth: ids of the exact neighbours, ``queries x k`` or more, nearest first.
        true_distances: the distances of ``truth``, as :func:`groundtruth` returns them. With distances, every
            id of ``truth`` that is as near as the ``k``-th counts as found; without them, only the first
            ``k`` count.
        k: number of ``ids`` per query that count, and of neighbours to find; None means all of ``ids``.

    Raises:
        ValueError: shapes that do not agree, ids below -1, or no query with a true neighbour.

    >>> import numpy as np, bathyal
    >>> bathyal.recall(np.array([[1, 2], [3, 4]]), np.array([[1, 9, 2], [4, 3, 5]]))
    0.75
    >>> bathyal.recall([[-1, -1]], [[3, -1]]), bathyal.recall([[3, 3]], [[3, -1]])
    (0.0, 1.0)
    """
    found, true = np.atleast_2d(ids), np.atleast_2d(truth)
    wanted = found.shape[1] if k is None else whole("k", k)
    if found.shape[0] != true.shape[0] or wanted > true.shape[1] or found.size == 0 or wanted == 0:
        raise ValueError(
            f"ids are {found.shape}, the truth is {true.shape}, k is {wanted}: expected as many rows, and a truth "
            "of k or more"
        )
    far = None if true_distances is None else np.atleast_2d(np.asarray(true_distances, np.float32))
    if far is not None and far.shape != true.shape:
        raise ValueError(
            f"the truth is {true.shape} at distances {far.shape}; expected a distance for each id"
        )
    numbers, true_numbers = as_numbers(found, true)
    mean: float | None = _bathyal.recall(numbers, true_numbers, far, wanted)
    if mean is None:
        raise ValueError(
            "the truth names no neighbour of any query (every id is missing), so there is no recall"
        )
    return mean


@dataclass(frozen=True)
class OverallRatio:
    """The overall ratio: how many times as far away the found neighbours are as the true ones; the best value
    is 1."""

    mean: float | None
    """The mean over the queries that have a ratio; None if none has."""
    p99: float | None
    """The 99th percentile over these queries, by nearest rank."""
    left_out: int
    """Queries without a ratio: they have fewer than ``k`` answers, or miss a true neighbour at distance 0."""


def overall_ratio(
    ids: NDArray[Any],
    distances: NDArray[Any],
    truth: NDArray[Any],
    true_distances: NDArray[Any] | None,
    metric: Metric = "l2",
) -> OverallRatio:
    """Returns the overall ratio: how far away the found neighbours are, where :func:`recall` only counts the
    missed ones.

    The ratio of a query is the mean over i of the distance of the i-th found neighbour divided by that of the
    i-th true neighbour (Nakanishi et al., EDBT 2023, section 3.2). Its distances are Euclidean: under l2 the
    square roots of Bathyal's, and under cosine those between vectors scaled to length 1. A term below 1
    counts as 1. If ``truth`` has an id, its distance in ``true_distances`` counts, because the distance of a
    search is rounded.

    Args:
        ids: ``queries x k`` ids that a search found; a query with a missing (-1) or repeated id is left out.
        distances: their distances, as a search returns them (squared for l2).
        truth: ids of the exact neighbours, ``queries x k`` or more, nearest first.
        true_distances: their distances, as :func:`groundtruth` returns them (squared for l2).
        metric: ``"l2"`` or ``"cosine"``; an inner product is not a distance.

    >>> import numpy as np, bathyal
    >>> truth, exact = np.array([[0, 1, 2]]), np.array([[1.0, 4.0, 9.0]])
    >>> bathyal.overall_ratio(np.array([[0, 2]]), np.array([[1.0, 9.0]]), truth, exact, metric="l2")
    OverallRatio(mean=1.25, p99=1.25, left_out=0)
    """
    if true_distances is None:
        raise ValueError(
            "the truth has no distances, from which the ratio is computed; give those of `groundtruth`"
        )
    ids, truth = np.atleast_2d(ids), np.atleast_2d(truth)
    distances, exact = (np.atleast_2d(one).astype(np.float32) for one in (distances, true_distances))
    fits = ids.shape == distances.shape and truth.shape == exact.shape
    if not fits or ids.shape[0] != truth.shape[0] or ids.shape[1] > truth.shape[1] or ids.size == 0:
        raise ValueError(
            f"ids are {ids.shape} at distances {distances.shape}, the truth is {truth.shape} at {exact.shape}: "
            "expected as many rows, k or more, and a distance for each id"
        )
    numbers, true_numbers = as_numbers(ids, truth)
    ratio = _bathyal.overall_ratio(numbers, distances, true_numbers, exact, metric)
    if ratio is None:
        raise ValueError(
            f"metric is {metric!r}, under which there is no ratio: an inner product is no distance"
        )
    return OverallRatio(*ratio)
