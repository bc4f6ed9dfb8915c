"""DiskANN, through the program in bench/peers/diskann. ``build``: max_degree, search_list, code_bytes,
saturate.

``search``: search_list, beam_width. Latencies are measured by the program itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bathyal_bench.datasets import DataSet, first_queries
from bathyal_bench.page_cache import forget
from bathyal_bench.peers.peer import Options, Unsupported
from bathyal_bench.peers.program import ProgramPeer, Sweep, run_program
from bathyal_bench.process import files_below

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "target/peers/release/peer-diskann"
LOCK = ROOT / "bench/peers/diskann/Cargo.lock"


class DiskAnn(ProgramPeer):
    """A graph on disk, codes in memory; one query per thread at a time."""

    metrics = ("l2",)

    @classmethod
    def version(cls) -> str:
        found = re.search(r'name = "diskann-disk"\nversion = "([^"]+)"', LOCK.read_text(encoding="utf-8"))
        return found[1] if found else "unknown"

    def load_library(self) -> None:
        if not PROGRAM.exists():
            raise Unsupported("peer-diskann is not built: make bench-peers")

    def build(self, index: Path, options: Options) -> Options:
        words = [str(PROGRAM), "build", str(self.data.base), str(index), "--threads", str(self.threads)]
        outcome = run_program(words + flags(options))
        report = last_object(outcome.text)
        return {
            "build_seconds": report["build_seconds"],
            "build_peak_rss_bytes": outcome.peak_rss_bytes,
            "index_bytes": report["index_bytes"],
        }

    def sweep(self, sweep: Sweep) -> Iterator[dict[str, Any]]:
        whole = first_queries(self.data, sweep.queries, sweep.work)
        few = first_queries(self.data, sweep.latency_queries, sweep.work)
        for effort in sweep.efforts:
            record = self.search(sweep, whole, effort, self.threads)
            alone = record if self.threads == 1 else self.search(sweep, few, effort, 1)
            yield {
                "recall": record["recall"],
                "qps": record["qps"],
                "batch_queries": record["queries"],
                "latency_us": {name: alone["latency_us"][name] for name in ("mean", "p50", "p99")},
                "latency_queries": alone["queries"],
                "reads_per_query": record["reads_per_query"],
                "bytes_per_query": record["bytes_per_query"],
                "reads_source": "system",
                "dram_bytes": record["peak_rss_bytes"] - record["start_rss_bytes"],
            }

    def search(self, sweep: Sweep, data: DataSet, effort: Options, threads: int) -> dict[str, Any]:
        """Runs one process and returns its figures."""
        if sweep.cache == "cold":
            forget(files_below(sweep.index))
        words = [str(PROGRAM), "search", str(sweep.index), str(data.queries)]
        words += ["--groundtruth", str(data.groundtruth), "-k", str(sweep.k), "--threads", str(threads)]
        return last_object(run_program(words + flags(effort)).text)


def flags(options: Options) -> list[str]:
    """Formats ``max_degree = 64`` as ``--max-degree 64``."""
    words = []
    for name, value in options.items():
        words += [
            f"--{name.replace('_', '-')}",
            str(value).lower() if isinstance(value, bool) else str(value),
        ]
    return words


def last_object(text: str) -> dict[str, Any]:
    """Returns the last JSON object on a line of its own, or one that spans lines from an opening brace on."""
    for line in reversed(text.splitlines()):
        if line.startswith("{") and line.endswith("}") and len(line) > 2:
            found: dict[str, Any] = json.loads(line)
            return found
    start = text.find("{\n")
    if start < 0:
        raise RuntimeError(f"printed no JSON: {text.strip()[-200:]}")
    spread: dict[str, Any] = json.JSONDecoder().raw_decode(text[start:])[0]
    return spread
