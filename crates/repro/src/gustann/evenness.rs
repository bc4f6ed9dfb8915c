//! How evenly concurrent page reads spread over disks, with consecutive pages on consecutive disks (RAID 0).

use std::collections::HashMap;

use serde::Serialize;

/// Queries per mini-batch, whose rounds are read together (section 5.1).
pub(super) const MINI_BATCH: usize = 1120;

/// Reads of one round, over all queries.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub(super) struct Round {
    /// Number of the round, from 1.
    pub(super) round: usize,
    pub(super) reads: u64,
    /// Number of different pages.
    pub(super) pages: u64,
    /// Reads of the most often read page, and of the median page.
    pub(super) most: u64,
    pub(super) median: u64,
    /// Reads of the busiest disk of each mini-batch, divided by those of the mean disk.
    pub(super) fullest: f64,
}

/// Counts the first `rounds` rounds of walks; each walk is the list of its pages.
pub(super) fn rounds(walks: &[&[u64]], rounds: usize, disks: u32) -> Vec<Round> {
    let count_round = |at: usize| {
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
    (0..rounds).map(count_round).filter(|round| round.reads > 0).collect()
}

/// Returns the share of the disks' throughput that is used if every query of a mini-batch waits for the
/// busiest disk in each round: 1 if all disks always serve equally many reads.
pub(super) fn in_step(walks: &[&[u64]], disks: u32) -> f64 {
    let longest = walks.iter().map(|pages| pages.len()).max().unwrap_or(0);
    let (mut means, mut most) = (0.0, 0.0);
    for at in 0..longest {
        let (mean, fullest) = loads(walks, at, disks);
        (means, most) = (means + mean, most + fullest);
    }
    if most > 0.0 { means / most } else { 1.0 }
}

/// Returns the reads of the mean disk and of the busiest disk in round `at`, summed over all mini-batches.
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
    fn one_page_for_all_queries_keeps_one_disk_busy() {
        let walks: Vec<&[u64]> = vec![&[7, 0], &[7, 1], &[7, 2], &[7]];
        let counted = rounds(&walks, 5, 3);
        assert_eq!(
            counted,
            [
                Round { round: 1, reads: 4, pages: 1, most: 4, median: 4, fullest: 3.0 },
                Round { round: 2, reads: 3, pages: 3, most: 1, median: 1, fullest: 1.0 },
            ]
        );
        // Three disks serve seven reads in the time of five.
        assert!((in_step(&walks, 3) - 7.0 / 3.0 / 5.0).abs() < 1e-12);
        assert_eq!(in_step(&walks, 1), 1.0);
        assert_eq!((in_step(&[], 3), rounds(&[], 5, 3).len()), (1.0, 0));
    }

    #[test]
    fn each_mini_batch_waits_for_its_own_busiest_disk() {
        let (even, odd): (&[u64], &[u64]) = (&[0], &[1]);
        let walks: Vec<&[u64]> =
            std::iter::repeat_n(even, MINI_BATCH).chain(std::iter::repeat_n(odd, MINI_BATCH)).collect();
        assert_eq!(in_step(&walks, 2), 0.5);
        assert_eq!(rounds(&walks, 1, 2)[0].fullest, 2.0);
    }
}
