//! The report: Markdown with plots, and a line of JSON a point.

use std::fmt::Write as _;

use bathyal_console::Failure;
use serde::Serialize;

use super::caching::Cached;
use super::curves::{self, Counter, crossing, ratio};
use super::effort::BEAM;
use super::findings::{Claim, Findings, measured_concurrencies};
use super::measure::{Lab, Measured};
use super::plan::CONCURRENCIES;
use super::points::{Load, Point, Size};
use super::sets::Set;
use super::subjects::{GRAPH, SPANN, Subject};
use crate::document::{Document, command, machine};
use crate::draw::{Axes, Curve, Pen};
use crate::numbers::{median, percent};

/// The indexes that are compared with each other.
pub(super) const COMPARED: [Subject; 4] = [GRAPH, SPANN, Subject::Cluster, Subject::Coded];
/// Recalls of the table of crossings.
const RECALLS: [f64; 4] = [0.8, 0.9, 0.95, 0.99];
/// What the paper has for GIST1M at a recall of 0.7 and 0.995 (figure 8).
const PAPER_COUNTERS: &str = "\
The paper, GIST1M (960 dimensions, a million vectors): SPANN reads 2.5 MB a query at 0.7 and 256 MB at 0.995, 9.39 and 94.8 times what\n\
DiskANN does; DiskANN makes 7 and 43 roundtrips; requests are 7.9 and 2,003.6 of SPANN, 38.4 and 660.0 of DiskANN.\n";

/// Everything that the report is made of.
pub(super) struct Report<'a> {
    pub lab: &'a Lab<'a>,
    pub sets: &'a [Set],
    pub measured: &'a Measured,
    pub cached: &'a [Cached],
}

/// The answer of the command.
#[derive(Serialize)]
struct Answer<'a> {
    report: String,
    emulated: bool,
    store: &'a str,
    claims: &'a [Claim],
    records: &'a [Point],
    sizes: &'a [Size],
    cached: &'a [Cached],
    notes: &'a [String],
    files: Vec<String>,
}

