"""A step in its own process: ``PACKAGE WORK BASE QUERIES ROWS STEP EFFORT``; prints a line of JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

from bathyal_bench.changing.measure import SMALL, SMALL_ROWS, SMALL_SECONDS, Rows, fill
from bathyal_bench.changing.systems import System, named
from bathyal_bench.datasets import read_vectors

# Longer than any run: the parent kills this process before.
FOR_EVER = 3600


def resident() -> int:
    """Returns the bytes of memory of this process and of the processes that it started."""
    pages = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # Processes started here belong to this session.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == os.getsid(0):
                pages += int((entry / "statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def table(kind: type[System], work: Path, number: int) -> System:
    """Returns a small table."""
    return kind(work, f"tenant{number:04}")


def main(words: list[str]) -> None:
    """Runs one step."""
    package, work, base, queries, rows, step, effort = words
    kind, where = named(package), Path(work)
    importlib.import_module(package)
    vectors = read_vectors(Path(base))
    test_queries = read_vectors(Path(queries))[:1000]
    test_queries.sum()
    if step == "fill":
        fill(kind(where), Rows.of(vectors, int(rows)), 2)
        print("ready", flush=True)
        time.sleep(FOR_EVER)
    elif step == "open":
        before, began = resident(), time.perf_counter()
        system = kind(where)
        system.effort = json.loads(effort)
        system.open()
        system.search(test_queries[:1])
        seconds = time.perf_counter() - began
        system.search(test_queries)
        figures = {"open_seconds": seconds, "open_bytes": resident() - before, "open_rows": system.count()}
        print(json.dumps(figures), flush=True)
        system.close()
    elif step == "small":
        began, made = time.perf_counter(), 0
        while made < SMALL and time.perf_counter() - began < SMALL_SECONDS:
            system, some = table(kind, where, made), Rows.of(vectors[SMALL_ROWS * made :], SMALL_ROWS)
            system.create(some.vectors.shape[1], some.vectors.dtype)
            system.add(some.ids, some.vectors, some.shares)
            if not kind.is_durable:
                system.settle()
            system.close()
            made += 1
        figures = {"small_create_seconds": time.perf_counter() - began, "small": made}
        (where / package / "made").write_text(str(made))
        print(json.dumps(figures), flush=True)
    elif step == "small-open":
        made = int((where / package / "made").read_text())
        before, began = resident(), time.perf_counter()
        all_of_them = [table(kind, where, number) for number in range(made)]
        for system in all_of_them:
            system.open()
        opened, held = time.perf_counter() - began, resident() - before
        for system in all_of_them:
            assert len(system.search(test_queries[:1])[0]) == 10
        searched = time.perf_counter() - began - opened
        figures = {"small_open_seconds": opened, "small_search_seconds": searched}
        figures |= {"small_open_bytes": held, "small_searched_bytes": resident() - before}
        print(json.dumps(figures), flush=True)
    else:
        raise ValueError(f"no such step: {step}")
    sys.stdout.flush()
    # Exit without the systems' cleanup, which may take long and is not measured.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
