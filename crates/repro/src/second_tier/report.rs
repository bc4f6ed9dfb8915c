//! What all reports share: Markdown with plots, a line of JSON a record, and what lies beside the paper's numbers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bathyal_console::byte_size;
use serde::Serialize;

use crate::document::{command, machine};
use crate::draw::{Curve, Pen};
use crate::numbers::{median, percent};
use crate::second_tier::arguments::TrialArguments;
use crate::second_tier::effort::Trial;
use crate::second_tier::findings::Finding;
use crate::second_tier::records::Record;

/// A bound is drawn where it is below so many times the compute bound.
const BOUND_IN_SIGHT: f64 = 1.6;

/// The head of a report: what was measured of what, on what, how, and with which command.
pub(crate) fn head(title: &str, figures: &str, trial: &Trial<'_>, beam: bool) -> String {
    let (arguments, work) = (trial.arguments, trial.work);
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut text = format!(
        "# {title}\n\n\
         {figures} of second-tier-memory. **Devices are emulated** in real time on top of\n\
         DRAM; what that shows and what it cannot is in docs/emulated-devices.md.\n\n\
         * `{}`: {} vectors of {} {} ({}), {} queries of `{}`, k {}, recall at least {}\n\
         * {} thread(s), {}{} queries in flight, medians of {} rounds in which all cells take turns\n\
         * {}\n",
        name(&arguments.data),
        work.base.count(),
        work.base.dim(),
        work.base.element().name(),
        arguments.metric.name(),
        work.all.queries.count(),
        name(&arguments.queries),
        arguments.k,
        arguments.recall,
        trial.threads(),
        if beam { format!("beam width {}, ", trial.beam_width) } else { String::new() },
        arguments.in_flight,
        arguments.repeats,
        machine(),
    );
    if !arguments.without_file {
        let _ = writeln!(text, "* from files: the first {} queries", work.few.queries.count());
    }
    for device in &arguments.devices {
        let _ = writeln!(
            text,
            "* emulated {}: {} ns, {}/s, granules of {} B, {} ns to issue a read",
            device.name,
            device.latency_ns,
            byte_size::format(device.bandwidth_bytes_per_s as u64),
            device.granularity,
            device.issue_ns,
        );
    }
    let _ = write!(
        text,
        "\n    {}\n\n\
         Throughput is of elapsed time. \"cpu\" is of processor time, which other programs do not disturb: on a quiet\n\
         machine both agree.\n\n## Summary\n\n",
        command()
    );
    text
}

/// How far the predictions lie from what was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ModelError {
    pub(crate) cells: usize,
    /// Medians and maxima of `|predicted / measured - 1|`, of elapsed time and of processor time.
    pub(crate) median: f64,
    pub(crate) worst: f64,
    pub(crate) processor_median: f64,
    pub(crate) processor_worst: f64,
}

impl ModelError {
    /// How far the model lies off over all cells that it predicted; `None` without any.
    pub(crate) fn of(records: &[Record]) -> Option<ModelError> {
        let of = |of: fn(&Record) -> Option<f64>| -> Vec<f64> {
            records.iter().filter_map(of).map(f64::abs).collect()
        };
        let (errors, processor) = (of(|record| record.error), of(|record| record.processor_error));
        let worst = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
        (!errors.is_empty()).then(|| ModelError {
            cells: errors.len(),
            worst: worst(&errors),
            median: median(errors),
            processor_worst: worst(&processor),
            processor_median: median(processor),
        })
    }

    /// A line of a summary.
    pub(crate) fn line(&self) -> String {
        format!(
            "* cost model: error {:.1}% in the median of {} cells, {:.1}% at worst (cpu {:.1}% and {:.1}%)\n",
            100.0 * self.median,
            self.cells,
            100.0 * self.worst,
            100.0 * self.processor_median,
            100.0 * self.processor_worst,
        )
    }
}

/// What `--json` prints.
#[derive(Serialize)]
pub(crate) struct Answer<'a> {
    report: String,
    records: &'a [Record],
    model: Option<ModelError>,
    #[serde(skip_serializing_if = "<[Finding]>::is_empty")]
    findings: &'a [Finding],
    emulated: Vec<&'a str>,
    files: Vec<String>,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(
        path: &Path,
        files: &[PathBuf],
        records: &'a [Record],
        arguments: &'a TrialArguments,
    ) -> Answer<'a> {
        Answer {
            report: path.display().to_string(),
            records,
            model: ModelError::of(records),
            findings: &[],
            emulated: arguments.devices.iter().map(|device| device.name.as_str()).collect(),
            files: files.iter().map(|file| file.display().to_string()).collect(),
        }
    }

    /// The same with what the paper found beside what was found here.
    pub(crate) fn with(self, findings: &'a [Finding]) -> Answer<'a> {
        Answer { findings, ..self }
    }
}

/// A number that a record comes to.
pub(crate) type NumberOf = fn(&Record) -> f64;

/// A curve with a mark at each record: amplification against `y`.
pub(crate) fn by_size(name: &str, records: &[&Record], y: impl Fn(&Record) -> f64) -> Curve {
    let points = records.iter().map(|record| (record.amplification, y(record))).collect();
    Curve { name: name.to_owned(), points, pen: Pen::Marks }
}

/// Throughput against size: what was measured beside the search in DRAM, the model, and each bound of the device that
/// is near enough to be seen; a bound far above everything else would press all curves to the floor.
pub(crate) fn bounded(records: &[&Record], in_dram: &[&Record], bounds: &[(&str, NumberOf)]) -> Vec<Curve> {
    let thin = |name: &str, y: &dyn Fn(&Record) -> f64| Curve { pen: Pen::Thin, ..by_size(name, records, y) };
    let mut drawn = vec![
        by_size("measured", records, |record| record.qps),
        by_size("compute bound", in_dram, |record| record.qps),
        thin("cost model", &|record| record.predicted.map_or(f64::NAN, |predicted| predicted.qps)),
    ];
    let top = in_dram.iter().map(|record| record.qps).fold(0.0, f64::max);
    for (name, bound) in bounds {
        if records.iter().any(|record| bound(record) < BOUND_IN_SIGHT * top) {
            drawn.push(thin(name, &|record| bound(record).min(BOUND_IN_SIGHT * top)));
        }
    }
    drawn
}

/// The bytes a second of the device, whole granules counted, as queries a second.
pub(crate) fn bandwidth_qps(record: &Record) -> f64 {
    record.predicted.map_or(f64::NAN, |told| told.bandwidth_qps)
}

/// What the model says of a record: throughput, errors and the bound that holds, as cells of a table.
pub(crate) fn model_cells(record: &Record) -> String {
    format!(
        "{} | {} | {} | {}",
        record.predicted.map_or("-".to_owned(), |told| format!("{:.0}", told.qps)),
        percent(record.error),
        percent(record.processor_error),
        record.predicted.map_or("-", |told| told.bound.name()),
    )
}

/// A device's name as part of a file's.
pub(crate) fn file_name(device: &str) -> String {
    let bare = device.strip_prefix("emulated ").unwrap_or(device);
    bare.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}
