//! The report: Markdown with plots, and a line of JSON a row.

use std::fmt::Write as _;

use bathyal_console::Failure;
use serde::Serialize;

use super::findings::{Finding, Findings};
use super::measure::{Lab, Measured};
use super::rows::{Asked, Grown, Row};
use super::scheme::SCHEMES;
use crate::document::{Document, command, machine};
use crate::draw::{Axes, Curve, Pen};
use crate::sets::Set;

/// What the paper has for SIFT1M and GIST1M (tables 1 and 2).
const PAPER_TABLES: &str = "\
The paper, top-1, efSearch 48, in microseconds of network, sub-index and meta index: SIFT1M naive 90,271, 6,565 and 13.5; without\n\
doorbell 608, 287 and 10.0; d-HNSW 528, 269 and 9.8. GIST1M naive 422,900, 35,300 and 61.1; without doorbell 2,900, 1,270 and 52.6;\n\
d-HNSW 1,300, 1,480 and 46.9. Round trips a query on SIFT1M 3.547, 0.896 and 0.00475. Each of its 500 sub-indexes loaded once in a\n\
batch of 2,000 is 0.25 loads a query, so that its 0.896 counts something else, or sub-indexes more than once.\n";

/// Everything that the report is made of.
pub(super) struct Report<'a> {
    pub lab: &'a Lab<'a>,
    pub sets: &'a [Set],
    pub measured: &'a Measured,
}

/// The answer of the command.
#[derive(Serialize)]
struct Answer<'a> {
    report: String,
    emulated: bool,
    device: &'a str,
    findings: &'a [Finding],
    records: &'a [Row],
    asked: &'a [Asked],
    grown: &'a [Grown],
    notes: &'a [String],
    files: Vec<String>,
}

