//! The report of `bathyal repro second-tier compare`.

use std::fmt::Write as _;
use std::path::PathBuf;

use bathyal_console::{Failure, byte_size};

use crate::document::Document;
use crate::draw::{Axes, Curve};
use crate::numbers::percent;
use crate::second_tier::arguments::CompareReproArguments;
use crate::second_tier::devices::{DRAM, FILE, emulated};
use crate::second_tier::effort::Trial;
use crate::second_tier::findings::{self, Finding, Form};
use crate::second_tier::records::Record;
use crate::second_tier::report::{ModelError, by_size, file_name, head, model_cells};

/// What a report is made of.
pub(crate) struct Report<'a> {
    pub(crate) arguments: &'a CompareReproArguments,
    pub(crate) trial: &'a Trial<'a>,
    pub(crate) records: &'a [Record],
}

/// A family in a layout: a line of figure 13.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Line {
    family: &'static str,
    layout: &'static str,
}

/// What the paper puts on second-tier memory: graphs without padding, and lists that store each vector once.
const GRAPH: Line = Line { family: "graph", layout: "csr" };
const LISTS: Line = Line { family: "lists", layout: "grouped" };

/// What it puts on an SSD, and what it does not have.
const LINES: [Line; 5] = [
    GRAPH,
    Line { family: "graph", layout: "padded" },
    LISTS,
    Line { family: "lists", layout: "coupled" },
    Line { family: "codes", layout: "resident" },
];

impl Line {
    fn name(self) -> String {
        format!("{}, {}", self.family, self.layout)
    }
}

/// How much faster the graph is than the lists on BIGANN and DEEP (section 7).
fn paper_ratio(device: &str) -> Option<f64> {
    match device {
        "emulated rdma" => Some(2.1),
        "emulated cxl" => Some(2.2),
        "emulated nvm" => Some(1.2),
        _ => None,
    }
}

