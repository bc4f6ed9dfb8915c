"""What a search is asked: the one place that names its arguments, has their defaults, and checks them."""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bathyal import _bathyal
from bathyal.arguments import Path, query_rows, whole
from bathyal.files import read_vectors

Mode = Literal["batched", "pipelined"]


class Asked(NamedTuple):
    """Queries, and how their neighbours are to be found."""

    queries: ArrayLike | Path
    """As the caller gave them."""
    arguments: _bathyal._SearchArguments
    """Checked as far as can be without the index."""

    def rows(self, element: str) -> tuple[NDArray[Any], bool]:
        """The queries as the index with this element takes them, and whether they are a single one."""
        return rows(self.queries, element)


def asked(
    queries: ArrayLike | Path,
    k: int = 10,
    recall: float = 0.95,
    search_list: int | None = None,
    probes: int | None = None,
    beam_width: int | None = None,
    threads: int = 0,
    mode: Mode | None = None,
    timeout: float | None = None,
    prune: float | None = None,
    in_flight: int | None = None,
) -> Asked:
    """What a search for the ``k`` nearest is asked; :meth:`bathyal.Index.search` says what the arguments mean."""
    return Asked(
        queries,
        {
            "k": whole("k", k),
            "recall": float(recall),
            "search_list": None if search_list is None else whole("search_list", search_list),
            "probes": None if probes is None else whole("probes", probes),
            "prune": None if prune is None else float(prune),
            "beam_width": None if beam_width is None else whole("beam_width", beam_width),
            "threads": whole("threads", threads, most=4096),
            "mode": mode,
            "timeout": None if timeout is None else float(timeout),
            "in_flight": None if in_flight is None else whole("in_flight", in_flight, least=1),
        },
    )


def rows(queries: ArrayLike | Path, element: str) -> tuple[NDArray[Any], bool]:
    """Queries, or those of the file that a path names, as :func:`bathyal.arguments.query_rows` gives them."""
    # What is nearly always the case goes first: to look for a path takes a third of all that is done here.
    if not isinstance(queries, np.ndarray) and isinstance(queries, str | os.PathLike):
        queries = read_vectors(queries)
    return query_rows(queries, element)
