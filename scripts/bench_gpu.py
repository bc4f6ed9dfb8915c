#!/usr/bin/env python3
"""Measures searches, exact search and builds with a graphics card beside those of the processor, on one machine.

usage: bench_gpu.py --base FILE --query FILE --groundtruth FILE [--work FOLDER] [--devices cpu,gpu] [--minutes 10]

Indexes are built into the work folder where they are not there yet. Each cell (index, recall, queries in flight,
device) is measured five times, the devices in turn, and written to records.jsonl at once; what is there is not
measured again, so that a run that was stopped goes on, and a run takes at most so many minutes. Exact neighbours
and builds are measured three times each, into whole.jsonl, and compared: they are the same for all devices. At the
end the medians are printed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

REPEATS = 5
WHOLE_REPEATS = 3
WHOLE = ("groundtruth", "build cluster", "build graph")
RECALLS = ("0.9", "0.95", "0.99")
IN_FLIGHT = ("64", "256", "1024")
INDEXES = {"cluster": ["--family", "cluster"], "graph": ["--family", "graph", "--layout", "padded"]}
Key = tuple[str, str, str, str]


def command(bathyal: str, *arguments: str) -> dict[str, Any]:
    """The answer of a command, or its end with what it said."""
    ran = subprocess.run([bathyal, *arguments, "--json"], capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"bathyal {' '.join(arguments)}: {ran.stderr}")
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def read(path: pathlib.Path) -> dict[Key, list[dict[str, Any]]]:
    """The records of earlier runs, by cell."""
    done: dict[Key, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        record = json.loads(line)
        key = (record["index"], record["recall_target"], record["in_flight"], record["device"])
        done.setdefault(key, []).append(record)
    return done


def cells(devices: list[str]) -> list[Key]:
    """All cells, the devices in turn."""
    return [
        (index, recall, in_flight, device)
        for index in INDEXES
        for recall in RECALLS
        for in_flight in IN_FLIGHT
        for device in devices
    ]


def digest(path: pathlib.Path) -> str:
    """What is in a file, or in the files of an index but for the manifest, which has times."""
    found = hashlib.sha256()
    files = [path] if path.is_file() else sorted(one for one in path.iterdir() if one.name != "manifest.json")
    for file in files:
        found.update(file.name.encode())
        with file.open("rb") as content:
            while piece := content.read(1 << 24):
                found.update(piece)
    return found.hexdigest()


def whole(given: argparse.Namespace, what: str, device: str) -> dict[str, Any]:
    """Seconds that exact search or a build takes, and what came of it."""
    made = given.work / ("whole.ibin" if what == "groundtruth" else "whole.index")
    if what == "groundtruth":
        asked = ["groundtruth", given.base, given.query, str(made), "-k", "100", "--metric", "l2"]
    else:
        family = INDEXES[what.removeprefix("build ")]
        # A graph is another one with a card, and with each run of several threads, so that it is not compared.
        asked = ["build", given.base, str(made), "--metric", "l2", "--overwrite", *family]
    answer = command(given.bathyal, *asked, "--device", device)
    seconds = answer["seconds"] if what == "groundtruth" else answer["build_seconds"]
    same = digest(made) if what != "build graph" else ""
    return {"what": what, "device": device, "seconds": seconds, "digest": same}


def measure_whole(given: argparse.Namespace, until: float) -> None:
    """Exact search and builds, the devices in turn: measures what is missing, prints all."""
    kept, devices = given.work / "whole.jsonl", given.devices.split(",")
    records = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for repeat in range(WHOLE_REPEATS):
        for what in WHOLE:
            for device in devices:
                alike = [one for one in records if (one["what"], one["device"]) == (what, device)]
                if len(alike) > repeat or time.monotonic() > until:
                    continue
                records.append(whole(given, what, device))
                with kept.open("a") as file:
                    file.write(json.dumps(records[-1]) + "\n")
    for what in WHOLE:
        if len({one["digest"] for one in records if one["what"] == what}) > 1:
            sys.exit(f"{what}: the devices differ, which they may not ({kept})")
        for device in devices:
            seconds = [one["seconds"] for one in records if (one["what"], one["device"]) == (what, device)]
            if seconds:
                print(f"{what:14} {device:>6} {statistics.median(seconds):9.2f} s")


def table(done: dict[Key, list[dict[str, Any]]]) -> None:
    """Prints the medians."""
    head = ("index", "asked", "in flight", "device", "recall", "queries/s", "p50 us", "p99 us")
    print("{:8} {:>5} {:>9} {:>6} {:>7} {:>10} {:>8} {:>8}".format(*head))
    for (index, recall, in_flight, device), records in done.items():
        middle = {
            name: statistics.median(one[name] for one in records) for name in ("recall", "qps", "p50", "p99")
        }
        print(
            f"{index:8} {recall:>5} {in_flight:>9} {device:>6} {middle['recall']:7.4f} {middle['qps']:10.0f} "
            f"{middle['p50']:8.0f} {middle['p99']:8.0f}"
        )


def main() -> None:
    """Builds what is missing, measures what is missing, prints all."""
    parser = argparse.ArgumentParser(
        description="Measures searches on a graphics card beside those of the processor."
    )
    for name in ("--base", "--query", "--groundtruth"):
        parser.add_argument(name, required=True)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/bench-gpu"))
    parser.add_argument("--devices", default="cpu,gpu")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--bathyal", default="target/release/bathyal")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * given.minutes
    for index, options in INDEXES.items():
        if not (given.work / index).exists():
            print(f"building {index}", flush=True)
            command(given.bathyal, "build", given.base, str(given.work / index), "--metric", "l2", *options)
    kept = given.work / "records.jsonl"
    done = read(kept)
    for repeat in range(REPEATS):
        for key in cells(given.devices.split(",")):
            index, recall, in_flight, device = key
            if len(done.get(key, [])) > repeat or time.monotonic() > until:
                continue
            asked = ["--recall", recall, "--in-flight", in_flight, "--device", device]
            asked += ["--groundtruth", given.groundtruth]
            answer = command(given.bathyal, "search", str(given.work / index), given.query, *asked)
            record = {
                "index": index,
                "recall_target": recall,
                "in_flight": in_flight,
                "device": device,
                "card": answer.get("card"),
                "recall": answer["recall"],
                "qps": answer["qps"],
                "p50": answer["latency_us"]["p50"],
                "p99": answer["latency_us"]["p99"],
                "reads": answer["reads_per_query"],
                "hops": answer["hops_per_query"],
            }
            done.setdefault(key, []).append(record)
            with kept.open("a") as file:
                file.write(json.dumps(record) + "\n")
    measure_whole(given, until)
    table(done)
    missing = sum(max(0, REPEATS - len(done.get(key, []))) for key in cells(given.devices.split(",")))
    if missing:
        print(f"{missing} measurements are missing: run it again")


if __name__ == "__main__":
    main()
