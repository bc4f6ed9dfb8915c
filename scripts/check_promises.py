"""Measures whether a recall that is asked for is found, on data and with queries that are hard to promise.

For each set and family: the recall found for each recall asked, by the calibration of the build alone, and the
codes and vectors that a query compares. A star marks answers with a note that the recall may not be reached.
Prints a Markdown table. Ends with status 1 if a recall is missed by more than 0.03 without a note.

    python scripts/check_promises.py --data FOLDER [--families cluster,graph] [--sets "far points, ip"] [--k 10]
    python scripts/check_promises.py --data FOLDER --sets "far points, larger" --write SETS

The second writes vectors and queries of sets to SETS/NAME/base.fbin and SETS/NAME/query.fbin (.u8bin of bytes),
for `check_advice.py`.

FOLDER holds `glove-words/vectors.fbin`, `minilm-debian/base.fbin`, `minilm-debian/query.fbin`,
`sift-a/base.u8bin` and `sift-a/query.u8bin`.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import bathyal

Vectors = NDArray[Any]
Metric = Literal["l2", "ip", "cosine"]
ASKED = (0.9, 0.95, 0.99)
TOLERATED = 0.03
"""A recall that is missed by more without a note is a failure: calibrations and tests have some hundred
queries."""


class Case(NamedTuple):
    """Vectors and queries."""

    base: Vectors
    queries: Vectors
    metric: Metric


def sentences(data: pathlib.Path) -> tuple[Vectors, Vectors]:
    """Returns sentence embeddings of 384 dimensions, and queries."""
    folder = data / "minilm-debian"
    return bathyal.read_vectors(folder / "base.fbin"), bathyal.read_vectors(folder / "query.fbin")


def descriptors(data: pathlib.Path, step: int) -> tuple[Vectors, Vectors]:
    """Returns every `step`-th SIFT descriptor, and queries from other photographs."""
    folder = data / "sift-a"
    base = bathyal.read_vectors(folder / "base.u8bin")[::step]
    return base, bathyal.read_vectors(folder / "query.u8bin")[::10]


def words(data: pathlib.Path) -> Case:
    """Words, and other words."""
    vectors = np.random.default_rng(1).permutation(
        bathyal.read_vectors(data / "glove-words" / "vectors.fbin")
    )
    return Case(vectors[1000:], vectors[:1000], "cosine")


def random_directions(data: pathlib.Path) -> Case:
    """Words, and random directions."""
    base = bathyal.read_vectors(data / "glove-words" / "vectors.fbin")
    return Case(base, np.random.default_rng(1).normal(size=(1000, base.shape[1])).astype("f4"), "cosine")


def perturbed(data: pathlib.Path, change: int) -> Case:
    """Ten copies of each of 10,000 descriptors, and descriptors from other photographs."""
    base, queries = descriptors(data, 100)
    random = np.random.default_rng(1)
    changes = random.integers(-change, change + 1, (10, *base.shape))
    copies = np.clip(base.astype(int) + changes, 0, 255).astype("u1").reshape(-1, base.shape[1])
    return Case(random.permutation(copies), queries, "l2")


def blended(data: pathlib.Path) -> Case:
    """100,000 blends of near descriptors, and descriptors from other photographs.

    A blend is half of the sum of a vector and two of its 32 nearest neighbours, less a third one. It has no
    near copies, and is as far from a query as they are (`bench/suites/src/blend.rs`).
    """
    base, queries = descriptors(data, 10)
    with tempfile.TemporaryDirectory() as folder:
        index = bathyal.build(base, pathlib.Path(folder, "index"), metric="l2", progress=False)
        near = index.search(base, k=33, recall=0.95).ids[:, 1:]
        index.close()
    random = np.random.default_rng(1)
    # Three different neighbours of each vector.
    chosen = np.argsort(random.random(near.shape), axis=1)[:, :3]
    one, other, third = (base[near[np.arange(len(base)), column]].astype(int) for column in chosen.T)
    total = base + one + other - third + random.integers(0, 2, base.shape)
    return Case(np.clip(total >> 1, 0, 255).astype("u1"), queries, "l2")


def repeated(data: pathlib.Path) -> Case:
    """Each of 5,000 sentences 20 times, and other sentences."""
    base, queries = sentences(data)
    return Case(np.random.default_rng(1).permutation(np.repeat(base[:5000], 20, 0)), queries, "l2")


def half(data: pathlib.Path, metric: Metric) -> Case:
    """20,000 sentences, and another one 20,000 times; queries are other sentences."""
    base, queries = sentences(data)
    rows = np.concatenate([base[:20_000], np.repeat(base[20_001:20_002], 20_000, 0)])
    return Case(np.random.default_rng(1).permutation(rows), queries, metric)


def far_points(metric: Metric, times: int = 1) -> Case:
    """6,000 near-duplicates and 200 far points, which are the queries; or as many `times`."""
    random = np.random.default_rng(1)
    near = random.normal(size=(1, 64)) + 0.01 * random.normal(size=(times * 6000, 64))
    far = (3 * random.normal(size=(times * 200, 64))).astype("f4")
    return Case(random.permutation(np.concatenate([near.astype("f4"), far])), far, metric)


def cones(metric: Metric) -> Case:
    """20,000 images and 1,000 texts in opposite cones of 96 dimensions."""
    random = np.random.default_rng(3)
    offset = np.zeros(96)
    offset[0] = 1
    noise = random.normal(size=(21_000, 96)) / np.sqrt(96)
    return Case((noise[:20_000] + offset).astype("f4"), (noise[20_000:] - offset).astype("f4"), metric)


def lengths(count: int = 8326) -> Case:
    """Vectors of lognormal lengths (sigma 1); queries are rows, rows of length 1, random directions."""
    random = np.random.default_rng(4)
    base = random.normal(size=(count, 64)) * random.lognormal(sigma=1.0, size=(count, 1))
    units = base[300:600] / np.linalg.norm(base[300:600], axis=1, keepdims=True)
    queries = np.concatenate([base[:300], units, random.normal(size=(300, 64))])
    return Case(base.astype("f4"), random.permutation(queries).astype("f4"), "ip")


SETS: dict[str, Callable[[pathlib.Path], Case]] = {
    "sift-a, 100,000": lambda data: Case(*descriptors(data, 10), "l2"),
    "words": words,
    "sentences": lambda data: Case(*sentences(data), "cosine"),
    "copies, changed by 3": lambda data: perturbed(data, 3),
    "copies, changed by 60": lambda data: perturbed(data, 60),
    "blends": blended,
    "each 20 times": repeated,
    "half one vector": lambda data: half(data, "l2"),
    "half one vector, ip": lambda data: half(data, "ip"),
    "far points": lambda _: far_points("l2"),
    "far points, ip": lambda _: far_points("ip"),
    "far points, cosine": lambda _: far_points("cosine"),
    "lengths, ip": lambda _: lengths(),
    "random directions": random_directions,
    "cones, ip": lambda _: cones("ip"),
    "cones, cosine": lambda _: cones("cosine"),
}
LARGER: dict[str, Callable[[pathlib.Path], Case]] = {
    "far points, larger": lambda _: far_points("l2", 10),
    "lengths, larger": lambda _: lengths(80_000),
}
"""Sets of which the smaller ones have fewer rows than a sample of `advise`: for `--write`."""
FAMILIES = ("cluster", "graph", "spann", "lsh", "partitioned")


class Found(NamedTuple):
    """The answers for a recall asked."""

    asked: float
    recall: float
    noted: bool
    compared: float

    @property
    def missed(self) -> bool:
        """True if the recall is missed in silence."""
        return self.recall < self.asked - TOLERATED and not self.noted

    def __str__(self) -> str:
        """The recall, with a star if the answers have a note."""
        return f"{self.recall:.3f}{'*' if self.noted else ''}"


def search(index: Any, queries: Vectors, truth: Any, k: int, asked: float) -> Found:
    """Searches for a recall in memory."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        answer = index.search(queries, k=k, recall=asked)
    recall = bathyal.recall(answer.ids, *truth)
    return Found(asked, recall, bool(notes), answer.stats.distance_computations_per_query)


