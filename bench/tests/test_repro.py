"""Reports of reproductions: kept ones match their records, and errors name file and line."""

import doctest
import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest

from bathyal_bench import drawing, repro
from bathyal_bench.repro import document, numbers, plots, records

KEPT = sorted(path.parent for path in (Path(__file__).parents[2] / "docs/repro").glob("**/records.jsonl"))
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
# Versions of Matplotlib lay out text differently, by less than this.
PIXELS = 2.0


def difference(one, other):
    """Returns the largest difference of numbers in two pictures; infinity if anything else differs."""
    # Ids of clip paths are hashes that depend on Matplotlib's version.
    one, other = (re.sub(r'(url\(#|id=")[^)"]*', r"\1", text) for text in (one, other))
    if NUMBER.sub("0", one) != NUMBER.sub("0", other):
        return float("inf")
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return max((abs(float(a) - float(b)) for a, b in pairs), default=0.0)


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: "-".join(folder.parts[-2:]))
def test_kept_reports_match_their_records(folder):
    made = repro.compose(folder / records.FILE_NAME)
    assert made.text == (folder / document.FILE_NAME).read_text(encoding="utf-8")
    assert set(made.plots) == {path.name for path in folder.glob("*.svg")}
    for name, picture in made.plots.items():
        assert difference(picture, (folder / name).read_text(encoding="utf-8")) < PIXELS, name


def test_every_paper_has_a_kept_report():
    assert {records.read(folder / records.FILE_NAME)[0]["paper"] for folder in KEPT} == set(repro.PAPERS)


def test_a_report_is_written_beside_its_records(tmp_path):
    kept = next(folder for folder in KEPT if folder.name == "second-tier-graph")
    (tmp_path / records.FILE_NAME).write_bytes((kept / records.FILE_NAME).read_bytes())
    written = repro.report(tmp_path)
    assert written[0].name == document.FILE_NAME
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in kept.iterdir()}
    assert (tmp_path / document.FILE_NAME).read_bytes() == (kept / document.FILE_NAME).read_bytes()


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], ":1: expected a line about the run"),
        (['{"of":"row"}'], ":1: expected a line about the run"),
        (['{"of":"run","paper":"none"}'], ":1: unknown paper 'none'; known are second-tier graph, "),
        (['{"of":"run"}'], ":1: the record has no field 'paper'"),
        (['{"of":"run","paper":"e2lsh"}', '{"of":'], ":2: not JSON"),
        (['{"of":"run","paper":"e2lsh"}', "[1]"], ":2: expected a JSON object, found list"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, lines, error):
    path = tmp_path / records.FILE_NAME
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=re.escape(f"{path}{error}")):
        repro.compose(path)


def test_a_missing_field_of_a_record_within_a_record_names_the_line(tmp_path):
    path = tmp_path / records.FILE_NAME
    path.write_text('{"of":"run"}\n{"device":{"name":"cxl"},"samples":[{"qps":1.0}]}\n')
    row = records.read(path)[1][0]
    for record in (row["device"], row["samples"][0]):
        with pytest.raises(ValueError, match=re.escape(f"{path}:2: the record has no field 'latency_ns'")):
            record["latency_ns"]
    assert json.loads(json.dumps(row)) == {"device": {"name": "cxl"}, "samples": [{"qps": 1.0}]}


def test_a_picture_has_all_its_texts_and_is_deterministic():
    drawn = [
        plots.Curve("what was measured", [(0.8, 1.0), (0.9, 20_000.0), (1.0, 60_000.0)]),
        plots.Curve("at most", [(0.8, 50_000.0), (float("nan"), 1.0), (1.0, 70_000.0)], "thin"),
    ]
    axes = plots.Axes("a title", "recall", "queries a second")
    picture = plots.curves(axes, drawn)
    assert picture == plots.curves(axes, drawn)
    for words in ("a title", "recall", "queries a second", "what was measured", "at most", "60k"):
        assert picture.count(f">{words}</text>") == 1, words
    # The three measured points and the sample in the legend have markers; other marks are ticks.
    assert len(re.findall(f'<use [^>]*fill="{drawing.colour(0)}"', picture)) == 4
    assert not re.findall(f'<use [^>]*fill="{drawing.colour(1)}"', picture)
    assert "prefers-color-scheme:dark" in picture
    assert 'xmlns="http://www.w3.org/2000/svg"' in picture


@pytest.mark.parametrize("points", [[], [(float("nan"), float("inf"))], [(5.0, 0.0)], [(5.0, 3.0)]])
def test_pictures_of_few_or_no_points_are_valid(points):
    assert ">none</text>" in plots.curves(plots.Axes("a title", "x", "y"), [plots.Curve("none", points)])


def test_the_median_of_nothing_is_zero():
    assert numbers.median([]) == 0.0
    assert numbers.median([4.0, 1.0]) == 2.5
    assert numbers.median([3.0, 1.0, 2.0]) == 2.0


@pytest.mark.parametrize(
    "name", [one.name for one in pkgutil.walk_packages(repro.__path__, f"{repro.__name__}.")]
)
def test_examples_in_the_documentation_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
