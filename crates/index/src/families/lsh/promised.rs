//! Searches that promise a probability.

use super::options::MOST_TABLES;
use super::promise::{Promises, Tables};
use super::search::Lsh;
use super::stated::{PromisedBlocks, PromisedTables, away, points, rounded};
use crate::family::capabilities::{Promised, PromisedSearch};
use crate::query::Effort;
use bathyal_kernels::lsh::Buckets;

/// An index of so few vectors compares all of them if it has no promise that takes less.
const FEW_VECTORS: u64 = 1000;

impl PromisedSearch for Lsh {
    fn promise(&self, probability: f32, within: f32, deleted: u64) -> Result<Promised, String> {
        let (vectors, metric) = (u64::from(self.set.vectors), self.set.metric.name());
        let tables = PromisedTables { deleted, ..PromisedTables::new(&self.entry, &self.tables, vectors) };
        let asked =
            format!("a vector within {within} times the nearest distance with probability {probability}");
        let (probability, within) = (f64::from(probability), f64::from(within));
        let promises = self.promises.within(within, &tables.tables, &self.buckets);
        let Some(PromisedBlocks { probes, radii }) = affordable(&tables, &promises, probability) else {
            if vectors <= FEW_VECTORS {
                let (search_list, probes) = (vectors as usize, tables.blocks as usize);
                let note = format!("promised: the nearest vector, since all {vectors} are compared");
                return Ok(Promised { effort: Effort { search_list, probes, prune: 0.0 }, note });
            }
            let asked_for = (probability, within);
            let advice = advice(&tables, &self.buckets, asked_for, self.tables.block_bytes() as u64);
            return Err(format!("{asked} takes as many entries of tables as there are vectors; {advice}"));
        };
        let entries = entries(&tables, probes);
        let effort = Effort { search_list: entries as usize, probes: probes as usize, prune: 0.0 };
        let (points, away) = (points(metric), away(radii));
        let reach = match self.buckets.reach() {
            reach if reach.is_finite() => {
                format!(", and that are at most {} from the mean of the data", rounded(reach, false))
            }
            _ => String::new(),
        };
        let note = format!("promised: {asked}, for queries whose nearest is {away}{points}{reach}");
        Ok(Promised { effort, note })
    }
}

/// Returns the entries of `probes` blocks of each table.
fn entries(tables: &PromisedTables, probes: u64) -> u64 {
    probes.saturating_mul(tables.block_ids).saturating_mul(tables.tables.tables as u64)
}

/// Returns the blocks that promise `probability`, if they have fewer entries than there are vectors. With
/// more, it would be cheaper to compare all vectors.
fn affordable(tables: &PromisedTables, promises: &Promises, probability: f64) -> Option<PromisedBlocks> {
    let fewer = |blocks: &PromisedBlocks| (entries(tables, blocks.probes) as f64) < tables.tables.vectors;
    tables.blocks_for(promises, probability).filter(fewer)
}

/// Returns what a promise would take that these tables do not make.
fn advice(
    tables: &PromisedTables,
    buckets: &Buckets,
    (probability, within): (f64, f64),
    block_bytes: u64,
) -> String {
    let with = |count: f64| PromisedTables { tables: Tables { tables: count, ..tables.tables }, ..*tables };
    let more = std::iter::successors(Some(tables.tables.tables * 2.0), |count| Some(count * 2.0));
    let mut more = more.take_while(|count| *count <= f64::from(MOST_TABLES)).map(with);
    let enough = more.find_map(|tables| {
        let promises = Promises::new(&tables.tables, buckets, within);
        affordable(&tables, &promises, probability).map(|blocks| (tables.tables.tables, blocks.probes))
    });
    let otherwise = "ask for a lower probability or a larger within, or build a flat index, which is exact";
    match enough {
        Some((count, probes)) => {
            let (read, all) =
                (count * (probes * block_bytes) as f64, count * (tables.blocks * block_bytes) as f64);
            format!(
                "with {count} tables (--tables) it takes {probes} blocks of each: {read} bytes a query, of \
                 {all} bytes of tables. Or {otherwise}"
            )
        }
        None => format!("no number of tables up to {MOST_TABLES} takes fewer: {otherwise}"),
    }
}
