//! The plot of an advice: the size of each predicted index against its speed, as SVG.

use crate::advice::Advice;
use crate::interval::Interval;
use crate::prediction::IndexPrediction;
use crate::ranking::size_words;
use bathyal_index::IndexError;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::ops::Range;

/// Colours that people with colour-blindness tell apart (Okabe and Ito), in turn.
pub const PLOT_COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

/// Width of the plot in pixels, and of the column of labels in it.
const WIDTH: u32 = 900;
const LABELS_WIDTH: u32 = 330;
/// The least height of one of the two parts.
const LEAST_HEIGHT: u32 = 360;
/// Height of the axis, the caption and the margins of a part.
const FRAME_HEIGHT: u32 = 110;
/// Height of the text above both parts.
const LEGEND_HEIGHT: u32 = 30;
/// Height of the line of a label.
const LABEL_HEIGHT: i32 = 15;
/// Distance of the labels from the axes.
const LABEL_GAP: i32 = 26;
/// Factor by which the axes extend beyond the least and the greatest point. An axis over a single point then
/// has a number with a label, since neighbours of these numbers differ by a factor of 2.5 at most.
const MARGIN: f64 = 1.6;
/// Numbers of a decade that have a label, and the decades of an axis from which on only the first has.
const LABELLED: [f64; 3] = [1.0, 2.0, 5.0];
const MANY_DECADES: f64 = 4.0;
/// The strength of the lines from points to labels and of intervals.
const FAINT: f64 = 0.35;

/// A drawing area of the SVG file.
type SvgArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A part of the plot with its axes.
type SvgChart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogAxis, LogAxis>>;

/// A logarithmic axis, with labels at 1, 2 and 5 times powers of ten.
#[derive(Clone)]
struct LogAxis {
    first: f64,
    last: f64,
}

impl LogAxis {
    /// Creates the axis for these numbers, which are positive.
    fn of(numbers: impl Iterator<Item = f64>) -> LogAxis {
        let bounds = numbers.fold(None, |bounds: Option<(f64, f64)>, number| {
            let (least, most) = bounds.unwrap_or((number, number));
            Some((least.min(number), most.max(number)))
        });
        let (least, most) = bounds.unwrap_or((1.0, 1.0));
        LogAxis { first: least / MARGIN, last: most * MARGIN }
    }

    /// Returns the nearest number that is on the axis.
    fn nearest(&self, number: f64) -> f64 {
        number.clamp(self.first, self.last)
    }
}

impl Ranged for LogAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, number: &f64, limit: (i32, i32)) -> i32 {
        let share = (self.nearest(*number) / self.first).ln() / (self.last / self.first).ln();
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let few =
            if (self.last / self.first).log10() > MANY_DECADES { &LABELLED[..1] } else { &LABELLED[..] };
        let decades = self.first.log10().floor() as i32..=self.last.log10().ceil() as i32;
        let numbers = decades.flat_map(|decade| few.iter().map(move |one| one * 10_f64.powi(decade)));
        numbers.filter(|number| (self.first..=self.last).contains(number)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.first..self.last
    }
}

/// An index in the plot.
struct PlottedIndex {
    label: String,
    colour: RGBColor,
    /// True if it meets all limits.
    meets: bool,
    memory: Interval,
    disk: Interval,
    speed: Interval,
}

/// One of the two parts of the plot.
struct Panel {
    /// The name of the size, such as "memory".
    name: &'static str,
    size: fn(&PlottedIndex) -> Interval,
    limit: Option<u64>,
}

/// Returns the plot as the text of an SVG file: above, memory against queries a second, and below, disk.
///
/// # Errors
/// [`IndexError::Internal`] if it cannot be drawn.
pub fn front_svg(advice: &Advice) -> Result<String, IndexError> {
    let mut text = String::new();
    draw(&mut text, advice).map_err(|error| IndexError::Internal(format!("the plot: {error}")))?;
    Ok(text)
}

