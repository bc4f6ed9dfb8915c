"""A run: builds missing indexes in the bucket, chooses efforts, measures warm and cold, all systems in
turn.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from bathyal_bench.cloud.servers import Store
from bathyal_bench.cloud.systems import Effort, System, systems
from bathyal_bench.datasets import DataSet, shape
from bathyal_bench.points import read_records
from bathyal_bench.runner import machine, say

# Efforts with a lower recall are not measured; of the efforts above the upper limit the cheapest is enough.
LEAST_RECALL, MOST_RECALL = 0.80, 0.993
# With 200 queries, smaller differences of recall mean nothing.
SAME_RECALL = 0.002
# Recall of the effort for the first answer of a process.
COLD_RECALL = 0.95
# Lines of a failed worker's output in the record.
LAST_LINES = 5


@dataclass(frozen=True)
class Plan:
    """The measurements of a run and their numbers of repeats."""

    emulated: str
    k: int
    concurrencies: tuple[tuple[int, int], ...]
    """Pairs of queries in flight and number of queries."""
    repeats: int
    cold_processes: int
    survey_queries: int
    surveyed: Path | None
    """Records of an earlier run over the same indexes, with the recalls of efforts to reuse."""
    warming_queries: int
    targets: tuple[float, ...]
    only: tuple[str, ...]
    """Short names of systems; empty for all."""
    rebuild: bool
    timeout_seconds: float


@dataclass
class Run:
    """A run over one data set: its folder, its output, and the bucket, at the server and behind the relay."""

    plan: Plan
    data: DataSet
    work: Path
    output: TextIO
    server: Store
    relay: Store

    def execute(self) -> None:
        """Executes the whole plan."""
        plan, data = self.plan, self.data
        element = {".fbin": "f32"}.get(data.base.suffix, data.base.suffix[1:].removesuffix("bin"))
        about = {"count": data.count, "dim": data.dim, "element": element, "metric": data.metric}
        # Reports look for a field named suite.
        suite = vars(plan) | {"targets": plan.targets, "reference": "Bathyal cluster"}
        suite["surveyed"] = None if plan.surveyed is None else plan.surveyed.name
        self.record({"kind": "run", "machine": machine(), "suite": suite, "data": data.name} | about)
        efforts = {name: self.prepared(name, one) for name, one in self.chosen().items()}
        ready = {name: chosen for name, chosen in efforts.items() if chosen}
        for repeat in range(plan.repeats):
            for name, (efforts_of, _) in ready.items():
                say(f"{data.name}, warm, repeat {repeat + 1}: {name}")
                job = {"efforts": efforts_of, "warming_queries": plan.warming_queries}
                job |= {"concurrencies": self.affordable()}
                self.work_on(name, "warm", job, {"repeat": repeat, "cache": "warm"})
        for row in range(plan.cold_processes):
            for name, (_, effort) in ready.items():
                say(f"{data.name}, cold, process {row + 1}: {name}")
                self.work_on(name, "cold", {"row": row, "effort": effort}, {"row": row})

    def chosen(self) -> dict[str, System]:
        """Returns the systems that the command line selects."""
        return {
            name: one
            for name, one in systems(self.data).items()
            if not self.plan.only or name in self.plan.only
        }

    def affordable(self) -> list[tuple[int, int]]:
        """Returns the concurrencies, each with at most as many queries as the data set has."""
        available = shape(self.data.queries)[0]
        return [(concurrency, min(count, available)) for concurrency, count in self.plan.concurrencies]

    def prepared(self, name: str, system: System) -> tuple[list[Effort], Effort] | None:
        """Builds a system's index and chooses its efforts: those to sweep over, and the one for cold queries.

        Returns None if the system cannot be measured, and records why.
        """
        say(f"{self.data.name}: building {system.name}, unless it exists")
        built = self.work_on(
            name, "build", {"scratch": str(self.work / "scratch"), "rebuild": self.plan.rebuild}, {}
        )
        if built[-1]["kind"] != "build":
            return None
        say(f"{self.data.name}: recall of the efforts of {system.name}")
        surveyed = self.known(system) or self.work_on(
            name, "survey", {"queries": self.plan.survey_queries}, {}
        )
        if surveyed[-1]["kind"] != "survey":
            return None
        recalls = [(one["effort"], one["recall"]) for one in surveyed]
        chosen = worthwhile(recalls)
        enough = [effort for effort, recall in recalls if recall >= COLD_RECALL and effort in chosen]
        return chosen, min(enough or chosen[-1:], key=cost)

    def known(self, system: System) -> list[dict[str, Any]]:
        """Returns the recalls of a system's efforts that an earlier run recorded."""
        if self.plan.surveyed is None:
            return []
        same = {"kind": "survey", "data": self.data.name, "system": system.name, "k": self.plan.k}
        found = [one for one in read_records(self.plan.surveyed) if same.items() <= one.items()]
        for one in found:
            self.record(one)
        return found

    def work_on(
        self, name: str, task: str, job: dict[str, Any], where: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Runs a worker and records its output, which it returns; the last record is a failure if the worker
        failed.
        """
        answers = self.work / f"worker-{os.getpid()}.jsonl"
        answers.unlink(missing_ok=True)
        stores = {"server": vars(self.server), "relay": vars(self.relay)}
        common = {"task": task, "system": name, "data": self.data.as_json(), "k": self.plan.k}
        failure = run_worker(
            job | common | stores | {"output": str(answers)},
            answers.with_suffix(".log"),
            self.plan.timeout_seconds,
        )
        text = answers.read_text(encoding="utf-8") if answers.exists() else ""
        records: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        answers.unlink(missing_ok=True)
        if failure is not None or not records:
            records.append({"kind": "failed", "reason": failure or "measured nothing", "task": task})
        system = systems(self.data)[name]
        about = {"data": self.data.name, "system": system.name, "k": self.plan.k} | where
        for record in records:
            self.record(record | about)
        if records[-1]["kind"] in ("failed", "skipped"):
            say(f"{system.name}: {records[-1]['kind']}: {records[-1]['reason']}")
        return records

    def record(self, entry: dict[str, Any]) -> None:
        """Appends a line to the output."""
        self.output.write(json.dumps(entry) + "\n")
        self.output.flush()


def worthwhile(recalls: list[tuple[Effort, float]]) -> list[Effort]:
    """Returns the efforts worth measuring.

    Drops efforts with too little recall, and efforts that cost no less in any number than another one with as
    much recall. If all find too little, it returns the one that finds most.
    >>> found = [(1, 0.5), (2, 0.90), (3, 0.90), (4, 0.995), (5, 0.999)]
    >>> worthwhile([({"nprobes": probes}, recall) for probes, recall in found])
    [{'nprobes': 2}, {'nprobes': 4}]
    >>> both = [((8, 2), 0.9), ((8, 5), 0.95), ((16, 2), 0.94), ((16, 5), 0.951)]
    >>> worthwhile([({"nprobes": one, "refine_factor": other}, recall) for (one, other), recall in both])
    [{'nprobes': 8, 'refine_factor': 2}, {'nprobes': 8, 'refine_factor': 5}, {'nprobes': 16, 'refine_factor': 2}]
    """
    kept: list[tuple[Effort, float]] = []
    # Efforts with smaller numbers come first.
    for effort, recall in recalls:
        as_good = min(recall, MOST_RECALL) - SAME_RECALL
        beaten = any(
            found >= as_good and all(other[name] <= effort[name] for name in effort) for other, found in kept
        )
        if recall >= LEAST_RECALL and not beaten:
            kept.append((effort, recall))
    return [effort for effort, _ in kept or [max(recalls, key=lambda one: one[1])]]


def cost(effort: Effort) -> float:
    """Returns a number that rises with the reads of an effort: lists and candidates count alike, one request
    each.
    """
    return float(sum(effort.values()))


def run_worker(job: dict[str, Any], log: Path, timeout: float) -> str | None:
    """Runs a job to its end; returns the reason of a failure, or None."""
    places = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(places)}
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bathyal_bench.cloud.worker"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(job).encode(), timeout=timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return f"took more than {timeout:.0f} seconds"
            raise
    if process.returncode == 0:
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"ended with {process.returncode}: {' / '.join(lines[-LAST_LINES:])}"
