"""Vector search for indexes that do not fit in DRAM.

Build an index over a file of vectors or a numpy array, open it, and search it with a target recall:

>>> import numpy as np
>>> import bathyal
>>> vectors = np.random.default_rng(1).standard_normal((1000, 16), dtype=np.float32)
>>> index = bathyal.build(vectors, "example.index", metric="l2")
>>> found = index.search(vectors[:3], k=5, recall=0.95)
>>> found.ids.shape, found.ids.dtype
((3, 5), dtype('uint32'))
>>> found.ids[:, 0].tolist()
[0, 1, 2]

The index stays on disk, or in an object store (``bathyal.open("s3://bucket/my.index")``); memory holds a code
of a few bytes per vector. Ids are the row numbers of the vectors. Metrics are distances; smaller is nearer:
``"l2"`` is squared, ``"ip"`` is the negated inner product, ``"cosine"`` is one minus the cosine. Elements are
float32, float16, uint8 and int8.

A :class:`Collection` holds rows with your own ids and metadata, which can change at any time:

>>> docs = bathyal.Collection.create("docs.collection", dim=16, columns={"year": "int64"})
>>> docs.add(["a", "b"], vectors[:2], {"year": [1999, 2024]}).added
2
>>> docs.search(vectors[0], k=1, filter="year >= 2000").ids
array(['b'], dtype=object)

Vectors and queries may be arrays of any numbers, lists, tensors of PyTorch, or frames and columns of pandas, Arrow
and polars; :func:`build` takes iterators of batches, too. A C-contiguous array of one of these elements is not
copied, so it must not be changed while the call runs.

Long calls let other threads run, show progress, and stop at Ctrl-C without leaving partial output.
"""

from bathyal._bathyal import DamagedIndexError, DuplicateIdError, Error, __version__
from bathyal.advice import Advice, advise, check_plan, probe
from bathyal.building import build, compact, convert_layout, convert_stripes, families, plan
from bathyal.checking import inspect, verify
from bathyal.collection import Collection
from bathyal.exact import OverallRatio, groundtruth, overall_ratio, recall
from bathyal.files import Converted, convert, read_ids, read_vectors, write_ids, write_vectors
from bathyal.found_rows import FoundInMany, FoundRows, Metadata, Rows, Written
from bathyal.index import Index
from bathyal.many import search, search_many
from bathyal.opening import open
from bathyal.reading import Snapshot
from bathyal.results import Costs, Found, FoundMany, FoundRanges, SearchStats, SearchWarning
from bathyal.served import Server, connect
from bathyal.stores import copy, listing, prune, remove

__all__ = [
    "Advice",
    "Collection",
    "Converted",
    "Costs",
    "DamagedIndexError",
    "DuplicateIdError",
    "Error",
    "Found",
    "FoundInMany",
    "FoundMany",
    "FoundRanges",
    "FoundRows",
    "Index",
    "Metadata",
    "OverallRatio",
    "Rows",
    "SearchStats",
    "SearchWarning",
    "Server",
    "Snapshot",
    "Written",
    "__version__",
    "advise",
    "build",
    "check_plan",
    "compact",
    "connect",
    "convert",
    "convert_layout",
    "convert_stripes",
    "copy",
    "families",
    "groundtruth",
    "inspect",
    "listing",
    "open",
    "overall_ratio",
    "plan",
    "probe",
    "prune",
    "read_ids",
    "read_vectors",
    "recall",
    "remove",
    "search",
    "search_many",
    "verify",
    "write_ids",
    "write_vectors",
]
