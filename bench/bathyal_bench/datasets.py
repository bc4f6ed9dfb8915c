"""Data sets of a suite: files, slices of files, derived vectors, normalised copies, generated vectors."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.recall import read_groundtruth, write_groundtruth

DTYPES = {".fbin": "<f4", ".u8bin": "u1", ".i8bin": "i1", ".f16bin": "<f2"}
HEADER_BYTES = 8
# Neighbours per query in a computed ground truth: enough to see ties at the tenth.
GROUNDTRUTH_NEIGHBOURS = 50
# Seed of the projection matrix, so that the set is the same everywhere.
PROJECTION_SEED = 1
# Rows that are projected at a time.
ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class DataSet:
    """Vectors, queries and exact neighbours in files."""

    name: str
    metric: str
    base: Path
    queries: Path
    groundtruth: Path

    @property
    def count(self) -> int:
        """Number of vectors."""
        return shape(self.base)[0]

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return shape(self.base)[1]

    @property
    def data_bytes(self) -> int:
        """Bytes of the vectors themselves."""
        return self.base.stat().st_size - HEADER_BYTES

    def vectors(self) -> NDArray[Any]:
        """All vectors, mapped: ``count x dim``."""
        return read_vectors(self.base)

    def as_json(self) -> dict[str, str]:
        """Returns the fields that a worker needs to make the same object."""
        return {name: str(value) for name, value in vars(self).items()}

    @staticmethod
    def from_json(fields: dict[str, str]) -> DataSet:
        """The inverse of :meth:`as_json`."""
        paths = {name: Path(fields[name]) for name in ("base", "queries", "groundtruth")}
        return DataSet(fields["name"], fields["metric"], **paths)


def shape(path: Path) -> tuple[int, int]:
    """Rows and columns of a file of vectors."""
    count, dim = np.fromfile(path, "<u4", count=2)
    return int(count), int(dim)


def read_vectors(path: Path) -> NDArray[Any]:
    """A file of vectors, mapped read-only: ``rows x columns``."""
    if path.suffix not in DTYPES:
        raise ValueError(f"{path}: unknown suffix; expected one of {', '.join(DTYPES)}")
    return np.memmap(path, DTYPES[path.suffix], "r", offset=HEADER_BYTES, shape=shape(path))


def write_vectors(path: Path, vectors: NDArray[Any]) -> None:
    """Writes ``rows x columns``; ``path`` exists only once the file is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "wb") as file:
        np.array(vectors.shape, "<u4").tofile(file)
        np.ascontiguousarray(vectors, DTYPES[path.suffix]).tofile(file)
    partial.rename(path)


