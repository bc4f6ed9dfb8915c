//! Which blocks a query looks at: around a key in each table, the smallest buckets of all tables first.

use crate::allocate::try_with_capacity;
use crate::error::Unreadable;
use crate::format::tables::{KEY_BYTES, TableLayout};
use std::collections::BinaryHeap;

/// The first keys of the blocks of all tables, which find a bucket without a read.
#[derive(Debug)]
pub(super) struct Fences {
    keys: Vec<u128>,
    /// Blocks of a table.
    blocks: usize,
}

/// Where a run begins: in the block of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) table: u32,
    pub(super) key: u128,
}

/// A run of neighbouring blocks of one table: their numbers count through all tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// What a run may be continued by: the block beyond one of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    /// How many of the first bits the place's key shares with the key where the run ends: the block beyond holds entries of the
    /// bucket of that many bits.
    shared: u32,
    /// The number of the place, and whether it is the end of its run: the lower ones first, of those that share as many.
    order: std::cmp::Reverse<(u32, bool)>,
}

/// Memory for finding runs, reused.
#[derive(Debug, Default)]
pub(super) struct RunScratch {
    next: BinaryHeap<Next>,
}

impl Fences {
    /// Reads the file of fences.
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

    /// Bytes in memory.
    pub(super) fn planned_bytes(layout: &TableLayout) -> u64 {
        layout.fence_bytes()
    }

    /// Blocks of a table.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Finds the runs at some places, one each: together `wanted` blocks, or one a place if that is more, or all. Those of one
    /// table may overlap.
    pub(super) fn runs(
        &self,
        places: &[Place],
        wanted: usize,
        scratch: &mut RunScratch,
        runs: &mut Vec<Run>,
    ) {
        let next = &mut scratch.next;
        next.clear();
        runs.clear();
        for (at, place) in places.iter().enumerate() {
            runs.push(Run { first: home(self.of(place), place.key), count: 1 });
            self.offer(next, (at, place), runs[at], false);
            self.offer(next, (at, place), runs[at], true);
        }
        let mut left = wanted.saturating_sub(runs.len());
        while left > 0 {
            let Some(Next { order: std::cmp::Reverse((at, after)), .. }) = next.pop() else { break };
            let at = at as usize;
            let run = &mut runs[at];
            run.count += 1;
            run.first -= u32::from(!after);
            self.offer(next, (at, &places[at]), *run, after);
            left -= 1;
        }
        for (place, run) in places.iter().zip(runs.iter_mut()) {
            run.first += self.begin(place.table);
        }
    }

    /// The fewest bits whose bucket, all keys that begin with as many as the place's, lies whole in its `run`.
    pub(super) fn whole_bits(&self, place: &Place, run: &Run) -> u32 {
        let (fences, first) = (self.of(place), (run.first - self.begin(place.table)) as usize);
        let ends = [(first > 0).then_some(first), Some(first + run.count as usize)];
        let shared = |end: usize| fences.get(end).map(|end| (place.key ^ end).leading_zeros());
        ends.into_iter().flatten().filter_map(shared).map(|shared| shared + 1).max().unwrap_or(0)
    }

    /// Puts runs in order and joins those of one table between which there are up to `gap` blocks; these are then looked at, too.
    pub(super) fn join(&self, runs: &mut Vec<Run>, gap: u32) {
        runs.sort_unstable_by_key(|run| (run.first, run.count));
        let table = |run: &Run| run.first as usize / self.blocks;
        runs.dedup_by(|run, before| {
            let end = before.first + before.count;
            let joined = table(run) == table(before) && run.first <= end.saturating_add(gap);
            if joined {
                before.count = end.max(run.first + run.count) - before.first;
            }
            joined
        });
    }

    /// The block (through all tables) into which what has the key of this `place` is inserted: whoever looks at a whole bucket looks at
    /// those of all keys of it.
    pub(super) fn home(&self, place: &Place) -> u32 {
        self.begin(place.table) + home(self.of(place), place.key)
    }

    /// Offers the block beyond an end of a run, if there is one.
    #[inline]
    fn offer(&self, next: &mut BinaryHeap<Next>, (at, place): (usize, &Place), run: Run, after: bool) {
        let fences = self.of(place);
        let beyond = (run.first + run.count) as usize;
        // Before the run there are entries of the bucket if its first entry is one; behind it, if the next block's is.
        let end = match after {
            true if beyond < self.blocks => fences[beyond],
            false if run.first > 0 => fences[run.first as usize],
            _ => return,
        };
        let order = std::cmp::Reverse((at as u32, after));
        next.push(Next { shared: (place.key ^ end).leading_zeros(), order });
    }

