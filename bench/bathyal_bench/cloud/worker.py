"""A process that builds or measures one system in an object store. It reads a job from stdin and appends
records to a file, one per line.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.cloud.servers import Store, take_counts
from bathyal_bench.cloud.systems import Answers, LanceDb, System, systems
from bathyal_bench.datasets import DataSet, read_vectors
from bathyal_bench.process import memory_bytes, reset_peak
from bathyal_bench.recall import read_groundtruth, recall_at

# Queries in flight when only the results count, or to fill caches.
OFF_THE_CLOCK = 16

Records = Iterator[dict[str, Any]]


def main() -> int:
    job = json.loads(sys.stdin.read())
    data = DataSet.from_json(job["data"])
    system = systems(data)[job["system"]]
    with open(job["output"], "a", encoding="utf-8") as output:
        try:
            system.load_library()
            for record in TASKS[job["task"]](system, job):
                output.write(json.dumps(record) + "\n")
                output.flush()
        except ImportError as error:
            output.write(json.dumps({"kind": "skipped", "reason": f"cannot be imported: {error}"}) + "\n")
    # Exit without cleanup: libraries may wait for their connections.
    sys.stdout.flush()
    os._exit(0)


def build(system: System, job: dict[str, Any]) -> Records:
    """Builds at the server itself, not through the relay, unless the index exists."""
    began = time.perf_counter()
    built = system.build(Store(**job["server"]), job["scratch"], job["rebuild"])
    yield {
        "kind": "build",
        "built": built,
        "seconds": time.perf_counter() - began,
        "options": system.options,
        "version": system.version(),
    }


def survey(system: System, job: dict[str, Any]) -> Records:
    """Yields the recall of every effort, measured at the server itself: results do not depend on its
    speed.
    """
    server, k = Store(**job["server"]), job["k"]
    if isinstance(system, LanceDb):
        system.learn_row_ids(server)
    system.open(server)
    queries = first_queries(system, job["queries"])
    for effort in system.efforts():
        found = system.search(queries, k, effort, OFF_THE_CLOCK).ids
        yield {"kind": "survey", "effort": effort, "recall": recall(system, found, k)}


def warm(system: System, job: dict[str, Any]) -> Records:
    """Opens the index through the relay, warms it, then measures all efforts at every concurrency."""
    relay, k, efforts = Store(**job["relay"]), job["k"], job["efforts"]
    if isinstance(system, LanceDb):
        system.learn_row_ids(Store(**job["server"]))
    gc.collect()
    reset_peak()
    start = memory_bytes("VmRSS")
    take_counts(relay)
    began = time.perf_counter()
    system.open(relay)
    system.warm(k)
    # Warm with other queries than the measured ones, at the highest effort.
    others = last_queries(system, job["warming_queries"])
    system.search(others, k, efforts[-1], OFF_THE_CLOCK)
    opened = {"warming_seconds": time.perf_counter() - began, "warming_counts": take_counts(relay)}
    for concurrency, count in job["concurrencies"]:
        queries = first_queries(system, count)
        for effort in efforts:
            # Set up connections, threads and buffers for this concurrency.
            system.search(others[:concurrency], k, effort, concurrency)
            take_counts(relay)
            answers = system.search(queries, k, effort, concurrency)
            counts = take_counts(relay)
            record = (
                figures(answers, counts)
                | opened
                | {"kind": "search", "effort": effort, "threads": concurrency}
            )
            record["recall"] = recall(system, answers.ids, k)
            # The peak since the index was opened, over all searches so far.
            yield record | {"dram_bytes": memory_bytes("VmHWM") - start}


def cold(system: System, job: dict[str, Any]) -> Records:
    """Measures the first answer of a process that has not seen the index, from opening it to the answer."""
    relay = Store(**job["relay"])
    query = first_queries(system, job["row"] + 1)[job["row"] :]
    gc.collect()
    reset_peak()
    start = memory_bytes("VmRSS")
    take_counts(relay)
    began = time.perf_counter()
    system.open(relay)
    opened = time.perf_counter()
    opening = take_counts(relay)
    search_start = time.perf_counter()
    answers = system.search(query, job["k"], job["effort"], 1)
    search_end = time.perf_counter()
    counts = take_counts(relay)
    if not (answers.ids >= 0).all():
        raise ValueError(f"{system.name}: fewer than {job['k']} answers")
    yield {
        "kind": "cold",
        "effort": job["effort"],
        "open_seconds": opened - began,
        "query_seconds": search_end - search_start,
        "seconds": opened - began + search_end - search_start,
        "open_reads": opening["reads"],
        "open_bytes": opening["read_bytes"],
        "reads": opening["reads"] + counts["reads"],
        "bytes": opening["read_bytes"] + counts["read_bytes"],
        "dram_bytes": memory_bytes("VmHWM") - start,
    }


TASKS = {"build": build, "survey": survey, "warm": warm, "cold": cold}


def figures(answers: Answers, counts: dict[str, int]) -> dict[str, Any]:
    """Returns the figures of a batch: times, and counts of the relay."""
    queries = len(answers.ids)
    p50, p99 = np.percentile(answers.latencies_ms, [50, 99], method="inverted_cdf") * 1e3
    return {
        "qps": queries / answers.seconds,
        "batch_queries": queries,
        "latency_us": {
            "mean": float(answers.latencies_ms.mean()) * 1e3,
            "p50": float(p50),
            "p99": float(p99),
        },
        "reads_per_query": counts["reads"] / queries,
        "bytes_per_query": counts["read_bytes"] / queries,
        "refused": counts["refused"],
        "reads_source": "relay",
    }


def first_queries(system: System, count: int) -> NDArray[Any]:
    """Returns the first of the set's queries, converted for the system."""
    return system.prepare_queries(np.array(read_vectors(system.data.queries)[:count]))


def last_queries(system: System, count: int) -> NDArray[Any]:
    """Returns the last of the set's queries, converted for the system."""
    return system.prepare_queries(np.array(read_vectors(system.data.queries)[-count:]))


def recall(system: System, found: NDArray[np.int64], k: int) -> float:
    """Returns the recall of the results of the first queries."""
    ids, distances = read_groundtruth(system.data.groundtruth)
    return recall_at(found, ids, distances, k)


if __name__ == "__main__":
    sys.exit(main())
