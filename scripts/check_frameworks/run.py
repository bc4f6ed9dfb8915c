"""Runs the tests of LangChain and LlamaIndex on the vector stores in bathyal.langchain and
bathyal.llama_index.

LangChain's tests are a package. Those of LlamaIndex test its own store in memory; they are fetched at the
commit below into the work folder and run with a collection in place of that store. The tests of this folder
and the code blocks of the guide's page run as well.

Needs Python with bathyal, both frameworks, langchain-tests and pytest-asyncio (``make check-frameworks``).
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LLAMA_INDEX = "https://github.com/run-llama/llama_index"
COMMIT = "0a6ebbd5b9c8ab9e54c5eb79f7d358d673bc302c"
TESTS = "llama-index-core/tests/vector_stores/test_simple.py"
EXCLUDED = {
    "test_query_with_textmatch_filter_returns_matches": "collections do not search within texts",
    "test_from_persist_dir": "tests the files of the other store",
    "test_from_namespaced_persist_dir": "tests the files of the other store",
}
"""Tests of LlamaIndex that are not run, with the reason."""


def fetch(source, work):
    """Fetches only the test file at its commit, and returns its path."""
    folder = work / "llama_index"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def git(*arguments):
        subprocess.run(["git", "-C", folder, *arguments], check=True)

    git("init", "--quiet")
    git("remote", "add", "origin", source)
    # The repository is large, so files are fetched when they are checked out.
    git("fetch", "--quiet", "--depth", "1", "--filter=blob:none", "origin", COMMIT)
    git("checkout", "--quiet", "FETCH_HEAD", "--", TESTS)
    return folder / TESTS


def pytest(*arguments):
    """Runs pytest in a folder without the sources of the package, so that the installed package is tested."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, arguments)]
    done = subprocess.run(command, cwd=HERE)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with exit code {done.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--work", type=Path, default=ROOT / "target/frameworks", help="folder of the checkout"
    )
    parser.add_argument("--llama-index", default=LLAMA_INDEX, help="repository of the tests of LlamaIndex")
    arguments = parser.parse_args()
    pytest("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", HERE)
    tests = fetch(arguments.llama_index, arguments.work.resolve())
    for name, reason in EXCLUDED.items():
        print(f"not run: {name}: {reason}")
    chosen = " and ".join(f"not {name}" for name in EXCLUDED)
    pytest("-p", "collection_as_simple_store", "-W", "ignore::bathyal.SearchWarning", "-k", chosen, tests)


if __name__ == "__main__":
    main()
