"""Changing rows: exact neighbours, recall, and the report of kept records."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from bathyal_bench.changing.measure import Rows, recall
from bathyal_bench.changing.report import found, page, report

RECORDS = pathlib.Path(__file__).parents[2] / "docs/benchmarks/changing.jsonl"


def test_exact_neighbours_are_the_nearest_matching_rows():
    base = np.arange(40, dtype=np.float32).reshape(40, 1)
    rows = Rows.of(base, 20)
    exact = rows.exact(np.array([[3.2]], np.float32))
    assert exact[0][:3].tolist() == [3, 4, 2]
    some = rows.exact(np.array([[3.2]], np.float32), 0.5)
    assert all(rows.shares[int(number)] < 0.5 for number in some[0])
    assert recall(exact, [exact[0][:5]]) == 0.5
    # Queries without matching rows are left out.
    none = np.empty(0, np.int64)
    assert recall([exact[0], none, exact[0][:2]], [exact[0][:5], none, exact[0][:2]]) == 0.75
    with pytest.raises(ValueError, match="no query"):
        recall([none], [none])


def test_searches_with_too_little_recall_are_in_brackets():
    assert found(1234.0, 0.951) == "1,234 (0.951)"
    assert found(1234.0, 0.9) == "[1,234 (0.900)]"
    assert found(None, None) == "–"


def test_kept_reports_match_their_records():
    records = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    assert RECORDS.with_suffix(".md").read_text(encoding="utf-8") == report(records)
    drawn = page(records)
    assert drawn.count("<svg") == len({one["data"] for one in records})
    assert "Bathyal" in drawn and "LanceDB" in drawn


def test_writing_alone_is_measured_and_reported(tmp_path):
    base = np.random.default_rng(1).random((400, 8), dtype=np.float32)
    for name in ("base", "query"):
        with (tmp_path / f"{name}.fbin").open("wb") as file:
            file.write(np.array(base.shape, np.uint32).tobytes() + base.tobytes())
    records = tmp_path / "records.jsonl"
    command = [sys.executable, str(RECORDS.parents[2] / "bench/changing.py")]
    command += [str(tmp_path / "base.fbin"), str(tmp_path / "query.fbin"), "--work", str(tmp_path / "work")]
    command += [
        "--records",
        str(records),
        "--name",
        "few",
        "--only",
        "bathyal",
        "--repeats",
        "2",
        "--writing",
    ]
    for _ in range(2):
        subprocess.run(command, check=True, capture_output=True)
    measured = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    assert [one["repeat"] for one in measured] == [0, 1], "the second run measured nothing again"
    assert all(one["rows_a_second_2"] > 0 and "recall" not in one for one in measured)
    text = records.with_suffix(".md").read_text(encoding="utf-8")
    assert "Medians of 2 runs" in text and "## few: 200 rows of 8 x float32" in text
    assert all(path.is_dir() for path in (tmp_path / "work").rglob("*")), "all tables are removed"
