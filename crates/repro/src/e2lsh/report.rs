//! The report of `bathyal repro e2lsh`: parameters, accuracy and reads. `speeds_report` has the rest.

use std::fmt::Write as _;
use std::path::Path;

use bathyal_console::{Failure, byte_size};
use bathyal_index::families::lsh::Tables;
use serde::Serialize;

use super::accuracy::{Chosen, at_ratio};
use super::fit::Growth;
use super::lab::Lab;
use super::points::{FamilyPoint, Point, Record, hashes_of_theory};
use crate::document::{Document, command, machine};
use crate::draw::{Axes, Curve, Pen};
use crate::numbers::percent;

/// What a report is made of.
pub(super) struct Report<'a> {
    pub lab: &'a Lab<'a>,
    pub chosen: &'a Chosen,
    pub points: &'a [Point],
    pub family: &'a [FamilyPoint],
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    report: String,
    parameters: Parameters,
    records: &'a [Record<'a>],
    /// The exponents with which times grow: of the family from its file, of the paper's tables in memory, of an exact scan.
    growth: [Option<Growth>; 3],
    files: Vec<String>,
}

/// What hash tables were drawn for, and what theory asks for.
#[derive(Serialize)]
pub(super) struct Parameters {
    tables: usize,
    hashes: usize,
    gamma: f64,
    /// The exponent that so many tables are: `ln L / ln n`; the least that a ratio of 2 has, and the tables that it asks for.
    rho: f64,
    rho_of_theory: f64,
    tables_of_theory: f64,
    hashes_of_theory: f64,
    radii: usize,
    first_radius: f64,
    width: f64,
    slot_bits: u32,
    /// What is promised of a radius: that something within c R is found where there is something within R; and the share of queries of
    /// which something within c^2 of the nearest was found.
    promised: f64,
    /// What that is made of: how likely something within R shares a bucket with the query, and how many entries from beyond c R do in
    /// the mean at most, of which S are looked at.
    near: f64,
    far: f64,
    found: f64,
}

