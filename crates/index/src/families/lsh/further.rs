//! Further places of each table that a query looks at: around keys of buckets beside its own (multi-probe LSH; Lv et al., VLDB 2007).
//!
//! Nothing is promised of them: the run around a query's own key is what it is without them, and they only add candidates.

use super::runs::{Fences, Place, Run, RunScratch};
use bathyal_kernels::lsh::{CompoundHashes, PerturbationScratch};

/// Bytes between two runs of a table that are read with them, as one: what comes from a disk anyway, and cheaper than a read.
const GAP_BYTES: usize = 4 << 10;
/// Keys that are tried for each place that is wanted: most of what is near lies in the table's own run or in one block.
const TRIED: usize = 16;

/// Memory for finding further places, reused.
#[derive(Debug, Default)]
pub(super) struct Further {
    perturbations: PerturbationScratch,
    places: Vec<Place>,
    /// The blocks of those of one table.
    homes: Vec<u32>,
    runs: Vec<Run>,
}

/// A query's own runs, whose places have the same order, and what they follow from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own<'a> {
    pub(super) places: &'a [Place],
    /// The values of all compound hashes, a table behind the other.
    pub(super) values: &'a [f32],
    /// Blocks of a table, about.
    pub(super) blocks: usize,
}

impl Further {
    /// Adds runs at up to `count` further places of each table to a query's own `runs`, as long as these are, and joins those
    /// that lie near each other.
    pub(super) fn add(
        &mut self,
        (functions, fences): (&CompoundHashes, &Fences),
        own: Own<'_>,
        (count, block_bytes): (usize, usize),
        scratch: &mut RunScratch,
        runs: &mut Vec<Run>,
    ) {
        let Further { perturbations, places, homes, runs: more } = self;
        places.clear();
        for ((place, values), run) in
            own.places.iter().zip(own.values.chunks_exact(functions.hashes())).zip(runs.iter())
        {
            homes.clear();
            // The widest buckets that the run has looked at whole: what is beside them is what it lacks.
            let level = functions.level_of(fences.whole_bits(place, run));
            let around = functions.perturbed_keys(place.key, values, level, perturbations);
            for (_, key) in around.take(count.saturating_mul(TRIED)) {
                let further = Place { key, ..*place };
                let home = fences.home(&further);
                if !(run.first..run.first + run.count).contains(&home) && !homes.contains(&home) {
                    homes.push(home);
                    places.push(further);
                }
                if homes.len() == count {
                    break;
                }
            }
        }
        fences.runs(places, own.blocks.saturating_mul(places.len()), scratch, more);
        runs.append(more);
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

    /// Values between -1 and 1, the same for a seed.
    fn values(count: usize, mut seed: u64) -> Vec<f32> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// The first keys of the blocks of tables of these points.
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
        fn what_is_looked_at_is_the_own_runs_and_places_that_they_lack(
            seed in any::<u64>(), tables in 1_usize..5, hashes in 1_usize..20, blocks in 1_usize..6, count in 1_usize..9,
        ) {
            let functions = CompoundHashes::draw(&[0.0; DIM], 1.5, tables, hashes, seed);
            let fences = fences(&functions, &values(900 * DIM, seed));
            let query = values(DIM, !seed);
            let (mut places, mut hashed, mut keys) = (Vec::new(), Vec::new(), Vec::new());
            let mut scratch = HashScratch::default();
            for table in 0..tables {
                functions.keys(table, &query, &mut scratch, &mut keys);
                places.push(Place { table: table as u32, key: keys[0] });
                hashed.extend_from_slice(scratch.values());
            }
            let (mut scratch, mut runs) = (RunScratch::default(), Vec::new());
            fences.runs(&places, blocks * tables, &mut scratch, &mut runs);
            let (own, mut further) = (runs.clone(), Further::default());
            let told = Own { places: &places, values: &hashed, blocks };
            further.add((&functions, &fences), told, (count, BLOCK_BYTES), &mut scratch, &mut runs);

            let within = |outer: &Run, inner: &Run| {
                outer.first <= inner.first && inner.first + inner.count <= outer.first + outer.count
            };
            for run in &own {
                prop_assert!(runs.iter().any(|outer| within(outer, run)), "an own run is looked at whole: {run:?} {runs:?}");
            }
            let table = |run: &Run| run.first as usize / fences.blocks();
            for (before, run) in runs.iter().zip(&runs[1..]) {
                let end = before.first + before.count;
                let gap = (GAP_BYTES / BLOCK_BYTES) as u32;
                let apart = table(before) < table(run) || run.first > end + gap;
                prop_assert!(end <= run.first && apart, "nothing is read twice, nor near by alone: {runs:?}");
            }
            for run in &runs {
                prop_assert_eq!(table(run), (run.first + run.count - 1) as usize / fences.blocks());
            }
            for (place, own) in places.iter().zip(&own) {
                let of_table: Vec<&Place> =
                    further.places.iter().filter(|other| other.table == place.table).collect();
                prop_assert!(of_table.len() <= count);
                let mut homes: Vec<u32> = of_table.iter().map(|place| fences.home(place)).collect();
                for home in &homes {
                    let home = Run { first: *home, count: 1 };
                    prop_assert!(!within(own, &home), "what a run has is no further place");
                    prop_assert!(runs.iter().any(|run| within(run, &home)));
                }
                homes.sort_unstable();
                homes.dedup();
                prop_assert_eq!(homes.len(), of_table.len());
            }
        }
    }
}
