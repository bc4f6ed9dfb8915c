"""A run from suite to report, with Bathyal alone: one process per measurement, reused indexes, reported
gaps.
"""

import sys
from pathlib import Path

from bathyal_bench import page, points, tables
from bathyal_bench.runner import Run
from bathyal_bench.suite import parse_suite

SUITE = {
    "name": "tiny",
    "threads": [1],
    "build_threads": 1,
    "repeats": 1,
    "latency_queries": 5,
    "warming_queries": 5,
    "least_seconds": 0.0,
    "data": [{"name": "tiny", "generated": {"count": 400, "dim": 8, "queries": 20}}],
    "systems": [
        {
            "name": "Bathyal",
            "peer": "bathyal",
            "build": {"family": "graph", "max_degree": 16, "search_list": 30},
            "open": {"tier": "file"},
            "effort": "search_list",
            "efforts": [10, 40],
        },
        {
            "name": "broken",
            "peer": "external",
            "efforts": [{"command": "x"}],
            "build": {"command": "x {nowhere}"},
        },
    ],
}


def test_a_relative_work_folder_is_made_absolute(tmp_path, monkeypatch):
    # ScaNN, for example, resolves relative paths in its files against the folder of those files.
    monkeypatch.chdir(tmp_path)
    with open("records.jsonl", "w") as log:
        made = Run(parse_suite(SUITE), Path("work"), log)
    assert made.work == tmp_path / "work"


def run(folder, name, **options):
    path = folder / name
    with open(path, "w") as log:
        Run(parse_suite(SUITE), folder, log, **options).execute()
    return points.read_records(path)


def test_a_run_measures_reuses_its_index_and_reports_gaps(tmp_path):
    records = run(tmp_path, "first.jsonl")
    (section,) = points.sections(records)
    (sweep,) = section.sweeps
    assert [point.label for point in sweep.points] == ["search_list 10", "search_list 40"]
    assert sweep.points[1].recall > 0.95
    assert sweep.points[0].figures["ratio"] > sweep.points[1].figures["ratio"] >= 1
    assert sweep.reads_source == "system"
    # On a file system in memory, no reads reach a device.
    for name in ("asked", "p50_us", "p99_us"):
        assert sweep.points[0].figures[name] > 0
    # So small an index may fit into memory that the process had already.
    assert sweep.points[0].figures["dram_bytes"] is not None
    build = points.latest_builds(records, "tiny")["Bathyal"]
    assert build["index_bytes"] > 400 * 8 * 4
    assert build["build_seconds"] > 0 and "cached" not in build
    (gap,) = points.gaps(records)
    assert gap["system"] == "broken" and "nowhere" in gap["reason"]
    assert "broken" in tables.report(records) and "broken" in page.page(records)

    again = run(tmp_path, "second.jsonl")
    reused = points.latest_builds(again, "tiny")["Bathyal"]
    assert reused["cached"] is True
    assert reused["build_seconds"] == build["build_seconds"]


def test_each_number_of_neighbours_is_measured(tmp_path):
    path = tmp_path / "several.jsonl"
    with open(path, "w") as log:
        suite = parse_suite(SUITE | {"k": [1, 5], "targets": [], "ratio_targets": [1.05]})
        Run(suite, tmp_path, log, only=("Bathyal",)).execute()
    records = points.read_records(path)
    assert [section.k for section in points.sections(records)] == [1, 5]
    assert "k = 1, 5." in tables.report(records)


def test_a_system_limited_to_one_thread_is_measured_with_one(tmp_path, monkeypatch):
    monkeypatch.setenv("BATHYAL_SRS", str(tmp_path))
    # The program is called to build, then to search.
    program = tmp_path / "srs"
    program.write_text(
        "#!/bin/sh\ntouch index.bin\necho Overall Ratio: 1.5\necho 'Average Time (s):  0.001'\n"
    )
    program.chmod(0o755)
    srs = {"name": "SRS", "peer": "srs", "build": {"m": 6}, "effort": "t", "efforts": [5]}
    path = tmp_path / "threads.jsonl"
    with open(path, "w") as log:
        suite = parse_suite(SUITE | {"systems": [srs], "threads": [1, 2], "repeats": 2})
        Run(suite, tmp_path / "work", log).execute()
    records = points.read_records(path)
    (section,) = points.sections(records)
    assert (section.threads, section.sweeps[0].points[0].repeats) == (1, 2)
    assert [one["reason"] for one in points.gaps(records)] == ["searches with one thread only"]


def test_building_and_measuring_can_be_two_runs(tmp_path):
    unbuilt = run(tmp_path, "unbuilt.jsonl", built_only=True, only=("Bathyal",))
    assert "Bathyal  to be built" in Run(parse_suite(SUITE), tmp_path, sys.stdout).plan()
    (gap,) = points.gaps(unbuilt)
    assert gap["kind"] == "skipped" and "not built" in gap["reason"]
    assert points.sections(unbuilt) == []

    built = run(tmp_path, "built.jsonl", build_only=True, only=("Bathyal",))
    assert points.sections(built) == [] and points.gaps(built) == []
    assert "tiny: building" in tables.report(built) and "Bathyal" in page.page(built)

    assert "Bathyal  built in" in Run(parse_suite(SUITE), tmp_path, sys.stdout).plan()

    measured = run(tmp_path, "measured.jsonl", built_only=True, only=("Bathyal",))
    assert len(points.sections(measured)) == 1
    assert points.latest_builds(measured, "tiny")["Bathyal"]["cached"] is True
