//! Plots of a reproduction: curves over one pair of axes, as SVG.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use bathyal_console::Failure;
use plotters::coord::Shift;
use plotters::prelude::*;

/// Width of a plot in pixels. Pages show it on phones at little more than half of that.
const WIDTH: u32 = 760;

/// Height of what is between the axes.
const PLOT_HEIGHT: u32 = 370;

/// Height of the title and of what the upright axis counts, below it.
const HEAD_HEIGHT: u32 = 58;

/// Room for the labels of the axes, below and to the left.
const BELOW: u32 = 50;
const LEFT: u32 = 70;

/// Room around everything.
const MARGIN: u32 = 12;

/// Height of a row of the legend, and what is between it and the plot.
const ROW: u32 = 24;
const GAP: u32 = 8;

/// Where the name of a curve begins, to the right of its sign.
const SIGN: u32 = 40;

/// Text that can be read on a phone, as the library counts: 18 pixels.
const TEXT: (&str, u32) = ("sans-serif", 22);

/// Pixels of a letter of it, on average, rather too many than too few.
const LETTER: u32 = 10;

/// Room beyond the outermost points, as a share of what is drawn.
const BEYOND: f64 = 0.06;

/// Axes that end below have labels with digits behind the point.
const SMALL: f64 = 20.0;

/// Labels from here on count thousands.
const LARGE: f64 = 10_000.0;

/// The colours of curves, on a light ground and on a dark one.
const COLOURS: [(RGBColor, RGBColor); 8] = [
    (RGBColor(0x00, 0x57, 0xb7), RGBColor(0x6c, 0xb2, 0xff)),
    (RGBColor(0xd6, 0x27, 0x28), RGBColor(0xff, 0x7b, 0x72)),
    (RGBColor(0x1f, 0x8a, 0x2f), RGBColor(0x5f, 0xd0, 0x75)),
    (RGBColor(0xc2, 0x6a, 0x00), RGBColor(0xff, 0xb1, 0x4d)),
    (RGBColor(0x7b, 0x3f, 0xa0), RGBColor(0xc7, 0x92, 0xea)),
    (RGBColor(0x00, 0x7f, 0x8b), RGBColor(0x4d, 0xd0, 0xd8)),
    (RGBColor(0xa0, 0x52, 0x2d), RGBColor(0xd9, 0x9a, 0x75)),
    (RGBColor(0xd6, 0x30, 0x8f), RGBColor(0xff, 0x8a, 0xc8)),
];

/// Text and axes on a dark ground.
const DARK_INK: RGBColor = RGBColor(0xe8, 0xe8, 0xe8);

/// How a curve is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pen {
    /// A line with a mark at each point: what was measured.
    Marks,
    /// A thin line: a bound.
    Thin,
}

/// A named row of points.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) pen: Pen,
}

impl Curve {
    fn finite(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.points.iter().copied().filter(|point| point.0.is_finite() && point.1.is_finite())
    }

    fn width(&self) -> u32 {
        if self.pen == Pen::Marks { 2 } else { 1 }
    }
}

/// What a plot says about its axes.
pub(crate) struct Axes<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
}

/// Draws `curves` to the SVG file `path`; both axes begin at 0 or below the least point.
///
/// The legend is below the plot, where no curve can be, and colours follow the reader's light or dark scheme.
///
/// # Errors
/// A sentence naming the file, if it cannot be written.
pub(crate) fn curves(path: &Path, axes: &Axes<'_>, curves: &[Curve]) -> Result<(), Failure> {
    let failed = |e: &dyn Error| Failure::new(format!("{}: cannot draw the plot: {e}", path.display()));
    let picture = draw(axes, curves).map_err(|e| failed(e.as_ref()))?;
    std::fs::write(path, picture).map_err(|e| failed(&e))
}