def normalised(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Every row divided by its length, as float32."""
    rows = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, np.finfo(np.float32).tiny)


def with_unit_lengths(data: DataSet, work: Path) -> DataSet:
    """Returns the set under l2 with vectors of length 1, for systems without cosine: the order of results is
    the same.
    """
    base = work / f"{data.name}-unit" / "base.fbin"
    queries = base.with_name("query.fbin")
    for source, target in ((data.base, base), (data.queries, queries)):
        if not target.exists():
            write_vectors(target, normalised(read_vectors(source)))
    return replace(data, metric="l2", base=base, queries=queries)


def prepare(entry: dict[str, Any], work: Path) -> DataSet:
    """The data set of a suite's ``[[data]]`` entry; slices and generated vectors are written below ``work``."""
    metric = entry.get("metric", "l2")
    if "generated" in entry:
        base, queries = generate(entry["name"], entry["generated"], work)
        groundtruth = None
    else:
        base, queries = locate(entry["base"]), locate(entry["queries"])
        groundtruth = locate(entry["groundtruth"]) if "groundtruth" in entry else None
    name = entry["name"]
    if "rows" in entry and entry["rows"] < shape(base)[0]:
        name = f"{name}-{entry['rows']}"
        part = work / name / f"base{base.suffix}"
        if not part.exists():
            write_vectors(part, read_vectors(base)[: entry["rows"]])
        base, groundtruth = part, None
    if "concatenated" in entry or "projected" in entry:
        name = f"{name}-{made_dim(entry, shape(base)[1])}"
        base = make(entry, base, work / name / "base.fbin")
        queries = make(entry, queries, work / name / "query.fbin")
        groundtruth = None
    if groundtruth is None:
        groundtruth = work / name / f"groundtruth-{metric}.ibin"
        if not groundtruth.exists():
            compute_groundtruth(base, queries, metric, groundtruth)
    check(queries, groundtruth)
    return DataSet(name, metric, base, queries, groundtruth)


def made_dim(entry: dict[str, Any], dim: int) -> int:
    """Number of components of the vectors that an entry derives from those with ``dim``."""
    return int(entry.get("projected", dim * entry.get("concatenated", 1)))


def make(entry: dict[str, Any], source: Path, output: Path) -> Path:
    """Writes the vectors that an entry derives from a file's, once, as float32, and returns the path.

    ``concatenated = 4``: joins every row with the three after it; the last rows continue with the first, so
    that there are as many rows as before. ``projected = 1024``: multiplies every row by a matrix of Gaussian
    numbers, which changes distances by a few hundredths only.
    """
    if not output.exists():
        rows = read_vectors(source).astype(np.float32)
        count = entry.get("concatenated", 1)
        rows = np.concatenate([np.roll(rows, -step, axis=0) for step in range(count)], axis=1)
        if "projected" in entry:
            rows = projected(rows, entry["projected"])
        write_vectors(output, rows)
    return output


def projected(rows: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
    """``rows`` times a seeded matrix of Gaussian numbers with a variance of ``1 / dim``: ``count x dim``."""
    random = np.random.default_rng(PROJECTION_SEED)
    matrix = (random.standard_normal((rows.shape[1], dim)) / np.sqrt(dim)).astype(np.float32)
    out = np.empty((len(rows), dim), np.float32)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        np.matmul(rows[first : first + ROWS_AT_ONCE], matrix, out=out[first : first + ROWS_AT_ONCE])
    return out


def locate(text: str) -> Path:
    """Expands environment variables in a suite's path, and resolves it relative to ``BATHYAL_DATA``."""
    expanded = os.path.expandvars(text)
    unset = re.search(r"\$\{?(\w+)", expanded)
    if unset is not None:
        raise ValueError(f"{text}: set {unset[1]} to the folder of that data set (docs/benchmarks.md)")
    path = Path(expanded)
    if not path.is_absolute():
        folder = os.environ.get("BATHYAL_DATA")
        if folder is None:
            raise ValueError(f"{text}: set BATHYAL_DATA to the folder of the data sets (docs/benchmarks.md)")
        path = Path(folder) / path
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    return path


def generate(name: str, options: dict[str, Any], work: Path) -> tuple[Path, Path]:
    """Writes base and queries around the same random centres, once; returns their paths."""
    base, queries = work / name / "base.fbin", work / name / "query.fbin"
    if not (base.exists() and queries.exists()):
        random = np.random.default_rng(options.get("seed", 1))
        centres = random.normal(0, 1, (options.get("centres", 50), options["dim"]))
        for path, count in ((base, options["count"]), (queries, options["queries"])):
            rows = centres[random.integers(0, len(centres), count)]
            write_vectors(path, (rows + random.normal(0, 0.7, rows.shape)).astype(np.float32))
    return base, queries


def compute_groundtruth(base: Path, queries: Path, metric: str, output: Path) -> None:
    """Computes exact neighbours by Bathyal's brute force."""
    import bathyal

    output.parent.mkdir(parents=True, exist_ok=True)
    k = min(GROUNDTRUTH_NEIGHBOURS, shape(base)[0])
    ids, distances = bathyal.groundtruth(str(base), str(queries), metric=metric, k=k, progress=False)
    write_groundtruth(output, ids, distances)


def check(queries: Path, groundtruth: Path) -> None:
    """Refuses a ground truth with another number of queries."""
    ids, _ = read_groundtruth(groundtruth)
    if len(ids) != shape(queries)[0]:
        raise ValueError(f"{groundtruth}: has {len(ids)} queries, but {queries} has {shape(queries)[0]}")


def first_queries(data: DataSet, count: int, work: Path) -> DataSet:
    """The same set with only the first ``count`` queries, for programs that read files."""
    total = shape(data.queries)[0]
    if count >= total:
        return data
    folder = work / f"{data.name}-queries-{count}"
    queries = folder / f"{data.metric}{data.queries.suffix}"
    groundtruth = folder / "groundtruth.ibin"
    if not (queries.exists() and groundtruth.exists()):
        write_vectors(queries, read_vectors(data.queries)[:count])
        ids, distances = read_groundtruth(data.groundtruth)
        if distances is None:
            raise ValueError(f"{data.groundtruth}: has no distances")
        write_groundtruth(groundtruth, ids[:count], distances[:count])
    return replace(data, queries=queries, groundtruth=groundtruth)
