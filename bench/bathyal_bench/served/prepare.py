"""Fills a system, and finds the effort for each share of matching rows, in a process of its own.

    python -m bathyal_bench.served.prepare PACKAGE WORK BASE QUERIES ROWS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from bathyal_bench.changing.measure import BATCH, Rows
from bathyal_bench.changing.systems import WANTED, K, System, named
from bathyal_bench.datasets import read_vectors
from bathyal_bench.recall import recall_at
from bathyal_bench.served.systems import SHARES

# Queries by which efforts are chosen.
QUERIES = 200


def efforts(system: System, rows: Rows, queries: Any) -> dict[str, Any]:
    """Returns the least effort that finds enough among the rows of each share, or else the largest."""
    chosen: dict[str, Any] = {}
    for share in SHARES:
        exact = rows.exact(queries, share)
        for effort in system.efforts:
            system.effort = effort
            system.tuned()
            if recall_at(system.search(queries, share), exact, K) >= WANTED:
                break
        chosen[str(share)] = system.effort
    return chosen


def main() -> None:
    """Writes the efforts to ``efforts.json`` in the folder of the work."""
    package, work, base, queries, count = sys.argv[1:]
    kind, folder = named(package), Path(work)
    rows = Rows.of(read_vectors(Path(base)), int(count))
    kind.clear(folder)
    system = kind(folder)
    system.create(rows.vectors.shape[1], rows.vectors.dtype)
    began = time.perf_counter()
    for first in range(0, len(rows.ids), BATCH):
        part = slice(first, first + BATCH)
        system.add(rows.ids[part], rows.vectors[part], rows.shares[part])
    system.settle()
    seconds = time.perf_counter() - began
    found = efforts(system, rows, read_vectors(Path(queries))[:QUERIES])
    system.close()
    (folder / "efforts.json").write_text(json.dumps({"efforts": found, "filled_seconds": seconds}))


if __name__ == "__main__":
    main()
