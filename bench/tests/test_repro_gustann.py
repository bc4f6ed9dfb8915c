"""The report of GustANN's runs: its content."""

from __future__ import annotations

from pathlib import Path

import pytest

from bathyal_bench.repro import compose, gustann
from bathyal_bench.repro.records import Record, read

KEPT = Path(__file__).parents[2] / "docs/repro/gustann"
FIGURES = ("figure-7", "figure-12", "pivots", "figure-14", "figure-15", "figure-16", "figure-17")


def test_every_figure_has_its_table_and_plot() -> None:
    document = compose(KEPT / "minilm/records.jsonl")
    for part in ("**Counted**", "**Predicted**", "(figure 13)", "Published figures", "table 1", "FlashANNS"):
        assert part in document.text
    assert all(f"figure {number}" in document.text for number in (11, 12, 14, 15, 16, 17))
    assert list(document.plots) == [f"{name}-base.svg" for name in FIGURES]
    assert all(f"({name})" in document.text for name in document.plots)


def test_missing_measurements_have_no_table() -> None:
    run, kept = read(KEPT / "minilm/records.jsonl")
    document = gustann.report(run, [row for row in kept if row["of"] == "row"])
    assert list(document.plots) == ["figure-7-base.svg", "figure-15-base.svg"]
    assert "figure 12" not in document.text and "figure 17" not in document.text


def test_searches_beyond_a_card_are_counted_but_not_predicted() -> None:
    run, kept = read(KEPT / "hog/records.jsonl")
    text = gustann.report(run, kept).text
    counted, _, predicted = text.partition("predicted throughput over recall")
    beyond = "| graph-beam-1 | 0.99 | 0.991 | 1831 |"
    assert beyond in counted and "1831.1 | 1831.1 | - | 120 |" in counted
    assert "| graph-beam-1 | 0.99 |" not in predicted and "graph-page-local" not in predicted


def test_each_set_has_its_own_tables() -> None:
    run, kept = read(KEPT / "minilm/records.jsonl")
    other = [Record({**row, "set": "other"}, row.where) for row in kept[:3]]
    run = Record({**run, "sets": [*run["sets"], {**run["sets"][0], "name": "other"}]}, run.where)
    document = gustann.report(run, kept + other)
    assert document.text.count("reads and memory of a query") == 2
    assert "figure-7-other.svg" in document.plots and "figure-12-other.svg" not in document.plots


def test_a_missing_field_is_named_with_its_line() -> None:
    run, kept = read(KEPT / "minilm/records.jsonl")
    del kept[0]["pages"]
    with pytest.raises(ValueError, match=r"minilm/records\.jsonl:2: the record has no field 'pages'"):
        gustann.report(run, kept)


def test_both_prices_of_a_read_are_shown_beside_each_other() -> None:
    run, kept = read(KEPT / "sift/records.jsonl")
    text = gustann.report(run, kept).text
    row = next(row for row in kept if row["index"] == "cluster")
    spdk, system = row["prediction"], row["through_system"]
    assert spdk["dollars_a_qps"] < 0.03 and 0.27 < system["dollars_a_qps"] < 0.28
    assert f"| {spdk['dollars_a_qps']:.4f} | {system['qps']:.0f} | processor |" in text
    assert "3400 ns for a read through the" in text and "500 ns of a core" in text
    assert "Predicted again" in text and run["counted_by"] in text
