"""Runs a suite: builds missing indexes, then measures all systems in turn, in one process each, repeats
interleaved.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from bathyal_bench.datasets import DataSet, prepare
from bathyal_bench.install import FAILURES
from bathyal_bench.peers import peer_class
from bathyal_bench.suite import Suite, System

ROOT = Path(__file__).resolve().parents[2]
# Thread pools that libraries would otherwise make as large as the machine.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "LANCE_CPU_THREADS",
)
# A higher load before a run means that other programs are running.
BUSY_LOAD = 0.5
# Lines of a failed worker's output in the record.
LAST_LINES = 3


class NotInstalled(Exception):
    """A system is not installed; the message has the reason, or what to do."""


@dataclass
class Run:
    """A run of a suite: its folder and its output."""

    suite: Suite
    work: Path
    output: TextIO
    rebuild: bool = False
    only: tuple[str, ...] = ()
    built_only: bool = False
    """True to leave out systems without a built index."""
    build_only: bool = False
    """True to stop after the builds."""
    built: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Systems resolve relative paths against different folders.
        self.work = self.work.resolve()

    def record(self, entry: dict[str, Any]) -> None:
        """Appends a line to the output."""
        self.output.write(json.dumps(entry) + "\n")
        self.output.flush()

    def execute(self) -> None:
        """Executes the whole suite."""
        about = machine()
        self.record({"kind": "run", "machine": about, "suite": suite_as_json(self.suite)})
        if about["load"] > BUSY_LOAD and not self.build_only:
            say(f"the load is {about['load']:.1f}: other programs are running and will distort the figures")
        for entry in self.suite.data:
            data = prepare(entry, self.work / "data")
            systems = [one for one in self.suite.systems_for(entry["name"]) if self.chosen(one)]
            facts = {
                "count": data.count,
                "dim": data.dim,
                "element": data.base.suffix[1:].removesuffix("bin"),
            }
            facts |= {"metric": data.metric, "data_bytes": data.data_bytes}
            self.record({"kind": "data", "data": data.name} | facts)
            if not systems:
                say(f"{data.name}: no system's name contains {' or '.join(self.only)}")
            indexes = {system.name: self.index_of(system, data) for system in systems}
            if not self.build_only:
                self.measure(data, [(one, indexes[one.name]) for one in systems if indexes[one.name]])

    def chosen(self, system: System) -> bool:
        """Returns true if the command line selects the system."""
        return not self.only or any(text.lower() in system.name.lower() for text in self.only)

    def index_of(self, system: System, data: DataSet) -> Path | None:
        """Returns the built index; None if there is none, for a reason that is recorded."""
        where = {"data": data.name, "system": system.name, "peer": system.peer}
        try:
            folder, version = self.folder_of(system, data)
        except NotInstalled as reason:
            self.skip(str(reason), where)
            return None
        key, build_record = folder.name, folder.with_suffix(".json")
        previous = previous_build(folder) if key in self.built or not self.rebuild else None
        if previous is not None:
            self.record(previous | where | {"cached": key not in self.built})
            self.warn_of_age(system, previous)
            return folder
        if self.built_only:
            self.skip(f"its index is not built ({key}): run without --built-only", where)
            return None
        say(f"{data.name}: building {system.name}")
        record = self.build(system, data, folder) | where
        record |= {"version": version, "threads": self.suite.build_threads}
        if system.peer == "bathyal":
            record["commit"] = machine()["commit"]
        self.record(record)
        if record["kind"] != "build":
            say(f"{system.name}: {record['kind']}: {record['reason']}")
            return None
        build_record.write_text(json.dumps(record), encoding="utf-8")
        self.built.add(key)
        return folder

    def folder_of(self, system: System, data: DataSet) -> tuple[Path, str]:
        """Returns the folder of the index, existing or not, and the version of the system.

        Raises:
            NotInstalled: the message has the reason.
        """
        try:
            version = peer_class(system.peer).version()
        except importlib.metadata.PackageNotFoundError as error:
            known = install_failures().get(str(error.name))
            raise NotInstalled(known or "is not installed: make bench-peers") from None
        key = system.index_key(data.name, data.data_bytes, data.metric, self.suite.build_threads, version)
        return self.work / "indexes" / key, version

    def warn_of_age(self, system: System, known: dict[str, Any]) -> None:
        """Warns if an index of Bathyal was built by another commit: nothing else would show it."""
        commit = machine()["commit"]
        if known.get("commit", commit) != commit:
            say(
                f"{system.name}: its index was built by {known['commit']}: --rebuild --only bathyal rebuilds it"
            )

    def plan(self) -> str:
        """Returns what a run would build and measure, one line per system."""
        suite, lines = self.suite, []
        counts = f"{suite.repeats} repeats of {', '.join(map(str, suite.threads))} threads"
        lines.append(f"{suite.name}: {counts}, {' and '.join(suite.caches)}")
        for entry in suite.data:
            data = prepare(entry, self.work / "data")
            for system in suite.systems_for(entry["name"]):
                if self.chosen(system):
                    lines.append(f"{data.name}  {system.name}  {self.status(system, data)}")
        return "\n".join(lines)

    def status(self, system: System, data: DataSet) -> str:
        """Returns whether the index of a system exists, and where."""
        try:
            folder, _ = self.folder_of(system, data)
        except NotInstalled as reason:
            return f"left out: {reason}"
        previous = previous_build(folder)
        if previous is None:
            return "left out: not built" if self.built_only else "to be built"
        size, seconds = previous["index_bytes"] / 1e6, previous["build_seconds"]
        return f"built in {seconds:.0f} s, {size:.0f} MB, {folder}"

    def skip(self, reason: str, where: dict[str, Any]) -> None:
        """Leaves a system out; records and prints the reason."""
        self.record({"kind": "skipped", "reason": reason} | where)
        say(f"{where['system']}: skipped: {reason}")

    def build(self, system: System, data: DataSet, folder: Path) -> dict[str, Any]:
        """Builds into a temporary folder, and renames it to ``folder`` when complete."""
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.parent.mkdir(parents=True, exist_ok=True)
        job = {"task": "build", "index": str(partial), "options": system.build}
        records = self.work_on(job, system, data, self.suite.build_threads)
        if records[-1]["kind"] == "build":
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        else:
            shutil.rmtree(partial, ignore_errors=True)
        return records[-1]

    def measure(self, data: DataSet, systems: list[tuple[System, Path | None]]) -> None:
        """Measures searches. The systems take turns, so that a slow minute of the machine affects all of
        them.
        """
        # A failed system is not tried again, since it may fail after hours. A system that cannot search with
        # two threads may with one.
        failed: set[str] = set()
        unable: set[tuple[str, int, int]] = set()
        suite = self.suite
        turns = itertools.product(suite.caches, range(suite.repeats), suite.threads, suite.k, systems)
        for cache, repeat, threads, k, (system, index) in turns:
            if system.name in failed or (system.name, threads, k) in unable:
                continue
            where = {"data": data.name, "system": system.name, "peer": system.peer}
            where |= {"threads": threads, "repeat": repeat, "cache": cache, "k": k}
            turn = f"{cache}, repeat {repeat + 1}, {threads} threads, k = {k}"
            say(f"{data.name}, {turn}: {system.name}")
            records = self.work_on(self.search_job(system, index, cache, k), system, data, threads)
            for record in records:
                self.record(record | where)
            if records[-1]["kind"] != "search":
                say(f"{system.name}: {records[-1]['kind']}: {records[-1]['reason']}")
            if records[-1]["kind"] == "failed":
                failed.add(system.name)
            elif records[-1]["kind"] == "skipped":
                unable.add((system.name, threads, k))

    def search_job(self, system: System, index: Path | None, cache: str, k: int) -> dict[str, Any]:
        """Returns the job of a worker."""
        suite = self.suite
        return {
            "task": "search",
            "index": str(index),
            "cache": cache,
            "k": k,
            "open": system.open,
            "search": system.search,
            "efforts": list(system.efforts),
            "queries": system.queries or suite.queries,
            "warming_queries": suite.warming_queries,
            "latency_queries": suite.latency_queries,
            "least_seconds": suite.least_seconds,
            "page_cache": suite.page_cache,
        }

    def work_on(
        self, job: dict[str, Any], system: System, data: DataSet, threads: int
    ) -> list[dict[str, Any]]:
        """Runs a worker and returns its records; the last is a failure if the worker failed."""
        answers = self.work / f"worker-{os.getpid()}.jsonl"
        answers.unlink(missing_ok=True)
        job |= {"peer": system.peer, "data": data.as_json(), "threads": threads, "output": str(answers)}
        job |= {"work": str(self.work / "data"), "processors": threads if self.suite.pin else None}
        log = answers.with_suffix(".log")
        failure = run_worker(job, threads, log, self.suite.timeout_seconds)
        text = answers.read_text(encoding="utf-8") if answers.exists() else ""
        records: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        answers.unlink(missing_ok=True)
        if failure is not None or not records:
            records.append({"kind": "failed", "reason": failure or "measured nothing"})
        return records


def previous_build(folder: Path) -> dict[str, Any] | None:
    """Returns the record of a complete index; None if there is none."""
    build_record = folder.with_suffix(".json")
    if not (folder.exists() and build_record.exists()):
        return None
    previous: dict[str, Any] = json.loads(build_record.read_text(encoding="utf-8"))
    return previous


def run_worker(job: dict[str, Any], threads: int, log: Path, timeout: float) -> str | None:
    """Runs a job to its end; returns the reason of a failure, or None."""
    environment = dict(os.environ) | {name: str(threads) for name in THREAD_VARIABLES}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bathyal_bench.worker"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(job).encode(), timeout=timeout)
        except BaseException as error:
            # Kill the whole session, including programs that the worker started.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return f"took more than {timeout:.0f} seconds"
            raise
    if process.returncode == 0:
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"ended with {process.returncode}: {' / '.join(lines[-LAST_LINES:])}"


def install_failures() -> dict[str, str]:
    """Returns the packages that `make bench-peers` could not install, with the reasons."""
    path = Path(sys.prefix) / FAILURES
    if not path.exists():
        return {}
    failures: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return failures


def say(text: str) -> None:
    """Prints progress to stderr."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def suite_as_json(suite: Suite) -> dict[str, Any]:
    """Returns the suite for the record; paths stay unexpanded."""
    fields = dict(vars(suite))
    fields["systems"] = [vars(system) for system in suite.systems]
    return fields


def read_ahead_kb() -> int | None:
    """Returns the kernel's read-ahead limit for the device of this repository."""
    device = os.stat(ROOT).st_dev
    path = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    return int(path.read_text(encoding="ascii")) if path.exists() else None


def machine() -> dict[str, Any]:
    """Describes the machine and its state, on which figures depend."""
    model = "unknown"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model
        )
    except OSError:
        pass  # No such file outside Linux; the name is a remark only.
    git = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "read_ahead_kb": read_ahead_kb(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release().split("-")[0],
        "commit": git.stdout.strip() or "unknown",
        "load": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
