"""One repeat of the measurements of one system, step by step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bathyal_bench.changing.systems import WANTED, K, System, Vectors
from bathyal_bench.recall import recall_at

# Rows per call.
BATCH = 1000
# Shares of the rows that match a condition.
SHARES = (1.0, 0.5, 0.1, 0.01, 0.001, 0.0001)
# Shares of the rows that are replaced, cumulative.
REPLACED = (0.1, 0.5)
# Most small tables in one process, most seconds for making them, and rows of each.
SMALL, SMALL_SECONDS, SMALL_ROWS = 1000, 60.0, 20
# Seconds for single queries without other work.
ALONE_SECONDS = 2.0
# Approximate limit of seconds for the queries of a measurement of selectivity.
LONGEST_SECONDS = 5.0


@dataclass
class Rows:
    """The rows of a table: a vector and a number for each, and spare vectors to replace them."""

    vectors: Vectors
    spare: Vectors
    shares: Vectors
    ids: Vectors

    @staticmethod
    def of(base: Vectors, count: int) -> Rows:
        """Takes the first ``count`` rows; the next ones are spare."""
        shares = np.random.default_rng(7).random(count, dtype=np.float32)
        spare = np.array(base[count : 2 * count])
        return Rows(np.array(base[:count]), spare, shares, np.arange(count, dtype=np.uint64))

    def exact(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        """Returns for each query the ids of the nearest rows that match."""
        matching = np.flatnonzero(self.shares < share) if share < 1 else np.arange(len(self.vectors))
        candidates = self.vectors[matching].astype(np.float32)
        squares = (candidates * candidates).sum(axis=1)
        answers = []
        for query in queries.astype(np.float32):
            distances = squares - 2 * candidates @ query
            nearest = np.argsort(distances, kind="stable")[:K]
            answers.append(self.ids[matching[nearest]])
        return answers


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Runs ``work`` and returns the seconds and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def batches(rows: int) -> Iterator[Vectors]:
    """Yields the row numbers of each call."""
    for first in range(0, rows, BATCH):
        yield np.arange(first, min(first + BATCH, rows))


def recall(exact: list[Vectors], found: list[Vectors]) -> float:
    """Returns the mean share of the true neighbours that were found; queries without any are left out."""
    k = max((len(true) for true in exact), default=0)
    filled = [np.pad(true.astype(np.int64), (0, k - len(true)), constant_values=-1) for true in exact]
    return recall_at(found, filled, None, k)


def fill(system: System, rows: Rows, threads: int, synced: bool = False) -> float:
    """Fills a new table with ``threads`` threads and returns the rows per second.

    If ``synced``, all disks are synced after each call.
    """
    system.create(rows.vectors.shape[1], rows.vectors.dtype)

    def add(some: Vectors) -> None:
        system.add(rows.ids[some], rows.vectors[some], rows.shares[some])
        if synced:
            os.sync()

    with ThreadPoolExecutor(threads) as pool:
        seconds, _ = timed(lambda: list(pool.map(add, batches(len(rows.vectors)))))
    return len(rows.vectors) / seconds


def tune(system: System, queries: Vectors, exact: list[Vectors]) -> float:
    """Sets the least effort that reaches the wanted recall, or the largest, and returns its recall."""
    found = 0.0
    for effort in system.efforts:
        system.effort = effort
        system.tuned()
        found = recall(exact, system.search(queries))
        if found >= WANTED:
            break
    return found


def speed(system: System, queries: Vectors, exact: list[Vectors], share: float = 1.0) -> tuple[float, float]:
    """Returns queries per second and recall."""
    few = queries[:20]
    seconds_per_query = timed(lambda: system.search(few, share))[0] / len(few)
    some = queries[: max(20, int(LONGEST_SECONDS / seconds_per_query))]
    system.search(some[:100], share)
    seconds, found = timed(lambda: system.search(some, share))
    return len(some) / seconds, recall(exact[: len(some)], found)


def measure_replacing(system: System, rows: Rows, queries: Vectors) -> dict[str, float]:
    """Replaces more and more rows, and measures searches before and after ``settle``."""
    figures = {}
    order = np.random.default_rng(8).permutation(len(rows.vectors))
    done = 0
    for share in REPLACED:
        changed = order[done : int(share * len(rows.vectors))]
        done += len(changed)
        rows.vectors[changed] = rows.spare[changed]
        began = time.perf_counter()
        for first in range(0, len(changed), BATCH):
            some = changed[first : first + BATCH]
            system.upsert(rows.ids[some], rows.vectors[some], rows.shares[some])
        figures[f"upserts_a_second_{share}"] = len(changed) / (time.perf_counter() - began)
        exact = rows.exact(queries)
        figures[f"qps_pending_{share}"], figures[f"recall_pending_{share}"] = speed(system, queries, exact)
        figures[f"settle_seconds_{share}"] = timed(system.settle)[0]
        figures[f"qps_settled_{share}"], figures[f"recall_settled_{share}"] = speed(system, queries, exact)
    return figures


def measure_settling(system: System, rows: Rows, queries: Vectors) -> dict[str, float]:
    """Measures latencies of single queries, alone and while the system settles a quarter of the rows."""

    def latencies(until: Callable[[], bool]) -> list[float]:
        times: list[float] = []
        while not until() or len(times) < 100:
            query = queries[len(times) % len(queries)]
            times.append(timed(lambda query=query: system.search(query[None]))[0])
        return times

    for some in batches(len(rows.ids) // 4):
        system.upsert(rows.ids[some], rows.spare[some], rows.shares[some])
    began = time.perf_counter()
    alone = latencies(lambda: time.perf_counter() - began > ALONE_SECONDS)
    worker = threading.Thread(target=system.settle)
    worker.start()
    settling = latencies(lambda: not worker.is_alive())
    worker.join()
    figures = {"settling_queries": float(len(settling))}
    for name, times in (("alone", alone), ("settling", settling)):
        for part, share in (("p50", 0.5), ("p99", 0.99)):
            figures[f"{part}_ms_{name}"] = float(np.quantile(times, share)) * 1e3
    return figures


def until_found(system: System, rows: Rows) -> float:
    """Adds a row and returns the seconds until a search finds it."""
    number, target = len(rows.ids), rows.spare[:1]
    system.add(np.array([number], np.uint64), target, rows.shares[:1])
    began = time.perf_counter()
    while number not in system.search(target)[0].astype(np.int64):
        pass
    return time.perf_counter() - began


class ChildProcesses:
    """Runs steps in processes of their own, which are killed or whose memory is measured."""

    def __init__(self, kind: type[System], work: Path, given: tuple[Path, Path, int]) -> None:
        """``given`` has the file of the base, the file of the queries, and the number of rows."""
        words = [kind.package, str(work), *(str(word) for word in given)]
        self.command = [sys.executable, "-m", "bathyal_bench.changing.child", *words]
        # Milvus Lite starts a server process, which must end with the child.
        self.options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}

    def run(self, step: str, effort: Any) -> dict[str, float]:
        """Runs a step to its end and returns its figures."""
        with subprocess.Popen([*self.command, step, json.dumps(effort)], **self.options) as child:
            out, _ = child.communicate()
        if child.returncode:
            raise RuntimeError(f"{step}: ended with {child.returncode}")
        figures: dict[str, float] = json.loads(out.splitlines()[-1])
        return figures

    def kill_after(self, step: str, effort: Any) -> None:
        """Starts a step and kills its process, with all that it started, once it prints ``ready``."""
        with subprocess.Popen([*self.command, step, json.dumps(effort)], **self.options) as child:
            assert child.stdout
            for line in child.stdout:
                if line.strip() == "ready":
                    break
            os.killpg(child.pid, signal.SIGKILL)


def size(path: Path) -> int:
    """Returns the bytes of all files in a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


