"""Schemas of collections: the kind of ids, the vector fields, and the columns of metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from bathyal.arguments import Metric, family_options, whole
from bathyal.keywords import family_option_names, parameter_names, refuse_unknown

IdKind = Literal["string", "u64"]
Element = Literal["f32", "f16", "bf16", "u8", "i8", "b1"]
Field = tuple[int] | tuple[int, str] | tuple[int, str, str] | Mapping[str, Any]
"""A vector field: ``(dim, element, metric)``, or a dictionary with the arguments of :func:`field`."""

ONLY_FIELD = "vector"
"""The name of the only field if it is not given."""


def schema(
    shape: tuple[int | None, Metric, str],
    vectors: Mapping[str, Field] | None,
    id: IdKind,
    columns: Mapping[str, str] | None,
    options: Mapping[str, Any],
) -> str:
    """Returns a schema as JSON: with one field of ``shape`` (dim, metric, element) and ``options``, or with
    the fields ``vectors``.

    >>> json.loads(schema((8, "l2", "f32"), None, "string", {"year": "int64"}, {}))["vectors"]
    [{'name': 'vector', 'dim': 8, 'element': 'f32', 'metric': 'l2', 'options': {}}]
    >>> text = schema((None, "ip", "f16"), {"a": (8,), "b": (8, "u8"), "c": {"dim": 8}}, "u64", None, {})
    >>> [(field["element"], field["metric"]) for field in json.loads(text)["vectors"]]
    [('f16', 'ip'), ('u8', 'ip'), ('f16', 'ip')]
    >>> schema((None, "l2", "f32"), None, "u64", None, {})
    Traceback (most recent call last):
    TypeError: neither dim nor vectors is given; dim=384 is one field of vectors, vectors={...} are several
    """
    dim, metric, element = shape
    if (dim is None) == (vectors is None):
        both = "neither dim nor vectors is given" if dim is None else "dim and vectors are both given"
        raise TypeError(f"{both}; dim=384 is one field of vectors, vectors={{...}} are several")
    if dim is not None:
        fields = [field(ONLY_FIELD, dim, element, metric, **options)]
    else:
        fields = [
            _named(name, given, (element, metric), options) for name, given in dict(vectors or {}).items()
        ]
    if id not in ("string", "u64"):
        raise ValueError(f"id is {id!r}; expected 'string' or 'u64'")
    if columns is not None and not isinstance(columns, Mapping):
        kind = type(columns).__name__
        raise TypeError(f"columns is of type {kind}; expected a dictionary of names and types")
    for name, kind in (columns or {}).items():
        if not isinstance(name, str) or not isinstance(kind, str):
            raise TypeError(f"columns: {name!r} is {kind!r}; expected the name of a type, such as 'int64'")
    typed = [{"name": name, "type": kind} for name, kind in (columns or {}).items()]
    return json.dumps({"id": id, "vectors": fields, "columns": typed})


def field(
    name: str,
    dim: int,
    element: str = "f32",
    metric: str = "l2",
    family: str | None = None,
    store_as: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Returns a vector field as in a schema; ``options`` are those of its family.

    >>> field("title", 64, metric="hamming")
    {'name': 'title', 'dim': 64, 'element': 'b1', 'metric': 'l2', 'options': {}}
    """
    refuse_unknown(f"field {name!r}", options, [*family_option_names(), *parameter_names(field, "name")])
    if metric == "hamming":
        # Hamming applies to bits only, so the default element is then b1.
        element, metric = ("b1" if element == "f32" else element), "l2"
    made = {"name": name, "dim": whole("dim", dim), "element": element, "metric": metric}
    if family is not None:
        made["family"] = family
    if store_as is not None:
        made["store_as"] = store_as
    return {**made, "options": family_options(options)}


def _named(name: str, given: Field, defaults: tuple[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a field; ``defaults`` are the element and the metric of fields that name none."""
    element, metric = defaults
    if isinstance(given, Mapping):
        return field(name, **{"element": element, "metric": metric, **options, **given})
    if not isinstance(given, tuple) or not 1 <= len(given) <= 3:
        raise TypeError(
            f"vectors: {name!r} is {given!r}; expected (dim, element, metric), or a dictionary with 'dim'"
        )
    return field(name, *given, *defaults[len(given) - 1 :], **options)