/// A line of `records.jsonl`.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
enum Record<'a> {
    Row(&'a Row),
    Asked(&'a Asked),
    Grown(&'a Grown),
    Finding(&'a Finding),
}

impl Report<'_> {
    /// Writes the report and answers with what it says.
    pub(super) fn write(&self) -> Result<(), Failure> {
        let Measured { rows, asked, grown, notes } = self.measured;
        let sets: Vec<Findings<'_>> =
            self.sets.iter().map(|set| Findings::of(&set.name, rows, asked)).collect();
        let findings: Vec<Finding> = sets.iter().flat_map(Findings::all).collect();
        let mut document = Document::new(&self.lab.arguments.output);
        document.text = self.head();
        if !findings.is_empty() {
            self.found(&mut document.text, &findings);
        }
        for set in &sets {
            if !set.rows.is_empty() {
                self.curves(&mut document, set)?;
                self.breakdown(&mut document.text, set);
                self.varied(&mut document.text, set);
            }
            if !set.asked.is_empty() {
                self.recalls(&mut document.text, set);
            }
            self.grown(&mut document, set.set, grown)?;
        }
        if !notes.is_empty() {
            document.text += "\n## Notes\n\n";
            notes.iter().for_each(|note| _ = writeln!(document.text, "* {note}"));
        }
        let mut records: Vec<Record<'_>> = rows.iter().map(Record::Row).collect();
        records.extend(asked.iter().map(Record::Asked));
        records.extend(grown.iter().map(Record::Grown));
        records.extend(findings.iter().map(Record::Finding));
        let (path, files) = document.write(&records)?;
        let answer = Answer {
            report: path.display().to_string(),
            emulated: true,
            device: &self.lab.arguments.emulate.name,
            findings: &findings,
            records: rows,
            asked,
            grown,
            notes,
            files: files.iter().map(|file| file.display().to_string()).collect(),
        };
        let lines = findings.iter().map(|found| format!("{}: {}: {}\n", found.set, found.what, found.here));
        let text = format!("{}written: {}", lines.collect::<String>(), path.display());
        self.lab.console.answer(&answer, &text)
    }

    /// What every table of times begins with.
    fn label(&self) -> String {
        let device = &self.lab.arguments.emulate;
        let (us, gigabytes) = (device.latency_ns as f64 / 1e3, device.bandwidth_bytes_per_s / 1e9);
        format!("\n**Emulated `{}`**: {us} us, {gigabytes} GB/s; one thread searches.\n\n", device.name)
    }

    fn head(&self) -> String {
        let arguments = self.lab.arguments;
        let sets: Vec<String> = self.sets.iter().map(|set| format!("* {}\n", set.described())).collect();
        format!(
            "# d-HNSW\n\n\
             Sub-indexes in the memory of a node, each read whole (d-HNSW). *naive* answers a query at a time, reads each sub-index in a\n\
             round trip of its own and keeps as little as will do; *without doorbell* answers batches of {batch}, reads each sub-index once\n\
             a batch and keeps a share of {share}; *d-HNSW* reads up to {doorbell} a round trip; *ours* posts whatever is ready, and waits\n\
             for no batch. All four are one code with other parameters.\n\n\
             **Every time here is emulated.** The node is in this process, its memory is shared with the search, and a network card's latency\n\
             and link are put before it. What a card would move, a copy by the searching processor moves here; it counts as network, as\n\
             does whatever else the processor does for no query. Recall, round trips, reads and bytes are exact.\n\n\
             **One compute instance, one thread.** The paper's 24 instances of 18 threads share the node's network card, which its naive\n\
             scheme fills: that is why its naive is slower still. Ratios here are those of one instance that has the card to itself.\n\n\
             A search refuses a list of candidates (efSearch) that is shorter than the answer: curves of top-k begin at k.\n{label}\
             {sets}* metric {metric}, {probes} sub-indexes a query (b), of {vectors} vectors on average; each time is the median of {repeats}\n\
             * {machine}\n\n    {command}\n",
            batch = arguments.batch_queries(),
            share = arguments.cache_share,
            doorbell = arguments.doorbell,
            label = self.label(),
            sets = sets.concat(),
            metric = arguments.metric,
            probes = arguments.probes,
            vectors = arguments.subindex_vectors(),
            repeats = arguments.cell_repeats(),
            machine = machine(),
            command = command(),
        )
    }

    fn found(&self, text: &mut String, findings: &[Finding]) {
        *text += "\n## Findings\n\nComputed from the tables below.\n";
        *text += &self.label();
        *text += "| set | | here | the paper |\n|---|---|---|---|\n";
        for Finding { set, what, here, paper, .. } in findings {
            let _ = writeln!(text, "| `{set}` | {what} | {here} | {} |", paper.unwrap_or("-"));
        }
    }

    /// Figure 6.
    fn curves(&self, document: &mut Document<'_>, set: &Findings<'_>) -> Result<(), Failure> {
        for k in set.neighbours() {
            let name = set.set;
            let _ = write!(document.text, "\n## `{name}`: latency against recall, top-{k} (figure 6)\n");
            document.text += &self.label();
            document.text += COLUMNS;
            let mut drawn = Vec::new();
            for scheme in SCHEMES {
                let rows = set.curve(scheme, k);
                rows.iter().for_each(|row| line(&mut document.text, row));
                let points = rows.iter().map(|row| (row.cost.recall, row.cost.wall_us.max(1.0).log10()));
                drawn.push(Curve {
                    name: scheme.name().to_owned(),
                    points: points.collect(),
                    pen: Pen::Marks,
                });
            }
            let title = format!("{name}, top-{k}, emulated {}", self.lab.arguments.emulate.name);
            let axes = Axes { title: &title, x: "recall", y: "us a query, by its decimal logarithm" };
            document.plot(&format!("figure-6-{name}-top{k}.svg"), &axes, &drawn)?;
        }
        Ok(())
    }

    /// Tables 1 and 2.
    fn breakdown(&self, text: &mut String, set: &Findings<'_>) {
        let Some(k) = set.neighbours().first().copied() else { return };
        let _ = write!(text, "\n## `{}`: where the time goes, top-{k} (tables 1 and 2)\n", set.set);
        *text += &self.label();
        *text += "| scheme | ef | network us | card us | sub-index us | meta us | round trips | reads |\n|---|---:|---:|---:|---:|---:|---:|---:|\n";
        for row in SCHEMES.iter().filter_map(|scheme| set.last(*scheme, k)) {
            let cost = &row.cost;
            let _ = writeln!(
                text,
                "| {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.5} | {:.4} |",
                row.scheme,
                row.search_list,
                cost.network_us,
                cost.card_us,
                cost.subindex_us,
                cost.meta_us,
                cost.round_trips,
                cost.reads
            );
        }
        *text += "\nNetwork is what is left of the wall's time without the processor's for the queries; with a sub-index come its checksum and\n\
                  a copy into what is kept. On a machine that others use their time counts as network; *card* does not depend on them: it is\n\
                  computed, what the emulated card takes for these round trips, reads and bytes one after the other.\n\n";
        *text += PAPER_TABLES;
    }

    /// Batches, doorbells and caches.
    fn varied(&self, text: &mut String, set: &Findings<'_>) {
        let kinds = [
            ("batch", "queries of a batch"),
            ("doorbell", "reads of a doorbell"),
            ("cache", "how much is kept"),
        ];
        for (varied, what) in kinds {
            let _ = write!(text, "\n## `{}`: {what}\n", set.set);
            *text += &self.label();
            *text += COLUMNS;
            let rows = set.rows.iter().filter(|row| row.varied == varied);
            rows.for_each(|row| line(text, row));
        }
    }

    /// Recalls that are asked for.
    fn recalls(&self, text: &mut String, set: &Findings<'_>) {
        let _ = write!(text, "\n## `{}`: other families on the same network\n", set.set);
        *text += "\nAsked for a recall. Partitions keep the share that was asked for of their sub-indexes, which of replicas is more; `cluster` and\n\
                  `graph` are given as much memory in the searching process as the paper's partitions take (searches and their buffers\n\
                  aside), or as little as they do with. Partitions answer batches, the others as many queries at once as they choose;\n\
                  *alone* is one query at a time.\n";
        *text += &self.label();
        *text += "| index | asked | recall | MB kept | MB in all | at once | queries/s | bytes | round trips | alone, p50 us | alone, bytes | alone, round trips |\n\
                  |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        for asked in &set.asked {
            let cost = &asked.cost;
            let _ = writeln!(
                text,
                "| {} | {} | {:.3} | {:.1} | {:.1} | {} | {:.0} | {:.0} | {:.4} | {:.0} | {:.0} | {:.2} |",
                asked.of.index,
                asked.asked,
                cost.recall,
                asked.kept_bytes as f64 / 1e6,
                asked.index_bytes as f64 / 1e6,
                asked.in_flight.map_or("-".to_owned(), |queries| queries.to_string()),
                cost.qps,
                cost.bytes,
                cost.round_trips,
                asked.alone_p50_us,
                asked.alone_bytes,
                asked.alone_round_trips,
            );
        }
    }
}

impl Report<'_> {
    /// Inserts, and what they do to searches.
    fn grown(&self, document: &mut Document<'_>, set: &str, all: &[Grown]) -> Result<(), Failure> {
        let rows: Vec<&Grown> = all.iter().filter(|row| row.set == set).collect();
        let Some(first) = rows.first() else { return Ok(()) };
        let text = &mut document.text;
        let _ = write!(text, "\n## `{set}`: inserts until there are twice as many vectors (section 3.2)\n");
        let _ = write!(
            text,
            "\nAn index of the first half (balanced pivots, room for as many again); the other half is inserted, by one machine, in calls of a\n\
             thousand vectors, and searches by another have the effort that recall 0.95 took at first: {} candidates in each of {} sub-indexes.\n\
             Inserts change memory that is shared with the node: **their times are of this machine's processors and are not emulated**; graphs\n\
             are made anew by the inserting process. *While inserting* is a query alone while calls of a thousand go on, on the same cores.\n",
            first.search_list, first.probes
        );
        *text += &self.label();
        *text += "| vectors | inserts/s | one insert, p50 us | recall | us a query | bytes | alone, p50 us | alone while inserting, p50 us |\n\
                  |---:|---:|---:|---:|---:|---:|---:|---:|\n";
        let or_none = |value: f64| if value > 0.0 { format!("{value:.0}") } else { "-".to_owned() };
        for row in &rows {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.3} | {:.1} | {:.0} | {:.0} | {} |",
                row.vectors,
                or_none(row.inserts_a_second),
                or_none(row.insert_p50_us),
                row.cost.recall,
                row.cost.wall_us,
                row.cost.bytes,
                row.alone_p50_us,
                or_none(row.alone_while_inserting_p50_us),
            );
        }
        let curve = |name: &str, of: fn(&Grown) -> f64| Curve {
            name: name.to_owned(),
            points: rows.iter().map(|row| (row.vectors as f64, of(row))).collect(),
            pen: Pen::Marks,
        };
        let title = format!("{set}, inserts, emulated {}", self.lab.arguments.emulate.name);
        let axes = Axes { title: &title, x: "vectors", y: "us a query" };
        let curves = [curve("in batches", |row| row.cost.wall_us), curve("alone", |row| row.alone_p50_us)];
        document.plot(&format!("inserts-{set}.svg"), &axes, &curves)
    }
}

/// The head of a table of rows.
const COLUMNS: &str = "\
| scheme | ef | batch | at once | doorbell | kept | recall | us | network us | round trips | reads | bytes | queries/s |\n\
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";

fn line(text: &mut String, row: &Row) {
    let cost = &row.cost;
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} | {} | {:.1}% | {:.3} | {:.1} | {:.1} | {:.4} | {:.4} | {:.0} | {:.0} |",
        row.scheme,
        row.search_list,
        row.batch,
        row.at_once,
        row.doorbell.map_or("-".to_owned(), |reads| reads.to_string()),
        100.0 * row.cache_share,
        cost.recall,
        cost.wall_us,
        cost.network_us,
        cost.round_trips,
        cost.reads,
        cost.bytes,
        cost.qps,
    );
}
