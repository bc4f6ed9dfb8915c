//! Joins near reads into requests.

use crate::GAP_BYTES;
use bathyal_tier::Read;
use std::ops::Range;

/// The most bytes of a request; larger ranges arrive sooner as several requests.
const MAX_REQUEST_BYTES: u64 = 8 << 20;

/// Reads that share one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JoinedReads {
    pub(super) range: Range<u64>,
    /// The reads, by their position in the submission.
    pub(super) reads: Vec<usize>,
}

/// Returns the requests for `reads` of an object of `len` bytes. Reads that begin at or beyond its end are in
/// no request.
pub(super) fn join(reads: &[Read], len: u64) -> Vec<JoinedReads> {
    let end = |read: &Read| read.offset.saturating_add(u64::from(read.len)).min(len);
    let mut order: Vec<usize> = (0..reads.len()).filter(|i| reads[*i].offset < len).collect();
    order.sort_unstable_by_key(|i| reads[*i].offset);
    let mut requests: Vec<JoinedReads> = Vec::new();
    for i in order {
        let (from, to) = (reads[i].offset, end(&reads[i]));
        match requests.last_mut() {
            Some(last)
                if from <= last.range.end.saturating_add(GAP_BYTES)
                    && to.max(last.range.end) - last.range.start <= MAX_REQUEST_BYTES =>
            {
                last.range.end = last.range.end.max(to);
                last.reads.push(i);
            }
            _ => requests.push(JoinedReads { range: from..to, reads: vec![i] }),
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
    fn near_reads_share_a_request_and_distant_ones_do_not() {
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
    fn reads_end_with_the_object_and_large_ones_are_not_joined() {
        assert_eq!(
            join(&reads(&[(90, 100), (100, 5), (200, 5), (10, 5)]), 100),
            [JoinedReads { range: 10..100, reads: vec![3, 0] }]
        );
        let half = (MAX_REQUEST_BYTES / 2) as u32 + 1;
        assert_eq!(join(&reads(&[(0, half), (u64::from(half), half)]), u64::MAX).len(), 2);
        // A read within another needs no second request.
        assert_eq!(join(&reads(&[(0, 1000), (10, 5), (500, 100)]), 5000).len(), 1);
        assert_eq!(join(&[], 10), []);
    }
}
