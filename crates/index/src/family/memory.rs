//! One number for memory: how a budget is divided among what an open index keeps.

use super::Stored;
use crate::error::IndexError;
use crate::format::manifest::Manifest;
use bathyal_gpu::Card;
use serde::Serialize;

/// A page cache smaller than this holds nothing long enough to matter.
const LEAST_CACHE: u64 = 1 << 20;
/// Share of what is left after codes and centroids that is kept for searches: one part in so many.
const SEARCH_SHARE: u64 = 4;
/// A query of more effort than is planned for takes so many times as much at most, as a rule.
const LARGER: u64 = 4;
/// What the memory of searches is needed for, where that is none of the budget.
pub(crate) const SEARCHING: &str = "a search thread";
/// Candidate list that a budget plans for; recall 0.95 takes less wherever measured.
const PLANNED_LIST: usize = 100;

/// Where the file is that searches read, as far as memory is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a device, from which it may be cached or loaded.
    File,
    /// In this process's DRAM.
    Dram,
    /// In memory that is not counted: a NUMA node, a mapped file or device.
    Elsewhere,
}

/// From where searches read, as far as memory is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) place: Place,
    /// Whether that is a store of another machine, whose requests are counted.
    pub(crate) far: bool,
    /// Whether it is memory of another machine: of which a vector comes sooner than the page that it is on.
    pub(crate) lines: bool,
    /// The graphics card that searches.
    pub(crate) card: Option<&'a dyn Card>,
    /// Whether it has all of the index.
    pub(crate) whole: bool,
    /// Bytes for searches that are not of the budget.
    pub(crate) searches: Option<u64>,
}

/// What an open index of a family needs in memory.
pub(crate) struct Needs {
    /// What it keeps besides pages and searches, the best way first; ways after it take less.
    pub(crate) choices: Vec<MemorySplit>,
    /// Where codes of the last way can be left on the tier: by how many bytes at a time.
    pub(crate) codes_by: Option<u64>,
    /// Bytes that are kept besides where all pages are in memory.
    pub(crate) ids: u64,
    /// What to do where a budget is too small.
    pub(crate) advice: &'static str,
}

/// The codes that a graphics card takes.
pub(crate) struct CodesOnCard {
    /// All, or the first of them.
    pub(crate) bytes: u64,
    /// By how many bytes at a time.
    pub(crate) unit: u64,
    /// Bytes of them that are in memory all the same.
    pub(crate) beside: u64,
}

impl Needs {
    /// Counts codes of the best way as a graphics card's, which takes them; shorter ones have no use then.
    fn leave_codes_to_card(&mut self, taken: &CodesOnCard) {
        self.choices.truncate(1);
        for split in &mut self.choices {
            let (all, taken_bytes) = (split.codes, taken.bytes.min(split.codes));
            split.codes_on_card = taken_bytes;
            split.codes = all - taken_bytes + taken.beside;
        }
        let some_left = self.choices.iter().any(|split| split.codes > taken.beside);
        self.codes_by = self.codes_by.filter(|_| some_left).map(|_| taken.unit);
    }
}

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
    /// Codes that are in the memory of a graphics card, and not in this process's.
    pub codes_on_card: u64,
    /// Codes that the budget leaves on the tier.
    pub codes_on_tier: u64,
    /// What the budget leaves out of the codes: those in memory, and those counted as on the tier, are shorter ones.
    pub codes_left_out: u64,
    /// Pages in this process's DRAM: all of them, or none. Mapped memory that is something else (a NUMA node, a file, a
    /// device) is not counted.
    pub pages: u64,
    /// Which vector lies where, of a cluster index whose pages are all in DRAM, or that is read from the memory of another machine:
    /// there with their checksums.
    pub ids: u64,
    /// The cache of pages.
    pub cache: u64,
    /// Copies on further NUMA nodes of all of the above but the cache.
    pub copies: u64,
    /// What is kept for vectors that were inserted and will be, of a family whose indexes change; 0 without a limit.
    pub changes: u64,
    /// Set aside for the codes, and what else there is twice then, of a processor that goes on where a graphics card is lost.
    pub standby: u64,
    /// What is left for the buffers and the state of searches; 0 without a limit, where searches take what they need.
    pub searches: u64,
}

impl MemorySplit {
    /// Bytes that are taken from the moment the index is open.
    pub fn fixed(&self) -> u64 {
        let one = self.codec + self.centroids + self.offsets + self.codes + self.pages + self.ids;
        one + self.copies + self.cache + self.changes + self.standby
    }

    /// Bytes that the index takes in memory besides, where it is opened once more and without its card.
    pub(crate) fn standby_bytes(manifest: &Manifest, stored: &dyn Stored, place: Place) -> u64 {
        let needs = stored.needs(manifest, place);
        let best = needs.choices.first().map_or(0, MemorySplit::fixed);
        best + needs.ids.max(stored.places_bytes())
    }

