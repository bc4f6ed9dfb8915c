"""Indexes in the memory of a node, a process of its own."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import bathyal
from conftest import clustered


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[str]:
    """The address of a node, whose keys are in the test's folder ``keys``."""
    arguments = f"memory-node --capacity 64MB --listen 127.0.0.1:0 --keys {tmp_path / 'keys'}".split()
    command = [sys.executable, "-m", "bathyal", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            yield first.split("at ")[1].split(",")[0]
        finally:
            process.kill()


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_nodes_memory(
    node: str, tmp_path: pathlib.Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "keys": str(tmp_path / "keys" / "client.json"),
        "transport": transport,
        "scratch": str(tmp_path),
    }
    rows, queries = clustered("f32", 4000, 24, 1), clustered("f32", 20, 24, 2)
    bathyal.build(rows, tmp_path / "here", progress=False).close()
    # Vectors in a node's memory are read one by one, like those in this machine's memory.
    with bathyal.open(tmp_path / "here", tier="dram", progress=False) as here:
        expected = here.search(queries, k=5, search_list=50)
    address = f"{node}/my.index"
    bathyal.copy(tmp_path / "here", address, progress=False, store_options=options)
    with bathyal.open(address, store_options=options) as index:
        found = index.search(queries, k=5, search_list=50)
        assert np.array_equal(found.ids, expected.ids)
        assert np.array_equal(found.stats.reads, expected.stats.reads)
        with bathyal.open(tmp_path / "here", progress=False) as here:
            together = bathyal.search([here, index], queries, k=5, search_list=50)
        assert set(together.indexes.ravel().tolist()) == {0, 1}
    monkeypatch.setenv("BATHYAL_NODE_KEYS", options["keys"])
    named = bathyal.search([tmp_path / "here", address], queries, k=5, search_list=50)
    assert np.array_equal(named.ids, together.ids) and np.array_equal(named.indexes, together.indexes)
    assert bathyal.verify(address, progress=False, store_options=options)["sound"]
    with bathyal.build(rows, f"{node}/other", progress=False, store_options=options) as other:
        assert len(other) == 4000
    with pytest.raises(OSError, match="no such index"):
        bathyal.open(f"{node}/absent", store_options=options)
    with pytest.raises(ValueError, match="transport"):
        bathyal.open(address, store_options={**options, "transport": "pigeon"})
    with pytest.raises(OSError, match="refuses the token"):
        bathyal.open(address, store_options={**options, "token": "0" * 32})
