"""Building, opening and searching."""

import copy
import inspect
import json
import pickle
import threading
import time

import numpy as np
import pytest

import bathyal
from conftest import DTYPES, FAMILIES, clustered, distances, small


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("element", DTYPES)
def test_search_finds_what_brute_force_finds(family, metric, element, tmp_path):
    base, queries = clustered(element, 1200, 24, 1), clustered(element, 30, 24, 2)
    options = {"metric": metric, **small(family)}
    with bathyal.build(base, tmp_path / "i", **options) as index:
        assert (len(index), index.dim, index.element, index.metric) == (1200, 24, element, metric)
        found = index.search(queries, k=10, search_list=120)
    exact = distances(metric, base, queries)
    truth = np.argsort(exact, axis=1, kind="stable")[:, :10]
    assert found.ids.shape == found.distances.shape == (30, 10)
    assert found.ids.dtype == np.uint32 and found.distances.dtype == np.float32
    # Small integers have many ties, so only distances are compared.
    reached = np.take_along_axis(exact, found.ids.astype(np.int64), 1)
    limit = np.take_along_axis(exact, truth, 1)[:, -1:]
    # Cosine normalises f16 vectors to f16, which moves a distance by some 1e-3.
    slack = 2e-3 if metric == "cosine" else 1e-3 * np.abs(limit)
    assert (reached <= limit + slack).mean() >= 0.95
    tolerance = 4e-3 if metric == "cosine" else 1e-3
    np.testing.assert_allclose(found.distances, reached, rtol=tolerance, atol=tolerance)
    assert (np.diff(found.distances, axis=1) >= 0).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("store_as", ["f16", "i8"])
def test_smaller_vectors_are_searched_and_report_their_loss(family, metric, store_as, tmp_path):
    base, queries = clustered("f32", 1200, 24, 1), clustered("f32", 30, 24, 2)
    with bathyal.build(base, tmp_path / "i", metric=metric, store_as=store_as, **small(family)) as index:
        assert index.element == "f32" and index.stored["element"] == store_as
        loss = index.stored["loss"]
        assert index.build_report["stored"] == index.stored and loss["k"] == 10
        assert 0.9 < loss["recall"] <= 1 and 0 < loss["distance_error"] < 0.02
        found = index.search(queries, k=10, search_list=120)
    truth = np.argsort(distances(metric, base, queries), axis=1, kind="stable")[:, :10]
    hits = [len(set(of) & set(near)) for of, near in zip(found.ids.tolist(), truth.tolist(), strict=True)]
    assert np.mean(hits) / 10 >= 0.9


def test_only_f32_is_stored_smaller(tmp_path):
    base = clustered("u8", 300, 8, 1)
    with pytest.raises(ValueError, match="store_as is f16, but the data is u8"):
        bathyal.build(base, tmp_path / "i", store_as="f16")
    with pytest.raises(ValueError, match="unknown form 'f8'"):
        bathyal.build(base.astype(np.float32), tmp_path / "i", store_as="f8")
    assert bathyal.build(base, tmp_path / "i").stored is None


def test_a_file_and_an_array_make_the_same_index(vectors, queries, tmp_path):
    bathyal.write_vectors(tmp_path / "base.fbin", vectors)
    options = {"family": "graph", "max_degree": 16, "search_list": 40, "threads": 1}
    from_file = bathyal.build(tmp_path / "base.fbin", tmp_path / "a", **options)
    from_array = bathyal.build(vectors, tmp_path / "b", **options)
    from_map = bathyal.build(bathyal.read_vectors(tmp_path / "base.fbin"), tmp_path / "c", **options)
    for index in (from_array, from_map):
        names = sorted(file.name for file in (tmp_path / "a").iterdir())
        assert names == sorted(file.name for file in (tmp_path / "b").iterdir())
        for one in ("ids", "distances"):
            a, b = (getattr(i.search(queries), one) for i in (from_file, index))
            np.testing.assert_array_equal(a, b)


def test_tiers_and_repeats_agree(index, index_path, queries):
    found = index.search(queries, k=7, search_list=60)
    again = index.search(queries, k=7, search_list=60, threads=1)
    np.testing.assert_array_equal(found.ids, again.ids)
    np.testing.assert_array_equal(found.distances, again.distances)
    np.testing.assert_array_equal(found.stats.reads, again.stats.reads)
    with bathyal.open(index_path, tier="dram") as memory:
        assert memory.dram_bytes > index.dram_bytes
        loaded = memory.search(queries, k=7, search_list=60)
    # In memory a cluster index reads only its candidates, so its answers may be farther than with whole
    # pages.
    assert (found.distances <= loaded.distances).all()


