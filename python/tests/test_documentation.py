"""The examples in the package's docstrings run and print what they show."""

import doctest
import importlib
import pkgutil

import pytest

import bathyal
from conftest import needed

OPTIONAL = {
    "bathyal.hdf5": "h5py",
    "bathyal.langchain": "langchain_core",
    "bathyal.llama_index": "llama_index.core",
    "bathyal.parquet": "pyarrow",
    "bathyal.results": "pandas",
}
MODULES = ["bathyal"] + [
    name
    for _, name, _ in pkgutil.iter_modules(bathyal.__path__, "bathyal.")
    if name not in ("bathyal.__main__", "bathyal._bathyal")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    if name in OPTIONAL:
        needed(OPTIONAL[name])
    monkeypatch.chdir(tmp_path)
    # An index for an object store is built in this folder before it is uploaded.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert result.failed == 0


def test_public_names_are_documented():
    for name in bathyal.__all__:
        if name != "__version__":
            assert getattr(bathyal, name).__doc__, name
