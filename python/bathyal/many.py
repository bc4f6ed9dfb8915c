"""Searching several indexes, or several collections, at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack

from bathyal import _bathyal
from bathyal.arguments import Path
from bathyal.collection import Collection
from bathyal.found_rows import FoundInMany, Metadata
from bathyal.index import Index
from bathyal.inputs import is_path
from bathyal.opening import open as open_index
from bathyal.reading import CollectionRequest, collection_request, values
from bathyal.results import Costs, FoundMany, raise_warnings
from bathyal.search_request import SearchRequest, search_request, takes_request


@takes_request(search_request)
def search(indexes: Sequence[Index | Path], request: SearchRequest) -> FoundMany:
    """Finds the ``k`` nearest vectors of each query in several indexes, merged by distance.

    Arguments are those of :meth:`Index.search`; ``timeout`` applies to all indexes together. The indexes must
    agree in dim, element and metric. They may be in folders, in object stores and in the memory of nodes. A
    path or an address is opened for this search alone; open an index that is searched more than once, or
    that needs options of its store, with :func:`bathyal.open`.

    Raises:
        ValueError: no index, or indexes that do not agree; the message names the difference.

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
    if is_path(indexes):
        raise ValueError(f"indexes is the path {indexes!r}; give a list of indexes or paths")
    with ExitStack() as opened:
        searched = [
            index if isinstance(index, Index) else opened.enter_context(open_index(index, progress=False))
            for index in indexes
        ]
        rows, single = request.rows(searched[0].element, searched[0].dim)
        numbers, ids, distances, notes, costs = _bathyal.search_many(
            [index._handle for index in searched], rows, request.arguments
        )
    if single:
        numbers, ids, distances = numbers[0], ids[0], distances[0]
    return FoundMany(numbers, ids, distances, Costs(costs), raise_warnings(notes, above=2))


@takes_request(collection_request)
def search_many(collections: Sequence[Collection], request: CollectionRequest) -> FoundInMany:
    """Finds the ``k`` nearest rows of each query in several collections, merged by distance, for example in
    one collection per customer or per month.

    Arguments are those of :meth:`Collection.search`; ``timeout`` applies to all collections together, and
    ``filter`` to each of them. The collections must agree in the kind of their ids, in dim, element and
    metric of the field, and in the types of the requested columns.

    Raises:
        ValueError: no collection, or collections that do not agree; the message names the difference.

    >>> import numpy as np, bathyal
    >>> line = np.arange(20, dtype=np.float32).reshape(20, 1)
    >>> low, high = (bathyal.Collection.create(f"memory://{name}", dim=1, id="u64") for name in ["low", "high"])
    >>> _ = low.add(range(10), line[:10]), high.add(range(10), line[10:])
    >>> found = bathyal.search_many([low, high], [9.25], k=3, filter="id != 8")
    >>> list(zip(found.collections.tolist(), found.ids.tolist(), found.distances.tolist()))
    [(0, 9, 0.0625), (1, 0, 0.5625), (1, 1, 3.0625)]
    """
    if not collections:
        raise ValueError("no collection to search; give at least one")
    for collection in collections:
        if not isinstance(collection._handle, _bathyal.CollectionHandle):
            raise TypeError(f"{collection.path} is on a server; search each collection there by itself")
    first = collections[0]
    rows, single, arguments = first._arguments(request)
    numbers, ids, distances, held, vectors, matches, report = _bathyal.search_collections(
        [collection._handle for collection in collections], rows, arguments
    )
    text = json.loads(report)
    shape = (text["k"],) if single else (len(rows), text["k"])
    return FoundInMany(
        numbers.reshape(shape),
        ids.reshape(shape),
        distances.reshape(shape),
        Metadata(held, shape),
        None if vectors is None else values(vectors, shape),
        matches,
        raise_warnings(text["notes"], above=2),
        first._field(request),
    )
