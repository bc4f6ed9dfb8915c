//! The report of `bathyal repro second-tier graph`: Markdown with plots, and a line of JSON a record.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::draw::{Axes, Curve, Pen, curves};
use super::graph::{main_layout, output, sweep_degree};
use super::graph_cells::{Record, median};
use super::workload::Workload;
use crate::arguments::{GraphLayoutName, GraphReproArguments};
use crate::byte_size;
use crate::failure::Failure;

/// How far the predictions lie from what was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ModelError {
    pub(super) cells: usize,
    /// Medians and maxima of `|predicted / measured - 1|`, of elapsed time and of processor time.
    pub(super) median: f64,
    pub(super) worst: f64,
    pub(super) processor_median: f64,
    pub(super) processor_worst: f64,
}

/// What a report is made of.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a GraphReproArguments,
    pub(super) work: &'a Workload,
    pub(super) records: &'a [Record],
}

// Writing to a string does not fail.
impl Report<'_> {
    /// Writes everything; the report's path and all files.
    pub(super) fn write(&self) -> Result<(PathBuf, Vec<PathBuf>), Failure> {
        let mut lines = String::new();
        for record in self.records {
            let line = serde_json::to_string(record);
            lines += &line.map_err(|e| Failure::new(format!("cannot write a record as JSON: {e}")))?;
            lines.push('\n');
        }
        let (records, report) =
            (output(self.arguments, "records.jsonl"), output(self.arguments, "report.md"));
        write(&records, &lines)?;
        let mut files = vec![report.clone(), records];
        let text = self.text(&mut files)?;
        write(&report, &text)?;
        Ok((report, files))
    }

    fn text(&self, files: &mut Vec<PathBuf>) -> Result<String, Failure> {
        let mut text = self.head();
        text += &self.summary();
        text.push('\n');
        self.figure_4(&mut text, files)?;
        self.figure_8_pipeline(&mut text);
        self.figure_8_layouts(&mut text);
        self.figure_9(&mut text, files)?;
        self.sweep(&mut text, files)?;
        Ok(text)
    }

    fn head(&self) -> String {
        let arguments = self.arguments;
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let threads = self.records.first().map_or(0, |record| record.threads);
        let mut text = format!(
            "# The graph on second-tier memory\n\n\
             Figures 4 (upper half), 8 and 9 of second-tier-memory. **Devices are emulated** in real time on top of\n\
             DRAM; what that shows and what it cannot is in docs/emulated-devices.md.\n\n\
             * `{}`: {} vectors of {} {} ({}), {} queries of `{}`, k {}, recall at least {}\n\
             * {} thread(s), beam width {}, {} queries in flight, medians of {} rounds in which all cells take turns\n\
             * {}\n",
            name(&arguments.data),
            self.work.base.count(),
            self.work.base.dim(),
            self.work.base.element().name(),
            arguments.metric.name(),
            self.work.queries.count(),
            name(&arguments.queries),
            arguments.k,
            arguments.recall,
            threads,
            arguments.beam_width,
            arguments.in_flight,
            arguments.repeats,
            machine(),
        );
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
        text.push_str(
            "\nThroughput is of elapsed time. \"cpu\" is of processor time, which other programs do not disturb: on a quiet\n\
             machine both agree.\n\n## Summary\n\n",
        );
        text
    }

    /// The aims, and how far they were met.
    pub(super) fn summary(&self) -> String {
        let arguments = self.arguments;
        let mut text = String::new();
        for (number, device) in arguments.devices.iter().enumerate() {
            let small =
                self.pipelined(number + 1).filter(|record| record.amplification < PAPER_AMPLIFICATION);
            let best = small.max_by(|a, b| a.qps.total_cmp(&b.qps));
            // Where every graph is larger, the smallest comes nearest to the question.
            let smallest =
                || self.pipelined(number + 1).min_by(|a, b| a.amplification.total_cmp(&b.amplification));
            let Some(record) = best.or_else(smallest) else { continue };
            let _ = writeln!(
                text,
                "* emulated {}: {} of the compute bound (cpu {}) at amplification {:.2}, {} degree {}, {}",
                device.name,
                percent(record.share_of_dram),
                percent(record.processor_share_of_dram),
                record.amplification,
                if record.amplification < PAPER_AMPLIFICATION {
                    "the fastest below the paper's 1.7:"
                } else {
                    "above the paper's 1.7:"
                },
                record.max_degree,
                record.layout,
            );
        }
        if let Some(error) = self.model_error() {
            let _ = writeln!(
                text,
                "* cost model: error {:.1}% in the median of {} cells, {:.1}% at worst (cpu {:.1}% and {:.1}%)",
                100.0 * error.median,
                error.cells,
                100.0 * error.worst,
                100.0 * error.processor_median,
                100.0 * error.processor_worst,
            );
        }
        text
    }

    /// How far the model lies off over all cells on devices; `None` without any.
    pub(super) fn model_error(&self) -> Option<ModelError> {
        let of = |of: fn(&Record) -> Option<f64>| -> Vec<f64> {
            self.records.iter().filter_map(of).map(f64::abs).collect()
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

    /// The records of a device (0 is DRAM) in a layout with so many queries in flight, by rising degree.
    fn of(&self, device: usize, layout: GraphLayoutName, in_flight: u32) -> impl Iterator<Item = &Record> {
        let kind = match device {
            0 => "dram".to_owned(),
            n => self.arguments.devices.get(n - 1).map_or(String::new(), |d| format!("emulated {}", d.name)),
        };
        self.records.iter().filter(move |record| {
            (record.device.as_str(), record.layout, record.in_flight)
                == (kind.as_str(), layout.name(), in_flight)
        })
    }

    /// The pipelined search of the layout of figure 9 on a device.
    fn pipelined(&self, device: usize) -> impl Iterator<Item = &Record> {
        self.of(device, main_layout(self.arguments), self.arguments.in_flight)
    }

    fn figure_4(&self, text: &mut String, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
        let records: Vec<&Record> = self.records.iter().filter(|record| record.device == "file").collect();
        if records.is_empty() {
            return Ok(());
        }
        let _ = write!(
            text,
            "## Figure 4, upper half: the dilemma on files\n\n\
             The index is read from its file past the page cache. Not emulated.\n\n\
             | max_degree | amplification | search_list | recall | queries/s | reads a query | bytes a read |\n\
             |---|---|---|---|---|---|---|\n"
        );
        for record in &records {
            let _ = writeln!(
                text,
                "| {} | {:.2} | {} | {:.4} | {:.0} | {:.1} | {:.0} |",
                record.max_degree,
                record.amplification,
                record.search_list,
                record.recall,
                record.qps,
                record.reads_per_query,
                record.bytes_per_query / record.reads_per_query.max(1.0),
            );
        }
        let curve = |name: &str, y: fn(&Record) -> f64| {
            let points = records.iter().map(|record| (record.amplification, y(record))).collect();
            vec![Curve { name: name.to_owned(), points, pen: Pen::Marks }]
        };
        let x = "index size / data size";
        let axes = Axes { title: "Figure 4a: throughput from files", x, y: "queries a second" };
        self.plot(text, files, "figure-4-throughput.svg", &axes, &curve("file", |record| record.qps))?;
        let axes = Axes { title: "Figure 4c: reads from files", x, y: "reads a query" };
        self.plot(text, files, "figure-4-reads.svg", &axes, &curve("file", |record| record.reads_per_query))
    }

    fn figure_8_pipeline(&self, text: &mut String) {
        let arguments = self.arguments;
        let layout = main_layout(arguments);
        let _ = write!(
            text,
            "\n## Figure 8 (a) to (c): the software pipeline\n\n\
             Emulated devices, layout {}: one query in flight, which waits for every hop, against {}.\n\n\
             | device | max_degree | one, queries/s | {} in flight | gain | gain, cpu | mean latency us, one | in flight |\n\
             |---|---|---|---|---|---|---|---|\n",
            layout.name(),
            arguments.in_flight,
            arguments.in_flight
        );
        for device in 1..=arguments.devices.len() {
            let both = self.of(device, layout, 1).zip(self.of(device, layout, arguments.in_flight));
            for (one, many) in both {
                let _ = writeln!(
                    text,
                    "| {} | {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.0} | {:.0} |",
                    one.device,
                    one.max_degree,
                    one.qps,
                    many.qps,
                    many.qps / one.qps.max(1e-9),
                    many.processor_qps / one.processor_qps.max(1e-9),
                    one.latency_us,
                    many.latency_us,
                );
            }
        }
    }

    fn figure_8_layouts(&self, text: &mut String) {
        let arguments = self.arguments;
        let layouts = &arguments.layouts;
        if !(layouts.contains(&GraphLayoutName::Padded) && layouts.contains(&GraphLayoutName::Csr)) {
            return;
        }
        let width = arguments.in_flight;
        let _ = write!(
            text,
            "\n## Figure 8 (d) to (f): records back to back\n\n\
             {width} queries in flight.\n\n\
             | device | max_degree | padded | csr | size saved | padded, queries/s | csr | ratio | ratio, cpu |\n\
             |---|---|---|---|---|---|---|---|---|\n"
        );
        for device in 0..=arguments.devices.len() {
            let padded = self.of(device, GraphLayoutName::Padded, width);
            for (padded, csr) in padded.zip(self.of(device, GraphLayoutName::Csr, width)) {
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} | {:.1}% | {:.0} | {:.0} | {:.2} | {:.2} |",
                    csr.device,
                    csr.max_degree,
                    byte_size::format(padded.index_bytes),
                    byte_size::format(csr.index_bytes),
                    100.0 * (1.0 - csr.index_bytes as f64 / padded.index_bytes.max(1) as f64),
                    padded.qps,
                    csr.qps,
                    csr.qps / padded.qps.max(1e-9),
                    csr.processor_qps / padded.processor_qps.max(1e-9),
                );
            }
        }
    }

    fn figure_9(&self, text: &mut String, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
        let arguments = self.arguments;
        let _ = write!(
            text,
            "\n## Figure 9: throughput against amplification\n\n\
             Emulated devices, layout {}, {} queries in flight. The compute bound is the same search of the same bytes in\n\
             plain DRAM; the share is the median over rounds.\n",
            main_layout(arguments).name(),
            arguments.in_flight
        );
        for (number, device) in arguments.devices.iter().enumerate() {
            let records: Vec<&Record> = self.pipelined(number + 1).collect();
            let bounds: Vec<&Record> = self.pipelined(0).collect();
            let _ = write!(text, "\n### Emulated {}\n\n{TABLE_HEAD}", device.name);
            for (record, bound) in records.iter().zip(&bounds) {
                let _ = writeln!(text, "{}", row(record, bound));
            }
            let points = |records: &[&Record], y: &dyn Fn(&Record) -> f64| {
                records.iter().map(|record| (record.amplification, y(record))).collect()
            };
            let told = |record: &Record| record.predicted.map_or(f64::NAN, |predicted| predicted.qps);
            let bandwidth = |record: &Record| record.predicted.map_or(f64::NAN, |told| told.bandwidth_qps);
            let mut drawn = vec![
                Curve { name: "measured".into(), points: points(&records, &|r| r.qps), pen: Pen::Marks },
                Curve { name: "compute bound".into(), points: points(&bounds, &|r| r.qps), pen: Pen::Marks },
                Curve { name: "cost model".into(), points: points(&records, &told), pen: Pen::Thin },
            ];
            let top = bounds.iter().map(|record| record.qps).fold(0.0, f64::max);
            // A bound far above everything else would press all curves to the floor; the table has it.
            if records.iter().any(|record| bandwidth(record) < BOUND_IN_SIGHT * top) {
                let points = points(&records, &|record| bandwidth(record).min(BOUND_IN_SIGHT * top));
                drawn.push(Curve { name: "bandwidth bound".into(), points, pen: Pen::Thin });
            }
            let title = format!("Figure 9: emulated {}", device.name);
            let axes = Axes { title: &title, x: "index size / data size", y: "queries a second" };
            self.plot(text, files, &format!("figure-9-{}.svg", file_name(&device.name)), &axes, &drawn)?;
        }
        Ok(())
    }

    fn sweep(&self, text: &mut String, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
        let arguments = self.arguments;
        let (degree, layout) = (sweep_degree(arguments), main_layout(arguments));
        let of = |device: usize| -> Vec<&Record> {
            let swept = |record: &&Record| {
                arguments.sweep.contains(&record.in_flight)
                    || [1, arguments.in_flight].contains(&record.in_flight)
            };
            let mut widths: Vec<u32> =
                self.records.iter().filter(swept).map(|record| record.in_flight).collect();
            widths.sort_unstable();
            widths.dedup();
            let one = |width: u32| self.of(device, layout, width).find(|record| record.max_degree == degree);
            widths.into_iter().filter_map(one).collect()
        };
        let _ = write!(
            text,
            "\n## Queries in flight\n\n\
             max_degree {degree}, layout {}. The share is that of plain DRAM with as many in flight.\n\n\
             | device | in flight | queries/s | cpu | share | share, cpu | mean latency us | model | error | error, cpu | bound |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
            layout.name()
        );
        let mut drawn = Vec::new();
        for device in 0..=arguments.devices.len() {
            let records = of(device);
            for record in &records {
                let _ = writeln!(text, "{}", sweep_row(record));
            }
            let points =
                records.iter().map(|record| (f64::from(record.in_flight).log2(), record.qps)).collect();
            let name = records.first().map_or(String::new(), |record| record.device.clone());
            drawn.push(Curve { name, points, pen: Pen::Marks });
        }
        let title = "Queries in flight on each thread (devices emulated)";
        let axes = Axes { title, x: "log2 of the queries in flight", y: "queries a second" };
        self.plot(text, files, "in-flight.svg", &axes, &drawn)
    }

    fn plot(
        &self,
        text: &mut String,
        files: &mut Vec<PathBuf>,
        name: &str,
        axes: &Axes<'_>,
        drawn: &[Curve],
    ) -> Result<(), Failure> {
        let path = output(self.arguments, name);
        curves(&path, axes, drawn)?;
        let _ = write!(text, "\n![{}]({name})\n", axes.title);
        files.push(path);
        Ok(())
    }
}

