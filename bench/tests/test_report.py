"""Reports: figures at equal recall, flags of unequal memory, and kept reports."""

import doctest
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import growth
import growth_report
from bathyal_bench import drawing, page, points, tables
from bathyal_bench.cloud import tables as cloud_tables
from bathyal_bench.served import report as served_report

RECORDED = Path(__file__).with_name("recorded.jsonl")
RECORDS = sorted((Path(__file__).parents[2] / "docs/benchmarks").glob("*.jsonl"))
# Records of `bench/changing.py`, which its own test covers, of `scripts/check_advice.py` and `bench/served.py`,
# which tests below cover, and of a report that is not generated.
ADVICE = {
    "advice": "check_advice.py",
    "advice-places": "check_advice.py",
    "advice-hard": "check_advice.py",
    "advice-collections": "check_advice_collections.py",
}
"""The scripts that print the tables of records of advice."""
ELSEWHERE = {*ADVICE, "changing", "h100-minilm", "h100-sift", "served"}
AT_95, AT_99 = points.Goal("recall", 0.95), points.Goal("recall", 0.99)


@pytest.fixture
def recorded():
    """The records of a run: three systems, one skipped, one failed."""
    return points.read_records(RECORDED)


def point(recall, qps, **more):
    figures = dict.fromkeys(points.FIGURES, 1.0) | {"recall": recall, "qps": qps} | more
    return points.Point(f"effort {qps}", figures, {"qps": (qps, qps)}, 1)


@pytest.mark.parametrize(
    "name", ["suite", "points", "ratio", "tables", "drawing", "peers.srs", "peers.qalsh"]
)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(f"bathyal_bench.{name}")).failed == 0


def test_throughput_is_interpolated_between_logarithms():
    # The missing recall falls by a factor of 10 while throughput falls by 100, so halfway throughput has
    # fallen by 10.
    found = points.at_recall([point(0.9, 10_000.0), point(0.99, 100.0)], 1 - 10**-1.5)
    assert found.figures["qps"] == pytest.approx(1000.0)
    assert not found.above


def test_a_measured_recall_is_met_exactly():
    found = points.at_recall([point(0.8, 900.0), point(0.95, 500.0), point(0.99, 100.0)], 0.95)
    assert found.figures["qps"] == pytest.approx(500.0)


def test_a_recall_out_of_reach_has_no_figures():
    assert points.at_recall([point(0.8, 900.0), point(0.94, 500.0)], 0.95) is None
    assert points.at_recall([], 0.95) is None


def test_a_sweep_that_begins_above_the_recall_is_marked():
    found = points.at_recall([point(0.97, 900.0), point(0.99, 500.0)], 0.9)
    assert found.above
    assert (found.figures["recall"], found.figures["qps"]) == (0.97, 900.0)


def test_dominated_points_do_not_count():
    # More effort with less recall and less throughput is noise, or a bad parameter.
    curve = [point(0.9, 1000.0), point(0.89, 400.0), point(0.99, 300.0)]
    assert [one.recall for one in points.frontier(curve)] == [0.9, 0.99]


def test_points_of_one_option_keep_their_order_whatever_their_throughput():
    # A slow minute affected the first point, but reads at a recall are still between it and the next.
    sweep = [point(0.8, 90.0, reads=20.0), point(0.98, 100.0, reads=30.0), point(0.98, 50.0, reads=60.0)]
    assert [one.recall for one in points.rising(sweep)] == [0.8, 0.98]
    assert 20 < points.at_recall(points.rising(sweep), 0.95).figures["reads"] < 30


def test_perfect_recall_is_interpolated_too():
    found = points.at_recall([point(0.9, 1000.0), point(1.0, 10.0)], 0.95)
    assert 10 < found.figures["qps"] < 1000


def test_zeros_and_unknowns_are_preserved_by_interpolation():
    low, high = point(0.9, 10.0, reads=0.0, p99_us=None), point(0.99, 5.0, reads=0.0, p99_us=3.0)
    found = points.at_recall([low, high], 0.95)
    assert found.figures["reads"] == 0.0
    assert found.figures["p99_us"] is None


def test_throughput_at_a_ratio_is_interpolated_between_logarithms():
    # The excess over 1 falls by a factor of 10 while throughput falls by 100.
    curve = [point(0.5, 10_000.0, ratio=1.1), point(0.9, 100.0, ratio=1.01)]
    found = points.at_ratio(curve, 1 + 10**-1.5)
    assert found.figures["qps"] == pytest.approx(1000.0)
    assert found.figures["ratio"] == pytest.approx(1.0316, abs=1e-4)
    assert points.at_ratio(curve, 1.01).figures["qps"] == pytest.approx(100.0)
    assert points.at_ratio(curve, 1.001) is None


