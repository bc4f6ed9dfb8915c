"""Measures growth: makes sets of 10^5 to 10^8 vectors, builds, opens and searches indexes, and records each
step.

If it is killed, the same command continues: recorded steps are not repeated, and a killed build continues
from its journal. `--report` writes the report from the records alone. See bench/README.md.
"""

import argparse
import json
import math
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import growth_report

ROOT = Path(__file__).resolve().parent.parent
# Set BATHYAL_PROGRAMS to another folder to compile programs while others are measured.
PROGRAMS = Path(os.environ.get("BATHYAL_PROGRAMS", ROOT / "target" / "release"))
RECALLS = (0.90, 0.95)
K = 10
# Neighbours for the hardness of a set, as many as in its README.
HARDNESS_K = 100
# Vectors and queries in the sample for the mean distance.
SAMPLED = (500, 50)
# Neighbours that are blended with each vector.
BLENDED = 32
# Repeats of a search, each in its own process. The first opens an index that the system has not cached.
REPEATS = 3
# The default largest set of a family. A larger graph takes hours on two cores, and flat indexes read
# everything.
LARGEST = {"cluster": 10**8, "spann": 10**7, "flat": 10**7, "graph": 10**6}
# Share of the available memory that an index searched in memory may take, since other programs need some.
DRAM_SHARE = 0.6
# Share of the codes that stays on the device if not all codes are to fit in memory.
SPILLED_SHARE = 0.5
# Additional bytes of buffers that also hold codes.
SPILLED_ROOM = 1 << 20
# Recalls to request, one after the other, until the last of `RECALLS` is reached. Calibration with vectors of
# a synthetic set underestimates the effort for real queries.
REQUESTED = (0.90, 0.93, 0.95, 0.965, 0.975, 0.98, 0.985, 0.99, 0.995, 0.999)


class Records:
    """Finished steps, one JSON line each."""

    def __init__(self, path):
        self.path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        # An incomplete line is not a finished step; the next step starts on a new line.
        self.cut = bool(text) and not text.endswith("\n")
        lines = text.splitlines()
        self.steps = {one["step"]: one for one in map(parsed, lines) if one}

    def once(self, step, work):
        """Returns the figures of a step; calls `work` unless they are recorded."""
        if step not in self.steps:
            print(f"{time.strftime('%H:%M:%S')} {step}", file=sys.stderr, flush=True)
            figures = {"step": step, "load": round(os.getloadavg()[0], 2), **work()}
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * self.cut + json.dumps(figures) + "\n")
                self.cut = False
                file.flush()
                os.fsync(file.fileno())
            self.steps[step] = figures
        return self.steps[step]


def parsed(line):
    try:
        return json.loads(line)
    except ValueError:
        return None


