"""The report of d-HNSW's runs: its content, and conclusions from the records."""

from __future__ import annotations

from pathlib import Path

from bathyal_bench.repro import compose, d_hnsw
from bathyal_bench.repro.d_hnsw.findings import all_findings
from bathyal_bench.repro.d_hnsw.measured import measured
from bathyal_bench.repro.d_hnsw.verdicts import TIME_NOISE, ahead
from bathyal_bench.repro.records import Record, read

KEPT = Path(__file__).parents[2] / "docs/repro/d-hnsw"


def rows(**values: float) -> list[Record]:
    """Returns a row for each name, with its time."""
    return [Record({"index": name, "us": us}, "records.jsonl:2") for name, us in values.items()]


def leaders(found: list[Record], noise: float) -> list[str]:
    return [row["index"] for row in ahead(found, lambda row: row["us"], noise)]


def test_a_clearly_faster_row_leads_alone() -> None:
    assert leaders(rows(slow=110.0, fast=100.0), TIME_NOISE) == ["fast"]


def test_a_slower_row_does_not_lead() -> None:
    assert "slow" not in leaders(rows(fast=100.0, slow=106.0, slower=300.0), TIME_NOISE)


def test_rows_within_the_noise_lead_together() -> None:
    assert leaders(rows(slower=104.0, fast=100.0, slow=120.0), TIME_NOISE) == ["fast", "slower"]


def test_counters_have_no_noise() -> None:
    assert leaders(rows(more=100.1, less=100.0), 0.0) == ["less"]
    assert leaders(rows(one=7.0, other=7.0), 0.0) == ["one"]
    assert leaders([], TIME_NOISE) == []


def asked(index: str, qps: float) -> Record:
    """Returns the record of an index searched at recall 0.9."""
    fields = {"of": "asked", "set": "base", "index": index, "asked": 0.9, "qps": qps, "bytes": 1e6 / qps}
    return Record({**fields, "alone_p50_us": 1e6 / qps, "alone_bytes": 1e6 / qps}, "records.jsonl:2")


def test_findings_name_all_leaders() -> None:
    found = all_findings(measured("base", [asked("graph", 990.0), asked("cluster", 1000.0)]))
    here = {finding.what: finding.here for finding in found}
    assert here["most queries a second, recall 0.9"] == "cluster (1000 queries/s) and graph (990 queries/s)"
    assert here["fewest bytes alone, recall 0.9"] == "cluster (1000 bytes a query)"


def test_findings_match_those_kept_with_the_runs() -> None:
    for name in ("minilm", "hog", "glove-families", "sift-million"):
        run, kept = read(KEPT / name / "records.jsonl")
        found = [one for of in run["sets"] for one in all_findings(measured(of["name"], kept))]
        expected = [(row["what"], row["here"]) for row in kept if row["of"] == "finding"]
        assert [(one.what, one.here) for one in found] == expected


def test_every_part_has_its_tables_and_plots() -> None:
    document = compose(KEPT / "minilm/records.jsonl")
    for part in (
        "Every time here is emulated",
        "One compute instance",
        "figure 6",
        "tables 1 and 2",
        "reads per doorbell",
        "size of the cache",
        "other families",
        "repro d-hnsw --base base.fbin",
        "reads, naive over d-HNSW",
    ):
        assert part in document.text
    assert list(document.plots) == ["figure-6-base-top1.svg", "figure-6-base-top10.svg"]
    assert all(f"({name})" in document.text for name in document.plots)
    assert "inserts" not in document.text

    inserts = compose(KEPT / "hog/records.jsonl")
    assert "inserts until there are twice as many vectors" in inserts.text
    assert list(inserts.plots) == ["inserts-base.svg"] and "figure 6" not in inserts.text


def test_an_interrupted_run_has_a_report_of_its_measurements() -> None:
    run, kept = read(KEPT / "minilm/records.jsonl")
    naive = [row for row in kept if row["of"] == "row" and row["scheme"] == "naive"]
    text = d_hnsw.report(run, naive).text
    assert "| naive | 48 |" in text and "## Findings" not in text
    assert d_hnsw.report(run, []).text.count("\n## ") == 0


def test_omissions_are_noted() -> None:
    run, kept = read(KEPT / "glove-families/records.jsonl")
    assert d_hnsw.report(run, kept).text.endswith(f"\n## Notes\n\n* {kept[-1]['note']}\n")
