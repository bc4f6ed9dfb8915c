"""Systems that are programs of their own: each build and each effort is a process, measured from outside."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bathyal_bench.peers.peer import Options, Peer


@dataclass(frozen=True)
class Outcome:
    """What a process printed and what it took."""

    text: str
    seconds: float
    peak_rss_bytes: int
    read_bytes: int


@dataclass(frozen=True)
class Sweep:
    """What a program is asked to measure."""

    index: Path
    work: Path
    k: int
    cache: str
    efforts: list[Options]
    queries: int
    latency_queries: int


class ProgramPeer(Peer):
    """A program; it loads, times and counts itself, and prints what it measured."""

    def load_library(self) -> None:
        """Nothing is imported."""

    def sweep(self, sweep: Sweep) -> Iterator[dict[str, Any]]:
        """A record for each effort: recall, qps, latency_us and whatever else the program tells."""
        raise NotImplementedError


def run_program(words: list[str], environment: dict[str, str] | None = None) -> Outcome:
    """Runs a program to its end.

    Raises:
        RuntimeError: it failed; the message ends with the last lines that it wrote.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
    )
    assert process.stdout is not None
    text = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        last = " / ".join(text.strip().splitlines()[-4:])
        raise RuntimeError(f"{words[0]} failed with {process.returncode}: {last}")
    # The kernel counts blocks of 512 bytes here, whatever the device's are.
    return Outcome(text, time.monotonic() - started, usage.ru_maxrss * 1024, usage.ru_inblock * 512)
