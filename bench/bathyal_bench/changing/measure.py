"""One repeat of one system, step by step."""

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

# Rows of one call.
BATCH = 1000
# Shares of the rows that match.
SHARES = (1.0, 0.5, 0.1, 0.01, 0.001, 0.0001)
# Shares of the rows that are replaced.
REPLACED = (0.1, 0.5)
# Small tables in one process, or as many as are made in so many seconds, and rows of each.
SMALL, SMALL_SECONDS, SMALL_ROWS = 1000, 60.0, 20
# Seconds in which single queries are measured alone.
ALONE_SECONDS = 2.0
# Queries of a measurement of selectivity take no longer, about.
LONGEST_SECONDS = 5.0


@dataclass
class Rows:
    """What the systems hold: vectors and a number of each row, and vectors that take their places."""

    vectors: Vectors
    spare: Vectors
    shares: Vectors
    ids: Vectors

    @staticmethod
    def of(base: Vectors, count: int) -> Rows:
        """The first ``count`` rows; the next ones are spare."""
        shares = np.random.default_rng(7).random(count, dtype=np.float32)
        spare = np.array(base[count : 2 * count])
        return Rows(np.array(base[:count]), spare, shares, np.arange(count, dtype=np.uint64))

    def exact(self, queries: Vectors, share: float = 1.0) -> list[Vectors]:
        """The ids of the nearest rows that match, of each query."""
        matching = np.flatnonzero(self.shares < share) if share < 1 else np.arange(len(self.vectors))
        held = self.vectors[matching].astype(np.float32)
        squares = (held * held).sum(axis=1)
        answers = []
        for query in queries.astype(np.float32):
            distances = squares - 2 * held @ query
            nearest = np.argsort(distances, kind="stable")[:K]
            answers.append(self.ids[matching[nearest]])
        return answers


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def batches(rows: int) -> Iterator[Vectors]:
    """Row numbers of each call."""
    for first in range(0, rows, BATCH):
        yield np.arange(first, min(first + BATCH, rows))


def recall(exact: list[Vectors], found: list[Vectors]) -> float:
    """The mean share of the true neighbours that were found; queries without any are left out."""
    k = max((len(true) for true in exact), default=0)
    filled = [np.pad(true.astype(np.int64), (0, k - len(true)), constant_values=-1) for true in exact]
    return recall_at(found, filled, None, k)


def fill(system: System, rows: Rows, threads: int, synced: bool = False) -> float:
    """Rows a second that so many threads add to a new table; all disks are ``synced`` after each call, or not."""
    system.create(rows.vectors.shape[1], rows.vectors.dtype)

    def add(some: Vectors) -> None:
        system.add(rows.ids[some], rows.vectors[some], rows.shares[some])
        if synced:
            os.sync()

    with ThreadPoolExecutor(threads) as pool:
        seconds, _ = timed(lambda: list(pool.map(add, batches(len(rows.vectors)))))
    return len(rows.vectors) / seconds


def tune(system: System, queries: Vectors, exact: list[Vectors]) -> float:
    """Takes the least effort with the recall that is wanted, or the largest; what it finds."""
    found = 0.0
    for effort in system.efforts:
        system.effort = effort
        system.tuned()
        found = recall(exact, system.search(queries))
        if found >= WANTED:
            break
    return found


def speed(system: System, queries: Vectors, exact: list[Vectors], share: float = 1.0) -> tuple[float, float]:
    """Queries a second, and the recall."""
    few = queries[:20]
    each = timed(lambda: system.search(few, share))[0] / len(few)
    asked = queries[: max(20, int(LONGEST_SECONDS / each))]
    system.search(asked[:100], share)
    seconds, found = timed(lambda: system.search(asked, share))
    return len(asked) / seconds, recall(exact[: len(asked)], found)


def replaced(system: System, rows: Rows, queries: Vectors) -> dict[str, float]:
    """Searches after more and more rows were given other vectors: before and after these were taken in."""
    told = {}
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
        told[f"upserts_a_second_{share}"] = len(changed) / (time.perf_counter() - began)
        exact = rows.exact(queries)
        told[f"qps_pending_{share}"], told[f"recall_pending_{share}"] = speed(system, queries, exact)
        told[f"settle_seconds_{share}"] = timed(system.settle)[0]
        told[f"qps_settled_{share}"], told[f"recall_settled_{share}"] = speed(system, queries, exact)
    return told


def meanwhile(system: System, rows: Rows, queries: Vectors) -> dict[str, float]:
    """Latencies of single queries, alone and while a system takes in a quarter of the rows."""

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
    beside = latencies(lambda: not worker.is_alive())
    worker.join()
    told = {"settling_queries": float(len(beside))}
    for name, times in (("alone", alone), ("settling", beside)):
        for part, share in (("p50", 0.5), ("p99", 0.99)):
            told[f"{part}_ms_{name}"] = float(np.quantile(times, share)) * 1e3
    return told


