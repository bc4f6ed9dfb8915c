//! The report of `bathyal repro second-tier cluster`.

use std::fmt::Write as _;
use std::path::PathBuf;

use bathyal_console::Failure;
use bathyal_index::families::spann::cost::{ListTimes, equation_1, equation_3};

use crate::document::Document;
use crate::draw::{Axes, Curve, Pen};
use crate::numbers::percent;
use crate::second_tier::arguments::ClusterReproArguments;
use crate::second_tier::arguments::ListLayoutName::{self, Coupled, Decoupled, Grouped};
use crate::second_tier::cluster::main_layout;
use crate::second_tier::devices::{DRAM, FILE, emulated};
use crate::second_tier::effort::Trial;
use crate::second_tier::findings::{self, Finding, Form};
use crate::second_tier::records::Record;
use crate::second_tier::report::{
    ModelError, NumberOf, bandwidth_qps, bounded, by_size, file_name, head, model_cells,
};

/// What a report is made of.
pub(crate) struct Report<'a> {
    pub(crate) arguments: &'a ClusterReproArguments,
    pub(crate) trial: &'a Trial<'a>,
    pub(crate) records: &'a [Record],
}

/// The layouts in the order of figure 11.
const LAYOUTS: [ListLayoutName; 3] = [Coupled, Decoupled, Grouped];

