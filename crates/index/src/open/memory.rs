//! One number for memory: how a budget is divided among what an open index keeps.

use super::TierChoice;
use super::family::Sizes;
use crate::error::IndexError;
use crate::families::spann::centroids::CentroidLinks;
use crate::format::manifest::{Manifest, SpannEntry, Structure};
use crate::format::offsets::Offsets;
use crate::format::postings::Postings;
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
    /// Centroids of a cluster index or of posting lists, with the graph over these.
    pub centroids: u64,
    /// Where the records of a packed graph begin, or posting lists lie, with the ids and checksums of what they hold.
    pub offsets: u64,
    /// Codes in memory.
    pub codes: u64,
    /// Codes that the budget leaves on the tier.
    pub codes_on_tier: u64,
    /// Pages in this process's DRAM: all of them, or none. Mapped memory that is something else (a NUMA node, a file, a
    /// device) is not counted.
    pub pages: u64,
    /// Which vector lies where, of a cluster index whose pages are all in DRAM.
    pub ids: u64,
    /// The cache of pages.
    pub cache: u64,
    /// What is left for the buffers and the state of searches; 0 without a limit, where searches take what they need.
    pub searches: u64,
}

impl MemorySplit {
    /// Bytes that are taken from the moment the index is open.
    pub fn fixed(&self) -> u64 {
        self.codec + self.centroids + self.offsets + self.codes + self.pages + self.ids + self.cache
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
        if let Structure::Spann(entry) = &manifest.structure {
            return MemorySplit::plan_lists(manifest, entry, sizes, tier, budget);
        }
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
            ids: if all_pages > 0 { sizes.ids() } else { 0 },
            ..MemorySplit::default()
        };
        let Some(budget) = budget else { return Ok(split) };
        let divisible = matches!(manifest.structure, Structure::Cluster(_)) && *tier == TierChoice::File;
        let unit = sizes.group_codes;
        let frame = sizes.frame_bytes(divisible) as u64;
        let one = u64::from(sizes.frames) * frame + sizes.query_bytes(PLANNED_LIST);
        let least = split.codec
            + split.centroids
            + split.offsets
            + split.pages
            + split.ids
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
        let more = *tier == TierChoice::File && split.codes_on_tier == 0;
        split.spend(left, one, u64::from(sizes.frames) * frame, sizes, more.then_some(pages));
        Ok(split)
    }

    /// Divides what is `left` among searches, of which one takes `one` bytes and `frames` of that are buffers, and
    /// `pages`, if more of these in memory help.
    fn spend(&mut self, mut left: u64, one: u64, frames: u64, sizes: &Sizes, pages: Option<u64>) {
        // More queries at once gain more than a small cache, up to what all cores can use.
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64;
        let spare = (cores * (frames + 16 * sizes.query_bytes(PLANNED_LIST))).min(left / SEARCH_SHARE);
        // A query on each core comes before pages: more memory must not leave fewer cores to search with.
        let each = (cores - 1) * one;
        let searches = if each <= left { spare.max(each) } else { spare };
        self.searches = one + searches;
        left -= searches;
        if let Some(pages) = pages {
            if left >= pages + sizes.ids() {
                (self.pages, self.ids) = (pages, sizes.ids());
                left -= pages + self.ids;
            } else if left >= LEAST_CACHE {
                self.cache = left;
                left = 0;
            }
        }
        self.searches += left;
    }

    /// The same for posting lists: first tables and links, then codes of the centroids, or the centroids themselves
    /// where these fit.
    fn plan_lists(
        manifest: &Manifest,
        entry: &SpannEntry,
        sizes: &Sizes,
        tier: &TierChoice,
        budget: Option<u64>,
    ) -> Result<MemorySplit, IndexError> {
        let lists = u64::from(entry.list_count);
        let pages = if tier.is_dram() { entry.file.bytes } else { 0 };
        let checksums = if *tier == TierChoice::File { entry.checksums.bytes } else { 0 };
        // The links' file is there beside the links while they are unpacked.
        let links = CentroidLinks::planned_bytes(lists, entry.max_degree) + entry.links.bytes;
        let ids = entry.ids.as_ref().map_or(0, |file| file.bytes);
        // A trained codec takes about twice its file once unpacked.
        let list_codec = entry.codes.as_ref().map_or(0, |codes| 2 * codes.codec.bytes);
        let exact = MemorySplit {
            budget,
            codec: list_codec,
            centroids: links + entry.centroids.bytes,
            offsets: Postings::planned_bytes(lists) + entry.lists.bytes + ids + checksums,
            pages,
            ..MemorySplit::default()
        };
        let Some(budget) = budget else { return Ok(exact) };
        let coded = MemorySplit {
            codec: list_codec + 2 * manifest.codes.codec.bytes,
            codes: manifest.codes.file.bytes,
            centroids: links,
            ..exact
        };
        let frames = u64::from(sizes.frames) * sizes.frame_bytes(false) as u64;
        let one = frames + sizes.query_bytes(PLANNED_LIST);
        let least = coded.fixed().min(exact.fixed()) + one;
        let chosen = [exact, coded].into_iter().find(|split| split.fixed() + one <= budget);
        let Some(mut split) = chosen else {
            return Err(IndexError::Memory {
                what: "opening this index",
                needed: least,
                given: budget,
                advice: "allow at least that much, or rebuild with a smaller centroid_share",
            });
        };
        let left = budget - split.fixed() - one;
        let more = *tier == TierChoice::File;
        split.spend(left, one, frames, sizes, more.then_some(entry.file.bytes));
        Ok(split)
    }
}
