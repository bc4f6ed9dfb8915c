#!/usr/bin/env python3
"""Compares Bathyal with DiskANN in one run: build time, and throughput at equal recall.

Both systems build an index over the same data with the same max_degree, search_list, code bytes and threads.
Then both are searched in turn (A B A B), one process per measurement, past the page cache. Throughput at a
recall is interpolated between the two adjacent efforts. Needs only Python; see bench/README.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = (0.90, 0.95, 0.99)
# From the least effort that finds ten neighbours to beyond a recall of 0.99 on the sets of this project.
SEARCH_LISTS = "10,14,20,28,40,56,80,112,160,224,320,448"
# The logarithm of 1 - recall needs a least value; 10,000 queries cannot resolve a smaller one.
LEAST_MISSING = 1e-6


@dataclass(frozen=True)
class DataSet:
    """Files of vectors, queries and their exact neighbours under l2."""

    base: Path
    queries: Path
    groundtruth: Path


@dataclass(frozen=True)
class Side:
    """A system with its search settings."""

    name: str
    system: str
    threads: int
    in_flight: int | None = None


def main() -> int:
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    data = choose_data(options)
    with open(options.output, "a", encoding="utf-8") as log:
        note = {"kind": "run", "machine": machine(), "options": {k: str(v) for k, v in vars(options).items()}}
        record(log, note)
        builds = build_all(options, data, log)
        report_builds(builds)
        if not options.build_only:
            for threads in options.threads:
                sides = choose_sides(options, threads)
                runs = search_all(options, data, sides, log)
                report_searches(options, sides, summarise(runs), log)
    print(f"\nEvery measurement, one JSON object per line: {options.output}")
    return 0


def integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("BATHYAL_DATA")
    parser.add_argument("--data", type=Path, default=data, help="folder of the sets [env: BATHYAL_DATA]")
    parser.add_argument("--set", default="sift-a", help="folder within it (default: sift-a)")
    parser.add_argument("--groundtruth", default="gt100.ibin", help="file within the set's folder")
    parser.add_argument("--rows", type=int, help="use only the first rows of the set")
    parser.add_argument("--threads", type=integers, default=[2], help="threads of a search, for example 2,1")
    parser.add_argument("--build-threads", type=int, default=2)
    parser.add_argument("--search-lists", type=integers, default=integers(SEARCH_LISTS))
    parser.add_argument(
        "--repeats", type=int, default=3, help="searches at each effort; medians are reported"
    )
    parser.add_argument("--builds", type=int, default=1, help="builds of each system, in turn")
    parser.add_argument("--max-degree", type=int, default=64)
    parser.add_argument("--build-search-list", type=int, default=100)
    parser.add_argument("--code-bytes", type=int, default=32)
    parser.add_argument("--beam-width", type=int, default=4)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument(
        "--saturate", default="true", choices=["true", "false"], help="option of DiskANN; see README.md"
    )
    parser.add_argument(
        "--more-sides", action="store_true", help="also measure one query in flight, and 16 x threads"
    )
    parser.add_argument(
        "--reuse", action="store_true", help="search the indexes of an earlier run; no build times"
    )
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--bathyal", type=Path, default=ROOT / "target/release/bathyal")
    parser.add_argument("--diskann", type=Path, default=ROOT / "target/peers/release/peer-diskann")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "bench/.work/compare", help="folder for the indexes"
    )
    parser.add_argument("--output", type=Path, help="JSON lines (default: WORK/compare.jsonl)")
    options = parser.parse_args()
    if options.data is None:
        parser.error("the folder of the data is missing: --data FOLDER or BATHYAL_DATA")
    for program in (options.bathyal, options.diskann):
        if not program.exists():
            parser.error(f"{program}: not found; `make bench-diskann` builds both systems")
    options.output = options.output or options.work / "compare.jsonl"
    return options


def choose_data(options: argparse.Namespace) -> DataSet:
    folder = options.data / options.set
    base = next(folder.glob("base.*bin"), None)
    queries = next(folder.glob("query.*bin"), None)
    if base is None or queries is None:
        sys.exit(f"{folder}: base.*bin or query.*bin is missing")
    if options.rows is None:
        return DataSet(base, queries, folder / options.groundtruth)
    name = f"{options.set}-{options.rows}"
    part, truth = options.work / f"{name}{base.suffix}", options.work / f"{name}.gt.ibin"
    if not truth.exists():
        run(options.bathyal, "convert", base, part, "--rows", f"0..{options.rows}", "--json")
        run(options.bathyal, "groundtruth", part, queries, truth, "-k", "50", "--json")
    return DataSet(part, queries, truth)


def run(*command: object) -> list[dict]:
    """Runs a command. Returns the JSON objects that it prints, each with the peak memory of the process."""
    words = [str(word) for word in command]
    started = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    answer = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"failed with {process.returncode}: {' '.join(words)}")
    objects = [json.loads(line) for line in json_lines(answer)]
    for one in objects:
        # From the operating system, so that both systems are measured alike.
        one["peak_rss_bytes"] = usage.ru_maxrss * 1024
        one["process_seconds"] = time.monotonic() - started
    return objects


def json_lines(answer: str) -> list[str]:
    """Splits the output: one object per line, or a single object over many lines."""
    lines = [line for line in answer.splitlines() if line.startswith("{")]
    return [answer] if lines == ["{"] else [line for line in lines if line.endswith("}")]


def index_folder(options: argparse.Namespace, system: str) -> Path:
    rows = "" if options.rows is None else f"-{options.rows}"
    numbers = f"r{options.max_degree}-l{options.build_search_list}-c{options.code_bytes}"
    return options.work / f"{system}-{options.set}{rows}-{numbers}"


def build_all(options: argparse.Namespace, data: DataSet, log) -> dict[str, list[dict]]:
    builds: dict[str, list[dict]] = {"bathyal": [], "diskann": []}
    for repeat in range(options.builds):
        for system in builds:
            if options.reuse and index_folder(options, system).exists():
                continue
            print(f"building with {system} ...", file=sys.stderr, flush=True)
            settings = ["--max-degree", options.max_degree]
            settings += ["--search-list", options.build_search_list, "--code-bytes", options.code_bytes]
            settings += ["--threads", options.build_threads]
            if system == "bathyal":
                program = options.bathyal
                more = ["--family", "graph", "--metric", "l2", "--overwrite", "--json"]
            else:
                program, more = options.diskann, ["--saturate", options.saturate]
            forget([data.base])
            built = run(program, "build", data.base, index_folder(options, system), *settings, *more)[0]
            built |= {"kind": "build", "system": system, "repeat": repeat}
            builds[system].append(built)
            record(log, built)
    return builds


def choose_sides(options: argparse.Namespace, threads: int) -> list[Side]:
    sides = [Side("Bathyal", "bathyal", threads), Side("DiskANN", "diskann", threads)]
    if options.more_sides:
        # These explain the difference: each thread of DiskANN waits for every hop of its only query.
        sides.append(Side("Bathyal, 1 in flight per thread", "bathyal", threads, in_flight=1))
        sides.append(Side(f"DiskANN, {16 * threads} threads", "diskann", 16 * threads))
    return sides


def search_all(options: argparse.Namespace, data: DataSet, sides: list[Side], log) -> list[dict]:
    runs = []
    efforts = [effort for effort in options.search_lists if effort >= options.k]
    for repeat in range(options.repeats):
        for effort in efforts:
            for side in sides:
                print(f"repeat {repeat + 1}, search_list {effort}, {side.name}", file=sys.stderr, flush=True)
                one = search(options, data, side, effort)
                one |= {"kind": "search", "side": side.name, "system": side.system, "repeat": repeat}
                runs.append(one)
                record(log, one)
    return runs


def search(options: argparse.Namespace, data: DataSet, side: Side, effort: int) -> dict:
    folder = index_folder(options, side.system)
    # Both read the graph past the page cache. This makes the other files cold for both as well.
    forget(path for path in folder.iterdir() if path.is_file())
    settings = ["-k", options.k, "--search-list", effort, "--threads", side.threads]
    settings += ["--beam-width", options.beam_width, "--groundtruth", data.groundtruth]
    if side.system == "bathyal":
        more = ["--tier", "file", "--json"]
        more += [] if side.in_flight is None else ["--in-flight", side.in_flight]
        return run(options.bathyal, "search", folder, data.queries, *settings, *more)[0]
    return run(options.diskann, "search", folder, data.queries, *settings)[0]


def forget(paths) -> None:
    """Asks the kernel to drop the pages of these files from its cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def summarise(runs: list[dict]) -> dict[str, list[dict]]:
    """Returns the medians over the repeats for each side, by increasing effort."""
    groups: dict[tuple[str, int], list[dict]] = {}
    for one in runs:
        groups.setdefault((one["side"], one["search_list"]), []).append(one)
    sweeps: dict[str, list[dict]] = {}
    for (side, effort), group in sorted(groups.items(), key=lambda item: item[0][1]):
        keys = ("recall", "qps", "reads_per_query", "bytes_per_query", "dram_bytes", "peak_rss_bytes")
        point = {key: median(group, key) for key in keys}
        latencies = [one["latency_us"] for one in group]
        point |= {"mean_us": median(latencies, "mean"), "p99_us": median(latencies, "p99")}
        point["search_list"] = effort
        point |= {"qps_least": min(one["qps"] for one in group), "qps_most": max(one["qps"] for one in group)}
        sweeps.setdefault(side, []).append(point)
    return sweeps


