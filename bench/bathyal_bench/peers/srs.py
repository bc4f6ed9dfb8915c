"""SRS in memory, by its authors' program (DBAIWangGroup/SRS), in the folder that ``BATHYAL_SRS`` names.

``build``: m and e (the seed). ``search``: c, r and t, the letters of its command line: the approximation
ratio, the threshold of early termination (none above 1), and the most points to check (T', to which it adds k
- 1). It reads text, searches one query at a time with one thread, and prints the mean seconds of a query and
the mean overall ratio to the given distances. These are ours, so its ratio follows the rule of
:mod:`bathyal_bench.ratio`. Queries with a neighbour at distance 0, by which it would divide, are left out. It
reports no ids, and so no recall.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.datasets import read_vectors
from bathyal_bench.peers.external import as_record, fill
from bathyal_bench.peers.peer import Options, Unsupported
from bathyal_bench.peers.program import ProgramPeer, Sweep, run_program
from bathyal_bench.ratio import true_lengths

PROGRAM = "$BATHYAL_SRS/srs"
# It accepts paths of up to 99 characters, so it runs in the folder of its files.
INDEX, DATA, QUERIES, TRUTH = "./", "data.txt", "queries.txt", "truth.txt"
NUMBER = r"(\S+)"
# It prints microseconds, so smaller times round to 0.
LEAST_SECONDS = 1e-6
# Enough digits to distinguish any two float32.
DIGITS = "%.9g"


class Srs(ProgramPeer):
    """Random projections into a few dimensions, indexed by a cover tree."""

    metrics = ("l2",)

    @classmethod
    def version(cls) -> str:
        return "own build"

    def build(self, index: Path, options: Options) -> Options:
        words = fill([PROGRAM, "-I", "-i", INDEX, "-s", DATA, *flags(options)], {})
        vectors = self.data.vectors()
        words += ["-n", str(self.data.count), "-d", str(self.data.dim), "-y", kind_of(vectors)]
        with open(index / DATA, "w", encoding="ascii") as file:
            file.writelines(f"{words_of(row)}\n" for row in vectors)
        outcome = run_program(words, folder=index)
        (index / DATA).unlink()
        if not (index / "index.bin").exists():
            raise RuntimeError(f"srs made no index: {outcome.text.strip()[-300:]}")
        return {"build_seconds": outcome.seconds, "build_peak_rss_bytes": outcome.peak_rss_bytes}

    def sweep(self, sweep: Sweep) -> Iterator[dict[str, Any]]:
        if self.threads != 1:
            raise Unsupported("searches with one thread only")
        truth = true_lengths(self.data, sweep.queries, sweep.k)
        selected = np.flatnonzero(truth[:, 0] > 0)
        sweep.work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=sweep.work) as name:
            folder = Path(name)
            for path in sweep.index.iterdir():
                (folder / path.name).symlink_to(path)
            write_numbered(
                folder / QUERIES,
                f"{len(selected)} {self.data.dim}",
                read_vectors(self.data.queries)[selected],
            )
            write_numbered(folder / TRUTH, f"{len(selected)} {sweep.k}", truth[selected])
            for effort in sweep.efforts:
                words = fill([PROGRAM, "-Q", "-i", INDEX, "-q", QUERIES, "-g", TRUTH, *flags(effort)], {})
                outcome = run_program([*words, "-k", str(sweep.k)], folder=folder)
                figures = parse(outcome.text)
                left_out = len(truth) - len(selected)
                yield as_record(figures, outcome, self.data) | {
                    "ratio": figures["ratio"],
                    "ratio_p99": None,
                    "ratio_left_out": left_out,
                    "ratio_source": "program",
                    "batch_queries": len(selected),
                }


def flags(options: Options) -> list[str]:
    """Formats options as ``-c 4 -t 1000``."""
    return [word for name, value in options.items() for word in (f"-{name}", str(value))]


def kind_of(vectors: NDArray[Any]) -> str:
    """Returns the program's letter for integers, or for other numbers."""
    return "i" if vectors.dtype.kind in "iu" else "f"


def words_of(row: NDArray[Any]) -> str:
    """Formats a vector as text."""
    values = row.tolist()
    return " ".join(map(str, values) if kind_of(row) == "i" else [DIGITS % value for value in values])


def write_numbered(path: Path, head: str, rows: NDArray[Any]) -> None:
    """Writes rows, each after its number."""
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{head}\n")
        file.writelines(f"{number} {words_of(row)}\n" for number, row in enumerate(rows, 1))


def parse(text: str) -> dict[str, float]:
    """Parses the figures that SRS prints.

    >>> figures = parse("Overall Ratio: 1.421744\\nAverage Time (s):  0.000125\\n")
    >>> figures["ratio"], figures["qps"]
    (1.421744, 8000.0)
    """
    ratio = re.search(rf"Overall Ratio:\s*{NUMBER}", text)
    seconds = re.search(rf"Average Time \(s\):\s*{NUMBER}", text)
    if ratio is None or seconds is None:
        raise RuntimeError(f"srs printed no ratio and time: {text.strip()[-300:]}")
    if not math.isfinite(float(ratio[1])):
        raise RuntimeError(f"srs found a ratio of {ratio[1]}")
    mean = max(float(seconds[1]), LEAST_SECONDS)
    return {"ratio": float(ratio[1]), "qps": 1 / mean, "mean_us": 1e6 * mean}
