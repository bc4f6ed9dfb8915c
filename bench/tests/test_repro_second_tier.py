"""Reports of second-tier memory: their content, and the comparison of measurements with the paper."""

import math
from pathlib import Path

import pytest

from bathyal_bench import repro
from bathyal_bench.repro import records
from bathyal_bench.repro.records import Record
from bathyal_bench.repro.second_tier import cluster_findings, compare, findings, graph, model, trial, verdicts
from bathyal_bench.repro.second_tier.lists import COUPLED, DECOUPLED, GROUPED, Lists
from bathyal_bench.repro.verdicts import Verdict

KEPT = Path(__file__).parents[2] / "docs/repro"
HEAD = ["Devices are emulated", "| the paper |"]


def kept(experiment):
    """Returns the records of a kept run."""
    return records.read(KEPT / f"second-tier-{experiment}" / records.FILE_NAME)


def row(qps, **fields):
    """Returns a row with as many samples as ``qps`` has numbers; the second is the median."""
    samples = [Record({"qps": one}, "here:1") for one in qps]
    return Record({"qps": qps[1], "samples": samples, "amplification": 1.5} | fields, "here:1")


@pytest.mark.parametrize(
    ("experiment", "parts", "plots"),
    [
        (
            "graph",
            [
                "Devices are emulated",
                "Figure 4",
                "Figure 8 (a)",
                "Figure 8 (d)",
                "Figure 9",
                "Queries in flight",
            ],
            ["figure-4-throughput.svg", "figure-9-cxl.svg", "figure-9-rdma.svg", "in-flight.svg"],
        ),
        (
            "cluster",
            [
                *HEAD,
                "Figure 4",
                "Figure 10",
                "Figure 12",
                "Equation 1",
                "repro second-tier cluster base.u8bin",
            ],
            ["figure-4-lists.svg", "figure-10-file.svg", "figure-10-size.svg", "figure-12-cxl.svg"],
        ),
        (
            "compare",
            [*HEAD, "Figure 13", "Table 5", "lists, grouped", "graph, csr", "codes, resident"],
            ["figure-13-nvm.svg"],
        ),
    ],
)
def test_reports_have_every_figure(experiment, parts, plots):
    made = repro.compose(KEPT / f"second-tier-{experiment}" / records.FILE_NAME)
    for part in parts:
        assert part in made.text, part
    for plot in plots:
        assert plot in made.text and plot in made.plots, plot


def test_a_run_without_files_and_with_one_layout_omits_what_needs_them():
    run, rows = kept("graph")
    run = Record(run | {"file_queries": None, "layouts": ["csr"]}, run.where)
    rows = [one for one in rows if one["layout"] == "csr" and one["device"] != "file"]
    made = graph.report(run, rows)
    assert "from files" not in made.text and "Figure 4a" not in made.text and "(d) to (f)" not in made.text
    assert "## Figure 9" in made.text and "figure-9-cxl.svg" in made.plots


def test_a_finding_is_compared_with_a_range():
    def finding(here, reach=()):
        return findings.findings("speed", "cxl", (1.3, 1.7), here, findings.times, reach)

    for here, verdict, text in [
        ([1.0], "lower", "1.00"),
        ([1.4, 1.31], "as in the paper", "1.31 to 1.40"),
        ([2.0, 3.0], "higher", "2.00 to 3.00"),
        ([1.0, 1.5], "in part", "1.00 to 1.50"),
        ([1.0, 9.0, math.nan], "in part", "1.00 to 9.00"),
    ]:
        (found,) = finding(here)
        assert (found.verdict, found.here) == (verdict, text)
    assert finding([math.nan]) == [] and finding([]) == []
    # A round within the paper's range leaves the question open; with several values every one needs such a
    # round.
    assert finding([1.2], [(1.1, 1.35)])[0].verdict == "within the noise"
    assert finding([1.2], [(1.1, 1.25)])[0].verdict == "lower"
    assert finding([1.8, 1.5], [(1.65, 1.9), (1.4, 1.6)])[0].verdict == "within the noise"
    assert finding([1.8, 9.0], [(1.65, 1.9), (8.0, 9.5)])[0].verdict == "higher"


def test_findings_are_formatted_by_their_unit():
    (at_least,) = findings.findings("speed", "cxl", (0.62, math.inf), [0.7], findings.share)
    assert (at_least.paper, at_least.here, at_least.verdict) == ("62% or more", "70%", "as in the paper")
    (plain,) = findings.findings("lists", "file", (20.0, 20.0), [120.0], findings.plain)
    assert (plain.paper, plain.here) == ("20.0", "120")
    (noise,) = findings.findings("speed", "nvm", (2.0, 3.0), [1.9], findings.times, [(1.8, 2.1)])
    text = findings.findings_table([at_least, plain, noise])
    assert "| 70% | as in the paper |" in text and "| 120 | **higher** |" in text
    assert "| 1.90 | within the noise |" in text


