"""The overall ratio, by the rule of ``bathyal search``, from ids and vectors: systems need not report
distances.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.datasets import DataSet, read_vectors
from bathyal_bench.recall import read_groundtruth

# Queries per step, whose neighbours take some megabytes.
QUERIES_AT_ONCE = 256
# Squared distances of unit vectors below this count as 0; `bathyal search` treats cosine distances below half
# of it as 0.
UNIT_RESOLUTION = 2.0**-19


def overall_ratio(found: NDArray[Any], ids: NDArray[Any], data: DataSet, k: int) -> dict[str, Any]:
    """Returns ``ratio``, ``ratio_p99`` and ``ratio_left_out`` of a record.

    ``found`` is ``queries x k``, with -1 for missing results; ``ids`` are the exact neighbours, ``queries x
    k`` or more, nearest first. Distances are Euclidean and computed here from the vectors in 64 bits, under
    cosine from unit vectors. A query with fewer than k results, or with a true distance of 0 where the found
    one is larger, is left out. All are None under ip, which is no distance.
    """
    if data.metric == "ip":
        return {"ratio": None, "ratio_p99": None, "ratio_left_out": None}
    # These mappings end on return, so that the vectors do not count as memory of the measured system.
    base, queries = data.vectors(), read_vectors(data.queries)
    ratios = []
    for first in range(0, len(found), QUERIES_AT_ONCE):
        rows = slice(first, min(first + QUERIES_AT_ONCE, len(found)))
        distances, exact = (
            lengths_of(base, some[rows, :k], queries[rows], data.metric) for some in (found, ids)
        )
        ratios.append(of_queries(np.sort(distances, axis=1), np.sort(exact, axis=1), k))
    each = np.concatenate(ratios)
    known = each[np.isfinite(each)]
    if not len(known):
        return {"ratio": None, "ratio_p99": None, "ratio_left_out": len(each)}
    p99 = float(np.percentile(known, 99, method="inverted_cdf"))
    return {"ratio": float(known.mean()), "ratio_p99": p99, "ratio_left_out": len(each) - len(known)}


def true_lengths(data: DataSet, queries: int, k: int) -> NDArray[np.float64]:
    """Returns ascending Euclidean distances of the exact neighbours of the first queries (``queries x k``),
    by which programs that return no ids compute ratios.
    """
    base, query_vectors = data.vectors(), read_vectors(data.queries)
    ids = read_groundtruth(data.groundtruth)[0][:queries, :k].astype(np.int64)
    parts = []
    for first in range(0, len(ids), QUERIES_AT_ONCE):
        rows = slice(first, min(first + QUERIES_AT_ONCE, len(ids)))
        parts.append(lengths(base[ids[rows]], query_vectors[rows], data.metric))
    return np.sort(np.concatenate(parts), axis=1)


def lengths_of(
    base: NDArray[Any], ids: NDArray[Any], queries: NDArray[Any], metric: str
) -> NDArray[np.float64]:
    """Returns the distances to rows of ``base``; NaN if an id is missing or repeated."""
    numbers = np.asarray(ids, np.int64)
    missing = (numbers < 0) | (numbers >= len(base))
    for row, own in enumerate(numbers):
        missing[row, np.setdiff1d(np.arange(len(own)), np.unique(own, return_index=True)[1])] = True
    distances = lengths(base[np.where(missing, 0, numbers)], queries, metric)
    distances[missing] = math.nan
    return distances


def lengths(neighbours: NDArray[Any], queries: NDArray[Any], metric: str) -> NDArray[np.float64]:
    """Euclidean distances (``queries x k``) of ``queries x k x dim`` vectors to ``queries x dim``."""
    near, target = np.asarray(neighbours, np.float64), np.asarray(queries, np.float64)[:, None, :]
    if metric == "cosine":
        near, target = (one / np.linalg.norm(one, axis=2, keepdims=True) for one in (near, target))
    squares = np.square(near - target).sum(axis=2)
    if metric == "cosine":
        squares[squares < UNIT_RESOLUTION] = 0
    return np.sqrt(squares)


def of_queries(found: NDArray[np.float64], exact: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Returns the ratio of each query from its ascending distances; not finite for a query without a ratio.

    >>> found, exact = [[1.0, 5.0], [0.0, 2.0], [1.0, 2.0]], [[1.0, 2.0], [0.0, 2.0], [0.0, 2.0]]
    >>> of_queries(np.array(found), np.array(exact), 2)
    array([1.75, 1.  ,  inf])
    """
    if found.shape[1] < k:
        return np.full(len(found), math.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where((found == 0) & (exact == 0), 1.0, np.maximum(found / exact, 1.0))
    ratios: NDArray[np.float64] = terms.mean(axis=1)
    return ratios
