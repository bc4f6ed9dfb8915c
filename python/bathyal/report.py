"""Reports: dictionaries that a notebook shows as a table."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any


class Report(dict[str, Any]):
    """A dictionary. A notebook shows one of its members, a list of dictionaries, as a table, and above it the
    members that are single values.

    >>> report = Report({"seconds": 2.5, "cells": [{"depth": 1, "reads": 12000.25}, {"depth": 4}]}, "cells")
    >>> report["seconds"], "<td>12,000</td>" in report._repr_html_()
    (2.5, True)
    """

    def __init__(self, content: Mapping[str, Any], table: str) -> None:
        super().__init__(content)
        self._table = table

    def _repr_html_(self) -> str:
        rows: list[dict[str, Any]] = self.get(self._table, [])
        columns = list(dict.fromkeys(name for row in rows for name in row))
        above = [f"<li>{_text(name)}: {_text(value)}</li>" for name, value in self._values()]
        head = "".join(f"<th>{_text(name)}</th>" for name in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{_text(row.get(name))}</td>' for name in columns)}</tr>" for row in rows
        )
        return f"<ul>{''.join(above)}</ul><table><tr>{head}</tr>{body}</table>"

    def _values(self) -> list[tuple[str, Any]]:
        """Returns the single values, and those of dictionaries among the members."""
        found: list[tuple[str, Any]] = []
        for name, value in self.items():
            if isinstance(value, dict):
                found.extend((f"{name} {of}", one) for of, one in value.items() if _is_single(one))
            elif _is_single(value):
                found.append((name, value))
        return found


def _is_single(value: Any) -> bool:
    """Returns True for a number, a text, or None."""
    return value is None or isinstance(value, (str, int, float))


def _text(value: Any) -> str:
    """Returns a value as text in HTML: numbers with few digits, intervals, and lists by their members."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        case {"value": number, "low": low, "high": high}:
            return f"{_text(number)} ({_text(low)} to {_text(high)})"
        case list():
            return ", ".join(map(_text, value))
        case _:
            return html.escape(str(value))