def test_an_exact_scan_is_better_than_any_ratio():
    found = points.at_ratio([point(1.0, 50.0, ratio=1.0)], 1.05)
    assert found.above
    assert (found.figures["ratio"], found.figures["qps"]) == (1.0, 50.0)


def test_curves_over_the_ratio_fall_towards_one():
    sweep = [point(0.5, 90.0, ratio=1.2), point(0.6, 80.0, ratio=1.3), point(0.9, 70.0, ratio=1.01)]
    assert [one.figures["ratio"] for one in points.rising(sweep, "ratio")] == [1.2, 1.01]
    assert [one.figures["ratio"] for one in points.frontier(sweep, "ratio")] == [1.2, 1.01]
    assert points.rising([point(0.5, 90.0, ratio=None)], "ratio") == []


def test_a_ratio_of_too_few_queries_is_not_compared(recorded):
    for record in recorded:
        if record.get("system") == "DiskANN" and record["kind"] == "search":
            record |= {"ratio": 1.01, "ratio_left_out": 30}
        elif record["kind"] == "search":
            record |= {"ratio": 1.01, "ratio_left_out": 2}
    (section,) = points.sections(recorded)
    goal = points.Goal("ratio", 1.02)
    rows = {row[0]: row for row in tables.equal_rows(section, goal, ("Bathyal, file",))}
    assert rows["DiskANN"][-1] == "no ratio reported"
    assert float(rows["Bathyal, file"][2]) == 1.0
    assert all(len(row) == len(tables.equal_heads(goal)) for row in rows.values())
    every = {row[0]: row for row in tables.sweep_rows(section)}
    assert every["DiskANN"][3] == "1.0100 (30% left out)"


def test_systems_are_compared_at_equal_ratio(recorded):
    recorded[0]["suite"] |= {"targets": [], "ratio_targets": [1.05, 1.001]}
    for record in recorded:
        if record["kind"] == "search":
            # Make hnswlib look like a program that reports no recall.
            is_program = record["system"] == "hnswlib"
            record |= {"ratio": 2 - record["recall"], "ratio_source": "program" if is_program else None}
            record["recall"] = None if is_program else record["recall"]
    (section,) = points.sections(recorded)
    rows = {row[0]: row for row in tables.equal_rows(section, points.Goal("ratio", 1.05), ("Bathyal, file",))}
    assert float(rows["Bathyal, file"][2]) == 1.0
    assert float(rows["Bathyal, file"][3]) == pytest.approx(0.95, abs=0.02)
    assert 0.2 < float(rows["DiskANN"][2]) < 0.4
    assert "the ratio is the program's own figure" in rows["hnswlib"][-1]
    far = {row[0]: row for row in tables.equal_rows(section, points.Goal("ratio", 1.001), ())}
    assert far["hnswlib"][-1].startswith("lowest ratio 1.03")
    at_recall = {row[0]: row for row in tables.equal_rows(section, AT_95, ())}
    assert at_recall["hnswlib"][-1] == "no recall reported"
    text, drawn = tables.report(recorded), page.page(recorded)
    assert "### At an overall ratio of 1.05" in text and "At recall" not in text
    assert "overall ratio (logarithm of what is above 1)" in drawn and "recall@k" not in drawn


def test_each_number_of_neighbours_has_its_section(recorded):
    more = [record | {"k": k} for k in (10, 1) for record in recorded if record["kind"] == "search"]
    found = points.sections(more)
    assert [section.k for section in found] == [1, 10]
    assert tables.section_title(found[0]) == "small, k = 1, 1 thread, warm"


def test_memory_within_a_tenth_is_equal_whichever_is_larger():
    assert points.memory_flag(110e6, 100e6) is None
    assert points.memory_flag(100e6, 110e6) is None
    assert "+12%" in points.memory_flag(112e6, 100e6)
    assert "-11%" in points.memory_flag(100e6, 112e6)
    assert points.memory_flag(None, 100e6) == "memory not known"


def test_repeats_become_medians_with_their_spread(recorded):
    (section,) = points.sections(recorded)
    first = section.sweeps[0].points[0]
    assert (first.label, first.repeats) == ("search_list 10", 2)
    assert (first.qps, *first.spreads["qps"]) == pytest.approx((8000, 7200, 8800))