fn draw(axes: &Axes<'_>, curves: &[Curve]) -> Result<String, Box<dyn Error>> {
    let columns = columns(curves);
    let rows = u32::try_from(curves.len())?.div_ceil(columns);
    let height = HEAD_HEIGHT + PLOT_HEIGHT + BELOW + GAP + rows * ROW + MARGIN;
    let mut picture = String::new();
    {
        let area = SVGBackend::with_string(&mut picture, (WIDTH, height)).into_drawing_area();
        let (head, rest) = area.split_vertically(HEAD_HEIGHT);
        let (body, foot) = rest.split_vertically(PLOT_HEIGHT + BELOW);
        let margin = i32::try_from(MARGIN)?;
        head.draw(&Text::new(axes.title, (margin, 8), TEXT.into_font().style(FontStyle::Bold)))?;
        head.draw(&Text::new(axes.y, (margin, 34), TEXT))?;
        draw_curves(&body, axes, curves)?;
        draw_legend(&foot, curves, columns)?;
        area.present()?;
    }
    Ok(picture.replacen('>', &format!(">\n{}", dark_rules(curves.len())), 1))
}

fn draw_curves(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    axes: &Axes<'_>,
    curves: &[Curve],
) -> Result<(), Box<dyn Error>> {
    let points = || curves.iter().flat_map(Curve::finite);
    let (mut left, mut right, mut top) = (f64::MAX, 0.0_f64, 0.0_f64);
    for point in points() {
        (left, right, top) = (left.min(point.0), right.max(point.0), top.max(point.1));
    }
    if points().next().is_none() {
        (left, right, top) = (0.0, 1.0, 1.0);
    }
    let room = ((right - left) * BEYOND).max(1e-3);
    let mut chart = ChartBuilder::on(area)
        .margin_left(MARGIN)
        .margin_right(MARGIN)
        .x_label_area_size(BELOW)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(left - room..right + room, 0.0..(top * (1.0 + 2.0 * BEYOND)).max(1e-9))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(axes.x)
        .axis_desc_style(TEXT)
        .label_style(TEXT)
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| if top < SMALL || *y >= LARGE { short(*y) } else { format!("{y:.0}") })
        .draw()?;
    for (curve, (colour, _)) in curves.iter().zip(COLOURS.iter().cycle()) {
        chart.draw_series(LineSeries::new(curve.finite(), colour.stroke_width(curve.width())))?;
        if curve.pen == Pen::Marks {
            chart.draw_series(curve.finite().map(|point| Circle::new(point, 4, colour.filled())))?;
        }
    }
    Ok(())
}

/// How many names stand beside each other.
fn columns(curves: &[Curve]) -> u32 {
    let longest = curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
    let width = SIGN + LETTER * (u32::try_from(longest).unwrap_or(WIDTH / LETTER) + 2);
    ((WIDTH - 2 * MARGIN) / width).clamp(1, 4)
}

fn draw_legend(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    curves: &[Curve],
    columns: u32,
) -> Result<(), Box<dyn Error>> {
    let width = (WIDTH - 2 * MARGIN) / columns;
    let entries = curves.iter().zip(COLOURS.iter().cycle());
    for (number, (curve, (colour, _))) in (0..).zip(entries) {
        let x = i32::try_from(MARGIN + number % columns * width)?;
        let y = i32::try_from(GAP + number / columns * ROW + ROW / 2)?;
        let line = vec![(x, y), (x + 28, y)];
        area.draw(&PathElement::new(line, colour.stroke_width(curve.width())))?;
        if curve.pen == Pen::Marks {
            area.draw(&Circle::new((x + 14, y), 4, colour.filled()))?;
        }
        area.draw(&Text::new(curve.name.as_str(), (x + i32::try_from(SIGN)?, y - 8), TEXT))?;
    }
    Ok(())
}

