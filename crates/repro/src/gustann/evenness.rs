//! How evenly pages that are read at the same time lie over disks, each page on the next disk in turn (RAID 0).

use std::collections::HashMap;

use serde::Serialize;

/// Queries whose rounds are read together, as the paper's mini-batches (section 5.1).
pub(super) const MINI_BATCH: usize = 1120;

/// What the same round of all queries reads.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub(super) struct Round {
    /// From 1.
    pub(super) round: usize,
    pub(super) reads: u64,
    /// Different ones.
    pub(super) pages: u64,
    /// Reads of the page that is read most, and of the middle one.
    pub(super) most: u64,
    pub(super) median: u64,
    /// Reads of the disk that serves most of a mini-batch, over the mean disk.
    pub(super) fullest: f64,
}

/// The first `rounds` of walks that are each a row of pages.
pub(super) fn rounds(walks: &[&[u64]], rounds: usize, disks: u32) -> Vec<Round> {
    let of = |at: usize| {
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for page in walks.iter().filter_map(|pages| pages.get(at)) {
            *counts.entry(*page).or_default() += 1;
        }
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable();
        let reads = counts.iter().sum();
        let (mean, fullest) = loads(walks, at, disks);
        Round {
            round: at + 1,
            reads,
            pages: counts.len() as u64,
            most: counts.last().copied().unwrap_or(0),
            median: counts.get(counts.len() / 2).copied().unwrap_or(0),
            fullest: if mean > 0.0 { fullest / mean } else { 1.0 },
        }
    };
    (0..rounds).map(of).filter(|round| round.reads > 0).collect()
}

/// The part of what the disks could read that is read when no query of a mini-batch goes on before the fullest disk is done: 1 where
/// all disks always serve as much.
pub(super) fn in_step(walks: &[&[u64]], disks: u32) -> f64 {
    let longest = walks.iter().map(|pages| pages.len()).max().unwrap_or(0);
    let (mut means, mut most) = (0.0, 0.0);
    for at in 0..longest {
        let (mean, fullest) = loads(walks, at, disks);
        (means, most) = (means + mean, most + fullest);
    }
    if most > 0.0 { means / most } else { 1.0 }
}

/// Reads of the mean disk and of the fullest, of round `at`, all mini-batches together.
fn loads(walks: &[&[u64]], at: usize, disks: u32) -> (f64, f64) {
    let (mut means, mut most) = (0.0, 0.0);
    for batch in walks.chunks(MINI_BATCH) {
        let mut loads = vec![0_u64; disks.max(1) as usize];
        for page in batch.iter().filter_map(|pages| pages.get(at)) {
            loads[(page % u64::from(disks.max(1))) as usize] += 1;
        }
        means += loads.iter().sum::<u64>() as f64 / loads.len() as f64;
        most += loads.iter().copied().max().unwrap_or(0) as f64;
    }
    (means, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_for_all_keeps_one_disk_busy() {
        let walks: Vec<&[u64]> = vec![&[7, 0], &[7, 1], &[7, 2], &[7]];
        let counted = rounds(&walks, 5, 3);
        assert_eq!(
            counted,
            [
                Round { round: 1, reads: 4, pages: 1, most: 4, median: 4, fullest: 3.0 },
                Round { round: 2, reads: 3, pages: 3, most: 1, median: 1, fullest: 1.0 },
            ]
        );
        // Seven reads of three disks, in the time of five.
        assert!((in_step(&walks, 3) - 7.0 / 3.0 / 5.0).abs() < 1e-12);
        assert_eq!(in_step(&walks, 1), 1.0);
        assert_eq!((in_step(&[], 3), rounds(&[], 5, 3).len()), (1.0, 0));
    }

    #[test]
    fn batches_wait_each_for_its_own_disk() {
        let (even, odd): (&[u64], &[u64]) = (&[0], &[1]);
        let walks: Vec<&[u64]> =
            std::iter::repeat_n(even, MINI_BATCH).chain(std::iter::repeat_n(odd, MINI_BATCH)).collect();
        assert_eq!(in_step(&walks, 2), 0.5);
        assert_eq!(rounds(&walks, 1, 2)[0].fullest, 2.0);
    }
}