@pytest.mark.parametrize("numa", ["off", "interleave", "copy"])
def test_numa_nodes_change_no_answer(index, index_path, queries, numa):
    # With one node the options have no effect.
    with bathyal.open(index_path, numa=numa) as spread:
        np.testing.assert_array_equal(spread.search(queries).ids, index.search(queries).ids)


def test_an_unknown_use_of_numa_nodes_is_refused(index_path):
    with pytest.raises(ValueError, match="off, interleave, copy"):
        bathyal.open(index_path, numa="both")


def test_more_recall_takes_more_effort_and_reaches_it(index, vectors, queries):
    truth, _ = bathyal.groundtruth(vectors, queries, "l2", k=10)
    low, high = (index.search(queries, k=10, recall=recall) for recall in (0.8, 0.99))
    # In a small cluster index, even the shortest list reads enough pages for any recall.
    assert low.stats.search_list <= high.stats.search_list
    assert low.stats.reads.sum() <= high.stats.reads.sum()
    assert bathyal.recall(high.ids, truth) >= 0.97


def test_a_single_query_gives_single_rows(index, vectors):
    found = index.search(vectors[5], k=4)
    assert found.ids.shape == found.distances.shape == (4,)
    assert found.ids[0] == 5 and found.distances[0] == 0
    assert found.stats.queries == 1


@pytest.mark.parametrize("convert", [np.ndarray.tolist, lambda q: q.astype(np.float64), np.asfortranarray])
def test_queries_of_other_kinds_are_converted(index, queries, convert):
    expected = index.search(queries, k=3).ids
    np.testing.assert_array_equal(index.search(convert(queries), k=3).ids, expected)


def test_queries_may_come_from_a_file(index, queries, tmp_path):
    bathyal.write_vectors(tmp_path / "q.fvecs", queries)
    np.testing.assert_array_equal(index.search(tmp_path / "q.fvecs").ids, index.search(queries).ids)


def test_8_bit_indexes_take_whole_numbers_in_range(tmp_path):
    base = clustered("u8", 100, 8, 1)
    with bathyal.build(base, tmp_path / "i") as index:
        assert (
            index.search(base[3].astype(np.int64), k=1).ids.tolist()
            == index.search(base[3], k=1).ids.tolist()
        )
        for bad in ([256] * 8, [-1] * 8, [0.5] * 8):
            with pytest.raises(ValueError, match="uint8"):
                index.search(bad)


def test_queries_in_flight_take_memory_and_change_no_answer(index, queries):
    few, many = (index.search(queries, k=5, threads=1, in_flight=number) for number in (1, 9))
    assert (few.ids == many.ids).all()
    assert few.stats.dram_bytes < many.stats.dram_bytes


def test_stats_add_up(index, queries):
    stats = index.search(queries, k=5, search_list=40, threads=2).stats
    assert (stats.queries, stats.k, stats.search_list, stats.threads) == (len(queries), 5, 40, 2)
    assert stats.reads.shape == (len(queries),) and (stats.reads > 0).all()
    assert stats.bytes_per_query == pytest.approx(4096 * stats.reads_per_query)
    assert index.stats()["reads"] == stats.reads.sum()
    assert stats.qps > 0 and stats.dram_bytes > 0
    assert stats.latency_us["p50"] <= stats.latency_us["p95"] <= stats.latency_us["p99"]
    assert set(stats.as_dict()) >= {"qps", "latency_us", "reads_per_query", "hops_per_query", "dram_bytes"}
    assert stats.hops is stats.hops
    for copied in (pickle.loads(pickle.dumps(stats)), copy.deepcopy(stats)):
        assert copied.as_dict() == stats.as_dict() and repr(copied) == repr(stats)
        assert np.array_equal(copied.full_distances, stats.full_distances)


def test_awaited_searches_take_the_same_arguments(index):
    asks = (bathyal.Index.search_async, bathyal.Index.search, bathyal.search)
    awaited, plain, several = (inspect.signature(ask) for ask in asks)
    assert awaited == plain and plain.parameters["recall"].default is None
    assert list(several.parameters)[1:] == list(plain.parameters)[1:]
    assert inspect.iscoroutinefunction(bathyal.Index.search_async)
    with pytest.raises(TypeError, match="neighbours"):
        index.search([0.0], neighbours=3)


def test_pipelined_mode_finds_the_same_neighbours(index, vectors, queries):
    truth, _ = bathyal.groundtruth(vectors, queries, "l2", k=10)
    if index.manifest["family"] == "cluster":
        # This family reads in one round, so the order of arrival has no effect.
        with pytest.raises(ValueError, match="cluster index knows no mode"):
            index.search(queries, search_list=100, mode="pipelined")
        return
    found = index.search(queries, search_list=100, mode="pipelined")
    assert bathyal.recall(found.ids, truth) >= 0.97


