//! Additional keys of each table that a query reads around: keys of buckets beside its own (multi-probe LSH;
//! Lv et al., VLDB 2007).
//!
//! The promise does not cover them. They only add candidates: the run around a query's own key is the same
//! with and without them.

use super::runs::{BlockRun, Fences, RunScratch, TableKey};
use bathyal_kernels::lsh::{CompoundHashes, PerturbationScratch};

/// Two runs of a table with at most this many bytes between them are read as one: a disk moves those bytes
/// anyway, and that is cheaper than a second read.
const GAP_BYTES: usize = 4 << 10;
/// Keys that are tried for each key that is wanted: most near buckets lie in the table's own run or in one
/// block.
const TRIED: usize = 16;

/// Memory for finding additional keys, reused.
#[derive(Debug, Default)]
pub(super) struct MultiProbe {
    perturbations: PerturbationScratch,
    /// The additional keys of all tables.
    keys: Vec<TableKey>,
    /// The blocks of the additional keys of one table.
    homes: Vec<u32>,
    runs: Vec<BlockRun>,
}

/// A query's own keys and their hash values, in the order of the query's own runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnKeys<'a> {
    pub(super) keys: &'a [TableKey],
    /// The values of all compound hashes, one table after the other.
    pub(super) values: &'a [f32],
    /// Approximate number of blocks that the query reads of each table.
    pub(super) blocks: usize,
}

impl MultiProbe {
    /// Adds runs around up to `count` additional keys of each table to the query's own `runs`, each as long
    /// as these, and joins runs that are near each other.
    pub(super) fn add(
        &mut self,
        (functions, fences): (&CompoundHashes, &Fences),
        own: OwnKeys<'_>,
        (count, block_bytes): (usize, usize),
        scratch: &mut RunScratch,
        runs: &mut Vec<BlockRun>,
    ) {
        let MultiProbe { perturbations, keys, homes, runs: additional } = self;
        keys.clear();
        for ((own_key, values), run) in
            own.keys.iter().zip(own.values.chunks_exact(functions.hashes())).zip(runs.iter())
        {
            homes.clear();
            // The widest bucket that lies whole in the run: the run lacks the buckets beside it.
            let level = functions.level_of(fences.whole_bits(own_key, run));
            let around = functions.perturbed_keys(own_key.key, values, level, perturbations);
            for (_, key) in around.take(count.saturating_mul(TRIED)) {
                let candidate = TableKey { key, ..*own_key };
                let home = fences.home(&candidate);
                if !(run.first..run.first + run.count).contains(&home) && !homes.contains(&home) {
                    homes.push(home);
                    keys.push(candidate);
                }
                if homes.len() == count {
                    break;
                }
            }
        }
        fences.runs(keys, own.blocks.saturating_mul(keys.len()), scratch, additional);
        runs.append(additional);
        fences.join(runs, (GAP_BYTES / block_bytes) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tables::TableLayout;
    use bathyal_kernels::lsh::HashScratch;
    use proptest::prelude::*;

    const DIM: usize = 6;
    const BLOCK_BYTES: usize = 128;

    /// Returns values between -1 and 1, which the seed determines.
    fn values(count: usize, mut seed: u64) -> Vec<f32> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// Returns the first keys of the blocks of tables over `points`.
    fn fences(functions: &CompoundHashes, points: &[f32]) -> Fences {
        let layout =
            TableLayout::new(0, BLOCK_BYTES as u32, functions.tables() as u32, (points.len() / DIM) as u64)
                .unwrap();
        let (mut bytes, mut keys, mut scratch) = (Vec::new(), Vec::new(), HashScratch::default());
        for table in 0..functions.tables() {
            functions.keys(table, points, &mut scratch, &mut keys);
            keys.sort_unstable();
            bytes.extend(keys.chunks(layout.block_ids()).flat_map(|block| block[0].to_le_bytes()));
        }
        Fences::from_bytes(&bytes, &layout).map_err(|_| "unreadable").unwrap()
    }

    proptest! {
        #[test]
        fn additional_keys_lie_outside_of_the_own_runs_and_leave_these_whole(
            seed in any::<u64>(),
            tables in 1_usize..5,
            hashes in 1_usize..20,
            blocks in 1_usize..6,
            count in 1_usize..9,
        ) {
            let functions = CompoundHashes::draw(&[0.0; DIM], 1.5, tables, hashes, seed);
            let fences = fences(&functions, &values(900 * DIM, seed));
            let query = values(DIM, !seed);
            let (mut places, mut hashed, mut keys) = (Vec::new(), Vec::new(), Vec::new());
            let mut scratch = HashScratch::default();
            for table in 0..tables {
                functions.keys(table, &query, &mut scratch, &mut keys);
                places.push(TableKey { table: table as u32, key: keys[0] });
                hashed.extend_from_slice(scratch.values());
            }
            let (mut scratch, mut runs) = (RunScratch::default(), Vec::new());
            fences.runs(&places, blocks * tables, &mut scratch, &mut runs);
            let (own, mut multi_probe) = (runs.clone(), MultiProbe::default());
            let query_keys = OwnKeys { keys: &places, values: &hashed, blocks };
            multi_probe.add((&functions, &fences), query_keys, (count, BLOCK_BYTES), &mut scratch, &mut runs);

            let within = |outer: &BlockRun, inner: &BlockRun| {
                outer.first <= inner.first && inner.first + inner.count <= outer.first + outer.count
            };
            for run in &own {
                let is_read = runs.iter().any(|outer| within(outer, run));
                prop_assert!(is_read, "an own run is read whole: {run:?} {runs:?}");
            }
            let table = |run: &BlockRun| run.first as usize / fences.blocks();
            for (before, run) in runs.iter().zip(&runs[1..]) {
                let end = before.first + before.count;
                let gap = (GAP_BYTES / BLOCK_BYTES) as u32;
                let apart = table(before) < table(run) || run.first > end + gap;
                prop_assert!(
                    end <= run.first && apart,
                    "no block is read twice, and near runs are joined: {runs:?}"
                );
            }
            for run in &runs {
                prop_assert_eq!(table(run), (run.first + run.count - 1) as usize / fences.blocks());
            }
            for (place, own) in places.iter().zip(&own) {
                let of_table: Vec<&TableKey> =
                    multi_probe.keys.iter().filter(|other| other.table == place.table).collect();
                prop_assert!(of_table.len() <= count);
                let mut homes: Vec<u32> = of_table.iter().map(|place| fences.home(place)).collect();
                for home in &homes {
                    let home = BlockRun { first: *home, count: 1 };
                    prop_assert!(!within(own, &home), "an additional key lies outside of the own run");
                    prop_assert!(runs.iter().any(|run| within(run, &home)));
                }
                homes.sort_unstable();
                homes.dedup();
                prop_assert_eq!(homes.len(), of_table.len());
            }
        }
    }
}
