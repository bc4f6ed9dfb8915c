"""Advice before a build, the plan of a build, and the measurement of a device."""

import json
import pathlib
import xml.etree.ElementTree

import numpy as np
import pytest

import bathyal

RANDOM = np.random.default_rng(5)
CENTRES = RANDOM.normal(size=(40, 24)) * 3
VECTORS = (CENTRES[RANDOM.integers(0, 40, 6000)] + RANDOM.normal(size=(6000, 24))).astype(np.float32)
QUERIES = (CENTRES[RANDOM.integers(0, 40, 200)] + RANDOM.normal(size=(200, 24))).astype(np.float32)
QUICK = {"on": ["dram"], "pace": "quick", "threads": 1, "progress": False}


def test_advice_is_a_table_whose_first_index_is_built_as_predicted(tmp_path: pathlib.Path) -> None:
    advice = bathyal.advise(VECTORS, QUERIES, families=["cluster", "flat"], disk="100MB", **QUICK)
    assert {one["build"]["family"] for one in advice.ranked} == {"cluster", "flat"}
    best = advice.ranked[0]
    assert repr(advice).splitlines()[1].strip().startswith(best["label"])
    shown = advice._repr_html_()
    xml.etree.ElementTree.fromstring(shown)
    assert shown.count("<tr>") == 1 + len(advice.ranked) and f"<td>{best['label']}</td>" in shown
    index = bathyal.build(VECTORS, tmp_path / "idx", progress=False, **advice.build_options())
    assert index.manifest["family"] == best["build"]["family"]
    size = sum(file.stat().st_size for file in (tmp_path / "idx").rglob("*.bin"))
    assert size == pytest.approx(best["disk_bytes"]["value"], rel=0.05)
    batch = index.explain(QUERIES[:50])["plan"]
    assert [number["name"] for number in batch["numbers"]][:3] == ["rounds", "reads", "bytes read"]
    assert "for k 10, and this search has k 3" in " ".join(
        index.explain(QUERIES[0], k=3)["plan"]["differences"]
    )
    index.close()
    advice.save(tmp_path / "plan.json")
    compared = bathyal.check_plan(tmp_path / "idx", QUERIES, tmp_path / "plan.json", progress=False)
    assert set(bathyal.check_plan(tmp_path / "idx", QUERIES, progress=False)) == set(compared)
    by_name = {number["name"]: number for number in compared["numbers"]}
    assert by_name["index bytes"]["within"] and by_name["reads a query"]["measured"] > 0


