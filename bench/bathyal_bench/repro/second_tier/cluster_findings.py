"""The paper's findings on posting lists, compared with the results here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bathyal_bench.repro.records import Record
from bathyal_bench.repro.second_tier.findings import Finding, findings, share, times
from bathyal_bench.repro.second_tier.lists import COUPLED, DECOUPLED, GROUPED, Lists
from bathyal_bench.repro.second_tier.trial import DRAM, FILE, fastest, qps, ratio
from bathyal_bench.repro.second_tier.verdicts import quotients

# Lists searched in figure 4: with the most replicas, divided by those with one replica.
PAPER_LISTS = 20.0 / 240.0


def findings_of(lists: Lists) -> Iterator[Finding]:
    """Returns all findings."""
    yield from replica_findings(lists.on(FILE, COUPLED))
    for device in lists.devices:
        yield from grouping_findings(lists, device)
        yield from decoupled_findings(lists.on(device, DECOUPLED), device)
        if device != FILE:
            yield from file_findings(lists, device)
    grouped = lists.on(DRAM, GROUPED)
    if grouped:
        last = grouped[-1]
        what = f"size of the index / size of the data, {last['replicas']} replicas"
        yield from findings(what, "grouped", (1.1, 1.4), [last["amplification"]], times)


def replica_findings(coupled: Sequence[Record]) -> Iterator[Finding]:
    """Figure 4: coupled lists with the most replicas, compared with those with the fewest."""
    if len(coupled) < 2:
        return
    first, last = coupled[0], coupled[-1]
    place, ends = "file, coupled", "most replicas to fewest"
    lists = [ratio(last["lists_per_query"], first["lists_per_query"])]
    yield from findings(f"lists searched, {ends}", place, (PAPER_LISTS, PAPER_LISTS), lists, share)
    gain, reach = [ratio(qps(last), qps(first))], [quotients(last, first)]
    yield from findings(f"throughput, {ends}", place, (4.0, 16.0), gain, times, reach)
    size = [ratio(last["amplification"], first["amplification"])]
    yield from findings(f"size of the index, {ends}", place, (6.7, 7.3), size, times)


def grouping_findings(lists: Lists, device: str) -> Iterator[Finding]:
    """Figure 10: grouped lists, compared with decoupled and coupled ones."""
    decoupled, coupled = (
        list(lists.pairs(device, GROUPED, DECOUPLED)),
        list(lists.pairs(device, GROUPED, COUPLED)),
    )
    removed = [1.0 - ratio(one["reads_per_query"], other["reads_per_query"]) for one, other in decoupled]
    yield from findings("reads that grouping removes", device, (0.62, 0.80), removed, share)
    for what, paper, pairs in (
        ("throughput, grouped to decoupled", (1.3, 1.7), decoupled),
        ("throughput, grouped to coupled", (1.0, math.inf), coupled),
    ):
        here = [ratio(qps(one), qps(other)) for one, other in pairs]
        yield from findings(what, device, paper, here, times, [quotients(*pair) for pair in pairs])


def decoupled_findings(decoupled: Sequence[Record], device: str) -> Iterator[Finding]:
    """Figure 10: the cost of replicas if each vector is stored once."""
    best = fastest(decoupled)
    if best is None:
        return
    last = decoupled[-1]
    least, most = quotients(last, best)
    what = "throughput lost with the most replicas, decoupled"
    lost = 1.0 - ratio(qps(last), qps(best))
    yield from findings(what, device, (0.27, 0.39), [lost], share, [(1.0 - most, 1.0 - least)])


def file_findings(lists: Lists, device: str) -> Iterator[Finding]:
    """Figure 12: grouped lists on slow memory, compared with coupled ones on files."""
    grouped, file = fastest(lists.on(device, GROUPED)), fastest(lists.on(FILE, COUPLED))
    if grouped is None or file is None:
        return
    both = (
        f"fastest grouped ({grouped['replicas']} replicas) to fastest coupled from files ({file['replicas']})"
    )
    size = [grouped["index_bytes"] / max(file["index_bytes"], 1)]
    yield from findings(f"size, {both}", device, (0.16, 0.22), size, share)
    gain, reach = [ratio(qps(grouped), qps(file))], [quotients(grouped, file)]
    yield from findings(f"throughput, {both}", device, (1.4, 7.1), gain, times, reach)
