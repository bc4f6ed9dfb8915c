//! The report: Markdown with plots, and a line of JSON a row.

use std::fmt::Write as _;

use bathyal_console::{Console, Failure};
use serde::Serialize;

use super::arguments::GustannArguments;
use super::copies::Copied;
use super::measure::{Measured, RECALLS};
use super::pivots::Began;
use super::queries::Queried;
use super::rows::Row;
use super::sensitivity_report::Loaded;
use super::subjects::ALL;
use crate::document::{Document, command, machine};
use crate::draw::{Axes, Curve, Pen};
use crate::sets::Set;

/// What is published of others: measured by their authors, on their machines.
const PUBLISHED: &str = "\
| system | set | recall@10 | pages a query | queries/s | a query on the card | $ a query/s |\n\
|---|---|---:|---:|---:|---:|---:|\n\
| GustANN, A100, 6 disks | SIFT100M | 0.9 | 31.8 | 380,793 | 40.22 KB | 0.097 |\n\
| BANG, A100, index in DRAM | SIFT100M | 0.9 | - | 152,262 | 480 KB | 0.255 |\n\
| DiskANN, 112 threads | SIFT100M | 0.9 | - | 56,782 | - | 0.404 |\n\
| SPANN | SIFT100M | 0.9 | 147.9 | - | - | - |\n\
\n\
As their abstracts say, where `-` stands they do not say:\n\
\n\
| system | claims | against | recall@10 | machine and sets | source |\n\
|---|---|---|---:|---|---|\n\
| FusionANNS: codes on the card, vectors on SSDs, re-ranking that stops early | 9.4 to 13.1 times the queries/s | SPANN | - | one \
entry-level card, SSDs; sets of a billion | FAST'25; arXiv 2409.16576 |\n\
| FusionANNS | 2 to 4.9 times the queries/s | RUMMY, in memory | - | the same | the same |\n\
| FlashANNS: a graph on SSDs that the card reads itself, reads beside distances | 2.3 to 5.9 times the queries/s | SPANN, DiskANN, \
FusionANNS | 0.95 | a card, one SSD; sets of a billion | arXiv 2507.10070, version 1 |\n\
| FlashANNS | 2.7 to 12.2 times the queries/s | the same | 0.95 | a card, several SSDs | the same |\n\
| FlashANNS | 2.7 to 5.9 times the queries/s | the same | 0.95 | - | arXiv 2507.10070, version 2 |\n\
| cuVS IVF-RaBitQ: groups and codes on the card, no vectors for re-ranking | 2.2 times the queries/s, built 7.7 times as fast | cuVS CAGRA | 0.95 | a card; \
several sets of cuVS Bench | arXiv 2602.23999 |\n\
| cuVS IVF-RaBitQ | 2.7 times the queries/s | cuVS IVF-PQ | - | the same | the same |\n\
| CAGRA: a graph and its vectors on the card | 33 to 77 times the queries/s in large batches | HNSW on a processor | 0.90 to 0.95 | - | ICDE'24; \
arXiv 2308.15136 |\n\
\n\
What cuVS answers on a card that is at hand, `make bench-gpu` measures beside Bathyal; its Python wheel of October 2026 (26.10) has CAGRA and\n\
IVF-PQ, and no IVF-RaBitQ.\n";

/// Everything that the report is made of.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a GustannArguments,
    pub(super) console: &'a Console,
    pub(super) sets: &'a [Set],
    pub(super) measured: &'a Measured,
}

/// The answer of the command.
#[derive(Serialize)]
struct Answer<'a> {
    report: String,
    predicted: bool,
    records: &'a [Row],
    begun: &'a [Began],
    copied: &'a [Copied],
    queried: &'a [Queried],
    loaded: &'a [Loaded],
    files: Vec<String>,
}