/// The amplification that the paper's graph comes to on second-tier memory, for 128-byte vectors (section 5).
const PAPER_AMPLIFICATION: f64 = 1.7;

/// A bandwidth bound is drawn where it is below so many times the compute bound.
const BOUND_IN_SIGHT: f64 = 1.6;

const TABLE_HEAD: &str = "\
| max_degree | amplification | search_list | recall | reads | bytes a read | queries/s | compute bound | share | share, cpu \
| bandwidth bound | model | error | error, cpu | bound |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

fn percent(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.1}%", 100.0 * value))
}

fn row(record: &Record, bound: &Record) -> String {
    let told = record.predicted;
    format!(
        "| {} | {:.2} | {} | {:.4} | {:.1} | {:.0} | {:.0} | {:.0} | {} | {} | {:.0} | {:.0} | {} | {} | {} |",
        record.max_degree,
        record.amplification,
        record.search_list,
        record.recall,
        record.reads_per_query,
        record.bytes_per_query / record.reads_per_query.max(1.0),
        record.qps,
        bound.qps,
        percent(record.share_of_dram),
        percent(record.processor_share_of_dram),
        told.map_or(f64::NAN, |told| told.bandwidth_qps),
        told.map_or(f64::NAN, |told| told.qps),
        percent(record.error),
        percent(record.processor_error),
        told.map_or("-", |told| told.bound.name()),
    )
}

fn sweep_row(record: &Record) -> String {
    format!(
        "| {} | {} | {:.0} | {:.0} | {} | {} | {:.0} | {} | {} | {} | {} |",
        record.device,
        record.in_flight,
        record.qps,
        record.processor_qps,
        percent(record.share_of_dram),
        percent(record.processor_share_of_dram),
        record.latency_us,
        record.predicted.map_or("-".to_owned(), |told| format!("{:.0}", told.qps)),
        percent(record.error),
        percent(record.processor_error),
        record.predicted.map_or("-", |told| told.bound.name()),
    )
}

/// A device's name as part of a file's.
fn file_name(device: &str) -> String {
    device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// The processor, as far as the system tells.
fn machine() -> String {
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    format!("{}, {cores} cores", model.map_or("unknown processor", |(_, model)| model.trim()))
}

fn write(path: &Path, content: &str) -> Result<(), Failure> {
    let failed = |e| Failure::new(format!("{}: cannot write the report: {e}", path.display()));
    std::fs::write(path, content).map_err(failed)
}
