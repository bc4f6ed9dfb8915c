#!/usr/bin/env python3
"""Measures a graphics card beside the processor, and cuVS beside both, on one machine.

usage: bench_gpu.py --base FILE --query FILE --groundtruth FILE.ibin [--work FOLDER] [--stages search,report]

Stages, each alone, in this order: `index` builds what is not there yet, `search` searches on each device, `cuvs`
searches with cuVS where `pip install cuvs-cu12` has put it, `commands` times commands as a whole, `report` compares
throughput and memory at equal recall. A stage takes at most so many minutes; each measurement is made five times,
written to records.jsonl at once, and not made again, so that a run that was stopped goes on.

What is measured stands in tables below: INDEXES, COMMANDS, SEARCHES, PEERS. A further row is a further line.
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

# Queries under way at once, or of a call of cuVS.
BATCHES = (64, 256, 1024, 4096)
# Recalls that Bathyal is asked for; cuVS has efforts instead.
RECALLS = ("0.85", "0.9", "0.95", "0.99")

# How indexes are built, by folder.
INDEXES = {
    "cluster": ("--family", "cluster"),
    "graph": ("--family", "graph", "--layout", "padded"),
    "pages": ("--family", "graph", "--layout", "page_local"),
}
# Commands that are timed as a whole, from start to end; {new} is a path that is not there.
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
# What is searched: name, index, options.
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
# What of cuVS is searched, in bench_gpu_cuvs.py, and with which efforts.
PEERS = {
    "cagra": (32, 48, 64, 96, 128, 256, 512),
    "ivf_pq": (4, 8, 16, 32, 64, 128, 256),
    "ivf_rabitq": (4, 8, 16, 32, 64, 128, 256),
}


@dataclasses.dataclass
class Run:
    """What all stages know."""

    given: argparse.Namespace
    records: Records
    until: float
    notes: list[str] = dataclasses.field(default_factory=list)

    def left(self) -> float:
        """Seconds until the stage has to end."""
        return self.until - time.monotonic()

    def missing(self, cells: list[Cell]) -> Iterator[Cell]:
        """What is to be measured, all cells in turn, while the stage has time left."""
        for repeat in range(REPEATS):
            for cell in cells:
                if self.records.count(cell) > repeat:
                    continue
                if self.left() <= 0:
                    return
                yield cell

    def note_missing(self, cells: list[Cell]) -> None:
        """Says what a stage has not got to."""
        missing = sum(max(0, REPEATS - self.records.count(cell)) for cell in cells)
        if missing:
            self.notes.append(f"{missing} measurements of {cells[0].stage} are missing: run it again")

    def command(self, *arguments: str) -> dict[str, Any] | None:
        """The answer of a command; nothing where it failed or had no time, which is noted once."""
        told = f"bathyal {' '.join(arguments[:1] + arguments[3:])}"
        try:
            ran = subprocess.run(
                [self.given.bathyal, *arguments, "--json"],
                capture_output=True,
                text=True,
                check=False,
                timeout=max(self.left(), 1.0),
            )
        except subprocess.TimeoutExpired:
            self.note(f"{told}: had no time to end; give the stage more --minutes")
            return None
        if ran.returncode:
            self.note(f"{told}: {ran.stderr.strip()}")
            return None
        answer: dict[str, Any] = json.loads(ran.stdout)
        return answer

    def note(self, text: str) -> None:
        """Keeps a note, once."""
        if text not in self.notes:
            self.notes.append(text)


def index(run: Run) -> None:
    """Builds the indexes that are not there."""
    for name, options in INDEXES.items():
        path = run.given.work / name
        if not path.exists() and run.left() > 0:
            print(f"building {name}", flush=True)
            run.command("build", run.given.base, str(path), "--metric", "l2", *options)


def commands(run: Run) -> None:
    """Times commands."""
    cells = [Cell("commands", name, "", 0) for name in COMMANDS]
    failed: set[str] = set()
    for cell in run.missing(cells):
        if cell.system in failed:
            continue
        new = run.given.work / "timed"
        words = {"base": run.given.base, "query": run.given.query, "new": str(new)}
        began = time.monotonic()
        answer = run.command(*(word.format(**words) for word in COMMANDS[cell.system]))
        seconds = time.monotonic() - began
        shutil.rmtree(new, ignore_errors=True)
        pathlib.Path(f"{new}.ibin").unlink(missing_ok=True)
        if answer is None:
            failed.add(cell.system)
        else:
            run.records.add(cell, {"seconds": seconds})
    run.note_missing(cells)


def search(run: Run) -> None:
    """Searches on each device."""
    names = [name for name in SEARCHES if (run.given.work / SEARCHES[name][0]).exists()]
    for name in SEARCHES:
        if name not in names:
            run.note(f"{name}: its index is not there; run the stage index")
    cells = [Cell("search", name, recall, batch) for name in names for recall in RECALLS for batch in BATCHES]
    failed: set[str] = set()
    for cell in run.missing(cells):
        if cell.system in failed:
            continue
        folder, options = SEARCHES[cell.system]
        in_flight = max(1, cell.batch // run.given.threads)
        asked = ["--recall", cell.effort, "--in-flight", str(in_flight), "--threads", str(run.given.threads)]
        asked += ["-k", str(run.given.k), "--groundtruth", run.given.groundtruth, *options]
        answer = run.command("search", str(run.given.work / folder), run.given.query, *asked)
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
    """Searches with cuVS, in this process, where it is installed."""
    try:
        import bench_gpu_cuvs
    except ImportError as reason:
        run.note(f"cuVS was not measured ({reason}): pip install cuvs-cu12 installs it")
        return
    for name, peer in bench_gpu_cuvs.PEERS.items():
        # CAGRA keeps at least as many candidates as it answers with.
        efforts = [effort for effort in PEERS[name] if name != "cagra" or effort >= run.given.k]
        cells = [Cell("cuvs", f"cuVS {name}", str(effort), batch) for effort in efforts for batch in BATCHES]
        if all(run.records.count(cell) >= REPEATS for cell in cells) or run.left() <= 0:
            run.note_missing(cells)
            continue
        try:
            with contextlib.closing(bench_gpu_cuvs.Opened(peer, run.given)) as opened:
                for cell in run.missing(cells):
                    run.records.add(cell, opened.measure(int(cell.effort), cell.batch))
            run.note_missing(cells)
        # Whatever cuVS raises, the others are measured.
        except Exception as reason:
            run.note(f"cuVS {name} was not measured: {type(reason).__name__}: {reason}")


def report(run: Run) -> None:
    """Compares what was measured."""
    text, compared = bench_gpu_report.report(run.records, run.notes)
    (run.given.work / "report.md").write_text(text)
    (run.given.work / "report.json").write_text(json.dumps(compared, indent=1) + "\n")
    print(text)


STAGES: dict[str, Callable[[Run], None]] = {
    "index": index,
    "search": search,
    "cuvs": cuvs,
    "commands": commands,
    "report": report,
}


def arguments(words: list[str]) -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(
        description="Measures a graphics card beside the processor, and cuVS beside both."
    )
    for name in ("--base", "--query", "--groundtruth"):
        parser.add_argument(name, required=True)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/bench-gpu"))
    parser.add_argument("--stages", default=",".join(STAGES), help=f"some of {', '.join(STAGES)}")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each stage, at most")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--bathyal", default="target/release/bathyal")
    given = parser.parse_args(words)
    unknown = [stage for stage in given.stages.split(",") if stage not in STAGES]
    if unknown:
        parser.error(f"no such stage: {', '.join(unknown)}; there are {', '.join(STAGES)}")
    return given


def main(words: list[str]) -> None:
    """Runs stages, in their order."""
    given = arguments(words)
    given.work.mkdir(parents=True, exist_ok=True)
    run = Run(given, Records(given.work / "records.jsonl"), until=0.0)
    for name, stage in STAGES.items():
        if name in given.stages.split(","):
            print(f"stage {name}", flush=True)
            run.until = time.monotonic() + 60 * given.minutes
            stage(run)
    if "report" not in given.stages.split(","):
        print("\n".join(run.notes))


if __name__ == "__main__":
    main(sys.argv[1:])
