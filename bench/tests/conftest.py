"""The bench is no package: its folder is put on the path."""

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))


@pytest.fixture
def recorded():
    """The lines of a run: three systems, one that was skipped, one that failed."""
    from bathyal_bench.points import read_records

    return read_records(BENCH / "tests/recorded.jsonl")
