"""QALSH in memory, by its authors' program (HuangQiang/QALSH_Mem), in the folder that ``BATHYAL_QALSH``
names.

``build.scale`` multiplies all vectors. QALSH begins with a radius of 1, within which everything is one
bucket, so distances have to be well above 1 (those between whole numbers are). The effort is c, the
approximation ratio, which determines the number of its tables. It saves no index: each search builds one for
its c, in ``index_seconds`` and ``index_memory_bytes`` of the records. It searches one query at a time with
one thread, for k of 1, 2, 5, 10, 20, 50 and 100, and writes mean milliseconds, and ratio and recall relative
to the exact neighbours that it finds itself. Both follow our rules (:mod:`bathyal_bench.ratio`,
:mod:`bathyal_bench.recall`). Queries with a neighbour at distance 0, by which it would divide, are left out.
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

PROGRAM = "$BATHYAL_QALSH/qalsh"
# It accepts only short paths, so it runs in the folder of its files.
PREFIX, OUTPUT = "set", "out"
EXACT, QALSH = 0, 2
TOP_K = (1, 2, 5, 10, 20, 50, 100)
EUCLIDEAN = ("-p", "2.0")
GAUSSIAN = ("-z", "0.0")
# Elements that it has no type for are converted to float32.
TYPES = {"u1": "uint8", "f4": "float32"}


class Qalsh(ProgramPeer):
    """Query-aware buckets with counts of collisions."""

    metrics = ("l2",)
    note = "builds its index for each search: seconds and bytes are in the records"

    @classmethod
    def version(cls) -> str:
        return "own build"

    def build(self, index: Path, options: Options) -> Options:
        fill([PROGRAM], {})
        scale = options.get("scale", 1)
        as_taken(self.data.vectors(), scale).tofile(index / f"{PREFIX}.ds")
        (index / "scale").write_text(str(scale), encoding="ascii")
        return {}

    def sweep(self, sweep: Sweep) -> Iterator[dict[str, Any]]:
        if self.threads != 1:
            raise Unsupported("searches with one thread only")
        if sweep.k not in TOP_K:
            raise Unsupported(f"supports only k of {', '.join(map(str, TOP_K))}")
        truth = true_lengths(self.data, sweep.queries, sweep.k)
        selected = np.flatnonzero(truth[:, 0] > 0)
        scale = float((sweep.index / "scale").read_text(encoding="ascii"))
        queries = as_taken(read_vectors(self.data.queries)[selected], scale)
        shape = ["-n", str(self.data.count), "-qn", str(len(selected)), "-d", str(self.data.dim)]
        shape += [*EUCLIDEAN, "-dt", TYPES[queries.dtype.str[1:]], "-pf", PREFIX]
        sweep.work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=sweep.work) as name:
            folder = Path(name)
            (folder / f"{PREFIX}.ds").symlink_to(sweep.index / f"{PREFIX}.ds")
            queries.tofile(folder / f"{PREFIX}.q")
            run_program([*fill([PROGRAM], {}), "-alg", str(EXACT), *shape], folder=folder)
            for effort in sweep.efforts:
                more = [*GAUSSIAN, "-c", str(effort["c"]), "-of", f"{OUTPUT}/"]
                outcome = run_program(
                    [*fill([PROGRAM], {}), "-alg", str(QALSH), *shape, *more], folder=folder
                )
                written = folder / OUTPUT / "qalsh.out"
                figures = parse(written.read_text(encoding="ascii"), sweep.k)
                written.unlink()
                seconds, memory = figures.pop("index_seconds"), figures.pop("index_memory_bytes")
                yield as_record(figures, outcome, self.data) | {
                    "ratio": figures["ratio"],
                    "ratio_p99": None,
                    "ratio_left_out": len(truth) - len(selected),
                    "ratio_source": "program",
                    "batch_queries": len(selected),
                    "index_seconds": seconds,
                    "index_memory_bytes": memory,
                    "note": self.note,
                }


def as_taken(vectors: NDArray[Any], scale: float) -> NDArray[Any]:
    """Converts vectors to an element that QALSH supports, and scales them."""
    if vectors.dtype.str[1:] in TYPES and scale == 1:
        return np.ascontiguousarray(vectors)
    return np.asarray(vectors, np.float32) * np.float32(scale)


def parse(text: str, k: int) -> dict[str, float]:
    """Parses the figures that QALSH writes.

    >>> written = "Indexing Time = 1.5 Seconds\\nEstimated Mem = 2.0 MB\\n\\n1\\t1.02\\t5.0\\t92.0\\n"
    >>> figures = parse(f"{written}10\\t1.001\\t8.0\\t95.0\\n", 10)
    >>> figures["ratio"], figures["qps"], figures["recall"], figures["index_memory_bytes"]
    (1.001, 125.0, 0.95, 2097152.0)
    """
    row = re.search(rf"^{k}\t(\S+)\t(\S+)\t(\S+)$", text, re.MULTILINE)
    indexing = re.search(r"Indexing Time = (\S+) Seconds\s+Estimated Mem = (\S+) MB", text)
    if row is None or indexing is None:
        raise RuntimeError(f"qalsh wrote no figures for k = {k}: {text.strip()[-300:]}")
    ratio, milliseconds, percent = map(float, row.groups())
    if not math.isfinite(ratio):
        raise RuntimeError(f"qalsh found a ratio of {ratio} for k = {k}")
    return {
        "ratio": ratio,
        "recall": percent / 100,
        "qps": 1000 / milliseconds,
        "mean_us": 1000 * milliseconds,
        "index_seconds": float(indexing[1]),
        "index_memory_bytes": float(indexing[2]) * 2**20,
    }
