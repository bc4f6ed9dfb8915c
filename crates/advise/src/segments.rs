//! The segments of a collection whose rows are replaced.
//!
//! The collection is simulated by its own policy of merges ([`worth_merging`]) until its segments repeat:
//! rows fill the memory for writes and become a segment, and each replaces a row somewhere, which is then
//! deleted in its segment.

use bathyal_index::cost::merging::{FLAT_BELOW_ROWS, SegmentRows, worth_merging};

/// Number of times that all rows are replaced in a simulation. The second half counts.
const TURNOVERS: f64 = 3.0;
/// The fewest and the most segments that are written in a simulation. After the fewest, the levels of small
/// segments repeat.
const LEAST_FLUSHES: f64 = 256.0;
const MOST_FLUSHES: f64 = 20_000.0;
/// The segments of a collection while its rows are replaced, as means over the moments of a simulation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SteadySegments {
    /// Rows of a segment, not deleted, and the mean number of segments with so many.
    pub(crate) sizes: Vec<(f64, f64)>,
    /// Deleted rows as a share of all.
    pub(crate) deleted: f64,
    /// Rows that are written, by merges and otherwise, for each that is replaced.
    pub(crate) writes_a_row: f64,
}

impl SteadySegments {
    /// Simulates a collection of `rows` rows of which `flushed` are written as a segment at a time.
    pub(crate) fn of(rows: f64, flushed: f64) -> SteadySegments {
        let flushed = flushed.clamp(1.0, rows.max(1.0));
        let flushes = (TURNOVERS * rows / flushed).clamp(LEAST_FLUSHES, MOST_FLUSHES) as usize;
        let mut segments = vec![(rows, 0.0)];
        let (mut written, mut moments, mut deleted) = (0.0, 0.0, 0.0);
        let mut sizes: Vec<(f64, f64)> = Vec::new();
        for flush in 0..flushes {
            // The rows that are replaced are spread evenly over all that are there.
            let live: f64 = segments.iter().map(|(rows, deleted)| rows - deleted).sum();
            let share = (flushed / live).min(1.0);
            segments.iter_mut().for_each(|(rows, deleted)| *deleted += share * (*rows - *deleted));
            segments.retain(|(rows, deleted)| rows - deleted >= 0.5);
            let before_the_flush = deleted_share(&segments);
            segments.push((flushed, 0.0));
            let is_counted = flush >= flushes / 2;
            let mut merged = flushed;
            while let Some(chosen) = worth_merging(&segments.iter().map(rounded).collect::<Vec<_>>()) {
                let rows: f64 = chosen.iter().map(|at| segments[*at].0 - segments[*at].1).sum();
                let mut at = 0;
                segments.retain(|_| {
                    at += 1;
                    !chosen.contains(&(at - 1))
                });
                segments.push((rows, 0.0));
                merged += rows;
            }
            if is_counted {
                moments += 1.0;
                written += merged;
                // Rows are replaced evenly between two flushes, so the mean lies between the ends.
                deleted += (deleted_share(&segments) + before_the_flush) / 2.0;
                for (rows, deleted) in &segments {
                    count(&mut sizes, rows - deleted);
                }
            }
        }
        sizes.iter_mut().for_each(|(_, number)| *number /= moments);
        SteadySegments { sizes, deleted: deleted / moments, writes_a_row: written / (moments * flushed) }
    }

    /// Returns the mean number of segments.
    pub(crate) fn number(&self) -> f64 {
        self.sizes.iter().map(|(_, number)| number).sum()
    }

    /// Returns the segments that have an index: rows, not deleted, and number.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (f64, f64)> {
        self.sizes.iter().copied().filter(|(rows, _)| *rows >= FLAT_BELOW_ROWS as f64)
    }

    /// Returns the rows of the other segments, which are compared one by one.
    pub(crate) fn compared_rows(&self) -> f64 {
        let small = self.sizes.iter().filter(|(rows, _)| *rows < FLAT_BELOW_ROWS as f64);
        small.map(|(rows, number)| rows * number).sum()
    }
}

/// Returns the share of the rows of all segments that are deleted.
fn deleted_share(segments: &[(f64, f64)]) -> f64 {
    let all: f64 = segments.iter().map(|(rows, _)| rows).sum();
    let deleted: f64 = segments.iter().map(|(_, deleted)| deleted).sum();
    if all > 0.0 { deleted / all } else { 0.0 }
}

fn rounded((rows, deleted): &(f64, f64)) -> SegmentRows {
    SegmentRows { rows: rows.round() as u64, deleted: deleted.floor() as u64 }
}

/// Counts a segment of `rows` rows together with those of about as many.
fn count(sizes: &mut Vec<(f64, f64)>, rows: f64) {
    let level = |rows: f64| (4.0 * rows.max(1.0).log2()).round();
    match sizes.iter_mut().find(|(known, _)| level(*known) == level(rows)) {
        Some((_, number)) => *number += 1.0,
        None => sizes.push((rows, 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_index::cost::merging::DELETED_SHARE;

    #[test]
    fn segments_of_a_changing_collection_grow_with_the_logarithm_of_its_rows() {
        let of = |rows: f64| SteadySegments::of(rows, 10_000.0);
        let (few, many) = (of(1e5), of(1e7));
        assert!(
            few.number() > 1.5 && few.number() < many.number() && many.number() < 25.0,
            "{few:?} {many:?}"
        );
        assert!(few.writes_a_row > 2.0 && few.writes_a_row < many.writes_a_row, "{few:?} {many:?}");
        assert!(many.writes_a_row < 12.0, "{many:?}");
        for steady in [&few, &many] {
            assert!(steady.deleted > 0.01 && steady.deleted < DELETED_SHARE, "{steady:?}");
        }
        // All rows are in some segment.
        let live: f64 = many.sizes.iter().map(|(rows, number)| rows * number).sum();
        assert!((0.8..1.2).contains(&(live / 1e7)), "{live}");
    }

    #[test]
    fn rows_that_fit_in_the_memory_for_writes_are_one_segment_or_two() {
        let steady = SteadySegments::of(5_000.0, 30_000.0);
        assert!(steady.number() < 3.0 && steady.writes_a_row.is_finite(), "{steady:?}");
    }
}
