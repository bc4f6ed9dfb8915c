"""Progress bars on terminals, and calls of receivers."""

import io
import os
import pty
import signal
import subprocess
import sys

import numpy as np
import pytest

import bathyal
from bathyal.progress import Bar, progress_receiver


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_leaves_a_line_for_each_stage():
    stream = Terminal()
    bar = Bar(stream)
    for stage in ("first", "second"):
        for done in (0, 50, 100):
            bar(stage, done, 100)
    bar("nothing to do", 0, 0)
    bar.finish()
    lines = stream.getvalue().split("\n")
    assert len(lines) == 4 and lines[-1] == ""
    for line, stage in zip(lines, ("first", "second", "nothing to do"), strict=False):
        assert stage in line.rsplit("\r", 1)[-1] and "100%" in line.rsplit("\r", 1)[-1]


def test_a_stage_that_begins_again_has_a_line_of_its_own():
    stream = Terminal()
    bar = Bar(stream)
    for _ in range(2):
        bar("again", 0, 10)
        bar("again", 10, 10)
    bar.finish()
    bar.finish()
    assert stream.getvalue().count("\n") == 2


def test_without_a_terminal_each_stage_gets_one_line():
    stream = io.StringIO()
    bar = Bar(stream, lively=False)
    for done in (0, 5, 10):
        bar("first", done, 10)
    bar.finish()
    assert stream.getvalue().startswith("  first ") and stream.getvalue().endswith(" s\n")
    assert stream.getvalue().count("\n") == 1 and "\r" not in stream.getvalue()


def test_a_bar_is_drawn_only_on_terminals_and_in_notebooks(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_receiver(True) as bar:
        assert isinstance(bar, Bar)
    with progress_receiver(False) as nobody:
        assert nobody is None
    with progress_receiver(print) as receiver:
        assert receiver is print
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_receiver(True) as nobody:
            assert nobody is None


def test_a_bar_that_is_interrupted_ends_its_line(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(KeyboardInterrupt), progress_receiver(True) as bar:
        bar("half", 0, 10)
        bar("half", 5, 10)
        raise KeyboardInterrupt
    assert stream.getvalue().endswith("\n") and "half" in stream.getvalue()


PROGRAM = """
import signal, sys, numpy, bathyal
signal.signal(signal.SIGINT, signal.default_int_handler)
rows = numpy.random.default_rng(1).integers(0, 256, (20_000, 64), dtype=numpy.uint8)
try:
    bathyal.build(rows, sys.argv[1], family="graph", max_degree=64, search_list=400, threads=1)
except KeyboardInterrupt:
    print("stopped", file=sys.stderr, flush=True)
"""


def test_ctrl_c_leaves_the_line_clean(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "i")], stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"first pass" not in seen:
        seen += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    while True:
        try:
            some = os.read(ours, 4096)
        except OSError:
            break
        if not some:
            break
        seen += some
    process.wait(timeout=60)
    lines = seen.replace(b"\r\n", b"\n").split(b"\n")
    assert b"stopped" in lines, seen
    assert list(tmp_path.iterdir()) == []


def test_a_receiver_is_called_for_every_stage(tmp_path):
    steps = []
    rows = np.random.default_rng(1).random((500, 8), dtype=np.float32)
    bathyal.build(rows, tmp_path / "i", progress=lambda *step: steps.append(step)).close()
    assert steps and all(0 <= done <= total for _, done, total in steps)