    /// The keys of the blocks of a place's table.
    fn of(&self, place: &Place) -> &[u128] {
        &self.keys[place.table as usize * self.blocks..][..self.blocks]
    }

    /// The first block of a table.
    fn begin(&self, table: u32) -> u32 {
        (table as usize * self.blocks) as u32
    }
}

/// The last block that begins at or before the key.
fn home(fences: &[u128], key: u128) -> u32 {
    fences.partition_point(|fence| *fence <= key).saturating_sub(1) as u32
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
        let places = [Place { table: 0, key: at(0x12) }, Place { table: 1, key: at(0x81) }];
        let runs = |wanted| {
            let (mut scratch, mut runs) = (RunScratch::default(), Vec::new());
            fences.runs(&places, wanted, &mut scratch, &mut runs);
            runs.iter().map(|run| (run.first, run.count)).collect::<Vec<_>>()
        };
        assert_eq!(runs(0), [(2, 1), (7, 1)], "one a table at least");
        // Of the second table the run's first key shares 7 bits, of the first 6, and 7 of the one before.
        assert_eq!(runs(3), [(2, 1), (6, 2)]);
        assert_eq!(runs(5), [(0, 3), (6, 2)]);
        assert_eq!(runs(99), [(0, 5), (5, 5)], "all there are");
    }

    #[test]
    fn runs_that_lie_near_each_other_are_one() {
        let fences = fences(&[vec![0; 20], vec![0; 20]]);
        let joined = |runs: &[(u32, u32)], gap| {
            let mut runs = runs.iter().map(|(first, count)| Run { first: *first, count: *count }).collect();
            fences.join(&mut runs, gap);
            runs.iter().map(|run| (run.first, run.count)).collect::<Vec<_>>()
        };
        let runs = [(12, 2), (2, 3), (3, 1), (5, 2), (20, 3), (18, 2), (9, 1)];
        assert_eq!(joined(&runs, 0), [(2, 5), (9, 1), (12, 2), (18, 2), (20, 3)], "none across tables");
        assert_eq!(joined(&runs, 2), [(2, 12), (18, 2), (20, 3)]);
        assert_eq!(joined(&runs, u32::MAX), [(2, 18), (20, 3)]);
    }

    proptest! {
        #[test]
        fn a_bucket_is_whole_once_there_is_room_for_it(
            mut entries in prop::collection::vec(any::<u128>(), 1..300), key in any::<u128>(), mask in 0_u32..12,
            size in 1_usize..9,
        ) {
            // Keys that share bits with the query's.
            let near = |(i, entry): (usize, &mut u128)| if i % 3 > 0 { *entry = key ^ (*entry >> (mask + i as u32 % 9)) };
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
                // A bucket lies across two blocks more than it fills, at most.
                fences.runs(&[Place { table: 0, key }], bucket / size + 2, &mut scratch, &mut runs);
                let run = runs[0];
                let whole = fences.whole_bits(&Place { table: 0, key }, &run);
                let outside = entries.iter().enumerate().filter(|(i, _)| {
                    !(run.first as usize..(run.first + run.count) as usize).contains(&(i / size))
                });
                let reached = outside.map(|(_, entry)| (entry ^ key).leading_zeros() + 1).max().unwrap_or(0);
                prop_assert!(whole <= bits && whole >= reached, "{bits}: {run:?} {whole} {reached}");
                let near = key ^ (u128::MAX.checked_shr(bits).unwrap_or(0) & (key | 1).wrapping_mul(9));
                let home = fences.home(&Place { table: 0, key: near });
                prop_assert!((run.first..run.first + run.count).contains(&home), "{bits}: {run:?} {home}");
                let covered = run.first as usize * size..(run.first + run.count) as usize * size;
                let first = entries.iter().position(|entry| (entry ^ key).leading_zeros() >= bits);
                let first = first.unwrap_or(0);
                prop_assert!(covered.start <= first && first + bucket <= covered.end, "{bits}: {run:?} {first} {bucket}");
            }
        }
    }
}
