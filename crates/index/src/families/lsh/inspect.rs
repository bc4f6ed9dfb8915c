//! Describes an LSH index: its parts, and its promises.

use super::promise::{Promise, Tables};
use super::section::LshEntry;
use crate::family::{Description, Fact};
use crate::format::groups::GroupLayout;
use crate::format::manifest::Manifest;
use crate::format::tables::TableLayout;
use bathyal_kernels::lsh::widest_level;

/// Blocks that a bucket may extend over beyond the blocks that it fills: it begins and ends within a block.
const EDGES: f64 = 2.0;
/// Probabilities whose efforts are stated.
const STATED: [f64; 3] = [0.1, 0.5, 0.9];
/// Efforts that are tried are powers of 2 below 2 to this power.
const MOST_POWER: u32 = 32;

impl LshEntry {
    /// Returns the numbers that the promise of the tables follows from.
    pub fn promise_parameters(&self, vectors: u64) -> Tables {
        let (tables, hashes) = (f64::from(self.tables), f64::from(self.hashes));
        Tables { vectors: vectors as f64, tables, hashes }
    }
}

/// Returns the least number of entries (S) that a query scores of buckets that are small enough, if it reads
/// `probes` blocks of each table.
fn scored_entries(probes: f64, layout: &TableLayout) -> f64 {
    (probes - EDGES).max(0.0) * f64::from(layout.tables()) * layout.block_ids() as f64
}

/// Returns the promise of an effort of `probes` blocks of each table.
pub(super) fn promise(entry: &LshEntry, layout: &TableLayout, vectors: u64, probes: f64) -> Promise {
    entry.promise_parameters(vectors).promise(scored_entries(probes, layout))
}

/// Returns the fewest blocks of each table, a power of 2, that promise `probability`; `None` if only all
/// blocks do, or none.
fn probes_for(entry: &LshEntry, layout: &TableLayout, vectors: u64, probability: f64) -> Option<u64> {
    let reaches = |probes: &u64| promise(entry, layout, vectors, *probes as f64).probability >= probability;
    (0..MOST_POWER).map(|power| 1 << power).take_while(|probes| *probes < layout.blocks()).find(reaches)
}

/// Returns the largest distance of a query's nearest vector for which the promise of `probes` blocks of each
/// table holds: larger radii would need hashes that are wider than any here. In the units of the hashed
/// points.
fn farthest(entry: &LshEntry, layout: &TableLayout, vectors: u64, probes: f64) -> f64 {
    let widest = f64::from(entry.cell) * f64::from(widest_level(entry.hashes as usize)).exp2();
    widest / entry.promise_parameters(vectors).widest(scored_entries(probes, layout))
}

/// The promises of an index, for reports.
pub(super) struct StatedPromises {
    /// Probabilities, with the blocks of each table that each takes; `None` stands for all blocks.
    promises: [(f64, Option<u64>); STATED.len()],
    /// The largest distance of a query's nearest vector for which the promises hold.
    farthest: f64,
}

impl StatedPromises {
    pub(super) fn new(entry: &LshEntry, layout: &TableLayout, vectors: u64) -> StatedPromises {
        let promises = STATED.map(|p| (p, probes_for(entry, layout, vectors, p)));
        let probes = promises.iter().map(|(_, probes)| probes.unwrap_or(layout.blocks()) as f64);
        let farthest =
            probes.map(|probes| farthest(entry, layout, vectors, probes)).fold(f64::INFINITY, f64::min);
        StatedPromises { promises, farthest }
    }

    /// Returns the probabilities with their blocks, as JSON.
    pub(super) fn numbers(&self) -> serde_json::Value {
        let one = |(p, probes): &(f64, Option<u64>)| serde_json::json!({"probability": p, "probes": probes});
        self.promises.iter().map(one).collect()
    }

    /// Returns the promises as a sentence.
    pub(super) fn sentence(&self) -> String {
        let words = |(p, probes): &(f64, Option<u64>)| match probes {
            Some(probes) => format!("{p:.1} or more with {probes} blocks a table"),
            None => format!("{p:.1} or more with all blocks"),
        };
        let promised: Vec<String> = self.promises.iter().map(words).collect();
        let promised = promised.join(", ");
        format!("a vector within twice the nearest distance is found with probability {promised}")
    }

    /// Returns for which queries the promises hold under a metric.
    pub(super) fn limit(&self, metric: &str) -> String {
        // What is hashed is not what is compared.
        let of_points = match metric {
            "cosine" => " (between vectors of length 1)",
            "ip" => " (between the points that stand for inner products)",
            _ => "",
        };
        format!("queries whose nearest vector is at most {:.4} away{of_points}", self.farthest)
    }
}

/// Describes an LSH index.
pub(super) fn describe(
    manifest: &Manifest,
    entry: &LshEntry,
    pages: &GroupLayout,
    tables: &TableLayout,
) -> Description {
    let vectors = manifest.vectors;
    let parameters = entry.promise_parameters(vectors);
    let theory = (vectors as f64).powf(Tables::exponent());
    let stated = StatedPromises::new(entry, tables, vectors);
    let all_blocks = promise(entry, tables, vectors, tables.blocks() as f64);
    let gamma = parameters.gamma(all_blocks.width);
    let (count, hashes, bytes) = (entry.tables, entry.hashes, entry.block_bytes);
    let used = manifest.data_bytes + 4 * vectors * (1 + u64::from(count));
    Description {
        kind: "hash tables, codes in memory".into(),
        built_with: format!("{count} tables, {hashes} hashes, blocks of {bytes} bytes"),
        read_bytes: tables.block_bytes(),
        records_per_page: pages.page_vectors(),
        // Every vector has its bytes, its id, and its id in each table.
        padding_share: (1.0 - used as f64 / entry.file.bytes as f64).max(0.0),
        facts: vec![
            Fact::new("tables", count),
            Fact::new("hashes", hashes),
            Fact::new("gamma", gamma),
            Fact::new("tables_of_theory", theory),
            Fact::new("promises", stated.numbers()),
            Fact::new("promises_up_to", stated.farthest),
            Fact::new("table_bytes", tables.table_bytes()),
            Fact::new("fence_bytes", entry.fences.bytes),
            Fact::new("code_bytes", entry.codes.file.bytes),
        ],
        lines: vec![
            entry.codes.line(),
            (
                "tables",
                format!("{count} of {} blocks, {} bytes in all", tables.blocks(), tables.table_bytes()),
            ),
            ("promise", stated.sentence()),
            ("promised for", stated.limit(&manifest.metric)),
            ("theory", format!("{theory:.0} tables for 0.13 (1/2 - 1/e) with twice as many entries")),
        ],
        histogram: Vec::new(),
        calibration: entry.calibration.lines("blocks a table"),
    }
}
