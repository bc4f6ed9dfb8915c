"""Measures `index.calibrate` with queries that are unlike the data: recall asked and found, before and after.

Half of the queries of each set calibrate the index, the other half are measured. Prints a Markdown table.

    python scripts/check_given_queries.py --data FOLDER [--families cluster,graph] [--sets cones]

FOLDER holds `glove-words/vectors.fbin`, `minilm-debian/base.fbin` and `minilm-debian/query.fbin`.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import bathyal

Floats = NDArray[np.float32]
ASKED = (0.9, 0.95, 0.99)
K = 10


class Case(NamedTuple):
    """Vectors, and queries that are unlike them."""

    base: Floats
    queries: Floats
    metric: str


def random_directions(data: pathlib.Path) -> Case:
    """Word vectors; the queries are random directions."""
    base = bathyal.read_vectors(data / "glove-words" / "vectors.fbin").astype(np.float32)
    queries = np.random.default_rng(1).normal(size=(1000, base.shape[1])).astype(np.float32)
    return Case(base, queries, "cosine")


def copies(data: pathlib.Path) -> Case:
    """Each sentence four times, slightly changed; the queries are other sentences."""
    random = np.random.default_rng(2)
    base = bathyal.read_vectors(data / "minilm-debian" / "base.fbin")[:12_000].astype(np.float32)
    spread = 0.1 * base.std()
    many = np.concatenate([base + random.normal(scale=spread, size=base.shape) for _ in range(4)])
    queries = bathyal.read_vectors(data / "minilm-debian" / "query.fbin").astype(np.float32)
    return Case(random.permutation(many).astype(np.float32), queries, "cosine")


def cones(_data: pathlib.Path) -> Case:
    """Images and texts in opposite cones, under the inner product."""
    random = np.random.default_rng(3)
    offset = random.normal(size=96)
    offset /= np.linalg.norm(offset)
    noise = random.normal(size=(21_000, 96)) / np.sqrt(96)
    base, queries = noise[:20_000] + offset, noise[20_000:] - offset
    return Case(base.astype(np.float32), queries.astype(np.float32), "ip")


def lengths(_data: pathlib.Path) -> Case:
    """Vectors of very different lengths under the inner product; the queries have length 1."""
    random = np.random.default_rng(4)
    base = random.normal(size=(20_000, 64)) * random.lognormal(sigma=1.0, size=(20_000, 1))
    queries = random.normal(size=(1000, 64))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return Case(base.astype(np.float32), queries.astype(np.float32), "ip")


SETS: dict[str, Callable[[pathlib.Path], Case]] = {
    "random directions": random_directions,
    "copies": copies,
    "cones": cones,
    "lengths": lengths,
}
FAMILIES = ("cluster", "graph", "spann", "lsh", "partitioned")


def found(index: Any, queries: Floats, truth: Any, calibration: str) -> list[float]:
    """Returns the recall for each recall asked."""
    answers = [index.search(queries, k=K, recall=asked, calibration=calibration) for asked in ASKED]
    return [bathyal.recall(answer.ids, *truth) for answer in answers]


def main() -> None:
    """Measures all sets and families."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--sets", default=",".join(SETS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| set | family | asked 0.90, before and after | 0.95 | 0.99 | seconds |")
    print("|---|---|---:|---:|---:|---:|")
    for name in options.sets.split(","):
        case = SETS[name](options.data)
        given, other = case.queries[::2], case.queries[1::2]
        truth = bathyal.groundtruth(case.base, other, metric=case.metric, k=K, progress=False)
        for family in options.families.split(","):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "index")
                index = bathyal.build(case.base, path, metric=case.metric, family=family, progress=False)
                report = index.calibrate(given, progress=False)
                before = found(index, other, truth, "build")
                after = found(index, other, truth, "default")
                index.close()
            cells = [f"{old:.3f}, {new:.3f}" for old, new in zip(before, after, strict=True)]
            print(f"| {name} | {family} | {' | '.join(cells)} | {report['seconds']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
