"""Ranges, several indexes, files of queries, warm-up, explanations, counters."""

import copy
import pathlib

import numpy as np
import pytest

import bathyal
from conftest import FAMILIES, clustered, distances, small


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_range_searches_agree_with_brute_force(family, metric, tmp_path):
    base, queries = clustered("f32", 1500, 24, 1), clustered("f32", 30, 24, 2)
    exact = distances(metric, base, queries)
    with bathyal.build(base, tmp_path / "i", metric=metric, **small(family)) as index:
        for rank in (5, 100):
            radius = float(np.sort(exact[0])[rank])
            found = index.range_search(queries, radius)
            assert len(found) == len(queries) and len(found.ids) == found.offsets[-1]
            within = exact <= radius
            hits = sum(within[query, ids].sum() for query, (ids, _) in enumerate(found))
            assert hits >= 0.92 * within.sum()
            assert (found.distances <= radius).all()
            assert found.costs.reads.shape == (len(queries),)
        with pytest.warns(bathyal.SearchWarning, match="limit"):
            assert len(index.range_search(queries, np.inf, limit=4).ids) == 4 * len(queries)
        for bad in ({"radius": float("nan")}, {"radius": 1, "limit": 0}, {"radius": 1, "recall": 2}):
            with pytest.raises(ValueError):
                index.range_search(queries, **bad)
        with pytest.raises(IndexError):
            found[len(queries)]


def test_several_indexes_answer_as_one(vectors, queries, tmp_path):
    parts = [vectors[:400], vectors[400:410], vectors[410:]]
    indexes = [
        bathyal.build(part, tmp_path / str(number), family=family)
        for number, (part, family) in enumerate(zip(parts, ("cluster", "graph", "graph"), strict=True))
    ]
    found = bathyal.search(indexes, queries, k=10, search_list=200)
    first = np.array([0, 400, 410])
    truth, _ = bathyal.groundtruth(vectors, queries, "l2", k=10)
    assert bathyal.recall((first[found.indexes] + found.ids).astype(np.uint32), truth) >= 0.98
    one = bathyal.search(indexes, queries[0], k=10, search_list=200)
    np.testing.assert_array_equal(one.ids, found.ids[0])
    with pytest.warns(bathyal.SearchWarning, match="hold only 410"):
        assert bathyal.search(indexes[:2], queries, k=500, search_list=500).ids.shape[1] == 410
    with pytest.raises(ValueError, match="at least one"):
        bathyal.search([], queries)
    other = bathyal.build(vectors, tmp_path / "ip", metric="ip")
    with pytest.raises(ValueError, match="metric"):
        bathyal.search([indexes[0], other], queries)


def test_a_file_of_queries_is_answered_in_blocks(index, queries, tmp_path):
    bathyal.write_vectors(tmp_path / "queries.fbin", queries)
    expected = index.search(queries, k=5, search_list=50)
    report = index.search_file(
        tmp_path / "queries.fbin", tmp_path / "found.ibin", k=5, search_list=50, block=7
    )
    ids, found = bathyal.read_ids(tmp_path / "found.ibin")
    np.testing.assert_array_equal(ids, expected.ids)
    np.testing.assert_array_equal(found, expected.distances)
    assert report["queries"] == len(queries) and report["reads"] == expected.stats.reads.sum()
    with pytest.raises(ValueError, match="block"):
        index.search_file(tmp_path / "queries.fbin", tmp_path / "found.ibin", block=0)
    with pytest.raises(FileNotFoundError):
        index.search_file(tmp_path / "nothing.fbin", tmp_path / "other.ibin")
    assert not (tmp_path / "other.ibin").exists()


def test_an_explanation_agrees_with_the_search(index, queries):
    found = index.search(queries[3], k=7, recall=0.9)
    result = index.explain(queries[3], k=7, recall=0.9)
    assert result["ids"] == found.ids.tolist()
    assert result["reads"] == found.stats.reads[0] and result["hops"] == found.stats.hops[0]
    assert 0 < sum(phase["ns"] for phase in result["phases"]) <= result["total_ns"]
    assert sum(part["bytes"] for part in result["memory"]) > 0


