"""Records of a reproduction, written by ``bathyal-repro``: a line about the run, then one line per
measurement.

The first line is ``{"of": "run", "paper": ..., "command": ..., "machine": ..., ...}``. It has what reports
need to know about the run as a whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE_NAME = "records.jsonl"


class Record(dict[str, Any]):
    """A JSON object with its file and line, so that an error about a field can name them."""

    def __init__(self, fields: dict[str, Any], where: str) -> None:
        super().__init__(fields)
        self.where = where

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"{self.where}: the record has no field {name!r}")


def read(path: Path) -> tuple[Record, list[Record]]:
    """Reads the line about the run, and the measurements.

    Raises ValueError, which names the file and the line, if a line is not a record of a reproduction.
    """
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            found.append(parsed(line, f"{path}:{number}"))
    if not found or found[0].get("of") != "run":
        raise ValueError(
            f'{path}:1: expected a line about the run, {{"of":"run","paper":...}}; is this a file of bathyal-repro?'
        )
    return found[0], found[1:]


def parsed(line: str, where: str) -> Record:
    """Parses the record of a line; records within it get the line's number, too."""
    try:
        record = json.loads(line, object_hook=lambda fields: Record(fields, where))
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not JSON: {error}") from None
    if not isinstance(record, Record):
        raise ValueError(f"{where}: expected a JSON object, found {type(record).__name__}")
    return record
