"""What a search is asked: the one place that names its arguments, has their defaults, and checks them."""

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
from bathyal.inputs import QUERIES, Called, is_path
from bathyal.inputs import rows as rows_of
from bathyal.keywords import refuse_unknown

Mode = Literal["batched", "pipelined"]
_Of = TypeVar("_Of")
_Request = TypeVar("_Request")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


class Asked(NamedTuple):
    """Queries, and how their neighbours are to be found."""

    queries: ArrayLike | Path
    """As the caller gave them."""
    arguments: _bathyal._SearchArguments
    """Checked as far as can be without the index."""

    def rows(self, element: str, dim: int) -> tuple[NDArray[Any], bool]:
        """The queries as the index with this element takes them, and whether they are a single one."""
        return rows(self.queries, element, dim)


DEFAULT_RECALL = 0.95
"""What is aimed for where nobody says it: what most people mean by good."""


def recall_of(recall: float | None, **instead: float | None) -> float:
    """The recall to aim for; ``instead`` are the arguments under which it is not looked at.

    >>> recall_of(None), recall_of(0.9), recall_of(None, search_list=50)
    (0.95, 0.9, 0.95)
    >>> recall_of(0.9, search_list=50)
    Traceback (most recent call last):
    ValueError: recall is 0.9 and search_list is 50; give one of them
    """
    given = [f"{name} is {value}" for name, value in instead.items() if value is not None]
    if given and (recall is not None or len(given) > 1):
        told = given if recall is None else [f"recall is {recall}", *given]
        raise ValueError(f"{' and '.join(told)}; give one of them")
    return DEFAULT_RECALL if recall is None else float(recall)


def asked(
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
) -> Asked:
    """What a search for the ``k`` nearest is asked; :meth:`bathyal.Index.search` says what the arguments mean."""
    return Asked(
        queries,
        {
            "k": whole("k", k),
            "recall": recall_of(recall, search_list=search_list, ratio=ratio),
            "ratio": None if ratio is None else float(ratio),
            "search_list": None if search_list is None else whole("search_list", search_list),
            "probes": None if probes is None else whole("probes", probes),
            "prune": None if prune is None else float(prune),
            "beam_width": None if beam_width is None else whole("beam_width", beam_width),
            "multi_probe": None if multi_probe is None else whole("multi_probe", multi_probe),
            "threads": whole("threads", threads, most=4096),
            "mode": mode,
            "timeout": None if timeout is None else float(timeout),
            "in_flight": None if in_flight is None else whole("in_flight", in_flight, least=1),
        },
    )


def rows(
    queries: ArrayLike | Path, element: str, dim: int, called: Called = QUERIES
) -> tuple[NDArray[Any], bool]:
    """Queries, or those of the file that a path names, as :func:`bathyal.inputs.rows` gives them."""
    # What is nearly always the case goes first: to look for a path takes a third of all that is done here.
    if not isinstance(queries, np.ndarray) and is_path(queries):
        queries = read_vectors(cast("Path", queries))
    return rows_of(queries, element, called, dim)


def asks(
    request: Callable[_Arguments, _Request],
) -> Callable[[Callable[[_Of, _Request], _Answer]], Callable[Concatenate[_Of, _Arguments], _Answer]]:
    """Gives a method, or a function of what is searched, the arguments of ``request``, and hands it what they come
    to: searches that are asked the same have one list of arguments and defaults, and one check of them."""
    accepted = signature(request).parameters.keys()

    def give(
        answer: Callable[[_Of, _Request], _Answer],
    ) -> Callable[Concatenate[_Of, _Arguments], _Answer]:
        if iscoroutinefunction(answer):

            async def begun(of: _Of, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Any:
                if not kwargs.keys() <= accepted:
                    refuse_unknown(f"{answer.__name__}()", kwargs, accepted)
                return await answer(of, request(*args, **kwargs))

            taking: Any = functools.wraps(answer)(begun)
        else:

            def called(of: _Of, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
                if not kwargs.keys() <= accepted:
                    refuse_unknown(f"{answer.__name__}()", kwargs, accepted)
                return answer(of, request(*args, **kwargs))

            taking = functools.wraps(answer)(called)
        told, given = signature(answer), signature(request)
        searched = next(iter(told.parameters.values()))
        if searched.name != "self":
            searched = searched.replace(kind=Parameter.POSITIONAL_ONLY)
        taking.__signature__ = told.replace(parameters=[searched, *given.parameters.values()])
        return cast("Callable[Concatenate[_Of, _Arguments], _Answer]", taking)

    return give
