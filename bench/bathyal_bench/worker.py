"""A process that measures one system: it reads a job from stdin and appends records to a file, one a line.

A process a system, so that memory and counters are its own. What its libraries print goes to the parent's log.
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

# Calls before latencies count.
WARMING_CALLS = 20
# Queries between two looks at the page cache, where it is limited: few, as a query may bring in megabytes, and
# fewer while they bring in more than the share of the limit, but never less than two for each thread.
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
    # Some libraries crash while they are taken down, when all is measured.
    sys.stdout.flush()
    os._exit(0)


def work(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of a job."""
    kind = peer_class(job["peer"])
    data = DataSet.from_json(job["data"])
    told = job.get("options", job.get("search", {}))
    if data.metric not in told.get("metrics", kind.metrics):
        if data.metric != "cosine":
            raise Unsupported(f"does not know the metric {data.metric}")
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
    """Builds into the job's folder."""
    index = Path(job["index"])
    index.mkdir(parents=True)
    forget([peer.data.base])
    started = time.perf_counter()
    told = peer.build(index, job["options"])
    seconds = time.perf_counter() - started
    record = {
        "kind": "build",
        "build_seconds": seconds,
        "build_peak_rss_bytes": memory_bytes("VmHWM"),
        "index_bytes": folder_bytes(index),
        "version": peer.version(),
    }
    return record | told


def program_records(peer: ProgramPeer, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of a system that measures itself."""
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
    """Opens the index and measures each effort; when cold, it is opened for each anew."""
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
        # What the bench itself takes to compare answers is not the system's.
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
            # What is mapped is in the memory of the process; this is what comes on top.
            "cached_bytes": cache.most if peer.cached_by_kernel else 0,
            "page_cache": cache.limit if peer.cached_by_kernel else None,
        }
        yield record
        if cold:
            peer.close()
            gc.collect()
        reset_peak()


def open_index(peer: Peer, index: Path, options: dict[str, Any], start: int) -> dict[str, Any]:
    """Opens the index; what that took."""
    # Files were read before, to cache them; that is not the system's memory.
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
    """All queries at once, again until enough time has passed; a cold index is asked but once.

    The record, and the most memory that the process held until then.
    """
    least = 0.0 if job["cache"] == "cold" else job["least_seconds"]
    before, passes, seconds = read_counters(), 0, 0.0
    while passes == 0 or seconds < least:
        found, taken = answer(peer, queries, job["k"], cache)
        passes, seconds = passes + 1, seconds + taken
    after, peak = read_counters(), memory_bytes("VmHWM")
    if peer.cached_by_kernel:
        cache.settle()
    answered = passes * len(queries)
    from_device = after["read_bytes"] - before["read_bytes"]
    counted = peer.counters()
    # The kernel counts bytes; as reads, those are given in pages.
    asked, asked_bytes = from_device / PAGE_BYTES / answered, from_device / answered
    if counted is not None:
        asked, asked_bytes = counted[0] / len(queries), counted[1] / len(queries)
    # A system may count what it asks of a memory or cache of its own; the rest came from the device.
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


def answer(peer: Peer, queries: NDArray[Any], k: int, cache: PageCache) -> tuple[NDArray[Any], float]:
    """The ids of a batch, and seconds; in parts where the page cache has to be kept small meanwhile."""
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
    """One query at a time, from the caller's side: microseconds."""
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
