"""Systems that are separate programs: each build and each effort is a process, measured from outside."""

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

# Seconds between two reads of a program's peak memory: growth in its last moment is missed.
PEAK_SECONDS = 0.02


@dataclass(frozen=True)
class Outcome:
    """Output, time, memory and reads of a process."""

    text: str
    seconds: float
    peak_rss_bytes: int
    read_bytes: int


@dataclass(frozen=True)
class Sweep:
    """The measurements that a program is to make."""

    index: Path
    work: Path
    k: int
    cache: str
    efforts: list[Options]
    queries: int
    latency_queries: int


class ProgramPeer(Peer):
    """A program that loads, times and counts by itself, and prints its figures."""

    def load_library(self) -> None:
        """Does nothing: there is no package to import."""

    def sweep(self, sweep: Sweep) -> Iterator[dict[str, Any]]:
        """Yields a record for each effort: recall, qps, latency_us and other figures that the program
        reports.
        """
        raise NotImplementedError


def run_program(
    words: list[str], environment: dict[str, str] | None = None, folder: Path | None = None
) -> Outcome:
    """Runs a program to its end, in ``folder`` if given.

    Raises:
        RuntimeError: the program failed; the message ends with the last lines of its output.
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
    with PeakMemory(process.pid) as memory:
        text = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        last = " / ".join(text.strip().splitlines()[-4:])
        raise RuntimeError(f"{words[0]} failed with {process.returncode}: {last}")
    seconds, peak = time.monotonic() - started, memory.peak or usage.ru_maxrss * 1024
    # This counter of the kernel is in blocks of 512 bytes, whatever the device's block size.
    return Outcome(text, seconds, peak, usage.ru_inblock * 512)


class PeakMemory:
    """Follows the peak of a program's resident memory while it runs.

    The kernel's figure after the end includes the parent process, whose memory the child shared for a moment
    after the fork: an interpreter with its packages is larger than some programs.
    """

    def __init__(self, process: int) -> None:
        self.peak = 0
        self.process = process
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.follow, daemon=True)

    def __enter__(self) -> PeakMemory:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def follow(self) -> None:
        """Reads the peak repeatedly until the program has ended."""
        while not self.ended.is_set():
            try:
                self.peak = max(self.peak, memory_bytes("VmHWM", self.process))
            except (KeyError, OSError):
                return  # The program has ended and is not reaped yet.
            self.ended.wait(PEAK_SECONDS)
