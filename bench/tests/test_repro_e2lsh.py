"""The report of E2LSH on storage: its content, and the comparison of measurements with the theory."""

from pathlib import Path

import pytest

from bathyal_bench import repro
from bathyal_bench.repro import e2lsh, records
from bathyal_bench.repro.e2lsh import speeds, theory, verdicts
from bathyal_bench.repro.e2lsh.measured import Measured, device_of, interleaved
from bathyal_bench.repro.records import Record
from bathyal_bench.repro.verdicts import Verdict

KEPT = Path(__file__).parents[2] / "docs/repro/e2lsh/sift" / records.FILE_NAME


def row(**fields):
    return Record(fields, "here:1")


@pytest.mark.parametrize(
    "part",
    [
        "are emulated",
        "table 4",
        "figure 3",
        "figures 4 to 8",
        "figures 11",
        "figure 14",
        "table 6",
        "section 6.5",
    ],
)
def test_the_report_has_every_figure(part):
    assert part in repro.compose(KEPT).text


def test_growth_is_fitted_to_every_size():
    run, rows = records.read(KEPT)
    chosen, *rows = rows
    by_index = {name: [one for one in rows if one["index"] == name] for name in ("paper", "family")}
    growths = Measured(run, chosen, by_index["paper"], by_index["family"]).growths()
    assert len(growths) == 3 and all(one is not None and one.within is not None for one in growths)


def test_a_run_of_one_size_without_srs_has_a_report():
    run, rows = records.read(KEPT)
    few = [one for one in rows if one.get("vectors", run["vectors"]) == run["vectors"]]
    made = e2lsh.report(Record(run | {"srs_us": None}, run.where), few)
    assert "time grows as n to the power of - (`lsh` from a file)" in made.text
    assert "SRS takes" not in made.text


def test_a_run_that_ended_before_tables_were_chosen_is_refused():
    run, rows = records.read(KEPT)
    with pytest.raises(ValueError, match=r"records\.jsonl:1: the run chose no hash tables"):
        e2lsh.report(run, rows[1:])


def test_the_closest_search_is_shown_if_none_reaches_the_ratio():
    def search(ratio, ns):
        return row(experiment="accuracy", hashes=8, k=1, ratio=ratio, processor_ns=ns)

    run, chosen = row(ratio=1.05, k=[1]), row(hashes=8)
    fast, slow, far = search(1.05, 10.0), search(1.01, 20.0), search(1.2, 1.0)
    assert Measured(run, chosen, [slow, far, fast], []).at_ratio(1) is fast
    assert Measured(run, chosen, [far, search(1.3, 0.5)], []).at_ratio(1) is far
    assert Measured(run, chosen, [], []).at_ratio(1) is None


def test_interleaved_reads_are_compared_with_those_of_the_same_device():
    mapped = row(variant="file, mapped", in_flight=1, qps=10.0)
    rows = [
        mapped,
        row(variant="cSSD x 4, io_uring, interleaved", in_flight=32, qps=900.0),
        row(variant="file, interleaved", in_flight=32, qps=40.0),
    ]
    assert device_of(rows[1]) == "cSSD x 4, io_uring"
    assert interleaved(rows, mapped) == 4.0
    assert interleaved([mapped], mapped) == 1.0


@pytest.mark.parametrize(("tables", "verdict"), [(495, Verdict.AGREES), (25, Verdict.DIFFERS)])
def test_tables_are_enough_or_too_few(tables, verdict):
    assert verdicts.enough_tables(tables, 494.6) is verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [(0.99, Verdict.AGREES), (0.05, Verdict.DIFFERS), (0.12, Verdict.NOISE)],
)
def test_the_found_share_is_compared_with_the_promise(found, verdict):
    assert verdicts.found_as_promised(found, 1000) is verdict
    # With few queries even a low share is within the noise.
    assert verdicts.found_as_promised(0.05, 20) is Verdict.NOISE
    assert verdicts.found_as_promised(0.0, 1000) is Verdict.DIFFERS


@pytest.mark.parametrize(
    ("tables", "found", "words"),
    [
        (25, 1.0, "requires; gamma and S compensate for that. The"),
        (25, 0.12, "requires; gamma and S compensate for that within the noise. The"),
        (25, 0.01, "requires; gamma and S do not compensate for that. The"),
        (500, 1.0, "and the tables are as many as\nequation 5 requires."),
    ],
)
def test_the_report_states_the_conclusion_about_tables(tables, found, words):
    assert words in verdicts.about_tables(tables, 494.6, found, 1000)


def test_exponents_are_fitted_with_their_confidence():
    sizes = [1e4, 3e4, 1e5, 3e5, 1e6]
    power = [(n, 7.0 * n**0.4) for n in sizes]
    fitted = theory.growth(power)
    assert fitted.exponent == pytest.approx(0.4) and fitted.within < 1e-9
    # If times are alternately a tenth longer and shorter, the true exponent is within the confidence.
    fitted = theory.growth([(n, t * by) for (n, t), by in zip(power, [1.1, 0.9, 1.1, 0.9, 1.1], strict=True)])
    assert abs(fitted.exponent - 0.4) < fitted.within and 0.03 < fitted.within < 0.3
    assert theory.growth(power[:2]).within is None
    assert theory.growth(power[:1]) is None and theory.growth([(1.0, 1.0), (1.0, 2.0)]) is None


def test_the_theory_requires_hundreds_of_tables():
    """The numbers of the Rust tests."""
    assert 1e6 ** theory.least_exponent() == pytest.approx(495, abs=1)
    promised = theory.promise(1_000_000, 25, 8, 4.0, 3200)
    assert promised.probability == 0.0 and promised.near > 0.98 and promised.far > 4e5
    assert theory.promise(1_000_000, 25, 8, 4.0, 0).probability == 0.0
    assert theory.hashes_of_theory(4.0, 1_000_000) == pytest.approx(27.9, abs=0.05)


def test_rates_that_no_device_reaches_are_named():
    assert speeds.rate(speeds.per_second(10.0, 0.0)) == "unreachable"
    assert speeds.rate(speeds.per_second(0.0, 0.0)) == "0"
