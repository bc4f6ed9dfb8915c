"""Systems that are programs of their own: each build and each effort is a process, measured from outside."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bathyal_bench.peers.peer import Options, Peer
from bathyal_bench.process import memory_bytes

# Seconds between two looks at a program's peak of memory: what it takes on in its last moment goes unseen.
PEAK_SECONDS = 0.02


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


def run_program(
    words: list[str], environment: dict[str, str] | None = None, folder: Path | None = None
) -> Outcome:
    """Runs a program to its end, in a folder if one is given.

    Raises:
        RuntimeError: it failed; the message ends with the last lines that it wrote.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        cwd=folder,
    )
    assert process.stdout is not None
    with Watch(process.pid) as watch:
        text = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        last = " / ".join(text.strip().splitlines()[-4:])
        raise RuntimeError(f"{words[0]} failed with {process.returncode}: {last}")
    seconds, peak = time.monotonic() - started, watch.peak or usage.ru_maxrss * 1024
    # The kernel counts blocks of 512 bytes here, whatever the device's are.
    return Outcome(text, seconds, peak, usage.ru_inblock * 512)


class Watch:
    """Follows the peak of a program's resident memory while it runs.

    The kernel's own answer after its end counts the process that started it, too, whose memory it shared for a
    moment: an interpreter with its packages is more than some programs hold.
    """

    def __init__(self, process: int) -> None:
        self.peak = 0
        self.process = process
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.follow, daemon=True)

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def follow(self) -> None:
        """Looks again and again until the program has ended."""
        while not self.ended.is_set():
            try:
                self.peak = max(self.peak, memory_bytes("VmHWM", self.process))
            except (KeyError, OSError):
                return  # It has ended and is not reaped yet.
            self.ended.wait(PEAK_SECONDS)
