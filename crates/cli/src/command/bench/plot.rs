//! The plot of `bathyal bench`.

use std::error::Error;
use std::path::Path;

use bathyal_console::Failure;
use plotters::prelude::*;

use super::measurement::Measurement;

/// Width and height of the plot in pixels.
const SIZE: (u32, u32) = (800, 500);

/// Factor by which the axis of throughput extends beyond the lowest and the highest point.
const MARGIN: f64 = 1.3;

/// Draws the recall of `points` against their queries per second (on a logarithmic axis) to the SVG file
/// `path`.
///
/// # Errors
/// A message that names the file if it cannot be written.
pub(super) fn recall_against_throughput(
    path: &Path,
    title: &str,
    points: &[Measurement],
) -> Result<(), Failure> {
    draw(path, title, points)
        .map_err(|e| Failure::new(format!("{}: cannot draw the plot: {e}", path.display())))
}

fn draw(path: &Path, title: &str, points: &[Measurement]) -> Result<(), Box<dyn Error>> {
    let mut curve: Vec<(f64, f64)> =
        points.iter().filter_map(|point| Some((point.quality.recall?, point.qps.max(1e-3)))).collect();
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    let recalls = curve.iter().map(|point| point.0);
    let (worst, best) = (recalls.clone().fold(1.0, f64::min), recalls.fold(0.0, f64::max));
    let room = ((best - worst) * 0.05).max(0.005);
    let rates = curve.iter().map(|point| point.1);
    let (slowest, fastest) = (rates.clone().fold(f64::MAX, f64::min), rates.fold(1e-3, f64::max));

    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(
            (worst - room)..(best + room).min(1.0 + room),
            (slowest / MARGIN..fastest * MARGIN).log_scale(),
        )?;
    let k = points.first().map_or(0, |point| point.k);
    chart
        .configure_mesh()
        .x_desc(format!("recall@{k}"))
        .y_desc("queries a second")
        .x_label_formatter(&|recall| format!("{recall:.3}"))
        .y_label_formatter(&|rate| format!("{rate:.0}"))
        .draw()?;
    chart.draw_series(LineSeries::new(curve.iter().copied(), BLUE.stroke_width(2)))?;
    chart.draw_series(curve.iter().map(|&point| Circle::new(point, 4, BLUE.filled())))?;
    area.present()?;
    Ok(())
}
