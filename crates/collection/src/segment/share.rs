//! The share of a segment in the memory budget of its collection.

/// Memory that every segment gets, whatever its size; small segments need little to find their codes.
const MIN_SEGMENT_BYTES: u64 = 1 << 20;
/// The least memory for searches of all segments, for the buffers of a few search threads; but at most half
/// of the budget.
const MIN_SEARCH_BYTES: u64 = 16 << 20;
/// A larger budget is divided by this for searches ...
const SEARCH_DIVISOR: u64 = 4;
/// ... up to this much for each core: the need of a core with many queries in flight.
const MAX_SEARCH_BYTES_PER_CORE: u64 = 16 << 20;

/// Size of a segment relative to its collection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SegmentShare {
    /// Bytes of its files.
    pub(crate) bytes: u64,
    /// Bytes of all segments.
    pub(crate) all_bytes: u64,
    /// Number of segments.
    pub(crate) segments: u64,
}

impl SegmentShare {
    /// Returns the segment's memory from a budget, without searches: a minimum, plus a part of the rest in
    /// proportion to its size.
    pub(crate) fn share_of(self, budget_bytes: u64) -> u64 {
        let budget_bytes = budget_bytes - search_bytes(budget_bytes);
        let least = MIN_SEGMENT_BYTES.min(budget_bytes / 2 / self.segments.max(1));
        let rest = budget_bytes.saturating_sub(least.saturating_mul(self.segments));
        least + (rest as f64 * self.bytes as f64 / self.all_bytes.max(1) as f64) as u64
    }

    /// Returns the smallest budget that gives the segment `own_bytes`, and searches `searches_bytes`.
    pub(crate) fn least_budget(self, own_bytes: u64, searches_bytes: u64) -> u64 {
        let is_enough = |budget| self.share_of(budget) >= own_bytes && search_bytes(budget) >= searches_bytes;
        // Both values grow with the budget.
        let mut beyond = 1_u64;
        while !is_enough(beyond) && beyond < 1 << 62 {
            beyond *= 2;
        }
        let mut below = beyond / 2;
        while beyond - below > 1 {
            let middle = below + (beyond - below) / 2;
            if is_enough(middle) { beyond = middle } else { below = middle }
        }
        beyond
    }
}

/// Returns the part of a memory budget for searches. All segments share it, since the same threads search
/// them.
pub(crate) fn search_bytes(budget_bytes: u64) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let more = (budget_bytes / SEARCH_DIVISOR).min(cores * MAX_SEARCH_BYTES_PER_CORE);
    more.max(MIN_SEARCH_BYTES.min(budget_bytes / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_the_budget_and_every_segment_gets_some() {
        let (sizes, budget) = ([10_u64 << 30, 1 << 20, 5], 1_u64 << 30);
        let part = |bytes| SegmentShare { bytes, all_bytes: sizes.iter().sum(), segments: 3 };
        let shares = sizes.map(|bytes| part(bytes).share_of(budget));
        assert!(shares.iter().all(|share| *share >= MIN_SEGMENT_BYTES) && shares.is_sorted_by(|a, b| a >= b));
        let left = budget - search_bytes(budget);
        assert!(search_bytes(budget) >= MIN_SEARCH_BYTES && left > budget / 2);
        assert!((left - 3..=left).contains(&shares.iter().sum()), "{shares:?}");
        // Each segment gets something even from a tiny budget; its index reports what is missing.
        assert!(sizes.iter().all(|bytes| part(*bytes).share_of(3000) >= 250));
        assert_eq!((search_bytes(3000), search_bytes(0)), (1500, 0));
    }

    #[test]
    fn the_least_budget_is_enough_and_one_byte_less_is_not() {
        let part = SegmentShare { bytes: 1 << 20, all_bytes: 64 << 20, segments: 40 };
        for (own, searches) in [(2 << 20, 1), (1, 9 << 20), (3 << 20, 1 << 20), (0, 0)] {
            let least = part.least_budget(own, searches);
            assert!(part.share_of(least) >= own && search_bytes(least) >= searches, "{own} {searches}");
            let less = least - 1;
            assert!(
                least == 1 || part.share_of(less) < own || search_bytes(less) < searches,
                "{own} {searches}"
            );
        }
    }
}