/// A line of `records.jsonl`.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
enum Record<'a> {
    Point(&'a Point),
    Size(&'a Size),
    Cached(&'a Cached),
    Claim(&'a Claim),
}

impl Report<'_> {
    /// Writes the report and answers with what it says.
    pub(super) fn write(&self) -> Result<(), Failure> {
        let claims = self.findings().claims();
        let mut document = Document::new(&self.lab.arguments.output);
        document.text = self.head();
        answers(&mut document.text, &claims);
        self.beside(&mut document.text);
        self.speeds(&mut document)?;
        self.crossings(&mut document.text);
        self.counters(&mut document)?;
        self.waits(&mut document.text);
        self.time(&mut document.text);
        self.design(&mut document)?;
        self.equations(&mut document.text);
        self.caches(&mut document)?;
        self.left_out(&mut document.text);
        let measured = self.measured;
        let mut records: Vec<Record<'_>> = measured.points.iter().map(Record::Point).collect();
        records.extend(measured.sizes.iter().map(Record::Size));
        records.extend(self.cached.iter().map(Record::Cached));
        records.extend(claims.iter().map(Record::Claim));
        let (path, files) = document.write(&records)?;
        let answer = Answer {
            report: path.display().to_string(),
            emulated: true,
            store: self.lab.emulation.name,
            claims: &claims,
            records: &measured.points,
            sizes: &measured.sizes,
            cached: self.cached,
            notes: &measured.notes,
            files: files.iter().map(|file| file.display().to_string()).collect(),
        };
        let text = format!("{}\nwritten: {}", summary(&claims), path.display());
        self.lab.console.answer(&answer, &text)
    }

    pub(super) fn findings(&self) -> Findings<'_> {
        Findings { points: &self.measured.points, sets: self.sets, cached: self.cached }
    }

    /// The set that all figures but those of several sets are of.
    pub(super) fn first(&self) -> &str {
        self.sets.first().map_or("", |set| &set.name)
    }

    /// The points of an index of the first set, by recall.
    pub(super) fn of(&self, subject: Subject) -> Vec<&Point> {
        let beam = matches!(subject, Subject::Graph { .. }).then_some(BEAM);
        curves::of(&self.measured.points, self.first(), subject, beam)
    }

    /// What every table of speeds begins with.
    pub(super) fn label(&self) -> String {
        format!("\n{}\n\n", self.lab.emulation.label())
    }

    fn head(&self) -> String {
        let arguments = self.lab.arguments;
        let sets: Vec<String> = self.sets.iter().map(|set| format!("* {}\n", set.described())).collect();
        let hedge = if arguments.hedge { "are sent a second time" } else { "are not sent a second time" };
        format!(
            "# Cloud-native vector search\n\n\
             What cloud-native-vector-search measures: `graph` is laid out as DiskANN (a page a vector with its links, codes in memory,\n\
             W = {BEAM}), `spann` as SPANN (lists of whole vectors, 0.16 centroids a vector, 8 replicas). Beside them what the paper\n\
             lacks: `cluster`, groups with all codes in memory and one round for the best candidates, and `coded`, lists of codes.\n\n\
             **Every speed here is emulated.** Indexes lie in an object store in the memory of this process; a lognormal first byte, a\n\
             limit of requests and one link for all answers are put before it. Recall, rounds, requests and bytes are exact. Queries\n\
             a second are of a few to some twenty times as many queries as run at once, the last of which run with fewer beside them.\n\
             The paper's numbers are of other and larger sets on other machines: what can be compared is who is ahead, where, and why.\n\n\
             {}\n\
             {}* metric {}, {} neighbours a query; requests that are late {hedge}\n\
             * {}\n\n    {}\n",
            self.lab.emulation.label(),
            sets.concat(),
            arguments.metric,
            arguments.k,
            machine(),
            command(),
        )
    }

    /// What the paper lacks, over the better of its two.
    fn beside(&self, text: &mut String) {
        let findings = self.findings();
        *text += "\n## What the paper lacks\n\nQueries a second, in times of the better of `graph` and `spann` at the same recall.\n";
        *text += &self.label();
        *text += "| queries at once |";
        for subject in &COMPARED[2..] {
            RECALLS.iter().for_each(|recall| _ = write!(text, " {} at {recall} |", subject.name()));
        }
        *text += "\n|---:|";
        (0..2 * RECALLS.len()).for_each(|_| *text += "---:|");
        text.push('\n');
        for concurrency in measured_concurrencies(&self.measured.points, &CONCURRENCIES) {
            let _ = write!(text, "| {concurrency} |");
            for subject in &COMPARED[2..] {
                for recall in RECALLS {
                    let _ = write!(text, " {} |", times(findings.over_both(*subject, concurrency, recall)));
                }
            }
            text.push('\n');
        }
    }

    /// Figures 3 and 7.
    fn speeds(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        document.text += "\n## Queries a second against recall (figures 3 and 7)\n";
        for concurrency in measured_concurrencies(&self.measured.points, &CONCURRENCIES) {
            let _ = write!(document.text, "\n### {concurrency} at once\n{}", self.label());
            document.text += "| index | effort | recall | queries/s | ms | p99 | MB/s | GET/s | bound, by the equations |\n\
                              |---|---|---:|---:|---:|---:|---:|---:|---|\n";
            let mut drawn = Vec::new();
            for subject in COMPARED {
                let points = self.of(subject);
                points.iter().for_each(|point| speed(&mut document.text, point, concurrency));
                drawn.push(marks(subject.name(), curves::speeds(&points, concurrency)));
            }
            let title = format!("{concurrency} at once, emulated store `{}`", self.lab.emulation.name);
            let axes = Axes { title: &title, x: "recall", y: "queries/s" };
            document.plot(&format!("figure-7-c{concurrency}.svg"), &axes, &drawn)?;
        }
        Ok(())
    }

    /// Where the graph overtakes the lists.
    fn crossings(&self, text: &mut String) {
        *text += "\n## Where graph and lists cross\n\nQueries a second of `graph` in times of `spann`.\n";
        *text += &self.label();
        *text += "| set | queries at once |";
        RECALLS.iter().for_each(|recall| _ = write!(text, " at {recall} |"));
        *text += " graph ahead |\n|---|---:|---:|---:|---:|---:|---|\n";
        let findings = self.findings();
        for set in self.sets {
            for concurrency in CONCURRENCIES {
                let (graph, spann) = findings.both(&set.name, concurrency);
                if graph.is_empty() || spann.is_empty() {
                    continue;
                }
                let _ = write!(text, "| `{}` | {concurrency} |", set.name);
                for recall in RECALLS {
                    let _ = write!(text, " {} |", times(ratio(&graph, &spann, recall)));
                }
                let _ = writeln!(text, " {} |", crossing(&graph, &spann).words());
            }
        }
        *text += "\nThe paper: on GIST1M DiskANN is ahead from 0.8 on with 16 at once, nowhere with 1 and 4, everywhere with 64; on DEEP10M\n\
                  from 0.99 with 16, on MSSPACE10M from 0.96 with 64, on BIGANN1B from 0.99 with 64.\n";
    }

    /// Figure 8.
    fn counters(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        document.text += "\n## What a query asks for (figure 8)\n\nExact, of all queries. Waits are as many as rounds, or more where the buffers of a thread do not hold all that a round reads.\n\n\
                          | index | effort | recall | rounds | waits | requests | reads | KB | us of the processor |\n\
                          |---|---|---:|---:|---:|---:|---:|---:|---:|\n";
        for point in COMPARED.iter().flat_map(|subject| self.of(*subject)) {
            counted(&mut document.text, point);
        }
        let _ = write!(document.text, "\n{PAPER_COUNTERS}");
        let plots: [(&str, &str, Counter); 3] = [
            ("figure-8-bytes.svg", "MB read", |point| point.bytes / 1e6),
            ("figure-8-rounds.svg", "rounds", |point| point.rounds),
            ("figure-8-requests.svg", "requests", |point| point.requests),
        ];
        for (name, what, of) in plots {
            let curve = |subject: Subject| marks(subject.name(), curves::counters(&self.of(subject), of));
            let axes = Axes { title: &format!("{what} of a query"), x: "recall", y: what };
            document.plot(name, &axes, &COMPARED.map(curve))?;
        }
        Ok(())
    }

    /// Figure 9.
    fn waits(&self, text: &mut String) {
        *text += "\n## How long reads are waited for (figure 9)\n\nMilliseconds that a round waits for all of its reads, in the mean.\n";
        *text += &self.label();
        let concurrencies = measured_concurrencies(&self.measured.points, &CONCURRENCIES);
        *text += "| index | effort | recall |";
        concurrencies.iter().for_each(|c| _ = write!(text, " {c} at once |"));
        *text += "\n|---|---|---:|";
        concurrencies.iter().for_each(|_| *text += "---:|");
        text.push('\n');
        for point in COMPARED.iter().flat_map(|subject| self.of(*subject)) {
            let _ = write!(text, "| {} | {} | {:.3} |", point.index, point.effort.words(), point.recall);
            for concurrency in &concurrencies {
                let ms = point.at(*concurrency).map(|load| format!("{:.0}", load.round_ms));
                let _ = write!(text, " {} |", ms.unwrap_or("-".into()));
            }
            text.push('\n');
        }
        *text += "\nThe paper, SPANN on GIST1M at 0.995 with 64 at once: 21.6 seconds for a posting list, 416 times what DiskANN waits for a\n\
                  batch.\n";
    }

    /// Figures 2 and 4.
    fn time(&self, text: &mut String) {
        *text += "\n## Where the time goes (figures 2 and 4)\n\nShares of a query's time, one at a time; distances are to codes (scan) and to \
                  vectors (rerank), and finding is of centroids and of the next nodes.\n";
        *text += &self.label();
        *text += "| index | effort | recall | reads | finding | codes | vectors |\n|---|---|---:|---:|---:|---:|---:|\n";
        let usual = |point: &&Point| {
            point.set == self.first() && point.effort.beam_width().is_none_or(|beam| beam == BEAM)
        };
        for point in self.measured.points.iter().filter(usual) {
            let Some(load) = point.at(1) else { continue };
            let _ = writeln!(
                text,
                "| {} | {} | {:.3} | {} | {} | {} | {} |",
                point.index,
                point.effort.words(),
                point.recall,
                percent(Some(load.read_share)),
                percent(Some(load.navigate_share)),
                percent(Some(load.scan_share)),
                percent(Some(load.rerank_share)),
            );
        }
        *text += "\nThe paper, I/O on the remote store: SPANN 54% (nprobe 8) and 64% (640; 55% with twice the centroids), DiskANN 71% (L 10)\n\
                  and 80% (640; 71% with R 256).\n";
    }

    /// Equations (1) and (2) beside what was measured.
    fn equations(&self, text: &mut String) {
        *text += "\n## Equations (1) and (2)\n\n\
                  As they stand: rounds times the median first byte, bytes over the link, and the processor's time. Refined: each wait as\n\
                  long as the slowest of its requests, more than one a round where buffers do not hold it, and a throughput of the least of queries at once over latency, GET limit, link and\n\
                  processor. Errors are what they say too much; medians over the efforts, the largest in brackets.\n";
        *text += &self.label();
        *text += "| index | queries at once | as they stand, latency | refined, latency | refined, queries/s |\n|---|---:|---:|---:|---:|\n";
        for subject in COMPARED {
            for concurrency in measured_concurrencies(&self.measured.points, &CONCURRENCIES) {
                let points = self.of(subject);
                let loads: Vec<&Load> = points.iter().filter_map(|point| point.at(concurrency)).collect();
                let plain: Vec<f64> = loads.iter().filter_map(|load| load.plain_error).collect();
                let _ = writeln!(
                    text,
                    "| {} | {concurrency} | {} | {} | {} |",
                    subject.name(),
                    errors(plain),
                    errors(loads.iter().map(|load| load.latency_error).collect()),
                    errors(loads.iter().map(|load| load.qps_error).collect()),
                );
            }
        }
    }

    fn left_out(&self, text: &mut String) {
        if self.measured.notes.is_empty() {
            return;
        }
        *text += "\n## Left out\n\n";
        self.measured.notes.iter().for_each(|note| _ = writeln!(text, "* {note}"));
    }
}

/// The answers A1 to A3.
fn answers(text: &mut String, claims: &[Claim]) {
    *text += "\n## The paper's answers\n\nComputed from the measurements below; speeds that differ by less than 5% count as the same.\n\n| | the paper says | here | holds |\n|---|---|---|---|\n";
    for Claim { answer, claim, here, holds } in claims {
        let _ = writeln!(text, "| {answer} | {claim} | {here} | {} |", held(*holds));
    }
}

fn held(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "-",
    }
}

