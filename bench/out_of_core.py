"""Builds an index of one set with and without a memory cap, and compares the two.

The set is made from sift-a by a documented perturbation (bench/suites/src/perturb.rs) and kept in
bench/.work. Both indexes are searched with the same effort, which determines the candidate list and the
probes.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Set BATHYAL_PROGRAMS to another folder to compile programs while others are measured.
PROGRAMS = Path(os.environ.get("BATHYAL_PROGRAMS", ROOT / "target" / "release"))
QUERIES = 1000


def run(program, *arguments):
    """Runs a program of the project. Returns its JSON object, if it prints one."""
    command = [str(PROGRAMS / program), *map(str, arguments)]
    print("+", " ".join(command), file=sys.stderr, flush=True)
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout) if ran.stdout.startswith(b"{") else None


def first_queries(source, target):
    """Writes the first queries of a u8bin file to another."""
    with source.open("rb") as file:
        count, dim = struct.unpack("<II", file.read(8))
        count = min(count, QUERIES)
        target.write_bytes(struct.pack("<II", count, dim) + file.read(count * dim))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("BATHYAL_DATA")
    parser.add_argument("--data", type=Path, default=data, required=data is None, help="folder of sift-a")
    parser.add_argument("--copies", type=int, default=10, help="copies of each of the million vectors")
    parser.add_argument("--family", default="cluster", choices=["cluster", "graph", "spann"])
    parser.add_argument("--memory", default="2GB", help="memory cap")
    parser.add_argument("--lists", type=int, nargs="+", default=[20, 40, 80], help="candidate lists")
    parser.add_argument("--work", type=Path, default=ROOT / "bench" / ".work" / "out-of-core")
    arguments = parser.parse_args()
    sift, work = Path(arguments.data) / "sift-a", arguments.work
    work.mkdir(parents=True, exist_ok=True)
    base = work / f"sift-a-perturbed-x{arguments.copies}.u8bin"
    queries, truth = work / "queries.u8bin", work / f"truth-x{arguments.copies}.ibin"
    if not base.exists():
        run("bathyal-suites", "perturb", sift / "base.u8bin", base, "--copies", arguments.copies)
    if not truth.exists():
        first_queries(sift / "query.u8bin", queries)
        run("bathyal", "groundtruth", base, queries, truth, "-k", 10, "--json")

    print(f"{base.name}: perturbed vectors, not a real set of this size\n")
    rows = []
    for name, cap in [("capped", ["--memory", arguments.memory]), ("uncapped", [])]:
        index = work / f"{arguments.family}-{name}"
        options = ["--family", arguments.family, "--metric", "l2", "--overwrite", "--json", *cap]
        built = run("bathyal", "build", base, index, *options)
        stages = ", ".join(f"{stage} {seconds:.0f}" for stage, seconds in built["stage_seconds"])
        cap = arguments.memory if cap else "none"
        seconds, peak = built["build_seconds"], built["peak_rss_bytes"] / 1e6
        print(f"{name} (cap {cap}): {seconds:.0f} s ({stages}), peak RSS {peak:.0f} MB", flush=True)
        for search_list in arguments.lists:
            effort = ["-k", 10, "--search-list", search_list, "--groundtruth", truth]
            found = run("bathyal", "search", index, queries, *effort, "--json")
            codes = found["code_distances_per_query"]
            rows.append((search_list, name, found["recall"], found["reads_per_query"], codes))
    print(
        "\n| candidate list | build | recall@10 | reads per query | codes per query |\n|---|---|---|---|---|"
    )
    for search_list, name, recall, reads, codes in sorted(rows):
        print(f"| {search_list} | {name} | {recall:.4f} | {reads:.1f} | {codes:.0f} |")


if __name__ == "__main__":
    main()
