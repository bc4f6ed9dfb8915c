"""Small data sets for all tests."""

import os

import numpy as np
import pytest

# Fixed constants of a processor, so that a recall takes the same effort wherever the tests run.
os.environ.setdefault("BATHYAL_PROCESSOR", "reference")

DTYPES = {"f32": np.float32, "f16": np.float16, "u8": np.uint8, "i8": np.int8}


def clustered(element, count, dim, seed):
    """Returns vectors around 20 centres, which depend only on ``dim``, so that queries are near the data."""
    centres = np.random.default_rng(dim).normal(0, 30, (20, dim))
    random = np.random.default_rng(seed)
    values = centres[random.integers(0, 20, count)] + random.normal(0, 10, (count, dim))
    if element == "u8":
        return np.clip(np.rint(values + 100), 0, 255).astype(np.uint8)
    if element == "i8":
        return np.clip(np.rint(values), -128, 127).astype(np.int8)
    return values.astype(DTYPES[element])


def distances(metric, base, queries):
    """Computes all distances in 64 bits with numpy."""
    base, queries = base.astype(np.float64), queries.astype(np.float64)
    products = queries @ base.T
    if metric == "ip":
        return -products
    if metric == "cosine":
        return 1 - products / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(base, axis=1)
    return (queries**2).sum(1)[:, None] - 2 * products + (base**2).sum(1)


ELSEWHERE = {
    "llama_index.core": "`make check-frameworks` runs this; so does pip install 'bathyal[llama-index]'",
    "torch": "pip install torch, of 200 MB and more, and this runs",
}
"""Modules that `scripts/dev-requirements.txt` does not install, and the commands that make their tests
run."""


def needed(name):
    """Imports the module ``name``; without it the test is skipped, with the command that makes it run."""
    how = ELSEWHERE.get(name, "`make test-python` installs it, and this runs")
    return pytest.importorskip(name, reason=f"there is no {name}: {how}")


@pytest.fixture(scope="session")
def vectors():
    return clustered("f32", 1500, 24, 1)


@pytest.fixture(scope="session")
def queries():
    return clustered("f32", 40, 24, 2)


FAMILIES = ["cluster", "graph"]


def small(family):
    """Returns the options of a family that make a test quick."""
    graph = {"max_degree": 24, "search_list": 50}
    return {"family": family, **(graph if family == "graph" else {})}


@pytest.fixture(scope="session", params=FAMILIES)
def index_path(request, vectors, tmp_path_factory):
    import bathyal

    path = tmp_path_factory.mktemp("index") / "shared.index"
    bathyal.build(vectors, path, metric="l2", **small(request.param)).close()
    return path


@pytest.fixture
def index(index_path):
    import bathyal

    with bathyal.open(index_path) as index:
        yield index
