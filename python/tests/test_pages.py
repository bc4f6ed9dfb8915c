"""The blocks of the pages run as written, or they are valid and name the reason for which no test runs
them."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

import pages
import test_stores
from pages import COMPILED, PAGES, ROOT, RUN, Page, PageError, Reader

BLOCKS = [block for path in PAGES for block in pages.read(path).blocks]

NOT_RUN = {
    "README.md": 2,
    "docs/guide/choosing-recall.md": 1,
    "docs/guide/coming-from.md": 11,
    "docs/guide/frameworks.md": 2,
    "docs/guide/getting-started.md": 1,
    "docs/guide/gpu.md": 5,
    "docs/guide/object-storage.md": 3,
    "docs/guide/remote-memory.md": 5,
    "docs/guide/serving.md": 3,
    "docs/guide/workers.md": 1,
}
"""Number of blocks of each page that no test runs. A further one must be added here and explained on its
page."""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """The environment of a user with an empty home, whose shell finds the installed command."""
    scripts = pathlib.Path(sys.executable).parent
    assert (scripts / "bathyal").exists(), "the package is not installed in this environment"
    # The environment is restored after the test, whatever a page exports.
    for name, value in os.environ.items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "home"
    home.mkdir()
    own = ("AWS_", "XDG_", "BATHYAL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    path = f"{scripts}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "HOME": str(home), "PATH": path, "BATHYAL_PROCESSOR": "reference"}


@contextlib.contextmanager
def with_bucket(page: Page, place: pathlib.Path) -> Iterator[dict[str, str]]:
    """Returns the variables for a store with the bucket that ``page`` names, if it names one."""
    if "bucket" not in page.settings:
        yield {}
        return
    program = test_stores.needed_server(place)
    with test_stores.running_server(program, place / "store", page.settings["bucket"]) as options:
        yield {f"AWS_{key.upper()}": value for key, value in options.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folders that pages have left, by page, for pages that continue them."""
    return tmp_path_factory.mktemp("pages"), {}


def run(page, place, environment):
    """Runs ``page`` in the given folder; returns the number of blocks."""
    os.chdir(place / "folder")
    before = set(os.environ)
    with with_bucket(page, place) as store, Reader(place / "folder", {**environment, **store}) as reader:
        try:
            return reader.run(page)
        finally:
            for name in set(os.environ) - before:
                del os.environ[name]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_run_as_they_are_written(path, tmp_path, environment, monkeypatch, folders):
    monkeypatch.chdir(tmp_path)
    page, (kept, left) = pages.read(path), folders
    folder = tmp_path / "folder"
    before = page.settings.get("continues")
    if before is None:
        folder.mkdir()
    else:
        first = path.parent / before
        if first not in left:
            left[first] = kept / str(len(left))
            (left[first] / "folder").mkdir(parents=True)
            run(pages.read(first), left[first], environment)
        shutil.copytree(left[first] / "folder", folder)
    count = run(page, tmp_path, environment)
    assert count == sum(block.language in RUN and not block.not_run for block in page.blocks)


@functools.cache
def shown_words(command):
    """Returns the words in the help of a command."""
    call = [sys.executable, "-m", "bathyal", command, "--help"]
    shown = subprocess.run(call, capture_output=True, text=True, check=True)
    return set(shown.stdout.replace(",", " ").replace("=", " ").split())


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.not_run], ids=lambda block: block.place)
def test_blocks_that_no_test_runs_are_sound(block):
    if block.language == "python":
        compile(block.code, block.place, "exec")
    else:
        subprocess.run(["bash", "-n", "-c", block.code], check=True)
        for command, options in pages.commands(block.code):
            assert not options - shown_words(command), block.place
    assert re.search(r": (pip|make) |`make |by hand", block.not_run), f"{block.place}: what would run it?"


def test_blocks_that_do_not_run_are_listed():
    found: dict[str, int] = {}
    for block in BLOCKS:
        if block.not_run:
            name = str(block.page.relative_to(ROOT))
            found[name] = found.get(name, 0) + 1
    assert found == NOT_RUN


def test_rust_blocks_are_compiled():
    library = (ROOT / "crates" / "bathyal" / "src" / "lib.rs").read_text(encoding="utf-8")
    for block in BLOCKS:
        if block.language == COMPILED:
            name = block.page.relative_to(ROOT)
            assert f'include_str!("../../../{name}")' in library, f"{block.place} is not compiled"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("words\n\n    bathyal inspect x\n", "has to be fenced"),
        ("* words\n  ```sh\n  ls\n  ```\n", "has to be fenced"),
        ("```\nls\n```\n", "a block is one of"),
        ("```bash\nls\n```\n", "a block is one of"),
        ("```sh\nls\n", "does not end"),
        ("<!-- not run: it is slow -->\nwords\n```sh\nls\n```\n", "directly before"),
        ("<!-- notrun: it is slow -->\n", "no such comment"),
        ("<!-- not run: -->\n", "no such comment"),
        ("<!-- smaller: 100 -->\n```sh\nls 100\n```\n", "no such comment"),
        ("<!-- smaller: 100 as 10 -->\n```sh\nls 1000\n```\n", "no block has the size 100"),
    ],
)
def test_badly_written_pages_are_errors(text, message):
    with pytest.raises(PageError, match=message):
        pages.read(pathlib.Path("page.md"), text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```sh\ntrue\nfalse\ntrue\n```\n", r"page.md:2: the shell ended with 1"),
        ("```sh\nfalse | true\n```\n", "the shell ended with 1"),
        ("```sh\nbathyal inspect nothing.index\n```\n", "no such"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", "page.md:6: AssertionError"),
    ],
)
def test_blocks_that_fail_are_errors(text, message, tmp_path, environment):
    folder = tmp_path / "folder"
    folder.mkdir()
    with Reader(folder, environment) as reader, pytest.raises(PageError, match=message):
        reader.run(pages.read(pathlib.Path("page.md"), text))


def test_sizes_are_replaced_by_smaller_ones(monkeypatch):
    text = (
        "<!-- smaller: 10_000 as 20 -->\n```python\nx[10_000:], 0..10_000, 10_0000, 0.10_000, x10_000\n```\n"
    )
    monkeypatch.setattr(pages, "WHOLE", False)
    page = pages.read(pathlib.Path("page.md"), text)
    (block,) = page.blocks
    assert page.shortened(block.code) == "x[20:], 0..20, 10_0000, 0.10_000, x10_000\n"
    monkeypatch.setattr(pages, "WHOLE", True)
    assert page.shortened(block.code) == block.code


def test_a_page_has_one_shell_and_one_python(tmp_path, environment, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    text = (
        "```sh\nexport WORD='two words'\n```\n```python\nimport os\nseen = os.environ['WORD']\n```\n"
        "```python\nopen('seen', 'w').write(seen)\n```\n```sh\ntest \"$(cat seen)\" = \"$WORD\"\n```\n"
    )
    with Reader(folder, environment) as reader:
        assert reader.run(pages.read(pathlib.Path("page.md"), text)) == 4
