"""Rows that come, change and go: what is counted, and what records make."""

import json
import pathlib

import numpy as np

from bathyal_bench.changing.measure import Rows, recall
from bathyal_bench.changing.report import found, page, report

RECORDS = pathlib.Path(__file__).parents[2] / "docs/benchmarks/changing.jsonl"


def test_the_nearest_that_match_are_the_truth():
    base = np.arange(40, dtype=np.float32).reshape(40, 1)
    rows = Rows.of(base, 20)
    exact = rows.exact(np.array([[3.2]], np.float32))
    assert exact[0][:3].tolist() == [3, 4, 2]
    some = rows.exact(np.array([[3.2]], np.float32), 0.5)
    assert all(rows.shares[int(number)] < 0.5 for number in some[0])
    assert recall(exact, [exact[0][:5]]) == 0.5
    # Where nothing matches, nothing is missed.
    assert recall([np.empty(0, np.int64)], [np.empty(0, np.int64)]) == 1.0


def test_what_found_too_little_is_not_compared():
    assert found(1234.0, 0.951) == "1,234 (0.951)"
    assert found(1234.0, 0.9) == "[1,234 (0.900)]"
    assert found(None, None) == "–"


def test_the_pages_are_those_of_the_records():
    records = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    assert RECORDS.with_suffix(".md").read_text(encoding="utf-8") == report(records)
    drawn = page(records)
    assert drawn.count("<svg") == len({one["data"] for one in records})
    assert "Bathyal" in drawn and "LanceDB" in drawn
