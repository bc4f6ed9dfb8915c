"""The benchmark for graphics cards on a machine without one: measurements, interpolation, and notes on
missing systems.
"""

import json
import math
import pathlib
import sys
import types

import numpy as np
import pytest

import bench_gpu
from bathyal_bench.recall import write_groundtruth
from bench_gpu_report import REPEATS, Cell, Point, Records, at_recall, best, compare, curve, report, table

# A substitute for `bathyal` that records each call.
COMMAND = """#!{python}
import json, pathlib, sys
with open("{calls}", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
word = sys.argv[1]
if word == "build":
    pathlib.Path(sys.argv[3]).mkdir()
if word == "search" and "gpu" in sys.argv:
    sys.exit("there is no driver for a graphics card")
recall = float(sys.argv[sys.argv.index("--recall") + 1]) if word == "search" else 0.0
latency = {{"p50": 100.0, "p99": 200.0}}
print(json.dumps({{"recall": recall, "qps": 1000.0 / recall if recall else 0.0, "latency_us": latency,
                  "reads_per_query": 10.0, "hops_per_query": 1.0}}))
"""


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the command line for a machine without a card."""
    command = tmp_path / "bathyal"
    command.write_text(COMMAND.format(python=sys.executable, calls=tmp_path / "calls"))
    command.chmod(0o755)
    monkeypatch.setattr(bench_gpu, "BATCHES", (64, 256))
    monkeypatch.setattr(bench_gpu, "RECALLS", ("0.9", "0.95"))
    indexes = ("cluster", "graph")
    monkeypatch.setattr(bench_gpu, "INDEXES", {name: bench_gpu.INDEXES[name] for name in indexes})
    devices = {"processor": "cpu", "card": "gpu"}
    searches = {
        f"{name}, {words}": (name, ("--device", device))
        for name in indexes
        for words, device in devices.items()
    }
    monkeypatch.setattr(bench_gpu, "SEARCHES", searches)
    monkeypatch.setattr(
        bench_gpu, "COMMANDS", {"ground truth": ("groundtruth", "{base}", "{query}", "{new}.ibin")}
    )
    words = ["--base", "base.u8bin", "--query", "query.u8bin", "--groundtruth", "gt.ibin", "--threads", "2"]
    return [*words, "--work", str(tmp_path / "work"), "--bathyal", str(command)]


def calls(tmp_path: pathlib.Path) -> list[list[str]]:
    """Returns the arguments of all calls so far."""
    return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def test_measurements_are_not_repeated(
    machine: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench_gpu.main(machine)
    first_calls = calls(tmp_path)
    count = {
        word: sum(call[0] == word for call in first_calls) for word in ("build", "groundtruth", "search")
    }
    # Two indexes, two recalls and two batches, five times on the processor; on the card each row is tried
    # once.
    assert count == {"build": 2, "groundtruth": REPEATS, "search": 2 * 2 * 2 * REPEATS + 2}
    in_flight = [call[call.index("--in-flight") + 1] for call in first_calls if call[0] == "search"]
    assert set(in_flight) == {"32", "128"}
    text = (tmp_path / "work/report.md").read_text()
    assert "there is no driver for a graphics card" in text
    assert "cuVS was not measured" in text and "pip install cuvs-cu12" in text
    assert "| cluster, processor | 0.9 | 64 | 1111 | - |" in text and text in capsys.readouterr().out
    # Only an incomplete last line is measured again.
    records = tmp_path / "work/records.jsonl"
    lines = records.read_text().splitlines()
    records.write_text("\n".join(lines)[:-5])
    bench_gpu.main([*machine, "--stages", "search,commands"])
    again = calls(tmp_path)[len(first_calls) :]
    assert len(again) == 1 + 2 and records.read_text().splitlines()[:-1] == lines[:-1]


def test_a_stage_ends_in_time_and_reports_missing_measurements(
    machine: list[str], tmp_path: pathlib.Path
) -> None:
    bench_gpu.main([*machine, "--stages", "index"])
    bench_gpu.main([*machine, "--stages", "search,report", "--minutes", "0"])
    assert [call[0] for call in calls(tmp_path)] == ["build", "build"]
    report = json.loads((tmp_path / "work/report.json").read_text())
    assert report["compared"] == [] and report["notes"] == [
        "80 measurements of search are missing: run it again"
    ]
    with pytest.raises(SystemExit):
        bench_gpu.main([*machine, "--stages", "walk"])


def test_an_additional_search_is_measured(
    machine: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"cluster, one thread": ("cluster", ("--device", "cpu", "--threads", "1"))}
    monkeypatch.setattr(bench_gpu, "SEARCHES", row)
    bench_gpu.main([*machine, "--stages", "search"])
    assert not (tmp_path / "calls").exists()
    bench_gpu.main([*machine, "--stages", "index,search"])
    assert {call[0] for call in calls(tmp_path)[2:]} == {"search"} and len(calls(tmp_path)) == 2 + 4 * REPEATS


def test_dominated_points_are_left_out() -> None:
    points = [
        Point(0.9, 100.0, None),
        Point(0.95, 120.0, 5.0),
        Point(0.95, 90.0, 1.0),
        Point(0.99, 10.0, 6.0),
    ]
    assert curve(points) == [points[1], points[3]]
    assert curve([]) == []


def test_throughput_is_interpolated_over_recall() -> None:
    points = [Point(0.98, 100.0, 7.0), Point(0.9, 10_000.0, 5.0)]
    assert at_recall(points, 0.94) == Point(0.94, pytest.approx(1000.0), 7.0)
    assert at_recall(points, 0.98) == Point(0.98, 100.0, 7.0)
    # A point with more recall than requested is at least as fast.
    assert at_recall(points, 0.5) == Point(0.5, 10_000.0, 5.0)
    assert at_recall(points, 0.99) is None and at_recall([], 0.9) is None


def records_of(
    tmp_path: pathlib.Path, rows: list[tuple[str, str, str, int, float, float, float | None]]
) -> Records:
    """Records with one measurement per row."""
    records = Records(tmp_path / "records.jsonl")
    for stage, system, effort, batch, recall, qps, card_bytes in rows:
        records.add(
            Cell(stage, system, effort, batch), {"recall": recall, "qps": qps, "card_bytes": card_bytes}
        )
    return records


def test_ratios_to_other_systems_are_at_equal_recall(tmp_path: pathlib.Path) -> None:
    rows: list[tuple[str, str, str, int, float, float, float | None]] = [
        ("search", "graph, card", "0.95", 64, 0.95, 300.0, 50.0),
        ("search", "graph, card", "0.95", 64, 0.95, 500.0, 50.0),
        ("search", "graph, card", "0.95", 64, 0.95, 400.0, 50.0),
        ("search", "graph, processor", "0.95", 64, 0.95, 9000.0, None),
        ("search", "graph, card", "0.95", 256, 0.95, 800.0, 60.0),
        ("cuvs", "cuVS cagra", "32", 64, 0.94, 200.0, 100.0),
        ("cuvs", "cuVS cagra", "64", 64, 0.96, 200.0, 100.0),
        ("cuvs", "cuVS cagra", "64", 256, 0.96, 1600.0, 100.0),
    ]
    records = records_of(tmp_path, rows)
    compared = compare(records)
    at = {(row["recall"], row["system"], row["batch"]): row for row in compared}
    ours = at[0.95, "graph, card", 64]
    # The median of three, divided by the other system's figure for the same batch only.
    assert ours["qps"] == 400.0 and ours["over"] == {"cuVS cagra": {"qps": 2.0, "card_bytes": 0.5}}
    assert at[0.95, "graph, processor", 64]["over"]["cuVS cagra"]["card_bytes"] is None
    assert at[0.95, "cuVS cagra", 64]["over"] == {}
    assert not any(recall == 0.99 for recall, _, _ in at)
    # The best rows compare systems on the card only, not the processor.
    (first,) = [row for row in best(compared) if row["recall"] == 0.95]
    assert (first["ours_batch"], first["theirs_batch"], first["qps"]) == (256, 256, 0.5)
    text, data = report(records, ["something was left out"])
    assert "* something was left out" in text and data["best"][-1]["card_bytes"] == 0.6
    assert "| graph, card | 0.95 | 64 | 400 | 0.0 | 2.00 | 0.50 |" in text
    # Written records are read again.
    assert compare(Records(records.path)) == compared


def test_tables_are_markdown() -> None:
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |\n"


class OnCard:
    """A substitute for an array in the card's memory."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.shape = rows, rows.shape

    def copy_to_host(self) -> np.ndarray:
        return self.rows


