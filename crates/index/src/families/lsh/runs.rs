//! Selects the blocks that a query reads: runs around one key of each table, which grow by the smallest
//! buckets of all tables first.

use crate::allocate::try_with_capacity;
use crate::error::Unreadable;
use crate::format::tables::{KEY_BYTES, TableLayout};
use std::collections::BinaryHeap;

/// The first keys of the blocks of all tables. They locate a bucket without a read.
#[derive(Debug)]
pub(super) struct Fences {
    keys: Vec<u128>,
    /// Blocks of a table.
    blocks: usize,
}

/// A key in one table: a run begins at the block that contains the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableKey {
    pub(super) table: u32,
    pub(super) key: u128,
}

/// A run of neighbouring blocks of one table. Block numbers count through all tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockRun {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// A block by which a run may grow: the one beyond one of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Extension {
    /// Number of leading bits that the run's key shares with the key at this end of the run: the block beyond
    /// contains entries of the bucket of that many bits.
    shared: u32,
    /// The number of the run, and true for its upper end. Of blocks that share equally many bits, the lower
    /// pair comes first.
    order: std::cmp::Reverse<(u32, bool)>,
}

/// Memory for finding runs, reused.
#[derive(Debug, Default)]
pub(super) struct RunScratch {
    extensions: BinaryHeap<Extension>,
}

impl Fences {
    /// Parses the file of fences.
    pub(super) fn from_bytes(bytes: &[u8], layout: &TableLayout) -> Result<Fences, Unreadable> {
        let blocks = layout.blocks() as usize;
        let mut keys = try_with_capacity("the first keys of blocks", bytes.len() / KEY_BYTES)?;
        keys.extend(bytes.as_chunks::<KEY_BYTES>().0.iter().map(|key| u128::from_le_bytes(*key)));
        if keys.len() as u64 != layout.blocks() * u64::from(layout.tables()) {
            return Err(Unreadable::from(format!("{} keys of {} tables", keys.len(), layout.tables())));
        }
        match keys.chunks(blocks).position(|table| !table.is_sorted()) {
            Some(table) => Err(Unreadable::from(format!("the keys of table {table} are not in order"))),
            None => Ok(Fences { keys, blocks }),
        }
    }

    /// Returns the bytes that the fences take in memory.
    pub(super) fn planned_bytes(layout: &TableLayout) -> u64 {
        layout.fence_bytes()
    }

    /// Returns the number of blocks of a table.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Finds one run around each of `keys`. Together the runs have `wanted` blocks, but at least one each,
    /// and no more than there are. Runs of one table may overlap.
    pub(super) fn runs(
        &self,
        keys: &[TableKey],
        wanted: usize,
        scratch: &mut RunScratch,
        runs: &mut Vec<BlockRun>,
    ) {
        self.begin(keys, runs);
        self.grow(keys, wanted, scratch, runs);
    }

    /// Finds runs as [`Fences::runs`] does, around the keys of one point in all tables. At least one run
    /// contains all entries that have the point's own key, even if the runs become longer than wanted: a
    /// vector that is identical to the point is one of these.
    pub(super) fn own_runs(
        &self,
        keys: &[TableKey],
        wanted: usize,
        scratch: &mut RunScratch,
        runs: &mut Vec<BlockRun>,
    ) {
        self.begin(keys, runs);
        // In nearly all cases one of the runs does already: only if a block begins with the key may the block
        // before it contain the key.
        let begins = |key: &TableKey, run: &BlockRun| self.of_table(key)[run.first as usize] == key.key;
        if keys.iter().zip(runs.iter()).all(|(key, run)| begins(key, run)) {
            let first = |key: &TableKey| first_of(self.of_table(key), key.key);
            let least = keys.iter().zip(runs.iter_mut()).min_by_key(|(key, run)| run.first - first(key));
            if let Some((key, run)) = least {
                run.count += run.first - first(key);
                run.first = first(key);
            }
        }
        self.grow(keys, wanted, scratch, runs);
    }

    /// Begins a run of one block for each key. Blocks of all runs count from the first of their table.
    fn begin(&self, keys: &[TableKey], runs: &mut Vec<BlockRun>) {
        runs.clear();
        runs.extend(keys.iter().map(|key| BlockRun { first: home(self.of_table(key), key.key), count: 1 }));
    }

