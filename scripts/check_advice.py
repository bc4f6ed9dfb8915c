"""Predicts indexes from a sample, builds them whole, and compares: sizes, memory, reads, speed, build time.

Prints one line for each index, device, recall and number of queries in flight (measured / predicted, `*` outside
of its interval), and appends it to a file of JSON lines. `--report` prints the tables of such a file. The queries
that measure are not those that predict: `advise` gets the first half of QUERIES and the search others.

    python scripts/check_advice.py BASE QUERIES --records grid.jsonl [--metric l2] [--rows 100000]
    python scripts/check_advice.py --report grid.jsonl

Places are `dram` and `file` [the default], `mapped`, `cxl`, `rdma`, `node` and `bucket` (scripts/advice_places.py).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from advice_places import Place, opened

WIDTHS = {".fbin": 4, ".f16bin": 2, ".u8bin": 1, ".i8bin": 1}
NUMBERS = ("disk", "memory", "reads", "bytes", "cpu", "qps", "p50", "p99", "build")
SEARCHES = 3
"""Searches of an index whose median speed counts. One more before them warms caches."""
FEWEST_QUERIES, MOST_QUERIES = 40, 32_768
P99_QUERIES = 500
"""The fewest queries whose 99th percentile is compared."""
SEARCH_SECONDS = 1.0
"""Approximate seconds of a search: as many queries as are predicted for them, repeated if the set has fewer. The
start of a process would count too much in shorter searches."""
HEADER_BYTES = 8
HIGH = 0.95
WANTED_SHARE = 0.9
"""The least share of the fastest index's speed that a good choice has."""
AIMS = {
    "disk": (0.02, 0.02), "memory": (0.05, 0.05), "reads": (0.1, 0.1), "bytes": (0.1, 0.1),
    "qps": (0.15, 0.35), "p50": (0.15, 0.35), "build": (0.25, 0.25),
}  # fmt: skip
"""The largest wanted errors: the median, and the 95th percentile."""


def rows_of(path: pathlib.Path, chosen: Iterator[int], target: pathlib.Path) -> int:
    """Writes the rows `chosen` of `path` to `target`; returns their number."""
    with path.open("rb") as source, target.open("wb") as out:
        _, dim = struct.unpack("<II", source.read(HEADER_BYTES))
        row_bytes = dim * WIDTHS[path.suffix]
        out.write(bytes(HEADER_BYTES))
        count = 0
        for row in chosen:
            source.seek(HEADER_BYTES + row * row_bytes)
            out.write(source.read(row_bytes))
            count += 1
        out.seek(0)
        out.write(struct.pack("<II", count, dim))
    return count


def count_of(path: pathlib.Path) -> int:
    """Returns the number of rows of a file."""
    with path.open("rb") as file:
        return int(struct.unpack("<II", file.read(HEADER_BYTES))[0])


