#!/usr/bin/env python3
"""Compares Bathyal with LanceDB in an object store: the same server, through the same relay that delays
reads.

First builds the missing indexes in a bucket, directly at the server. Then measures through `bathyal-suites
relay`, which delays every read as a remote store would, and counts reads. Warm: an open index, with one query
in flight and with many. Cold: the first answer of a process. Writes JSON lines and markdown tables. All
delays are emulated; see bench/README.md.
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bathyal_bench.cloud.run import Plan, Run
from bathyal_bench.cloud.servers import Missing, Store, relay, server, store_from_environment
from bathyal_bench.cloud.tables import report
from bathyal_bench.datasets import prepare
from bathyal_bench.points import read_records
from bathyal_bench.runner import ROOT

# The names that suites use. Paths are relative to BATHYAL_DATA.
SETS: dict[str, dict[str, Any]] = {
    "sift-a": {
        "base": "sift-a/base.u8bin",
        "queries": "sift-a/query.u8bin",
        "groundtruth": "sift-a/gt100.ibin",
        "metric": "l2",
    },
    "glove": {
        "base": "$BATHYAL_GLOVE/base.fbin",
        "queries": "$BATHYAL_GLOVE/query.fbin",
        "groundtruth": "$BATHYAL_GLOVE/gt100_angular.ibin",
        "metric": "cosine",
    },
    "minilm": {
        "base": "minilm-debian/base.fbin",
        "queries": "minilm-debian/query.fbin",
        "metric": "cosine",
    },
    "hog-a": {
        "base": "hog-a/base.fbin",
        "queries": "hog-a/query.fbin",
        "groundtruth": "hog-a/gt100.ibin",
        "metric": "l2",
    },
}
STORES = ("paper", "s3", "s3-express", "rack")
# Queries in flight, and the number of queries. One at a time takes a second each for a graph in a remote
# store.
CONCURRENCIES = "1:200,16:500,64:1000"


def main() -> int:
    options = parse()
    # On SIGTERM a run first ends its server.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        records = options.report or measure(options)
        tables = report(read_records(records))
    except (Missing, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    records.with_suffix(".md").write_text(tables, encoding="utf-8")
    print(tables)
    print(records, records.with_suffix(".md"), sep="\n")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = parser.add_argument_group("data")
    data.add_argument(
        "--set", default="sift-a", help=f"{', '.join(SETS)}, or a name for --base (default: sift-a)"
    )
    data.add_argument("--base", help="vectors of another set, .fbin or .u8bin")
    data.add_argument("--queries", help="queries of that set")
    data.add_argument("--groundtruth", help="exact neighbours of these queries (default: computed once)")
    data.add_argument("--metric", choices=["l2", "cosine", "ip"], help="metric of that set (default: l2)")
    data.add_argument("--rows", type=int, help="use only the first rows of the set")
    store = parser.add_argument_group("store")
    store.add_argument(
        "--store", default="paper", choices=STORES, help="the store that the relay emulates (default: paper)"
    )
    store.add_argument("--endpoint", help="http://HOST:PORT of a running server (default: start `weed mini`)")
    store.add_argument("--bucket", default="bench", help="the bucket at --endpoint (default: bench)")
    store.add_argument(
        "--folder",
        type=Path,
        help="folder in which the server at --endpoint keeps its buckets as folders (as versitygw does): the relay "
        "reads from there, so that the server is not the bottleneck",
    )
    store.add_argument("--seed", type=int, default=1, help="seed of the delays")
    what = parser.add_argument_group("measurements")
    what.add_argument(
        "--only", type=words, default=(), help="cluster,graph,spann,spann-codes,lance-pq,lance-rq"
    )
    what.add_argument(
        "--concurrency",
        type=pairs,
        default=pairs(CONCURRENCIES),
        help=f"IN_FLIGHT:QUERIES (default: {CONCURRENCIES})",
    )
    what.add_argument(
        "--targets", type=numbers, default=(0.90, 0.95, 0.99), help="recalls at which to compare"
    )
    what.add_argument("--repeats", type=int, default=3, help="warm sweeps per system, in turn (default: 3)")
    what.add_argument("--cold", type=int, default=7, help="cold processes per system (default: 7)")
    what.add_argument(
        "--survey-queries", type=int, default=500, help="queries for choosing the efforts (default: 500)"
    )
    what.add_argument(
        "--survey",
        type=Path,
        help="records of an earlier run over the same indexes: take the recalls of efforts from them",
    )
    what.add_argument(
        "--warming-queries",
        type=int,
        default=200,
        help="warm-up queries before the measured ones (default: 200)",
    )
    what.add_argument("-k", type=int, default=10)
    what.add_argument("--rebuild", action="store_true", help="also build indexes that exist already")
    what.add_argument("--timeout", type=float, default=3 * 3600.0, help="time limit of a process in seconds")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "bench/.work/cloud", help="folder for server and results"
    )
    parser.add_argument("--output", type=Path, help="JSON lines (default: WORK/results/SET-STORE-TIME.jsonl)")
    parser.add_argument("--report", type=Path, help="only write the tables of these records")
    return parser.parse_args()


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in words(text))


def pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Parses ``"1:200,64:1000"``: queries in flight, and the number of queries."""
    return tuple((int(one), int(other)) for one, _, other in (word.partition(":") for word in words(text)))


