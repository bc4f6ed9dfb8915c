//! One number for memory: how a budget is divided among what an open index keeps.

use super::Stored;
use crate::error::IndexError;
use crate::format::manifest::Manifest;
use bathyal_gpu::Card;
use serde::Serialize;

/// A page cache smaller than this holds nothing long enough to matter.
const LEAST_CACHE: u64 = 1 << 20;
/// One part in this many of the memory left after codes and centroids is reserved for searches.
const SEARCH_SHARE: u64 = 4;
/// Factor by which a query of more than the planned effort usually takes more memory, at most.
const LARGER: u64 = 4;
/// Purpose of the memory of searches, for errors if it is not part of the budget.
pub(crate) const SEARCHING: &str = "a search thread";
/// Candidate list that a budget plans for at least; recall 0.95 takes less wherever measured.
const LEAST_PLANNED_LIST: usize = 100;

/// Kind of memory that the searched file is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A device; pages may be cached or loaded.
    File,
    /// This process's DRAM.
    Dram,
    /// Memory that is not counted: a NUMA node, a mapped file or device.
    Elsewhere,
}

/// Facts about the source of reads that the division of memory depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) place: Place,
    /// True if the source is a store on another machine, whose requests are counted.
    pub(crate) far: bool,
    /// True if the source is memory of another machine, where a single vector arrives sooner than its page.
    pub(crate) lines: bool,
    /// The graphics card that searches.
    pub(crate) card: Option<&'a dyn Card>,
    /// True if the card holds the whole index.
    pub(crate) whole: bool,
    /// Bytes for searches that are not part of the budget.
    pub(crate) searches: Option<u64>,
    /// The longest candidate list of the searches, as far as it is known.
    pub(crate) list: usize,
}

/// Memory needs of an open index of a family.
pub(crate) struct Needs {
    /// Memory besides pages and searches: the best choice first, each later one smaller.
    pub(crate) choices: Vec<MemorySplit>,
    /// Unit in bytes in which codes of the last choice can stay on the tier; `None` if they cannot.
    pub(crate) codes_by: Option<u64>,
    /// Additional bytes if all pages are in memory.
    pub(crate) ids: u64,
    /// Advice if the budget is too small.
    pub(crate) advice: &'static str,
}

/// The codes that a graphics card takes.
pub(crate) struct CodesOnCard {
    /// Bytes of the codes: all, or the first ones.
    pub(crate) bytes: u64,
    /// Unit in bytes.
    pub(crate) unit: u64,
    /// Bytes of them that are also in memory.
    pub(crate) beside: u64,
}

impl Needs {
    /// Moves the codes of the best choice to the graphics card. Shorter codes have no use then.
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

/// Bytes of memory that keep pages off the tier.
struct PageBytes {
    /// All pages.
    pages: u64,
    /// The ids that are kept with all pages.
    ids: u64,
    /// The table that is kept if only single vectors are read.
    places: u64,
}

/// Memory of an open index, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemorySplit {
    /// The memory allowed; `None` means no limit.
    pub budget: Option<u64>,
    /// The trained codec.
    pub codec: u64,
    /// Centroids of a cluster index or of posting lists, with the graph over these.
    pub centroids: u64,
    /// Offsets of the records of a packed graph, or of posting lists with their ids and checksums.
    pub offsets: u64,
    /// Codes in memory.
    pub codes: u64,
    /// Codes in the memory of a graphics card instead of this process.
    pub codes_on_card: u64,
    /// Codes that the budget leaves on the tier.
    pub codes_on_tier: u64,
    /// Bytes of codes that the budget leaves out, because shorter codes are used.
    pub codes_left_out: u64,
    /// Pages in this process's DRAM: all of them, or none. Mapped memory that is something else (a NUMA node,
    /// a file, a device) is not counted.
    pub pages: u64,
    /// Ids by place, for a cluster index whose pages are all in DRAM, or that is read from the memory of
    /// another machine; in the latter case with checksums.
    pub ids: u64,
    /// The cache of pages.
    pub cache: u64,
    /// Copies of all of the above except the cache, on further NUMA nodes.
    pub copies: u64,
    /// Memory for inserted vectors, present and future, of a family whose indexes change; 0 without a limit.
    pub changes: u64,
    /// Reserved for the data that the processor loads if the graphics card is lost.
    pub standby: u64,
    /// Memory for the buffers and the state of searches; 0 without a limit, since searches then take what
    /// they need.
    pub searches: u64,
}