def until_found(system: System, rows: Rows) -> float:
    """Seconds until a row that was added is found."""
    number, target = len(rows.ids), rows.spare[:1]
    system.add(np.array([number], np.uint64), target, rows.shares[:1])
    began = time.perf_counter()
    while number not in system.search(target)[0].astype(np.int64):
        pass
    return time.perf_counter() - began


class Children:
    """Steps that want a process of their own: to be killed, or for its memory to be looked at."""

    def __init__(self, kind: type[System], work: Path, given: tuple[Path, Path, int]) -> None:
        """``given``: the base, the queries, the rows."""
        words = [kind.package, str(work), *(str(word) for word in given)]
        self.command = [sys.executable, "-m", "bathyal_bench.changing.child", *words]
        # Milvus Lite serves with a process of its own, which is to end with the child.
        self.options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}

    def run(self, step: str, effort: Any) -> dict[str, float]:
        """What a child tells at its end."""
        with subprocess.Popen([*self.command, step, json.dumps(effort)], **self.options) as child:
            out, _ = child.communicate()
        if child.returncode:
            raise RuntimeError(f"{step}: ended with {child.returncode}")
        told: dict[str, float] = json.loads(out.splitlines()[-1])
        return told

    def kill_after(self, step: str, effort: Any) -> None:
        """Kills a child with all that it has started, as soon as it says that it is ready."""
        with subprocess.Popen([*self.command, step, json.dumps(effort)], **self.options) as child:
            assert child.stdout
            for line in child.stdout:
                if line.strip() == "ready":
                    break
            os.killpg(child.pid, signal.SIGKILL)


def size(path: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


class Told(dict[str, Any]):
    """Figures by name, and on stderr what they took."""

    def __init__(self, name: str) -> None:
        """Of a system."""
        super().__init__()
        self.name, self.began = name, time.perf_counter()

    def step(self, name: str) -> None:
        """The end of a step."""
        now = time.perf_counter()
        print(f"{self.name}: {name}: {now - self.began:.1f} s", file=sys.stderr, flush=True)
        self.began = now


def measure_writing(kind: type[System], work: Path, rows: Rows) -> tuple[Told, System]:
    """How fast rows are written; the table as it is then."""
    told = Told(kind.name)
    # What others have written goes to the device before it is measured what this one waits for.
    os.sync()
    for threads in (1, 2) if kind.is_durable and not kind.syncs else ():
        kind.clear(work)
        system = kind(work)
        told[f"rows_a_second_synced_{threads}"] = fill(system, rows, threads, synced=True)
        system.close()
        told.step(f"written by {threads} and synced")
    for threads in (1, 2):
        kind.clear(work)
        system = kind(work)
        told[f"rows_a_second_{threads}"] = fill(system, rows, threads)
        if threads == 1:
            told["searchable_ms"] = 1e3 * until_found(system, rows)
            system.close()
        told.step(f"written by {threads}")
    return told, system


def measure(
    kind: type[System], work: Path, given: tuple[Path, Path, int], rows: Rows, queries: Vectors
) -> dict[str, Any]:
    """One repeat."""
    children = Children(kind, work, given)
    told, system = measure_writing(kind, work, rows)
    exact = rows.exact(queries)
    if kind.is_durable:
        told["qps_written"], told["recall_written"] = speed(system, queries, exact)
        told.step("searched as written")
    told["settle_seconds"] = timed(system.settle)[0]
    told.step("settled")
    told["recall"] = tune(system, queries, exact)
    told["effort"] = system.effort
    for share in SHARES:
        matching = rows.exact(queries, share)
        told[f"qps_{share}"], told[f"recall_{share}"] = speed(system, queries, matching, share)
        told.step(f"searched among {share}")
    system.close()
    told["bytes"] = size(system.path)
    told |= children.run("open", system.effort)
    told.step("opened")
    system.open()
    system.tuned()
    told |= replaced(system, rows, queries)
    told.step("replaced")
    told |= meanwhile(system, rows, queries)
    system.close()
    told["bytes_changed"] = size(system.path)
    told.step("settled while searched")
    if kind.is_durable:
        kind.clear(work)
        children.kill_after("fill", system.effort)
        after = children.run("open", system.effort)
        told |= {"recovery_seconds": after["open_seconds"], "rows_recovered": after["open_rows"]}
        told.step("killed and opened")
    kind.clear(work)
    told |= children.run("small", system.effort) | children.run("small-open", system.effort)
    told.step("small ones")
    kind.clear(work)
    return dict(told)
