"""Measures every index family on every tier, at equal recall: the table of families in the guide.

    python3 bench/families.py --set sift base.u8bin queries.u8bin gt.ibin l2 \\
        --set hog base.fbin queries.fbin gt.ibin l2 --output families.jsonl

Every family is built with its defaults. On each tier `bathyal bench` searches all of them in turns at several
asked recalls. Figures at exactly `--recall` are interpolated between the two efforts whose measured recalls
are around it, so that all families are compared at the recall that they found, not at the one that was asked
for. Tiers: `file` (the index is larger than its page cache, which is off), `dram`, and `node` (a memory node
on this machine, over TCP).
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = ("cluster", "graph", "spann", "partitioned", "lsh", "flat")
TIERS = ("file", "dram", "node")
# Recalls that are asked for. Interpolation needs one above the recall of the table, also for families whose answers
# to a recall are a little below it.
ASKED = "0.90,0.93,0.95,0.97,0.985,0.99"
# Figures of the table that are interpolated at the recall.
FIGURES = ("qps", "reads_per_query", "bytes_per_query", "hops_per_query", "dram_bytes")
# Seconds for a memory node to answer.
STARTS_WITHIN = 30


def run(command, **options):
    """Runs a command of Bathyal and returns its JSON; its errors end the program."""
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit status {done.returncode}")
    return json.loads(done.stdout)


def build(program, vectors, family, arguments, index):
    """Builds an index, unless an earlier run has. Returns seconds, those of the processor on all threads, and
    the peak resident bytes of the process."""
    record = index.with_suffix(".build.json")
    if not (record.exists() and index.exists()):
        shutil.rmtree(index, ignore_errors=True)
        before = time.monotonic()
        command = [program, "build", vectors, index, "--metric", arguments.metric_of[vectors]]
        command += ["--family", family, "--threads", str(arguments.threads), "--json"]
        child = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
        report = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            raise SystemExit(f"{family}: the build ended with status {os.waitstatus_to_exitcode(status)}")
        seconds = time.monotonic() - before
        figures = {
            "build_seconds": seconds,
            "build_processor_seconds": usage.ru_utime + usage.ru_stime,
            "build_peak_bytes": usage.ru_maxrss * 1024,
        }
        record.write_text(json.dumps({**figures, "report": json.loads(report)}), encoding="utf-8")
    found = json.loads(record.read_text(encoding="utf-8"))
    return {name: found[name] for name in ("build_seconds", "build_processor_seconds", "build_peak_bytes")}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def memory_node(program, indexes, work):
    """Starts a memory node that holds copies of the indexes; yields its address."""
    address = f"127.0.0.1:{free_port()}"
    size = sum(file.stat().st_size for index in indexes for file in index.rglob("*") if file.is_file())
    command = [program, "memory-node", "--capacity", str(2 * size + (64 << 20)), "--listen", address]
    command += [part for index in indexes for part in ("--load", index)]
    log = (work / "node.log").open("w", encoding="utf-8")
    with subprocess.Popen([*map(str, command)], stdout=log, stderr=log) as node:
        try:
            ends = time.monotonic() + STARTS_WITHIN + size / 50e6
            # The node answers before it has loaded all of its indexes.
            waiting = [f"remote://{address}/{index.name}" for index in indexes]
            while waiting:
                inspect = [program, "inspect", waiting[-1], "--store-option", "transport=tcp", "--json"]
                if subprocess.run([*map(str, inspect)], capture_output=True, check=False).returncode == 0:
                    waiting.pop()
                elif node.poll() is not None or time.monotonic() > ends:
                    raise SystemExit(f"the memory node did not start: see {work / 'node.log'}")
                else:
                    time.sleep(0.2)
            yield address
        finally:
            node.terminate()


def at_recall(points, recall):
    """Interpolates the figures of one index at a measured recall, linearly between its two neighbours. Returns
    `None` if no point reaches the recall."""
    points = sorted(points, key=lambda point: (point["recall"], -point["qps"]))
    above = next((at for at, point in enumerate(points) if point["recall"] >= recall), None)
    if above is None:
        return None
    high = points[above]
    low = points[above - 1] if above > 0 else high
    gap = high["recall"] - low["recall"]
    share = (recall - low["recall"]) / gap if gap > 0 else 1.0
    return {name: low[name] + share * (high[name] - low[name]) for name in FIGURES}


def measure(program, places, queries, truth, tier, arguments, work):
    """Searches all indexes in turns. Returns the points by family."""
    first, *others = places.values()
    command = [program, "bench", first, queries, "--groundtruth", truth, "-k", str(arguments.k)]
    command += ["--recall", ASKED, "--threads", str(arguments.threads), "--repeats", str(arguments.repeats)]
    command += [part for other in others for part in ("--also", other)]
    command += ["--output", work / f"bench-{tier}", "--json"]
    if tier == "dram":
        command += ["--tier", "dram"]
    if tier == "node":
        command += ["--store-option", "transport=tcp"]
    answer = run(command)
    by_place = {str(place): [] for place in places.values()}
    for point in answer["points"]:
        by_place[point["index"]].append(point)
    return {family: by_place[str(place)] for family, place in places.items()}


def measure_set(program, name, files, arguments):
    """Builds and measures all families over one set; yields records."""
    base, queries, truth, metric = files
    work = arguments.work / name
    work.mkdir(parents=True, exist_ok=True)
    arguments.metric_of = {base: metric}
    indexes, built = {}, {}
    for family in arguments.families:
        indexes[family] = work / family
        print(f"{time.strftime('%H:%M:%S')} {name}: {family}", file=sys.stderr, flush=True)
        built[family] = build(program, base, family, arguments, indexes[family])
    for tier in arguments.tiers:
        print(f"{time.strftime('%H:%M:%S')} {name}: {tier}", file=sys.stderr, flush=True)
        with contextlib.ExitStack() as stack:
            places = indexes
            if tier == "node":
                address = stack.enter_context(memory_node(program, indexes.values(), work))
                places = {family: f"remote://{address}/{index.name}" for family, index in indexes.items()}
            points = measure(program, places, queries, truth, tier, arguments, work)
        for family, own in points.items():
            figures = at_recall(own, arguments.recall)
            sizes = {size: own[0][size] for size in ("index_bytes", "data_bytes", "amplification")}
            yield {
                "set": name,
                "tier": tier,
                "family": family,
                "recall": arguments.recall,
                "k": arguments.k,
                "threads": arguments.threads,
                "reached": figures is not None,
                **built[family],
                **sizes,
                **(figures or {}),
            }


def megabytes(count):
    return f"{count / 1e6:,.1f}" if count < 1e8 else f"{count / 1e6:,.0f}"


def row(record):
    """Returns the line of the table for one record."""
    cells = [record["set"], f"`{record['family']}`", record["tier"]]
    if record["reached"]:
        cells += [f"{record['qps']:,.0f}", f"{record['reads_per_query']:,.1f}"]
        cells += [f"{record['bytes_per_query'] / 1e3:,.1f}", megabytes(record["dram_bytes"])]
    else:
        cells += ["not reached", "", "", ""]
    cells += [f"{record['amplification']:.2f}", f"{record['build_processor_seconds']:,.0f}"]
    return "| " + " | ".join([*cells, megabytes(record["build_peak_bytes"])]) + " |"


def table(records):
    """Returns the table in markdown."""
    names = ("set", "family", "tier", "queries/s", "reads", "kB read", "memory, MB", "size / data")
    head = " | ".join(("", *names, "build, processor s", "build, MB", "")).strip()
    return "\n".join([head, "|---|---|---|---:|---:|---:|---:|---:|---:|---:|", *map(row, records)])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    files = ("NAME", "BASE", "QUERIES", "GROUNDTRUTH", "METRIC")
    parser.add_argument("--set", nargs=5, metavar=files, action="append", required=True, dest="sets")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=TIERS)
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--program", type=Path, default=ROOT / "target" / "release" / "bathyal")
    parser.add_argument("--work", type=Path, default=ROOT / "bench" / ".work" / "families")
    parser.add_argument("--output", type=Path, help="JSON lines; the table goes to standard output")
    arguments = parser.parse_args()
    if not arguments.program.exists():
        parser.error(f"{arguments.program} does not exist: cargo build --release -p bathyal-cli")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    records = []
    for name, *files in arguments.sets:
        for record in measure_set(arguments.program, name, files, arguments):
            records.append(record)
            if arguments.output:
                with arguments.output.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(record) + "\n")
    print(table(records))


if __name__ == "__main__":
    main()
