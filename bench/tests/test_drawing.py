"""Pictures are readable on phones and in dark mode: their texts, the positions of those, and colours."""

import itertools
import math
import os
import re
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

import pytest

from bathyal_bench import drawing, page, points
from bathyal_bench.changing import report as changing_report

RECORDS = Path(__file__).parents[2] / "docs/benchmarks"
# Drawing all reports takes 15 s. `make site` draws them and sets the variable to its folder. Without it, the
# most different ones are drawn here: over selectivity, of reads, over the ratio, and of warm and cold
# sections.
SITE = os.environ.get("BATHYAL_SITE")
FEW = ("changing", "hog", "ratio-hog", "sift")
PLOTS = Path(SITE or "") / "benchmarks/plots"
REPORTS = sorted(path.stem for path in PLOTS.glob("*.html")) if SITE else FEW
RECORDED = Path(__file__).with_name("recorded.jsonl")
PICTURE = re.compile(r"<svg .*?</svg>", re.DOTALL)
MOST_BYTES = 60_000
# Extent of letters above and below their baseline, as shares of their size.
ABOVE, BELOW = 0.75, 0.2
HARD_NAMES = [
    "_hidden from legends",
    "$x^2$ & <b>bold</b>",
    "Ünïcode, 漢字 and a \N{GREEK SMALL LETTER ALPHA}",
    "W" * 120,
    "a name of many words " * 8,
]


@dataclass(frozen=True)
class Words:
    """A line of text and its bounding box in the widest of the usual fonts."""

    text: str
    left: float
    right: float
    top: float
    bottom: float


def parsed(picture):
    """Returns the root of a picture; fails if it is not well-formed XML."""
    return xml.fromstring(picture)


def every(root, name):
    return list(root.iter(f"{{{drawing.SVG}}}{name}"))


def words_of(root):
    found = []
    for one in every(root, "text"):
        size = float(one.get("font-size").removesuffix("px"))
        width = drawing.words_width(one.text, size, one.get("font-weight", "normal"))
        x, y = float(one.get("x")), float(one.get("y"))
        left = x - {"start": 0, "middle": width / 2, "end": width}[one.get("text-anchor", "start")]
        found.append(Words(one.text, left, left + width, y - ABOVE * size, y + BELOW * size))
    return found


def check(picture):
    """Asserts the properties of every picture, and returns its root."""
    root = parsed(picture)
    width, height = map(float, root.get("viewBox").split()[2:])
    assert width == drawing.WIDTH
    lines = words_of(root)
    for one in lines:
        assert one.left >= -0.5 and one.right <= width + 0.5, one
        assert one.top >= 0 and one.bottom <= height, one
    for one, other in itertools.combinations(lines, 2):
        apart = one.right <= other.left or other.right <= one.left
        assert apart or one.bottom <= other.top + 0.5 or other.bottom <= one.top + 0.5, (one, other)
    clipped = {id(one) for group in every(root, "g") if "clip-path" in group.attrib for one in group.iter()}
    for one in every(root, "use"):
        if id(one) in clipped:
            continue
        assert 0 <= float(one.get("x")) <= width and 0 <= float(one.get("y")) <= height
    assert len(picture.encode()) < MOST_BYTES
    colours = {one.get(name) for one in root.iter() for name in ("fill", "stroke")} - {None, "none"}
    assert colours <= set(drawing.DARK), "a colour that does not change in the dark"
    (style,) = every(root, "style")
    assert all(drawing.DARK[one] in style.text for one in colours)
    assert not [one for one in root.iter() if "style" in one.attrib], "rules cannot override a style"
    # The background is the page's: every filled element has a colour from the list above, and a path without
    # one is a marker.
    assert not every(root, "image")
    clips = {id(one) for clip in every(root, "clipPath") for one in clip}
    assert all(id(one) in clips for one in every(root, "rect"))
    return root


def curve(name="one", style=0, spread=0.0, recalls=(0.55, 0.9, 0.99, 0.9985)):
    marks = [
        drawing.Mark(recall, 100.0 / (place + 1), f"{name} at {recall}", 100.0 / (place + 1) - spread, 100.0)
        if spread
        else drawing.Mark(recall, 100.0 / (place + 1), f"{name} at {recall}")
        for place, recall in enumerate(recalls)
    ]
    return drawing.Curve(name, style, marks)


def drawn(curves, axis=drawing.RECALL):
    return drawing.over(axis, "Throughput", "queries a second", curves)


def texts(root):
    return [one.text for one in every(root, "text")]


