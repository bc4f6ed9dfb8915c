//! The promises of an index in blocks: for a probability, the blocks of each table that promise it, and for
//! which queries.

use super::promise::{Promises, RATIO, Radii, Tables, USEFUL_RATIO};
use super::section::LshEntry;
use crate::family::Fact;
use crate::format::tables::TableLayout;
use bathyal_kernels::lsh::Buckets;
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};

/// Blocks that a bucket may extend over beyond the blocks that it fills: it begins and ends within a block.
const EDGES: u64 = 2;
/// Probabilities whose efforts are stated.
const STATED: [f64; 3] = [0.1, 0.5, 0.9];

/// The tables of an index, as far as its promises depend on them.
#[derive(Debug, Clone, Copy)]
pub(super) struct PromisedTables {
    pub(super) tables: Tables,
    /// Ids of a block.
    pub(super) block_ids: u64,
    /// Blocks of a table.
    pub(super) blocks: u64,
    /// Vectors of the tables that are deleted. Their entries are looked at in vain.
    pub(super) deleted: u64,
}

/// The blocks that promise a probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PromisedBlocks {
    /// Blocks of each table.
    pub(super) probes: u64,
    /// The distances of a query's nearest vector for which the promise holds.
    pub(super) radii: Radii,
}

impl LshEntry {
    /// Returns the numbers that the promise of the tables follows from.
    pub fn promise_parameters(&self, vectors: u64) -> Tables {
        let (tables, hashes) = (f64::from(self.tables), f64::from(self.hashes));
        Tables { vectors: vectors as f64, tables, hashes }
    }
}

impl PromisedTables {
    pub(super) fn new(entry: &LshEntry, layout: &TableLayout, vectors: u64) -> PromisedTables {
        let tables = entry.promise_parameters(vectors);
        let (block_ids, blocks) = (layout.block_ids() as u64, layout.blocks());
        PromisedTables { tables, block_ids, blocks, deleted: 0 }
    }

    /// Returns the least number of entries of vectors (S) that a query scores of buckets that are small
    /// enough, if it reads `probes` blocks of each table.
    pub(super) fn scored(&self, probes: u64) -> f64 {
        let full = probes.saturating_sub(EDGES) * self.block_ids;
        self.tables.tables * (full as f64 - self.deleted as f64).max(0.0)
    }

    /// Returns the fewest blocks of each table that promise `probability`; `None` if only all blocks do.
    pub(super) fn blocks_for(&self, promises: &Promises, probability: f64) -> Option<PromisedBlocks> {
        let each = promises.scored_for(probability) / self.tables.tables + self.deleted as f64;
        let probes = (each / self.block_ids as f64).ceil() + EDGES as f64;
        // Infinite if no number of entries is enough.
        let probes = if probes < self.blocks as f64 { probes as u64 } else { return None };
        let radii = promises.radii(probability, self.scored(probes))?;
        Some(PromisedBlocks { probes, radii })
    }
}

/// A probability, with the blocks of each table that promise it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Stated {
    probability: f64,
    /// `None` stands for all blocks, which promise it to all queries.
    probes: Option<u64>,
    /// The distances of a query's nearest vector for which the promise holds.
    #[serde(flatten)]
    radii: Option<Radii>,
}

/// The promises of an index, for reports.
pub(super) struct StatedPromises {
    /// For [`RATIO`] and for [`USEFUL_RATIO`].
    of_ratios: [[Stated; STATED.len()]; 2],
    /// The largest distance of a query from the mean of the data for which the promises hold.
    reach: f64,
}

impl StatedPromises {
    pub(super) fn new(
        entry: &LshEntry,
        layout: &TableLayout,
        vectors: u64,
        buckets: &Buckets,
    ) -> StatedPromises {
        let tables = PromisedTables::new(entry, layout, vectors);
        let of_ratios = [RATIO, USEFUL_RATIO].map(|ratio| {
            let promises = Promises::new(&tables.tables, buckets, ratio);
            STATED.map(|probability| {
                let blocks = tables.blocks_for(&promises, probability);
                let (probes, radii) = (blocks.map(|blocks| blocks.probes), blocks.map(|blocks| blocks.radii));
                Stated { probability, probes, radii }
            })
        });
        StatedPromises { of_ratios, reach: buckets.reach() }
    }

