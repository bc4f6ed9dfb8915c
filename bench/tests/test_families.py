"""Tests of the table of families."""

import pytest

import families


def point(recall, qps, reads):
    others = {"bytes_per_query": 1e3 * reads, "hops_per_query": 1, "dram_bytes": 40_000_000}
    return {"recall": recall, "qps": qps, "reads_per_query": reads, **others}


def test_figures_are_interpolated_at_the_recall_that_was_found():
    points = [point(0.96, 800.0, 20.0), point(0.90, 1400.0, 8.0), point(0.99, 300.0, 60.0)]
    found = families.at_recall(points, 0.95)
    assert found["qps"] == pytest.approx(900.0)
    assert found["reads_per_query"] == pytest.approx(18.0)
    # The least effort that was measured is beyond the recall: its figures are the bound that is known.
    assert families.at_recall(points, 0.80)["qps"] == 1400.0
    # Of equal recalls, the faster one counts.
    assert families.at_recall([point(1.0, 5.0, 9.0), point(1.0, 7.0, 9.0)], 0.95)["qps"] == 7.0
    assert families.at_recall(points, 0.995) is None


def test_a_row_says_where_the_recall_was_not_reached():
    record = {
        "set": "sift",
        "family": "lsh",
        "tier": "file",
        "reached": False,
        "amplification": 1.5,
        "build_processor_seconds": 12.4,
        "build_peak_bytes": 3e8,
    }
    assert families.row(record) == "| sift | `lsh` | file | not reached |  |  |  | 1.50 | 12 | 300 |"
    found = families.at_recall([point(0.95, 1234.5, 9.96)], 0.95)
    whole = {**record, "reached": True, **found}
    assert families.row(whole) == "| sift | `lsh` | file | 1,234 | 10.0 | 10.0 | 40.0 | 1.50 | 12 | 300 |"
    assert families.table([whole]).count("\n") == 2
