"""Recall, by the rule of Bathyal (``docs/guide/recall.md``).

This is a second implementation, because programs of other systems run where Bathyal is not installed.
``testdata/recall.json`` has test cases for both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = (-1, 2**32 - 1, 2**64 - 1)
"""Numbers that stand for a missing id."""


def read_groundtruth(path: Path) -> tuple[NDArray[np.uint32], NDArray[np.float32] | None]:
    """Reads ids, and distances if the file has them: both ``queries x k``, nearest first."""
    words = np.fromfile(path, "<u4")
    if len(words) < 2:
        raise ValueError(f"{path}: too short for a header")
    count, width = int(words[0]), int(words[1])
    body = words[2:]
    if len(body) == 2 * count * width:
        half = count * width
        return body[:half].reshape(count, width), body[half:].view("<f4").reshape(count, width)
    if len(body) == count * width:
        return body.reshape(count, width), None
    raise ValueError(f"{path}: its length and its header disagree")


def write_groundtruth(path: Path, ids: NDArray[Any], distances: NDArray[Any]) -> None:
    """Writes the format that :func:`read_groundtruth` reads."""
    with open(path, "wb") as file:
        np.array(ids.shape, "<u4").tofile(file)
        np.ascontiguousarray(ids, "<u4").tofile(file)
        np.ascontiguousarray(distances, "<f4").tofile(file)


def recall_at(found: Any, ids: Any, distances: Any | None, k: int) -> float:
    """Returns the mean share of the ``k`` nearest in ``found``, which has a row of ids per query; the first
    ``k`` count.

    ``ids`` and ``distances`` are the exact neighbours, at least ``k`` for each of the queries of ``found`` or
    of more queries. A missing id is -1, or the largest unsigned number of 32 or 64 bits, on either side.
    Queries without a neighbour are left out; raises ValueError if all are.
    """
    if len(ids) < len(found):
        raise ValueError(f"the ground truth has {len(ids)} queries, but there are results of {len(found)}")
    if len(found) and len(ids[0]) < k:
        raise ValueError(f"the ground truth has {len(ids[0])} neighbours per query, but {k} are needed")
    shares = []
    for row, answer in enumerate(found):
        counted = recall_of_query(answer, ids[row], None if distances is None else distances[row], k)
        if counted is not None:
            shares.append(counted[0] / counted[1])
    if not shares:
        raise ValueError("no query has a true neighbour, so there is no recall")
    return float(np.mean(shares))


def recall_of_query(found: Any, ids: Any, distances: Any | None, k: int) -> tuple[int, int] | None:
    """Counts the correct ids in ``found`` and the neighbours to find; None if there are no neighbours.

    >>> recall_of_query([1, 3], [1, 2, 3, 4], None, 2)
    (1, 2)
    >>> recall_of_query([1, 3], [1, 2, 3, 4], [0.0, 1.0, 1.0, 2.0], 2)
    (2, 2)
    >>> recall_of_query([5, 5], [5, -1], None, 2), recall_of_query([-1, -1], [-1, -1], None, 2)
    ((1, 1), None)
    """
    places = {int(id): at for at, id in reversed(list(enumerate(ids))) if int(id) not in MISSING}
    right = sorted(places, key=lambda id: places[id])
    if not right[:k]:
        return None
    wanted = set(right[:k])
    if distances is not None:
        # Several equally distant neighbours count as equally correct.
        last = distances[places[right[:k][-1]]]
        wanted.update(id for id in right[k:] if distances[places[id]] <= last)
    return len(wanted & {int(id) for id in found[:k]}), len(right[:k])
