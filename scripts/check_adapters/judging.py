"""What both checks have in common: generated vectors, exact neighbours, and the verdict over result files."""

import multiprocessing
import queue
import sys
from pathlib import Path

import numpy as np

COUNT, QUERIES, DEPTH = 4_000, 100, 100
# The best configuration of a family and the worst of all have to find so much. These sets are small and easy.
BEST, WORST = 0.97, 0.8


class Here:
    """In the place of ``multiprocessing`` in a program's main: its worker runs in this process.

    Both programs have the worker ask whether its queue is empty, which it may seem to be before anything has
    arrived in it, and neither minds a worker that fails.
    """

    Queue = queue.Queue
    cpu_count = staticmethod(multiprocessing.cpu_count)

    class Process:
        def __init__(self, target, args):
            self.work = target, args

        def start(self):
            target, args = self.work
            target(*args)

        def join(self):
            """It has ended."""

        def terminate(self):
            """It has ended."""


def clusters(dim, seed, count=COUNT, queries=QUERIES):
    """Vectors and queries around common centres, f32."""
    random = np.random.default_rng(seed)
    centres = random.normal(0, 1, (100, dim))
    rows = centres[random.integers(0, len(centres), count + queries)]
    rows = (rows + random.normal(0, 0.5, rows.shape)).astype(np.float32)
    return rows[:count], rows[count:]


def nearest(base, queries, metric):
    """Exact neighbours and distances, ``queries x DEPTH``, as both programs measure them."""
    base, queries = base.astype(np.float64), queries.astype(np.float64)
    if metric == "angular":
        base = base / np.linalg.norm(base, axis=1, keepdims=True)
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    products = queries @ base.T
    if metric == "euclidean":
        squares = (queries**2).sum(1)[:, None] + (base**2).sum(1)[None] - 2 * products
        distances = np.sqrt(np.maximum(squares, 0))
    elif metric == "angular":
        distances = 1 - products
    else:
        distances = -products
    ids = np.argsort(distances, axis=1, kind="stable")[:, :DEPTH]
    return ids, np.take_along_axis(distances, ids, axis=1)


def recall(found, exact):
    """The share of ``exact`` that is in ``found``, row by row."""
    hits = sum(
        len(set(map(int, one)) & set(map(int, other))) for one, other in zip(found, exact, strict=True)
    )
    return hits / max(1, sum(map(len, exact)))


def judge(what, expected, measure):
    """Prints the recall in each expected result file (family, path); ends the program for a missing or poor one."""
    families = {}
    for family, path in expected:
        if not Path(path).is_file():
            sys.exit(f"{what}: no result file {path}: that configuration did not run to its end")
        families.setdefault(family, []).append((measure(path), path))
    found = {path.name for path in Path(expected[0][1]).parent.glob("*.hdf5")}
    if len(found) != len(expected):
        sys.exit(f"{what}: {len(found)} result files of {len(expected)} configurations: names collide")
    for family, results in families.items():
        (worst, poor), (best, _) = min(results), max(results)
        print(f"{what}: {family}: {len(results)} configurations, recall {worst:.3f} to {best:.3f}")
        if best < BEST or worst < WORST:
            sys.exit(
                f"{what}: {family}: recall should reach {BEST} and be at least {WORST} everywhere ({poor})"
            )
