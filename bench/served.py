"""Compares servers: see bathyal_bench.served.

PYTHONPATH=bench python bench/served.py base.fbin queries.fbin --work FOLDER --records served.jsonl
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from bathyal_bench import served
from bathyal_bench.datasets import read_vectors
from bathyal_bench.runner import machine
from bathyal_bench.served.measure import measure
from bathyal_bench.served.report import report
from bathyal_bench.served.systems import SERVED


def main() -> int:
    """Measures every installed system, and writes the report."""
    parser = argparse.ArgumentParser(
        description=served.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path, nargs="?")
    parser.add_argument("queries", type=Path, nargs="?")
    parser.add_argument("--work", type=Path, help="a folder on the disk that is measured")
    parser.add_argument("--records", type=Path, required=True, help="figures are appended to this file")
    parser.add_argument("--name", help="name of the set (default: that of its folder)")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--only", action="append", help="the package of a system")
    options = parser.parse_args()
    if options.base is not None:
        if options.queries is None or options.work is None:
            parser.error("QUERIES and --work are missing")
        options.work.mkdir(parents=True, exist_ok=True)
        base = read_vectors(options.base)
        rows = min(options.rows, len(base))
        shape = {
            "data": options.name or options.base.resolve().parent.name, "rows": rows,
            "dim": base.shape[1], "element": str(base.dtype), "machine": machine(),
        }  # fmt: skip
        for kind in SERVED:
            package, name = kind.kind.package, kind.kind.name
            if options.only and package not in options.only:
                continue
            try:
                importlib.import_module(package)
            except ImportError as error:
                print(f"{name}: skipped: {error}", file=sys.stderr)
                continue
            for figures in measure(kind, options.work, (options.base, options.queries, rows)):
                with options.records.open("a") as file:
                    file.write(json.dumps({"system": name} | shape | figures) + "\n")
                print(f"{name}, {figures['share']:.0%}: {figures['loads']}", file=sys.stderr)
    records = [json.loads(line) for line in options.records.read_text().splitlines()]
    options.records.with_suffix(".md").write_text(report(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