def test_a_run_that_ended_early_reports_its_number_of_repeats(recorded):
    assert "suite recorded, medians of 2 repeats, k" in tables.machine_line(recorded)
    first = [one for one in recorded if one.get("repeat", 0) == 0]
    assert "suite recorded, one repeat (2 were planned), k" in tables.machine_line(first)


def test_tables_compare_and_flag(recorded):
    (section,) = points.sections(recorded)
    rows = {row[0]: row for row in tables.equal_rows(section, AT_95, ("Bathyal, file",))}
    assert float(rows["Bathyal, file"][2]) == 1.0
    assert 0.2 < float(rows["DiskANN"][2]) < 0.4
    assert "unequal" not in rows["DiskANN"][-1]
    assert "unequal memory: +1" in rows["hnswlib"][-1]
    assert "highest recall 0.970" in {r[0]: r for r in tables.equal_rows(section, AT_99, ())}["hnswlib"][-1]


def test_each_row_is_compared_with_the_reference_of_the_most_similar_memory(recorded):
    (section,) = points.sections(recorded)
    rows = {row[0]: row for row in tables.equal_rows(section, AT_95, ("Bathyal, file", "hnswlib"))}
    assert "compared with Bathyal, file" in rows["DiskANN"][-1]
    assert float(rows["hnswlib"][2]) == 1.0
    assert rows["hnswlib"][-1].startswith("reference")


def test_page_cache_counts_as_memory(recorded):
    for record in recorded:
        if record.get("system") == "DiskANN" and record["kind"] == "search":
            record["cached_bytes"] = 10 * record["dram_bytes"]
    (section,) = points.sections(recorded)
    rows = {row[0]: row for row in tables.equal_rows(section, AT_95, ("Bathyal, file",))}
    assert "unequal memory" in rows["DiskANN"][-1]
    assert rows["DiskANN"][tables.EQUAL_RECALL_HEADS.index("page cache")].endswith("MB")
    assert rows["Bathyal, file"][tables.EQUAL_RECALL_HEADS.index("page cache")] == "–"


def test_a_budget_excludes_larger_systems(recorded):
    (section,) = points.sections(recorded)
    rows = tables.budget_rows(section, 50_000_000, AT_95)
    assert [row[0] for row in rows] == ["Bathyal, file", "DiskANN", "hnswlib"]
    assert rows[-1][-1] == "over the budget"


def test_markdown_names_systems_that_were_not_measured(recorded):
    text = tables.report(recorded)
    assert "| ScaNN | skipped | pip cannot install it: no wheel <for> this / machine |" in text
    assert "| VSAG | failed | ended with -6:  |" in text
    assert "### At recall 0.95" in text
    assert "small, 1 thread, warm" in text


def test_the_page_is_one_file_of_valid_markup(recorded):
    text = page.page(recorded)
    # The name of the XML namespace is not fetched.
    assert "http" not in text.replace(f'xmlns="{drawing.SVG}"', "")
    assert "no wheel &lt;for&gt; this" in text
    assert text.count("<svg ") == text.count("</svg>") == 8
    assert text.count("<title>") > 30


@pytest.mark.parametrize(
    "records", [path for path in RECORDS if path.stem not in ELSEWHERE], ids=lambda path: path.stem
)
def test_kept_reports_match_their_records(records):
    if records.stem == "growth":
        text = growth_report.report(growth.Records(records).steps)
    else:
        make = cloud_tables.report if records.stem.startswith("cloud-") else tables.report
        text = make(points.read_records(records))
    # `make bench-report RECORDS=FILE` writes a report again, and `--report` of bench/cloud.py and
    # bench/growth.py.
    assert records.with_suffix(".md").read_text(encoding="utf-8") == text


def test_the_kept_report_on_servers_matches_its_records():
    records = next(path for path in RECORDS if path.stem == "served")
    text = served_report.report([json.loads(line) for line in records.read_text().splitlines()])
    assert records.with_suffix(".md").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ADVICE)
def test_the_kept_tables_of_advice_match_their_records(name):
    script = Path(__file__).parents[2] / "scripts" / ADVICE[name]
    records = next(path for path in RECORDS if path.stem == name)
    printed = subprocess.run(
        [sys.executable, script, "--report", records], capture_output=True, text=True, check=True
    ).stdout
    kept = records.with_suffix(".md").read_text(encoding="utf-8")
    assert printed.startswith("| ") and kept.endswith(f"\n{printed}")


def test_there_are_records_to_check():
    assert {path.stem for path in RECORDS} > ELSEWHERE and len(RECORDS) > 20
