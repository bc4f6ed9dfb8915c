"""Caches, simulated with the reads of real searches: figures 5, 6 and 20 to 25."""

from __future__ import annotations

from bathyal_bench.repro.cells import filled
from bathyal_bench.repro.cloud.lines import aligned, label
from bathyal_bench.repro.cloud.measured import BEAM, GRAPH, SPANN, Measured, beam_width, effort_words
from bathyal_bench.repro.document import Document
from bathyal_bench.repro.numbers import percent, size
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record

# Rounds of a search with a hit rate each; later ones have one together.
ROUNDS = 12
# Concurrent queries for which the gain of a cache is computed.
CONCURRENCIES = (4, 64)
# The paper's policy, and the cache size for hit rates by round, as a divisor of the index size.
USUAL_POLICY, SHOWN_PART = "slru", 4
CACHES = """
## Caches (figures 5, 6 and 20 to 25)

No cache was built for this. The reads of all queries, one query after the other and beginning with an empty
cache, were replayed through exact simulations of a segmented LRU (`slru`, the paper's) and of S3-FIFO, over
blocks of 4 KB of a graph and over whole lists. Sizes are shares of the file that searches read in ranges;
lists of fewer replicas get as many bytes as those of 8. A round is saved if all of its reads hit. Queries
per second are computed by the equations.
"""
PAPER_CACHES = """
The paper, GIST1M: SPANN at 0.995 hits 0.68 in 4 GB and 0.17 in 1 GB of its 13 GB; 2 replicas 0.778 and 8
replicas 0.467 in 4 GB at 0.97. DiskANN hits 0.49 at 0.7 and 0.35 at 0.99, for up to 1.41 times the
queries/s; its first rounds hit nearly always. W from 4 to 64 gains 7.58 times, a cache at W = 4 gains 1.25
times.
"""
HIT_LINE = """\
| {index} | {words} | {recall:.3f} | {bytes} | 1/{part} | {policy} | {hits} | {hit_bytes} | {waves:.2f} | \
{saved_waves:.2f} |"""


def add_caches(document: Document, measured: Measured) -> None:
    """Adds the section on caches."""
    document.text += CACHES
    if not measured.cached:
        document.text += "\nNo search was traced.\n"
        return
    document.text += hits(measured) + rounds(measured) + PAPER_CACHES
    axes = Axes("Hit rate by size of the cache", "part of the index", "hit rate")
    document.plot("figure-21.svg", axes, by_size(measured.cached))
    drawn = [
        Curve(f"W {beam_of(cached)}", list(enumerate(cached["by_wave"][:ROUNDS], 1)))
        for cached in graphs(measured)
    ]
    document.plot("figure-23.svg", Axes("Hit rate of a graph by round", "round", "hit rate"), drawn)


def hits(measured: Measured) -> str:
    """Returns the table of figures 20, 21, 24 and 25."""
    text = label(measured.run)
    text += "| index | effort | recall | cache | of the index | policy | hits | of bytes | rounds | saved |"
    text += "".join(f" computed queries/s, {concurrency} at once | times |" for concurrency in CONCURRENCIES)
    text += "\n|---|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    for cached in measured.cached:
        text += filled(
            HIT_LINE,
            cached,
            words=effort_words(cached["effort"]),
            bytes=size(cached["cache_bytes"]),
            hits=percent(cached["hit_rate"]),
            hit_bytes=percent(cached["byte_hit_rate"]),
        )
        for _, without, with_cache in cached["computed_qps"]:
            text += f" {with_cache:.1f} | {with_cache / max(without, 1e-9):.2f} |"
        text += "\n"
    return text


def rounds(measured: Measured) -> str:
    """Returns the table of figure 23."""
    text = f"""
Hit rates of a graph by round, with a cache of a quarter of the index and a segmented LRU (figure 23). The
last column covers all rounds after {ROUNDS}.

"""
    text += aligned(["W", *(f"{number}" for number in range(1, ROUNDS + 1)), "later"], 0)
    for cached in graphs(measured):
        rates = [*cached["by_wave"], *[None] * (ROUNDS + 1)][: ROUNDS + 1]
        text += f"| {beam_of(cached)} | {' | '.join(percent(rate) for rate in rates)} |\n"
    return text


def beam_of(cached: Record) -> int:
    beam = beam_width(cached["effort"])
    return BEAM if beam is None else beam


def graphs(measured: Measured) -> list[Record]:
    """Returns the caches in front of a graph for the hit rates by round."""
    selected = (GRAPH, SHOWN_PART, USUAL_POLICY)
    return [one for one in measured.cached if (one["index"], one["part"], one["policy"]) == selected]


def by_size(all_cached: list[Record]) -> list[Curve]:
    """Returns hit rates over the size of the cache."""
    points: dict[str, list[tuple[float, float]]] = {}
    for cached in all_cached:
        beam = beam_width(cached["effort"])
        if beam not in (None, BEAM):
            continue
        if cached["policy"] == USUAL_POLICY or cached["index"] in (GRAPH, SPANN):
            name = f"{cached['index']}{'' if beam is None else f' W {beam}'}, {cached['policy']}"
            points.setdefault(name, []).append((1.0 / cached["part"], cached["hit_rate"]))
    return [Curve(name, series) for name, series in points.items()]
