"""The growth benchmark: steps are done once, exponents are fitted, and records alone make the report."""

import argparse
import json
import math
import struct

import pytest

import growth
import growth_report

SEARCH = {
    "recall": 0.951,
    "processor_us_per_query": 100.0,
    "phase_us_per_query": {"navigate": 20.0, "scan": 60.0, "read": 900.0, "rerank": 5.0},
    "reads_per_query": 12.0,
    "hops_per_query": 1.0,
    "bytes_per_query": 49152.0,
    "code_distances_per_query": 9000.0,
    "search_list": 16,
    "latency_us": {"p50": 400.0},
    "dram_bytes": 40_000_000,
    "query_state_bytes": 170_000,
    "open_seconds_cold": 0.4,
    "open_seconds_warm": 0.1,
    "load": 1.5,
}
BUILD = {
    "family": "cluster",
    "build_seconds": 10.0,
    "processor_seconds": 18.0,
    "continued": False,
    "peak_rss_bytes": 180_000_000,
    "index_bytes": 168_000_000,
    "amplification": 1.3,
    "stage_seconds": [["group", 4.0], ["write vectors", 1.0], ["group", 2.0]],
    "load": 3.0,
}


def test_a_power_law_is_fitted():
    slope, off = growth_report.fitted([(n, 3.0 * n**0.7) for n in (10**5, 10**6, 10**7)])
    assert math.isclose(slope, 0.7) and math.isclose(off, 1.0)
    # One point, or none with a logarithm, determines no exponent.
    assert growth_report.fitted([(10**5, 2.0), (10**6, None), (10**7, 0.0)]) is None
    _, off = growth_report.fitted([(10**5, 1.0), (10**6, 4.0), (10**7, 1.0)])
    assert off > 2


def test_a_step_is_done_once_even_if_a_kill_cut_a_line(tmp_path):
    path, done = tmp_path / "growth.jsonl", []
    for name in ("first", "second"):
        growth.Records(path).once(name, lambda name=name: done.append(name) or {"figure": name})
    path.write_text(path.read_text() + '{"step": "third", "fig', encoding="utf-8")
    records = growth.Records(path)
    for name in ("first", "second", "third"):
        found = records.once(name, lambda name=name: done.append(name) or {"figure": name})
        assert found["figure"] == name
    assert done == ["first", "second", "third"]
    assert set(growth.Records(path).steps) == {"first", "second", "third"}


def test_hardness_follows_its_formulas(tmp_path):
    base, queries, truth = tmp_path / "base.u8bin", tmp_path / "queries.u8bin", tmp_path / "truth.ibin"
    base.write_bytes(struct.pack("<II", 3, 1) + bytes([1, 1, 1]))
    queries.write_bytes(struct.pack("<II", 1, 1) + bytes([5]))
    # The squares of 2, 4 and 8.
    truth.write_bytes(struct.pack("<II3i3f", 1, 3, 0, 1, 2, 4.0, 16.0, 64.0))
    found = growth.hardness(base, queries, truth)
    assert math.isclose(found["lid_mean"], 2 / (math.log(4) + math.log(2)))
    assert math.isclose(found["relative_contrast"], 4 / 2)
    assert math.isclose(found["relative_contrast_last"], 4 / 8)


def test_chosen_queries_are_spread_evenly_over_the_file(tmp_path):
    source, target = tmp_path / "all.u8bin", tmp_path / "some.u8bin"
    source.write_bytes(struct.pack("<II", 10, 2) + bytes(range(20)))
    growth.choose_queries(source, target, 4)
    assert target.read_bytes() == struct.pack("<II", 4, 2) + bytes([0, 1, 4, 5, 10, 11, 14, 15])


def test_records_make_the_report(tmp_path):
    steps = {}
    for n, processor in ((10**5, 80.0), (10**6, 100.0), (10**8, 225.0)):
        place = f"blended/{n}/cluster"
        steps[f"build/{place}"] = {**BUILD, "build_seconds": n / 1e5, "continued": n == 10**8}
        steps[f"search/{place}/file/0.95"] = {**SEARCH, "processor_us_per_query": processor}
        steps[f"state/{place}"] = {
            "planned_state_bytes": 170_000, "measured_state_bytes": 90_000, "search_list": 16,
        }  # fmt: skip
    steps["search/blended/100000000/cluster/dram/0.95"] = {"left_out": "does not fit"}
    path = tmp_path / "growth.jsonl"
    path.write_text("".join(json.dumps({"step": step, **one}) + "\n" for step, one in steps.items()))
    text = growth_report.report(growth.Records(path).steps)
    assert "| blended, cluster | 10^8 | 1,000 | 18* |" in text
    assert "group 6, write vectors 1" in text
    assert "| blended, cluster, file, 0.95 | 10^6 | 10^8 | 2.25 | 1.00 | 1.00 |" in text
    assert "| blended, dram | 10^8 | does not fit |" in text
    assert "+1.00 (1.00)" in text and "170 KB | 90 KB" in text
    # Every row of a table has as many columns as its head.
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.count(" | ") for row in rows if not set(row) <= set("|-: ")}) <= 1


def test_invalid_sizes_and_families_are_refused():
    assert growth.size("1e6") == 10**6
    for text in ("0", "1.5", "-3"):
        with pytest.raises(argparse.ArgumentTypeError):
            growth.size(text)
    with pytest.raises(argparse.ArgumentTypeError):
        growth.limit("tree=1e6")
    assert growth.limit("graph=1e7") == ("graph", 10**7)
