//! One number for memory: how a budget is divided among what an open index keeps.

use super::family::Sizes;
use super::{ENGINE_DEPTH, FRAMES, TierChoice};
use crate::error::IndexError;
use crate::format::manifest::{Manifest, Structure};
use crate::format::offsets::Offsets;
use serde::Serialize;

/// A page cache smaller than this holds nothing long enough to matter.
const LEAST_CACHE: u64 = 1 << 20;
/// Share of what is left after codes and centroids that is kept for searches: one part in so many.
const SEARCH_SHARE: u64 = 4;
/// Candidate list that a budget plans for; recall 0.95 takes less wherever measured.
pub(super) const PLANNED_LIST: usize = 100;

/// What an open index keeps in memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemorySplit {
    /// What was allowed; `None` means no limit.
    pub budget: Option<u64>,
    /// The trained codec.
    pub codec: u64,
    /// Centroids of a cluster index.
    pub centroids: u64,
    /// Where the records of a packed graph begin.
    pub offsets: u64,
    /// Codes in memory.
    pub codes: u64,
    /// Codes that the budget leaves on the tier.
    pub codes_on_tier: u64,
    /// Pages in this process's DRAM: all of them, or none. Mapped memory that is something else (a NUMA node, a file, a
    /// device) is not counted.
    pub pages: u64,
    /// The cache of pages.
    pub cache: u64,
    /// What is left for the buffers and the state of searches; 0 without a limit, where searches take what they need.
    pub searches: u64,
}

impl MemorySplit {
    /// Bytes that are taken from the moment the index is open.
    pub fn fixed(&self) -> u64 {
        self.codec + self.centroids + self.offsets + self.codes + self.pages + self.cache
    }

    /// Divides `budget`: first what a search cannot do without, then codes, then pages.
    ///
    /// # Errors
    /// [`IndexError::Memory`] with the smallest budget that will do.
    pub(super) fn plan(
        manifest: &Manifest,
        sizes: &Sizes,
        tier: &TierChoice,
        budget: Option<u64>,
    ) -> Result<MemorySplit, IndexError> {
        let pages = manifest.paged_file().bytes;
        let all_pages = if tier.is_dram() { pages } else { 0 };
        let mut split = MemorySplit {
            budget,
            // A trained codec takes about twice its file once unpacked.
            codec: 2 * manifest.codes.codec.bytes,
            centroids: manifest.cluster().map_or(0, |cluster| cluster.centroids.bytes),
            offsets: manifest
                .graph()
                .ok()
                .and_then(|graph| graph.offsets.as_ref())
                .map_or(0, |file| Offsets::planned_bytes(file.bytes, manifest.vectors)),
            codes: manifest.codes.file.bytes,
            pages: all_pages,
            ..MemorySplit::default()
        };
        let Some(budget) = budget else { return Ok(split) };
        let divisible = matches!(manifest.structure, Structure::Cluster(_)) && *tier == TierChoice::File;
        let unit = sizes.group_codes;
        let frame = sizes.frame_bytes(divisible) as u64;
        let one = u64::from(FRAMES) * frame + sizes.query_bytes(PLANNED_LIST);
        let least = split.codec
            + split.centroids
            + split.offsets
            + split.pages
            + one
            + if divisible { 0 } else { split.codes };
        let Some(mut left) = budget.checked_sub(least) else {
            return Err(IndexError::Memory {
                what: "opening this index",
                needed: least,
                given: budget,
                advice: if divisible {
                    "allow at least that much"
                } else {
                    "allow at least that much, or rebuild with smaller code_bytes"
                },
            });
        };
        if divisible {
            let resident = left.min(split.codes) / unit * unit;
            split.codes_on_tier = split.codes - resident;
            split.codes = resident;
            left -= resident;
        }
        // More queries at once gain more than a small cache, up to what all cores can use.
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64;
        let searches = (cores * (u64::from(FRAMES) * frame + 16 * sizes.query_bytes(PLANNED_LIST)))
            .min(left / SEARCH_SHARE);
        split.searches = one + searches;
        left -= searches;
        if *tier == TierChoice::File && split.codes_on_tier == 0 {
            if left >= pages {
                split.pages = pages;
                left -= pages;
            } else if left >= LEAST_CACHE {
                split.cache = left;
                left = 0;
            }
        }
        split.searches += left;
        Ok(split)
    }
}

const _: () = assert!(FRAMES >= ENGINE_DEPTH, "every read in flight has a buffer");
