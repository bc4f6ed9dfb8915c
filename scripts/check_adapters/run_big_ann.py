"""Runs every configuration of the adapter with the main of big-ann-benchmarks. The working directory is its
checkout.

Generated sets of the same element type, metric and kind of search replace the sets of the configurations.
"""

import os
import sys
from pathlib import Path

import h5py
import numpy as np
import yaml
from checking import COUNT, QUERIES, InProcess, check_results, clusters, nearest, recall

CONFIGURATION = "neurips23/ood/bathyal/config.yaml"
# Element type, metric and dimensions of the generated set of each name.
GENERATED = {
    "random-xs": ("float32", "euclidean", 20),
    "random-range-xs": ("float32", "euclidean", 20),
    "bigann-10M": ("uint8", "euclidean", 32),
    "text2image-10M": ("float32", "ip", 24),
}


def generated(name):
    """Returns a data set class of the program whose vectors are generated."""
    from benchmark.datasets import RandomDS, RandomRangeDS

    element, metric, dim = GENERATED[name]

    class Generated(RandomRangeDS if "range" in name else RandomDS):
        def __init__(self):
            super().__init__(COUNT, QUERIES, dim)
            self.dtype, self.basedir = element, os.path.join("data", f"generated-{name}")

        def vectors(self):
            base, queries = clusters(dim, 11)
            if element == "uint8":
                base, queries = (
                    np.clip(rows * 20 + 128, 0, 255).astype(np.uint8) for rows in (base, queries)
                )
            return base, queries

        def exact(self):
            """Returns the exact ids for each query."""
            ids, distances = nearest(*self.vectors(), metric)
            if self.search_type() == "range":
                # A range answer has all vectors in range, which are fewer than the computed neighbours.
                return [row[near] for row, near in zip(ids, distances < self.radius(), strict=True)]
            return ids[:, : self.default_count()]

        def radius(self):
            return float(np.sqrt(self.default_count()))

        def prepare(self, skip_data=False):
            os.makedirs(self.basedir, exist_ok=True)
            for file, rows in zip((self.ds_fn, self.qs_fn), self.vectors(), strict=True):
                head = np.array(rows.shape, "<u4").tobytes()
                Path(self.basedir, file).write_bytes(head + rows.tobytes())

        def default_count(self):
            # For a range search this is the square of the radius, which few vectors are within.
            return 6 if self.search_type() == "range" else 10

        def distance(self):
            return metric

        def short_name(self):
            return f"generated-{name}"

    return Generated


def answers(path, ranged):
    with h5py.File(path) as file:
        ids = file["neighbors"][:]
        return np.split(ids, file["lims"][1:-1]) if ranged else ids


def main():
    sys.path.insert(0, ".")
    import benchmark.main
    from benchmark.algorithms.definitions import get_definitions
    from benchmark.datasets import DATASETS
    from benchmark.results import get_result_filename

    benchmark.main.multiprocessing = InProcess
    configured = yaml.safe_load(Path(CONFIGURATION).read_text())
    if configured.keys() != GENERATED.keys():
        sys.exit(f"{CONFIGURATION}: has the sets {[*configured]}, but this script generates {[*GENERATED]}")
    for name in configured:
        DATASETS[name] = generated(name)
        data = DATASETS[name]()
        count, ranged = data.default_count(), data.search_type() == "range"
        track = ["--neurips23track", "ood"]
        sys.argv = ["run.py", "--nodocker", *track, "--dataset", name, "--algorithm", "bathyal"]
        sys.argv += ["--runs", "1", "--rebuild", "--force"]
        benchmark.main.main()
        definitions = get_definitions(CONFIGURATION, data.d, name, data.distance(), count)
        expected = [
            (one.arguments[1]["family"], get_result_filename(name, count, one, [query], track[1]) + ".hdf5")
            for one in definitions
            for query in one.query_argument_groups
        ]
        exact = data.exact()

        def measure(path, ranged=ranged, exact=exact):
            return recall(answers(path, ranged), exact)

        check_results(f"big-ann-benchmarks {name}", expected, measure)


if __name__ == "__main__":
    main()