def test_quotients_are_taken_within_rounds():
    above, below = row([10.0, 12.0, 20.0]), row([10.0, 8.0, 10.0])
    assert verdicts.quotients(above, below) == (1.0, 2.0)
    assert verdicts.quotients(row([5.0, 5.0, 5.0]), row([5.0, 5.0, 5.0])) == (1.0, 1.0)
    # The quotient of the medians may be outside those of all rounds.
    assert verdicts.quotients(row([1.0, 3.0, 9.0]), row([9.0, 1.0, 3.0])) == (1 / 9, 3.0)


@pytest.mark.parametrize(
    ("grouped", "verdict"),
    [
        ([14.0, 15.0, 16.0], "as in the paper"),
        ([9.0, 10.0, 11.0], "lower"),
        ([11.0, 12.0, 13.5], "within the noise"),
    ],
)
def test_grouped_lists_are_compared_with_decoupled_ones(grouped, verdict):
    common = {
        "family": "lists",
        "device": "emulated cxl",
        "in_flight": 16,
        "replicas": 2,
        "reads_per_query": 1.0,
    }
    rows = [
        row([10.0, 10.0, 10.0], layout=DECOUPLED, **common),
        row(grouped, layout=GROUPED, **common),
    ]
    lists = Lists(Record({"in_flight": 16}, "here:1"), rows)
    found = {one.what: one for one in cluster_findings.grouping_findings(lists, "emulated cxl")}
    assert found["throughput, grouped to decoupled"].verdict == verdict
    assert found["reads that grouping removes"].verdict == "lower"


@pytest.mark.parametrize(
    ("last", "verdict"),
    [([6.9, 7.0, 7.1], "as in the paper"), ([9.0, 9.5, 9.9], "lower"), ([6.0, 9.0, 9.0], "within the noise")],
)
def test_the_loss_from_replicas_is_compared_with_the_paper(last, verdict):
    (found,) = cluster_findings.decoupled_findings([row([10.0, 10.0, 10.0]), row(last)], "file")
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        ([49.0, 50.0, 51.0], "as in the paper"),
        ([19.0, 20.0, 21.0], "lower"),
        ([19.0, 39.0, 41.0], "within the noise"),
    ],
)
def test_the_gain_from_replicas_on_files_is_compared_with_the_paper(last, verdict):
    first = row([10.0, 10.0, 10.0], lists_per_query=240.0, layout=COUPLED)
    found = list(cluster_findings.replica_findings([first, row(last, lists_per_query=20.0, layout=COUPLED)]))
    assert [one.verdict for one in found] == ["as in the paper", verdict, "lower"]
    assert list(cluster_findings.replica_findings([first])) == []


@pytest.mark.parametrize(
    ("grouped", "verdict"),
    [
        ([19.0, 20.0, 21.0], "as in the paper"),
        ([80.0, 90.0, 95.0], "higher"),
        ([13.0, 13.9, 14.2], "within the noise"),
    ],
)
def test_grouped_lists_are_compared_with_files(grouped, verdict):
    common = {"family": "lists", "in_flight": 16, "replicas": 1}
    rows = [
        row(grouped, layout=GROUPED, device="emulated nvm", index_bytes=20, **common),
        row([10.0, 10.0, 10.0], layout=COUPLED, device="file", index_bytes=100, **common),
    ]
    lists = Lists(Record({"in_flight": 16}, "here:1"), rows)
    size, gain = cluster_findings.file_findings(lists, "emulated nvm")
    assert (size.verdict, gain.verdict) == ("as in the paper", verdict)


@pytest.mark.parametrize(
    ("qps", "verdict"),
    [
        ([22.0, 22.0, 22.0], "as in the paper"),
        ([30.0, 31.0, 32.0], "higher"),
        ([20.0, 21.0, 23.0], "within the noise"),
    ],
)
def test_the_graph_is_compared_with_the_lists(qps, verdict):
    # Exactly representable sizes and bytes: the lists are a third as large and read twenty-five times as many
    # bytes.
    faster = row(qps, max_degree=32, bytes_per_query=4.0, index_bytes=300)
    lists = row([10.0, 10.0, 10.0], replicas=1, bytes_per_query=100.0, index_bytes=100, amplification=1.2)
    found = list(compare.findings_on("emulated cxl", faster, lists))
    assert [one.verdict for one in found] == [
        verdict,
        "as in the paper",
        "as in the paper",
        "as in the paper",
    ]
    assert found[0].what == "throughput, fastest graph (max_degree 32) to fastest grouped lists (1 replicas)"
    # The paper has no claims about other devices, and about files only one about speed, which needs a
    # measurement.
    assert len(list(compare.findings_on("emulated ssd", faster, lists))) == 3
    assert list(compare.findings_on("file", faster, lists)) == []


