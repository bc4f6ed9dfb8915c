"""``python -m bathyal.demo [WORD ...]``: 50,000 real word vectors, indexed and searched on this disk.

Run it in a clone of the repository, whose ``testdata/glove-words`` it reads. The index stays in ``demo-index``
and is used again by the next run.
"""

from __future__ import annotations

import argparse
import io
import pathlib
import shutil
import sys
import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import bathyal
from bathyal.progress import Bar

DATA = pathlib.Path("testdata/glove-words")
INDEX = pathlib.Path("demo-index")
METRIC: Final = "cosine"

HELD_OUT = 1000
"""Words that are not indexed, to search with: recall over 10,000 neighbours is known to some 0.3 points."""
SEED = 1
SHOWN = ["ocean", "guitar", "einstein", "bread", "lisbon", "tuesday", "angry", "python"]
"""Words that are always held out, so that their neighbours can be judged by eye."""
NEIGHBORS_SHOWN = 8
RECALLS = [0.80, 0.90, 0.95, 0.98, 0.99]
K = 10
ALONE = 200
"""Queries that are also searched one at a time: enough for a 99th percentile."""
COLUMNS = 98

Vectors = NDArray[np.float16]


def main() -> None:
    """Runs the demo; exits with a sentence where it cannot."""
    parser = argparse.ArgumentParser(
        prog="python -m bathyal.demo", description="Search real word vectors on disk."
    )
    parser.add_argument(
        "words", nargs="*", help="words to show the neighbours of (default: a few held-out ones)"
    )
    parser.add_argument("--data", type=pathlib.Path, default=DATA, help=f"default: {DATA}")
    parser.add_argument("--index", type=pathlib.Path, default=INDEX, help=f"default: {INDEX}")
    arguments = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that knows no lines still shows the words.
        sys.stdout.reconfigure(errors="replace")
    try:
        run(arguments.data, arguments.index, arguments.words)
    except FileNotFoundError as error:
        sys.exit(f"{error}\nRun the demo in the folder of the repository, or name the data with --data.")
    except (OSError, bathyal.Error) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("\nstopped; nothing half-built is left")


def run(data: pathlib.Path, path: pathlib.Path, asked: list[str]) -> None:
    """The whole demo."""
    began = time.monotonic()
    vectors: Vectors = bathyal.read_vectors(data / "vectors.f16bin")
    words = (data / "words.txt").read_text(encoding="utf-8").splitlines()
    held_out = choose(words)
    indexed = np.setdiff1d(np.arange(len(words)), held_out)
    print(f"Bathyal {bathyal.__version__}: vector search for indexes that do not fit in DRAM")
    print(
        f"GloVe vectors of {len(words):,} words: {len(indexed):,} are indexed, {HELD_OUT:,} are held out to ask.\n"
    )
    index = opened(vectors[indexed], path)
    show_sizes(index, vectors[indexed])
    show_costs(index, vectors[indexed], vectors[held_out])
    show_words(index, vectors, words, indexed, asked)
    index.close()
    print(
        f"\n{time.monotonic() - began:.1f} s in all. The index stays in {path}; the next run uses it again."
    )


def choose(words: list[str]) -> NDArray[np.int64]:
    """The rows of the words that are held out: the same ones in every run."""
    shown = [row for row, word in enumerate(words) if word in SHOWN]
    others = np.random.default_rng(SEED).permutation(len(words))
    others = others[~np.isin(others, shown)][: HELD_OUT - len(shown)]
    return np.sort(np.concatenate([shown, others]).astype(np.int64))


def opened(base: Vectors, path: pathlib.Path) -> bathyal.Index:
    """The index at ``path`` if it is the demo's, else a new one."""
    heading("Index")
    damaged = False
    try:
        index = bathyal.open(path)
        if (len(index), index.dim, index.metric) != (*base.shape, METRIC):
            sys.exit(f"{path} holds another index; remove it, or name another place with --index.")
        print(f"  {path} is there already: it is used again (remove it to see it built)")
        return index
    except FileNotFoundError:
        pass
    except bathyal.DamagedIndexError as error:
        print(f"  {error}\n  it is built again")
        damaged = True
    bar = Bar(sys.stdout, lively=sys.stdout.isatty())
    index = bathyal.build(base, path, metric=METRIC, overwrite=damaged, progress=bar)
    bar.finish()
    report = index.build_report
    assert report is not None
    rate = report["vectors"] / report["build_seconds"]
    print(
        f"  built in {report['build_seconds']:.1f} s, {rate:,.0f} vectors a second, {report['threads']} threads"
    )
    return index