def neighbours(vectors: OnCard, queries: OnCard, k: int) -> OnCard:
    """Returns the ids of the nearest vectors."""
    distances = ((queries.rows[:, None].astype(float) - vectors.rows[None].astype(float)) ** 2).sum(axis=2)
    return OnCard(np.argsort(distances, axis=1, kind="stable")[:, :k])


def test_cuvs_is_called_with_the_signatures_of_its_wheel(
    machine: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules with the signatures of the wheel replace cuVS, and search exactly."""
    free = iter(range(10**9, 0, -(10**6)))

    def module(name: str, **members: object) -> types.ModuleType:
        made = types.ModuleType(name)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    def keyword(**given: object) -> dict[str, object]:
        return given

    def found(parameters: dict[str, int], index: OnCard, queries: OnCard, k: int) -> tuple[None, OnCard]:
        assert next(iter(parameters.values())) > 0
        return None, neighbours(index, queries, k)

    def refine(dataset: OnCard, queries: OnCard, candidates: OnCard, k: int) -> tuple[None, OnCard]:
        assert candidates.shape[1] == 4 * k
        return None, neighbours(dataset, queries, k)

    def build(parameters: dict[str, object], dataset: OnCard) -> OnCard:
        assert parameters["metric"] == "sqeuclidean"
        return dataset

    parts = {"IndexParams": keyword, "SearchParams": keyword, "build": build, "search": found}
    module("cuda")
    runtime = module(
        "cuda.bindings.runtime", cudaMemGetInfo=lambda: (0, next(free), 10**9), cudaFree=lambda _: (0,)
    )
    module("cuda.bindings", runtime=runtime)
    module("pylibraft")
    module("pylibraft.common", device_ndarray=OnCard)
    module("cuvs")
    module("cuvs.neighbors", refine=refine)
    module("cuvs.neighbors.cagra", **parts)
    module("cuvs.neighbors.ivf_pq", **parts)
    monkeypatch.delitem(sys.modules, "bench_gpu_cuvs", raising=False)

    random = np.random.default_rng(1)
    base, query = (random.integers(0, 256, (rows, 8), dtype=np.uint8) for rows in (300, 70))
    for name, rows in (("base", base), ("query", query)):
        with open(tmp_path / f"{name}.u8bin", "wb") as file:
            np.array(rows.shape, "<u4").tofile(file)
            rows.tofile(file)
    ids = neighbours(OnCard(base), OnCard(query), 20).rows
    distances = ((query[:, None].astype(float) - base[ids].astype(float)) ** 2).sum(axis=2)
    write_groundtruth(tmp_path / "gt.ibin", ids, distances)
    monkeypatch.setattr(bench_gpu, "PEERS", {"cagra": (8, 32), "ivf_pq": (8,), "ivf_rabitq": (8,)})
    monkeypatch.chdir(tmp_path)
    bench_gpu.main([*machine, "--stages", "cuvs,report"])
    monkeypatch.delitem(sys.modules, "bench_gpu_cuvs")

    records = Records(tmp_path / "work/records.jsonl")
    # CAGRA needs at least as many candidates as neighbours; the wheel has no IVF-RaBitQ.
    measured = {(cell.system, cell.effort, cell.batch): records.count(cell) for cell in records.of("cuvs")}
    cells = [("cuVS cagra", "32"), ("cuVS ivf_pq", "8")]
    assert measured == {(*cell, batch): REPEATS for cell in cells for batch in (64, 256)}
    for cell in records.of("cuvs"):
        assert records.median(cell, "recall") == 1.0 and records.median(cell, "card_bytes") == 10**6
        assert math.isfinite(records.median(cell, "qps") or math.nan)
    text = (tmp_path / "work/report.md").read_text()
    assert "cuVS ivf_rabitq was not measured: ModuleNotFoundError" in text
