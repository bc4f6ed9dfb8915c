//! The part of the report about what is searched, and how: dimension, queries, queries under way (figures 14, 16 and 17).

use std::fmt::Write as _;

use bathyal_console::Failure;
use bathyal_index::families::graph::DEFAULT_MAX_DEGREE;
use bathyal_kernels::quantize::Codec;
use serde::Serialize;

use super::copies::Copied;
use super::latency::Load;
use super::measure::RECALLS;
use super::queries::{KINDS, Queried};
use super::report::Report;
use super::rows::Row;
use super::subjects::{ALL, Subject};
use crate::document::Document;
use crate::draw::{Axes, Curve, Pen};

/// An index with so many queries under way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Loaded {
    pub(super) set: String,
    pub(super) index: &'static str,
    #[serde(flatten)]
    pub(super) load: Load,
}

impl Report<'_> {
    /// Figure 14.
    pub(super) fn dimensions(&self, document: &mut Document<'_>, set: &str) -> Result<(), Failure> {
        let rows: Vec<&Copied> = self.measured.copied.iter().filter(|copied| copied.row.set == set).collect();
        let Some(first) = rows.first() else { return Ok(()) };
        let text = &mut document.text;
        let _ = write!(
            text,
            "\n## `{set}`: longer vectors (figure 14)\n\nAs in the paper, vectors are longer by copies of themselves, up to a record that fills a \
             page, or {} dimensions, beyond which a card scores no codes: the first {} vectors, an index each, recall {}. *Stored* is the record of a graph, with room for {DEFAULT_MAX_DEGREE} links where the paper has 128.\n\n\
             | index | copies | dim | stored, bytes | code, bytes | recall | pages | sent, bytes | **predicted** queries/s | bound by | of records | \
             of pages |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|\n",
            Codec::MOST_AXES_DIM,
            first.row.vectors,
            RECALLS[0]
        );
        for Copied { copies, stored_bytes, row } in &rows {
            let _ = write!(
                text,
                "| {} | {copies} | {} | {stored_bytes} | {} | {:.3} | {:.1} |",
                row.index, row.dim, row.code_bytes, row.recall, row.pages
            );
            let _ = match row.on_card {
                true => writeln!(
                    text,
                    " {:.0} | {:.0} | {} | {:.0} | {:.0} |",
                    row.sent_bytes,
                    row.prediction.qps,
                    row.prediction.bound,
                    row.sending_records.qps,
                    row.sending_pages.qps
                ),
                false => writeln!(text, " - | - | - | - | - |"),
            };
        }
        *text += "\nWhere `-` stands, no card searches it: its list is longer than a card keeps.\n";
        let curve = |subject: Subject, name: &str, qps: fn(&Row) -> f64| {
            let of = rows.iter().filter(|copied| copied.row.on_card && copied.row.index == subject.name());
            let points = of.map(|copied| (copied.row.dim as f64, qps(&copied.row) / 1e6)).collect();
            Curve { name: format!("{}, {name}", subject.name()), points, pen: Pen::Marks }
        };
        let drawn = [
            curve(Subject::GraphAlone, "links are sent", |row| row.prediction.qps),
            curve(Subject::GraphAlone, "records are", |row| row.sending_records.qps),
            curve(Subject::GraphAlone, "pages are", |row| row.sending_pages.qps),
            curve(Subject::Cluster, "places are sent", |row| row.prediction.qps),
        ];
        let title = format!("{set}, copies of vectors, recall {}, predicted", RECALLS[0]);
        let axes = Axes { title: &title, x: "dim", y: "million queries/s, predicted" };
        document.plot(&format!("figure-14-{set}.svg"), &axes, &drawn)
    }

    /// Figure 16.
    pub(super) fn questions(&self, document: &mut Document<'_>, set: &str) -> Result<(), Failure> {
        let rows: Vec<&Queried> =
            self.measured.queried.iter().filter(|queried| queried.row.set == set).collect();
        let text = &mut document.text;
        let _ = write!(
            text,
            "\n## `{set}`: other queries (figure 16)\n\nAll ask for recall {}, of a calibration that knows none of them. *Nearest* is the distance of \
             the middle query to the nearest vector. Nothing is cached, so that how many queries there are changes nothing but chance.\n\n\
             | queries | how many | nearest | index | recall | list | groups | pages | rounds | **predicted** queries/s |\n\
             |---|---:|---:|---|---:|---:|---:|---:|---:|---:|\n",
            RECALLS[0]
        );
        for Queried { kind, queries, nearest, row } in &rows {
            let groups = row.probes.map_or("-".to_owned(), |probes| probes.to_string());
            let qps = if row.on_card { format!("{:.0}", row.prediction.qps) } else { "-".to_owned() };
            let _ = writeln!(
                text,
                "| {} | {queries} | {nearest:.4} | {} | {:.3} | {} | {groups} | {:.1} | {:.1} | {qps} |",
                kind.name(),
                row.index,
                row.recall,
                row.search_list,
                row.pages,
                row.rounds
            );
        }
        let curve = |subject: &Subject| {
            let of = |number: usize| {
                let is = |queried: &&&Queried| {
                    queried.kind == KINDS[number] && queried.row.index == subject.name()
                };
                rows.iter().find(is).map(|queried| (number as f64 + 1.0, queried.row.pages))
            };
            Curve {
                name: subject.name().to_owned(),
                points: (0..KINDS.len()).filter_map(of).collect(),
                pen: Pen::Marks,
            }
        };
        let drawn: Vec<Curve> = ALL.iter().filter(|subject| subject.on_card()).map(curve).collect();
        let title = format!("{set}, recall {} asked for", RECALLS[0]);
        let axes = Axes { title: &title, x: "queries, in the order of the table", y: "pages a query" };
        document.plot(&format!("figure-16-{set}.svg"), &axes, &drawn)
    }

    /// What figure 17 shows: rows that a card answers, of the least recall.
    pub(super) fn loads(&self) -> Vec<Loaded> {
        let machine = self.arguments.machine(self.arguments.ssds);
        let rows = self.measured.rows.iter().filter(|row| row.asked == RECALLS[0] && row.on_card);
        let of = |row: &Row| {
            let (set, index) = (row.set.clone(), row.index);
            let loads = machine.loads(&row.asks, row.rounds);
            loads.into_iter().map(move |load| Loaded { set: set.clone(), index, load })
        };
        rows.flat_map(of).collect()
    }

    /// Figure 17.
    pub(super) fn latencies(
        &self,
        document: &mut Document<'_>,
        set: &str,
        all: &[Loaded],
    ) -> Result<(), Failure> {
        let rows: Vec<&Loaded> = all.iter().filter(|loaded| loaded.set == set).collect();
        let text = &mut document.text;
        let _ = write!(
            text,
            "\n## `{set}`: latency and throughput, predicted (figure 17)\n\nRecall {}, so many queries under way, of which a card of Bathyal's keeps \
             4,096 at most. Rounds and what they ask for are counted, all else is **predicted** by a closed queueing network: in every round a query \
             waits {:.0} us for a read and {:.0} us for a launch with its copies, and queues for disks, link, card's memory, card and processor, each \
             one server with exponential service times; nothing is lost to batches, to the system or to the choice of groups. *At most* is what \
             queries could be answered if they never queued, or by the slowest part.\n\n\
             | index | under way | **predicted** queries/s | at most | **predicted** latency, ms |\n|---|---:|---:|---:|---:|\n",
            RECALLS[0], self.arguments.read_us, self.arguments.launch_us
        );
        for Loaded { index, load, .. } in &rows {
            let _ = writeln!(
                text,
                "| {index} | {} | {:.0} | {:.0} | {:.3} |",
                load.in_flight, load.qps, load.most_qps, load.latency_ms
            );
        }
        *text += "\nThe paper, SIFT1B, mini-batches in step: some 140 ms at the most queries/s, and less than 25 ms at a fifth of them.\n";
        let curve = |subject: &Subject| Curve {
            name: subject.name().to_owned(),
            points: rows
                .iter()
                .filter(|loaded| loaded.index == subject.name())
                .map(|loaded| (loaded.load.qps / 1e6, loaded.load.latency_ms.log10()))
                .collect(),
            pen: Pen::Marks,
        };
        let drawn: Vec<Curve> = ALL.iter().filter(|subject| subject.on_card()).map(curve).collect();
        let title = format!("{set}, recall {}, predicted, {} disks", RECALLS[0], self.arguments.ssds);
        let axes = Axes {
            title: &title,
            x: "million queries/s, predicted",
            y: "decimal logarithm of ms, predicted",
        };
        document.plot(&format!("figure-17-{set}.svg"), &axes, &drawn)
    }
}
