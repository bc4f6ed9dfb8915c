#!/usr/bin/env python3
"""Compares searches and builds on a graphics card, on the processor and with cuVS, on one machine.

usage: bench_gpu.py --base FILE --query FILE --groundtruth FILE.ibin [--work FOLDER] [--stages search,report]

Stages run in this order: `index` builds missing indexes, `search` searches on each device, `cuvs` searches
with cuVS if it is installed (`pip install cuvs-cu12`), `commands` times whole commands, `report` compares
throughput and memory at equal recall. `--minutes` limits each stage. Each measurement is made five times and
written to records.jsonl at once, so a stopped run continues.

The tables INDEXES, COMMANDS, SEARCHES and PEERS list the measurements. Add a row to measure more.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import bench_gpu_report
from bench_gpu_report import REPEATS, Cell, Records

# Concurrent queries; for cuVS, queries per call.
BATCHES = (64, 256, 1024, 4096)
# Requested recalls of Bathyal; cuVS has efforts instead.
RECALLS = ("0.85", "0.9", "0.95", "0.99")

# Build options of the indexes, by folder.
INDEXES = {
    "cluster": ("--family", "cluster"),
    "graph": ("--family", "graph", "--layout", "padded"),
    "pages": ("--family", "graph", "--layout", "page_local"),
}
# Commands that are timed as a whole; {new} is a path that does not exist.
COMMANDS = {
    "ground truth, processor": ("groundtruth", "{base}", "{query}", "{new}.ibin", "-k", "10"),
    "ground truth, card": ("groundtruth", "{base}", "{query}", "{new}.ibin", "-k", "10", "--device", "gpu"),
    "build cluster, processor": ("build", "{base}", "{new}", "--metric", "l2", *INDEXES["cluster"]),
    "build cluster, card": (
        "build",
        "{base}",
        "{new}",
        "--metric",
        "l2",
        "--device",
        "gpu",
        *INDEXES["cluster"],
    ),
    "build graph, processor": ("build", "{base}", "{new}", "--metric", "l2", *INDEXES["graph"]),
    "build graph, card": ("build", "{base}", "{new}", "--metric", "l2", "--device", "gpu", *INDEXES["graph"]),
}
# Searches: name, index, options.
SEARCHES = {
    "cluster, processor": ("cluster", ("--device", "cpu")),
    "cluster, card": ("cluster", ("--device", "gpu")),
    "cluster, all on the card": ("cluster", ("--device", "gpu", "--tier", "gpu")),
    "graph, processor": ("graph", ("--device", "cpu")),
    "graph, card": ("graph", ("--device", "gpu")),
    "graph, all on the card": ("graph", ("--device", "gpu", "--tier", "gpu")),
    "pages, processor": ("pages", ("--device", "cpu")),
    "pages, card": ("pages", ("--device", "gpu")),
}
# Indexes of cuVS in bench_gpu_cuvs.py, with their efforts.
PEERS = {
    "cagra": (32, 48, 64, 96, 128, 256, 512),
    "ivf_pq": (4, 8, 16, 32, 64, 128, 256),
    "ivf_rabitq": (4, 8, 16, 32, 64, 128, 256),
}


@dataclasses.dataclass
class Run:
    """State that all stages share."""

    options: argparse.Namespace
    records: Records
    until: float
    notes: list[str] = dataclasses.field(default_factory=list)

    def seconds_left(self) -> float:
        """Returns the seconds until the stage must end."""
        return self.until - time.monotonic()

    def missing(self, cells: list[Cell]) -> Iterator[Cell]:
        """Yields the missing measurements, all cells in turn, while the stage has time left."""
        for repeat in range(REPEATS):
            for cell in cells:
                if self.records.count(cell) > repeat:
                    continue
                if self.seconds_left() <= 0:
                    return
                yield cell

    def note_missing(self, cells: list[Cell]) -> None:
        """Notes the number of missing measurements of a stage."""
        missing = sum(max(0, REPEATS - self.records.count(cell)) for cell in cells)
        if missing:
            self.notes.append(f"{missing} measurements of {cells[0].stage} are missing: run it again")

    def command(self, *arguments: str) -> dict[str, Any] | None:
        """Runs a command and returns its output. Returns None, and notes the reason once, if it fails or
        times out.
        """
        shown = f"bathyal {' '.join(arguments[:1] + arguments[3:])}"
        try:
            ran = subprocess.run(
                [self.options.bathyal, *arguments, "--json"],
                capture_output=True,
                text=True,
                check=False,
                timeout=max(self.seconds_left(), 1.0),
            )
        except subprocess.TimeoutExpired:
            self.note(f"{shown}: timed out; use a larger --minutes")
            return None
        if ran.returncode:
            self.note(f"{shown}: {ran.stderr.strip()}")
            return None
        output: dict[str, Any] = json.loads(ran.stdout)
        return output

    def note(self, text: str) -> None:
        """Adds a note unless it exists."""
        if text not in self.notes:
            self.notes.append(text)


def index(run: Run) -> None:
    """Builds the missing indexes."""
    for name, options in INDEXES.items():
        path = run.options.work / name
        if not path.exists() and run.seconds_left() > 0:
            print(f"building {name}", flush=True)
            run.command("build", run.options.base, str(path), "--metric", "l2", *options)


def commands(run: Run) -> None:
    """Times whole commands."""
    cells = [Cell("commands", name, "", 0) for name in COMMANDS]
    failed: set[str] = set()
    for cell in run.missing(cells):
        if cell.system in failed:
            continue
        new = run.options.work / "timed"
        words = {"base": run.options.base, "query": run.options.query, "new": str(new)}
        began = time.monotonic()
        output = run.command(*(word.format(**words) for word in COMMANDS[cell.system]))
        seconds = time.monotonic() - began
        shutil.rmtree(new, ignore_errors=True)
        pathlib.Path(f"{new}.ibin").unlink(missing_ok=True)
        if output is None:
            failed.add(cell.system)
        else:
            run.records.add(cell, {"seconds": seconds})
    run.note_missing(cells)


def search(run: Run) -> None:
    """Searches on each device."""
    names = [name for name in SEARCHES if (run.options.work / SEARCHES[name][0]).exists()]
    for name in SEARCHES:
        if name not in names:
            run.note(f"{name}: its index is missing; run the stage index")
    cells = [Cell("search", name, recall, batch) for name in names for recall in RECALLS for batch in BATCHES]
    failed: set[str] = set()
    for cell in run.missing(cells):
        if cell.system in failed:
            continue
        folder, options = SEARCHES[cell.system]
        in_flight = max(1, cell.batch // run.options.threads)
        flags = ["--recall", cell.effort, "--in-flight", str(in_flight)]
        flags += ["--threads", str(run.options.threads), "-k", str(run.options.k)]
        flags += ["--groundtruth", run.options.groundtruth, *options]
        answer = run.command("search", str(run.options.work / folder), run.options.query, *flags)
        if answer is None:
            failed.add(cell.system)
            continue
        card = answer.get("card") or {}
        run.records.add(
            cell,
            {
                "recall": answer["recall"],
                "qps": answer["qps"],
                "p50_us": answer["latency_us"]["p50"],
                "p99_us": answer["latency_us"]["p99"],
                "reads": answer["reads_per_query"],
                "hops": answer["hops_per_query"],
                "card": card.get("name"),
                "card_bytes": card.get("resident_bytes"),
            },
        )
    run.note_missing([cell for cell in cells if cell.system not in failed])


def cuvs(run: Run) -> None:
    """Searches with cuVS, in this process, if it is installed."""
    try:
        import bench_gpu_cuvs
    except ImportError as reason:
        run.note(f"cuVS was not measured ({reason}): pip install cuvs-cu12 installs it")
        return
    for name, peer in bench_gpu_cuvs.PEERS.items():
        # CAGRA needs at least k candidates.
        efforts = [effort for effort in PEERS[name] if name != "cagra" or effort >= run.options.k]
        cells = [Cell("cuvs", f"cuVS {name}", str(effort), batch) for effort in efforts for batch in BATCHES]
        if all(run.records.count(cell) >= REPEATS for cell in cells) or run.seconds_left() <= 0:
            run.note_missing(cells)
            continue
        try:
            with contextlib.closing(bench_gpu_cuvs.CuvsIndex(peer, run.options)) as opened:
                for cell in run.missing(cells):
                    run.records.add(cell, opened.measure(int(cell.effort), cell.batch))
            run.note_missing(cells)
        # An exception of one index of cuVS must not stop the others.
        except Exception as reason:
            run.note(f"cuVS {name} was not measured: {type(reason).__name__}: {reason}")


def report(run: Run) -> None:
    """Writes the report over all records."""
    text, compared = bench_gpu_report.report(run.records, run.notes)
    (run.options.work / "report.md").write_text(text)
    (run.options.work / "report.json").write_text(json.dumps(compared, indent=1) + "\n")
    print(text)


STAGES: dict[str, Callable[[Run], None]] = {
    "index": index,
    "search": search,
    "cuvs": cuvs,
    "commands": commands,
    "report": report,
}


def arguments(words: list[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description="Compares searches and builds on a graphics card, on the processor and with cuVS."
    )
    for name in ("--base", "--query", "--groundtruth"):
        parser.add_argument(name, required=True)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/bench-gpu"))
    parser.add_argument("--stages", default=",".join(STAGES), help=f"comma-separated, of {', '.join(STAGES)}")
    parser.add_argument("--minutes", type=float, default=10.0, help="time limit of each stage in minutes")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--bathyal", default="target/release/bathyal")
    options = parser.parse_args(words)
    unknown = [stage for stage in options.stages.split(",") if stage not in STAGES]
    if unknown:
        parser.error(f"unknown stage: {', '.join(unknown)}; expected some of {', '.join(STAGES)}")
    return options


def main(words: list[str]) -> None:
    """Runs the chosen stages in order."""
    options = arguments(words)
    options.work.mkdir(parents=True, exist_ok=True)
    run = Run(options, Records(options.work / "records.jsonl"), until=0.0)
    for name, stage in STAGES.items():
        if name in options.stages.split(","):
            print(f"stage {name}", flush=True)
            run.until = time.monotonic() + 60 * options.minutes
            stage(run)
    if "report" not in options.stages.split(","):
        print("\n".join(run.notes))


if __name__ == "__main__":
    main(sys.argv[1:])
