"""Long calls let other threads run; Ctrl-C ends them at once without partial output."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import bathyal
from conftest import clustered

LONG = {"family": "graph", "max_degree": 64, "search_list": 400, "threads": 1}
"""Options of a build that takes many seconds, so that tests can interrupt it."""
COUNT = 20_000


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "base.u8bin"
    bathyal.write_vectors(path, clustered("u8", COUNT, 64, 1))
    return path


class Stop(Exception):
    pass


def test_other_threads_run_during_a_build(base, tmp_path):
    turns = 0
    building = threading.Event()
    ended = threading.Event()

    def count():
        nonlocal turns
        building.wait()
        while not ended.is_set():
            turns += 1

    def stop_after_some(stage, done, total):
        building.set()
        if turns > 10_000:
            raise Stop

    counter = threading.Thread(target=count)
    counter.start()
    try:
        with pytest.raises(Stop):
            bathyal.build(base, tmp_path / "i", **LONG, progress=stop_after_some)
    finally:
        building.set()
        ended.set()
        counter.join()
    assert turns > 10_000


def test_an_exception_in_the_receiver_stops_the_work(base, tmp_path):
    def stop(stage, done, total):
        if stage == "first pass":
            raise Stop(stage)

    with pytest.raises(Stop, match="first pass"):
        bathyal.build(base, tmp_path / "i", **LONG, progress=stop)
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import signal, sys, bathyal, numpy
# A shell that runs tests in the background makes its children ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
folder, base, index = sys.argv[1:]
def began(stage, done, total):
    if stage in ("first pass", "exact neighbours"):
        print("began", flush=True)
try:
    {work}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""


@pytest.mark.parametrize(
    "work",
    [
        f"bathyal.build(base, folder + '/i', progress=began, **{LONG})",
        "bathyal.groundtruth(base, base, 'l2', k=100, threads=1, progress=began)",
        # Many minutes of searching.
        "began('first pass', 0, 0); "
        "bathyal.open(index).search(numpy.ones((300_000, 24), numpy.float32), search_list=1000)",
        # One query after the other, each on the calling thread.
        "index = bathyal.open(index, tier='dram'); began('first pass', 0, 0); "
        "any(index.search(numpy.ones(24, numpy.float32)) is None for _ in iter(int, 1))",
    ],
)
def test_ctrl_c_ends_the_work_at_once(work, base, index_path, tmp_path):
    program = textwrap.dedent(PROGRAM).format(work=work)
    command = [sys.executable, "-c", program, str(tmp_path), str(base), str(index_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"began\n"
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    out, err = process.communicate(timeout=60)
    # The promise is 100 ms; a machine that is busy with other tests may be late.
    assert time.monotonic() - asked < 10
    assert b"interrupted" in out and b"KeyboardInterrupt" in err, err
    assert process.returncode == -signal.SIGINT
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_command(base, tmp_path):
    command = [sys.executable, "-m", "bathyal", "build", str(base), str(tmp_path / "i")]
    options = ["--metric", "l2", "--threads", "1", "--family", "graph", "--search-list", "400"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    # The build begins by creating a folder beside the target.
    while not os.listdir(tmp_path):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []
