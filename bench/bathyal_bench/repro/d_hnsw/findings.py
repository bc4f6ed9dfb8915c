"""Conclusions from the measurements of a set, with the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bathyal_bench.repro.d_hnsw.measured import Measured
from bathyal_bench.repro.d_hnsw.verdicts import TIME_NOISE, ahead
from bathyal_bench.repro.numbers import shown
from bathyal_bench.repro.records import Record

# The paper's index, the same with sub-indexes of about equal size, and groups with all codes in memory.
PAPER, BALANCED, GROUPS = "partitioned-sampled-x1", "partitioned-balanced-x1", "cluster"
RECALLS = (0.9, 0.95, 0.99)
# Ratios from this size on have one decimal.
LARGE = 10.0


@dataclass(frozen=True)
class Finding:
    """A conclusion from the rows of a set, with the paper's number."""

    of: str
    what: str
    here: str
    paper: str = "-"


def all_findings(one: Measured) -> list[Finding]:
    """Returns all findings about a set."""
    found = [finding for k in one.neighbours() for finding in scheme_findings(one, k)]
    found += load_findings(one)
    return found + [finding for recall in RECALLS for finding in family_findings(one, recall)]


def over(a: float, b: float) -> float:
    return a / max(b, 1e-12)


def times(value: float) -> str:
    """Formats a ratio: ``17.1 times``, ``0.97 times``."""
    return f"{value:.{1 if value >= LARGE else 2}f} times"


def scheme_findings(one: Measured, k: int) -> list[Finding]:
    """Returns ratios of times at the largest candidate list."""
    naive, without = {
        1: ("some 120 times by table 1 (SIFT1M)", "1.12 times (SIFT1M)"),
        10: ("up to 117 times (SIFT1M), 121 (GIST1M)", "up to 1.12 times (SIFT1M), 1.30 (GIST1M)"),
    }.get(k, ("-", "-"))
    pairs = [
        ("naive over d-HNSW", "naive", "d-hnsw", naive),
        ("without doorbell over d-HNSW", "without-doorbell", "d-hnsw", without),
        ("naive over ours", "naive", "ours", "-"),
        ("d-HNSW over ours", "d-hnsw", "ours", "-"),
    ]
    found = []
    for what, of, than, paper in pairs:
        ours, theirs = one.last(of, k), one.last(than, k)
        if ours and theirs:
            ratio = times(over(ours["wall_us"], theirs["wall_us"]))
            found.append(Finding(one.name, f"{what}, time a query, top-{k}", ratio, paper))
    return found


def load_findings(one: Measured) -> list[Finding]:
    """Returns ratios of reads and round trips."""
    for k in one.neighbours()[:1]:
        naive, batched = one.last("naive", k), one.last("d-hnsw", k)
        if naive and batched:
            reads, trips = (times(over(naive[field], batched[field])) for field in ("reads", "round_trips"))
            paper = "3.547 over 0.00475, 747 times (SIFT1M)"
            return [
                Finding(one.name, "reads, naive over d-HNSW", reads),
                Finding(one.name, "round trips, naive over d-HNSW", trips, paper),
            ]
    return []


def family_findings(one: Measured, recall: float) -> list[Finding]:
    """Returns the leaders at a recall, and the cost of sub-indexes relative to other families."""
    rows = [row for row in one.asked if row["asked"] == recall]
    at = shown(recall)
    # Times vary from run to run; bytes are exact.
    goals: list[tuple[str, Callable[[Record], float], str, float]] = [
        ("most queries a second", lambda row: over(1.0, row["qps"]), "{qps:.0f} queries/s", TIME_NOISE),
        ("shortest query alone", lambda row: row["alone_p50_us"], "{alone_p50_us:.0f} us", TIME_NOISE),
        ("fewest bytes in a batch", lambda row: row["bytes"], "{bytes:.0f} bytes a query", 0.0),
        ("fewest bytes alone", lambda row: row["alone_bytes"], "{alone_bytes:.0f} bytes a query", 0.0),
    ]
    found = []
    for what, value, words, noise in goals:
        leaders = [f"{row['index']} ({words.format(**row)})" for row in ahead(rows, value, noise)]
        if leaders:
            found.append(Finding(one.name, f"{what}, recall {at}", " and ".join(leaders)))
    sampled, balanced, groups = (one.index(name, recall) for name in (PAPER, BALANCED, GROUPS))
    if sampled and groups and groups["bytes"] > 0:
        for how, of_bytes in (("in a batch", "bytes"), ("alone", "alone_bytes")):
            ratio = times(over(sampled[of_bytes], groups[of_bytes]))
            what = f"bytes of partitions over groups, {how}, recall {at}"
            found.append(Finding(one.name, what, ratio))
    if sampled and balanced:
        what = f"bytes, sampled over balanced pivots, in a batch, recall {at}"
        found.append(Finding(one.name, what, times(over(sampled["bytes"], balanced["bytes"]))))
    return found