def test_counters_and_warmth(index, queries):
    before = index.stats()
    assert index.warm(threads=2)["reads"] > 0
    index.search(queries)
    with pytest.raises(TimeoutError):
        index.search(queries, timeout=0)
    after = index.stats()
    assert after["queries"] >= before["queries"] + len(queries) + 1
    assert after["errors"] == before["errors"] + 1
    lines = [line for line in index.prometheus().splitlines() if not line.startswith("#")]
    assert any(line.startswith("bathyal_reads_total{index=") for line in lines)
    assert all(float(line.rsplit(" ", 1)[1]) >= 0 for line in lines)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_shows_the_counters_that_it_has(family, vectors, queries, tmp_path):
    with bathyal.build(vectors, tmp_path / "i", **small(family)) as index:
        name = family if isinstance(family, str) else index.manifest["family"]
        counters = bathyal.families()[name]["counters"]
        found, within = index.search(queries), index.range_search(queries, 0.0)
        assert set(found.stats.own) == set(within.costs.own) == set(counters)
        for counter in counters:
            assert (getattr(found.stats, counter) == found.stats.own[counter]).all()
            assert found.stats.as_dict()[f"{counter}_per_query"] == found.stats.own[counter].mean()
            assert index.stats()[counter] > 0 and index.explain(queries[0])[counter] >= 0
        with pytest.raises(AttributeError, match="has no 'tables'"):
            found.stats.tables  # noqa: B018
        if name != "spann":
            assert not hasattr(found.stats, "lists") and "lists" not in index.stats()
        copied = copy.deepcopy(found.stats)
        assert set(copied.own) == set(counters) and copied.queries == len(queries)


def test_lsh_searches_aim_for_a_ratio(tmp_path: pathlib.Path) -> None:
    rows = np.random.default_rng(3).standard_normal((900, 12), dtype=np.float32)
    queries = np.random.default_rng(4).standard_normal((40, 12), dtype=np.float32)
    truth, distances = bathyal.groundtruth(rows, queries, k=5, metric="l2")
    with bathyal.build(rows, tmp_path / "tables", family="lsh", metric="l2", tables=4) as index:
        found = index.search(queries, k=5, ratio=1.02)
        judged = bathyal.overall_ratio(found.ids, found.distances, truth, distances, "l2")
        assert judged.mean is not None
        assert judged.mean < 1.03
        assert index.explain(queries[0], k=5, ratio=1.02)["search_list"] == found.stats.search_list
        with pytest.raises(ValueError, match=r"ratio is 0\.5; it must be at least 1"):
            index.search(queries, ratio=0.5)
        with pytest.raises(ValueError, match="give one of them"):
            index.search(queries, ratio=1.05, search_list=50)
    groups = bathyal.build(rows, tmp_path / "groups", metric="l2")
    with groups, pytest.raises(ValueError, match="knows no ratio"):
        groups.search(queries, ratio=1.05)


def test_lsh_searches_read_additional_buckets(tmp_path: pathlib.Path) -> None:
    rows = np.random.default_rng(3).standard_normal((900, 12), dtype=np.float32)
    queries = np.random.default_rng(4).standard_normal((40, 12), dtype=np.float32)
    truth, _ = bathyal.groundtruth(rows, queries, k=5, metric="l2")
    tables = bathyal.build(rows, tmp_path / "tables", family="lsh", metric="l2", tables=2, block_bytes=128)
    with tables as index:
        effort = {"k": 5, "search_list": 900, "probes": 1}
        none = index.search(queries, **effort)
        found = index.search(queries, **effort, multi_probe=4)
        assert bathyal.recall(found.ids, truth) > bathyal.recall(none.ids, truth)
        assert (found.stats.table_reads <= 5 * none.stats.table_reads).all()
        same = index.search(queries, **effort, multi_probe=0)
        assert (same.ids == none.ids).all()
        assert index.explain(queries[0], **effort, multi_probe=4)["entries"] == found.stats.entries[0]
        bathyal.write_vectors(tmp_path / "queries.fbin", queries)
        result = index.search_file(
            tmp_path / "queries.fbin", tmp_path / "found.ibin", **effort, multi_probe=4
        )
        assert result["entries"] == found.stats.entries.sum()
        with pytest.raises(ValueError, match="multi_probe is 65; it must be at most 64"):
            index.search(queries, multi_probe=65)
    groups = bathyal.build(rows, tmp_path / "groups", metric="l2")
    with groups, pytest.raises(ValueError, match="knows no multi_probe"):
        groups.search(queries, multi_probe=1)
