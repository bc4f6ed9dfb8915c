"""Common parts of the checks: generated vectors, exact neighbours, and checks of result files."""

import multiprocessing
import queue
import sys
from pathlib import Path

import numpy as np

COUNT, QUERIES, DEPTH = 4_000, 100, 100
# Least recalls of the best configuration of a family and of every configuration. The sets are small and easy.
BEST, WORST = 0.97, 0.8


class InProcess:
    """Replaces ``multiprocessing`` in a program's main, so that its worker runs in this process.

    The workers of both programs check whether their queue is empty, and a queue between processes may seem
    empty before the first item arrives. And both programs ignore a failed worker.
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
            """Does nothing, since the work is done."""

        def terminate(self):
            """Does nothing, since the work is done."""


def clusters(dim, seed, count=COUNT, queries=QUERIES):
    """Returns vectors and queries around common centres, f32."""
    random = np.random.default_rng(seed)
    centres = random.normal(0, 1, (100, dim))
    rows = centres[random.integers(0, len(centres), count + queries)]
    rows = (rows + random.normal(0, 0.5, rows.shape)).astype(np.float32)
    return rows[:count], rows[count:]


def nearest(base, queries, metric):
    """Returns exact neighbours and distances, ``queries x DEPTH``, by the definitions of both programs."""
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
    """Returns the share of ``exact`` that is in ``found``, compared row by row."""
    hits = sum(
        len(set(map(int, one)) & set(map(int, other))) for one, other in zip(found, exact, strict=True)
    )
    return hits / max(1, sum(map(len, exact)))


def check_results(what, expected, measure):
    """Prints the recall of each expected result file (family, path). Exits if a file is missing or its recall
    is low.
    """
    families = {}
    for family, path in expected:
        if not Path(path).is_file():
            sys.exit(f"{what}: the result file {path} is missing, so its configuration did not finish")
        families.setdefault(family, []).append((measure(path), path))
    found = {path.name for path in Path(expected[0][1]).parent.glob("*.hdf5")}
    if len(found) != len(expected):
        sys.exit(f"{what}: {len(found)} result files of {len(expected)} configurations: names collide")
    for family, results in families.items():
        (worst, worst_path), (best, _) = min(results), max(results)
        print(f"{what}: {family}: {len(results)} configurations, recall {worst:.3f} to {best:.3f}")
        if best < BEST or worst < WORST:
            sys.exit(
                f"{what}: {family}: the best recall must be at least {BEST} and every recall at least {WORST}"
                f" (worst: {worst_path})"
            )