    /// Extends runs to `wanted` blocks together.
    fn grow(&self, keys: &[TableKey], wanted: usize, scratch: &mut RunScratch, runs: &mut [BlockRun]) {
        let extensions = &mut scratch.extensions;
        extensions.clear();
        for (at, key) in keys.iter().enumerate() {
            self.offer(extensions, (at, key), runs[at], false);
            self.offer(extensions, (at, key), runs[at], true);
        }
        let begun: usize = runs.iter().map(|run| run.count as usize).sum();
        let mut left = wanted.saturating_sub(begun);
        while left > 0 {
            let Some(Extension { order: std::cmp::Reverse((at, after)), .. }) = extensions.pop() else {
                break;
            };
            let at = at as usize;
            let run = &mut runs[at];
            run.count += 1;
            run.first -= u32::from(!after);
            self.offer(extensions, (at, &keys[at]), *run, after);
            left -= 1;
        }
        for (key, run) in keys.iter().zip(runs.iter_mut()) {
            run.first += self.table_begin(key.table);
        }
    }

    /// Returns the fewest bits whose bucket lies whole in `run`, the run around `key`. The bucket of n bits
    /// has all keys that begin with the same n bits as `key`.
    pub(super) fn whole_bits(&self, key: &TableKey, run: &BlockRun) -> u32 {
        let (fences, first) = (self.of_table(key), (run.first - self.table_begin(key.table)) as usize);
        let ends = [(first > 0).then_some(first), Some(first + run.count as usize)];
        let shared = |end: usize| fences.get(end).map(|end| (key.key ^ end).leading_zeros());
        ends.into_iter().flatten().filter_map(shared).map(|shared| shared + 1).max().unwrap_or(0)
    }

    /// Sorts the runs, and joins runs of one table that have at most `gap` blocks between them. A joined run
    /// includes the blocks between.
    pub(super) fn join(&self, runs: &mut Vec<BlockRun>, gap: u32) {
        runs.sort_unstable_by_key(|run| (run.first, run.count));
        let table = |run: &BlockRun| run.first as usize / self.blocks;
        runs.dedup_by(|run, before| {
            let end = before.first + before.count;
            let joined = table(run) == table(before) && run.first <= end.saturating_add(gap);
            if joined {
                before.count = end.max(run.first + run.count) - before.first;
            }
            joined
        });
    }

    /// Returns the block, counted through all tables, into which an entry with this key is inserted. A query
    /// that reads a whole bucket reads the block of each of its keys.
    pub(super) fn home(&self, key: &TableKey) -> u32 {
        self.table_begin(key.table) + home(self.of_table(key), key.key)
    }

    /// Adds the block beyond an end of a run to the heap, if there is one.
    #[inline]
    fn offer(
        &self,
        extensions: &mut BinaryHeap<Extension>,
        (at, key): (usize, &TableKey),
        run: BlockRun,
        after: bool,
    ) {
        let fences = self.of_table(key);
        let beyond = (run.first + run.count) as usize;
        // The block before the run contains entries of the bucket if the run's first entry is in the bucket;
        // the block behind it does if its own first entry is.
        let end = match after {
            true if beyond < self.blocks => fences[beyond],
            false if run.first > 0 => fences[run.first as usize],
            _ => return,
        };
        let order = std::cmp::Reverse((at as u32, after));
        extensions.push(Extension { shared: (key.key ^ end).leading_zeros(), order });
    }

    /// Returns the first keys of the blocks of the key's table.
    fn of_table(&self, key: &TableKey) -> &[u128] {
        &self.keys[key.table as usize * self.blocks..][..self.blocks]
    }

    /// Returns the first block of a table.
    fn table_begin(&self, table: u32) -> u32 {
        (table as usize * self.blocks) as u32
    }
}

/// Returns the last block whose first key is at or before `key`.
fn home(fences: &[u128], key: u128) -> u32 {
    fences.partition_point(|fence| *fence <= key).saturating_sub(1) as u32
}

