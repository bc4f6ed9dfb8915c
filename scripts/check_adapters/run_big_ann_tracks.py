"""Runs the adapters for the streaming and the filter track with the main of big-ann-benchmarks. The working
directory is its checkout.

Generated sets of the same element type, metric and size, in the program's format, replace the small sets of
both tracks. Runbooks are the program's own. The configurations of real sets are not run.
"""

import sys
from pathlib import Path

import h5py
import numpy as np
import yaml
from checking import InProcess, check_results, clusters, nearest, recall

K = 10
# Rows, queries and dimensions of the program's sets, with fewer rows in the filter track and fewer queries.
STREAMED = {"random-xs": (10_000, 100, 20), "random-xs-clustered": (10_000, 100, 20)}
RUNBOOKS = {
    "simple_runbook.yaml": "random-xs",
    "simple_replace_runbook.yaml": "random-xs",
    "clustered_runbook.yaml": "random-xs-clustered",
    "delete_runbook.yaml": "random-xs-clustered",
}
FILTERED = {"random-filter-s": (6_000, 120, 24)}
# Words of the filter track: one of this many rows has the word.
SHARES = [2, 3, 5, 10, 30, 100]


def vectors_of(kind, shape):
    """Returns a data set class of the program with generated vectors."""
    rows, queries, dim = shape

    class Generated(kind):
        def __init__(self):
            super().__init__(rows, queries, dim)
            self.basedir = str(Path("data", f"generated-{kind.__name__}-{rows}"))

        def vectors(self):
            return clusters(dim, 13, rows, queries)

        def prepare(self, skip_data=False):
            Path(self.basedir).mkdir(parents=True, exist_ok=True)
            for file, held in zip((self.ds_fn, self.qs_fn), self.vectors(), strict=True):
                head = np.array(held.shape, "<u4").tobytes()
                Path(self.basedir, file).write_bytes(head + held.tobytes())

        def short_name(self):
            return Path(self.basedir).name

    return Generated


def filtered(shape):
    """Returns the same with words: each row has any of them, and each query requires one or two."""
    from benchmark.dataset_io import write_sparse_matrix
    from benchmark.datasets import RandomFilterDS
    from scipy.sparse import csr_matrix

    class Filtered(vectors_of(RandomFilterDS, shape)):
        def words(self):
            """Returns which words each row has and each query requires, as two arrays of bools."""
            random = np.random.default_rng(5)
            rows = random.random((self.nb, len(SHARES))) < 1 / np.array(SHARES)
            pairs = [random.choice(len(SHARES), 1 + query % 2, replace=False) for query in range(self.nq)]
            queries = np.zeros((self.nq, len(SHARES)), bool)
            for query, pair in enumerate(pairs):
                queries[query, pair] = True
            return rows, queries

        def prepare(self, skip_data=False):
            super().prepare(skip_data)
            for file, held in zip((self.ds_metadata_fn, self.qs_metadata_fn), self.words(), strict=True):
                write_sparse_matrix(csr_matrix(held.astype(np.float32)), str(Path(self.basedir, file)))

        def exact(self):
            """Returns the exact ids for each query: at most K, fewer if fewer rows match."""
            (base, queries), (rows, wanted) = self.vectors(), self.words()
            exact = []
            for query, words in zip(queries, wanted, strict=True):
                matches = np.flatnonzero((rows | ~words).all(1))
                near = nearest(base[matches], query[None], "euclidean")[0][0, :K]
                exact.append(matches[near])
            return exact

    return Filtered


def live_after_each_search(data, runbook):
    """Returns for each search step, by number, the live tags and their rows."""
    from benchmark.streaming.compute_gt import get_next_set
    from benchmark.streaming.load_runbook import load_runbook

    _, steps = load_runbook(RUNBOOKS[Path(runbook).name], data.nb, str(runbook))
    tags, searched = {}, {}
    for number, step in enumerate(steps, 1):
        tags = get_next_set(tags, step)
        if step["operation"] == "search":
            searched[number] = np.array(sorted(tags.items())).T
    return searched