fn draw(text: &mut String, advice: &Advice) -> Result<(), Box<dyn Error>> {
    let indexes = plotted(advice);
    let height = LEAST_HEIGHT.max(FRAME_HEIGHT + (LABEL_HEIGHT as u32) * indexes.len() as u32);
    let root = SVGBackend::with_string(text, (WIDTH, LEGEND_HEIGHT + 2 * height)).into_drawing_area();
    root.fill(&WHITE)?;
    let legend =
        "filled: no other index is both smaller and faster; hollow: another one is; cross: over a limit";
    root.draw(&Text::new(legend, (14, 10), ("sans-serif", 13)))?;
    let panels = [
        Panel { name: "memory", size: |index| index.memory, limit: advice.limits.dram_bytes },
        Panel { name: "disk", size: |index| index.disk, limit: advice.limits.disk_bytes },
    ];
    let (_, below) = root.split_vertically(LEGEND_HEIGHT);
    for (area, panel) in below.split_evenly((2, 1)).iter().zip(&panels) {
        panel.draw(&root, area, &indexes, advice)?;
    }
    root.present()?;
    Ok(())
}

/// Returns the indexes of an advice that have a place on logarithmic axes.
fn plotted(advice: &Advice) -> Vec<PlottedIndex> {
    let colour = |tier: &str| {
        let at = advice.devices.iter().position(|device| device.name == tier).unwrap_or(0);
        PLOT_COLOURS[at % PLOT_COLOURS.len()]
    };
    let of = |index: &IndexPrediction, meets: bool| {
        let speed = index.load(advice.concurrency)?.queries_per_second;
        let has_place =
            [speed.value, index.dram_bytes.value, index.disk_bytes.value].iter().all(|n| *n > 0.0);
        has_place.then(|| PlottedIndex {
            label: format!("{} on {}", index.label, index.tier).replace(char::is_control, "?"),
            colour: colour(&index.tier),
            meets,
            memory: index.dram_bytes,
            disk: index.disk_bytes,
            speed,
        })
    };
    let ranked = advice.indexes.ranked.iter().filter_map(|index| of(index, true));
    let left_out = advice.indexes.left_out.iter().filter_map(|one| of(one.prediction.as_ref()?, false));
    ranked.chain(left_out).collect()
}

impl Panel {
    /// Returns the place of an index.
    fn place(&self, index: &PlottedIndex) -> (f64, f64) {
        ((self.size)(index).value, index.speed.value)
    }

    /// Returns true if no index is both smaller and faster than this one.
    fn is_on_front(&self, one: &PlottedIndex, indexes: &[PlottedIndex]) -> bool {
        let (size, speed) = self.place(one);
        indexes.iter().map(|other| self.place(other)).all(|(other_size, other_speed)| {
            let no_worse = other_size <= size && other_speed >= speed;
            !(no_worse && (other_size < size || other_speed > speed))
        })
    }

    fn draw(
        &self,
        root: &SvgArea<'_>,
        area: &SvgArea<'_>,
        indexes: &[PlottedIndex],
        advice: &Advice,
    ) -> Result<(), Box<dyn Error>> {
        let sizes = LogAxis::of(indexes.iter().map(|index| self.place(index).0));
        let speeds = LogAxis::of(indexes.iter().map(|index| self.place(index).1));
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{} against queries a second", self.name), ("sans-serif", 18))
            .margin(12)
            .margin_right(LABELS_WIDTH)
            .x_label_area_size(42)
            .y_label_area_size(70)
            .build_cartesian_2d(sizes.clone(), speeds.clone())?;
        let rate_words = |rate: &f64| if *rate < 1.0 { rate.to_string() } else { format!("{rate:.0}") };
        chart
            .configure_mesh()
            .x_desc(format!("bytes of {}", self.name))
            .y_desc(format!("queries a second, {} in flight", advice.concurrency))
            .x_label_formatter(&|bytes| size_words(*bytes))
            .y_label_formatter(&rate_words)
            .draw()?;
        self.draw_limits(&mut chart, (&sizes, &speeds), advice)?;
        let mut front: Vec<(f64, f64)> = indexes
            .iter()
            .filter(|index| self.is_on_front(index, indexes))
            .map(|index| self.place(index))
            .collect();
        front.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.draw_series(LineSeries::new(front, BLACK.mix(FAINT).stroke_width(2)))?;
        for index in indexes {
            let at @ (size, speed) = self.place(index);
            let (bytes, faint) = ((self.size)(index), index.colour.mix(FAINT));
            chart.draw_series([
                PathElement::new([(bytes.low, speed), (bytes.high, speed)], faint),
                PathElement::new([(size, index.speed.low), (size, index.speed.high)], faint),
            ])?;
            let plot = chart.plotting_area();
            match (index.meets, self.is_on_front(index, indexes)) {
                (false, _) => plot.draw(&Cross::new(at, 5, index.colour.stroke_width(2)))?,
                (true, true) => plot.draw(&Circle::new(at, 5, index.colour.filled()))?,
                (true, false) => plot.draw(&Circle::new(at, 4, index.colour.stroke_width(2)))?,
            }
        }
        let place = |index: &PlottedIndex| chart.backend_coord(&self.place(index));
        draw_labels(root, area, indexes, &place)
    }

