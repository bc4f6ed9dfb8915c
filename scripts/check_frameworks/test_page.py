"""Tests of the guide's page about frameworks and of the examples in the modules."""

import doctest
import importlib
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guide/frameworks.md"


def test_blocks_run_as_written(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "python/tests"))
    monkeypatch.chdir(tmp_path)
    # monkeypatch restores the environment after the test.
    for name, value in os.environ.items():
        monkeypatch.setenv(name, value)
    pages = importlib.import_module("pages")
    text = "\n".join(line for line in PAGE.read_text().splitlines() if not line.startswith("<!-- not run"))
    page = pages.read(PAGE, text)
    scripts = Path(sys.executable).parent
    path = f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    with pages.Reader(tmp_path, {**os.environ, "PATH": path}) as reader:
        assert reader.run(page) == sum(block.language in pages.RUN for block in page.blocks)


@pytest.mark.parametrize("name", ["bathyal.langchain", "bathyal.llama_index"])
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(importlib.import_module(name), optionflags=flags).failed == 0
