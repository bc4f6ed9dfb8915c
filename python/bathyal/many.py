"""Searching several indexes at once."""

from __future__ import annotations

from collections.abc import Sequence

from bathyal import _bathyal
from bathyal.asking import Asked, asked, asks
from bathyal.index import Index
from bathyal.results import Costs, FoundMany, warned


@asks(asked)
def search(indexes: Sequence[Index], request: Asked) -> FoundMany:
    """Finds the ``k`` nearest vectors of each query in several indexes, merged by distance.

    Arguments are those of :meth:`Index.search`; ``timeout`` is for all indexes together. The indexes must agree in
    dim, element and metric.

    Raises:
        ValueError: no index, or indexes that do not agree (the message says in what).

    >>> import numpy as np, bathyal
    >>> line = np.arange(20, dtype=np.float32).reshape(20, 1)
    >>> even = bathyal.build(line[::2].copy(), "even.index")
    >>> odd = bathyal.build(line[1::2].copy(), "odd.index")
    >>> found = bathyal.search([even, odd], [7.0], k=3)
    >>> list(zip(found.indexes.tolist(), found.ids.tolist(), found.distances.tolist()))
    [(1, 3, 0.0), (0, 3, 1.0), (0, 4, 1.0)]
    """
    if not indexes:
        raise ValueError("no index to search; give at least one")
    rows, single = request.rows(indexes[0].element, indexes[0].dim)
    numbers, ids, distances, notes, costs = _bathyal.search_many(
        [index._handle for index in indexes], rows, request.arguments
    )
    if single:
        numbers, ids, distances = numbers[0], ids[0], distances[0]
    return FoundMany(numbers, ids, distances, Costs(costs), warned(notes, above=2))
