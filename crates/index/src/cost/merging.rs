//! The segments of a collection: when rows in memory become one, and which segments are merged.

use serde::Serialize;

/// Default memory for recently written rows. It holds 15,000 vectors of 768 floats before they are written as
/// a segment; a search compares that many in 3 ms (docs/decisions/collections.md).
pub const DEFAULT_WRITE_MEMORY_BYTES: u64 = 128 << 20;
/// Share of the memory for writes that rows may take before they are frozen. Frozen rows take as much again
/// until they are written. The rest is for batches in progress.
pub const ACTIVE_SHARE: f64 = 0.375;
/// Segments of fewer rows are flat. Codes of ten thousand vectors are compared in a fraction of a
/// millisecond. Building another family takes longer than it would save until the segment is merged into a
/// larger one.
pub const FLAT_BELOW_ROWS: usize = 10_000;
/// Number of segments that are merged into one; each has at most this many times the rows of all smaller
/// ones. With a larger factor, segments are merged less often, and more segments must be searched
/// (docs/decisions/collections.md).
pub const MERGE_FACTOR: usize = 4;
/// A segment is rewritten if this share of its rows is deleted. It keeps the space of a collection below one
/// and a half times its live rows.
pub const DELETED_SHARE: f64 = 0.3;
/// The share of the rows of a segment that are not deleted, on average: half of the deleted ones that a merge
/// waits for.
pub const LIVE_SHARE: f64 = 1.0 - DELETED_SHARE / 2.0;
/// The most rows of a segment.
pub const MAX_SEGMENT_ROWS: u64 = 1 << 31;

/// The rows of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SegmentRows {
    /// All of them.
    pub rows: u64,
    /// Those that are deleted.
    pub deleted: u64,
}

impl SegmentRows {
    /// Returns the number of rows that are not deleted.
    pub fn live(self) -> u64 {
        self.rows.saturating_sub(self.deleted)
    }
}

/// Returns the positions of the segments to merge now: one with too many deleted rows, or several of about
/// the same size. `None` if no merge is worth its time.
pub fn worth_merging(segments: &[SegmentRows]) -> Option<Vec<usize>> {
    let is_mostly_deleted =
        |segment: &SegmentRows| segment.deleted as f64 >= DELETED_SHARE * segment.rows as f64;
    if let Some(position) = segments.iter().position(is_mostly_deleted) {
        return Some(vec![position]);
    }
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_by_key(|position| segments[*position].live());
    // From the smallest segment on: a run ends before a segment that is much larger than all before it.
    let (mut first, mut sum) = (0, 0);
    for (position, segment) in order.iter().enumerate() {
        let (count, rows) = (position - first, segments[*segment].live());
        if count >= MERGE_FACTOR && rows > sum / (MERGE_FACTOR as u64 - 1) || sum + rows > MAX_SEGMENT_ROWS {
            return (count >= MERGE_FACTOR).then(|| order[first..position].to_vec());
        }
        if count > 0 && count < MERGE_FACTOR && rows > sum * MERGE_FACTOR as u64 {
            // This segment is too large for those before it; they wait for others of their size.
            (first, sum) = (position, 0);
        }
        sum += rows;
    }
    (order.len() - first >= MERGE_FACTOR).then(|| order[first..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(rows: &[u64]) -> Option<Vec<usize>> {
        let segments: Vec<SegmentRows> =
            rows.iter().map(|rows| SegmentRows { rows: *rows, deleted: 0 }).collect();
        worth_merging(&segments)
    }

    #[test]
    fn four_segments_of_a_size_are_merged_and_much_larger_ones_wait() {
        assert_eq!(merged(&[]), None);
        assert_eq!(merged(&[10, 10, 10]), None);
        assert_eq!(merged(&[10, 10, 10, 10]), Some(vec![0, 1, 2, 3]));
        assert_eq!(merged(&[1000, 10, 10, 10]), None);
        assert_eq!(merged(&[1000, 10, 10, 10, 10]), Some(vec![1, 2, 3, 4]));
        // Four small ones are about as large as the next.
        assert_eq!(merged(&[13, 10, 10, 10, 10]), Some(vec![1, 2, 3, 4, 0]));
        assert_eq!(merged(&[1 << 30, 1 << 30, 1 << 30, 1 << 30]), None);
    }

    #[test]
    fn a_segment_with_many_deleted_rows_is_rewritten_first() {
        let segment = |rows, deleted| SegmentRows { rows, deleted };
        let four = [segment(10, 0), segment(10, 2), segment(10, 3), segment(10, 0)];
        assert_eq!(worth_merging(&four), Some(vec![2]));
        assert_eq!(segment(10, 3).live(), 7);
    }
}