impl Report<'_> {
    /// Writes everything, and answers.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn write(&self) -> Result<(), Failure> {
        let mut document = Document::new(&self.lab.arguments.output);
        document.text = self.head();
        document.text += &self.summary();
        self.parameters_table(&mut document.text);
        self.reads(&mut document.text);
        self.accuracy(&mut document)?;
        self.requirements(&mut document.text);
        self.fingerprints(&mut document.text);
        self.ideas(&mut document.text);
        self.speeds(&mut document)?;
        let paper = self.points.iter().map(Record::Paper);
        let records: Vec<Record<'_>> = paper.chain(self.family.iter().map(Record::Family)).collect();
        let (path, files) = document.write(&records)?;
        let answer = Answer {
            report: path.display().to_string(),
            parameters: self.parameters(),
            records: &records,
            growth: self.growths(),
            files: files.iter().map(|file| file.display().to_string()).collect(),
        };
        self.lab.console.answer(&answer, &format!("{}\nwritten: {}", self.summary(), path.display()))
    }

    /// The k that parameters were chosen for.
    pub(super) fn k(&self) -> usize {
        self.lab.arguments.k[0] as usize
    }

    /// Points of an experiment, of a k.
    pub(super) fn of(&self, experiment: &str, k: usize) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.experiment == experiment && point.k == k)
    }

    /// The paper's tables at the ratio for a k, as they were chosen, in memory.
    pub(super) fn at_ratio(&self, k: usize) -> Option<&Point> {
        let hashes = self.chosen.built.plan.ladder.hashes;
        let own: Vec<Point> =
            self.of("accuracy", k).filter(|point| point.hashes == hashes).cloned().collect();
        let found = at_ratio(&own, k, self.lab.arguments.ratio)?.variant.clone();
        self.of("accuracy", k).find(|point| point.hashes == hashes && point.variant == found)
    }

    /// The family's index of all vectors on a device, for a k.
    pub(super) fn family_at(&self, device: &str, k: usize) -> Option<&FamilyPoint> {
        let all = self.lab.work.base.count();
        self.family.iter().find(|point| (point.device, point.k, point.vectors) == (device, k, all))
    }

    fn head(&self) -> String {
        let (arguments, work) = (self.lab.arguments, self.lab.work);
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!(
            "# E2LSH on storage\n\n\
             What e2lsh-on-storage measures, and the family `lsh` beside. \"The paper's tables\" are hash tables and chains of\n\
             512-byte blocks as its section 5 lays them out, vectors in memory. **cSSD, eSSD and XLFDD are emulated** in real\n\
             time on top of DRAM (docs/emulated-devices.md); \"file\" is this machine's disk.\n\n\
             * `{}`: {} vectors of {} {} (l2), {} queries of `{}`, overall ratio {}\n\
             * one thread where nothing else is said, {} queries in flight, medians of {} rounds in which all cells take turns\n\
             * {}\n\n    {}\n\n## Summary\n\n",
            name(&arguments.data),
            work.base.count(),
            work.base.dim(),
            work.base.element().name(),
            work.all.queries.count(),
            name(&arguments.queries),
            arguments.ratio,
            arguments.in_flight,
            arguments.repeats,
            machine(),
            command(),
        )
    }

    /// What was reached, in a few lines.
    fn summary(&self) -> String {
        let (mut text, ratio) = (String::new(), self.lab.arguments.ratio);
        for k in &self.lab.arguments.k {
            let k = *k as usize;
            if let Some(point) = self.at_ratio(k) {
                let _ = writeln!(
                    text,
                    "* the paper's tables, top-{k}: ratio {:.3} in {:.1} reads, vectors in memory",
                    point.ratio, point.reads
                );
            }
            if let Some(point) = self.family_at("file", k) {
                let scan = point.qps * point.scan_ms / 1e3;
                let _ = writeln!(
                    text,
                    "* `lsh` from a file, asked for {ratio}, top-{k}: ratio {:.3} in {:.1} reads of which {:.1} of tables, \
                     {:.0} queries/s, {scan:.1} times an exact scan in memory",
                    point.ratio, point.reads, point.table_reads, point.qps
                );
            }
        }
        for (point, times) in self.synchronous_pairs().iter().filter(|(point, _)| point.in_flight == 1) {
            let on = if point.emulated { "emulated " } else { "" };
            let _ = writeln!(
                text,
                "* the paper's tables, interleaved asynchronous reads: {times:.1} times {on}{}",
                point.variant
            );
        }
        if let Some((file, (mapped, _))) =
            self.family_at("file", self.k()).zip(self.synchronous_pairs().first())
        {
            let times = file.qps / mapped.qps.max(1e-9);
            let _ = writeln!(text, "* `lsh` from the file: {times:.1} times the paper's tables mapped");
        }
        let words = |growth: Option<Growth>| growth.map_or("-".to_owned(), |growth| growth.words());
        let [family, paper, scan] = self.growths().map(words);
        let _ = writeln!(
            text,
            "* time grows as n to the power of {family} (`lsh` from a file), {paper} (the paper's tables in memory), {scan} (exact scan)"
        );
        let told = self.parameters();
        let _ = writeln!(
            text,
            "* promised of each radius by the paper's tables: {}; something within 4 times the nearest was found for {}",
            percent(Some(told.promised)),
            percent(Some(told.found))
        );
        text
    }

    fn parameters(&self) -> Parameters {
        let (ladder, n) = (self.chosen.built.plan.ladder, self.lab.work.base.count());
        let theory = hashes_of_theory(&ladder, n);
        let of = Tables { vectors: n as f64, tables: ladder.tables as f64, hashes: ladder.hashes as f64 };
        let point = self.at_ratio(self.k());
        let candidates = point.map_or(0, |point| point.candidates);
        let promise = of.at_width(ladder.width, candidates as f64);
        Parameters {
            tables: ladder.tables,
            hashes: ladder.hashes,
            gamma: ladder.hashes as f64 / theory,
            rho: (ladder.tables as f64).ln() / (n.max(2) as f64).ln(),
            rho_of_theory: Tables::exponent(),
            tables_of_theory: (n as f64).powf(Tables::exponent()),
            hashes_of_theory: theory,
            radii: ladder.radii,
            first_radius: ladder.first,
            width: ladder.width,
            slot_bits: self.chosen.built.plan.layout.slot_bits,
            promised: promise.probability,
            near: promise.near,
            far: promise.far,
            found: point.map_or(0.0, |point| point.within),
        }
    }

    fn parameters_table(&self, text: &mut String) {
        let told = self.parameters();
        let _ = write!(
            text,
            "\n## Parameters\n\n\
             | | here | equation 5 |\n|---|---:|---:|\n\
             | tables a radius (L) | {} | {:.0} |\n\
             | exponent (rho) | {:.3} | {:.3} |\n\
             | values of a compound hash (m) | {} (gamma {:.2}) | {:.1} |\n\
             | width of a hash (w), radii | {} | |\n\
             | radii (r), from {} on, each twice the one before | {} | |\n\
             | bits that a table looks at (u) | {} | |\n\
             | success promised of a radius, by these L, m, w and S | {} | 13.2% |\n\
             | what lies within R shares a bucket | {} | |\n\
             | entries from beyond c R in these buckets, at most | {:.0} of which S are looked at | 2 L |\n\
             | something within c^2 of the nearest was found | {} | |\n\n\
             No width of a hash gives an exponent below {:.3} at a ratio of 2, so so few tables are a budget, not what equation 5\n\
             asks for; gamma and S make up for it, and what is left of the promise is the number above.\n",
            told.tables,
            told.tables_of_theory,
            told.rho,
            told.rho_of_theory,
            told.hashes,
            told.gamma,
            told.hashes_of_theory,
            told.width,
            short(told.first_radius),
            told.radii,
            told.slot_bits,
            percent(Some(told.promised)),
            percent(Some(told.near)),
            told.far,
            percent(Some(told.found)),
            told.rho_of_theory,
        );
    }

    /// Table 4, and what else a query does.
    fn reads(&self, text: &mut String) {
        *text += "\n## Reads of a query (table 4)\n\n\
                  At the ratio, or as near to it as it comes. The paper has 25 tables, 11 radii of which 9.08 are searched, and 347.5\n\
                  reads for SIFT, empty buckets not counted.\n\n\
                  | k | S | ratio | radii searched | reads | of tables | of blocks | known empty | entries | compared | rounds |\n\
                  |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        for point in self.lab.arguments.k.iter().filter_map(|k| self.at_ratio(*k as usize)) {
            let _ = writeln!(
                text,
                "| {} | {} | {:.3} | {:.2} of {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} | {:.1} |",
                point.k,
                point.candidates,
                point.ratio,
                point.searched_radii,
                point.radii,
                point.reads,
                point.table_reads,
                point.block_reads,
                point.empty,
                point.entries,
                point.compared,
                point.rounds,
            );
        }
    }

    /// Figure 3, and what gamma and S do.
    fn accuracy(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        document.text += "\n## Accuracy against reads (figure 3, section 3.3)\n\n\
                          Each curve is a size of block, each point an S, from 2 L / 4 on; hashes as chosen.\n";
        let hashes = self.chosen.built.plan.ladder.hashes;
        let own = self.of("accuracy", self.k()).filter(|point| point.hashes == hashes);
        let all: Vec<&Point> = own.chain(self.of("block size", self.k())).collect();
        let mut sizes: Vec<u32> = all.iter().map(|point| point.block_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let curve = |bytes: &u32| {
            let of = all.iter().filter(|point| point.block_bytes == *bytes);
            let points = of.map(|point| (point.ratio, point.reads)).collect();
            Curve { name: format!("{bytes} bytes"), points, pen: Pen::Marks }
        };
        let axes = Axes { title: "Reads of a query by size of block", x: "overall ratio", y: "reads" };
        document.plot("figure-3.svg", &axes, &sizes.iter().map(curve).collect::<Vec<_>>())?;
        let text = &mut document.text;
        *text += "\n| m | gamma | k | S | ratio | radii | reads | compared | us in memory |\n\
                  |---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        let told = |point: &&Point| {
            point.experiment == "accuracy" && (point.k == self.k() || point.hashes == hashes)
        };
        for point in self.points.iter().filter(told) {
            let _ = writeln!(
                text,
                "| {} | {:.2} | {} | {} | {:.3} | {:.2} | {:.1} | {:.0} | {:.0} |",
                point.hashes,
                point.gamma,
                point.k,
                point.candidates,
                point.ratio,
                point.searched_radii,
                point.reads,
                point.compared,
                point.processor_ns / 1e3,
            );
        }
        Ok(())
    }

    /// What fingerprints reject, beside what is to be expected of so many bits (section 5.2).
    fn fingerprints(&self, text: &mut String) {
        // The smallest buckets and the largest S, so that they are read to their end.
        let of =
            |k: &u32| self.of("accuracy", *k as usize).max_by_key(|point| (point.hashes, point.candidates));
        let slots = self.chosen.built.plan.layout.slots() as f64;
        *text += "\n## Fingerprints (section 5.2)\n\n\
                  Entries of other buckets that share a table's slot, a query: with the smallest buckets and the largest S,\n\
                  so that they are read whole.\n\
                  To be expected are as many as vectors outside the bucket, over 2^u.\n\n\
                  | k | m | entries | rejected | expected |\n|---:|---:|---:|---:|---:|\n";
        for point in self.lab.arguments.k.iter().filter_map(of) {
            let held = point.entries - point.rejected;
            let expected = (point.table_reads * point.vectors as f64 - held) / slots;
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {:.1} | {expected:.1} |",
                point.k, point.hashes, point.entries, point.rejected
            );
        }
    }

    /// What each idea saves.
    fn ideas(&self, text: &mut String) {
        *text += "\n## What each idea saves\n\n\
                  Reads a query with the S of the table above, each line on top of those before it. `lsh` has one table of all radii\n\
                  and vectors on the device, whose reads count too; of the paper's tables they lie in memory.\n\n\
                  | k | | ratio | reads | of tables | wasted | rounds | bytes in memory beside vectors |\n\
                  |---:|---|---:|---:|---:|---:|---:|---:|\n";
        let filter = self.chosen.built.filter.bytes();
        for k in &self.lab.arguments.k {
            let k = *k as usize;
            for point in self.of("ideas", k) {
                let bits = match point.variant.as_str() {
                    "as the paper has it" | "radii from a sampled nearest distance on" => 0,
                    "and a bit a vector and table for empty buckets" => filter / 8,
                    _ => filter,
                };
                let _ = writeln!(
                    text,
                    "| {k} | {} | {:.3} | {:.1} | {:.1} | {:.1} | {:.1} | {} |",
                    point.variant,
                    point.ratio,
                    point.reads,
                    point.table_reads,
                    point.wasted,
                    point.rounds,
                    byte_size::format(point.memory_bytes + bits),
                );
            }
            if let Some(point) = self.family_at("file", k) {
                let _ = writeln!(
                    text,
                    "| {k} | `lsh`: one sorted table for all radii, runs of blocks, codes choose | {:.3} | {:.1} | {:.1} | | 2.0 | {} |",
                    point.ratio,
                    point.reads,
                    point.table_reads,
                    byte_size::format(point.memory_bytes),
                );
            }
        }
        *text += "\nFor SIFT the paper counts 347.5 reads (table 4), vectors not among them.\n";
    }
}

/// A number with as many digits as tell it.
pub(super) fn short(number: f64) -> String {
    let digits = if number >= 100.0 {
        0
    } else if number >= 1.0 {
        2
    } else {
        4
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