    /// Divides `budget`: first what a search cannot do without, then codes, then pages, which come `from` there.
    ///
    /// # Errors
    /// [`IndexError::Memory`] with the smallest budget that will do.
    pub(crate) fn plan(
        manifest: &Manifest,
        stored: &dyn Stored,
        from: Origin<'_>,
        budget: Option<u64>,
    ) -> Result<MemorySplit, IndexError> {
        let Origin { place, far, lines, card, whole, searches } = from;
        let mut needs = stored.needs(manifest, place);
        if let Some(taken) = card.and_then(|card| stored.codes_on_card(card, whole)) {
            needs.leave_codes_to_card(&taken);
        }
        let Needs { choices, codes_by, ids, advice } = needs;
        let places = if lines { stored.places_bytes() } else { 0 };
        let bytes = manifest.paged_file().bytes;
        let all_pages = if place == Place::Dram { bytes } else { 0 };
        let with_pages = |split: &MemorySplit| MemorySplit {
            budget,
            pages: all_pages,
            ids: if all_pages > 0 { ids } else { 0 },
            ..*split
        };
        let choices: Vec<MemorySplit> = choices.iter().map(with_pages).collect();
        let Some(best) = choices.first().copied() else {
            return Err(IndexError::Internal("a family that needs no memory".into()));
        };
        let Some(budget) = budget else { return Ok(MemorySplit { ids: best.ids.max(places), ..best }) };
        let query = stored.query_bytes(PLANNED_LIST);
        let frames = stored.buffers().thread_bytes(codes_by.is_some(), far);
        let (frames, query) = match searches {
            Some(given) if given < frames + query => {
                return Err(IndexError::Memory {
                    what: SEARCHING,
                    needed: frames + query,
                    given,
                    advice: "allow at least that much".into(),
                });
            }
            Some(_) => (0, 0),
            None => (frames, query),
        };
        let one = frames + query;
        let last = choices.len() - 1;
        let spared = |at: usize| if at == last && codes_by.is_some() { choices[at].codes } else { 0 };
        let needed = |at: usize| choices[at].fixed() - spared(at) + one;
        // A query may want more than is planned for, which the codes that fit must not take.
        let larger = if codes_by.is_some() { LARGER * query } else { 0 };
        let fits = |at: &usize| needed(*at) + if *at < last { larger } else { 0 } <= budget;
        let Some(at) = (0..choices.len()).find(fits) else {
            let least = (0..choices.len()).map(needed).min().unwrap_or(0);
            return Err(IndexError::Memory {
                what: "opening this index",
                needed: least,
                given: budget,
                advice: advice.into(),
            });
        };
        let (mut split, mut left) = (choices[at], budget - needed(at));
        if let Some(unit) = codes_by.filter(|_| at == last) {
            let unit = unit.max(1);
            let kept = spare(left, frames, query).max(left.min(larger));
            let all = left >= split.codes + larger;
            let resident = if all { split.codes } else { (left - kept).min(split.codes) / unit * unit };
            split.codes_on_tier = split.codes - resident;
            split.codes = resident;
            left -= resident;
        }
        let more = place == Place::File && split.codes_on_tier == 0;
        // What is read alone was measured with the best codes.
        let places = if at == 0 { places } else { 0 };
        split.spend(left, frames, query, more.then_some((bytes, ids, places)));
        Ok(split)
    }

    /// The same with `bytes` for searches besides the budget, which others share.
    pub(crate) fn sharing(self, bytes: u64) -> MemorySplit {
        MemorySplit { budget: Some(self.fixed() + bytes), searches: bytes, ..self }
    }

    /// Divides what is `left` among searches, of which one takes `frames` bytes of buffers and `query` of its own, and
    /// pages, if more of these in memory help: their bytes, what is kept with all of them, and what is kept where they are left
    /// but for single vectors.
    fn spend(&mut self, mut left: u64, frames: u64, query: u64, pages: Option<(u64, u64, u64)>) {
        let one = frames + query;
        let (cores, spare) = (cores(), spare(left, frames, query));
        // A query on each core comes before pages: more memory must not leave fewer cores to search with.
        let each = (cores - 1) * one;
        let searches = if each <= left { spare.max(each) } else { spare };
        self.searches = one + searches;
        left -= searches;
        if let Some((pages, ids, places)) = pages {
            // What a cache was promised is free where everything is in memory.
            if left + self.cache >= pages + ids {
                left = left + std::mem::take(&mut self.cache) - pages - ids;
                (self.pages, self.ids) = (pages, ids);
            } else if places > 0 && left >= places {
                // A cache of pages would have to be read by pages.
                (left, self.ids) = (left - places, places);
            } else if left >= LEAST_CACHE {
                self.cache += left;
                left = 0;
            }
        }
        self.searches += left;
    }
}

fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get()) as u64
}

/// What searches are given of what is `left`: more queries at once gain more than a few codes or a small cache, up to what all
/// cores can use.
fn spare(left: u64, frames: u64, query: u64) -> u64 {
    (cores() * (frames + 16 * query)).min(left / SEARCH_SHARE)
}