// Writing to a string does not fail.
impl Report<'_> {
    /// Writes everything; the report's path and all files.
    pub(crate) fn write(&self) -> Result<(PathBuf, Vec<PathBuf>), Failure> {
        let mut document = Document::new(&self.arguments.output);
        let figures = "Figures 4 (lower half), 10 and 12";
        document.text = head("Posting lists on second-tier memory", figures, self.trial, false);
        let _ = writeln!(document.text, "Lists for each vector: {}.\n", self.arguments.centroid_share);
        document.text += &findings::table(&self.findings());
        document.text.push('\n');
        document.text += &ModelError::of(self.records).map_or(String::new(), |error| error.line());
        self.figure_4(&mut document)?;
        self.figure_10(&mut document)?;
        self.figure_12(&mut document)?;
        self.latency(&mut document.text);
        document.write(self.records)
    }

    /// What is printed.
    pub(crate) fn summary(&self) -> String {
        let error = ModelError::of(self.records).map_or(String::new(), |error| error.line());
        findings::lines(&self.findings()) + &error
    }

    /// Names of the devices, files last.
    fn devices(&self) -> Vec<String> {
        let mut names: Vec<String> = self.trial.arguments.devices.iter().map(emulated).collect();
        if !self.trial.arguments.without_file {
            names.push(FILE.to_owned());
        }
        names
    }

    /// The records of a layout on a device with so many queries in flight, by rising replicas.
    fn of(&self, device: &str, layout: ListLayoutName, in_flight: u32) -> Vec<&Record> {
        let fits = |record: &&Record| {
            record.device == device && record.in_flight == in_flight && record.is_list(layout)
        };
        self.records.iter().filter(fits).collect()
    }

    /// The pipelined records of a layout on a device, by rising replicas.
    fn on(&self, device: &str, layout: ListLayoutName) -> Vec<&Record> {
        self.of(device, layout, self.trial.arguments.in_flight)
    }

    /// A ratio of two layouts on a device, for each number of replicas above 1; there is no copy to save at 1.
    fn ratios(
        &self,
        device: &str,
        (above, below): (ListLayoutName, ListLayoutName),
        of: fn(&Record) -> f64,
    ) -> Vec<f64> {
        let both = self.on(device, above).into_iter().zip(self.on(device, below));
        let copied = both.filter(|(above, _)| above.replicas > Some(1));
        copied.map(|(above, below)| of(above) / of(below).max(1e-9)).collect()
    }

    /// The paper's findings beside these.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let first_and_last = |records: Vec<&Record>, of: fn(&Record) -> f64| match records[..] {
            [first, .., last] => vec![of(last) / of(first).max(1e-9)],
            _ => Vec::new(),
        };
        let coupled = || self.on(FILE, Coupled);
        let lists = first_and_last(coupled(), |record| record.lists_per_query);
        let what = "lists searched, most replicas to fewest";
        found.extend(Finding::new(
            what,
            "file, coupled",
            (20.0 / 240.0, 20.0 / 240.0),
            &lists,
            Form::Percent,
        ));
        let gain = first_and_last(coupled(), |record| record.qps);
        let what = "throughput, most replicas to fewest";
        found.extend(Finding::new(what, "file, coupled", (4.0, 16.0), &gain, Form::Times));
        let size = first_and_last(coupled(), |record| record.amplification);
        let what = "size of the index, most replicas to fewest";
        found.extend(Finding::new(what, "file, coupled", (6.7, 7.3), &size, Form::Times));
        for device in self.devices() {
            self.findings_on(&device, &mut found);
        }
        if let Some(last) = self.on(DRAM, Grouped).last() {
            let what = format!("size of the index by that of the data, {} replicas", replicas(last));
            found.extend(Finding::new(&what, "grouped", (1.1, 1.4), &[last.amplification], Form::Times));
        }
        found
    }

    fn findings_on(&self, device: &str, found: &mut Vec<Finding>) {
        let reads = self.ratios(device, (Grouped, Decoupled), |record| record.reads_per_query);
        let removed: Vec<f64> = reads.iter().map(|ratio| 1.0 - ratio).collect();
        found.extend(Finding::new(
            "reads that grouping removes",
            device,
            (0.62, 0.80),
            &removed,
            Form::Percent,
        ));
        let faster = self.ratios(device, (Grouped, Decoupled), |record| record.qps);
        found.extend(Finding::new(
            "throughput, grouped to decoupled",
            device,
            (1.3, 1.7),
            &faster,
            Form::Times,
        ));
        let copies = self.ratios(device, (Grouped, Coupled), |record| record.qps);
        let what = "throughput, grouped to coupled";
        found.extend(Finding::new(what, device, (1.0, f64::INFINITY), &copies, Form::Times));
        let decoupled = self.on(device, Decoupled);
        let best = decoupled.iter().map(|record| record.qps).fold(0.0, f64::max);
        let lost: Vec<f64> =
            decoupled.last().map(|last| 1.0 - last.qps / best.max(1e-9)).into_iter().collect();
        let what = "what the most replicas lose, decoupled";
        found.extend(Finding::new(what, device, (0.27, 0.39), &lost, Form::Percent));
        if device == FILE {
            return;
        }
        let fastest =
            |device: &str, layout| self.on(device, layout).into_iter().max_by(|a, b| a.qps.total_cmp(&b.qps));
        if let (Some(grouped), Some(file)) = (fastest(device, Grouped), fastest(FILE, Coupled)) {
            let both = format!(
                "fastest grouped ({} replicas) to fastest coupled from files ({})",
                replicas(grouped),
                replicas(file)
            );
            let size = [grouped.index_bytes as f64 / file.index_bytes.max(1) as f64];
            found.extend(Finding::new(&format!("size, {both}"), device, (0.16, 0.22), &size, Form::Percent));
            let what = format!("throughput, {both}");
            let ratio = [grouped.qps / file.qps.max(1e-9)];
            found.extend(Finding::new(&what, device, (1.4, 7.1), &ratio, Form::Times));
        }
    }

    fn figure_4(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        let records = self.on(FILE, Coupled);
        if records.is_empty() {
            return Ok(());
        }
        let _ = write!(
            document.text,
            "\n## Figure 4, lower half: the dilemma on files\n\n\
             Coupled lists, read from the file past the page cache. Not emulated.\n\n\
             | replicas | amplification | lists | recall | queries/s | reads a query | KB a query | KB a read | vectors compared \
             | model | error | error, cpu | bound |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        );
        for record in &records {
            let _ = writeln!(
                document.text,
                "| {} | {:.2} | {:.1} | {:.4} | {:.0} | {:.1} | {:.0} | {:.1} | {:.0} | {} |",
                replicas(record),
                record.amplification,
                record.lists_per_query,
                record.recall,
                record.qps,
                record.reads_per_query,
                record.bytes_per_query / 1e3,
                record.bytes_per_query / record.reads_per_query.max(1.0) / 1e3,
                record.full_distances_per_query,
                model_cells(record),
            );
        }
        let x = "index size / data size";
        let axes = Axes { title: "Figure 4a: throughput from files", x, y: "queries a second" };
        document.plot("figure-4-throughput.svg", &axes, &[by_size(FILE, &records, |record| record.qps)])?;
        let axes = Axes { title: "Figure 4c: lists searched", x, y: "lists a query" };
        document.plot(
            "figure-4-lists.svg",
            &axes,
            &[by_size(FILE, &records, |record| record.lists_per_query)],
        )
    }

    fn figure_10(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        let _ = write!(
            document.text,
            "\n## Figure 10: coupled, decoupled and grouped lists\n\n\
             The same lists in three layouts, the same lists searched. Small reads are those for vectors that no searched\n\
             list stores, neighbours joined. What grouping removes is counted in all reads, beside decoupled lists.\n"
        );
        for device in self.devices() {
            let _ = write!(
                document.text,
                "\n### {device}\n\n\
                 | replicas | layout | amplification | lists | recall | reads | small reads | KB a query | reads removed | queries/s \
                 | to decoupled | to coupled | model | error | error, cpu | bound |\n\
                 |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
            );
            for layout in LAYOUTS {
                for record in self.on(&device, layout) {
                    let _ = writeln!(document.text, "{}", self.row_10(record));
                }
            }
            let curve = |layout: ListLayoutName| {
                let point = |record: &Record| (f64::from(replicas(record)), record.qps);
                let points = self.on(&device, layout).into_iter().map(point).collect();
                Curve { name: layout.name().to_owned(), points, pen: Pen::Marks }
            };
            let title = format!("Figure 10: {device}");
            let axes = Axes { title: &title, x: "replicas", y: "queries a second" };
            document.plot(&format!("figure-10-{}.svg", file_name(&device)), &axes, &LAYOUTS.map(curve))?;
        }
        let curve = |layout: ListLayoutName| {
            let point = |record: &Record| (f64::from(replicas(record)), record.amplification);
            let points = self.on(DRAM, layout).into_iter().map(point).collect();
            Curve { name: layout.name().to_owned(), points, pen: Pen::Marks }
        };
        let axes = Axes { title: "Figure 10 (d) to (f): size", x: "replicas", y: "index size / data size" };
        document.plot("figure-10-size.svg", &axes, &LAYOUTS.map(curve))
    }

    fn row_10(&self, record: &Record) -> String {
        let other = |layout: ListLayoutName| {
            self.on(&record.device, layout).into_iter().find(|other| other.replicas == record.replicas)
        };
        let times =
            |layout| other(layout).map_or("-".to_owned(), |other| format!("{:.2}", record.qps / other.qps));
        let removed =
            other(Decoupled).map(|other| 1.0 - record.reads_per_query / other.reads_per_query.max(1e-9));
        format!(
            "| {} | {} | {:.2} | {:.1} | {:.4} | {:.1} | {:.1} | {:.1} | {} | {:.0} | {} | {} | {} |",
            replicas(record),
            record.layout,
            record.amplification,
            record.lists_per_query,
            record.recall,
            record.reads_per_query,
            record.small_reads_per_query,
            record.bytes_per_query / 1e3,
            percent(removed.filter(|_| record.is_list(Grouped))),
            record.qps,
            times(Decoupled),
            times(Coupled),
            model_cells(record),
        )
    }

    fn figure_12(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        let layout = main_layout(self.arguments);
        let _ = write!(
            document.text,
            "\n## Figure 12: throughput against amplification\n\n\
             Emulated devices, layout {}, {} queries in flight. The compute bound is the same search of the same bytes in\n\
             plain DRAM; the share is the median over rounds. Equation 3 is the paper's bandwidth bound, payload alone; the\n\
             link's counts whole granules.\n",
            layout.name(),
            self.trial.arguments.in_flight
        );
        let files = self.on(FILE, Coupled);
        for device in &self.trial.arguments.devices {
            let name = emulated(device);
            let (records, bounds) = (self.on(&name, layout), self.on(DRAM, layout));
            let _ = write!(document.text, "\n### Emulated {}\n\n{TABLE_HEAD_12}", device.name);
            for (record, bound) in records.iter().zip(&bounds) {
                let _ = writeln!(document.text, "{}", row_12(record, bound));
            }
            let near = [
                ("bandwidth, equation 3", payload_qps as NumberOf),
                ("bandwidth, granules", bandwidth_qps as NumberOf),
            ];
            let mut drawn = bounded(&records, &bounds, &near);
            if !files.is_empty() {
                drawn.push(by_size("coupled, from files", &files, |record| record.qps));
            }
            let title = format!("Figure 12: emulated {}", device.name);
            let axes = Axes { title: &title, x: "index size / data size", y: "queries a second" };
            document.plot(&format!("figure-12-{}.svg", file_name(&device.name)), &axes, &drawn)?;
        }
        Ok(())
    }

    /// Equation 1 of cloud-native-vector-search beside the latency of one query at a time.
    fn latency(&self, text: &mut String) {
        let layout = main_layout(self.arguments);
        let _ = write!(
            text,
            "\n## Equation 1 of cloud-native-vector-search: one query at a time\n\n\
             Layout {}. Latency = finding lists + fetching + comparing. What the processor takes for the first and the last is\n\
             that of the same search in DRAM, divided as its phases were timed there.\n\n\
             | device | replicas | ns a centroid | ns a vector | lists us | fetch us | compare us | sum us | measured us | error \
             | fetching |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
            layout.name()
        );
        for device in &self.trial.arguments.devices {
            let both = self.of(&emulated(device), layout, 1).into_iter().zip(self.on(DRAM, layout));
            for (record, in_dram) in both {
                let (Some(profile), Some(share)) = (&record.profile, in_dram.finding_share) else { continue };
                let compute_ns = in_dram.threads.max(1) as f64 * 1e9 / in_dram.qps.max(1e-9);
                let processor = ListTimes::measured(&in_dram.list_cost(compute_ns), share);
                // The processor posts each read, whoever waits for it.
                let posting = record.reads_per_query * device.issue_ns as f64;
                let terms = equation_1(&record.list_cost(0.0), profile, &processor);
                let sum = (terms.total_ns() + posting) / 1e3;
                let _ = writeln!(
                    text,
                    "| {} | {} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {sum:.1} | {:.1} | {} | {} |",
                    record.device,
                    replicas(record),
                    processor.centroid_ns,
                    processor.vector_ns,
                    terms.centroid_ns / 1e3,
                    (terms.fetch_ns + posting) / 1e3,
                    terms.distance_ns / 1e3,
                    record.latency_us,
                    percent(Some(sum / record.latency_us.max(1e-9) - 1.0)),
                    percent(Some((terms.fetch_ns + posting) / 1e3 / sum.max(1e-9))),
                );
            }
        }
    }
}

const TABLE_HEAD_12: &str = "\
| replicas | amplification | lists | recall | reads | KB a query | queries/s | compute bound | share | share, cpu \
| equation 3 | link, granules | model | error | error, cpu | bound |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

fn row_12(record: &Record, bound: &Record) -> String {
    format!(
        "| {} | {:.2} | {:.1} | {:.4} | {:.1} | {:.1} | {:.0} | {:.0} | {} | {} | {:.0} | {:.0} | {} |",
        replicas(record),
        record.amplification,
        record.lists_per_query,
        record.recall,
        record.reads_per_query,
        record.bytes_per_query / 1e3,
        record.qps,
        bound.qps,
        percent(record.share_of_dram),
        percent(record.processor_share_of_dram),
        payload_qps(record),
        bandwidth_qps(record),
        model_cells(record),
    )
}

/// The replicas of a record of posting lists.
fn replicas(record: &Record) -> u32 {
    record.replicas.unwrap_or_default()
}

/// Equation 3: the bytes a second of the device as queries a second, payload alone.
fn payload_qps(record: &Record) -> f64 {
    record.profile.as_ref().map_or(f64::NAN, |profile| equation_3(&record.list_cost(0.0), profile))
}
