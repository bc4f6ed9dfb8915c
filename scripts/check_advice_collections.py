"""Compares the prediction for a collection whose rows are replaced with such a collection.

A collection with all vectors of BASE is made. Then rows are replaced, in batches of random ones, until all were
replaced TURNOVERS times. Searches without and with a filter that a tenth of the rows match are measured after each
tenth of a turnover of the second half, and their means are compared with what `advise` predicts from a sample.
Prints a table, and appends the numbers to a file of JSON lines.

    python scripts/check_advice_collections.py BASE QUERIES --records collections.jsonl [--metric l2] [--rows 40000]
    python scripts/check_advice_collections.py --report collections.jsonl
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import bathyal

Vectors = NDArray[Any]
RECALL, K = 0.95, 10
PARTS = 10
"""A row has a number below this, of which a filter names one."""
MOMENTS_A_TURNOVER = 10
BATCH_ROWS = 5_000
CONCURRENCY = 64
NUMBERS = ("segments", "deleted", "disk", "writes a row", "reads", "qps", "filtered reads", "filtered qps")


class Moment(NamedTuple):
    """The collection after some rows were replaced."""

    segments: int
    deleted: float
    disk: int
    reads: float
    qps: float
    filtered_reads: float
    filtered_qps: float


def searched(docs: bathyal.Collection, queries: Vectors, condition: str | None) -> tuple[float, float]:
    """Returns reads a query, and queries a second."""
    docs.search(queries, k=K, recall=RECALL, filter=condition)
    before = docs.stats()["reads"]
    began = time.perf_counter()
    docs.search(queries, k=K, recall=RECALL, filter=condition)
    seconds = time.perf_counter() - began
    return (docs.stats()["reads"] - before) / len(queries), len(queries) / seconds


def looked(docs: bathyal.Collection, queries: Vectors) -> Moment:
    """Measures the collection as it is."""
    about = docs.inspect()
    segments = about["segments"]
    stored = sum(one["rows"] for one in segments)
    deleted = sum(one["deleted"] for one in segments)
    plain = searched(docs, queries, None)
    return Moment(
        len(segments), deleted / max(stored, 1), about["bytes"], *plain, *searched(docs, queries, "part = 3")
    )


def built_bytes(docs: bathyal.Collection) -> float:
    """Returns the bytes of all segments that were written, by merges and otherwise."""
    written = docs.inspect()["written"]
    return float(written["segments"] + written["merged"])


def measured(
    base: Vectors, queries: Vectors, metric: Any, folder: pathlib.Path, turnovers: float
) -> dict[str, float]:
    """Replaces the rows of a collection, and returns the means of its second half."""
    random, rows = np.random.default_rng(1), len(base)
    element: Any = {"float32": "f32", "uint8": "u8"}[base.dtype.name]
    docs = bathyal.Collection.create(
        folder / "collection", base.shape[1], metric, element=element, id="u64", columns={"part": "int64"},
        background=False, durability="system",
    )  # fmt: skip
    with docs:
        for first in range(0, rows, BATCH_ROWS):
            ids = np.arange(first, min(first + BATCH_ROWS, rows))
            docs.add(ids, base[ids], {"part": ids % PARTS})
        docs.compact(full=True, progress=False)
        before, moments = built_bytes(docs), []
        for moment in range(int(turnovers * MOMENTS_A_TURNOVER)):
            for ids in np.array_split(random.choice(rows, rows // MOMENTS_A_TURNOVER, replace=False), 8):
                # A row gets the vector of another one, so that the whole set remains alike.
                docs.upsert(ids, base[random.permutation(ids)], {"part": ids % PARTS})
            if moment >= turnovers * MOMENTS_A_TURNOVER / 2:
                moments.append(looked(docs, queries))
                print(moments[-1], flush=True)
        built, about = built_bytes(docs) - before, docs.inspect()
        row_bytes = about["bytes"] / sum(one["rows"] for one in about["segments"])
        mean = [statistics.mean(column) for column in zip(*moments, strict=True)]
    named = dict(zip(Moment._fields, mean, strict=True))
    return {name: named[name.replace(" ", "_")] for name in NUMBERS if name != "writes a row"} | {
        "writes a row": built / row_bytes / (turnovers * rows)
    }


def predicted(
    base: Vectors, queries: Vectors, metric: Any, folder: pathlib.Path
) -> dict[str, dict[str, float]]:
    """Returns the prediction, from a sample and other queries."""
    advice = bathyal.advise(
        base, queries, metric, recall=RECALL, k=K, filters=[1 / PARTS], rows_a_day=len(base), on=[folder],
        concurrency=CONCURRENCY, families=["cluster"], progress=False,
    )  # fmt: skip
    found = [*advice.ranked, *(one["prediction"] for one in advice.left_out)]
    # A collection's segments have the default codes.
    plan = bathyal.plan(base, metric=metric)
    one = next(
        one for one in found if one["build"]["options"]["code_bytes"] == plan["parameters"]["code_bytes"]
    )
    updates, (filtered,) = one["updates"], one["filters"]

    def rate(of: dict[str, Any]) -> dict[str, float]:
        load = next(load for load in of["loads"] if load["concurrency"] == CONCURRENCY)
        rates: dict[str, float] = load["queries_per_second"]
        return rates

    def exactly(value: float) -> dict[str, float]:
        return {"value": value, "low": value, "high": value}

    return {
        "segments": exactly(updates["segments"]),
        "deleted": exactly(updates["deleted"]),
        "disk": updates["disk_bytes"],
        "writes a row": exactly(updates["writes_a_row"]),
        "reads": updates["reads"],
        "qps": rate(updates),
        "filtered reads": filtered["reads"],
        "filtered qps": rate(filtered),
    }


def tables(records: list[dict[str, Any]]) -> str:
    """Returns measured and predicted numbers as a table in Markdown."""
    lines = [
        "| set | number | predicted | interval | measured | measured / predicted |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for one in records:
        for name in NUMBERS:
            of, found = one["predicted"][name], one["measured"][name]
            interval = "-" if of["low"] == of["high"] else f"{of['low']:,.4g} to {of['high']:,.4g}"
            lines.append(
                f"| {one['set']}, {one['rows']:,} | {name} | {of['value']:,.4g} | {interval} | {found:,.4g} |"
                f" {found / max(of['value'], 1e-9):.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("base", type=pathlib.Path, nargs="?")
    parser.add_argument("queries", type=pathlib.Path, nargs="?")
    parser.add_argument("--name", default="", help="the name of the set [default: the folder of BASE]")
    parser.add_argument("--metric", default="l2")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--float", action="store_true", help="convert the vectors to f32")
    parser.add_argument("--turnovers", type=float, default=2.0)
    parser.add_argument("--records", type=pathlib.Path, help="append the numbers to this file of JSON lines")
    parser.add_argument("--report", type=pathlib.Path, help="print the table of such a file, and end")
    given = parser.parse_args()
    if given.report:
        print(tables([json.loads(line) for line in given.report.read_text().splitlines()]))
        return
    if given.queries is None:
        parser.error("BASE and QUERIES are missing")
    base, queries = bathyal.read_vectors(given.base), bathyal.read_vectors(given.queries)
    if given.rows and given.rows < len(base):
        base = base[np.sort(np.random.default_rng(1).choice(len(base), given.rows, replace=False))]
    if given.float:
        base, queries = base.astype("f4"), queries.astype("f4")
    half = len(queries) // 2
    with tempfile.TemporaryDirectory(prefix="bathyal-advice-") as name:
        folder = pathlib.Path(name)
        record = {
            "set": given.name or given.base.parent.name,
            "rows": len(base),
            "turnovers": given.turnovers,
            "predicted": predicted(base, queries[:half], given.metric, folder),
            "measured": measured(base, queries[half:], given.metric, folder, given.turnovers),
        }
    print(tables([record]))
    if given.records:
        with given.records.open("a") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
