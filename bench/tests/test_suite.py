"""Suites are parsed or refused; recall follows its rule; output of programs is parsed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bathyal_bench import datasets, ratio, recall, suite
from bathyal_bench.peers import PEERS, peer_class
from bathyal_bench.peers.diskann import flags, last_object
from bathyal_bench.peers.external import External, fill, parse_output
from bathyal_bench.peers.peer import Unsupported
from bathyal_bench.peers.program import Sweep, run_program
from bathyal_bench.peers.scann import point_into

SUITES = Path(__file__).resolve().parents[1] / "suites"
PLAIN = {"name": "one", "peer": "hnswlib", "effort": "ef", "efforts": [10, 20]}


def parsed(system=None, **more):
    return suite.parse_suite({"data": [{"name": "d"}], "systems": [system or PLAIN]} | more)


# The folder also contains a Rust crate.
SUITE_FILES = sorted(path for path in SUITES.glob("*.toml") if path.name != "Cargo.toml")


@pytest.mark.parametrize("path", SUITE_FILES, ids=lambda path: path.stem)
def test_every_suite_is_read_and_names_known_peers(path):
    read = suite.read_suite(path)
    assert read.systems and read.data
    for system in read.systems:
        assert issubclass(peer_class(system.peer), object)


def test_every_peer_has_an_adapter_that_imports_without_its_package():
    assert len({peer_class(name) for name in PEERS}) == len(PEERS)


def test_efforts_are_options_of_a_search():
    one = parsed().systems[0]
    assert one.efforts == ({"ef": 10}, {"ef": 20})
    mixed = PLAIN | {"efforts": [{"nprobe": 3, "k_factor_rf": 2}]}
    assert parsed(mixed).systems[0].efforts == ({"nprobe": 3, "k_factor_rf": 2},)


def test_long_vectors_are_derived_from_real_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("BATHYAL_DATA", str(tmp_path))
    rows = np.random.default_rng(3).normal(0, 1, (300, 6)).astype(np.float32)
    datasets.write_vectors(tmp_path / "base.fbin", rows)
    datasets.write_vectors(tmp_path / "query.fbin", rows[:4] * 2)
    entry = {"name": "d", "base": "base.fbin", "queries": "query.fbin"}

    threes = datasets.prepare(entry | {"concatenated": 3}, tmp_path / "work")
    assert (threes.name, threes.count, threes.dim) == ("d-18", 300, 18)
    assert np.array_equal(threes.vectors()[1], np.concatenate([rows[1], rows[2], rows[3]]))
    assert np.array_equal(threes.vectors()[299], np.concatenate([rows[299], rows[0], rows[1]]))
    assert np.array_equal(datasets.read_vectors(threes.queries)[3, :6], rows[3] * 2)

    spread = datasets.prepare(entry | {"projected": 4000}, tmp_path / "work")
    assert (spread.count, spread.dim) == (300, 4000)
    # The queries use the same matrix, and lengths change by hundredths only.
    assert np.allclose(datasets.read_vectors(spread.queries), spread.vectors()[:4] * 2, atol=1e-5)
    lengths = np.linalg.norm(spread.vectors(), axis=1) / np.linalg.norm(rows, axis=1)
    assert np.all(np.abs(lengths - 1) < 0.15)
    ids, _ = recall.read_groundtruth(spread.groundtruth)
    assert ids[0, 0] < 300


def test_one_number_of_neighbours_or_several_are_measured():
    assert (parsed().k, parsed(k=5).k, parsed(k=[1, 100]).k) == ((10,), (5,), (1, 100))
    assert parsed(targets=[], ratio_targets=[1.1, 1.05]).ratio_targets == (1.1, 1.05)


def test_a_system_is_opened_within_each_budget():
    budgeted = PLAIN | {"budgeted": True, "open": {"tier": "file"}}
    systems = parsed(budgeted, memory_budgets=["64MB", "16MB"]).systems
    assert [one.name for one in systems] == ["one, 16 MB", "one, 64 MB"]
    assert systems[1].open == {"tier": "file", "memory": 64_000_000}


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"thread": [1]}, "unknown key thread"),
        ({"systems": [PLAIN, PLAIN]}, "same name"),
        ({"systems": [{"name": "one", "peer": "hnswlib", "efforts": [1]}]}, "set effort to the option"),
        ({"systems": [PLAIN | {"searches": {}}]}, "unknown key searches"),
        ({"systems": [PLAIN | {"budgeted": True}]}, "no memory_budgets"),
        ({"caches": ["lukewarm"]}, "expected warm or cold"),
        ({"k": [10, 0]}, "k is 10, 0; expected 1 or more"),
        ({"targets": []}, "expected at least one target"),
        ({"ratio_targets": [0.95]}, "expected for example 1.05"),
        ({"reference": "two"}, "no system has this name"),
        ({"memory_budgets": ["many"]}, "is not a size"),
        ({"data": []}, r"no \[\[data\]\]"),
    ],
)
def test_mistakes_are_refused(content, error):
    with pytest.raises(ValueError, match=error):
        parsed(**content)


def test_an_index_is_rebuilt_only_if_something_differs():
    one, other = parsed().systems[0], parsed(PLAIN | {"build": {"M": 16}}).systems[0]
    searched = parsed(PLAIN | {"search": {"a": 1}, "efforts": [3], "name": "two"}).systems[0]
    key = one.index_key("d", 100, "l2", 2, "1.0")
    assert key == searched.index_key("d", 100, "l2", 2, "1.0")
    assert key != other.index_key("d", 100, "l2", 2, "1.0")
    assert key != one.index_key("d", 100, "l2", 2, "1.1")


@pytest.mark.parametrize("written", ["work/scann-d-0.partial", "/elsewhere/scann-d-0"])
def test_the_files_of_a_moved_scann_index_are_found(tmp_path, monkeypatch, written):
    monkeypatch.chdir(tmp_path)
    index = tmp_path / "work/scann-d-0"
    index.mkdir(parents=True)
    assets = index / "scann_assets.pbtxt"
    assets.write_text(f'assets {{\n  asset_type: PARTITIONER\n  asset_path: "{written}/a.pb"\n}}\n')
    assert point_into(Path("work/scann-d-0")) == index
    pointed = f'assets {{\n  asset_type: PARTITIONER\n  asset_path: "{index}/a.pb"\n}}\n'
    assert assets.read_text() == pointed
    point_into(index)
    assert assets.read_text() == pointed


def test_ids_as_near_as_the_last_count_as_correct():
    ids = np.array([[1, 2, 3, 4, 5]], np.uint32)
    distances = np.array([[0, 1, 2, 2, 3]], np.float32)
    assert recall.recall_at(np.array([[1, 2, 4]]), ids, distances, 3) == 1.0
    assert recall.recall_at(np.array([[1, 2, 4]]), ids, None, 3) == pytest.approx(2 / 3)
    assert recall.recall_at(np.array([[1, 2, 5]]), ids, distances, 3) == pytest.approx(2 / 3)
    assert recall.recall_at(np.array([[1, -1, -1]]), ids, distances, 3) == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="10 are needed"):
        recall.recall_at(np.array([[1]]), ids, distances, 10)


TABLE = json.loads((Path(__file__).parents[2] / "testdata/recall.json").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", TABLE, ids=[case["name"] for case in TABLE])
def test_recall_matches_the_table(case):
    def counted():
        return recall.recall_at(case["found"], case["truth"], case.get("distances"), case["k"])

    if case.get("recall") is None:
        with pytest.raises(ValueError, match="no query" if "left_out" in case else "queries|are needed"):
            counted()
    else:
        assert counted() == pytest.approx(case["recall"], rel=1e-12)


def test_missing_ids_are_recognized_in_unsigned_types():
    missing = np.array([[3, -1]])
    for kind in (np.int32, np.uint32, np.int64, np.uint64):
        assert recall.recall_at(missing.astype(kind), missing.astype(np.uint32), None, 2) == 1.0


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_the_ratio_equals_that_of_bathyal(tmp_path, metric):
    bathyal = pytest.importorskip("bathyal")
    random = np.random.default_rng(5)
    paths = {name: tmp_path / f"{name}.fbin" for name in ("base", "queries")}
    for path, count in zip(paths.values(), (500, 300), strict=True):
        datasets.write_vectors(path, random.standard_normal((count, 6)).astype(np.float32))
    data = datasets.DataSet("d", metric, groundtruth=tmp_path / "gt.ibin", **paths)
    datasets.compute_groundtruth(data.base, data.queries, metric, data.groundtruth)
    ids, distances = recall.read_groundtruth(data.groundtruth)
    # Use the neighbours at every second rank.
    found, found_distances = ids[:, 1:20:2], distances[:, 1:20:2]
    expected = bathyal.overall_ratio(found, found_distances, ids, distances, metric)
    measured = ratio.overall_ratio(found, ids, data, 10)
    assert expected.mean > 1.05
    assert measured["ratio"] == pytest.approx(expected.mean, rel=1e-6)
    assert measured["ratio_p99"] == pytest.approx(expected.p99, rel=1e-6)
    assert measured["ratio_left_out"] == 0
    assert ratio.overall_ratio(ids, ids, data, 10)["ratio"] == 1.0


def test_queries_without_a_ratio_are_left_out(tmp_path):
    data = replace(small_set(tmp_path), metric="l2")
    exact = np.array([[0, 1], [1, 0], [2, 1]])
    # Each query is a vector of the set: found, not found, and with a missing result.
    found = np.array([[0, 2], [0, 2], [2, -1]])
    measured = ratio.overall_ratio(found, exact, data, 2)
    assert measured == {"ratio": 1.5, "ratio_p99": 1.5, "ratio_left_out": 2}
    nothing = ratio.overall_ratio(found[:, :1], exact, data, 2)
    assert nothing == {"ratio": None, "ratio_p99": None, "ratio_left_out": 3}
    product = ratio.overall_ratio(found, exact, replace(data, metric="ip"), 2)
    assert set(product.values()) == {None}


def small_set(folder):
    vectors = np.arange(24, dtype=np.float32).reshape(6, 4)
    datasets.write_vectors(folder / "base.fbin", vectors)
    datasets.write_vectors(folder / "query.fbin", vectors[:3])
    ids = np.tile(np.arange(2, dtype=np.uint32), (3, 1))
    recall.write_groundtruth(folder / "gt.ibin", ids, np.zeros((3, 2), np.float32))
    names = {"base": "base.fbin", "queries": "query.fbin", "groundtruth": "gt.ibin"}
    return datasets.DataSet("small", "cosine", **{key: folder / name for key, name in names.items()})


def test_files_of_vectors_are_read_sliced_and_normalised(tmp_path):
    data = small_set(tmp_path)
    assert (data.count, data.dim, data.data_bytes) == (6, 4, 96)
    assert datasets.DataSet.from_json(data.as_json()) == data
    few = datasets.first_queries(data, 2, tmp_path)
    assert datasets.shape(few.queries) == (2, 4)
    assert recall.read_groundtruth(few.groundtruth)[0].shape == (2, 2)
    unit = datasets.with_unit_lengths(data, tmp_path)
    assert unit.metric == "l2"
    assert np.allclose(np.linalg.norm(unit.vectors(), axis=1), 1)


def test_paths_of_a_suite_are_below_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "a.fbin").write_bytes(b"")
    monkeypatch.setenv("BATHYAL_DATA", str(tmp_path))
    assert datasets.locate("a.fbin") == tmp_path / "a.fbin"
    assert datasets.locate("$BATHYAL_DATA/a.fbin") == tmp_path / "a.fbin"
    with pytest.raises(ValueError, match="set BATHYAL_NOWHERE"):
        datasets.locate("$BATHYAL_NOWHERE/a.fbin")


def test_the_output_of_programs_is_parsed():
    assert last_object('log\n{"qps": 1}\n{"qps": 2}\n')["qps"] == 2
    assert last_object('{\n  "qps": 3\n}\n')["qps"] == 3
    assert flags({"max_degree": 64, "saturate": True}) == ["--max-degree", "64", "--saturate", "true"]
    row = r"^\s*(?P<effort>\d+)\s+(?P<qps>[\d.]+)\s+(?P<mean_us>[\d.]+)\s+(?P<recall_percent>[\d.]+)$"
    figures = parse_output("L QPS lat recall\n 40  1234.5  810.0  95.5\n", {"pattern": row})
    assert (figures["qps"], figures["recall"]) == (1234.5, pytest.approx(0.955))
    assert parse_output('{"QPS": 7}', {"fields": {"qps": "QPS"}})["qps"] == 7
    with pytest.raises(RuntimeError, match="no qps"):
        parse_output("{}\n{\n}", {})


def test_placeholders_need_values():
    assert fill("run {base} -L {L}", {"base": "a b", "L": 3}) == ["run", "a b", "-L", "3"]
    with pytest.raises(Unsupported, match="LL"):
        fill("run {LL}", {"L": 3})


def test_an_unset_variable_leaves_a_program_out(monkeypatch):
    monkeypatch.delenv("BATHYAL_PROGRAM", raising=False)
    with pytest.raises(Unsupported, match=r"set \$BATHYAL_PROGRAM"):
        fill("$BATHYAL_PROGRAM/run {k}", {"k": 10})
    monkeypatch.setenv("BATHYAL_PROGRAM", "/somewhere")
    assert fill("$BATHYAL_PROGRAM/run {k}", {"k": 10}) == ["/somewhere/run", "10"]


def test_a_program_gets_its_configuration(tmp_path):
    data = small_set(tmp_path)
    echo = "import sys; print(open(sys.argv[1]).read())"
    config = '{{"qps": {L}, "recall": 0.5, "p50_ms": 2, "dim": {dim}}}'
    effort = {"command": ["python3", "-c", echo, "{config}"], "config": config, "L": 40}
    sweep = Sweep(tmp_path / "index", tmp_path, 2, "warm", [effort], 3, 3)
    (record,) = External(data, 1).sweep(sweep)
    assert (record["qps"], record["recall"]) == (40, 0.5)
    assert record["latency_us"] == {"mean": None, "p50": 2000, "p99": None}


@pytest.mark.parametrize("name", ["sift-lists", "glove-lists"])
def test_the_output_of_sptag_is_parsed(name):
    systems = suite.read_suite(SUITES / f"{name}.toml").systems
    system = next(one for one in systems if one.peer == "external")
    heads = "[1] Avg\t50tiles\t90tiles\t95tiles\t99tiles\t99.9tiles\tMax\n"
    printed = (
        "[1] Finish sending in 1.500 seconds, actuallQPS is 2000.50, query count 3000.\n"
        f"[1] \nEx Latency Distribution:\n{heads}[1] 0.100\t0.100\t0.100\t0.100\t0.100\t0.100\t0.100\n"
        f"[1] \nTotal Latency Distribution:\n{heads}[1] 1.250\t1.125\t2.000\t2.500\t3.500\t4.000\t5.000\n"
        f"[1] \nTotal Disk Page Access Distribution:\n{heads}[1] 96.500\t  96\t  99\t  99\t 100\t 100\t 101\n"
        f"[1] \nTotal Disk IO Distribution:\n{heads}[1] 31.250\t  32\t  32\t  32\t  32\t  32\t  32\n"
        "[1] \n[1] Start output to some.results\n[1] Recall@10: 0.000000 MRR@10: 0.000000\n[1] \n"
    )
    figures = parse_output(printed, system.search)
    assert "recall" not in figures
    assert (figures["qps"], figures["reads_per_query"]) == (2000.5, 31.25)
    assert figures["bytes_per_query"] == 96.5 * 4096
    assert [figures[f"{name}_us"] for name in ("mean", "p50", "p99")] == [1250, 1125, 3500]


@pytest.mark.parametrize("variable", [None, "/somewhere"])
def test_sptag_is_configured_if_its_folder_is_named(variable, monkeypatch, tmp_path):
    monkeypatch.delenv("BATHYAL_SPTAG", raising=False)
    systems = suite.read_suite(SUITES / "sift-lists.toml").systems
    system = next(one for one in systems if one.peer == "external")
    config = tmp_path / "build.config"
    peer = External(small_set(tmp_path), 2)
    if variable is None:
        with pytest.raises(Unsupported, match=r"set \$BATHYAL_SPTAG"):
            peer.words(system.build, peer.data, config, {"index": tmp_path})
        return
    monkeypatch.setenv("BATHYAL_SPTAG", variable)
    words = peer.words(system.build, peer.data, config, {"index": tmp_path})
    assert words == ["/somewhere/ssdserving", str(config)]
    lines = config.read_text().splitlines()
    assert {"ValueType=float", "Dim=4", "NumberOfThreads=2", f"IndexDirectory={tmp_path}"} <= set(lines)
    more = {"index": tmp_path, "results": tmp_path / "ids", "k": 10, "threads": 1}
    peer.words(system.search | system.efforts[0], peer.data, config, more)
    lines = config.read_text().splitlines()
    expected = {
        "InternalResultNum=16",
        "MaxCheck=1024",
        "NumberOfThreads=1",
        f"SearchResult={tmp_path / 'ids'}",
    }
    assert expected <= set(lines)


def test_the_memory_of_a_program_excludes_its_parent():
    held = np.ones(100_000_000, np.uint8)
    outcome = run_program(["sleep", "0.2"])
    assert outcome.peak_rss_bytes < 20_000_000 < held.nbytes


def test_an_external_program_runs_and_its_ids_are_evaluated(tmp_path):
    data = small_set(tmp_path)
    # Returns the ids 0 and 1 for the first two queries, as in the ground truth, and 0 and 5 for the last.
    answer = (
        "import struct,sys; open(sys.argv[1],'wb').write(struct.pack('<8i',3,2,0,1,0,1,0,5)); "
        'print(\'{"qps": 100, "mean_us": 5}\')'
    )
    effort = {
        "command": ["python3", "-c", answer.replace("{", "{{").replace("}", "}}"), "{results}"],
        "L": 40,
    }
    sweep = Sweep(tmp_path / "index", tmp_path, 2, "warm", [effort], 3, 3)
    (record,) = External(data, 1).sweep(sweep)
    assert record["qps"] == 100
    assert record["recall"] == pytest.approx(5 / 6)
    # The last query is a vector of the set, but is not among the exact neighbours in its file.
    assert record["ratio"] == 1.0
    assert record["latency_us"]["mean"] == 5
    assert record["dram_source"] == "peak of the whole process"


def test_ids_with_distances_are_evaluated(tmp_path):
    data = small_set(tmp_path)
    # The same results, each id followed by its distance.
    answer = (
        "import struct,sys; rows=((0,1),(0,1),(0,5)); "
        "body=b''.join(struct.pack('<if',one,.5) for row in rows for one in row); "
        "open(sys.argv[1],'wb').write(struct.pack('<2i',3,2)+body); "
        'print(\'{{"qps": 100, "pages_per_query": 2}}\')'
    )
    effort = {"command": ["python3", "-c", answer, "{results}"], "distances_beside_ids": True}
    sweep = Sweep(tmp_path / "index", tmp_path, 2, "warm", [effort], 3, 3)
    (record,) = External(data, 1).sweep(sweep)
    assert record["recall"] == pytest.approx(5 / 6)
    assert record["bytes_per_query"] == 8192
