"""The report on object stores: curves, the paper's answers, and its content."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bathyal_bench.repro import cloud, compose
from bathyal_bench.repro.cloud import claims, verdicts
from bathyal_bench.repro.cloud.curves import EVERYWHERE, NOWHERE, at, crossing
from bathyal_bench.repro.cloud.measured import Measured
from bathyal_bench.repro.cloud.verdicts import SPEED_NOISE, above, below, falls, grows
from bathyal_bench.repro.records import Record, read
from bathyal_bench.repro.verdicts import Verdict

KEPT = Path(__file__).parents[2] / "docs/repro/cloud"
AGREES, DIFFERS, NOISE = Verdict.AGREES, Verdict.DIFFERS, Verdict.NOISE
FLAT, LOW = [(0.6, 50.0), (0.99, 50.0)], [(0.6, 1.0), (0.99, 1.0)]


def test_values_are_interpolated_between_neighbours() -> None:
    curve = [(0.8, 100.0), (0.9, 10.0)]
    assert at(curve, 0.5) == 100.0
    assert at(curve, 0.85) == pytest.approx(math.sqrt(1000.0))
    assert at(curve, 0.9) == pytest.approx(10.0)
    assert at(curve, 0.91) is None and at([], 0.5) is None


def test_curves_cross_where_one_stays_above_the_other() -> None:
    recall = crossing(FLAT, [(0.6, 500.0), (0.99, 5.0)])
    # At the middle, in logarithms, both are 50.
    assert recall is not None and 0.79 <= recall <= 0.81
    assert crossing(FLAT, LOW) == EVERYWHERE and crossing(LOW, FLAT) == NOWHERE
    assert crossing([], FLAT) is None


def test_a_ratio_is_above_or_below_1_or_within_the_noise() -> None:
    assert [above(ratio, SPEED_NOISE) for ratio in (1.06, 0.94, 1.04, 0.96)] == [
        AGREES,
        DIFFERS,
        NOISE,
        NOISE,
    ]
    assert [below(ratio, SPEED_NOISE) for ratio in (0.94, 1.06, 0.96, 1.04)] == [
        AGREES,
        DIFFERS,
        NOISE,
        NOISE,
    ]
    # Counters are exact, so equal counts are not fewer.
    assert [below(ratio) for ratio in (0.999, 1.0, 1.001)] == [AGREES, DIFFERS, DIFFERS]
    assert [above(ratio) for ratio in (1.001, 1.0, 0.999)] == [AGREES, DIFFERS, DIFFERS]


def test_the_worst_of_several_verdicts_counts() -> None:
    assert verdicts.all_of([AGREES, AGREES]) == AGREES
    assert verdicts.all_of([AGREES, NOISE]) == NOISE
    assert verdicts.all_of([NOISE, DIFFERS, AGREES]) == DIFFERS


def test_recalls_must_fall_by_more_than_a_step() -> None:
    assert falls([NOWHERE, 0.95, 0.9, EVERYWHERE]) == AGREES
    assert falls([0.95, 0.953, 0.8]) == AGREES
    assert falls([0.95, 0.947]) == NOISE
    assert falls([NOWHERE, NOWHERE]) == falls([0.9, 0.95]) == falls([0.95, 0.8, 0.9]) == DIFFERS


def test_rounds_of_a_graph_grow_and_rounds_of_lists_do_not() -> None:
    assert grows([6.1, 6.3, 6.5], [1.0, 1.0]) == AGREES
    assert grows([6.1, 6.5], [1.0, 1.3]) == NOISE
    assert grows([6.1, 6.5], [1.0, 2.0]) == grows([6.5, 6.1], [1.0, 1.0]) == DIFFERS


def point(index: str, recall: float, speeds: dict[int, float], **fields: object) -> Record:
    """Returns a point of the set `base`."""
    loads = [Record({"concurrency": c, "qps": qps}, "") for c, qps in speeds.items()]
    effort = {"beam_width": 16} if index.startswith("graph") else {}
    known = {
        "set": "base",
        "index": index,
        "recall": recall,
        "loads": loads,
        "vectors": 1000,
        "by": "",
        **effort,
    }
    return Record({"of": "point", "bytes": 1.0, "rounds": 1.0, **known, **fields}, "records.jsonl:2")


def run_of(*sets: tuple[str, int, str]) -> Record:
    return Record({"sets": [Record({"name": n, "dim": d, "element": e}, "") for n, d, e in sets]}, "")


def finding(
    points: list[Record], what: str, run: Record | None = None, cached: list[Record] | None = None
) -> tuple[str, Verdict | None]:
    """Returns the finding and the verdict for the claim that begins with ``what``."""
    everything = claims.all_claims(Measured(run or run_of(("base", 960, "f32")), points, [], cached or []))
    found = [one for one in everything if one.claim.startswith(what)]
    assert len(found) == 1, what
    return found[0].here, found[0].verdict


@pytest.mark.parametrize(("graph", "verdict"), [(50.0, AGREES), (150.0, DIFFERS), (98.0, NOISE)])
def test_lists_are_faster_at_all_recalls(graph: float, verdict: Verdict) -> None:
    # One recall at which the graph is faster is enough, whatever comes after it.
    points = [point("spann", recall, {1: 100.0}) for recall in (0.7, 0.99)]
    points += [point("graph", 0.7, {1: graph}), point("graph", 0.99, {1: 20.0})]
    assert finding(points, "SPANN is faster")[1] == verdict


@pytest.mark.parametrize(("graph", "verdict"), [(150.0, AGREES), (50.0, DIFFERS), (104.0, NOISE)])
def test_a_graph_is_faster_at_high_recall_and_many_at_once(graph: float, verdict: Verdict) -> None:
    points = [point("spann", 0.99, {1: 9.0, 64: 100.0}), point("graph", 0.99, {1: 1.0, 64: graph})]
    here = f"queries/s, graph over spann with 64 at once at 0.990: {graph / 100.0:.2f} times"
    assert finding(points, "DiskANN is faster") == (here, verdict)


@pytest.mark.parametrize(("low", "verdict"), [(30.0, AGREES), (90.0, DIFFERS), (58.5, NOISE)])
def test_fewer_dimensions_shift_the_balance(low: float, verdict: Verdict) -> None:
    points = [point("spann", 0.9, {64: 100.0}), point("graph", 0.9, {64: 60.0})]
    points += [point("spann", 0.9, {64: 100.0}, set="low"), point("graph", 0.9, {64: low}, set="low")]
    run = run_of(("base", 960, "f32"), ("low", 240, "f32"))
    assert finding(points, "fewer dimensions", run)[1] == verdict
    assert finding(points, "smaller elements", run) == ("not measured", None)


@pytest.mark.parametrize(("small", "verdict"), [(30.0, AGREES), (90.0, DIFFERS), (61.0, NOISE)])
def test_smaller_elements_shift_the_balance(small: float, verdict: Verdict) -> None:
    points = [point("spann", 0.9, {64: 100.0}), point("graph", 0.9, {64: 60.0})]
    points += [point("spann", 0.9, {64: 100.0}, set="small"), point("graph", 0.9, {64: small}, set="small")]
    run = run_of(("base", 960, "f32"), ("small", 960, "u8"))
    assert finding(points, "smaller elements", run)[1] == verdict


@pytest.mark.parametrize(
    ("few", "many", "verdict"), [(2.0, 1.5, AGREES), (2.0, 0.5, DIFFERS), (2.0, 1.0, NOISE)]
)
def test_a_denser_graph_is_faster_with_few_and_with_many(few: float, many: float, verdict: Verdict) -> None:
    points = [point("graph", 0.9, {4: 10.0, 64: 10.0})]
    points.append(point("graph-r256", 0.9, {4: 10.0 * few, 64: 10.0 * many}))
    here = f"queries/s with 4 at once {few:.2f} times, with 64 {many:.2f}"
    assert finding(points, "a denser graph is faster") == (here, verdict)


@pytest.mark.parametrize(("lists", "verdict"), [(150.0, AGREES), (105.0, DIFFERS), (121.0, NOISE)])
def test_lists_gain_more_from_a_cache(lists: float, verdict: Verdict) -> None:
    def cached(index: str, beam: int | None, gain: float) -> Record:
        effort = Record({} if beam is None else {"beam_width": beam}, "")
        fields = {"index": index, "effort": effort, "policy": "slru", "part": 4, "hit_rate": 0.5}
        rounds = {"waves": 2.0, "saved_waves": 1.0, "by_wave": [0.9, 0.1, 0.3]}
        return Record({**fields, **rounds, "computed_qps": [[4, 100.0, gain]]}, "records.jsonl:3")

    all_cached = [cached("graph", 16, 120.0), cached("spann", None, lists)]
    assert finding([], "lists gain more", cached=all_cached)[1] == verdict
    assert finding([], "the first rounds", cached=all_cached) == ("first round 0.90, later ones 0.20", AGREES)
    # In the paper a cache saves fewer rounds than it hits.
    assert finding([], "a graph saves fewer", cached=all_cached)[1] == DIFFERS


def test_claims_without_measurements_have_no_verdict() -> None:
    found = claims.all_claims(Measured(run_of(("base", 960, "f32")), [], [], []))
    assert len(found) == 19 and all(one.verdict is None for one in found)


@pytest.mark.parametrize("name", ["hog", "sift"])
def test_claims_match_those_kept_with_the_runs(name: str) -> None:
    run, kept = read(KEPT / name / "records.jsonl")
    points, cached = ([row for row in kept if row["of"] == kind] for kind in ("point", "cached"))
    found = claims.all_claims(Measured(run, points, [], cached))
    expected = [row for row in kept if row["of"] == "claim"]
    assert [(one.answer, one.claim, one.here) for one in found] == [
        (row["answer"], row["claim"], row["here"]) for row in expected
    ]
    holds = {AGREES: True, DIFFERS: False, None: None, NOISE: False}
    assert [holds[one.verdict] for one in found] == [row["holds"] for row in expected]


def test_every_figure_has_its_table_and_plot() -> None:
    document = compose(KEPT / "hog/records.jsonl")
    for part in (
        "Every speed here is emulated",
        "The paper's answers",
        "figures 3 and 7",
        "figure 8",
        "figure 9",
        "figures 2 and 4",
        "figures 10 to 12",
        "figure 13",
        "table 4",
        "figures 14 and 15",
        "figure 16",
        "figures 17 and 18",
        "figure 19",
        "Equations (1) and (2)",
        "figures 5, 6 and 20 to 25",
    ):
        assert part in document.text
    for answer in ("A1", "A2", "A3"):
        assert f"\n| {answer} |" in document.text
    for plot in ("figure-7-c1.svg", "figure-8-bytes.svg", "figure-13-rounds.svg", "figure-21.svg"):
        assert plot in document.plots and f"({plot})" in document.text


def test_an_interrupted_run_has_a_report_of_its_measurements() -> None:
    run, kept = read(KEPT / "sift/records.jsonl")
    text = cloud.report(run, [row for row in kept[:8] if row["index"] == "graph"]).text
    assert "| graph | L 10, W 16 |" in text and "No search was traced." in text and "## Left out" not in text
    assert "The paper's answers" in cloud.report(run, []).text