def entry(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the entry that a suite would have for the data set."""
    from_options = {
        name: getattr(options, name) for name in ("base", "queries", "groundtruth", "metric", "rows")
    }
    if options.base is None and options.set not in SETS:
        raise ValueError(
            f"{options.set}: unknown set (known: {', '.join(SETS)}); use --base and --queries for others"
        )
    if options.base is not None and options.queries is None:
        raise ValueError(f"{options.base}: the file of its queries is missing: --queries")
    known = SETS[options.set] if options.base is None else {}
    return (
        {"name": options.set}
        | known
        | {name: value for name, value in from_options.items() if value is not None}
    )


def measure(options: argparse.Namespace) -> Path:
    """Measures, and returns the path of the records."""
    work = options.work.resolve()
    output: Path = (
        options.output
        or work / "results" / f"{options.set}-{options.store}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    )
    if options.survey is not None:
        check_survey(options.survey, output)
    output.parent.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        emulated=options.store,
        k=options.k,
        concurrencies=options.concurrency,
        repeats=options.repeats,
        cold_processes=options.cold,
        survey_queries=options.survey_queries,
        surveyed=options.survey,
        warming_queries=options.warming_queries,
        targets=options.targets,
        only=options.only,
        rebuild=options.rebuild,
        timeout_seconds=options.timeout,
    )
    with locked(work), open_server(options, work) as real:
        data = prepare(entry(options), work / "data")
        with (
            relay(real, options.store, options.seed, options.folder, work / "relay.log") as slow,
            open(output, "w", encoding="utf-8") as log,
        ):
            Run(plan, data, work, log, real, slow).execute()
    return output


def check_survey(survey: Path, output: Path) -> None:
    """Refuses a file without surveys, or one that the run would overwrite."""
    if survey.resolve() == output.resolve():
        raise ValueError(
            f"{output}: holds the recalls to reuse and would be overwritten; choose another --output"
        )
    try:
        found = any(one["kind"] == "survey" for one in read_records(survey))
    except (ValueError, KeyError, TypeError):
        found = False
    if not found:
        raise ValueError(
            f"{survey}: no recalls of efforts; --survey expects the records (.jsonl) of an earlier run"
        )


def open_server(options: argparse.Namespace, work: Path) -> Any:
    """Returns the context of a server: a running one, or one that ends with the block."""
    return running(options) if options.endpoint else server(work / "server")


@contextmanager
def running(options: argparse.Namespace) -> Iterator[Store]:
    """Yields the server of the command line."""
    yield store_from_environment(options.endpoint, options.bucket)


@contextmanager
def locked(work: Path) -> Iterator[None]:
    """Locks a work folder; refuses if another run holds the lock."""
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{work}: another run uses this folder") from None
        yield


if __name__ == "__main__":
    sys.exit(main())
