//! Which reads are one request.

use crate::GAP_BYTES;
use bathyal_tier::Read;
use std::ops::Range;

/// Bytes of one request at most: larger ones arrive sooner in parts.
const MOST_BYTES: u64 = 8 << 20;

/// Reads that are one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) range: Range<u64>,
    /// Which of the reads, by their place in the submission.
    pub(super) reads: Vec<usize>,
}

/// The requests for `reads` of an object of `len` bytes; reads that begin at its end or beyond are in none.
pub(super) fn join(reads: &[Read], len: u64) -> Vec<Joined> {
    let end = |read: &Read| read.offset.saturating_add(u64::from(read.len)).min(len);
    let mut order: Vec<usize> = (0..reads.len()).filter(|i| reads[*i].offset < len).collect();
    order.sort_unstable_by_key(|i| reads[*i].offset);
    let mut requests: Vec<Joined> = Vec::new();
    for i in order {
        let (from, to) = (reads[i].offset, end(&reads[i]));
        match requests.last_mut() {
            Some(last)
                if from <= last.range.end.saturating_add(GAP_BYTES)
                    && to.max(last.range.end) - last.range.start <= MOST_BYTES =>
            {
                last.range.end = last.range.end.max(to);
                last.reads.push(i);
            }
            _ => requests.push(Joined { range: from..to, reads: vec![i] }),
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(spans: &[(u64, u32)]) -> Vec<Read> {
        let read = |(id, (offset, len)): (usize, &(u64, u32))| Read {
            id: id as u64,
            offset: *offset,
            len: *len,
            buffer: std::ptr::null_mut(),
            round: 0,
        };
        spans.iter().enumerate().map(read).collect()
    }

    #[test]
    fn near_reads_are_one_request_and_far_ones_are_not() {
        let len = 100 << 20;
        let found = join(&reads(&[(50_000, 100), (0, 100), (100 + GAP_BYTES, 10), (40 << 20, 10)]), len);
        let ranges: Vec<_> =
            found.iter().map(|request| (request.range.clone(), request.reads.clone())).collect();
        assert_eq!(
            ranges,
            [
                (0..110 + GAP_BYTES, vec![1, 2]),
                (50_000..50_100, vec![0]),
                (40 << 20..(40 << 20) + 10, vec![3])
            ]
        );
        assert_eq!(join(&reads(&[(0, 100), (101 + GAP_BYTES, 10)]), len).len(), 2);
    }

    #[test]
    fn reads_end_where_the_object_does_and_large_ones_are_not_joined() {
        assert_eq!(
            join(&reads(&[(90, 100), (100, 5), (200, 5), (10, 5)]), 100),
            [Joined { range: 10..100, reads: vec![3, 0] }]
        );
        let half = (MOST_BYTES / 2) as u32 + 1;
        assert_eq!(join(&reads(&[(0, half), (u64::from(half), half)]), u64::MAX).len(), 2);
        // One that lies within another is no reason for a second request.
        assert_eq!(join(&reads(&[(0, 1000), (10, 5), (500, 100)]), 5000).len(), 1);
        assert_eq!(join(&[], 10), []);
    }
}
