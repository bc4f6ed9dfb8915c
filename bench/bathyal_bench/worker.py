"""A process that measures one system: it reads a job from stdin and appends records to a file, one per line.

Each system has its own process, so that memory and counters are its own. Output of its libraries goes to the
parent's log.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.datasets import DataSet, read_vectors, with_unit_lengths
from bathyal_bench.page_cache import PageCache, forget, remember
from bathyal_bench.peers import peer_class
from bathyal_bench.peers.peer import Peer, Unsupported
from bathyal_bench.peers.program import ProgramPeer, Sweep
from bathyal_bench.process import (
    PAGE_BYTES,
    files_below,
    folder_bytes,
    limit_processors,
    memory_bytes,
    read_counters,
    reset_peak,
)
from bathyal_bench.ratio import overall_ratio
from bathyal_bench.recall import read_groundtruth, recall_at

# Calls before the measurement of latencies.
WARMING_CALLS = 20
# Queries between two checks of the page cache, if it is limited. A query may read megabytes into the cache,
# so there are few of them. They become fewer, but not less than two per thread, while they exceed the limit
# by more than this share.
PART_QUERIES = 16
PART_SHARE = 0.5


def main() -> int:
    job = json.loads(sys.stdin.read())
    if job["processors"]:
        limit_processors(job["processors"])
    with open(job["output"], "a", encoding="utf-8") as output:
        try:
            for record in work(job):
                output.write(json.dumps(record) + "\n")
                output.flush()
        except Unsupported as reason:
            output.write(json.dumps({"kind": "skipped", "reason": str(reason)}) + "\n")
        except ImportError as error:
            reason_text = f"cannot be imported ({error}): make bench-peers"
            output.write(json.dumps({"kind": "skipped", "reason": reason_text}) + "\n")
        output.flush()
    # Exit without cleanup: some libraries crash in it, after all measurements.
    sys.stdout.flush()
    os._exit(0)


def work(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the records of a job."""
    kind = peer_class(job["peer"])
    data = DataSet.from_json(job["data"])
    options = job.get("options", job.get("search", {}))
    if data.metric not in options.get("metrics", kind.metrics):
        if data.metric != "cosine":
            raise Unsupported(f"does not support the metric {data.metric}")
        data = with_unit_lengths(data, Path(job["work"]))
    peer = kind(data, job["threads"])
    peer.load_library()
    if job["task"] == "build":
        yield build(peer, job)
    elif isinstance(peer, ProgramPeer):
        yield from program_records(peer, job)
    else:
        yield from search(peer, job)


def build(peer: Peer, job: dict[str, Any]) -> dict[str, Any]:
    """Builds the index into the job's folder and returns the record."""
    index = Path(job["index"])
    index.mkdir(parents=True)
    forget([peer.data.base])
    started = time.perf_counter()
    reported = peer.build(index, job["options"])
    seconds = time.perf_counter() - started
    record = {
        "kind": "build",
        "build_seconds": seconds,
        "build_peak_rss_bytes": memory_bytes("VmHWM"),
        "index_bytes": folder_bytes(index),
        "version": peer.version(),
    }
    return record | reported