def median(group: list[dict], key: str) -> float:
    return statistics.median(float(one[key]) for one in group)


def at_recall(sweep: list[dict], target: float) -> dict | None:
    """Returns the figures at a recall: their logarithms, interpolated over the logarithm of 1 - recall.

    Returns None if the sweep does not reach the recall. A sweep that begins above it counts with its first
    point, since there is no effort below k candidates.
    """
    if sweep[0]["recall"] >= target:
        return sweep[0]
    for low, high in itertools.pairwise(sweep):
        if high["recall"] >= target:
            missing = [math.log(max(1 - recall, LEAST_MISSING)) for recall in (low["recall"], high["recall"])]
            share = (math.log(1 - target) - missing[0]) / (missing[1] - missing[0])
            keys = [key for key in low if low[key] > 0 and high[key] > 0]
            between = {
                key: math.exp((1 - share) * math.log(low[key]) + share * math.log(high[key])) for key in keys
            }
            return between | {"recall": target}
    return None


def report_builds(builds: dict[str, list[dict]]) -> None:
    if not all(builds.values()):
        return
    print("\n### Build\n")
    print("| system | seconds | peak memory | index | index / data |")
    print("|---|---:|---:|---:|---:|")
    seconds = {}
    for system, repeats in builds.items():
        seconds[system] = median(repeats, "build_seconds")
        sizes = [median(repeats, key) for key in ("peak_rss_bytes", "index_bytes", "amplification")]
        columns = f"{sizes[0] / 1e6:.0f} MB | {sizes[1] / 1e6:.1f} MB | {sizes[2]:.2f}"
        print(f"| {system} | {seconds[system]:.1f} | {columns} |")
    stages = ", ".join(f"{name} {spent:.1f}" for name, spent in builds["bathyal"][0].get("stage_seconds", []))
    print(f"\nBathyal's seconds by stage, in the first build: {stages}.")
    print(f"\nDiskANN's build takes {seconds['diskann'] / seconds['bathyal']:.2f} times Bathyal's.")