def of_system(root, style):
    return [one for one in root.iter() if one.get("class") == f"system-{style}"]


def test_ticks_are_at_their_positions_on_the_axis():
    root = check(drawn([curve()]))
    places = {one.text: float(one.get("x")) for one in every(root, "text")}
    ticks = [places[f"{one:g}"] for one in drawing.MAIN_RECALLS]
    assert ticks == sorted(ticks)
    steps = [
        right - left for left, right in itertools.pairwise([places["0.9"], places["0.99"], places["0.999"]])
    ]
    assert steps[0] == pytest.approx(steps[1], abs=0.1)
    marks = [float(one.get("x")) for one in of_system(root, 0)[0].iter(f"{{{drawing.SVG}}}use")]
    assert marks[1:3] == pytest.approx([places["0.9"], places["0.99"]], abs=0.1)


def test_a_short_axis_has_more_ticks():
    assert {"0.9", "0.95", "0.98", "0.99"} <= set(texts(check(drawn([curve(recalls=(0.91, 0.95, 0.985))]))))


def test_a_single_point_has_an_axis_too():
    for recall in (0.5, 0.9, 0.93, 1.0):
        check(drawn([curve(recalls=(recall,))]))


def test_exact_values_are_drawn_at_the_edge_with_a_label():
    root = check(drawn([curve(recalls=(0.9, 1.0))]))
    assert "≥0.9999" in texts(root)
    marks = [drawing.Mark(ratio, 5.0, "") for ratio in (1.3, 1.01, 1.0)]
    root = check(drawn([drawing.Curve("one", 0, marks)], drawing.RATIO))
    assert {"1.5", "1.1", "1.01", "≤1.0001"} <= set(texts(root))


def test_recall_is_on_a_logarithmic_axis():
    steps = [drawing.recall_position(one) for one in (0.9, 0.99, 0.999)]
    assert steps[1] - steps[0] == pytest.approx(steps[2] - steps[1])
    assert math.isfinite(drawing.recall_position(1.0))


def test_a_ratio_is_on_a_logarithmic_axis():
    steps = [drawing.ratio_position(one) for one in (1.1, 1.01, 1.001)]
    assert steps[1] - steps[0] == pytest.approx(steps[2] - steps[1])
    assert math.isfinite(drawing.ratio_position(1.0))


def test_bars_span_the_repeats_where_they_differ():
    root = check(drawn([curve("one", 0, spread=20.0), curve("other", 1)]))
    assert drawing.SPREAD in texts(root)
    # The first has a line, two caps and the curve; the second only the curve.
    assert len(of_system(root, 0)) > 1 and len(of_system(root, 1)) == 1
    assert drawing.SPREAD not in texts(check(drawn([curve("one", 0), curve("other", 1)])))


def test_a_bar_reaches_from_the_least_to_the_most():
    marks = [drawing.Mark(0.9, 30.0, "", 10.0, 100.0), drawing.Mark(0.95, 30.0, "", 30.0, 30.0)]
    root = check(drawn([drawing.Curve("one", 0, marks)]))
    places = {one.text: float(one.get("y")) for one in every(root, "text")}
    # A label's baseline is slightly below the line that it names.
    off = places["10"] - places["100"]
    groups = of_system(root, 0)
    upright = [
        found for one in groups for found in re.findall(r"^M (\S+) (\S+) L \1 (\S+)$", one.get("d", ""))
    ]
    upright += [
        found
        for group in groups
        for one in group.iter(f"{{{drawing.SVG}}}path")
        for found in re.findall(r"^M (\S+) (\S+) L \1 (\S+)$", one.get("d", ""))
    ]
    assert max(abs(float(low) - float(high)) for _, low, high in upright) == pytest.approx(off, abs=0.2)


def test_each_point_has_its_tooltip():
    root = parsed(drawn([curve("one", 0, spread=20.0), curve("other", 1)]))
    titles = [one.text for one in every(root, "title")]
    assert titles == [f"{name} at {one}" for name in ("one", "other") for one in (0.55, 0.9, 0.99, 0.9985)]


def test_curves_omit_points_that_cannot_be_drawn():
    marks = [
        drawing.Mark(0.9, 10.0, "seen"),
        drawing.Mark(0.95, 0.0, "zero has no logarithm"),
        drawing.Mark(0.95, math.inf, "too much"),
        drawing.Mark(math.nan, 10.0, "nowhere"),
        drawing.Mark(0.4, 10.0, "worse than the worst"),
    ]
    root = check(drawn([drawing.Curve("one", 0, marks), drawing.Curve("none of it", 1, marks[1:])]))
    assert [one.text for one in every(root, "title")] == ["seen"]
    assert "none of it" not in texts(root)
    assert "nothing was measured" in drawn([])
    assert "nothing was measured" in drawing.bars("Sizes", "", [])