def stream(main, runbook):
    """Runs a runbook of the program, and checks the worst recall of its searches."""
    from benchmark.algorithms.definitions import get_definitions
    from benchmark.datasets import DATASETS
    from benchmark.results import get_result_filename

    name = RUNBOOKS[runbook.name]
    data = DATASETS[name]()
    track = ["--neurips23track", "streaming", "--runbook_path", str(runbook)]
    run_program(main, name, track)
    base, queries = data.vectors()
    exact = {
        number: tags[nearest(base[rows], queries, "euclidean")[0][:, :K]]
        for number, (tags, rows) in live_after_each_search(data, runbook).items()
    }

    def worst(path):
        with h5py.File(path) as file:
            found = {number: file[f"neighbors_step{number}"][:] for number in exact}
        return min(recall(found[number], exact[number]) for number in exact)

    config = "neurips23/streaming/bathyal/config.yaml"
    expected = [
        ("collection", get_result_filename(name, K, one, [query], "streaming", str(runbook)) + ".hdf5")
        for one in get_definitions(config, data.d, name, data.distance(), K)
        for query in one.query_argument_groups
    ]
    check_results(f"big-ann-benchmarks {runbook.name}: {len(exact)} searches", expected, worst)


def filter_by_words(main, name):
    """Runs all configurations of a set of the filter track, and checks their results."""
    from benchmark.algorithms.definitions import get_definitions
    from benchmark.datasets import DATASETS
    from benchmark.results import get_result_filename

    data = DATASETS[name]()
    run_program(main, name, ["--neurips23track", "filter"])
    exact, (rows, wanted) = data.exact(), data.words()

    def share(path):
        with h5py.File(path) as file:
            found = file["neighbors"][:]
        for ids, words, expected in zip(found, wanted, exact, strict=True):
            present = ids[ids >= 0]
            if not rows[np.ix_(present, words)].all() or len(present) != len(expected):
                sys.exit(f"{path}: has ids that do not match, or too few ids: {ids}")
        return recall(found, exact)

    expected = [
        (
            one.arguments[1]["options"]["family"],
            get_result_filename(name, K, one, [query], "filter") + ".hdf5",
        )
        for one in get_definitions("neurips23/filter/bathyal/config.yaml", data.d, name, data.distance(), K)
        for query in one.query_argument_groups
    ]
    check_results(f"big-ann-benchmarks {name}", expected, share)


def run_program(main, name, track):
    """Calls the program as its command line does."""
    sys.argv = ["run.py", "--nodocker", *track, "--dataset", name, "--algorithm", "bathyal"]
    sys.argv += ["--runs", "1", "--rebuild", "--force"]
    main.main()


def main():
    sys.path.insert(0, ".")
    import benchmark.main
    from benchmark.datasets import DATASETS, RandomDS

    benchmark.main.multiprocessing = InProcess
    for track, sets in (("streaming", STREAMED), ("filter", FILTERED)):
        configured = yaml.safe_load(Path(f"neurips23/{track}/bathyal/config.yaml").read_text())
        missing = sets.keys() - configured.keys()
        unknown = configured.keys() - DATASETS.keys()
        if missing or unknown:
            sys.exit(
                f"{track}: sets without configuration: {missing}; configurations of unknown sets: {unknown}"
            )
    for name, shape in STREAMED.items():
        DATASETS[name] = vectors_of(RandomDS, shape)
    for name, shape in FILTERED.items():
        DATASETS[name] = filtered(shape)
    for runbook in RUNBOOKS:
        stream(benchmark.main, Path("neurips23/runbooks", runbook))
    for name in FILTERED:
        filter_by_words(benchmark.main, name)


if __name__ == "__main__":
    main()
