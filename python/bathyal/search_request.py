"""The arguments of searches: their names, their defaults and their types. The library checks their values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bathyal import _bathyal
from bathyal.arguments import Path, whole
from bathyal.files import read_vectors
from bathyal.inputs import QUERIES, ArgumentLabel, is_path
from bathyal.inputs import rows as rows_of
from bathyal.keywords import refuse_unknown

Mode = Literal["batched", "pipelined"]
_Searched = TypeVar("_Searched")
_Request = TypeVar("_Request")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


class SearchRequest(NamedTuple):
    """The queries of a search, with its arguments."""

    queries: ArrayLike | Path
    """The queries as the caller gave them."""
    arguments: _bathyal._SearchArguments
    """The arguments by name. The search checks their values."""

    def rows(self, element: str, dim: int) -> tuple[NDArray[Any], bool]:
        """Returns the queries as an array of ``element``, and True if they are a single query."""
        return rows(self.queries, element, dim)


def search_request(
    queries: ArrayLike | Path,
    k: int = 10,
    recall: float | None = None,
    search_list: int | None = None,
    probes: int | None = None,
    beam_width: int | None = None,
    threads: int = 0,
    mode: Mode | None = None,
    timeout: float | None = None,
    prune: float | None = None,
    in_flight: int | None = None,
    ratio: float | None = None,
    multi_probe: int | None = None,
    probability: float | None = None,
    within: float | None = None,
    calibration: str | None = None,
) -> SearchRequest:
    """Returns the request of a search for the ``k`` nearest; :meth:`bathyal.Index.search` documents the
    arguments."""
    return SearchRequest(
        queries,
        {
            "k": whole("k", k),
            "recall": None if recall is None else float(recall),
            "ratio": None if ratio is None else float(ratio),
            "probability": None if probability is None else float(probability),
            "within": None if within is None else float(within),
            "search_list": None if search_list is None else whole("search_list", search_list),
            "probes": None if probes is None else whole("probes", probes),
            "prune": None if prune is None else float(prune),
            "beam_width": None if beam_width is None else whole("beam_width", beam_width),
            "multi_probe": None if multi_probe is None else whole("multi_probe", multi_probe),
            "threads": whole("threads", threads, most=4096),
            "mode": mode,
            "timeout": None if timeout is None else float(timeout),
            "in_flight": None if in_flight is None else whole("in_flight", in_flight),
            "calibration": calibration,
        },
    )


def rows(
    queries: ArrayLike | Path, element: str, dim: int, label: ArgumentLabel = QUERIES
) -> tuple[NDArray[Any], bool]:
    """Returns queries, or those in the file that a path names, as :func:`bathyal.inputs.rows` does."""
    # The usual case goes first, because testing for a path takes a third of the time of this function.
    if not isinstance(queries, np.ndarray) and is_path(queries):
        queries = read_vectors(cast("Path", queries))
    return rows_of(queries, element, label, dim)


def takes_request(
    request: Callable[_Arguments, _Request],
) -> Callable[
    [Callable[[_Searched, _Request], _Answer]], Callable[Concatenate[_Searched, _Arguments], _Answer]
]:
    """Decorates a search, whose first parameter is the searched object: the decorated search takes the
    arguments of ``request``, and passes the request that they make to the search. So all searches share one
    list of arguments, defaults and checks."""
    accepted = signature(request).parameters.keys()

    def decorate(
        search: Callable[[_Searched, _Request], _Answer],
    ) -> Callable[Concatenate[_Searched, _Arguments], _Answer]:
        if iscoroutinefunction(search):

            async def search_async(
                searched: _Searched, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
            ) -> Any:
                if not kwargs.keys() <= accepted:
                    refuse_unknown(f"{search.__name__}()", kwargs, accepted)
                return await search(searched, request(*args, **kwargs))

            wrapper: Any = functools.wraps(search)(search_async)
        else:

            def search_now(
                searched: _Searched, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
            ) -> _Answer:
                if not kwargs.keys() <= accepted:
                    refuse_unknown(f"{search.__name__}()", kwargs, accepted)
                return search(searched, request(*args, **kwargs))

            wrapper = functools.wraps(search)(search_now)
        own = signature(search)
        first = next(iter(own.parameters.values()))
        if first.name != "self":
            first = first.replace(kind=Parameter.POSITIONAL_ONLY)
        wrapper.__signature__ = own.replace(parameters=[first, *signature(request).parameters.values()])
        return cast("Callable[Concatenate[_Searched, _Arguments], _Answer]", wrapper)

    return decorate