def program_records(peer: ProgramPeer, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the records of a system that measures itself."""
    total = len(read_vectors(peer.data.queries))
    sweep = Sweep(
        Path(job["index"]),
        Path(job["work"]),
        job["k"],
        job["cache"],
        [job["search"] | effort for effort in job["efforts"]],
        min(job["queries"] or total, total),
        job["latency_queries"],
    )
    for effort, record in zip(job["efforts"], peer.sweep(sweep), strict=True):
        yield {"kind": "search", "effort": effort} | record


def search(peer: Peer, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Opens the index and measures each effort; a cold index is opened anew for each effort."""
    exact = read_groundtruth(peer.data.groundtruth)
    all_queries = read_vectors(peer.data.queries)
    queries = peer.prepare_queries(np.array(all_queries[: job["queries"] or len(all_queries)]))
    index = Path(job["index"])
    files = files_below(index)
    cold = job["cache"] == "cold"
    gc.collect()
    reset_peak()
    start = memory_bytes("VmRSS")
    opened = None
    for effort in job["efforts"]:
        if cold or opened is None:
            (forget if cold else remember)(files)
            opened = open_index(peer, index, job["open"], start)
        peer.set_effort(job["search"] | effort)
        if not cold:
            peer.search(queries[: job["warming_queries"]], job["k"])
        cache = PageCache(files, job["page_cache"] if cold else None)
        record, peak = measure_batch(peer, queries, job, exact, cache)
        # The bench's own memory for comparing results does not count as the system's.
        reset_peak()
        if cold:
            peer.close()
            reset_peak()
            forget(files)
            peer.open(index, job["open"])
            peer.set_effort(job["search"] | effort)
        record["latency_us"] = measure_latency(peer, queries[: job["latency_queries"]], job["k"], cold, cache)
        record["latency_queries"] = min(len(queries), job["latency_queries"])
        searching = max(peak, memory_bytes("VmHWM")) - start
        record |= opened | {
            "kind": "search",
            "effort": effort,
            "dram_bytes": max(searching, opened["open_peak_bytes"]),
            "dram_searching_bytes": searching,
            "resident_file_bytes": memory_bytes("RssFile"),
            "note": peer.note,
            "cached_by_kernel": peer.cached_by_kernel,
            # Mapped pages count in the memory of the process; these bytes are in addition to them.
            "cached_bytes": cache.most if peer.cached_by_kernel else 0,
            "page_cache": cache.limit if peer.cached_by_kernel else None,
        }
        yield record
        if cold:
            peer.close()
            gc.collect()
        reset_peak()


def open_index(peer: Peer, index: Path, options: dict[str, Any], start: int) -> dict[str, Any]:
    """Opens the index and returns time and memory of that."""
    # Memory for reading the files into the page cache does not count as the system's.
    reset_peak()
    began = time.perf_counter()
    peer.open(index, options)
    seconds = time.perf_counter() - began
    peak = memory_bytes("VmHWM") - start
    reset_peak()
    return {"open_seconds": seconds, "open_peak_bytes": peak}


def measure_batch(
    peer: Peer, queries: NDArray[Any], job: dict[str, Any], exact: tuple[Any, Any], cache: PageCache
) -> tuple[dict[str, Any], int]:
    """Measures all queries in one batch, repeatedly until enough time has passed, but only once if the index
    is cold.

    Returns the record, and the peak memory of the process until then.
    """
    least = 0.0 if job["cache"] == "cold" else job["least_seconds"]
    before, passes, seconds = read_counters(), 0, 0.0
    while passes == 0 or seconds < least:
        found, taken = search_batch(peer, queries, job["k"], cache)
        passes, seconds = passes + 1, seconds + taken
    after, peak = read_counters(), memory_bytes("VmHWM")
    if peer.cached_by_kernel:
        cache.settle()
    answered = passes * len(queries)
    from_device = after["read_bytes"] - before["read_bytes"]
    counted = peer.counters()
    # The kernel counts bytes, so reads are given in pages.
    asked, asked_bytes = from_device / PAGE_BYTES / answered, from_device / answered
    if counted is not None:
        asked, asked_bytes = counted[0] / len(queries), counted[1] / len(queries)
    # A system may count reads that its own memory or cache answers; only the others came from the device.
    share = min(1.0, from_device / answered / asked_bytes) if asked_bytes else 0.0
    record = {
        "recall": recall_at(found, exact[0], exact[1], job["k"]),
        **overall_ratio(found, exact[0], peer.data, job["k"]),
        "qps": answered / seconds,
        "batch_queries": len(queries),
        "passes": passes,
        "reads_per_query": asked * share,
        "bytes_per_query": asked_bytes * share,
        "asked_reads_per_query": asked,
        "reads_source": "kernel" if counted is None else "system",
        "kernel_read_bytes_per_query": from_device / answered,
        "read_calls_per_query": (after["read_calls"] - before["read_calls"]) / answered,
        "major_faults_per_query": (after["major_faults"] - before["major_faults"]) / answered,
    }
    return record, peak


def search_batch(peer: Peer, queries: NDArray[Any], k: int, cache: PageCache) -> tuple[NDArray[Any], float]:
    """Returns the ids of a batch, and seconds; searches in parts if the page cache has a limit."""
    limited = cache.limit is not None and peer.cached_by_kernel
    part = PART_QUERIES if limited else len(queries)
    found, first, seconds = [], 0, 0.0
    while first < len(queries):
        began = time.perf_counter()
        found.append(peer.search(queries[first : first + part], k))
        seconds += time.perf_counter() - began
        first += part
        if limited and cache.settle() > PART_SHARE:
            part = max(2 * peer.threads, part // 2)
    return np.concatenate(found), seconds


def measure_latency(
    peer: Peer, queries: NDArray[Any], k: int, cold: bool, cache: PageCache
) -> dict[str, float]:
    """Measures one query at a time, from the caller's side, in microseconds."""
    if not cold:
        for query in queries[:WARMING_CALLS]:
            peer.search_one(query, k)
    taken = np.empty(len(queries))
    clock = time.perf_counter_ns
    for row, query in enumerate(queries):
        began = clock()
        peer.search_one(query, k)
        taken[row] = (clock() - began) / 1e3
        if cache.limit is not None and peer.cached_by_kernel:
            cache.settle()
    if peer.cached_by_kernel:
        cache.settle()
    p50, p99 = np.percentile(taken, [50, 99], method="inverted_cdf")
    return {"mean": float(taken.mean()), "p50": float(p50), "p99": float(p99)}


if __name__ == "__main__":
    sys.exit(main())