def test_limits_that_nothing_meets_name_the_reasons(tmp_path: pathlib.Path) -> None:
    advice = bathyal.advise(VECTORS, families=["cluster"], memory="1kB", **QUICK)
    assert advice.ranked == [] and "memory" in advice.left_out[0]["reasons"][0]
    assert "left out: " in repr(advice) and "<li>" in advice._repr_html_()
    with pytest.raises(ValueError, match=r"rank is 0, but 0 indexes meet all limits: memory"):
        advice.build_options()
    with pytest.raises(ValueError, match="0 indexes meet all limits"):
        advice.save(tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()


def test_a_page_has_each_index_and_parses_as_markup(tmp_path: pathlib.Path) -> None:
    advice = bathyal.advise(VECTORS, QUERIES, families=["cluster", "flat"], **QUICK)
    advice.save_page(tmp_path / "advice.html")
    advice.save_page(tmp_path / "advice.svg")
    page = xml.etree.ElementTree.parse(tmp_path / "advice.html").getroot()
    cells = [cell.text for cell in page.iter("td")]
    assert all(cells.count(one["label"]) >= 1 for one in advice.ranked) and not list(page.iter("script"))
    plot = xml.etree.ElementTree.parse(tmp_path / "advice.svg").getroot()
    texts = [(text.text or "").strip() for text in plot.iter("{http://www.w3.org/2000/svg}text")]
    # Size is memory in one part of the plot, and disk in the other.
    assert all(texts.count(f"{one['label']} on {one['tier']}") == 2 for one in advice.ranked)
    for name, message in [("advice.pdf", ".html"), ("none/advice.html", "folder")]:
        with pytest.raises(ValueError, match=message):
            advice.save_page(tmp_path / name)


def test_several_recalls_are_answered_at_once(tmp_path: pathlib.Path) -> None:
    advice = bathyal.advise(VECTORS, QUERIES, recall=[0.9, 0.99], families=["cluster"], **QUICK)
    (other,) = advice.other_recalls
    assert (advice.report["recall"], other.report["recall"]) == (pytest.approx(0.9), pytest.approx(0.99))
    assert advice.ranked[0]["reads"]["value"] < other.ranked[0]["reads"]["value"]
    other.save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["recall"] == pytest.approx(0.99)
    for recalls, message in [([], "empty"), ([0.9, 0.9], "twice")]:
        with pytest.raises(ValueError, match=message):
            bathyal.advise(VECTORS, recall=recalls, **QUICK)


def test_a_ratio_is_asked_for_as_the_least_recall_that_has_it(tmp_path: pathlib.Path) -> None:
    advice = bathyal.advise(VECTORS, QUERIES, ratio=1.001, families=["cluster"], **QUICK)
    best = advice.ranked[0]
    assert advice.report["ratio"] == pytest.approx(1.001) and best["pilot_ratio"] <= 1.001
    assert f"searched with recall {best['recall']:g}, which has ratio" in repr(advice)
    index = bathyal.build(VECTORS, tmp_path / "idx", progress=False, **advice.build_options())
    ids, distances = bathyal.groundtruth(VECTORS, QUERIES, metric="l2", k=10, progress=False)
    found = index.search(QUERIES, k=10, recall=best["recall"])
    assert bathyal.overall_ratio(found.ids, found.distances, ids, distances, metric="l2").mean <= 1.002
    index.close()
    with pytest.raises(ValueError, match="leave one of them out"):
        bathyal.advise(VECTORS, ratio=1.05, recall=0.9, **QUICK)


def test_prices_change_the_costs_and_unknown_ones_are_refused() -> None:
    one = {"families": ["flat"], **QUICK}
    usual = bathyal.advise(VECTORS, QUERIES, **one).ranked[0]["dollars_per_month"]
    free = bathyal.advise(VECTORS, QUERIES, prices={"thread_hour": 0}, **one).ranked[0]["dollars_per_month"]
    assert usual - free == pytest.approx(0.04 * 730, rel=1e-6)
    with pytest.raises(ValueError, match=r"prices: unknown field `ram`.*dram_gb_month"):
        bathyal.advise(VECTORS, prices={"ram": 1}, **QUICK)


def test_filters_of_a_collection_that_changes_are_predicted() -> None:
    advice = bathyal.advise(
        VECTORS, QUERIES, vectors=500_000, rows_a_day=10_000, filters=[0.1], families=["cluster"], **QUICK
    )
    best = advice.ranked[0]
    assert best["updates"]["segments"] > 1 and best["filters"][0]["share"] == 0.1
    assert "a filter that 10% match" in repr(advice) and "10,000 rows replaced a day" in repr(advice)


def test_data_is_assumed_if_there_is_none() -> None:
    advice = bathyal.advise(vectors=1_000_000, dim=32, families=["cluster"], **QUICK)
    assert advice.report["assumed"]["widened_by"] > 1 and "no data was given" in advice.notes[0]
    best = advice.ranked[0]
    assert best["reads"]["high"] > 2 * best["reads"]["value"]
    assert best["disk_bytes"]["low"] >= 1_000_000 * 32 * 4
    for arguments, message in [
        ({}, "give data, or vectors and dim"),
        ({"vectors": 10_000}, "give data, or vectors and dim"),
        ({"data": VECTORS, "vectors": 10_000, "dim": 24}, "dim is of vectors that do not exist"),
        ({"data": VECTORS, "element": "u8"}, "element is of vectors that do not exist"),
        ({"vectors": 10_000, "dim": 24, "queries": QUERIES}, "queries need data"),
        ({"vectors": 10_000, "dim": 0}, "dim"),
        ({"vectors": 10, "dim": 24}, "10 vectors"),
        ({"vectors": 10_000, "dim": 24, "element": "f64"}, "element"),
    ]:
        with pytest.raises(ValueError, match=message):
            bathyal.advise(**{**QUICK, **arguments})


def test_bad_requests_are_refused(tmp_path: pathlib.Path) -> None:
    for arguments, message in [
        ({"data": VECTORS[:1000]}, "1000"),
        ({"data": np.ones((3000, 4), np.float32)}, "same"),
        ({"data": VECTORS, "pace": "fast"}, 'pace is "fast"; expected quick, usual or thorough'),
        ({"data": VECTORS, "families": ["tree"]}, "tree"),
        ({"data": VECTORS, "recall": 1.5}, "recall"),
        ({"data": VECTORS, "qps": -1.0}, "-1"),
        ({"data": VECTORS, "on": [tmp_path / "none.json"]}, "none.json"),
        ({"data": VECTORS, "vectors": 10}, "10 vectors"),
    ]:
        with pytest.raises(ValueError, match=message):
            bathyal.advise(**{**QUICK, "families": ["cluster"], **arguments})
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ValueError, match="no plan_version"):
        bathyal.check_plan(tmp_path / "idx", QUERIES, tmp_path / "plan.json")