    /// Draws the limits of size and speed, as far as they are on the axes.
    fn draw_limits(
        &self,
        chart: &mut SvgChart<'_, '_>,
        (sizes, speeds): (&LogAxis, &LogAxis),
        advice: &Advice,
    ) -> Result<(), Box<dyn Error>> {
        let on = |axis: &LogAxis, limit: &f64| axis.range().contains(limit);
        let size = self.limit.map(|limit| limit as f64).filter(|limit| on(sizes, limit));
        let speed = advice.limits.queries_per_second.filter(|limit| on(speeds, limit));
        let lines = [
            size.map(|size| [(size, speeds.first), (size, speeds.last)]),
            speed.map(|speed| [(sizes.first, speed), (sizes.last, speed)]),
        ];
        for line in lines.into_iter().flatten() {
            chart.draw_series(DashedLineSeries::new(line, 6, 4, BLACK.mix(FAINT).stroke_width(1)))?;
        }
        Ok(())
    }
}

/// Draws the label of each index to the right of the axes, in the order of the speeds, with a line to its
/// place.
fn draw_labels(
    root: &SvgArea<'_>,
    area: &SvgArea<'_>,
    indexes: &[PlottedIndex],
    place: &dyn Fn(&PlottedIndex) -> (i32, i32),
) -> Result<(), Box<dyn Error>> {
    let mut placed: Vec<(&PlottedIndex, (i32, i32))> =
        indexes.iter().map(|index| (index, place(index))).collect();
    placed.sort_by_key(|(_, (x, y))| (*y, -*x));
    let (columns, rows) = area.get_pixel_range();
    let left = columns.end - LABELS_WIDTH as i32 + LABEL_GAP;
    let (mut next, mut left_over) = (rows.start + LABEL_HEIGHT, placed.len() as i32);
    for (index, (x, y)) in placed {
        // A label is beside its index, unless the labels above it or below it take the space.
        let label = y.min(rows.end - left_over * LABEL_HEIGHT).max(next);
        (next, left_over) = (label + LABEL_HEIGHT, left_over - 1);
        root.draw(&PathElement::new([(x, y), (left - 4, label)], index.colour.mix(FAINT)))?;
        let style =
            ("sans-serif", 12).into_font().color(&index.colour).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(index.label.clone(), (left, label), style))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_labels_whatever_they_span() {
        for numbers in [vec![], vec![7.0], vec![3.0, 1e9], vec![0.02, 0.5], vec![1.3e7, 1.4e7]] {
            let axis = LogAxis::of(numbers.iter().copied());
            let labels = axis.key_points(0);
            assert!(!labels.is_empty() && labels.is_sorted() && labels.len() < 15, "{numbers:?}: {labels:?}");
            let pixels: Vec<i32> = labels.iter().map(|label| axis.map(label, (0, 1000))).collect();
            assert!(
                pixels.is_sorted() && pixels.iter().all(|pixel| (0..=1000).contains(pixel)),
                "{pixels:?}"
            );
            assert_eq!((axis.map(&0.0, (0, 1000)), axis.map(&f64::INFINITY, (0, 1000))), (0, 1000));
        }
    }
}