fn summary(claims: &[Claim]) -> String {
    let line =
        |claim: &Claim| format!("{} {}: {} ({})", claim.answer, claim.claim, held(claim.holds), claim.here);
    claims.iter().map(line).collect::<Vec<_>>().join("\n").replace("**", "")
}

/// A curve of what was measured.
pub(super) fn marks(name: String, points: Vec<(f64, f64)>) -> Curve {
    Curve { name, points, pen: Pen::Marks }
}

/// A line of figure 8.
pub(super) fn counted(text: &mut String, point: &Point) {
    let _ = writeln!(
        text,
        "| {} | {} | {:.3} | {:.2} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} |",
        point.index,
        point.effort.words(),
        point.recall,
        point.rounds,
        point.waves,
        point.requests,
        point.reads,
        point.bytes / 1e3,
        point.compute_us,
    );
}

/// A line of figure 7.
pub(super) fn speed(text: &mut String, point: &Point, concurrency: usize) {
    let Some(load) = point.at(concurrency) else { return };
    let _ = writeln!(
        text,
        "| {} | {} | {:.3} | {:.1} | {:.0} | {:.0} | {:.1} | {:.0} | {} |",
        point.index,
        point.effort.words(),
        point.recall,
        load.qps,
        load.mean_ms,
        load.p99_ms,
        load.bytes_per_s / 1e6,
        load.qps * load.requests,
        load.bound,
    );
}

/// A ratio as tables have it.
pub(super) fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// The median of errors, and the one that is farthest from 0.
fn errors(all: Vec<f64>) -> String {
    let Some(worst) = all.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())) else {
        return "-".into();
    };
    format!("{:+.0}% ({:+.0}%)", 100.0 * median(all), 100.0 * worst)
}