def written(name: str, case: Case, folder: pathlib.Path) -> None:
    """Writes a set to a folder of its name, and prints the folder and the metric."""
    target = folder / "-".join(name.replace(",", " ").split())
    target.mkdir(parents=True, exist_ok=True)
    ending = ".u8bin" if case.base.dtype == np.uint8 else ".fbin"
    bathyal.write_vectors(target / f"base{ending}", case.base)
    bathyal.write_vectors(target / f"query{ending}", case.queries)
    print(target, case.metric, case.base.shape, case.queries.shape)


def main() -> int:
    """Measures all sets and families."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--sets", default=";".join(SETS), help="separated by ;")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--write", type=pathlib.Path, help="write the sets to this folder, and end")
    options = parser.parse_args()
    if options.write:
        for name in options.sets.split(";"):
            written(name, (SETS | LARGER)[name](options.data), options.write)
        return 0
    missed = 0
    print("| set | family | 0.90 | 0.95 | 0.99 | compared at 0.95 |")
    print("|---|---|---:|---:|---:|---:|")
    for name in options.sets.split(";"):
        case = SETS[name](options.data)
        truth = bathyal.groundtruth(
            case.base, case.queries, metric=case.metric, k=2 * options.k, progress=False
        )
        for family in options.families.split(","):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "index")
                bathyal.build(case.base, path, metric=case.metric, family=family, progress=False).close()
                with bathyal.open(path, tier="dram") as index:
                    found = [search(index, case.queries, truth, options.k, asked) for asked in ASKED]
            missed += sum(one.missed for one in found)
            cells = " | ".join(map(str, found))
            print(f"| {name} | {family} | {cells} | {found[1].compared:,.0f} |", flush=True)
    print(f"\n{missed} recalls missed by more than {TOLERATED} without a note", file=sys.stderr)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
