"""The part of the cost model of posting lists that reports need, and the errors of its predictions.

The equations are those of ``crates/index/src/families/spann/cost.rs``: equation 3 of second-tier-memory, and
equation 1 of cloud-native-vector-search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bathyal_bench.repro.numbers import fixed, median
from bathyal_bench.repro.records import Record

# The least that DRAM transfers, under every emulated device.
CACHE_LINE = 64


def error_line(rows: Sequence[Record]) -> str:
    """Returns a line with the errors of the model over all cells that it predicted, or nothing without any."""
    errors = [abs(row["error"]) for row in rows if row["error"] is not None]
    processor = [abs(row["processor_error"]) for row in rows if row["processor_error"] is not None]
    if not errors:
        return ""
    middle, worst, of_processor, worst_of_processor = (
        fixed(100.0 * value, 1)
        for value in (median(errors), max(errors), median(processor), max(processor, default=0.0))
    )
    return (
        f"* cost model: error {middle}% in the median of {len(errors)} cells, {worst}% at worst "
        f"(cpu {of_processor}% and {worst_of_processor}%)\n"
    )


def payload_qps(device: Record, row: Record) -> float:
    """Equation 3: the queries/s at which the payload fills the bandwidth of the device."""
    bandwidth, read = device["bandwidth_bytes_per_s"], row["bytes_per_query"]
    return bandwidth / read if bandwidth > 0 and read > 0 else math.inf


def excess_bytes(step: int, granularity: int) -> float:
    """Returns the bytes that a device transfers beyond the requested ones, for a read that starts at any
    multiple of ``step`` bytes.

    >>> excess_bytes(1, 64), excess_bytes(128, 64), excess_bytes(128, 256), excess_bytes(100, 64)
    (63, 0, 128, 60)
    """
    shared = math.gcd(step, granularity)
    return granularity + max(step - shared, 0) - step


def transferred_bytes(row: Record, granularity: int) -> float:
    """Returns the bytes that a device transfers per query of lists in memory: small reads start at vectors,
    other reads anywhere.
    """
    reads = row["reads_per_query"]
    small = min(max(row["small_reads_per_query"], 0.0), reads)
    excess = small * excess_bytes(row["vector_bytes"], granularity)
    return row["bytes_per_query"] + (excess + (reads - small) * excess_bytes(1, granularity))


def fetch_ns(row: Record, device: Record) -> float:
    """Fetching in equation 1: one latency per round, plus the longer of the transfer and the acceptance of
    the requests.
    """
    granularity, bandwidth = max(device["granularity"], CACHE_LINE), device["bandwidth_bytes_per_s"]
    waiting = row["hops_per_query"] * float(device["latency_ns"])
    if bandwidth <= 0:
        return waiting
    transfer = transferred_bytes(row, granularity) * 1e9 / bandwidth
    requests = row["reads_per_query"] * 1e9 / (bandwidth / granularity)
    return waiting + max(transfer, requests)


def processor_ns(in_dram: Record) -> tuple[float, float]:
    """Returns the processor time per centroid and per vector, in nanoseconds.

    The compute time of the search in DRAM is divided in proportion to the times of its phases there.
    """
    compute = max(in_dram["threads"], 1) * 1e9 / max(in_dram["qps"], 1e-9)
    share = min(max(in_dram["finding_share"], 0.0), 1.0)
    centroids, vectors = in_dram["code_distances_per_query"], in_dram["full_distances_per_query"]
    return (
        compute * share / centroids if centroids > 0 else 0.0,
        compute * (1.0 - share) / vectors if vectors > 0 else 0.0,
    )
