"""Runs every configuration of the adapter by ann-benchmarks' own run.py. The working directory is its checkout."""

import subprocess
import sys
from pathlib import Path

import h5py
from judging import clusters, judge, nearest, recall

K, DIM = 10, 20
# Names that the program knows: it takes a file that is there instead of fetching one.
SETS = {"random-xs-20-euclidean": "euclidean", "random-xs-20-angular": "angular"}


def generate(name, metric):
    """Writes the file of a set as the program does."""
    base, queries = clusters(DIM, 7)
    ids, distances = nearest(base, queries, metric)
    Path("data").mkdir(exist_ok=True)
    with h5py.File(f"data/{name}.hdf5", "w") as file:
        file.attrs.update({"type": "dense", "distance": metric, "dimension": DIM, "point_type": "float"})
        for part, rows in [("train", base), ("test", queries), ("neighbors", ids), ("distances", distances)]:
            file.create_dataset(part, data=rows)
    return ids[:, :K]


def expected(name, metric, batch):
    """Family and result file of each configuration, as the program itself names them."""
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
    for name, metric in SETS.items():
        exact = generate(name, metric)

        def measure(path, exact=exact):
            with h5py.File(path) as file:
                return recall(file["neighbors"][:], exact)

        for batch in (False, True):
            mode = ["--batch"] if batch else []
            command = [
                "run.py",
                "--local",
                "--dataset",
                name,
                "--algorithm",
                "bathyal",
                "--runs",
                "1",
                "--force",
            ]
            done = subprocess.run([sys.executable, *command, *mode], text=True, capture_output=True)
            print(done.stdout[-2000:] + done.stderr[-4000:], file=sys.stderr) if done.returncode else None
            judge(f"ann-benchmarks {name} {' '.join(mode)}".rstrip(), expected(name, metric, batch), measure)


if __name__ == "__main__":
    main()
