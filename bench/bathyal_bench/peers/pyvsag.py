"""VSAG. ``build``: index (its kind, for example hgraph), and its index_param; ``search``: options of that
kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.peers.peer import Options, Peer

FILE = "index.vsag"
DEFINITION = "definition.json"


class Pyvsag(Peer):
    """VSAG's indexes in memory; one query per call, one call at a time.

    Calls from two threads at once were no faster than from one, and occasionally never returned.
    """

    requirement = "pyvsag"
    note = "its package searches with one thread"

    def load_library(self) -> None:
        import pyvsag

        pyvsag.set_logger_off()
        self.package = pyvsag

    def build(self, index: Path, options: Options) -> Options:
        parameters = {name: value for name, value in options.items() if name != "index"}
        if options["index"] == "hgraph":
            parameters = {"build_thread_count": self.threads} | parameters
        definition = {"dtype": "float32", "metric_type": self.data.metric, "dim": self.data.dim}
        definition["index_param"] = parameters
        named = {"index": options["index"], "definition": definition}
        (index / DEFINITION).write_text(json.dumps(named), encoding="utf-8")
        made = self.package.Index(options["index"], json.dumps(definition))
        vectors = self.vectors()
        ids = np.arange(len(vectors), dtype=np.int64)
        made.build(vectors=vectors.reshape(-1), ids=ids, num_elements=len(vectors), dim=vectors.shape[1])
        made.save(str(index / FILE))
        return {}

    def open(self, index: Path, options: Options) -> None:
        named = json.loads((index / DEFINITION).read_text(encoding="utf-8"))
        self.kind = named["index"]
        self.index = self.package.Index(self.kind, json.dumps(named["definition"]))
        self.index.load(str(index / FILE))

    def set_effort(self, options: Options) -> None:
        self.parameters = json.dumps({self.kind: options})

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        found = np.full((len(queries), k), -1, np.int64)
        for row, query in zip(found, queries, strict=True):
            answer = self.search_one(query, k)
            row[: len(answer)] = answer
        return found

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        return self.index.knn_search(query, k, self.parameters)[0]

    def close(self) -> None:
        del self.index
