"""The interface of adapters."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.datasets import DataSet

Options = dict[str, Any]


class Unsupported(Exception):
    """The system does not support a request; the message tells which, and appears in the report."""


class Peer:
    """A system that is a Python package. Each process has one of these, and either builds or searches."""

    requirement: ClassVar[str | None] = None
    """The name for pip; None for systems from elsewhere."""
    metrics: ClassVar[tuple[str, ...]] = ("l2", "ip", "cosine")
    """Supported metrics. A system without cosine gets vectors of length 1 under l2."""
    note: str | None = None
    """A remark for readers of the figures."""
    cached_by_kernel: bool = False
    """True if the system reads its index through the page cache, memory that no process is charged for. An
    index may set this when it is opened.
    """

    def __init__(self, data: DataSet, threads: int) -> None:
        self.data = data
        self.threads = threads

    @classmethod
    def version(cls) -> str:
        """Returns the version of the installed package."""
        return importlib.metadata.version(cls.requirement) if cls.requirement else "none"

    def load_library(self) -> None:
        """Imports the package before measurements, so that its memory does not count as the index's."""
        raise NotImplementedError

    def build(self, index: Path, options: Options) -> Options:
        """Builds from ``self.data`` into the folder ``index``; returns figures to record."""
        raise NotImplementedError

    def prepare_queries(self, queries: NDArray[Any]) -> NDArray[Any]:
        """Converts queries to the system's format, outside of the measured time."""
        return np.ascontiguousarray(queries, np.float32)

    def open(self, index: Path, options: Options) -> None:
        """Opens the index for search with ``self.threads``."""
        raise NotImplementedError

    def set_effort(self, options: Options) -> None:
        """Sets the options of later searches."""
        raise NotImplementedError

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        """Returns ids of the neighbours of each query, with all threads: ``queries x k``, -1 for missing
        results.
        """
        raise NotImplementedError

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        """Returns ids of the neighbours of one query (``dim``), with one thread."""
        raise NotImplementedError

    def counters(self) -> tuple[int, int] | None:
        """Returns reads and bytes of the last :meth:`search`; None if the system does not count them."""
        return None

    def close(self) -> None:
        """Closes the index."""

    def vectors(self) -> NDArray[np.float32]:
        """Returns the vectors of the data set, in memory as float32."""
        return np.array(self.data.vectors(), np.float32)
