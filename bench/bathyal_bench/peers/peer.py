"""What an adapter has to offer."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.datasets import DataSet

Options = dict[str, Any]


class Unsupported(Exception):
    """This system cannot do what is asked; the message says what, and ends up in the report."""


class Peer:
    """A system that is a Python package. One process holds one of these; it builds or it searches."""

    requirement: ClassVar[str | None] = None
    """What pip installs; None for what comes another way."""
    metrics: ClassVar[tuple[str, ...]] = ("l2", "ip", "cosine")
    """Metrics that it knows. Without cosine it is given vectors of length 1 under l2."""
    note: str | None = None
    """What a reader of its figures has to know."""
    cached_by_kernel: bool = False
    """Whether it reads its index through the page cache, which is memory that no process is charged for; an index
    may decide that as it is opened."""

    def __init__(self, data: DataSet, threads: int) -> None:
        self.data = data
        self.threads = threads

    @classmethod
    def version(cls) -> str:
        """Of the installed package."""
        return importlib.metadata.version(cls.requirement) if cls.requirement else "none"

    def load_library(self) -> None:
        """Imports the package: what that takes is no memory of the index."""
        raise NotImplementedError

    def build(self, index: Path, options: Options) -> Options:
        """Builds from ``self.data`` into the folder ``index``; returns what it wants to have recorded."""
        raise NotImplementedError

    def prepare_queries(self, queries: NDArray[Any]) -> NDArray[Any]:
        """Queries as the system takes them; not timed."""
        return np.ascontiguousarray(queries, np.float32)

    def open(self, index: Path, options: Options) -> None:
        """Opens the index for search with ``self.threads``."""
        raise NotImplementedError

    def set_effort(self, options: Options) -> None:
        """Takes the options of the searches to come."""
        raise NotImplementedError

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        """Ids of the neighbours of each query, with all threads: ``queries x k``, -1 where none was found."""
        raise NotImplementedError

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        """Ids of the neighbours of one query (``dim``), with one thread."""
        raise NotImplementedError

    def counters(self) -> tuple[int, int] | None:
        """Reads and bytes of the last :meth:`search`; None if the system does not count them."""
        return None

    def close(self) -> None:
        """Gives the index back."""

    def vectors(self) -> NDArray[np.float32]:
        """The vectors of the set, in memory as float32."""
        return np.array(self.data.vectors(), np.float32)
