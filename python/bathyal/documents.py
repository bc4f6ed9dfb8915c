"""Helpers that the vector stores of frameworks share: metadata with any keys beside the columns of a
collection."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

_Store = TypeVar("_Store")

NO_COLUMN = re.compile(r'there is no column "(.*?)"')
"""Matches the message of a collection about a filter on an unknown column."""


def as_json(metadata: Mapping[str, Any]) -> str:
    """Returns metadata as JSON text.

    >>> as_json({"year": 2020, "by": ["Ada"]})
    '{"year": 2020, "by": ["Ada"]}'
    >>> as_json({"seen": {1, 2}})
    Traceback (most recent call last):
    TypeError: metadata: 'seen' is {1, 2}, of type set, which JSON does not have; pass text, numbers, lists or
    dictionaries
    """
    try:
        return json.dumps(metadata, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        for key, value in metadata.items():
            try:
                json.dumps({key: value})
            except (TypeError, ValueError, RecursionError):
                raise TypeError(
                    f"metadata: {key!r} is {value!r:.100}, of type {type(value).__name__}, which JSON does not "
                    "have; pass text, numbers, lists or dictionaries"
                ) from error
        raise


def from_json(text: str | None) -> dict[str, Any]:
    """Returns the metadata of a row, which may have none if another program wrote it.

    >>> from_json('{"year": 2020}'), from_json(None)
    ({'year': 2020}, {})
    """
    held: dict[str, Any] = json.loads(text) if text else {}
    return held


def column_values(metadata: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of the metadata whose keys are also columns.

    >>> column_values({"year": 2020, "by": "Ada"}, {"year": "int64", "lang": "string"})
    {'year': 2020}
    """
    return {name: metadata[name] for name in columns if name in metadata}


@contextlib.contextmanager
def filter_advice() -> Iterator[None]:
    """Adds advice to the error of a filter on keys that are not columns."""
    try:
        yield
    except ValueError as error:
        unknown = NO_COLUMN.search(str(error))
        if unknown is None:
            raise
        raise ValueError(
            f"{error}. A filter can use only keys of the metadata that were declared as columns when the "
            f'collection was created: columns={{"{unknown[1]}": "string"}}'
        ) from None


def as_list(name: str, ids: Any, what: str = "ids") -> list[Any]:
    """Returns ``ids`` as a list. Text is refused, because ``list()`` would split it into letters.

    >>> as_list("ids", ("a", "b"))
    ['a', 'b']
    >>> as_list("ids", "abc")
    Traceback (most recent call last):
    TypeError: ids is the text 'abc'; expected a list of ids: ['abc']
    """
    if isinstance(ids, str | bytes):
        raise TypeError(f"{name} is the text {ids!r:.100}; expected a list of {what}: [{ids!r:.100}]")
    try:
        return list(ids)
    except TypeError:
        kind = type(ids).__name__
        raise TypeError(f"{name} is of type {kind}; expected a list of {what}") from None


def open_or_create(open: Callable[[], _Store], create: Callable[[], _Store]) -> _Store:
    """Opens a store, or creates it if there is none."""
    try:
        return open()
    except FileNotFoundError:
        return create()
