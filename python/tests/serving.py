"""Servers for tests: `bathyal serve` as a process of its own."""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

COMMAND = pathlib.Path(sys.executable).parent / "bathyal"
ADDRESS = re.compile(r"http://([0-9.:]+)")
STOPPED_WITHIN = 60


class Served(NamedTuple):
    """A running server: the address of its API, that of its counters, its key, and its process."""

    api: str
    metrics: str
    key: str
    process: subprocess.Popen[str]


@contextlib.contextmanager
def serving(folder: pathlib.Path, *words: str, listen: str = "127.0.0.1:0") -> Iterator[Served]:
    """Starts a server over ``folder / "data"``, and stops it at the end."""
    keys = folder / "keys.toml"
    line = ["serve", folder / "data", "--keys", keys, "--listen", listen, "--metrics", "127.0.0.1:0", *words]
    process = subprocess.Popen([COMMAND, *line], stderr=subprocess.PIPE, text=True)
    try:
        found: list[str] = []
        text = ""
        # The counters are named last.
        while "counters at" not in text:
            text = process.stderr.readline()
            assert text, "the server has ended"
            found += ADDRESS.findall(text)
        key = re.search('secret = "(.*)"', keys.read_text())
        yield Served(found[0], found[-1], key[1], process)
    finally:
        process.terminate()
        assert process.wait(STOPPED_WITHIN) == 0
        process.stderr.close()
