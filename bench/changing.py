"""Compares collections with other systems while rows are added, changed and deleted: see
bathyal_bench.changing.

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
    """Reads the records of earlier runs, without an incomplete last line."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def main() -> int:
    """Measures every installed system in turn, and writes the report."""
    parser = argparse.ArgumentParser(
        description=changing.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="a folder on the disk that is measured")
    parser.add_argument("--records", type=Path, required=True, help="continues where an earlier run stopped")
    parser.add_argument("--name", help="name of the set (default: that of its folder)")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", help="the package of a system")
    parser.add_argument(
        "--writing",
        action="store_true",
        help="measure only how fast rows are written; takes seconds per repeat",
    )
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    base, queries = read_vectors(options.base), read_vectors(options.queries)[:1000]
    count, name = min(options.rows, len(base) // 2), options.name or options.base.resolve().parent.name
    for repeat in range(options.repeats):
        for kind in SYSTEMS:
            if options.only and kind.package not in options.only:
                continue
            cell = {"system": kind.name, "data": name, "rows": count, "repeat": repeat}
            if any(cell.items() <= one.items() for one in recorded(options.records)):
                continue
            try:
                importlib.import_module(kind.package)
            except ImportError as error:
                print(f"{kind.name}: skipped: {error}", file=sys.stderr)
                continue
            began = time.perf_counter()
            rows = Rows.of(base, count)
            if options.writing:
                figures, system = measure_writing(kind, options.work, rows)
                system.close()
                kind.clear(options.work)
            else:
                figures = measure(kind, options.work, (options.base, options.queries, count), rows, queries)
            print(f"{kind.name}, repeat {repeat}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
            shape = {"dim": base.shape[1], "element": str(base.dtype)}
            with options.records.open("a") as file:
                file.write(json.dumps(cell | shape | figures) + "\n")
    records = recorded(options.records)
    options.records.with_suffix(".md").write_text(report(records))
    options.records.with_suffix(".html").write_text(page(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
