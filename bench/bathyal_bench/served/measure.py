"""Starts a server, checks what it answers, and measures it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bathyal_bench.changing.measure import Rows, recall
from bathyal_bench.changing.systems import WANTED, Vectors
from bathyal_bench.cloud.servers import free_ports, relay_program
from bathyal_bench.datasets import read_vectors
from bathyal_bench.served.systems import SHARES, Served

# Numbers of connections.
CONNECTIONS = (1, 16, 64, 256)
# Seconds and repeats of a measurement, and the queries of all of them.
SECONDS, REPEATS, QUERIES = 1.5, 3, 1000
# Seconds until a server has to answer.
PATIENCE = 120.0


def measure(kind: type[Served], work: Path, data: tuple[Path, Path, int]) -> list[dict[str, Any]]:
    """Fills a system, and returns its figures for each share of matching rows."""
    base, queries, count = data
    prepare = ["-m", "bathyal_bench.served.prepare", kind.kind.package, work, base, count]
    subprocess.run([sys.executable, *map(str, prepare)], check=True)
    filled = json.loads((work / "filled.json").read_text())
    rows, asked = Rows.of(read_vectors(base), count), read_vectors(queries)[:QUERIES]
    return [
        of_share(kind, work, (rows, asked), share) | {"filled_seconds": filled["seconds"]} for share in SHARES
    ]


def of_share(kind: type[Served], work: Path, data: tuple[Rows, Vectors], share: float) -> dict[str, Any]:
    """Returns the figures with the least effort at which the server finds enough, or else with the largest."""
    rows, asked = data
    for effort in kind.kind.efforts:
        served = kind(work, free_ports(1)[0], effort)
        served.tune()
        with running(served, asked[0], share) as (process, cold_seconds):
            found = checked(served, rows, asked, share)
            if found < WANTED and effort != kind.kind.efforts[-1]:
                continue
            return {
                "share": share,
                "effort": effort,
                "cold_seconds": cold_seconds,
                "recall": found,
                "loads": loads(served, asked, share),
                "memory_bytes": resident(process.pid),
            }
    raise RuntimeError(f"{kind.kind.name} has no efforts")


@contextmanager
def running(served: Served, query: Vectors, share: float) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Runs a server; yields it with the seconds until its first answer."""
    words = [str(word) for word in served.command()]
    with open(served.work / "server.log", "wb") as log:
        began = time.perf_counter()
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            while not is_answered(served, query, share):
                if process.poll() is not None or time.perf_counter() - began > PATIENCE:
                    raise RuntimeError((served.work / "server.log").read_text()[-2000:])
                time.sleep(0.002)
            yield process, time.perf_counter() - began
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def is_answered(served: Served, query: Vectors, share: float) -> bool:
    """Sends one search; returns false if nobody listens yet."""
    try:
        request = served.request(query, share)
        headers = dict(header.split(": ", 1) for header in served.headers())
        headers["Content-Type"] = "application/json"
        url = f"http://127.0.0.1:{served.port}{request['path']}"
        sent = urllib.request.Request(url, request["body"].encode(), headers)
        with urllib.request.urlopen(sent, timeout=PATIENCE) as answer:
            return bool(served.ids(json.load(answer)))
    except (urllib.error.URLError, ConnectionError):
        return False


def client(served: Served, queries: Vectors, share: float, *options: Any) -> str:
    """Runs the client with the requests of the queries, and returns what it prints."""
    program = relay_program()
    if program is None:
        raise RuntimeError("bathyal-suites not found: cargo build --release -p bathyal-suites")
    requests = served.work / "requests.jsonl"
    requests.write_text("".join(json.dumps(served.request(query, share)) + "\n" for query in queries))
    words: list[Any] = [program, "load", "--address", f"127.0.0.1:{served.port}", "--requests", requests]
    for header in served.headers():
        words += ["--header", header]
    done = subprocess.run([str(word) for word in [*words, *options]], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def checked(served: Served, rows: Rows, queries: Vectors, share: float) -> float:
    """Returns the recall of what the server answers."""
    path = served.work / "answers.jsonl"
    client(served, queries, share, "--answers", path)
    found = [np.array(served.ids(json.loads(line)), np.int64) for line in path.read_text().splitlines()]
    return recall(rows.exact(queries, share), found)


def loads(served: Served, queries: Vectors, share: float) -> list[dict[str, Any]]:
    """Returns the speed with each number of connections."""
    connections = ",".join(map(str, CONNECTIONS))
    options = ["--connections", connections, "--seconds", SECONDS, "--repeats", REPEATS]
    return [json.loads(line) for line in client(served, queries, share, *options).splitlines()]


def resident(pid: int) -> int:
    """Returns the bytes of memory of a process and of those that it started."""
    status = Path(f"/proc/{pid}/status").read_text()
    own = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(resident(int(child)) for child in children)
