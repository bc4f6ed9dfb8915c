"""Ids of neighbours as numbers of 32 bits, of which the largest stands for a missing one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_ID = 2**32 - 1
"""The largest id that 32 bits hold, which no vector has: rows are counted from 0. It stands for a missing id."""
MOST_WIDE_ID = 2**64 - 1
"""The same of 64 bits."""


def whole_ids(ids: NDArray[Any], name: str) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Whole numbers as ids without a sign, and which of them are missing.

    Raises:
        ValueError: ids below -1.
    """
    negative = ids < 0
    if (ids[negative] != -1).any():
        raise ValueError(
            f"{name}: {ids[negative].min()} is no id; expected 0 or more, or -1 for a missing one"
        )
    plain = np.where(negative, 0, ids).astype(np.uint64)
    return plain, negative | (plain == MOST_ID) | (plain == MOST_WIDE_ID)


def narrow_ids(ids: NDArray[Any], name: str) -> NDArray[np.uint32]:
    """Whole numbers as ids of files, which have 32 bits; a missing one is the largest.

    Raises:
        ValueError: ids below -1, or beyond 32 bits.
    """
    plain, missing = whole_ids(ids, name)
    largest = int(plain[~missing].max(initial=0))
    if largest > MOST_ID:
        raise ValueError(
            f"{name}: {largest} is no id of 32 bits; expected from 0 to {MOST_ID - 1}, or -1 for a missing one"
        )
    return np.where(missing, MOST_ID, plain).astype(np.uint32)


def numbered(ids: NDArray[Any], truth: NDArray[Any]) -> list[NDArray[np.uint32]]:
    """Both with a number of 32 bits for each id that occurs."""
    both = [_narrow(one, name) for one, name in ((ids, "ids"), (truth, "truth"))]
    if all(one.dtype.kind in "iu" for one in both):
        (left, left_missing), (right, right_missing) = (
            whole_ids(one, name) for one, name in zip(both, ("ids", "truth"), strict=True)
        )
        if max(left[~left_missing].max(initial=0), right[~right_missing].max(initial=0)) > MOST_ID:
            # Ids of a collection: what counts is which of them are the same.
            together = np.unique(np.concatenate([left.ravel(), right.ravel()]), return_inverse=True)[1]
            numbers = together.ravel().astype(np.uint64)
            left, right = numbers[: left.size].reshape(left.shape), numbers[left.size :].reshape(right.shape)
        pairs = ((left, left_missing), (right, right_missing))
        return [np.where(missing, MOST_ID, one).astype(np.uint32) for one, missing in pairs]
    if any(one.dtype.kind in "iu" for one in both):
        raise ValueError(
            f"ids hold {both[0].dtype} and the truth {both[1].dtype}: expected numbers in both, or text"
        )
    known: dict[Any, int] = {None: MOST_ID, -1: MOST_ID}
    told = [[known.setdefault(id, len(known)) for id in one.ravel().tolist()] for one in both]
    return [np.array(row, np.uint32).reshape(one.shape) for row, one in zip(told, both, strict=True)]


def _narrow(ids: NDArray[Any], name: str) -> NDArray[Any]:
    """Ids as whole numbers where they are some, or as what text is in."""
    if ids.dtype.kind == "O":
        plain = np.array(ids.tolist())
        ids = plain if plain.dtype.kind in "iu" else ids
    if ids.dtype.kind not in "iuOUST":
        raise ValueError(f"{name} holds {ids.dtype}; expected whole numbers, or text")
    return ids
