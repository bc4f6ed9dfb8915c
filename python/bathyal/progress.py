"""Progress on the terminal or in a notebook: a bar of tqdm per stage."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

Receiver = Callable[[str, int, int], object]
"""Called with the name of the stage, the steps done and all steps; an exception in it stops the work."""

STAGE_WIDTH = 22
USUAL_SIZE = (80, 24)
LEAST_SECONDS = 0.05
"""Seconds between two updates of a bar."""
FORMAT = "  {desc} {bar:30} {percentage:3.0f}% {elapsed}"


class Bar:
    """Draws a bar for each stage, or writes a line at the end of each stage if not ``lively``."""

    def __init__(self, stream: TextIO, lively: bool = True) -> None:
        self._stream = stream
        self._lively = lively
        self._stage: str | None = None
        self._start = 0.0
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage or (done == 0 and self._stage is not None):
            self.finish()
            self._stage, self._start = stage, time.monotonic()
            if self._lively:
                self._bar = _bar(self._stream, stage, total)
        if self._bar is not None:
            # A stage without steps is complete at once.
            self._bar.update(self._bar.total - self._bar.n if total == 0 else done - self._bar.n)

    def finish(self) -> None:
        """Ends the current bar or line."""
        if self._bar is not None:
            self._bar.close()
        elif self._stage is not None:
            seconds = time.monotonic() - self._start
            self._stream.write(f"  {self._stage:<{STAGE_WIDTH}} {seconds:7.1f} s\n")
            self._stream.flush()
        self._stage = self._bar = None


def _bar(stream: TextIO, stage: str, total: int) -> Any:
    with warnings.catch_warnings():
        # Without widgets a notebook gets a bar of text; the warning is not needed.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    columns, lines = _size(stream)
    return tqdm(
        total=max(total, 1),
        desc=f"{stage:<{STAGE_WIDTH}}",
        file=stream,
        bar_format=FORMAT,
        ncols=columns,
        nrows=lines,
        mininterval=LEAST_SECONDS,
    )


def _size(stream: TextIO) -> tuple[int, int] | tuple[None, None]:
    """Returns the columns and lines of a terminal, with defaults if it does not report them; None for other
    streams."""
    if not stream.isatty():
        return None, None
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns = lines = 0
    return columns or USUAL_SIZE[0], lines or USUAL_SIZE[1]


@contextmanager
def progress_receiver(progress: bool | Receiver) -> Iterator[Receiver | None]:
    """Yields the receiver for ``progress``: True draws a bar if stderr is a terminal or a notebook, False
    shows nothing."""
    if callable(progress):
        yield progress
    # The stderr of a notebook is not a terminal, but can overwrite a line.
    elif not progress or sys.stderr is None or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield None
    else:
        bar = Bar(sys.stderr)
        try:
            yield bar
        finally:
            bar.finish()
