"""``python -m bathyal_bench``: ``run SUITE``, ``report RECORDS`` and ``repro FOLDER...``."""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

from bathyal_bench.points import read_records
from bathyal_bench.runner import ROOT, Run
from bathyal_bench.suite import Suite, read_suite
from bathyal_bench.tables import report

try:
    from bathyal_bench import repro
    from bathyal_bench.page import page
except ImportError as error:
    # Fail now, not after hours of measurements.
    sys.exit(f"error: {error}; reports need it: run `make bench-report` or `make bench`, which install it")

WORK = ROOT / "bench/.work/systems"
SUITES = ROOT / "bench/suites"


def main() -> int:
    options = parse()
    try:
        if options.task == "run" and options.plan:
            print(chosen_run(options, read_chosen_suite(options), sys.stdout).plan())
            return 0
        if options.task == "repro":
            for folder in options.folders:
                print("\n".join(map(str, repro.report(folder))))
            return 0
        records = options.records if options.task == "report" else run(options)
        return write_reports(records, options.quiet)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bathyal_bench", description="Compares Bathyal with other systems.")
    tasks = parser.add_subparsers(dest="task", required=True)
    measure = tasks.add_parser("run", help="measure the systems of a suite, then write the reports")
    measure.add_argument("suite", type=Path, help="a TOML file, for example bench/suites/sift.toml")
    measure.add_argument("--work", type=Path, default=WORK, help="folder for indexes and results")
    measure.add_argument("--output", type=Path, help="JSON lines (default: WORK/results/SUITE-TIME.jsonl)")
    measure.add_argument(
        "--plan", action="store_true", help="print the planned builds and measurements, and stop"
    )
    measure.add_argument("--rebuild", action="store_true", help="also build indexes that exist")
    measure.add_argument(
        "--only", action="append", default=[], help="only systems whose name contains this text"
    )
    measure.add_argument("--built-only", action="store_true", help="only systems with a built index")
    measure.add_argument("--build-only", action="store_true", help="build missing indexes, measure nothing")
    measure.add_argument(
        "--threads", type=whole_numbers, help="replaces the suite's threads, for example 1 or 1,2"
    )
    measure.add_argument("--repeats", type=int, help="replaces the suite's repeats")
    measure.add_argument("--caches", type=words, help="replaces the suite's caches: warm, cold, or warm,cold")
    again = tasks.add_parser("report", help="write the reports of earlier records again")
    again.add_argument("records", type=Path, help="JSON lines of a run")
    of_papers = tasks.add_parser("repro", help="write the report of a reproduction from its records")
    of_papers.add_argument(
        "folders", type=Path, nargs="+", metavar="FOLDER", help="output folder of bathyal-repro"
    )
    for parsed in (measure, again):
        parsed.add_argument("--quiet", action="store_true", help="do not print the tables")
    return parser.parse_args()


def words(text: str) -> tuple[str, ...]:
    """Splits ``"warm,cold"`` into its words."""
    return tuple(text.split(","))


def whole_numbers(text: str) -> tuple[int, ...]:
    """Parses ``"1,2"``."""
    try:
        return tuple(int(word) for word in words(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers such as 1,2") from None


def read_chosen_suite(options: argparse.Namespace) -> Suite:
    """Reads the suite; options of the command line replace its values."""
    if not options.suite.exists():
        suites = ", ".join(sorted(path.stem for path in SUITES.glob("*.toml") if path.name != "Cargo.toml"))
        raise FileNotFoundError(f"{options.suite}: no such file; {SUITES} has {suites}")
    given = {name: getattr(options, name) for name in ("threads", "repeats", "caches")}
    return dataclasses.replace(
        read_suite(options.suite), **{name: value for name, value in given.items() if value is not None}
    )


def run(options: argparse.Namespace) -> Path:
    """Measures the suite and returns the path of the records."""
    suite = read_chosen_suite(options)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    output: Path = options.output or options.work / "results" / f"{suite.name}-{stamp}.jsonl"
    output.parent.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    # On SIGTERM, exit by an exception, which ends the worker first.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with open(options.work / "lock", "w") as lock, open(output, "w", encoding="utf-8") as log:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{options.work}: another run uses this folder; both would be disturbed"
            ) from None
        chosen_run(options, suite, log).execute()
    return output


def chosen_run(options: argparse.Namespace, suite: Suite, log: TextIO) -> Run:
    """Returns the run that the command line selects."""
    only = tuple(options.only)
    return Run(suite, options.work, log, options.rebuild, only, options.built_only, options.build_only)


def write_reports(records: Path, quiet: bool) -> int:
    """Writes the markdown and HTML reports next to the records."""
    entries = read_records(records)
    tables = report(entries)
    records.with_suffix(".md").write_text(tables, encoding="utf-8")
    records.with_suffix(".html").write_text(page(entries), encoding="utf-8")
    if not quiet:
        print(tables)
    for suffix in (".jsonl", ".md", ".html"):
        print(records.with_suffix(suffix))
    return 0


if __name__ == "__main__":
    sys.exit(main())