// Writing to a string does not fail.
impl Report<'_> {
    /// Writes everything; the report's path and all files.
    pub(crate) fn write(&self) -> Result<(PathBuf, Vec<PathBuf>), Failure> {
        let mut document = Document::new(&self.arguments.output);
        let title = "Graph and posting lists on second-tier memory";
        document.text = head(title, "Figure 13 and table 5", self.trial, true);
        let _ = writeln!(
            document.text,
            "Posting lists: {} for each vector. The paper's numbers are those of BIGANN and DEEP.\n",
            self.arguments.centroid_share
        );
        document.text += &findings::table(&self.findings());
        document.text.push('\n');
        document.text += &ModelError::of(self.records).map_or(String::new(), |error| error.line());
        self.best(&mut document.text);
        self.table_5(&mut document.text);
        self.figure_13(&mut document)?;
        document.write(self.records)
    }

    /// What is printed.
    pub(crate) fn summary(&self) -> String {
        let error = ModelError::of(self.records).map_or(String::new(), |error| error.line());
        findings::lines(&self.findings()) + &error
    }

    /// Names of the devices: files first, as in the paper.
    fn devices(&self) -> Vec<String> {
        let file = (!self.trial.arguments.without_file).then(|| FILE.to_owned());
        file.into_iter().chain(self.trial.arguments.devices.iter().map(emulated)).collect()
    }

    /// The records of a line on a device, by rising parameter.
    fn on(&self, device: &str, line: Line) -> Vec<&Record> {
        let fits = |record: &&Record| {
            record.device == device && (record.family, record.layout) == (line.family, line.layout)
        };
        self.records.iter().filter(fits).collect()
    }

    /// The fastest of a line on a device.
    fn fastest(&self, device: &str, line: Line) -> Option<&Record> {
        self.on(device, line).into_iter().max_by(|a, b| a.qps.total_cmp(&b.qps))
    }

    /// The paper's findings beside these.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for device in self.devices() {
            let (Some(graph), Some(lists)) = (self.fastest(&device, GRAPH), self.fastest(&device, LISTS))
            else {
                continue;
            };
            if let Some(paper) = paper_ratio(&device) {
                let what = format!(
                    "throughput, fastest graph ({}) to fastest grouped lists ({})",
                    parameter(graph),
                    parameter(lists)
                );
                let here = [graph.qps / lists.qps.max(1e-9)];
                found.extend(Finding::new(&what, &device, (paper, paper), &here, Form::Times));
            }
            if device == FILE {
                continue;
            }
            let fewer = [1.0 - graph.bytes_per_query / lists.bytes_per_query.max(1e-9)];
            let what = "bytes a query that the graph saves";
            found.extend(Finding::new(what, &device, (0.95, 0.97), &fewer, Form::Percent));
            let what = "size of the fastest lists by that of the data";
            found.extend(Finding::new(what, &device, (1.1, 1.4), &[lists.amplification], Form::Times));
            let smaller = [1.0 - lists.index_bytes as f64 / graph.index_bytes.max(1) as f64];
            let what = "how much smaller the fastest lists are than the fastest graph";
            found.extend(Finding::new(what, &device, (0.56, 0.68), &smaller, Form::Percent));
        }
        for (line, kilobytes, intensity) in
            [(GRAPH, (38.0, 60.0), (19.0, 29.0)), (LISTS, (745.0, 2374.0), (3.0, 8.0))]
        {
            let Some(record) = self.fastest(DRAM, line) else { continue };
            let read = [record.bytes_per_query / 1e3];
            found.extend(Finding::new("KB read a query", &line.name(), kilobytes, &read, Form::Plain));
            let here = [record.intensity()];
            found.extend(Finding::new("operations a byte read", &line.name(), intensity, &here, Form::Plain));
        }
        found
    }

    fn best(&self, text: &mut String) {
        let _ = write!(
            text,
            "\n## The fastest of each kind\n\n\
             Size is that of all files by that of the data; \"on the device\" leaves out what is held in DRAM.\n\n\
             | device | index | fastest | queries/s | to graph, csr | size | on the device | in DRAM a vector | recall \
             | hops | reads | KB a query |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|\n"
        );
        for device in self.devices() {
            let graph = self.fastest(&device, GRAPH).map(|graph| graph.qps);
            for line in LINES {
                let Some(record) = self.fastest(&device, line) else { continue };
                let vectors = record.data_bytes / record.vector_bytes.max(1);
                let in_memory = record.index_bytes - record.device_bytes;
                let _ = writeln!(
                    text,
                    "| {device} | {} | {} | {:.0} | {} | {:.2} | {:.2} | {:.1} B | {:.4} | {:.1} | {:.1} | {:.1} |",
                    line.name(),
                    parameter(record),
                    record.qps,
                    graph.map_or("-".to_owned(), |graph| format!("{:.2}", record.qps / graph.max(1e-9))),
                    record.amplification,
                    record.device_bytes as f64 / record.data_bytes.max(1) as f64,
                    in_memory as f64 / vectors.max(1) as f64,
                    record.recall,
                    record.hops_per_query,
                    record.reads_per_query,
                    record.bytes_per_query / 1e3,
                );
            }
        }
    }

    fn table_5(&self, text: &mut String) {
        let _ = write!(
            text,
            "\n## Table 5: computational intensity\n\n\
             Of the index that is the fastest in DRAM. The paper does not say how it counts operations; here a distance of\n\
             full vectors or of a centroid is three for each dimension, one of codes two for each byte of a code. Processor\n\
             time is that of the whole search in DRAM, by the bytes that it reads.\n\n\
             | index | fastest | KB a query | full distances | codes or centroids | operations a byte | ns a byte | the paper, KB \
             | the paper, intensity |\n\
             |---|---|---|---|---|---|---|---|---|\n"
        );
        for line in LINES {
            let Some(record) = self.fastest(DRAM, line) else { continue };
            let compute_ns = record.threads as f64 * 1e9 / record.processor_qps.max(1e-9);
            let (kilobytes, intensity) = match line.family {
                "graph" => ("32, 38, 60", "22, 29, 19"),
                "lists" => ("139, 745, 2374", "10, 8, 3"),
                _ => ("-", "-"),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {:.1} | {:.0} | {:.0} | {:.1} | {:.2} | {kilobytes} | {intensity} |",
                line.name(),
                parameter(record),
                record.bytes_per_query / 1e3,
                record.full_distances_per_query,
                record.code_distances_per_query,
                record.intensity(),
                compute_ns / record.bytes_per_query.max(1.0),
            );
        }
        text.push_str("\nThe paper's columns: SPACEV, BIGANN, DEEP.\n");
    }

    fn figure_13(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        document.text += "\n## Figure 13: throughput against amplification\n";
        for device in self.devices() {
            let _ = write!(
                document.text,
                "\n### {device}\n\n\
                 | index | parameter | amplification | size | recall | queries/s | share of DRAM | reads | KB a query | model | error \
                 | error, cpu | bound |\n\
                 |---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
            );
            let mut drawn: Vec<Curve> = Vec::new();
            for line in LINES {
                let records = self.on(&device, line);
                for record in &records {
                    let _ = writeln!(document.text, "{}", row_13(line, record));
                }
                if !records.is_empty() {
                    drawn.push(by_size(&line.name(), &records, |record| record.qps));
                }
            }
            let title = format!("Figure 13: {device}");
            let axes = Axes { title: &title, x: "index size / data size", y: "queries a second" };
            document.plot(&format!("figure-13-{}.svg", file_name(&device)), &axes, &drawn)?;
        }
        Ok(())
    }
}

/// The parameter in which the indexes of a line differ.
fn parameter(record: &Record) -> String {
    match (record.max_degree, record.replicas) {
        (Some(degree), _) => format!("max_degree {degree}"),
        (_, Some(replicas)) => format!("{replicas} replicas"),
        _ => "-".to_owned(),
    }
}

fn row_13(line: Line, record: &Record) -> String {
    format!(
        "| {} | {} | {:.2} | {} | {:.4} | {:.0} | {} | {:.1} | {:.1} | {} |",
        line.name(),
        parameter(record),
        record.amplification,
        byte_size::format(record.index_bytes),
        record.recall,
        record.qps,
        percent(record.share_of_dram),
        record.reads_per_query,
        record.bytes_per_query / 1e3,
        model_cells(record),
    )
}
