"""Ids of neighbours as 32-bit numbers; the largest number marks a missing neighbour."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_ID = 2**32 - 1
"""The largest 32-bit number. No vector has it as its id, because rows are counted from 0; it marks a missing
id."""
MOST_WIDE_ID = 2**64 - 1
"""The largest 64-bit number, which also marks a missing id."""


def whole_ids(ids: NDArray[Any], name: str) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Returns whole numbers as unsigned ids, and a mask of the missing ones.

    Raises:
        ValueError: ids below -1.
    """
    negative = ids < 0
    if (ids[negative] != -1).any():
        raise ValueError(
            f"{name}: {ids[negative].min()} is not a valid id; expected 0 or more, or -1 for a missing one"
        )
    plain = np.where(negative, 0, ids).astype(np.uint64)
    return plain, negative | (plain == MOST_ID) | (plain == MOST_WIDE_ID)


def narrow_ids(ids: NDArray[Any], name: str) -> NDArray[np.uint32]:
    """Returns whole numbers as 32-bit ids, as files store them; a missing id is the largest number.

    Raises:
        ValueError: ids below -1, or beyond 32 bits.
    """
    plain, missing = whole_ids(ids, name)
    largest = int(plain[~missing].max(initial=0))
    if largest > MOST_ID:
        raise ValueError(
            f"{name}: {largest} is not a 32-bit id; expected from 0 to {MOST_ID - 1}, or -1 for a missing one"
        )
    return np.where(missing, MOST_ID, plain).astype(np.uint32)


def as_numbers(ids: NDArray[Any], truth: NDArray[Any]) -> list[NDArray[np.uint32]]:
    """Replaces the ids of both arrays by 32-bit numbers; equal ids get equal numbers."""
    both = [_narrow(one, name) for one, name in ((ids, "ids"), (truth, "truth"))]
    if all(one.dtype.kind in "iu" for one in both):
        (left, left_missing), (right, right_missing) = (
            whole_ids(one, name) for one, name in zip(both, ("ids", "truth"), strict=True)
        )
        if max(left[~left_missing].max(initial=0), right[~right_missing].max(initial=0)) > MOST_ID:
            # 64-bit ids of a collection: only their equality matters.
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
    numbered_rows = [[known.setdefault(id, len(known)) for id in one.ravel().tolist()] for one in both]
    return [np.array(row, np.uint32).reshape(one.shape) for row, one in zip(numbered_rows, both, strict=True)]


def _narrow(ids: NDArray[Any], name: str) -> NDArray[Any]:
    """Returns ids as an array of whole numbers if they are such, else as the array of text."""
    if ids.dtype.kind == "O":
        plain = np.array(ids.tolist())
        ids = plain if plain.dtype.kind in "iu" else ids
    if ids.dtype.kind not in "iuOUST":
        raise ValueError(f"{name} holds {ids.dtype}; expected whole numbers, or text")
    return ids
