"""The common parts of the three reports: their head, the devices, and curves against the size of the index."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from bathyal_bench.repro.numbers import fixed, percent, shown, size
from bathyal_bench.repro.plots import Curve
from bathyal_bench.repro.records import Record
from bathyal_bench.repro.second_tier.verdicts import LEAST

DRAM, FILE = "dram", "file"
BY_SIZE, QPS = "index size / data size", "queries a second"
# The heads of the cells of :func:`model_cells`.
MODEL_HEADS = ["model", "error", "error, cpu", "bound"]
# A bound is drawn if it is lower than this many times the compute bound.
BOUND_IN_SIGHT = 1.6

Number = Callable[[Record], float]


def head(title: str, figures: str, run: Record) -> str:
    """Returns the head of a report: figures, data, machine, devices and command."""
    beam = f"beam width {run['beam_width']}, " if "beam_width" in run else ""
    lines = [
        f"# {title}",
        "",
        f"{figures} of second-tier-memory. **Devices are emulated** in real time on top of",
        "DRAM; docs/emulated-devices.md says what this can and cannot show.",
        "",
        f"* `{run['data']}`: {run['vectors']} vectors of {run['dim']} {run['element']} ({run['metric']}), "
        f"{run['queries']} queries of `{run['query_file']}`, k {run['k']}, recall at least {shown(run['recall'])}",
        f"* {run['threads']} thread(s), {beam}{run['in_flight']} queries in flight, "
        f"medians of {run['repeats']} rounds that measure all cells in turn",
        f"* {run['machine']}",
    ]
    if run["file_queries"] is not None:
        lines.append(f"* from files: the first {run['file_queries']} queries")
    for device in run["devices"]:
        bandwidth = size(int(device["bandwidth_bytes_per_s"]))
        lines.append(
            f"* emulated {device['name']}: {device['latency_ns']} ns, {bandwidth}/s, "
            f"granules of {device['granularity']} B, {device['issue_ns']} ns to issue a read"
        )
    lines += [
        "",
        f"    {run['command']}",
        "",
        'Throughput is per elapsed time. "cpu" is per processor time, which other programs do not disturb; '
        "on an idle",
        "machine both agree.",
        "",
        "## Summary",
        "",
        "",
    ]
    return "\n".join(lines)


def emulated(device: Record) -> str:
    """Returns the name that records use for a device of the run."""
    return f"emulated {device['name']}"


def file_name(device: str) -> str:
    """Returns a device's name as part of a file name."""
    return re.sub("[^0-9A-Za-z]", "-", device.removeprefix("emulated "))


def fastest(rows: Iterable[Record]) -> Record | None:
    """Returns the row with the most queries/s; of equal rows the last."""
    return max(reversed(list(rows)), key=qps, default=None)


def qps(row: Record) -> float:
    """Returns the queries per second of elapsed time."""
    found: float = row["qps"]
    return found


def ratio(above: float, below: float) -> float:
    """Returns a quotient with a divisor of at least :data:`LEAST`."""
    return above / max(below, LEAST)


def by_size(name: str, rows: Sequence[Record], y: Number) -> Curve:
    """Returns a curve of ``y`` against amplification, with a mark at each row."""
    return Curve(name, [(row["amplification"], y(row)) for row in rows])


def bounded(rows: Sequence[Record], in_dram: Sequence[Record], bounds: Mapping[str, Number]) -> list[Curve]:
    """Returns curves of throughput against size: measured, the search in DRAM, the cost model, and each bound
    of the device that is near enough. A bound far above everything else would flatten all other curves.
    """
    drawn = [
        by_size("measured", rows, qps),
        by_size("compute bound", in_dram, qps),
        thin("cost model", rows, lambda row: row["predicted"]["qps"] if row["predicted"] else math.nan),
    ]
    top = BOUND_IN_SIGHT * max(map(qps, in_dram), default=0.0)
    for name, bound in bounds.items():
        if any(bound(row) < top for row in rows):
            points = [(row["amplification"], min(top, bound(row))) for row in rows]
            drawn.append(Curve(name, points, "thin"))
    return drawn


def thin(name: str, rows: Sequence[Record], y: Number) -> Curve:
    """Returns a curve without marks, for a bound or a prediction."""
    return Curve(name, [(row["amplification"], y(row)) for row in rows], "thin")


def bandwidth_qps(row: Record) -> float:
    """Returns the queries/s at which whole granules fill the bandwidth of the device. JSON has no infinity,
    so a record has null instead.
    """
    if not row["predicted"]:
        return math.nan
    found: float | None = row["predicted"]["bandwidth_qps"]
    return math.inf if found is None else found


def model_cells(row: Record) -> list[str]:
    """Returns the model's cells of a row: throughput, errors and the bound that limits it."""
    predicted = row["predicted"]
    return [
        fixed(predicted["qps"]) if predicted else "-",
        percent(row["error"]),
        percent(row["processor_error"]),
        predicted["bound"] if predicted else "-",
    ]


def share_cells(row: Record) -> list[str]:
    """Returns the shares of the throughput in DRAM, by elapsed and by processor time."""
    return [percent(row["share_of_dram"]), percent(row["processor_share_of_dram"])]
