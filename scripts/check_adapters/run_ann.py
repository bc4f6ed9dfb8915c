"""Runs every configuration of the adapter with the main of ann-benchmarks. The working directory is its
checkout.
"""

import sys
from pathlib import Path

import h5py
from checking import InProcess, check_results, clusters, nearest, recall

K, DIM = 10, 20
# Names of sets of the program, which uses an existing file instead of fetching one. The first set is searched
# with one query at a time, the second with all queries in one batch.
SETS = {"random-xs-20-euclidean": "euclidean", "random-xs-20-angular": "angular"}


def generate(name, metric):
    """Writes the file of a set in the program's format. Returns the exact neighbours."""
    base, queries = clusters(DIM, 7)
    ids, distances = nearest(base, queries, metric)
    Path("data").mkdir(exist_ok=True)
    with h5py.File(f"data/{name}.hdf5", "w") as file:
        file.attrs.update({"type": "dense", "distance": metric, "dimension": DIM, "point_type": "float"})
        for part, rows in [("train", base), ("test", queries), ("neighbors", ids), ("distances", distances)]:
            file.create_dataset(part, data=rows)
    return ids[:, :K]


def expected(name, metric, batch):
    """Returns the family and the result file of each configuration, as the program names them."""
    from ann_benchmarks.definitions import get_definitions
    from ann_benchmarks.results import build_result_filepath

    definitions = get_definitions(dimension=DIM, distance_metric=metric, count=K)
    return [
        (one.arguments[1]["family"], build_result_filepath(name, K, one, query, batch))
        for one in definitions
        if one.algorithm == "bathyal"
        for query in one.query_argument_groups or [[]]
    ]


def main():
    sys.path.insert(0, ".")
    import ann_benchmarks.main

    ann_benchmarks.main.multiprocessing = InProcess
    for (name, metric), batch in zip(SETS.items(), (False, True), strict=True):
        exact = generate(name, metric)

        def measure(path, exact=exact):
            with h5py.File(path) as file:
                return recall(file["neighbors"][:], exact)

        mode = ["--batch"] if batch else []
        sys.argv = [
            "run.py",
            "--local",
            "--dataset",
            name,
            "--algorithm",
            "bathyal",
            "--runs",
            "1",
            "--force",
            *mode,
        ]
        ann_benchmarks.main.main()
        check_results(" ".join(["ann-benchmarks", name, *mode]), expected(name, metric, batch), measure)


if __name__ == "__main__":
    main()
