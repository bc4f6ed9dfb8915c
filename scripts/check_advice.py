"""Predicts indexes from a sample, builds them whole, and compares: sizes, memory, reads, speed, build time.

Prints one line for each index and device (measured / predicted, `*` outside of its interval), then the median
and the 95th percentile of the errors. The queries that measure are not those that predict: `advise` gets the
first half of QUERIES and the search the second.

    python scripts/check_advice.py BASE QUERIES --metric l2 [--rows 100000] [--recall 0.95]
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
from collections.abc import Iterator
from typing import Any

WIDTHS = {".fbin": 4, ".f16bin": 2, ".u8bin": 1, ".i8bin": 1}
NUMBERS = ("disk", "memory", "reads", "bytes", "cpu", "qps", "p50", "p99", "build")
SEARCHES = 3
"""Searches of an index whose median speed counts. One more before them warms caches."""
HEADER_BYTES = 8
MEDIAN = 0.5


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
    command: Command, predicted: dict[str, Any], folder: pathlib.Path, given: Any
) -> dict[str, float]:
    """Searches the built index on the device of a prediction, and returns the numbers."""
    index, built = folder / "index", json.loads((folder / "built.json").read_text())
    threads = min(given.threads, given.concurrency)
    tier = ["--tier", "dram"] if predicted["tier"] == "dram" else ["--profile", folder / "disk.json"]
    searches = [
        command(
            "search", index, folder / f"measure{given.queries.suffix}", "-k", "10", "--recall", given.recall,
            "--threads", threads, "--in-flight", -(-given.concurrency // threads), *tier,
        )
        for _ in range(SEARCHES + 1)
    ]  # fmt: skip
    found = sorted(searches[1:], key=lambda one: float(one["qps"]))[SEARCHES // 2]
    return {
        "disk": built["index_bytes"],
        "memory": found["dram_bytes"],
        "reads": found["reads_per_query"],
        "bytes": found["bytes_per_query"],
        "cpu": found["processor_us_per_query"] or 0.0,
        "qps": found["qps"],
        "p50": found["latency_us"]["p50"],
        "p99": found["latency_us"]["p99"],
        "build": built["build_seconds"],
    }


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
    rows_of(given.queries, iter(range(queries // 2, queries)), folder / f"measure{given.queries.suffix}")
    command("probe", folder, "--output", folder / "disk.json")
    return pathlib.Path(base)


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("base", type=pathlib.Path, nargs="?")
    parser.add_argument("queries", type=pathlib.Path, nargs="?")
    parser.add_argument("--name", default="", help="the name of the set [default: the folder of BASE]")
    parser.add_argument("--metric", default="l2")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--command", default="bathyal")
    parser.add_argument("--family", action="append", default=[])
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
        families = [word for family in given.family for word in ("--family", family)]
        pace = [f"--{given.pace}"] if given.pace else []
        advice = command(
            "advise", base, folder / f"predict{given.queries.suffix}", "--metric", given.metric,
            "--recall", given.recall, "--on", "dram", "--on", folder / "disk.json",
            "--threads", given.threads, "--concurrency", given.concurrency, *families, *pace,
        )  # fmt: skip
        print(f"{given.base} {advice['vectors']} recall {given.recall}: {advice['seconds']:.0f} s, "
              f"{advice['statistics']}", flush=True)  # fmt: skip
        left_out = [one["prediction"] for one in advice["left_out"] if one["prediction"]]
        predictions = advice["ranked"] + left_out
        report(given, command, folder, base, predictions)


def quantile(numbers: list[float], share: float) -> float:
    """Returns the number below which `share` of all are."""
    ordered = sorted(numbers)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def tables(records: list[dict[str, Any]]) -> str:
    """Returns, in Markdown, the errors by set and whether the advised index was the fastest."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in records:
        group = f"{one['set']}, {one['rows']:,}, recall {one['recall']}, {one['concurrency']} in flight"
        groups.setdefault(group, []).append(one)
    lines = [
        "| set | cells | " + " | ".join(NUMBERS) + " | advised / fastest |",
        "|---|---:|" + "---:|" * (len(NUMBERS) + 1),
    ]
    everything: dict[str, list[float]] = {number: [] for number in NUMBERS}
    for name, cells in groups.items():
        row = [name, str(len(cells))]
        for number in NUMBERS:
            ratios = [one["measured"][number] / max(one["predicted"][number]["value"], 1e-9) for one in cells]
            errors = [abs(ratio - 1) for ratio in ratios]
            everything[number] += errors
            row.append(f"{statistics.median(ratios):.2f} ({quantile(errors, 0.95):.2f})")
        advised = max(cells, key=lambda one: float(one["predicted"]["qps"]["value"]))
        fastest = max(cells, key=lambda one: float(one["measured"]["qps"]))
        share = advised["measured"]["qps"] / fastest["measured"]["qps"]
        row.append(f"{share:.2f}: {advised['label']} on {advised['place']}")
        lines.append("| " + " | ".join(row) + " |")
    total = [
        f"{statistics.median(errors):.2f}, {quantile(errors, 0.95):.2f}" for errors in everything.values()
    ]
    lines.append(
        "| median error, 95th percentile | " + str(len(records)) + " | " + " | ".join(total) + " | |"
    )
    return "\n".join(lines)