def test_a_plan_is_kept_only_if_it_fits(tmp_path: pathlib.Path) -> None:
    advice = bathyal.advise(VECTORS, families=["cluster"], **QUICK)
    advice.save(tmp_path / "plan.json")
    arguments = {"advice": tmp_path / "plan.json", "progress": False}
    with pytest.raises(ValueError, match="leave family, code_bytes out"):
        bathyal.build(VECTORS, tmp_path / "idx", family="cluster", code_bytes=16, **arguments)
    with pytest.raises(ValueError, match="dim 24, and this is 12"):
        bathyal.build(VECTORS[:, :12], tmp_path / "idx", **arguments)
    with pytest.raises(ValueError, match="metric l2, and this is ip"):
        bathyal.build(VECTORS, tmp_path / "idx", metric="ip", **arguments)
    text = (tmp_path / "plan.json").read_text(encoding="utf-8")
    (tmp_path / "plan.json").write_text(text.replace('"k": 10', '"k": 11'), encoding="utf-8")
    with pytest.raises(ValueError, match="advice: the plan was changed"):
        bathyal.build(VECTORS, tmp_path / "idx", **arguments)
    assert not (tmp_path / "idx").exists()
    # Another format of the same plan is the same plan; fewer vectors than planned are built with a warning.
    (tmp_path / "plan.json").write_text(json.dumps(json.loads(text)), encoding="utf-8")
    with pytest.warns(UserWarning, match="of 6000, and this is 3000"):
        index = bathyal.build(VECTORS[:3000], tmp_path / "idx", **arguments)
    assert index.manifest["plan"]["vectors"] == 6000 and index.build_report["family"] == "cluster"
    bathyal.build(VECTORS[:500], tmp_path / "other", progress=False).close()
    with pytest.raises(ValueError, match="keeps no plan"):
        bathyal.check_plan(tmp_path / "other", QUERIES)


def test_a_measured_device_is_a_profile_for_advice(tmp_path: pathlib.Path) -> None:
    report = bathyal.probe(tmp_path, progress=False)
    assert report["profile"]["iops"] > 0 and report["cells"]
    profile = tmp_path / "disk.json"
    profile.write_text(json.dumps(report["profile"] | {"iops": 1000.0}))
    advice = bathyal.advise(VECTORS, families=["cluster"], **{**QUICK, "on": [profile]})
    best = advice.ranked[0]
    load = next(load for load in best["loads"] if load["concurrency"] == 64)
    assert load["queries_per_second"]["value"] == pytest.approx(1000 / best["reads"]["value"], rel=0.02)


def test_a_bucket_is_predicted_with_its_first_byte_and_its_prices() -> None:
    address, store = "memory://advice/measured", {"emulate": "rack", "price_reads": "0.4"}
    bathyal.build(VECTORS, address, family="flat", progress=False).close()
    arguments = {**QUICK, "families": ["cluster"], "concurrency": 1}
    advice = bathyal.advise(VECTORS, QUERIES, **{**arguments, "on": [address]}, store_options=store)
    device, best = advice.report["devices"][0], advice.ranked[0]
    assert device["kind"]["bucket"]["million_reads"] == 0.4
    load = next(load for load in best["loads"] if load["concurrency"] == 1)
    # A query waits for the first byte of each round at least.
    least = best["rounds"]["value"] * device["profile"]["latency_ns"] / 1e9
    assert 0 < load["queries_per_second"]["value"] < 1 / least
    assert best["dollars_per_million"] > 0.4 * best["reads"]["value"]
    for place, options, message in [
        ("memory://advice/none", store, "measured by reads of an index there"),
        ("dram", store, "store options are for the addresses"),
    ]:
        with pytest.raises((ValueError, bathyal.Error), match=message):
            bathyal.advise(VECTORS, **{**arguments, "on": [place]}, store_options=options)


def test_a_plan_has_the_memory_and_the_files_of_a_build(tmp_path: pathlib.Path) -> None:
    plan = bathyal.plan(VECTORS, "l2", "cluster", code_bytes=16, threads=1)
    bathyal.build(
        VECTORS, tmp_path / "idx", family="cluster", code_bytes=16, threads=1, progress=False
    ).close()
    size = sum(file.stat().st_size for file in (tmp_path / "idx").rglob("*.bin"))
    assert plan["least_index_bytes"] <= size <= plan["most_index_bytes"]
    assert bathyal.plan(VECTORS, memory="1kB")["memory"]["fits"] is False
    with pytest.raises(TypeError, match="code_byte"):
        bathyal.plan(VECTORS, code_byte=16)


def test_reports_of_plans_and_devices_are_tables_in_a_notebook(tmp_path: pathlib.Path) -> None:
    plan = bathyal.plan(VECTORS, metric="l2", family="cluster")
    shown = xml.etree.ElementTree.fromstring(f"<div>{plan._repr_html_()}</div>")
    assert len(list(shown.iter("tr"))) == 1 + len(plan["files"])
    assert any((item.text or "").startswith("memory planned_bytes: ") for item in shown.iter("li"))
    device = bathyal.probe(tmp_path, progress=False)
    shown = xml.etree.ElementTree.fromstring(f"<div>{device._repr_html_()}</div>")
    assert len(list(shown.iter("tr"))) == 1 + len(device["cells"])
    assert json.loads(json.dumps(device)) == device