def test_fewer_neighbours_than_k_give_a_warning(tmp_path):
    with (
        bathyal.build(np.eye(4, dtype=np.float32), tmp_path / "i") as index,
        pytest.warns(bathyal.SearchWarning, match="holds only 4"),
    ):
        found = index.search([1, 0, 0, 0], k=10)
    assert sorted(found.ids.tolist()) == [0, 1, 2, 3] and found.notes


def test_mapped_memory_answers_like_files(index, index_path, queries, tmp_path):
    found = index.search(queries, k=5, search_list=50)
    stages = []
    for tier in [f"mapped:{tmp_path}", f"mapped:{tmp_path},verify"]:
        with bathyal.open(index_path, tier=tier, progress=lambda *step: stages.append(step[0])) as mapped:
            again = mapped.search(queries, k=5, search_list=50)
            assert mapped.stats()["place"].startswith("mapped: ")
        assert np.array_equal(found.ids, again.ids)
        assert np.array_equal(found.distances, again.distances)
    assert set(stages) == {"loading the pages", "verifying the pages"}


@pytest.mark.parametrize("tier", ["file", "dram", "mapped"])
@pytest.mark.parametrize("lone", [False, True])
def test_threads_search_one_index_at_once(lone, tier, index_path, queries):
    index = bathyal.open(index_path, tier=tier)
    expected = index.search(queries, k=5).ids
    found = [None] * 4

    def search(slot):
        if lone:
            found[slot] = np.stack([index.search(query, k=5).ids for query in queries])
        else:
            found[slot] = index.search(queries, k=5).ids

    threads = [threading.Thread(target=search, args=(slot,)) for slot in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ids in found:
        np.testing.assert_array_equal(ids, expected)


def test_calibration_may_be_given(vectors, queries, tmp_path):
    options = {"family": "graph", "max_degree": 16, "search_list": 40, "calibration": queries}
    with bathyal.build(vectors, tmp_path / "i", **options) as index:
        assert index.manifest["structure"]["calibration"]["source"] == "given queries"


def test_an_index_is_calibrated_with_given_queries(tmp_path):
    random = np.random.default_rng(5)
    base = clustered("f32", 3000, 24, 1)
    far = random.uniform(base.min(), base.max(), (600, 24)).astype(np.float32)
    given, other = far[:300], far[300:]
    truth, _ = bathyal.groundtruth(base, other, "l2", k=10)
    bathyal.write_ids(tmp_path / "given.ibin", bathyal.groundtruth(base, given, "l2", k=100)[0])
    with bathyal.build(base, tmp_path / "i", metric="l2", family="graph", max_degree=12) as index:
        report = index.calibrate(given, name="far", groundtruth=tmp_path / "given.ibin", progress=False)
        assert (report["name"], report["queries"]) == ("far", 300)
        assert {(row["k"], row["asked"]) for row in report["before"]} >= {(10, 0.9), (10, 0.95)}
        for recall in (0.9, 0.95):
            found = index.search(other, k=10, recall=recall, calibration="far")
            assert bathyal.recall(found.ids, truth) > recall - 0.03
        assert [one["name"] for one in index.calibrations()] == ["far"]
    with bathyal.open(tmp_path / "i") as index:
        np.testing.assert_array_equal(
            index.search(other, recall=0.95).ids, index.search(other, recall=0.95, calibration="far").ids
        )
        with pytest.raises(ValueError, match=r"there is no calibration .near.*it has build, far"):
            index.search(other, calibration="near")
        with pytest.raises(ValueError, match="calibration is for a recall"):
            index.search(other, search_list=20, calibration="far")
        with pytest.raises(ValueError, match="cannot name a calibration"):
            index.calibrate(given, name="a b", progress=False)
        with pytest.raises(ValueError, match="groundtruth is"):
            index.calibrate(given, groundtruth=np.ones(3), progress=False)
        assert index.remove_calibration("far") and not index.remove_calibration("far")


def test_the_recall_of_searches_is_audited(tmp_path):
    random = np.random.default_rng(5)
    base = clustered("f32", 3000, 24, 1)
    far = random.uniform(base.min(), base.max(), (200, 24)).astype(np.float32)
    truth, distances = bathyal.groundtruth(base, far, "l2", k=100)
    bathyal.build(base, tmp_path / "i", metric="l2", family="graph", max_degree=12).close()
    with bathyal.open(tmp_path / "i", audit=1, on_miss="raise_effort") as index:
        report = index.audit(far, recall=(0.5, 0.9), progress=False)
        assert (report["queries"], [one["asked"] for one in report["recalls"]]) == (200, [0.5, 0.9])
        expected = bathyal.recall(index.search(far, recall=0.9).ids, truth, distances)
        assert report["recalls"][1]["found"] == pytest.approx(expected)
        deadline = time.monotonic() + 60
        # The time is counted after the pause that follows a pass.
        while (audit := index.stats()["audit"])["seconds"] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert audit["recalls"][0]["asked"] == 0.9 and audit["seconds"] > 0
        assert "bathyal_audit_queries_total{" in index.prometheus()
        with pytest.raises(ValueError, match=r"recall is 0"):
            index.audit(far, recall=[0.9, 0], progress=False)
    with bathyal.open(tmp_path / "i") as index:
        assert "audit" not in index.stats()
    with pytest.raises(ValueError, match=r"audit is 2; it is a share"):
        bathyal.open(tmp_path / "i", audit=2)
    with pytest.raises(ValueError, match="nothing is audited"):
        bathyal.open(tmp_path / "i", on_miss="raise_effort")
    with pytest.raises(ValueError, match="one of note, raise_effort"):
        bathyal.open(tmp_path / "i", audit=0.1, on_miss="shout")


@pytest.mark.parametrize(
    ("family", "code_kind"),
    [("graph", "pq"), ("graph", "pq4"), ("graph", "axes"), ("cluster", "axes"), ("cluster", "rabitq4")],
)
def test_the_kind_of_code_may_be_chosen(family, code_kind, vectors, queries, tmp_path):
    truth, _ = bathyal.groundtruth(vectors, queries, "l2", k=10)
    options = {**small(family), "code_kind": code_kind}
    with bathyal.build(vectors, tmp_path / "i", **options) as index:
        assert index.manifest["structure"]["codes"]["kind"] == code_kind
        assert bathyal.recall(index.search(queries, search_list=200).ids, truth) >= 0.95


def test_a_closed_index_raises_an_error(index_path, queries):
    with bathyal.open(index_path) as index:
        assert "1500 x 24 f32, l2" in repr(index)
    assert index.closed and "closed" in repr(index)
    for use in (lambda: index.search(queries), lambda: index.dim, lambda: len(index)):
        with pytest.raises(ValueError, match="closed"):
            use()
    index.close()


def test_reports(index, index_path, vectors):
    report = bathyal.verify(index_path)
    assert report["sound"] and report["vectors"] == len(vectors) and not report["faults"]
    about = index.inspect()
    assert about["data_bytes"] == vectors.nbytes
    assert about["manifest"] == index.manifest
    if about["manifest"]["family"] == "cluster":
        assert report["links"] == 0 and about["groups"] >= len(vectors) / about["group_vectors"]
    else:
        assert report["links"] > 0 and sum(bar["count"] for bar in about["degree_histogram"]) > 0


def test_progress_reaches_a_callable(vectors, tmp_path):
    heard = []
    for family, stages in (("graph", {"first pass", "second pass"}), ("cluster", {"grouping", "encoding"})):
        path, hear = tmp_path / family, lambda *news: heard.append(news)
        bathyal.build(vectors, path, progress=hear, **small(family)).close()
        assert stages <= {stage for stage, _, _ in heard}
    assert all(0 <= done <= total for _, done, total in heard)


def test_an_emulated_device_answers_the_same_and_is_named(index_path, queries):
    with (
        bathyal.open(index_path, tier="dram") as plain,
        bathyal.open(index_path, tier="dram", delay="rdma") as slow,
    ):
        assert "emulated" not in repr(plain) and repr(slow).endswith("emulated rdma>")
        found = [index.search(queries, k=5, search_list=60) for index in (plain, slow)]
        np.testing.assert_array_equal(found[0].ids, found[1].ids)
        assert found[0].stats.reads_per_query == found[1].stats.reads_per_query
    with pytest.raises(ValueError, match="no device of that name"):
        bathyal.open(index_path, delay="tape")


def test_the_profile_of_a_device_is_read_from_a_file(index_path, queries, tmp_path):
    device = {
        "kind": "file",
        "method": "io_uring",
        "granularity": 512,
        "alignment": 512,
        "addressable": False,
    }
    measured = device | {"latency_ns": 90_000, "iops": 250e3, "bandwidth_bytes_per_s": 2e9, "depth": 64}
    (tmp_path / "disk.json").write_text(json.dumps(measured))
    with (
        bathyal.open(index_path) as plain,
        bathyal.open(index_path, profile=tmp_path / "disk.json") as profiled,
    ):
        found = [index.search(queries, k=5, search_list=60) for index in (plain, profiled)]
        np.testing.assert_array_equal(found[0].ids, found[1].ids)
    for text, reason in (("{}", "is not a profile"), (json.dumps(measured | {"iops": -1}), "iops")):
        (tmp_path / "wrong.json").write_text(text)
        with pytest.raises(ValueError, match=f"wrong.json: .*{reason}"):
            bathyal.open(index_path, profile=tmp_path / "wrong.json")
    with pytest.raises(ValueError, match=r"none\.json: cannot be read"):
        bathyal.open(index_path, profile=tmp_path / "none.json")