impl MemorySplit {
    /// Returns the bytes that the open index takes before any search.
    pub fn fixed(&self) -> u64 {
        let one = self.codec + self.centroids + self.offsets + self.codes + self.pages + self.ids;
        one + self.copies + self.cache + self.changes + self.standby
    }

    /// Returns the additional bytes of a second opening without the card.
    pub(crate) fn standby_bytes(manifest: &Manifest, stored: &dyn Stored, place: Place) -> u64 {
        let needs = stored.needs(manifest, place);
        let best = needs.choices.first().map_or(0, MemorySplit::fixed);
        best + needs.ids.max(stored.places_bytes())
    }

    /// Divides `budget`: first the memory that searches require, then codes, then pages, which are read
    /// `from` there.
    ///
    /// # Errors
    /// [`IndexError::Memory`] with the smallest budget that will do.
    pub(crate) fn plan(
        manifest: &Manifest,
        stored: &dyn Stored,
        from: Origin<'_>,
        budget: Option<u64>,
    ) -> Result<MemorySplit, IndexError> {
        let Origin { place, far, lines, card, whole, searches, list } = from;
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
        let query = stored.query_bytes(list.max(LEAST_PLANNED_LIST));
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
        // Leave memory for a query of more than the planned effort; codes must not take it.
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
            left -= split.keep_codes(left, unit.max(1), spare(left, frames, query), larger);
        }
        let more = place == Place::File && split.codes_on_tier == 0;
        // Reads of single vectors were measured with the best codes.
        let places = if at == 0 { places } else { 0 };
        split.spend(left, frames, query, more.then_some(PageBytes { pages: bytes, ids, places }));
        Ok(split)
    }

    /// Returns this split with `bytes` for searches that are shared with other indexes and outside the
    /// budget.
    pub(crate) fn sharing(self, bytes: u64) -> MemorySplit {
        MemorySplit { budget: Some(self.fixed() + bytes), searches: bytes, ..self }
    }

    /// Keeps the codes that fit in the bytes `left`, in units of `unit` bytes, and leaves the others on the
    /// tier. Returns the bytes of the codes kept. The bytes for a `larger` query stay free, and the `spare`
    /// bytes for searches too if not all codes fit.
    fn keep_codes(&mut self, left: u64, unit: u64, spare: u64, larger: u64) -> u64 {
        let kept_free = spare.max(left.min(larger));
        let all = left >= self.codes + larger;
        let resident = if all { self.codes } else { (left - kept_free).min(self.codes) / unit * unit };
        self.codes_on_tier = self.codes - resident;
        self.codes = resident;
        resident
    }

    /// Divides the bytes `left` among searches and pages. One search takes `frames` bytes of buffers and
    /// `query` bytes of its own. `pages` is `None` if pages in memory do not help.
    fn spend(&mut self, mut left: u64, frames: u64, query: u64, pages: Option<PageBytes>) {
        let one = frames + query;
        let (cores, spare) = (cores(), spare(left, frames, query));
        // A query on each core comes before pages: more memory must not leave fewer cores to search with.
        let each = (cores - 1) * one;
        let searches = if each <= left { spare.max(each) } else { spare };
        self.searches = one + searches;
        left -= searches;
        if let Some(PageBytes { pages, ids, places }) = pages {
            // If everything is in memory, no cache is needed and its bytes are free.
            if left + self.cache >= pages + ids {
                left = left + std::mem::take(&mut self.cache) - pages - ids;
                (self.pages, self.ids) = (pages, ids);
            } else if places > 0 && left >= places {
                // With this table single vectors are read; a page cache would require reads of whole pages.
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

/// Returns the part of the bytes `left` for searches. More queries at once gain more than a few codes or a
/// small cache, up to the number that all cores can use.
fn spare(left: u64, frames: u64, query: u64) -> u64 {
    (cores() * (frames + 16 * query)).min(left / SEARCH_SHARE)
}
