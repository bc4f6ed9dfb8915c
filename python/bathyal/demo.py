"""``python -m bathyal.demo [WORD ...]``: 50,000 real word vectors, indexed and searched on this disk.

Run it in a clone of the repository: it reads ``testdata/glove-words``. The index stays in ``demo-index/words``,
and the next run uses it again.
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
INDEX = pathlib.Path("demo-index/words")
METRIC: Final = "cosine"

HELD_OUT = 1000
"""Words that are queries and not indexed: recall over 10,000 neighbours has an error of some 0.3 points."""
SEED = 1
SHOWN = ["ocean", "guitar", "einstein", "bread", "lisbon", "tuesday", "angry", "python"]
"""Words that are always held out, so that readers can judge their neighbours."""
NEIGHBORS_SHOWN = 8
RECALLS = [0.80, 0.90, 0.95, 0.98, 0.99]
K = 10
ALONE = 200
"""Queries that are also searched one at a time: enough for a 99th percentile."""
COLUMNS = 98

Vectors = NDArray[np.float16]


def main() -> None:
    """Runs the demo; exits with a message if it fails."""
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
        # A terminal without line-drawing characters still shows the words.
        sys.stdout.reconfigure(errors="replace")
    try:
        run(arguments.data, arguments.index, arguments.words)
    except FileNotFoundError as error:
        sys.exit(f"{error}\nRun the demo in the folder of the repository, or name the data with --data.")
    except (OSError, bathyal.Error) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("\nstopped; no partial index is left")


def run(data: pathlib.Path, path: pathlib.Path, chosen_words: list[str]) -> None:
    """Runs the whole demo."""
    began = time.monotonic()
    vectors: Vectors = bathyal.read_vectors(data / "vectors.f16bin")
    words = (data / "words.txt").read_text(encoding="utf-8").splitlines()
    held_out = choose(words)
    indexed = np.setdiff1d(np.arange(len(words)), held_out)
    print(f"Bathyal {bathyal.__version__}: vector search for indexes that do not fit in DRAM")
    print(f"GloVe vectors of {len(words):,} words: {len(indexed):,} are indexed, {HELD_OUT:,} are queries.\n")
    index = opened(vectors[indexed], path)
    show_sizes(index, vectors[indexed])
    show_costs(index, vectors[indexed], vectors[held_out])
    show_words(index, vectors, words, indexed, chosen_words)
    index.close()
    print(
        f"\n{time.monotonic() - began:.1f} s in all. The index stays in {path}; the next run uses it again."
    )
    show_server(path)


def choose(words: list[str]) -> NDArray[np.int64]:
    """Returns the rows of the held-out words, the same in every run."""
    shown = [row for row, word in enumerate(words) if word in SHOWN]
    others = np.random.default_rng(SEED).permutation(len(words))
    others = others[~np.isin(others, shown)][: HELD_OUT - len(shown)]
    return np.sort(np.concatenate([shown, others]).astype(np.int64))


def opened(base: Vectors, path: pathlib.Path) -> bathyal.Index:
    """Opens the index at ``path`` if it is the demo's, else builds it."""
    heading("Index")
    damaged = False
    try:
        index = bathyal.open(path)
        if (len(index), index.dim, index.metric) != (*base.shape, METRIC):
            sys.exit(f"{path} holds another index; remove it, or name another place with --index.")
        print(f"  {path} exists already and is used again (remove it to see the build)")
        return index
    except FileNotFoundError:
        pass
    except bathyal.DamagedIndexError as error:
        print(f"  {error}\n  the index is built again")
        damaged = True
    bar = Bar(sys.stdout, lively=sys.stdout.isatty())
    path.parent.mkdir(parents=True, exist_ok=True)
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
    """Prints the sizes on disk and in memory."""
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
    print(f"  in DRAM  {size(index.dram_bytes)}   {share:.0f}% of the data: codes")
    print(f"           {size(free)}   free on this disk\n")


def show_costs(index: bathyal.Index, base: Vectors, queries: Vectors) -> None:
    """Prints target recall, measured recall and costs."""
    heading(
        f"Search: {len(queries):,} held-out words, {K} neighbours each, read from disk without the page cache"
    )
    truth, _ = bathyal.groundtruth(base, queries, METRIC, k=K, progress=False)
    index.search(queries[:50], k=K, recall=RECALLS[0])
    print("  recall    recall     search    queries      latency, ms       reads      KiB     distances")
    print("  target  measured       list   a second     mean      p99    a query  a query     a query")
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
        f"  {stats.threads} threads, many queries interleaved on each, so that no thread waits for the disk."
    )
    alone = np.array(
        [index.search(query, k=K, recall=0.95).stats.latencies_ns[0] for query in queries[:ALONE]]
    )
    mean, p99 = alone.mean() / 1e6, np.percentile(alone, 99) / 1e6
    print(f"  One query at a time at recall 0.95: mean {mean:.2f} ms, p99 {p99:.2f} ms.")
    print(f"  DRAM during the last search of the table: {size(stats.dram_bytes).strip()}.\n")


def show_words(
    index: bathyal.Index, vectors: Vectors, words: list[str], indexed: NDArray[Any], chosen_words: list[str]
) -> None:
    """Prints the neighbours of some words, nearest first."""
    rows = {word: row for row, word in enumerate(words)}
    unknown = [word for word in chosen_words if word not in rows]
    chosen = [word for word in chosen_words or SHOWN if word in rows]
    heading("Nearest words" + ("" if chosen_words else " of held-out words (which are not in the index)"))
    if unknown:
        print(f"  not among the {len(words):,} words: {', '.join(unknown)}")
    if not chosen:
        return
    # One more, because an indexed word finds itself.
    found = index.search(vectors[[rows[word] for word in chosen]], k=NEIGHBORS_SHOWN + 1, recall=0.99)
    for word, ids in zip(chosen, found.ids, strict=True):
        near = [words[indexed[id]] for id in ids if words[indexed[id]] != word][:NEIGHBORS_SHOWN]
        print(f"  {word:<12} {'  '.join(near)}"[:COLUMNS])


def show_server(path: pathlib.Path) -> None:
    """Prints how to search the index over HTTP."""
    folder = path.parent
    if folder == pathlib.Path():
        return
    command = pathlib.Path(sys.executable).parent / "bathyal"
    shown = (
        command.relative_to(pathlib.Path.cwd()) if command.is_relative_to(pathlib.Path.cwd()) else "bathyal"
    )
    print(
        f"Other programs can search it over HTTP: {shown} serve {folder}\n"
        f"It prints where its key is, and answers at http://127.0.0.1:7700/v1/indexes/{path.name}.\n"
        f"People can look at it in a browser: http://127.0.0.1:7700/console/"
    )


def heading(text: str) -> None:
    """Prints the heading of a part."""
    print(f"{text}\n{'─' * len(text)}")


def size(bytes: int) -> str:
    """Formats ``bytes`` in MB or GB, in eight columns."""
    return f"{bytes / 1e6:5.1f} MB" if bytes < 1e9 else f"{bytes / 1e9:5.1f} GB"


if __name__ == "__main__":
    main()
