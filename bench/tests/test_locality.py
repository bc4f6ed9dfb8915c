"""Programs for locality-sensitive hashing get input in their own formats, and their output is parsed."""

import sys
import textwrap

import numpy as np
import pytest

from bathyal_bench import datasets, ratio, recall
from bathyal_bench.peers import peer_class
from bathyal_bench.peers.peer import Unsupported
from bathyal_bench.peers.program import Sweep


def a_set(folder, element="fbin"):
    """Writes six vectors and three queries, one of which equals a vector."""
    vectors = np.random.default_rng(2).integers(0, 9, (6, 3))
    queries = np.concatenate([vectors[4:5], vectors[:2] + 1])
    base, query_file = folder / f"base.{element}", folder / f"query.{element}"
    datasets.write_vectors(base, vectors)
    datasets.write_vectors(query_file, queries)
    squares = ((queries[:, None] - vectors) ** 2).sum(axis=2)
    ids = np.argsort(squares, axis=1, kind="stable")
    recall.write_groundtruth(folder / "truth.ibin", ids, np.take_along_axis(squares, ids, axis=1))
    return datasets.DataSet("small", "l2", base, query_file, folder / "truth.ibin")


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Returns a function that makes a Python program in a folder that the variables name."""

    def make(name, body):
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\nimport sys\n{textwrap.dedent(body)}")
        path.chmod(0o755)
        for variable in ("BATHYAL_SRS", "BATHYAL_QALSH"):
            monkeypatch.setenv(variable, str(tmp_path))

    return make


def measured(name, data, folder, build, effort, k=2, threads=1):
    """Builds an index and returns the record of one effort."""
    peer = peer_class(name)(data, threads)
    index = folder / "index"
    index.mkdir()
    peer.build(index, build)
    (record,) = peer.sweep(Sweep(index, folder / "work", k, "warm", [effort], 3, 3))
    return record


def test_true_distances_are_ascending_and_exact(tmp_path):
    data = a_set(tmp_path)
    found = ratio.true_lengths(data, 2, 4)
    _, squares = recall.read_groundtruth(data.groundtruth)
    assert np.allclose(found**2, squares[:2, :4])


# A substitute for SRS that checks its input files and prints fixed figures.
SRS = """
    options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    if sys.argv[1] == "-I":
        rows = [line.split() for line in open(options["-s"])]
        assert [len(rows), len(rows[0])] == [int(options["-n"]), int(options["-d"])] and options["-m"] == "8"
        assert options["-y"] == ("f" if "0.5" in rows[0] else "i"), rows[0]
        open("index.bin", "w").close()
    else:
        heads = [open(options[name]).readline().split() for name in ("-q", "-g")]
        # The query that equals a vector is left out.
        assert heads == [["2", "3"], ["2", options["-k"]]], heads
        truth = [line.split() for line in open(options["-g"])][1:]
        assert [row[0] for row in truth] == ["1", "2"] and all(len(row) == 3 for row in truth)
        print("Overall Ratio: 1.25\\nAverage Time (s):  0.0005")
"""


@pytest.mark.parametrize("element", ["fbin", "u8bin"])
def test_srs_gets_text_and_its_ratio_is_recorded(tmp_path, program, element):
    program("srs", SRS)
    data = a_set(tmp_path, element)
    if element == "fbin":
        vectors = np.array(data.vectors())
        vectors[0, 0] = 0.5
        datasets.write_vectors(data.base, vectors)
    record = measured("srs", data, tmp_path, {"m": 8}, {"c": 4, "r": 2, "t": 5})
    assert (record["ratio"], record["recall"], record["qps"]) == (1.25, None, 2000)
    assert (record["ratio_left_out"], record["ratio_source"]) == (1, "program")
    assert record["latency_us"] == {"mean": 500, "p50": None, "p99": None}
    assert not (tmp_path / "index/data.txt").exists()


QALSH = """
    import os, struct
    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    assert options["-dt"] == "float32" and options["-p"] == "2.0"
    size = os.path.getsize("set.ds"), os.path.getsize("set.q")
    assert size == (6 * 3 * 4, 2 * 3 * 4) and options["-n"] == "6" and options["-qn"] == "2"
    if options["-alg"] == "0":
        open("set.gt2.0", "w").close()
    else:
        assert os.path.exists("set.gt2.0") and options["-c"] == "1.5"
        os.makedirs(options["-of"])
        with open(options["-of"] + "qalsh.out", "a") as file:
            file.write("Indexing Time = 3.0 Seconds\\nEstimated Mem = 1.0 MB\\n\\n")
            file.write("1\\t1.5\\t9.0\\t10.0\\n2\\t1.125\\t4.0\\t75.0\\n")
"""


def test_qalsh_gets_scaled_vectors_and_its_figures_are_recorded(tmp_path, program):
    program("qalsh", QALSH)
    data = a_set(tmp_path)
    record = measured("qalsh", data, tmp_path, {"scale": 10}, {"c": 1.5})
    assert (record["ratio"], record["recall"], record["qps"]) == (1.125, 0.75, 250)
    assert (record["index_seconds"], record["index_memory_bytes"]) == (3, 2**20)
    assert "builds its index for each search" in record["note"]
    written = np.fromfile(tmp_path / "index/set.ds", np.float32).reshape(6, 3)
    assert np.array_equal(written, data.vectors() * np.float32(10))


def test_bytes_are_passed_unchanged(tmp_path):
    data = a_set(tmp_path, "u8bin")
    taken = sys.modules[peer_class("qalsh").__module__].as_taken
    assert taken(data.vectors(), 1).dtype == np.uint8
    assert taken(data.vectors(), 2).dtype == np.float32


@pytest.mark.parametrize("name", ["srs", "qalsh"])
def test_programs_without_a_build_are_left_out(name, tmp_path, monkeypatch):
    monkeypatch.delenv(f"BATHYAL_{name.upper()}", raising=False)
    with pytest.raises(Unsupported, match=rf"set \$BATHYAL_{name.upper()}"):
        measured(name, a_set(tmp_path), tmp_path, {}, {})


@pytest.mark.parametrize(("name", "body"), [("srs", SRS), ("qalsh", QALSH)])
def test_programs_search_with_one_thread_and_some_values_of_k(name, body, tmp_path, program):
    program(name, body)
    data = a_set(tmp_path, "u8bin")
    with pytest.raises(Unsupported, match="one thread"):
        measured(name, data, tmp_path, {"m": 8}, {}, threads=2)
    if name == "qalsh":
        (tmp_path / "other").mkdir()
        with pytest.raises(Unsupported, match="supports only k of 1, 2, 5"):
            measured(name, data, tmp_path / "other", {}, {}, k=3)