@pytest.mark.parametrize("least,most", [(1e-30, 1e19), (5.0, 5.0), (0.0, 7.0), (0.9, 1.1)])
def test_any_figures_have_an_axis(least, most):
    marks = [drawing.Mark(0.9, most, "", least, most), drawing.Mark(0.95, most, "")]
    check(drawn([drawing.Curve("one", 0, marks)]))


@pytest.mark.filterwarnings("ignore:Glyph .* missing")
def test_every_name_is_in_the_legend_once():
    root = check(drawn([curve(name, style) for style, name in enumerate(HARD_NAMES)]))
    shown = " ".join(texts(root))
    for name in HARD_NAMES:
        assert "".join(shown.split()).count("".join(name.split())) == 1
    bars = [drawing.Bar(name, style, style * 10.0, f"{style} MB") for style, name in enumerate(HARD_NAMES)]
    check(drawing.bars(" ".join(HARD_NAMES), "a unit of many words " * 5, bars))


def test_more_systems_than_colours_are_distinguishable():
    root = check(drawn([curve(f"system {style}", style, recalls=(0.9, 0.95)) for style in range(30)]))
    drawn_by = {}
    for style in range(30):
        (group,) = of_system(root, style)
        line = next(iter(group.iter(f"{{{drawing.SVG}}}path")))
        drawn_by[style] = line.get("stroke"), line.get("stroke-dasharray")
    assert len(set(drawn_by.values())) >= 2 * len(drawing.COLOURS)
    assert sorted(one for one in texts(root) if one.startswith("system")) == sorted(
        f"system {style}" for style in range(30)
    )


def test_lengths_of_bars_are_proportional_to_values():
    some = [drawing.Bar("much", 0, 100.0, "100 MB"), drawing.Bar("half", 1, 50.0, "50 MB")]
    root = check(drawing.bars("Index on disk", "less is better", some))
    from_the_top = [one.text for one in sorted(words_of(root), key=lambda one: one.top)]
    assert from_the_top[-4:] == ["half", "50 MB", "much", "100 MB"], "the shortest bar is not the first"
    lengths = {}
    for style in (0, 1):
        (group,) = of_system(root, style)
        corners = [float(one) for one in re.findall(r"(\S+) \S+(?: [LMz]|$)", group.find("./*").get("d"))]
        lengths[style] = max(corners) - min(corners)
    assert lengths[0] == pytest.approx(2 * lengths[1], abs=0.1)


def test_bars_of_zero_bytes_can_be_drawn():
    check(drawing.bars("Index on disk", "", [drawing.Bar("in memory", 0, 0.0, "0 MB")]))


def test_the_same_records_give_the_same_picture():
    assert drawn([curve(spread=3.0)]) == drawn([curve(spread=3.0)])


def test_a_page_names_each_system_once_per_plot():
    found = points.read_records(RECORDED)
    pictures = PICTURE.findall(page.page(found))
    plots = [picture for picture in pictures if "<title>" in picture]
    assert len(pictures) == 8 and len(plots) == 4
    (section,) = points.sections(found)
    for picture in plots[:3]:
        shown = texts(check(picture))
        assert all(shown.count(sweep.system) == 1 for sweep in section.sweeps)
    # The repeats of the throughput differ, so the plot explains its bars.
    assert drawing.SPREAD in texts(parsed(plots[0]))
    ids = re.findall(r' id="([^"]+)"', "".join(pictures))
    assert len(ids) == len(set(ids))


def report_page(name):
    """Returns the page with plots of a report: the site's, or one drawn from the records."""
    if SITE:
        return (PLOTS / f"{name}.html").read_text(encoding="utf-8")
    make = changing_report.page if name == "changing" else page.page
    return make(points.read_records(RECORDS / f"{name}.jsonl"))


@pytest.mark.parametrize("report", REPORTS)
def test_pictures_of_reports_are_readable(report):
    pictures = PICTURE.findall(report_page(report))
    # Reports of suites have more pictures; changing.html has one per data set.
    assert len(pictures) > (1 if report == "changing" else 6)
    for picture in pictures:
        root = check(picture)
        shown = [one for one in texts(root) if len(one) > 12]
        assert len(shown) == len(set(shown))


def test_there_are_reports_to_check():
    assert len(REPORTS) > (15 if SITE else 3)
