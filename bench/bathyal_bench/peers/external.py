"""Any program, by configuration: for systems that users build themselves, such as PipeANN and SPTAG.

``build.command`` and ``search.command`` are command lines with placeholders: {base} {queries} {groundtruth}
{index} {results} {metric} {element} {count} {dim} {k} {threads}, and every other option of the same table or
of the effort. ``config`` is the text of a file that is written with the same placeholders filled in; {config}
is its path. Environment variables are expanded, too; the system is left out if one of them is unset. The
output of a search is read as JSON, or by ``search.pattern``, a regular expression with named groups. The
names are those of the records (recall, qps, mean_us, p50_us, p99_us, reads_per_query, bytes_per_query,
dram_bytes), or recall_percent, mean_ms, p50_ms, p99_ms, pages_per_query (of 4 KiB); ``search.fields`` maps
them to the program's names. Without a recall, ids are read from the file {results}: two words, queries and k,
then the ids, 32 bits each, as in .ibin; with ``search.distances_beside_ids`` a distance follows each id.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bathyal_bench.datasets import DataSet, first_queries
from bathyal_bench.page_cache import forget, remember
from bathyal_bench.peers.diskann import last_object
from bathyal_bench.peers.peer import Options, Unsupported
from bathyal_bench.peers.program import Outcome, ProgramPeer, Sweep, run_program
from bathyal_bench.process import files_below
from bathyal_bench.ratio import overall_ratio
from bathyal_bench.recall import read_groundtruth, recall_at

ELEMENTS = {".fbin": "float", ".u8bin": "uint8", ".i8bin": "int8", ".f16bin": "half"}
OWN = ("command", "config", "pattern", "fields", "environment", "version", "metrics", "distances_beside_ids")
LATENCIES = ("mean", "p50", "p99")
# Page size in the counts of programs that read past the page cache.
PAGE_BYTES = 4096
VARIABLE = re.compile(r"\$BATHYAL_\w+")


class External(ProgramPeer):
    """A program that the suite describes."""

    @classmethod
    def version(cls) -> str:
        return "external"

    def words(self, options: Options, data: DataSet, config: Path, more: Options) -> list[str]:
        """Returns the command line with its placeholders filled in, and writes the configuration."""
        values = {"base": data.base, "queries": data.queries, "groundtruth": data.groundtruth}
        values |= {"metric": data.metric, "element": ELEMENTS[data.base.suffix], "threads": self.threads}
        values |= {"count": data.count, "dim": data.dim}
        values |= {name: value for name, value in options.items() if name not in OWN} | more
        values["config"] = config
        if "config" in options:
            config.write_text(fill_text(options["config"], values), encoding="utf-8")
        return fill(options["command"], values)

    def build(self, index: Path, options: Options) -> Options:
        words = self.words(options, self.data, index / "build.config", {"index": index})
        outcome = run_program(words, options.get("environment"))
        return {"build_seconds": outcome.seconds, "build_peak_rss_bytes": outcome.peak_rss_bytes}

    def sweep(self, sweep: Sweep) -> Iterator[dict[str, Any]]:
        data = first_queries(self.data, sweep.queries, sweep.work)
        results = sweep.work / f"{sweep.index.name}.results"
        few = first_queries(self.data, sweep.latency_queries, sweep.work)
        for effort in sweep.efforts:
            record = self.search(sweep, data, effort, results, self.threads)
            if self.threads > 1:
                # Latency is measured with one query at a time; the program's own figure is that only with one
                # thread.
                alone = self.search(sweep, few, effort, results, 1)
                record["latency_us"] = alone["latency_us"]
            yield record

    def search(
        self, sweep: Sweep, data: DataSet, effort: Options, results: Path, threads: int
    ) -> dict[str, Any]:
        """Runs one process and returns the record of its output."""
        results.unlink(missing_ok=True)
        (forget if sweep.cache == "cold" else remember)(files_below(sweep.index))
        more = {"index": sweep.index, "results": results, "k": sweep.k, "threads": threads}
        config = results.with_suffix(".config")
        outcome = run_program(self.words(effort, data, config, more), effort.get("environment"))
        record = as_record(parse_output(outcome.text, effort), outcome, data)
        if record["recall"] is None:
            with_distances = bool(effort.get("distances_beside_ids", False))
            record |= accuracy_of(results, data, sweep.k, with_distances)
        return record


def fill(command: str | list[str], values: dict[str, Any]) -> list[str]:
    """Returns the words of a command line, each with its placeholders filled in."""
    words = shlex.split(command) if isinstance(command, str) else command
    return [fill_text(word, values) for word in words]


def fill_text(text: str, values: dict[str, Any]) -> str:
    """Expands environment variables and placeholders of a text."""
    text = os.path.expandvars(text)
    unset = VARIABLE.search(text)
    if unset is not None:
        raise Unsupported(f"set {unset[0]} to the folder of a build of it (bench/README.md)")
    try:
        return text.format_map({name: str(value) for name, value in values.items()})
    except KeyError as missing:
        raise Unsupported(f"{text!r} has the placeholder {missing}, which has no value") from None


def parse_output(text: str, options: Options) -> dict[str, float]:
    """Returns figures under the names of the records, from JSON or by a regular expression."""
    if "pattern" in options:
        rows = list(re.finditer(options["pattern"], text, re.MULTILINE))
        if not rows:
            raise RuntimeError(f"{options['pattern']!r} matches nothing of: {text.strip()[-300:]}")
        printed: dict[str, Any] = rows[-1].groupdict()
    else:
        printed = last_object(text)
    fields = options.get("fields", {})
    figures = {name: float(printed[theirs]) for name, theirs in fields.items() if theirs in printed}
    for name, value in printed.items():
        if name not in fields.values() and isinstance(value, int | float | str):
            try:
                figures[name] = float(value)
            except ValueError:
                continue
    for name in LATENCIES:
        if f"{name}_ms" in figures:
            figures[f"{name}_us"] = 1000 * figures.pop(f"{name}_ms")
    if "recall_percent" in figures:
        figures["recall"] = figures.pop("recall_percent") / 100
    if "pages_per_query" in figures:
        figures["bytes_per_query"] = PAGE_BYTES * figures.pop("pages_per_query")
    if "qps" not in figures:
        raise RuntimeError(f"the output has no qps: {text.strip()[-300:]}")
    return figures


def accuracy_of(results: Path, data: DataSet, k: int, distances_beside_ids: bool) -> dict[str, Any]:
    """Computes recall and overall ratio of the ids in a file, each alone or followed by its distance."""
    if not results.exists():
        raise Unsupported("the search printed no recall and did not write {results}")
    words = np.fromfile(results, "<i4")
    count, width = int(words[0]), int(words[1])
    step = 2 if distances_beside_ids else 1
    found = words[2 : 2 + step * count * width : step].reshape(count, width)
    ids, distances = read_groundtruth(data.groundtruth)
    accuracy = {"recall": recall_at(found, ids, distances, k), "batch_queries": count}
    return accuracy | overall_ratio(found, ids, data, k)


def as_record(figures: dict[str, float], outcome: Outcome, data: DataSet) -> dict[str, Any]:
    """Returns a record; figures that the program does not report are None."""
    known = ("recall", "qps", "reads_per_query", "bytes_per_query")
    record: dict[str, Any] = {name: figures.get(name) for name in known}
    record["latency_us"] = {name: figures.get(f"{name}_us") for name in LATENCIES}
    record["reads_source"] = "system" if "reads_per_query" in figures else None
    # Without a figure of its own, a program is charged with all memory that it used, including queries.
    record["dram_bytes"] = figures.get("dram_bytes", outcome.peak_rss_bytes)
    record["dram_source"] = "system" if "dram_bytes" in figures else "peak of the whole process"
    record["kernel_read_bytes"] = outcome.read_bytes
    return record
