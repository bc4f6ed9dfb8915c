"""Measures collections beside other systems while rows come, change and go: see bathyal_bench.changing.

PYTHONPATH=bench python bench/changing.py base.fbin queries.fbin --work FOLDER --records changing.jsonl
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from bathyal_bench import changing
from bathyal_bench.changing.measure import Rows, measure, measure_writing
from bathyal_bench.changing.report import page, report
from bathyal_bench.changing.systems import SYSTEMS
from bathyal_bench.datasets import read_vectors


def recorded(path: Path) -> list[dict[str, Any]]:
    """What earlier runs have measured; a last line that was cut is not there."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def main() -> int:
    """Measures in turns every system that is installed, and writes the report."""
    parser = argparse.ArgumentParser(
        description=changing.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="a folder on the disk that is measured")
    parser.add_argument(
        "--records", type=Path, required=True, help="goes on where an earlier run has stopped"
    )
    parser.add_argument("--name", help="of the set; that of its folder by default")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", help="the package of a system")
    parser.add_argument(
        "--writing", action="store_true", help="measures only how fast rows are written; seconds a repeat"
    )
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    base, queries = read_vectors(given.base), read_vectors(given.queries)[:1000]
    count, name = min(given.rows, len(base) // 2), given.name or given.base.resolve().parent.name
    for repeat in range(given.repeats):
        for kind in SYSTEMS:
            if given.only and kind.package not in given.only:
                continue
            cell = {"system": kind.name, "data": name, "rows": count, "repeat": repeat}
            if any(cell.items() <= one.items() for one in recorded(given.records)):
                continue
            try:
                importlib.import_module(kind.package)
            except ImportError as error:
                print(f"{kind.name}: left out: {error}", file=sys.stderr)
                continue
            began = time.perf_counter()
            rows = Rows.of(base, count)
            if given.writing:
                told, system = measure_writing(kind, given.work, rows)
                system.close()
                kind.clear(given.work)
            else:
                told = measure(kind, given.work, (given.base, given.queries, count), rows, queries)
            print(f"{kind.name}, repeat {repeat}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
            shape = {"dim": base.shape[1], "element": str(base.dtype)}
            with given.records.open("a") as file:
                file.write(json.dumps(cell | shape | told) + "\n")
    records = recorded(given.records)
    given.records.with_suffix(".md").write_text(report(records))
    given.records.with_suffix(".html").write_text(page(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