def report(given: Any, command: Command, folder: pathlib.Path, base: pathlib.Path, predictions: Any) -> None:
    """Builds and measures the predicted indexes, and prints the comparison."""
    errors: dict[str, list[float]] = {number: [] for number in NUMBERS}
    best: list[tuple[float, float, str]] = []
    print(f"{'index':<44}" + "".join(f"{number:>8}" for number in NUMBERS))
    done = ""
    for prediction in sorted(predictions, key=lambda one: str(one["label"])):
        if prediction["label"] != done:
            built = command(
                "build", base, folder / "index", "--metric", given.metric, "--overwrite",
                "--threads", given.threads, *options_of(prediction["build"]),
            )  # fmt: skip
            (folder / "built.json").write_text(json.dumps(built))
            done = prediction["label"]
        numbers = measured(command, prediction, folder, given)
        expected = predicted_numbers(prediction, given.concurrency)
        place = "dram" if prediction["tier"] == "dram" else "file"
        line = f"{prediction['label'] + ' on ' + place:<44}"
        for number in NUMBERS:
            ratio = numbers[number] / max(expected[number]["value"], 1e-9)
            inside = expected[number]["low"] <= numbers[number] <= expected[number]["high"]
            errors[number].append(abs(ratio - 1))
            line += f"{ratio:>7.2f}{' ' if inside else '*'}"
        print(line, flush=True)
        best.append((expected["qps"]["value"], numbers["qps"], prediction["label"] + " on " + place))
        if given.records:
            about = {"set": given.name or given.base.parent.name, "rows": count_of(base)}
            about |= {"recall": given.recall, "concurrency": given.concurrency, "threads": given.threads}
            about |= {"label": prediction["label"], "place": place}
            record = {**about, "predicted": expected, "measured": numbers}
            with given.records.open("a") as file:
                file.write(json.dumps(record) + "\n")
    for name, share in (("median error", MEDIAN), ("95th percentile", 0.95)):
        line = f"{name:<44}"
        for number in NUMBERS:
            ordered = sorted(errors[number])
            high = ordered[min(int(len(ordered) * share), len(ordered) - 1)]
            line += f"{statistics.median(ordered) if share == MEDIAN else high:>7.2f} "
        print(line)
    advised, fastest = max(best), max(best, key=lambda one: one[1])
    print(f"advised {advised[2]}: {advised[1]:.0f} queries/s")
    print(f"fastest {fastest[2]}: {fastest[1]:.0f} queries/s")


if __name__ == "__main__":
    main()