    /// Returns the promises as facts.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let [twice, four_times] = &self.of_ratios;
        let limits = limits(twice);
        let mut facts = vec![
            Fact::new("promises", twice),
            Fact::new("promises_from", limits.map(|limits| limits.from)),
            Fact::new("promises_up_to", limits.map(|limits| limits.to)),
            Fact::new("promises_within_4", four_times),
        ];
        if self.reach.is_finite() {
            facts.push(Fact::new("promises_reach", self.reach));
        }
        facts
    }

    /// Returns the promises under a metric as sentences, one for each ratio.
    pub(super) fn sentences(&self, metric: &str) -> [String; 2] {
        let reach = match self.reach.is_finite() {
            true => format!("; for queries at most {} from the mean of the data", rounded(self.reach, false)),
            false => String::new(),
        };
        let [twice, four_times] = &self.of_ratios;
        [("twice", twice), ("four times", four_times)].map(|(times, stated)| {
            let words: Vec<String> = stated.iter().map(Stated::words).collect();
            let (words, points) = (words.join(", "), points(metric));
            let found = "is looked at with probability";
            format!("a vector within {times} the nearest distance{points} {found} {words}{reach}")
        })
    }
}

/// The promises for the ratio that was asked for last: they take milliseconds to compute.
#[derive(Debug, Default)]
pub(super) struct LastPromises {
    last: Mutex<Option<(f64, Arc<Promises>)>>,
}

impl LastPromises {
    pub(super) fn within(&self, within: f64, tables: &Tables, buckets: &Buckets) -> Arc<Promises> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((ratio, promises)) if *ratio == within => promises.clone(),
            _ => {
                let promises = Arc::new(Promises::new(tables, buckets, within));
                *last = Some((within, promises.clone()));
                promises
            }
        }
    }
}

/// Returns what the distances of a promise are under a metric: those of answers are squared or others.
pub(super) fn points(metric: &str) -> &'static str {
    match metric {
        "l2" => " (Euclidean)",
        "cosine" => " (between vectors of length 1)",
        "ip" => " (between the points that stand for inner products)",
        _ => "",
    }
}

/// Returns a range of distances in words.
pub(super) fn away(radii: Radii) -> String {
    format!("from {} to {} away", rounded(radii.from, true), rounded(radii.to, false))
}

/// Returns four digits of a distance, rounded up or down.
pub(super) fn rounded(distance: f64, up: bool) -> String {
    let unit = 10_f64.powi(distance.abs().max(f64::MIN_POSITIVE).log10().floor() as i32 - 3);
    let units = distance / unit;
    let rounded = if up { units.ceil() } else { units.floor() } * unit;
    // Digits behind the point that the unit has.
    let digits = (-unit.log10().round()).max(0.0) as usize;
    format!("{rounded:.digits$}")
}

/// Returns the distances for which all promises that have a limit hold, if there are any.
fn limits(stated: &[Stated]) -> Option<Radii> {
    let all = stated.iter().filter_map(|stated| stated.radii);
    let limits = all.reduce(|a, b| Radii { from: a.from.max(b.from), to: a.to.min(b.to) });
    limits.filter(|limits| limits.from <= limits.to)
}

impl Stated {
    fn words(&self) -> String {
        let Stated { probability, probes, radii } = self;
        match (probes, radii) {
            (Some(probes), Some(radii)) => {
                format!("{probability:.1} with {probes} blocks a table (if the nearest is {})", away(*radii))
            }
            _ => format!("{probability:.1} with all blocks"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_kernels::lsh::Ends;

    #[test]
    fn blocks_are_the_fewest_that_promise_a_probability_and_deleted_vectors_take_more() {
        let buckets = Buckets::new(2.0, 16, Ends::Circle);
        let of = |tables: f64, deleted: u64| PromisedTables {
            tables: Tables { vectors: 1e6, tables, hashes: 16.0 },
            block_ids: 124,
            blocks: 8065,
            deleted,
        };
        let tables = of(16.0, 0);
        let promises = Promises::new(&tables.tables, &buckets, USEFUL_RATIO);
        let blocks = tables.blocks_for(&promises, 0.5).unwrap();
        assert_eq!(blocks.probes, 18);
        let Radii { from, to } = blocks.radii;
        assert!(to / from > 64.0, "{from} {to}");
        for radius in [from, (from * to).sqrt(), to] {
            let promised =
                |probes| tables.tables.at(&buckets, USEFUL_RATIO, radius, tables.scored(probes)).probability;
            assert!(promised(18) >= 0.5 && promised(2) == 0.0, "{radius}");
        }
        let deleted = of(16.0, 1240).blocks_for(&promises, 0.5).unwrap();
        assert_eq!(deleted.probes, 28, "each deleted vector has an entry in each table");
        assert_eq!(of(16.0, 0).blocks_for(&promises, 1.0), None);
        assert_eq!(of(16.0, 900_000).blocks_for(&promises, 0.9), None, "more than there are");
    }

    #[test]
    fn distances_are_rounded_towards_the_inside() {
        let words = |from, to| away(Radii { from, to });
        assert_eq!(words(0.000123451, 0.98769), "from 0.0001235 to 0.9876 away");
        assert_eq!(words(12.3456, 123456.7), "from 12.35 to 123400 away");
        assert_eq!(words(1.0, 2.0), "from 1.000 to 2.000 away");
    }
}