/// Returns the first block that may contain `key`.
fn first_of(fences: &[u128], key: u128) -> u32 {
    fences.partition_point(|fence| *fence < key).saturating_sub(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fences(tables: &[Vec<u128>]) -> Fences {
        Fences { keys: tables.concat(), blocks: tables[0].len() }
    }

    #[test]
    fn runs_grow_by_the_smallest_bucket_of_all_tables() {
        let at = |first_bits: u128| first_bits << 120;
        let fences = fences(&[
            vec![at(0x00), at(0x10), at(0x11), at(0x20), at(0x80)],
            vec![at(0x00), at(0x40), at(0x80), at(0xc0), at(0xff)],
        ]);
        let places = [TableKey { table: 0, key: at(0x12) }, TableKey { table: 1, key: at(0x81) }];
        let runs = |wanted| {
            let (mut scratch, mut runs) = (RunScratch::default(), Vec::new());
            fences.runs(&places, wanted, &mut scratch, &mut runs);
            runs.iter().map(|run| (run.first, run.count)).collect::<Vec<_>>()
        };
        assert_eq!(runs(0), [(2, 1), (7, 1)], "at least one block a table");
        // The first key of the second table's run shares 7 bits, that of the first table's run 6; the key
        // before the latter shares 7.
        assert_eq!(runs(3), [(2, 1), (6, 2)]);
        assert_eq!(runs(5), [(0, 3), (6, 2)]);
        assert_eq!(runs(99), [(0, 5), (5, 5)], "all blocks of both tables");
    }

    #[test]
    fn all_entries_with_the_own_key_are_in_one_run() {
        let fences = fences(&[vec![1, 5, 5, 5, 5, 9], vec![0, 5, 5, 6, 7, 8], vec![5, 5, 5, 5, 5, 5]]);
        let runs = |keys: &[u32], wanted| {
            let keys: Vec<TableKey> = keys.iter().map(|table| TableKey { table: *table, key: 5 }).collect();
            let (mut scratch, mut runs) = (RunScratch::default(), Vec::new());
            fences.own_runs(&keys, wanted, &mut scratch, &mut runs);
            runs.iter().map(|run| (run.first, run.count)).collect::<Vec<_>>()
        };
        // The second table has the fewest blocks with the key: 0 to 2 of its own.
        assert_eq!(runs(&[0, 1, 2], 3), [(4, 1), (6, 3), (17, 1)]);
        assert_eq!(runs(&[0, 2], 0), [(0, 5), (17, 1)]);
        assert_eq!(runs(&[2], 1), [(12, 6)]);
        assert_eq!(runs(&[0, 1, 2], 99), [(0, 6), (6, 6), (12, 6)]);
    }

    #[test]
    fn runs_near_each_other_are_joined() {
        let fences = fences(&[vec![0; 20], vec![0; 20]]);
        let joined = |runs: &[(u32, u32)], gap| {
            let mut runs =
                runs.iter().map(|(first, count)| BlockRun { first: *first, count: *count }).collect();
            fences.join(&mut runs, gap);
            runs.iter().map(|run| (run.first, run.count)).collect::<Vec<_>>()
        };
        let runs = [(12, 2), (2, 3), (3, 1), (5, 2), (20, 3), (18, 2), (9, 1)];
        assert_eq!(
            joined(&runs, 0),
            [(2, 5), (9, 1), (12, 2), (18, 2), (20, 3)],
            "runs of different tables stay apart"
        );
        assert_eq!(joined(&runs, 2), [(2, 12), (18, 2), (20, 3)]);
        assert_eq!(joined(&runs, u32::MAX), [(2, 18), (20, 3)]);
    }

    proptest! {
        #[test]
        fn a_run_as_long_as_a_bucket_contains_the_whole_bucket(
            mut entries in prop::collection::vec(any::<u128>(), 1..300),
            key in any::<u128>(),
            mask in 0_u32..12,
            size in 1_usize..9,
        ) {
            // Keys that share bits with the query's.
            let near = |(i, entry): (usize, &mut u128)| {
                if i % 3 > 0 {
                    *entry = key ^ (*entry >> (mask + i as u32 % 9));
                }
            };
            entries.iter_mut().enumerate().for_each(near);
            entries.sort_unstable();
            let firsts: Vec<u128> = entries.chunks(size).map(|block| block[0]).collect();
            let fences = fences(std::slice::from_ref(&firsts));
            let (mut scratch, mut runs) = (RunScratch::default(), Vec::new());
            for bits in 0..=20_u32 {
                let inside = |entry: &&u128| (**entry ^ key).leading_zeros() >= bits;
                let bucket = entries.iter().filter(inside).count();
                if bucket == 0 {
                    continue;
                }
                // A bucket extends over at most two blocks more than it fills.
                fences.runs(&[TableKey { table: 0, key }], bucket / size + 2, &mut scratch, &mut runs);
                let run = runs[0];
                let whole = fences.whole_bits(&TableKey { table: 0, key }, &run);
                let outside = entries.iter().enumerate().filter(|(i, _)| {
                    !(run.first as usize..(run.first + run.count) as usize).contains(&(i / size))
                });
                let reached = outside.map(|(_, entry)| (entry ^ key).leading_zeros() + 1).max().unwrap_or(0);
                prop_assert!(whole <= bits && whole >= reached, "{bits}: {run:?} {whole} {reached}");
                let near = key ^ (u128::MAX.checked_shr(bits).unwrap_or(0) & (key | 1).wrapping_mul(9));
                let home = fences.home(&TableKey { table: 0, key: near });
                prop_assert!((run.first..run.first + run.count).contains(&home), "{bits}: {run:?} {home}");
                let covered = run.first as usize * size..(run.first + run.count) as usize * size;
                let first = entries.iter().position(|entry| (entry ^ key).leading_zeros() >= bits);
                let first = first.unwrap_or(0);
                let is_covered = covered.start <= first && first + bucket <= covered.end;
                prop_assert!(is_covered, "{bits}: {run:?} {first} {bucket}");
            }
        }
    }
}
