//! Plots of a reproduction: curves over one pair of axes, as SVG.

use std::error::Error;
use std::path::Path;

use bathyal_console::Failure;
use plotters::prelude::*;

/// Width and height of a plot in pixels.
const SIZE: (u32, u32) = (760, 460);

/// Room beyond the outermost points, as a share of what is drawn.
const MARGIN: f64 = 0.06;

/// Axes that end below have labels with digits behind the point.
const SMALL: f64 = 20.0;

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

/// What a plot says about its axes.
pub(crate) struct Axes<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
}

/// Draws `curves` to the SVG file `path`; both axes begin at 0 or below the least point.
///
/// # Errors
/// A sentence naming the file, if it cannot be written.
pub(crate) fn curves(path: &Path, axes: &Axes<'_>, curves: &[Curve]) -> Result<(), Failure> {
    draw(path, axes, curves)
        .map_err(|e| Failure::new(format!("{}: cannot draw the plot: {e}", path.display())))
}

fn draw(path: &Path, axes: &Axes<'_>, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    let points =
        || curves.iter().flat_map(|curve| &curve.points).filter(|p| p.0.is_finite() && p.1.is_finite());
    let (mut left, mut right, mut top) = (f64::MAX, 0.0_f64, 0.0_f64);
    for point in points() {
        (left, right, top) = (left.min(point.0), right.max(point.0), top.max(point.1));
    }
    if points().next().is_none() {
        (left, right, top) = (0.0, 1.0, 1.0);
    }
    let room = ((right - left) * MARGIN).max(1e-3);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(axes.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(left - room..right + room, 0.0..(top * (1.0 + 2.0 * MARGIN)).max(1e-9))?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| if top < SMALL { short(*y) } else { format!("{y:.0}") })
        .draw()?;
    for (number, curve) in curves.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let finite = || curve.points.iter().copied().filter(|p| p.0.is_finite() && p.1.is_finite());
        let width = if curve.pen == Pen::Marks { 2 } else { 1 };
        chart
            .draw_series(LineSeries::new(finite(), color.stroke_width(width)))?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        if curve.pen == Pen::Marks {
            chart.draw_series(finite().map(|point| Circle::new(point, 4, color.filled())))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.4))
        .label_font(("sans-serif", 13))
        .draw()?;
    area.present()?;
    Ok(())
}

/// A label with two digits behind the point at most.
fn short(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}