/// What changes the colours of text, axes and `curves` curves where a reader's scheme is dark.
fn dark_rules(curves: usize) -> String {
    let mut rules = String::new();
    for (light, dark) in COLOURS.iter().take(curves).chain([&(BLACK, DARK_INK)]) {
        for name in ["fill", "stroke"] {
            // Writing to a string does not fail.
            let _ = write!(rules, "[{name}=\"{}\"]{{{name}:{}}}", hex(*light), hex(*dark));
        }
    }
    format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>\n")
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// A label with four digits behind the point at most, as ticks have that are close to each other, or of thousands.
fn short(value: f64) -> String {
    let (value, unit) = if value >= LARGE { (value / 1e3, "k") } else { (value, "") };
    let digits = format!("{value:.4}");
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, points: &[(f64, f64)], pen: Pen) -> Curve {
        Curve { name: name.to_owned(), points: points.to_vec(), pen }
    }

    fn two() -> Vec<Curve> {
        vec![
            curve("what was measured", &[(0.8, 1.0), (0.9, 20_000.0), (1.0, 60_000.0)], Pen::Marks),
            curve("what could be, at most", &[(0.8, 50_000.0), (f64::NAN, 1.0), (1.0, 70_000.0)], Pen::Thin),
        ]
    }

    fn drawn(curves: &[Curve]) -> String {
        draw(&Axes { title: "a title", x: "recall", y: "queries a second" }, curves).unwrap()
    }

    /// The words of a picture with where they begin, or what they are centred on or end at.
    fn words(picture: &str) -> Vec<(String, f64, f64, String)> {
        let attribute = |tag: &str, name: &str| {
            let value = tag.split_once(&format!(" {name}=\"")).unwrap().1;
            value.split_once('"').unwrap().0.to_owned()
        };
        let texts = picture.split("<text").skip(1).map(|text| text.split_once("</text>").unwrap().0);
        texts
            .map(|text| {
                let (tag, words) = text.split_once('>').unwrap();
                let place = |name| attribute(tag, name).parse().unwrap();
                (words.trim().to_owned(), place("x"), place("y"), attribute(tag, "text-anchor"))
            })
            .collect()
    }

    #[test]
    fn the_legend_is_below_the_plot_and_names_each_curve_once() {
        let picture = drawn(&two());
        let words = words(&picture);
        let axis = words.iter().find(|one| one.0 == "recall").unwrap().2;
        for name in ["what was measured", "what could be, at most"] {
            let found: Vec<_> = words.iter().filter(|one| one.0 == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            assert!(found[0].2 > axis, "{name} is not below the axis");
        }
    }

    #[test]
    fn no_words_are_beyond_the_edges() {
        let many: Vec<_> = (0..20)
            .map(|n| curve(&"word ".repeat(n % 7 + 1), &[(1e3 * n as f64, 1e6)], Pen::Marks))
            .collect();
        for (word, x, y, anchor) in words(&drawn(&many)).into_iter().chain(words(&drawn(&two()))) {
            let width = (word.chars().count() as u32 * LETTER) as f64;
            let left = match anchor.as_str() {
                "middle" => x - width / 2.0,
                "end" => x - width,
                _ => x,
            };
            assert!(left >= 0.0 && left + width <= f64::from(WIDTH), "{word} at {left}");
            assert!(y >= 0.0);
        }
    }

    #[test]
    fn colours_follow_the_scheme_and_the_ground_is_the_pages() {
        let picture = drawn(&two());
        assert!(!picture.contains("FFFFFF"));
        for colour in [hex(COLOURS[0].0), hex(COLOURS[1].0), hex(BLACK)] {
            assert!(picture.contains(&format!("[stroke=\"{colour}\"]")), "{colour} stays in the dark");
        }
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(drawn(&[]).contains("a title"));
        assert!(drawn(&[curve("none", &[(f64::NAN, f64::INFINITY)], Pen::Marks)]).contains("none"));
    }

    #[test]
    fn labels_are_short_and_tell_ticks_apart() {
        assert_eq!([short(0.665), short(0.67), short(0.1 + 0.2), short(0.0)], ["0.665", "0.67", "0.3", "0"]);
        assert_eq!(
            [short(0.9), short(950.0), short(10_000.0), short(512_500.0)],
            ["0.9", "950", "10k", "512.5k"]
        );
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let axes = Axes { title: "a title", x: "recall", y: "queries a second" };
        let failure = curves(Path::new("no/such/folder/plot.svg"), &axes, &two()).unwrap_err();
        assert!(failure.to_string().contains("no/such/folder/plot.svg: cannot draw the plot"), "{failure}");
    }
}