/// A line of `records.jsonl`.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
enum Record<'a> {
    Row(&'a Row),
    Begun(&'a Began),
    Copied(&'a Copied),
    Queried(&'a Queried),
    Loaded(&'a Loaded),
}

impl Report<'_> {
    /// Writes the report and answers with what it says.
    pub(super) fn write(&self) -> Result<(), Failure> {
        let mut document = Document::new(&self.arguments.output);
        document.text = self.head();
        let (measured, loaded) = (self.measured, self.loads());
        for set in self.sets {
            let rows: Vec<&Row> = measured.rows.iter().filter(|row| row.set == set.name).collect();
            counted(&mut document.text, &set.name, &rows);
            self.curves(&mut document, &set.name, &rows)?;
            sent(&mut document.text, &set.name, &rows);
            self.beginnings(&mut document, &set.name)?;
            self.dimensions(&mut document, &set.name)?;
            self.disks(&mut document, &set.name, &rows)?;
            self.questions(&mut document, &set.name)?;
            self.latencies(&mut document, &set.name, &loaded)?;
        }
        document.text += "\n## Published figures\n\nOf their authors, on their machines and sets; nothing of them was measured here.\n\n";
        document.text += PUBLISHED;
        let mut records: Vec<Record<'_>> = measured.rows.iter().map(Record::Row).collect();
        records.extend(measured.begun.iter().map(Record::Begun));
        records.extend(measured.copied.iter().map(Record::Copied));
        records.extend(measured.queried.iter().map(Record::Queried));
        records.extend(loaded.iter().map(Record::Loaded));
        let (path, files) = document.write(&records)?;
        let line = |row: &&Row| {
            format!(
                "{}: {} at recall {:.3}: {:.1} pages, {:.0} bytes to the card, {} of its memory\n",
                row.set, row.index, row.recall, row.pages, row.sent_bytes, row.slot_bytes
            )
        };
        let lines: String =
            measured.rows.iter().filter(|row| row.asked == RECALLS[0]).map(|row| line(&row)).collect();
        let answer = Answer {
            report: path.display().to_string(),
            predicted: true,
            records: &measured.rows,
            begun: &measured.begun,
            copied: &measured.copied,
            queried: &measured.queried,
            loaded: &loaded,
            files: files.iter().map(|file| file.display().to_string()).collect(),
        };
        self.console.answer(&answer, &format!("{lines}written: {}", path.display()))
    }

    fn head(&self) -> String {
        let arguments = self.arguments;
        let sets: Vec<String> = self.sets.iter().map(|set| format!("* {}\n", set.described())).collect();
        format!(
            "# GustANN\n\n\
             A graph and groups that a graphics card searches: `graph-beam-1` walks as the paper does, a record at a time; `graph` four at a\n\
             time, as Bathyal does where nothing is said; `cluster` scans groups on the card and reads once. `graph-page-local` is searched\n\
             by the processor alone, and shows how few pages a graph can do with; so is whatever needs longer lists than a card keeps.\n\n\
             **Counted**: recall, pages, rounds, bytes and memory are exact. They were counted by searches of the processor, whose reads and\n\
             answers a card repeats hop for hop; what a card is sent follows from them by the layout of what is sent, and by the mean of the\n\
             links of a vector.\n\n\
             **Predicted**: no time was measured. Queries a second are those of the slowest of disks, link, card's memory, card and processor\n\
             of the machine below, all of which work at once and never wait: a bound from above, of which GustANN reaches 0.84 by what\n\
             its paper says of its disks.\n\n\
             {sets}* metric {metric}, top-{k}\n\
             * predicted machine: {ssds} disks of {reads:.2} million reads/s, {link:.0} GB/s into the card, {memory:.0} GB/s and {operations:.1} million million\n\
             whole-number operations a second of the card, {cores} cores, ${price:.0} and ${price_ssd:.0} a disk\n\
             * counted on {machine}\n\n    {command}\n",
            sets = sets.concat(),
            metric = arguments.metric,
            k = arguments.k,
            ssds = arguments.ssds,
            reads = arguments.ssd_reads / 1e6,
            link = arguments.link / 1e9,
            memory = arguments.card_memory / 1e9,
            operations = arguments.card_operations / 1e12,
            cores = arguments.cores,
            price = arguments.price,
            price_ssd = arguments.price_ssd,
            machine = machine(),
            command = command(),
        )
    }

    /// Figures 7 to 10.
    fn curves(&self, document: &mut Document<'_>, set: &str, rows: &[&Row]) -> Result<(), Failure> {
        let _ = write!(
            document.text,
            "\n## `{set}`: predicted throughput over recall (figures 7 to 10), and cost (table 1)\n\n"
        );
        document.text += "| index | asked | recall | **predicted** queries/s | bound by | $ a query/s |\n|---|---:|---:|---:|---|---:|\n";
        for row in rows.iter().filter(|row| row.on_card) {
            let _ = writeln!(
                document.text,
                "| {} | {} | {:.3} | {:.0} | {} | {:.4} |",
                row.index,
                row.asked,
                row.recall,
                row.prediction.qps,
                row.prediction.bound,
                row.prediction.dollars_a_qps
            );
        }
        let curve = |name: &str| Curve {
            name: name.to_owned(),
            points: rows
                .iter()
                .filter(|row| row.index == name)
                .map(|row| (row.recall, row.prediction.qps / 1e6))
                .collect(),
            pen: Pen::Marks,
        };
        let drawn: Vec<Curve> =
            ALL.iter().filter(|subject| subject.on_card()).map(|subject| curve(subject.name())).collect();
        let title = format!("{set}, top-{}, predicted, {} disks", self.arguments.k, self.arguments.ssds);
        let axes = Axes { title: &title, x: "recall", y: "million queries/s, predicted" };
        document.plot(&format!("figure-7-{set}.svg"), &axes, &drawn)
    }

    /// Figure 15.
    fn disks(&self, document: &mut Document<'_>, set: &str, rows: &[&Row]) -> Result<(), Failure> {
        let asked = RECALLS[0];
        let _ = write!(
            document.text,
            "\n## `{set}`: predicted throughput over disks, recall {asked} (figure 15)\n\n"
        );
        document.text += "| index | 1 | 2 | 3 | 4 | 5 | 6 |\n|---|---:|---:|---:|---:|---:|---:|\n";
        let at: Vec<&&Row> = rows.iter().filter(|row| row.asked == asked && row.on_card).collect();
        for row in &at {
            let cells: Vec<String> =
                row.by_disks.iter().map(|one| format!("{:.0} ({})", one.qps, one.bound)).collect();
            let _ = writeln!(document.text, "| {} | {} |", row.index, cells.join(" | "));
        }
        let curve = |row: &&&Row| Curve {
            name: row.index.to_owned(),
            points: (1..).zip(&row.by_disks).map(|(disks, one)| (f64::from(disks), one.qps / 1e6)).collect(),
            pen: Pen::Marks,
        };
        let drawn: Vec<Curve> = at.iter().map(curve).collect();
        let title = format!("{set}, recall {asked}, predicted");
        let axes = Axes { title: &title, x: "disks", y: "million queries/s, predicted" };
        document.plot(&format!("figure-15-{set}.svg"), &axes, &drawn)
    }
}

/// What was counted.
fn counted(text: &mut String, set: &str, rows: &[&Row]) {
    let _ = write!(
        text,
        "\n## `{set}`: what a query reads and keeps\n\nExact. *On the card* is memory of the card for a query under way, of which the paper \
         takes 40.22 KB (section 5.3.1), and for the code of a vector.\n\n\
         | index | asked | recall | list | groups | pages | rounds | on the card, bytes | code, bytes |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for row in rows {
        let on_card = if row.on_card { row.slot_bytes.to_string() } else { "-".to_owned() };
        let groups = row.probes.map_or("-".to_owned(), |probes| probes.to_string());
        let _ = writeln!(
            text,
            "| {} | {} | {:.3} | {} | {groups} | {:.1} | {:.1} | {on_card} | {} |",
            row.index, row.asked, row.recall, row.search_list, row.pages, row.rounds, row.code_bytes
        );
    }
}

/// Figure 11: what goes to the card, and what that would mean.
fn sent(text: &mut String, set: &str, rows: &[&Row]) {
    let _ = write!(
        text,
        "\n## `{set}`: what is sent to the card (figure 11)\n\nBytes a query. *Records* are vectors and links, as the paper sends them \
         (section 4.3), of groups the vectors of the candidates; *pages* are what a card gets that reads disks by itself.\n\n\
         | index | asked | sent | records | pages | **predicted** queries/s | of records | of pages |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for row in rows.iter().filter(|row| row.on_card) {
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
            row.index,
            row.asked,
            row.sent_bytes,
            row.record_bytes,
            row.page_bytes,
            row.prediction.qps,
            row.sending_records.qps,
            row.sending_pages.qps
        );
    }
}
