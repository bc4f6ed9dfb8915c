"""Recall, by the rule of ``bathyal search``: every id as near as the k-th nearest is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_groundtruth(path: Path) -> tuple[NDArray[np.uint32], NDArray[np.float32] | None]:
    """Ids, and distances where the file holds them: both ``queries x k``, nearest first."""
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
    """Writes what :func:`read_groundtruth` reads."""
    with open(path, "wb") as file:
        np.array(ids.shape, "<u4").tofile(file)
        np.ascontiguousarray(ids, "<u4").tofile(file)
        np.ascontiguousarray(distances, "<f4").tofile(file)


def recall_at(found: NDArray[Any], ids: NDArray[Any], distances: NDArray[Any] | None, k: int) -> float:
    """Mean share of the ``k`` nearest among ``found`` (``queries x k``; -1 where nothing was found)."""
    exact = ids[: len(found)]
    if exact.shape[1] < k:
        raise ValueError(f"the ground truth holds {exact.shape[1]} neighbours a query, {k} are needed")
    hits = 0
    for row, answer in enumerate(found):
        right = k
        if distances is not None:
            # Which of several that are equally far come first is chance.
            right += int(np.count_nonzero(distances[row, k:] <= distances[row, k - 1]))
        hits += len(np.intersect1d(answer[:k], exact[row, :right]))
    return hits / (len(found) * k)