def show_sizes(index: bathyal.Index, base: Vectors) -> None:
    """What lies on disk and what in memory."""
    about = index.inspect()
    if about["manifest"]["family"] == "cluster":
        shape = f"vectors in {about['groups']:,} groups of up to {about['group_vectors']}, and their codes"
    else:
        degree = about["manifest"]["structure"]["max_degree"]
        shape = f"vectors and a graph of {about['mean_degree']:.0f} links each, at most {degree}"
    share = 100 * index.dram_bytes / base.nbytes
    _, _, free = shutil.disk_usage(index.path)
    print(f"  data     {size(base.nbytes)}   {len(index):,} x {index.dim} {index.element}, {index.metric}")
    print(f"  on disk  {size(about['index_bytes'])}   {about['amplification']:.2f} x the data: {shape}")
    print(f"  in DRAM  {size(index.dram_bytes)}   {share:.0f}% of the data: codes to find the way with")
    print(f"           {size(free)}   free on this disk\n")


def show_costs(index: bathyal.Index, base: Vectors, queries: Vectors) -> None:
    """Recall that was asked for, recall that came, and what it cost."""
    heading(
        f"Search: {len(queries):,} held-out words, {K} neighbours each, read from disk past the page cache"
    )
    truth, _ = bathyal.groundtruth(base, queries, METRIC, k=K, progress=False)
    index.search(queries[:50], k=K, recall=RECALLS[0])
    print("  recall    recall     search    queries      latency, ms       reads      KiB     distances")
    print("   asked  measured       list   a second     mean      p99    a query  a query     a query")
    for recall in RECALLS:
        found = index.search(queries, k=K, recall=recall)
        stats, latency = found.stats, found.stats.latency_us
        measured = bathyal.recall(found.ids, truth)
        print(
            f"   {recall:5.2f}     {measured:5.3f} {stats.search_list:10d} {stats.qps:10,.0f}"
            f" {latency['mean'] / 1000:8.2f} {latency['p99'] / 1000:8.2f} {stats.reads_per_query:10.1f}"
            f" {stats.bytes_per_query / 1024:8.0f} {stats.distance_computations_per_query:11,.0f}"
        )
    print(
        f"  {stats.threads} threads, many queries interleaved on each, so that the disk is never waited for."
    )
    alone = np.array(
        [index.search(query, k=K, recall=0.95).stats.latencies_ns[0] for query in queries[:ALONE]]
    )
    mean, p99 = alone.mean() / 1e6, np.percentile(alone, 99) / 1e6
    print(f"  One query at a time at recall 0.95: mean {mean:.2f} ms, p99 {p99:.2f} ms.")
    print(f"  DRAM during the last search of the table: {size(stats.dram_bytes).strip()}.\n")


def show_words(
    index: bathyal.Index, vectors: Vectors, words: list[str], indexed: NDArray[Any], asked: list[str]
) -> None:
    """The neighbours of some words, nearest first."""
    rows = {word: row for row, word in enumerate(words)}
    unknown = [word for word in asked if word not in rows]
    chosen = [word for word in asked or SHOWN if word in rows]
    heading("Nearest words" + ("" if asked else " of held-out words (the index has never seen these)"))
    if unknown:
        print(f"  not among the {len(words):,} words: {', '.join(unknown)}")
    if not chosen:
        return
    # One more, since a word that is indexed finds itself.
    found = index.search(vectors[[rows[word] for word in chosen]], k=NEIGHBORS_SHOWN + 1, recall=0.99)
    for word, ids in zip(chosen, found.ids, strict=True):
        near = [words[indexed[id]] for id in ids if words[indexed[id]] != word][:NEIGHBORS_SHOWN]
        print(f"  {word:<12} {'  '.join(near)}"[:COLUMNS])


def heading(text: str) -> None:
    """A line that begins a part."""
    print(f"{text}\n{'─' * len(text)}")


def size(bytes: int) -> str:
    """``bytes`` in MB or GB, in eight columns."""
    return f"{bytes / 1e6:5.1f} MB" if bytes < 1e9 else f"{bytes / 1e9:5.1f} GB"


if __name__ == "__main__":
    main()