def test_kept_findings_cover_every_device():
    run, rows = kept("cluster")
    found = list(cluster_findings.findings_of(Lists(run, rows)))
    assert {one.place for one in found if one.what == "reads that grouping removes"} == {
        "emulated cxl",
        "emulated nvm",
        "emulated rdma",
        "file",
    }
    run, rows = kept("compare")
    found = compare.findings_of(compare.Measured(run, rows))
    assert {"emulated nvm", "graph, csr", "lists, grouped"} <= {one.place for one in found}


@pytest.mark.parametrize(
    ("amplification", "verdict"),
    [(1.66, Verdict.AGREES), (1.7, Verdict.DIFFERS), (1.9, Verdict.DIFFERS)],
)
def test_a_graph_is_small_enough_or_not(amplification, verdict):
    assert verdicts.small_enough(amplification) is verdict


def test_the_summary_compares_the_size_of_a_graph_with_the_papers():
    more = {"share_of_dram": 0.9, "processor_share_of_dram": 0.9, "max_degree": 8, "layout": "csr"}
    small = row([1.0, 1.0, 1.0], **more)
    fast = row([1.0, 2.0, 2.0], **more | {"max_degree": 16})
    large = row([9.0, 9.0, 9.0], **more | {"amplification": 1.8, "max_degree": 64})
    line = graph.summary_line("emulated cxl", [small, fast, large])
    assert "at amplification 1.50, the fastest below the paper's 1.7: degree 16, csr" in line
    line = graph.summary_line("emulated cxl", [large])
    assert "at amplification 1.80, above the paper's 1.7: degree 64" in line
    assert graph.summary_line("emulated cxl", []) == ""


def test_the_error_of_the_model_covers_all_predicted_cells():
    def cell(error):
        return Record({"error": error, "processor_error": error}, "here:1")

    line = model.error_line([cell(None), cell(-0.3), cell(0.1), cell(0.2)])
    assert (
        line == "* cost model: error 20.0% in the median of 3 cells, 30.0% at worst (cpu 20.0% and 30.0%)\n"
    )
    assert model.error_line([cell(None)]) == ""


def device(**fields):
    known = {
        "name": "store",
        "latency_ns": 1000,
        "bandwidth_bytes_per_s": 1e9,
        "granularity": 64,
        "issue_ns": 0,
    }
    return Record(known | fields, "here:1")


def test_equations_1_and_3_match_the_papers():
    """The numbers of the cost model's Rust tests."""
    small = {
        "reads_per_query": 320.0,
        "small_reads_per_query": 300.0,
        "vector_bytes": 128,
        "hops_per_query": 2.0,
    }
    grouped = Record({"bytes_per_query": 20.0 * 4096.0 + 300.0 * 128.0} | small, "here:1")
    assert model.payload_qps(device(), grouped) == 1e9 / grouped["bytes_per_query"]
    assert model.payload_qps(device(bandwidth_bytes_per_s=0.0), grouped) == math.inf
    # Vectors of 128 bytes fit granules of 64 and 256 bytes, and take a whole granule of 4096; lists touch one
    # granule more.
    assert model.transferred_bytes(grouped, 64) == grouped["bytes_per_query"] + 20.0 * 63.0
    assert model.transferred_bytes(grouped, 256) == 20.0 * (4096.0 + 255.0) + 300.0 * 256.0
    assert model.transferred_bytes(grouped, 4096) == 20.0 * (4096.0 + 4095.0) + 300.0 * 4096.0
    # Two rounds wait twice, and transferring the bytes takes longer than the requests.
    assert model.fetch_ns(grouped, device()) == 2000.0 + model.transferred_bytes(grouped, 64)
    assert model.fetch_ns(grouped, device(bandwidth_bytes_per_s=0.0)) == 2000.0


def test_processor_costs_are_derived_from_counters():
    fields = {"threads": 1, "qps": 1e4, "finding_share": 0.25, "code_distances_per_query": 1000.0}
    in_dram = Record(fields | {"full_distances_per_query": 940.0}, "here:1")
    assert model.processor_ns(in_dram) == (25.0, 75_000.0 / 940.0)
    nothing = {"code_distances_per_query": 0.0, "full_distances_per_query": 0.0}
    assert model.processor_ns(Record(in_dram | nothing, "here:1")) == (0.0, 0.0)


def test_a_bound_is_drawn_if_it_is_close():
    prediction = {"predicted": {"qps": 90.0, "bandwidth_qps": None}}
    rows, in_dram = [row([80.0, 80.0, 80.0], **prediction)], [row([100.0, 100.0, 100.0])]
    bounds = {"near": lambda one: 120.0, "far": trial.bandwidth_qps}
    drawn = trial.bounded(rows, in_dram, bounds)
    assert [curve.name for curve in drawn] == ["measured", "compute bound", "cost model", "near"]
    assert trial.bandwidth_qps(rows[0]) == math.inf
    assert [curve.pen for curve in drawn] == ["marks", "marks", "thin", "thin"]
