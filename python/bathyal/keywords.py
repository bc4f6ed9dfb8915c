"""Unknown keyword arguments: refused by name, with a suggestion."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from typing import Any

from bathyal import _bathyal

SYNONYMS = {
    "filter": ("filters", "where", "predicate", "expr", "condition", "pre_filter", "metadata_filter"),
    "filters": ("filter", "where", "predicate", "expr", "condition", "metadata_filters"),
    "ids": ("id", "keys", "uuids", "node_ids", "document_ids"),
    "node_ids": ("ids", "id", "node_id", "keys"),
    "k": ("top_k", "topk", "limit", "n_results", "n_neighbors", "similarity_top_k"),
    "columns": ("fields", "include", "select", "output_fields"),
    "search_list": ("ef", "ef_search", "efSearch", "L", "search_l"),
    "probes": ("nprobe", "nprobes", "n_probes", "num_probes"),
    "max_degree": ("R", "M", "m", "degree"),
    "threads": ("num_threads", "n_threads", "n_jobs", "jobs", "num_workers"),
    "timeout": ("deadline", "time_limit"),
    "code_kind": ("code", "quantization", "quantizer"),
    "family": ("index_type", "algorithm", "kind"),
    "overwrite": ("force", "replace"),
    "delete_all": ("all", "deleteAll", "everything", "clear"),
    "score_threshold": ("threshold", "distance_threshold", "similarity_threshold"),
}
"""Names that other systems use for arguments, by Bathyal's names."""


def refuse_unknown(taker: str, given: Iterable[str], accepted: Iterable[str]) -> None:
    """Refuses the first argument that is not in ``accepted``; the message lists ``accepted`` in its order.

    >>> refuse_unknown("delete()", {"filter": "year = 2020"}, ["ids", "filter"])
    >>> refuse_unknown("delete()", {"where": "year = 2020"}, ["ids", "filter"])
    Traceback (most recent call last):
    TypeError: delete() has no argument 'where'; did you mean 'filter'? It takes: ids, filter
    >>> refuse_unknown("add()", {"bach_size": 3}, [])
    Traceback (most recent call last):
    TypeError: add() has no argument 'bach_size'; it takes no others
    """
    known = list(accepted)
    for name in given:
        if name not in known:
            near = _suggestion(name, known)
            it = "It" if near else "it"
            asked = f"did you mean {near!r}? " if near else ""
            takes = f"takes: {', '.join(known)}" if known else "takes no others"
            raise TypeError(f"{taker} has no argument {name!r}; {asked}{it} {takes}")


def _suggestion(name: str, known: list[str]) -> str | None:
    for ours, theirs in SYNONYMS.items():
        if ours in known and name in theirs:
            return ours
    return next(iter(difflib.get_close_matches(name, known, 1, 0.75)), None)


def parameter_names(function: Callable[..., Any], *others: str) -> list[str]:
    """Returns the names of the keyword arguments of a function or a method, without the ``others``.

    >>> def find(self, query, *, k=10, **kwargs): ...
    >>> parameter_names(find, "query")
    ['k']
    """
    parameters = signature(function).parameters.values()
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    left_out = {"self", "cls", *others}
    return [one.name for one in parameters if one.kind in kinds and one.name not in left_out]


@functools.cache
def family_option_names() -> tuple[str, ...]:
    """Returns the names of the options of all families, each once."""
    families: list[dict[str, Any]] = json.loads(_bathyal.list_families())
    return tuple(dict.fromkeys(option["name"] for family in families for option in family["options"]))