class Command:
    """The command `bathyal`, whose answers are JSON."""

    def __init__(self, program: str) -> None:
        self.program = program

    def __call__(self, *arguments: object) -> dict[str, Any]:
        """Runs the command, and returns its answer."""
        words = [self.program, *map(str, arguments), "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr or done.stdout}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def measured(
    command: Command, cell: Cell, index: pathlib.Path | str, folder: pathlib.Path, given: argparse.Namespace
) -> dict[str, float | None]:
    """Searches the built index at the place of a cell, and returns the numbers."""
    built = json.loads((folder / "built.json").read_text())
    threads = min(given.threads, cell.concurrency)
    wanted = int(cell.predicted()["qps"]["value"] * SEARCH_SECONDS)
    queries = queries_file(folder, given.queries, min(max(wanted, FEWEST_QUERIES), MOST_QUERIES))
    searches = [
        command(
            "search", index, queries, "-k", "10", "--recall", cell.recall,
            "--threads", threads, "--in-flight", -(-cell.concurrency // threads),
            *cell.at.search, *cell.at.store,
        )
        for _ in range(SEARCHES)
    ]  # fmt: skip
    found = sorted(searches, key=lambda one: float(one["qps"]))[SEARCHES // 2]
    # Memory is predicted for one number of queries in flight.
    is_sized = cell.concurrency == given.concurrency[0] and not cell.at.is_emulated
    return {
        "disk": built["index_bytes"],
        "memory": found["dram_bytes"] if is_sized else None,
        **requested(found),
        "cpu": found["processor_us_per_query"],
        "qps": found["qps"],
        "p50": found["latency_us"]["p50"],
        "p99": found["latency_us"]["p99"] if found["queries"] >= P99_QUERIES else None,
        "build": built["build_seconds"],
    }


def requested(found: dict[str, Any]) -> dict[str, float]:
    """Returns the reads and the bytes of a query; of an index in an object store, its requests, as predicted."""
    if (requests := found.get("requests")) and found["queries"]:
        return {
            "reads": requests["requests"] / found["queries"],
            "bytes": requests["received_bytes"] / found["queries"],
        }
    return {"reads": found["reads_per_query"], "bytes": found["bytes_per_query"]}


def queries_file(folder: pathlib.Path, queries: pathlib.Path, count: int) -> pathlib.Path:
    """Returns a file with about `count` of the second half of the queries, each repeated if they are too few."""
    count = 1 << (count.bit_length() - 1)
    path = folder / f"measure-{count}{queries.suffix}"
    if not path.exists():
        whole = count_of(queries)
        others = range(whole // 2, whole)
        rows_of(queries, (others[at % len(others)] for at in range(count)), path)
    return path


class Cell(NamedTuple):
    """A prediction with one recall and one number of queries in flight."""

    prediction: dict[str, Any]
    recall: float
    concurrency: int
    at: Place

    @property
    def label(self) -> str:
        """The name of the index."""
        return str(self.prediction["label"])

    @property
    def place(self) -> str:
        """The name of the place."""
        return self.at.name

    def predicted(self) -> dict[str, dict[str, float]]:
        """Returns the predicted intervals."""
        return predicted_numbers(self.prediction, self.concurrency)


def predicted_numbers(prediction: dict[str, Any], concurrency: int) -> dict[str, dict[str, float]]:
    """Returns the intervals of a prediction, by the names of `NUMBERS`."""
    load = next(load for load in prediction["loads"] if load["concurrency"] == concurrency)
    return {
        "disk": prediction["disk_bytes"],
        "memory": prediction["dram_bytes"],
        "reads": prediction["reads"],
        "bytes": prediction["read_bytes"],
        "cpu": prediction["processor_us"],
        "qps": load["queries_per_second"],
        "p50": load["p50_us"],
        "p99": load["p99_us"],
        "build": prediction["build_seconds"],
    }


def options_of(build: dict[str, Any]) -> list[str]:
    """Returns the options of a build as words of the command line."""
    words = ["--family", build["family"]]
    for name, value in build["options"].items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def prepare(given: Any, command: Command, folder: pathlib.Path) -> pathlib.Path:
    """Writes the vectors, both halves of the queries and the profile; returns the path of the vectors."""
    base, rows = given.base, count_of(given.base)
    if given.rows and given.rows < rows:
        base = folder / f"base{given.base.suffix}"
        rows_of(given.base, iter(sorted(random.Random(1).sample(range(rows), given.rows))), base)
    queries = count_of(given.queries)
    rows_of(given.queries, iter(range(queries // 2)), folder / f"predict{given.queries.suffix}")
    # An index by which nodes and buckets are measured.
    command("build", base, folder / "some", "--metric", given.metric, "--family", "flat")
    return pathlib.Path(base)


def numbers_in(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Returns a parser of numbers between commas."""
    return lambda words: [kind(word) for word in words.split(",")]


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("base", type=pathlib.Path, nargs="?")
    parser.add_argument("queries", type=pathlib.Path, nargs="?")
    parser.add_argument("--name", default="", help="the name of the set [default: the folder of BASE]")
    parser.add_argument("--metric", default="l2")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--recall", type=numbers_in(float), default=[0.9, 0.95, 0.99])
    parser.add_argument(
        "--concurrency", type=numbers_in(int), default=[16, 1, 64],
        help="queries in flight; memory is compared with the first [default: 16,1,64]",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--command", default="bathyal")
    parser.add_argument("--family", action="append", default=[])
    parser.add_argument("--places", type=numbers_in(str), default=["dram", "file"])
    parser.add_argument("--pace", default="")
    parser.add_argument("--records", type=pathlib.Path, help="append the numbers to this file of JSON lines")
    parser.add_argument("--report", type=pathlib.Path, help="print the tables of such a file, and end")
    given = parser.parse_args()
    if given.report:
        print(tables([json.loads(line) for line in given.report.read_text().splitlines()]))
        return
    if given.queries is None:
        parser.error("BASE and QUERIES are missing")
    command = Command(given.command)
    with tempfile.TemporaryDirectory(prefix="bathyal-advice-") as name:
        folder = pathlib.Path(name)
        base = prepare(given, command, folder)
        with opened(given.places, command, given.command, folder, folder / "some") as places:
            compare_places(given, command, folder, base, places)


def compare_places(
    given: argparse.Namespace, command: Command, folder: pathlib.Path, base: pathlib.Path, places: list[Place]
) -> None:
    """Predicts indexes at the places, those with options of a store one after the other, and compares."""
    families = [word for family in given.family for word in ("--family", family)]
    pace = [f"--{given.pace}"] if given.pace else []
    together = [[place for place in places if not place.store], *([place] for place in places if place.store)]
    for some in filter(None, together):
        on = [word for place in some for word in ("--on", place.on)]
        advice = command(
            "advise", base, folder / f"predict{given.queries.suffix}", "--metric", given.metric,
            "--recall", ",".join(map(str, given.recall)), *on, *some[0].store,
            "--threads", given.threads, "--concurrency", given.concurrency[0], *families, *pace,
        )  # fmt: skip
        print(
            f"{given.base} {advice['vectors']}: {advice['seconds']:.0f} s, {advice['statistics']}", flush=True
        )
        cells = cells_of(advice, given.concurrency, {place.on: place for place in some})
        compare(given, command, folder, base, cells)


def cells_of(advice: dict[str, Any], concurrency: list[int], places: dict[str, Place]) -> list[Cell]:
    """Returns the predictions of all recalls, those of one index after each other."""
    cells = []
    for one in [advice, *advice.get("other_recalls", [])]:
        left_out = [entry["prediction"] for entry in one["left_out"] if entry["prediction"]]
        for prediction in one["ranked"] + left_out:
            place = places[prediction["tier"]]
            cells += [Cell(prediction, one["recall"], flight, place) for flight in concurrency]
    return sorted(cells, key=lambda cell: (cell.label, cell.place))


def quantile(numbers: list[float], share: float) -> float:
    """Returns the number below which `share` of all are."""
    ordered = sorted(numbers)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def ratio_of(record: dict[str, Any], number: str) -> float | None:
    """Returns measured / predicted; None if the number was not measured."""
    found = record["measured"][number]
    return None if found is None else found / max(record["predicted"][number]["value"], 1e-9)


def errors_of(records: list[dict[str, Any]], number: str) -> list[float]:
    """Returns the relative errors of a number."""
    ratios = [ratio_of(record, number) for record in records]
    return [abs(ratio - 1) for ratio in ratios if ratio is not None]


def grouped(records: list[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Returns the records by the values of the given members."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in records:
        groups.setdefault(tuple(one[name] for name in names), []).append(one)
    return groups


def ratio_table(records: list[dict[str, Any]], *names: str) -> list[str]:
    """Returns measured / predicted by the values of members: the median, and the 95th percentile of errors."""
    lines = [
        "| " + " | ".join(names) + " | cells | " + " | ".join(NUMBERS) + " |",
        "|---" * len(names) + "|---:" * (1 + len(NUMBERS)) + "|",
    ]
    for key, cells in grouped(records, *names).items():
        row = [*map(str, key), str(len(cells))]
        for number in NUMBERS:
            ratios = [ratio for one in cells if (ratio := ratio_of(one, number)) is not None]
            errors = [abs(ratio - 1) for ratio in ratios]
            row.append(f"{statistics.median(ratios):.2f} ({quantile(errors, HIGH):.2f})" if ratios else "-")
        lines.append("| " + " | ".join(row) + " |")
    return lines


def choices(records: list[dict[str, Any]]) -> list[str]:
    """Returns the advised and the fastest index for each set, place, recall and number of queries in flight."""
    lines = [
        "| set | place | recall | in flight | advised | fastest | advised / fastest |",
        "|---|---|---:|---:|---|---|---:|",
    ]
    good = total = 0
    for key, cells in grouped(records, "set", "rows", "place", "recall", "concurrency").items():
        advised = max(cells, key=lambda one: float(one["predicted"]["qps"]["value"]))
        fastest = max(cells, key=lambda one: float(one["measured"]["qps"]))
        share = advised["measured"]["qps"] / fastest["measured"]["qps"]
        good, total = good + (share >= WANTED_SHARE), total + 1
        name, rows, *others = key
        row = [f"{name}, {rows:,}", *map(str, others), advised["label"], fastest["label"], f"{share:.2f}"]
        lines.append("| " + " | ".join(row) + " |")
    return [
        f"The advised index reaches {WANTED_SHARE} of the fastest in {good} of {total} choices.",
        "",
        *lines,
    ]


def tables(records: list[dict[str, Any]]) -> str:
    """Returns, in Markdown, the errors against the aims, by set and by index, and the choices."""
    lines = ["| number | cells | median error | aim | 95th percentile | aim | inside of the interval |",
             "|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for number in NUMBERS:
        errors = errors_of(records, number)
        inside = [
            one["predicted"][number]["low"] <= one["measured"][number] <= one["predicted"][number]["high"]
            for one in records
            if one["measured"][number] is not None
        ]
        median, high = (f"{aim:.2f}" for aim in AIMS[number]) if number in AIMS else ("-", "-")
        lines.append(
            f"| {number} | {len(errors)} | {statistics.median(errors):.2f} | {median} |"
            f" {quantile(errors, HIGH):.2f} | {high} | {sum(inside) / len(inside):.0%} |"
        )
    for names in (("set", "rows", "place"), ("label", "place"), ("recall",), ("concurrency", "place")):
        lines += ["", *ratio_table(records, *names)]
    return "\n".join([*lines, "", *choices(records)])


def compare(
    given: argparse.Namespace,
    command: Command,
    folder: pathlib.Path,
    base: pathlib.Path,
    cells: list[Cell],
) -> None:
    """Builds and measures the predicted indexes, and prints and records the comparison."""
    print(f"{'index':<52}" + "".join(f"{number:>8}" for number in NUMBERS))
    built_label, warmed = "", ("", "")
    index: pathlib.Path | str = ""
    for cell in cells:
        if cell.label != built_label:
            built = command(
                "build", base, folder / "index", "--metric", given.metric, "--overwrite",
                "--threads", given.threads, *options_of(cell.prediction["build"]),
            )  # fmt: skip
            (folder / "built.json").write_text(json.dumps(built))
            built_label = cell.label
        if (cell.label, cell.place) != warmed:
            index = cell.at.index(command, folder / "index")
            measured(command, cell, index, folder, given)
            warmed = (cell.label, cell.place)
        numbers, expected = measured(command, cell, index, folder, given), cell.predicted()
        about = {"set": given.name or given.base.parent.name, "rows": count_of(base)}
        about |= {"recall": cell.recall, "concurrency": cell.concurrency, "threads": given.threads}
        record = {
            **about,
            "label": cell.label,
            "place": cell.place,
            "predicted": expected,
            "measured": numbers,
        }
        line = f"{cell.label + ' on ' + cell.place:<40}{cell.recall:>6}{cell.concurrency:>5} "
        for number in NUMBERS:
            ratio, found = ratio_of(record, number), numbers[number]
            if ratio is None or found is None:
                line += f"{'-':>7} "
                continue
            inside = expected[number]["low"] <= found <= expected[number]["high"]
            line += f"{ratio:>7.2f}{' ' if inside else '*'}"
        print(line, flush=True)
        if given.records:
            with given.records.open("a") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