def run(program, *arguments):
    """Runs a program of the project. Returns its JSON object, if it prints one, with the processor seconds."""
    command = [str(PROGRAMS / program), *map(str, arguments)]
    print("+", " ".join(command), file=sys.stderr, flush=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    printed = json.loads(ran.stdout) if ran.stdout.startswith(b"{") else {}
    # Records are kept in the repository, so paths of this machine are removed.
    printed = {key: figure for key, figure in printed.items() if key not in ("index", "output")}
    return {**printed, "processor_seconds": spent}


def header(path):
    with path.open("rb") as file:
        return struct.unpack("<II", file.read(8))


def choose_queries(source, target, wanted):
    """Writes queries, evenly spaced in a u8bin file, to another file."""
    count, dim = header(source)
    wanted = min(wanted, count)
    with source.open("rb") as file:
        file.seek(8)
        rows = [file.read(dim) for _ in range(count)]
    chosen = [rows[at * count // wanted] for at in range(wanted)]
    target.write_bytes(struct.pack("<II", wanted, dim) + b"".join(chosen))


def hardness(base, queries, truth):
    """Returns the hardness of a set for its queries: LID by maximum likelihood over the true neighbours, and
    relative contrast, the mean distance divided by the mean distance of the nearest neighbour (distances, not
    squares).
    """
    content = truth.read_bytes()
    count, k = struct.unpack_from("<II", content)
    squares = struct.unpack_from(f"<{count * k}f", content, 8 + 4 * count * k)
    rows = [[math.sqrt(square) for square in squares[at * k : (at + 1) * k]] for at in range(count)]
    lids = []
    for row in rows:
        positive = [distance for distance in row if distance > 0]
        if len(positive) > 1 and positive[0] < positive[-1]:
            logarithms = [math.log(distance / positive[-1]) for distance in positive[:-1]]
            lids.append(-len(logarithms) / sum(logarithms))
    (vectors, dim), drawn = header(base), random.Random(0)
    with queries.open("rb") as file:
        sampled = [
            file.seek(8 + dim * (at * count // SAMPLED[1])) and file.read(dim) for at in range(SAMPLED[1])
        ]
    total = 0.0
    with base.open("rb") as file:
        for _ in range(SAMPLED[0]):
            file.seek(8 + dim * drawn.randrange(vectors))
            vector = file.read(dim)
            total += sum(math.dist(vector, query) for query in sampled)
    mean, nearest = total / (SAMPLED[0] * SAMPLED[1]), sum(row[0] for row in rows) / count
    farthest = sum(row[-1] for row in rows) / count
    return {
        "lid_mean": sum(lids) / len(lids),
        "lid_median": sorted(lids)[len(lids) // 2],
        "relative_contrast": mean / nearest,
        "relative_contrast_last": mean / farthest,
        "nearest": nearest,
        "farthest": farthest,
        "queries": count,
    }


def make(arguments, records, name, count):
    """Makes a set of `count` vectors, and returns its path."""
    source, work = arguments.data / "sift-a" / "base.u8bin", arguments.work
    if name == "real":
        return source
    base = work / f"{name}-{count}.u8bin"
    if base.exists():
        return base

    def perturb():
        return run("bathyal-suites", "perturb", source, base, "--vectors", count)

    def blend():
        near = neighbours(records, source, work)
        return run("bathyal-suites", "blend", source, near, base, "--vectors", count)

    records.steps.pop(f"data/{name}/{count}", None)
    records.once(f"data/{name}/{count}", {"perturbed": perturb, "blended": blend}[name])
    return base


def neighbours(records, source, work):
    """Finds near neighbours of all vectors of the real set with an index, and returns the path of the file."""
    index, near = work / "source.index", work / "neighbours.ibin"

    def find():
        run("bathyal", "build", source, index, "--metric", "l2", "--overwrite", "--json")
        options = ["-k", BLENDED + 1, "--recall", 0.95, "--tier", "dram", "--output", near]
        figures = run("bathyal", "search", index, source, *options, "--json")
        shutil.rmtree(index)
        return figures

    if not near.exists():
        records.steps.pop("neighbours", None)
        records.once("neighbours", find)
    return near


def find_truth(arguments, records, name, count, base, queries):
    """Finds the true neighbours and the hardness of the set, and returns the path of the neighbours."""
    truth = arguments.work / f"truth-{name}-{count}.ibin"

    def find():
        spent = run("bathyal", "groundtruth", base, queries, truth, "-k", HARDNESS_K, "--json")
        return {**spent, **hardness(base, queries, truth)}

    if not truth.exists():
        records.steps.pop(f"truth/{name}/{count}", None)
    records.once(f"truth/{name}/{count}", find)
    return truth


def build(arguments, records, place, base, index):
    """Builds an index of a family, or continues a killed build."""
    family = place.rsplit("/", 1)[1]

    def work():
        # A continued build counts the seconds of the killed process, but not its processor time.
        begun = any(index.parent.glob(f"{index.name}.building*"))
        figures = run(
            "bathyal", "build", base, index, "--metric", "l2", "--family", family, "--memory", arguments.memory,
            "--overwrite", "--json", "--progress",
        )  # fmt: skip
        return {**figures, "continued": begun}

    if f"build/{place}" in records.steps and not index.exists():
        records.steps.pop(f"build/{place}")
    return records.once(f"build/{place}", work)


def fits(built):
    """Returns whether an index can be searched in memory."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    return built["index_bytes"] < DRAM_SHARE * available


def searched(records, place):
    """Returns whether the records have all measurements of an index."""
    return f"done/{place}" in records.steps


def forget(index):
    """Asks the system to drop the files of an index from its cache."""
    for path in index.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def search(index, queries, truth, recall, where):
    """Searches at a recall with one thread, one process per repeat. Returns the run with the median processor
    time.
    """
    effort = ["-k", K, "--recall", recall, "--groundtruth", truth, "--threads", 1, "--warm", "--phases"]
    forget(index)
    runs = [run("bathyal", "search", index, queries, *effort, *where, "--json") for _ in range(REPEATS)]
    cold = runs[0]["open_seconds"]
    warm = min(one["open_seconds"] for one in runs)
    runs.sort(key=lambda one: one["processor_us_per_query"])
    return {**runs[len(runs) // 2], "open_seconds_cold": cold, "open_seconds_warm": warm}


def reach(index, queries, truth, where):
    """Returns the cost of reaching the last of `RECALLS`, interpolated between the two adjacent requested
    recalls.
    """
    wanted, below = RECALLS[-1], None
    for requested in REQUESTED:
        effort = ["-k", K, "--recall", requested, "--groundtruth", truth, "--threads", 1, "--warm"]
        above = run("bathyal", "search", index, queries, *effort, *where, "--json")
        if above["recall"] >= wanted:
            break
        below = above
    else:
        return {"left_out": f"not reached; {above['recall']:.3f} at most"}
    keys = (
        "processor_us_per_query",
        "reads_per_query",
        "code_distances_per_query",
        "query_state_bytes",
        "search_list",
    )
    share = (wanted - below["recall"]) / (above["recall"] - below["recall"]) if below else 1.0
    between = {key: above[key] + (1 - share) * ((below or above)[key] - above[key]) for key in keys}
    return {**between, "asked": [below and below["recall_target"], above["recall_target"]], "recall": wanted}


def measure(records, place, index, built, queries, truth):
    """Searches an index from its file, in memory, and with half of its codes on the device."""
    for recall in RECALLS:
        one = records.once(
            f"search/{place}/file/{recall}",
            lambda recall=recall: search(index, queries, truth, recall, ["--tier", "file"]),
        )
        for tier in ("dram", "spilled"):
            codes = one["memory_split"]["codes"] if built["family"] == "cluster" else 0
            least = int(one["dram_bytes"] - SPILLED_SHARE * codes) + SPILLED_ROOM
            where = ["--tier", "dram"] if tier == "dram" else ["--tier", "file", "--memory", least]

            def work(recall=recall, tier=tier, where=where):
                if tier == "dram" and not fits(built):
                    return {"left_out": "does not fit into the available memory"}
                return search(index, queries, truth, recall, where)

            if tier == "dram" or codes:
                records.once(f"search/{place}/{tier}/{recall}", work)
    file = ["--tier", "file"]
    records.once(f"reach/{place}/file/{RECALLS[-1]}", lambda: reach(index, queries, truth, file))
    held = ["--recall", RECALLS[-1]]
    records.once(f"state/{place}", lambda: run("bathyal-suites", "state", index, queries, *held))
    records.once(f"done/{place}", dict)


def work_through(arguments, records):
    queries = arguments.work / "queries.u8bin"
    if not queries.exists():
        choose_queries(arguments.data / "sift-a" / "query.u8bin", queries, arguments.queries)
    for count in arguments.sizes:
        for name in arguments.sets:
            if name == "real" and count != header(arguments.data / "sift-a" / "base.u8bin")[0]:
                continue
            families = [
                one for one in arguments.families if count <= arguments.largest.get(one, LARGEST[one])
            ]
            left = [one for one in families if not searched(records, f"{name}/{count}/{one}")]
            if not left:
                continue
            base = make(arguments, records, name, count)
            truth = find_truth(arguments, records, name, count, base, queries)
            for family in left:
                place = f"{name}/{count}/{family}"
                index = arguments.work / f"{name}-{count}.{family}"
                built = build(arguments, records, place, base, index)
                measure(records, place, index, built, queries, truth)
                if not arguments.keep:
                    shutil.rmtree(index)
            if not arguments.keep and name != "real":
                base.unlink()


def size(text):
    """Parses a number of vectors, such as 1e6."""
    count = round(float(text))
    if count < 1 or abs(count - float(text)) > 1e-6:
        raise argparse.ArgumentTypeError(f"'{text}': expected a number of vectors, such as 1e6")
    return count


def limit(text):
    """Parses FAMILY=SIZE."""
    family, _, count = text.partition("=")
    if family not in LARGEST:
        raise argparse.ArgumentTypeError(f"'{family}': expected one of {', '.join(LARGEST)}")
    return family, size(count)


def comma_separated(one):
    return lambda text: [one(part) for part in text.split(",")]


def one_of(*names):
    def chosen(text):
        if text not in names:
            raise argparse.ArgumentTypeError(f"'{text}': expected one of {', '.join(names)}")
        return text

    return comma_separated(chosen)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("BATHYAL_DATA")
    sets = one_of("real", "blended", "perturbed")
    parser.add_argument("--data", type=Path, default=data, help="folder of sift-a [default: BATHYAL_DATA]")
    parser.add_argument("--sizes", type=comma_separated(size), default=[10**5, 10**6, 10**7, 10**8])
    parser.add_argument("--sets", type=sets, default=["real", "blended", "perturbed"])
    parser.add_argument("--families", type=one_of(*LARGEST), default=list(LARGEST))
    parser.add_argument("--largest", type=limit, action="append", default=[], metavar="FAMILY=SIZE")
    parser.add_argument("--memory", default="6GB", help="memory limit of a build")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--keep", action="store_true", help="keep measured sets and indexes")
    parser.add_argument("--work", type=Path, default=ROOT / "bench" / ".work" / "growth")
    parser.add_argument("--records", type=Path, help="[default: WORK/growth.jsonl]")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report and measure nothing")
    arguments = parser.parse_args()
    arguments.largest = dict(arguments.largest)
    arguments.records = arguments.records or arguments.work / "growth.jsonl"
    if not arguments.report and arguments.data is None:
        parser.error("the folder of sift-a is missing: --data or BATHYAL_DATA")
    return arguments


def main():
    arguments = parse()
    if not arguments.report:
        arguments.data = Path(arguments.data)
        arguments.work.mkdir(parents=True, exist_ok=True)
        work_through(arguments, Records(arguments.records))
    report = arguments.report or arguments.work / "growth.md"
    report.write_text(growth_report.report(Records(arguments.records).steps), encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
