"""The command `bathyal`, as the package installs it."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import bathyal


def run(*arguments, program=(sys.executable, "-m", "bathyal"), folder=None):
    command = [*program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)


def test_the_script_is_installed():
    script = pathlib.Path(sys.executable).with_name("bathyal")
    assert bathyal.__version__ in run("--version", program=[script]).stdout


def test_the_command_and_the_package_read_each_other(vectors, queries, tmp_path):
    base, asked = tmp_path / "base.fbin", tmp_path / "queries.fbin"
    bathyal.write_vectors(base, vectors)
    bathyal.write_vectors(asked, queries)
    truth, exact = bathyal.groundtruth(vectors, queries, "l2", k=10)
    bathyal.write_ids(tmp_path / "truth.ibin", truth, exact)
    built = run("build", base, tmp_path / "i", "--metric", "l2", "--json")
    assert built.returncode == 0, built.stderr
    assert json.loads(built.stdout)["vectors"] == len(vectors)
    searched = run(
        *("search", tmp_path / "i", asked, "-k", 10, "--search-list", 80),
        *("--groundtruth", tmp_path / "truth.ibin", "--json"),
    )
    assert searched.returncode == 0, searched.stderr
    with bathyal.open(tmp_path / "i") as index:
        found = index.search(queries, k=10, search_list=80)
    ratio = bathyal.overall_ratio(found.ids, found.distances, truth, exact)
    answer = json.loads(searched.stdout)
    assert answer["recall"] == pytest.approx(bathyal.recall(found.ids, truth))
    ratios = (answer["ratio"], answer["ratio_p99"], answer["ratio_left_out"])
    assert ratios == (pytest.approx(ratio.mean), pytest.approx(ratio.p99), ratio.left_out)
    assert answer["reads_per_query"] == pytest.approx(found.stats.reads_per_query)
    assert set(found.stats.as_dict()) - {"seconds"} <= set(answer)


def test_errors_are_sentences(tmp_path):
    missing = run("search", tmp_path / "nothing", tmp_path / "q.fbin", "-k", 1)
    assert missing.returncode != 0 and "nothing" in missing.stderr and "Traceback" not in missing.stderr
    assert run().returncode != 0
    assert "build" in run("--help").stdout


def test_the_demo_runs_twice(tmp_path):
    random = np.random.default_rng(1)
    from bathyal.demo import SHOWN

    words = [*SHOWN, *(f"word{n}" for n in range(2992))]
    bathyal.write_vectors(tmp_path / "vectors.f16bin", random.standard_normal((3000, 20)).astype(np.float16))
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    demo = (sys.executable, "-m", "bathyal.demo", "--data", ".")
    first = run(program=demo, folder=tmp_path)
    second = run("word5", "nonsense", program=demo, folder=tmp_path)
    for result in (first, second):
        assert result.returncode == 0, result.stderr
        assert max(map(len, result.stdout.splitlines())) <= 100
    assert "built in" in first.stdout and "grouping" in first.stdout and "einstein" in first.stdout
    assert "used again" in second.stdout and "built in" not in second.stdout
    assert "not among" in second.stdout and "  word5 " in second.stdout
    lost = run("--data", "nowhere", program=demo, folder=tmp_path)
    assert lost.returncode != 0 and "--data" in lost.stderr and "Traceback" not in lost.stderr