class Figures(dict[str, Any]):
    """Figures by name; prints the duration of each step to stderr."""

    def __init__(self, name: str) -> None:
        """Starts without figures; ``name`` is the system's."""
        super().__init__()
        self.name, self.began = name, time.perf_counter()

    def step(self, name: str) -> None:
        """Ends a step."""
        now = time.perf_counter()
        print(f"{self.name}: {name}: {now - self.began:.1f} s", file=sys.stderr, flush=True)
        self.began = now


def measure_writing(kind: type[System], work: Path, rows: Rows) -> tuple[Figures, System]:
    """Measures how fast rows are written; returns the figures and the table."""
    figures = Figures(kind.name)
    # Sync now, so that this system does not wait for data that others have written.
    os.sync()
    for threads in (1, 2) if kind.is_durable and not kind.syncs else ():
        kind.clear(work)
        system = kind(work)
        figures[f"rows_a_second_synced_{threads}"] = fill(system, rows, threads, synced=True)
        system.close()
        figures.step(f"written by {threads} and synced")
    for threads in (1, 2):
        kind.clear(work)
        system = kind(work)
        figures[f"rows_a_second_{threads}"] = fill(system, rows, threads)
        if threads == 1:
            figures["searchable_ms"] = 1e3 * until_found(system, rows)
            system.close()
        figures.step(f"written by {threads}")
    return figures, system


def measure(
    kind: type[System], work: Path, given: tuple[Path, Path, int], rows: Rows, queries: Vectors
) -> dict[str, Any]:
    """Runs one repeat and returns its figures."""
    children = ChildProcesses(kind, work, given)
    figures, system = measure_writing(kind, work, rows)
    exact = rows.exact(queries)
    if kind.is_durable:
        figures["qps_written"], figures["recall_written"] = speed(system, queries, exact)
        figures.step("searched as written")
    figures["settle_seconds"] = timed(system.settle)[0]
    figures.step("settled")
    figures["recall"] = tune(system, queries, exact)
    figures["effort"] = system.effort
    for share in SHARES:
        matching = rows.exact(queries, share)
        figures[f"qps_{share}"], figures[f"recall_{share}"] = speed(system, queries, matching, share)
        figures.step(f"searched among {share}")
    system.close()
    figures["bytes"] = size(system.path)
    figures |= children.run("open", system.effort)
    figures.step("opened")
    system.open()
    system.tuned()
    figures |= measure_replacing(system, rows, queries)
    figures.step("replaced")
    figures |= measure_settling(system, rows, queries)
    system.close()
    figures["bytes_changed"] = size(system.path)
    figures.step("settled while searched")
    if kind.is_durable:
        kind.clear(work)
        children.kill_after("fill", system.effort)
        after = children.run("open", system.effort)
        figures |= {"recovery_seconds": after["open_seconds"], "rows_recovered": after["open_rows"]}
        figures.step("killed and opened")
    kind.clear(work)
    figures |= children.run("small", system.effort) | children.run("small-open", system.effort)
    figures.step("small ones")
    kind.clear(work)
    return dict(figures)
