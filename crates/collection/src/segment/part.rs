//! What a segment gets of the memory budget of its collection.

/// Memory of a budget that every segment gets, whatever its size: what leads to its codes is small, but there.
const LEAST_SEGMENT_BYTES: u64 = 1 << 20;
/// Memory of a budget for the searches of all segments, as far as half of the budget is that much: the buffers of some search
/// threads.
const LEAST_SEARCH_BYTES: u64 = 16 << 20;
/// Where there is more, one part in so many is for searches, up to what a core takes with many queries under way.
const SEARCH_SHARE: u64 = 4;
const MOST_SEARCH_BYTES_A_CORE: u64 = 16 << 20;

/// What part of a collection a segment is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SegmentPart {
    /// Bytes of its files.
    pub(crate) bytes: u64,
    /// Bytes of all segments.
    pub(crate) all_bytes: u64,
    /// How many these are.
    pub(crate) segments: u64,
}

impl SegmentPart {
    /// What it gets of a memory budget besides searches: as much as every segment, however small it is, and of the rest by its size.
    pub(crate) fn share_of(self, budget_bytes: u64) -> u64 {
        let budget_bytes = budget_bytes - search_bytes(budget_bytes);
        let least = LEAST_SEGMENT_BYTES.min(budget_bytes / 2 / self.segments.max(1));
        let rest = budget_bytes.saturating_sub(least.saturating_mul(self.segments));
        least + (rest as f64 * self.bytes as f64 / self.all_bytes.max(1) as f64) as u64
    }

    /// The smallest budget of which it gets `own_bytes`, and searches get `search_bytes`.
    pub(crate) fn least_budget(self, own_bytes: u64, searches_bytes: u64) -> u64 {
        let suits = |budget| self.share_of(budget) >= own_bytes && search_bytes(budget) >= searches_bytes;
        // Both grow with the budget.
        let mut beyond = 1_u64;
        while !suits(beyond) && beyond < 1 << 62 {
            beyond *= 2;
        }
        let mut below = beyond / 2;
        while beyond - below > 1 {
            let middle = below + (beyond - below) / 2;
            if suits(middle) { beyond = middle } else { below = middle }
        }
        beyond
    }
}

/// What of a memory budget the searches of all segments share: these are searched by the same threads.
pub(crate) fn search_bytes(budget_bytes: u64) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let more = (budget_bytes / SEARCH_SHARE).min(cores * MOST_SEARCH_BYTES_A_CORE);
    more.max(LEAST_SEARCH_BYTES.min(budget_bytes / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_budget_come_to_the_budget_and_leave_no_segment_without() {
        let (sizes, budget) = ([10_u64 << 30, 1 << 20, 5], 1_u64 << 30);
        let part = |bytes| SegmentPart { bytes, all_bytes: sizes.iter().sum(), segments: 3 };
        let shares = sizes.map(|bytes| part(bytes).share_of(budget));
        assert!(
            shares.iter().all(|share| *share >= LEAST_SEGMENT_BYTES) && shares.is_sorted_by(|a, b| a >= b)
        );
        let left = budget - search_bytes(budget);
        assert!(search_bytes(budget) >= LEAST_SEARCH_BYTES && left > budget / 2);
        assert!((left - 3..=left).contains(&shares.iter().sum()), "{shares:?}");
        // Of too little each still has something; their indexes say what they lack.
        assert!(sizes.iter().all(|bytes| part(*bytes).share_of(3000) >= 250));
        assert_eq!((search_bytes(3000), search_bytes(0)), (1500, 0));
    }

    #[test]
    fn the_least_budget_is_the_least() {
        let part = SegmentPart { bytes: 1 << 20, all_bytes: 64 << 20, segments: 40 };
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
