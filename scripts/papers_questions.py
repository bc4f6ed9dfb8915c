"""Asks `bathyal advise` what three of the papers ask: which index suits which device, recall and load.

The devices are those of the papers, described by profiles with the papers' numbers; none of them is here. The data
is real. Prints Markdown.

    python scripts/papers_questions.py BASE QUERIES [--rows 100000] [--vectors 1000000000] [--command bathyal]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import tempfile
from typing import Any, NamedTuple

from check_advice import Command, count_of, rows_of

RECALLS = "0.9,0.95,0.99"


class Profile(NamedTuple):
    """The numbers of a device."""

    kind: str
    granularity: int
    latency_ns: int
    iops: float
    bandwidth: float
    issue_ns: int = 0

    def save(self, path: pathlib.Path) -> pathlib.Path:
        """Writes the profile as `bathyal probe --output` writes it."""
        numbers = {
            "kind": self.kind,
            "method": "numbers of a paper",
            "granularity": self.granularity,
            "alignment": self.granularity if self.kind == "file" else 1,
            "addressable": self.kind == "mapped",
            "latency_ns": self.latency_ns,
            "iops": self.iops,
            "bandwidth_bytes_per_s": self.bandwidth,
            "depth": 256,
            "issue_ns": self.issue_ns,
        }
        path.write_text(json.dumps(numbers))
        return path


SECOND_TIER = {
    "ssd": Profile("file", 4096, 75_000, 5.3e9 / 4096, 5.3e9),
    "rdma": Profile("remote", 64, 2_800, 25e9 / 256, 25e9, 150),
    "cxl": Profile("mapped", 64, 300, 32e9 / 64, 32e9),
    "nvm": Profile("mapped", 256, 400, 60e9 / 256, 60e9),
}
"""Table 1 of second-tier-memory. The SSD reads pages of 4 KB; a card posts 256 bytes and more at its full rate."""
BUCKET = {"bucket": Profile("object", 1, 31_000_000, 20_000.0, 625e6)}
"""The object store of cloud-native-vector-search, section 5.1: 31 ms, 20,000 requests a second, 5 Gbit/s."""


class Asked(NamedTuple):
    """A question to the command."""

    base: pathlib.Path
    queries: pathlib.Path
    metric: str
    vectors: int


def answers(
    command: Command, asked: Asked, places: list[pathlib.Path], *words: object
) -> list[dict[str, Any]]:
    """Returns the answers for each recall."""
    on = [word for place in places for word in ("--on", place)]
    answer = command(
        "advise", asked.base, asked.queries, "--metric", asked.metric, "--recall", RECALLS,
        "--vectors", asked.vectors, *on, *words,
    )  # fmt: skip
    return [answer, *answer["other_recalls"]]


def predictions(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns all predictions of an answer, also those that are left out."""
    left_out = [one["prediction"] for one in answer["left_out"] if one["prediction"]]
    return [*answer["ranked"], *left_out]


def fastest(
    answer: dict[str, Any], place: str, family: str, concurrency: int
) -> tuple[dict[str, Any], float] | None:
    """Returns the fastest index of a family at a place, and its queries a second."""
    speeds = [
        (one, float(load["queries_per_second"]["value"]))
        for one in predictions(answer)
        if pathlib.Path(one["tier"]).stem == place and one["build"]["family"] == family
        for load in one["loads"]
        if load["concurrency"] == concurrency
    ]
    return max(speeds, key=lambda pair: pair[1], default=None)


def second_tier(command: Command, asked: Asked, folder: pathlib.Path) -> list[str]:
    """Grouped lists or a graph, by device (second-tier-memory, figure 13 and table 5)."""
    places = [profile.save(folder / f"{name}.json") for name, profile in SECOND_TIER.items()]
    found = answers(
        command, asked, places, "--threads", 32, "--concurrency", 256, "--family", "graph", "--family", "spann",
    )  # fmt: skip
    lines = [
        "| device | recall | graph | queries/s | KB a query | lists | queries/s | KB a query | ratio | size |",
        "|---|---:|---|---:|---:|---|---:|---:|---:|---|",
    ]
    for place in SECOND_TIER:
        for answer in found:
            pairs = [fastest(answer, place, family, 256) for family in ("graph", "spann")]
            cells, speeds, sizes = [], [], []
            for pair in pairs:
                if pair is None:
                    cells += ["-", "-", "-"]
                    continue
                index, speed = pair
                speeds.append(speed)
                sizes.append(f"{index['amplification']:.2f}")
                moved = index["moved_bytes"]["value"] / 1e3
                cells += [index["label"], f"{speed:,.0f}", f"{moved:,.1f}"]
            share = f"{speeds[0] / speeds[1]:.2f}" if len(speeds) == len(pairs) else "-"
            row = [place, str(answer["recall"]), *cells, share, " and ".join(sizes)]
            lines.append("| " + " | ".join(row) + " |")
    return lines


def bucket(command: Command, asked: Asked, folder: pathlib.Path) -> list[str]:
    """Graph or lists in a bucket, by queries in flight and recall (cloud-native-vector-search, A1)."""
    places = [profile.save(folder / f"{name}.json") for name, profile in BUCKET.items()]
    families = [word for family in ("graph", "spann", "cluster") for word in ("--family", family)]
    found = answers(command, asked, places, "--threads", 16, "--concurrency", 64, *families)
    lines = [
        "| in flight | recall | graph | spann | cluster | limits of graph, spann | requests of the three |",
        "|---:|---:|---:|---:|---:|---|---|",
    ]
    for concurrency in (1, 4, 16, 64, 256):
        for answer in found:
            pairs = [
                fastest(answer, "bucket", family, concurrency) for family in ("graph", "spann", "cluster")
            ]
            speeds = ["-" if pair is None else f"{pair[1]:,.1f}" for pair in pairs]
            bounds = [
                load["bound"]
                for pair in pairs[:2]
                if pair is not None
                for load in pair[0]["loads"]
                if load["concurrency"] == concurrency
            ]
            reads = [f"{pair[0]['reads']['value']:,.0f}" for pair in pairs if pair is not None]
            row = [str(concurrency), str(answer["recall"]), *speeds, ", ".join(bounds), ", ".join(reads)]
            lines.append("| " + " | ".join(row) + " |")
    return lines


def main() -> None:
    """Asks the questions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("queries", type=pathlib.Path)
    parser.add_argument("--metric", default="l2")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the sample [default: 100,000]")
    parser.add_argument(
        "--vectors", type=int, default=10_000_000, help="rows of the index [default: 10,000,000]"
    )
    parser.add_argument("--command", default="bathyal")
    given = parser.parse_args()
    command = Command(given.command)
    with tempfile.TemporaryDirectory(prefix="bathyal-questions-") as name:
        folder = pathlib.Path(name)
        base, rows = given.base, count_of(given.base)
        if given.rows < rows:
            base = folder / f"base{given.base.suffix}"
            rows_of(given.base, iter(sorted(random.Random(1).sample(range(rows), given.rows))), base)
        asked = Asked(base, given.queries, given.metric, max(given.vectors, count_of(base)))
        print(f"{given.base.name}: {asked.vectors:,} vectors, predicted from a sample of 20,000\n")
        print("## Graph or lists on second-tier memory\n")
        print("\n".join(second_tier(command, asked, folder)))
        print("\n## Graph or lists in a bucket\n")
        print("\n".join(bucket(command, asked, folder)))


if __name__ == "__main__":
    main()
