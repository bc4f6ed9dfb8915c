"""Progress on the terminal: one line a stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Receiver = Callable[[str, int, int], object]
"""Called with the stage's name, the steps done, and the steps in all; an exception in it stops the work."""

BAR_WIDTH = 30


class Bar:
    """Draws a bar that overwrites itself and leaves one line for each stage."""

    def __init__(self, stream: TextIO, lively: bool = True) -> None:
        self._stream = stream
        self._lively = lively
        self._stage: str | None = None
        self._start = 0.0
        self._line = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage or (done == 0 and self._line):
            self.finish()
            self._stage, self._start = stage, time.monotonic()
        share = done / total if total else 1.0
        seconds = time.monotonic() - self._start
        filled = round(BAR_WIDTH * share)
        self._line = f"  {stage:<22} {'█' * filled}{'░' * (BAR_WIDTH - filled)} {share:4.0%} {seconds:7.1f} s"
        if self._lively:
            self._stream.write("\r" + self._line)
            self._stream.flush()

    def finish(self) -> None:
        """Ends the present line."""
        if self._line:
            self._stream.write("\n" if self._lively else self._line + "\n")
            self._stream.flush()
        self._line, self._stage = "", None


@contextmanager
def shown(progress: bool | Receiver) -> Iterator[Receiver | None]:
    """The receiver for ``progress``: True draws a bar if stderr is seen as it is written, False shows nothing."""
    if callable(progress):
        yield progress
    # A notebook's stderr is no terminal and overwrites a line all the same.
    elif not progress or sys.stderr is None or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield None
    else:
        bar = Bar(sys.stderr)
        try:
            yield bar
        finally:
            bar.finish()
