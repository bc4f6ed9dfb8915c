"""What the three reports share: their head, the devices, and curves against the size of the index."""

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
# Of :func:`model_cells`.
MODEL_HEADS = ["model", "error", "error, cpu", "bound"]
# A bound is drawn where it is below so many times the compute bound.
BOUND_IN_SIGHT = 1.6

Number = Callable[[Record], float]


def head(title: str, figures: str, run: Record) -> str:
    """What was measured of what, on what, how, and with which command."""
    beam = f"beam width {run['beam_width']}, " if "beam_width" in run else ""
    lines = [
        f"# {title}",
        "",
        f"{figures} of second-tier-memory. **Devices are emulated** in real time on top of",
        "DRAM; what that shows and what it cannot is in docs/emulated-devices.md.",
        "",
        f"* `{run['data']}`: {run['vectors']} vectors of {run['dim']} {run['element']} ({run['metric']}), "
        f"{run['queries']} queries of `{run['query_file']}`, k {run['k']}, recall at least {shown(run['recall'])}",
        f"* {run['threads']} thread(s), {beam}{run['in_flight']} queries in flight, "
        f"medians of {run['repeats']} rounds in which all cells take turns",
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
        'Throughput is of elapsed time. "cpu" is of processor time, which other programs do not disturb: '
        "on a quiet",
        "machine both agree.",
        "",
        "## Summary",
        "",
        "",
    ]
    return "\n".join(lines)


def emulated(device: Record) -> str:
    """The name in records of a device of the run."""
    return f"emulated {device['name']}"


def file_name(device: str) -> str:
    """A device's name as part of a file's."""
    return re.sub("[^0-9A-Za-z]", "-", device.removeprefix("emulated "))


def fastest(rows: Iterable[Record]) -> Record | None:
    """The row with the most queries a second; the last of equals."""
    return max(reversed(list(rows)), key=qps, default=None)


def qps(row: Record) -> float:
    """Queries a second of elapsed time."""
    found: float = row["qps"]
    return found


def ratio(above: float, below: float) -> float:
    """A quotient whose divisor is not 0."""
    return above / max(below, LEAST)


def by_size(name: str, rows: Sequence[Record], y: Number) -> Curve:
    """A curve with a mark at each row: amplification against ``y``."""
    return Curve(name, [(row["amplification"], y(row)) for row in rows])


def bounded(rows: Sequence[Record], in_dram: Sequence[Record], bounds: Mapping[str, Number]) -> list[Curve]:
    """Throughput against size: what was measured beside the search in DRAM, the model, and each bound of the device
    that is near enough to be seen. A bound far above everything else would press all curves to the floor."""
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
    """A line without marks: a bound, or a prediction."""
    return Curve(name, [(row["amplification"], y(row)) for row in rows], "thin")


def bandwidth_qps(row: Record) -> float:
    """The bytes a second of the device, whole granules counted, as queries a second. JSON has no infinity."""
    if not row["predicted"]:
        return math.nan
    found: float | None = row["predicted"]["bandwidth_qps"]
    return math.inf if found is None else found


def model_cells(row: Record) -> list[str]:
    """What the model says of a row: throughput, errors and the bound that holds."""
    told = row["predicted"]
    return [
        fixed(told["qps"]) if told else "-",
        percent(row["error"]),
        percent(row["processor_error"]),
        told["bound"] if told else "-",
    ]


def share_cells(row: Record) -> list[str]:
    """Shares of the throughput in DRAM, of elapsed and of processor time."""
    return [percent(row["share_of_dram"]), percent(row["processor_share_of_dram"])]