def report_searches(
    options: argparse.Namespace, sides: list[Side], sweeps: dict[str, list[dict]], log
) -> None:
    print(f"\n### Search, {sides[0].threads} threads, k = {options.k}, medians of {options.repeats}\n")
    print("| recall | system | search_list | queries/s | times DiskANN | mean | p99 | reads | peak memory |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for target in TARGETS:
        peer = at_recall(sweeps["DiskANN"], target)
        for side in sides:
            found = at_recall(sweeps[side.name], target)
            if found is None:
                print(f"| {target:.2f} | {side.name} | not reached | | | | | | |")
                continue
            ratio = found["qps"] / peer["qps"] if peer else math.nan
            costs = f"{found['mean_us']:.0f} us | {found['p99_us']:.0f} us | {found['reads_per_query']:.1f}"
            costs += f" | {found['peak_rss_bytes'] / 1e6:.0f} MB"
            start = f"| {target:.2f} | {side.name} | {found['search_list']:.0f} | {found['qps']:.0f}"
            # If even the least effort exceeds the recall, the systems are not compared at equal recall.
            above = "" if found["recall"] <= target else f" (recall {found['recall']:.3f})"
            print(f"{start}{above} | {ratio:.2f} | {costs} |")
            summary = {"kind": "summary", "target": target, "side": side.name, "threads": side.threads}
            record(log, summary | {"times_diskann": ratio} | found)
    print("\n| system | search_list | recall | queries/s (least to most) | mean latency | p99 | reads |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, sweep in sweeps.items():
        for p in sweep:
            spread = f"{p['qps']:.0f} ({p['qps_least']:.0f} to {p['qps_most']:.0f})"
            costs = f"{p['mean_us']:.0f} us | {p['p99_us']:.0f} us | {p['reads_per_query']:.1f}"
            start = f"| {name} | {p['search_list']} | {p['recall']:.4f} | {spread}"
            print(f"{start} | {costs} |")


def machine() -> dict:
    model = "unknown"
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next(
                (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model
            )
    except OSError:
        pass  # No such file outside Linux. The name is only informative.
    git = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "commit": git.stdout.strip(),
        "load": os.getloadavg()[0],
    }


def record(log, entry: dict) -> None:
    log.write(json.dumps(entry) + "\n")
    log.flush()


if __name__ == "__main__":
    sys.exit(main())
