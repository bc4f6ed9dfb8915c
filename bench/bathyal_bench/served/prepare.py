"""Fills a system in a process of its own.

python -m bathyal_bench.served.prepare PACKAGE WORK BASE ROWS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bathyal_bench.changing.measure import BATCH, Rows
from bathyal_bench.changing.systems import named
from bathyal_bench.datasets import read_vectors


def main() -> None:
    """Writes the seconds that it takes to ``filled.json`` in the folder of the work."""
    package, work, base, count = sys.argv[1:]
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
    system.close()
    (folder / "filled.json").write_text(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
