//! The plot of `bathyal bench`.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use bathyal_advise::front_plot::PLOT_COLOURS;
use bathyal_console::Failure;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

use super::measurement::Measurement;

/// Width and height of the plot in pixels.
const SIZE: (u32, u32) = (800, 500);

/// Factor by which the axis of throughput extends beyond the lowest and the highest point.
const MARGIN: f64 = 1.3;

/// The distance between the highest other recall and a recall of 1, in nines.
const END_NINES: f64 = 0.3;

/// How far the axis of recall extends beyond the lowest and the highest recall, in nines.
const MARGIN_NINES: f64 = 0.08;

/// Recalls with a label, as far as they are on the axis.
const LABELLED: [f64; 13] =
    [0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999];

/// The measurements of one index.
pub(super) struct Curve<'a> {
    pub name: &'a str,
    pub points: &'a [Measurement],
}

/// The axis of recall: 1 - recall on a logarithmic scale, falling to the right, so that 0.9, 0.99 and 0.999
/// are equally far apart. A recall of 1 has no logarithm, and is drawn at the end. Positions are in nines.
#[derive(Clone)]
struct RecallAxis {
    first: f64,
    last: f64,
    /// The position of a recall of 1.
    end: f64,
}

impl RecallAxis {
    /// Creates the axis for these recalls.
    fn of(recalls: impl Iterator<Item = f64>) -> RecallAxis {
        let recalls: Vec<f64> = recalls.collect();
        let below_one = recalls.iter().filter(|recall| **recall < 1.0).map(|recall| nines(*recall));
        let highest = below_one.clone().fold(0.0, f64::max);
        let lowest = below_one.fold(highest, f64::min);
        let end = highest + END_NINES;
        let last = if recalls.iter().any(|recall| *recall >= 1.0) { end } else { highest };
        RecallAxis { first: lowest - MARGIN_NINES, last: last + MARGIN_NINES, end }
    }

    /// Returns the position of a recall.
    fn position(&self, recall: f64) -> f64 {
        if recall < 1.0 { nines(recall) } else { self.end }
    }

    /// Returns the recalls that have a label.
    fn labelled(&self) -> Vec<f64> {
        let reaches_one = self.last > self.end;
        // A label close to that of 1 would overlap it.
        let most = if reaches_one { self.end - END_NINES / 2.0 } else { self.last };
        let on_axis = |recall: &f64| (self.first..=most).contains(&nines(*recall));
        LABELLED.into_iter().filter(on_axis).chain(reaches_one.then_some(1.0)).collect()
    }
}

impl Ranged for RecallAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, recall: &f64, limit: (i32, i32)) -> i32 {
        let share = (self.position(*recall) - self.first) / (self.last - self.first);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.labelled()
    }

    fn range(&self) -> Range<f64> {
        let recall = |nines: f64| 1.0 - 10_f64.powf(-nines);
        recall(self.first)..recall(self.last)
    }
}

/// Returns the number of nines of a recall below 1, as a fraction.
fn nines(recall: f64) -> f64 {
    -(1.0 - recall).log10()
}

/// Draws the recall of each curve against its queries per second (on a logarithmic axis) to the SVG file
/// `path`.
///
/// # Errors
/// A message that names the file if it cannot be written.
pub(super) fn recall_against_throughput(path: &Path, curves: &[Curve<'_>]) -> Result<(), Failure> {
    draw(path, curves).map_err(|e| Failure::new(format!("{}: cannot draw the plot: {e}", path.display())))
}

fn draw(path: &Path, curves: &[Curve<'_>]) -> Result<(), Box<dyn Error>> {
    let measured = |curve: &Curve<'_>| -> Vec<(f64, f64)> {
        let points = curve.points.iter();
        points.filter_map(|point| Some((point.quality.recall?, point.qps.max(1e-3)))).collect()
    };
    let all: Vec<(f64, f64)> = curves.iter().flat_map(measured).collect();
    let axis = RecallAxis::of(all.iter().map(|point| point.0));
    let rates = all.iter().map(|point| point.1);
    let (slowest, fastest) = (rates.clone().fold(f64::MAX, f64::min), rates.fold(1e-3, f64::max));

    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title(curves), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(axis, (slowest / MARGIN..fastest * MARGIN).log_scale())?;
    let k = curves.iter().flat_map(|curve| curve.points).next().map_or(0, |point| point.k);
    chart
        .configure_mesh()
        .x_desc(format!("recall@{k}"))
        .y_desc("queries a second")
        .x_label_formatter(&|recall| recall.to_string())
        .y_label_formatter(&|rate| format!("{rate:.0}"))
        .draw()?;
    for (curve, colour) in curves.iter().zip(PLOT_COLOURS.iter().cycle()) {
        let mut points = measured(curve);
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line = chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        if curves.len() > 1 {
            let sample = |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
            line.label(curve.name).legend(sample);
        }
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, colour.filled())))?;
    }
    if curves.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .label_font(("sans-serif", 13))
            .draw()?;
    }
    area.present()?;
    Ok(())
}

/// Returns the title: the index, or the number of them, and the tier.
fn title(curves: &[Curve<'_>]) -> String {
    let tier = curves.iter().flat_map(|curve| curve.points).next().map_or("", |point| &point.tier);
    match curves {
        [one] => format!("{} ({tier})", one.name),
        _ => format!("{} indexes ({tier})", curves.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_spreads_high_recalls() {
        let axis = RecallAxis::of([0.5, 0.9, 0.99].into_iter());
        assert!((axis.position(0.99) - axis.position(0.9) - 1.0).abs() < 1e-9);
        assert_eq!(axis.labelled(), [0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99]);
        let pixels = [0.5, 0.9, 0.99].map(|recall| axis.map(&recall, (0, 1000)));
        assert!(0 < pixels[0] && pixels[0] < pixels[1] && pixels[1] < pixels[2] && pixels[2] < 1000);
    }

    #[test]
    fn a_recall_of_one_is_at_the_end() {
        let axis = RecallAxis::of([0.8, 0.999, 1.0].into_iter());
        assert!(axis.position(1.0) > axis.position(0.999) && axis.position(1.0) < axis.last);
        assert_eq!(axis.labelled().last(), Some(&1.0));
        let exact = RecallAxis::of([1.0].into_iter());
        assert!(exact.first < exact.position(1.0) && exact.position(1.0) < exact.last);
        assert_eq!(exact.labelled().last(), Some(&1.0));
    }
}
