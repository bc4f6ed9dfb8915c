//! A cache of a tier's pages in DRAM, within a budget, for tiers whose bytes cannot be read in place.
//!
//! The replacement policy is S3-FIFO (Yang et al., SOSP'23): a page enters a small queue, and moves to the
//! main queue only if it is read again, so that a scan does not evict the hot pages. A hit takes a shared
//! lock and copies the page; no lock is held while the tier reads.

mod ghost;
mod load;
mod queue;
mod shard;

pub use load::LoadCounts;

use self::queue::CacheQueue;
use self::shard::{Entry, Shard};
use crate::backend::sim::random::mix;
use crate::contract::{Queue, Span, Tier, TierProfile};
use crate::error::TierError;
use crate::forward::LayerTier;
use crate::lanes::Padded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The largest page: the alignment of the engine's buffers.
const LARGEST_PAGE: u32 = crate::BUFFER_ALIGNMENT as u32;

/// Maximum number of shards: a few for each thread of a large machine, so that two threads rarely use the
/// same shard.
const MOST_SHARDS: usize = 64;

/// Minimum number of pages of a shard. With fewer, random hashes would fill some shards long before others.
const SHARD_SLOTS: usize = 256;

/// Pages of the smallest cache: for a small queue, a main queue, and one to spare.
const FEWEST_SLOTS: usize = 4;

/// Size of a cache and of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// Maximum number of bytes of pages, tables and queues together. All of them are allocated at once, but
    /// not many more than the tier has; the system provides the memory as the cache fills. Not included: some
    /// 100 bytes for each read in flight.
    pub budget_bytes: u64,
    /// Bytes of one page: a power of two from the tier's alignment up to 4096. The cached tier is aligned to
    /// it, so that every read covers whole pages.
    pub page_bytes: u32,
}

impl Default for CacheOptions {
    fn default() -> Self {
        // The page size of most indexes, and the least that a flash device reads; 64 MiB holds 16,000 pages.
        CacheOptions { budget_bytes: 64 << 20, page_bytes: LARGEST_PAGE }
    }
}

/// Exact counts of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Pages copied from the cache.
    pub hits: u64,
    /// Pages requested from the tier by queries, whether or not they arrived.
    pub misses: u64,
    /// Bytes copied from the cache.
    pub hit_bytes: u64,
    /// Bytes that arrived from the tier for queries.
    pub miss_bytes: u64,
    /// Pages that were replaced by others.
    pub evictions: u64,
    /// Pages held now.
    pub resident_pages: u64,
    /// Pages that the cache can hold.
    pub capacity_pages: u64,
    /// Bytes allocated, metadata included; never more than the budget.
    pub allocated_bytes: u64,
}

impl CacheCounters {
    /// Returns the share of hits among all requested pages, from 0 to 1; 0 before the first request.
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits + self.misses;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// Plain counts: those that a queue has not published yet, or a sum.
#[derive(Debug, Default)]
struct Tally {
    hits: u64,
    misses: u64,
    hit_bytes: u64,
    miss_bytes: u64,
    evictions: u64,
}

/// A shard on its own cache lines, so that its lock does not slow accesses to its neighbours.
#[derive(Debug)]
#[repr(align(128))]
struct LockedShard(RwLock<Shard>);

/// State that all queues of a cache share.
#[derive(Debug)]
struct CacheState {
    shards: Vec<LockedShard>,
    page_bytes: u64,
    allocated_bytes: u64,
    capacity_pages: u64,
    counts: Mutex<AllCounts>,
}

/// The counts of all queues.
#[derive(Debug, Default)]
struct AllCounts {
    open: Vec<Arc<Padded<Counts>>>,
    /// Sum over queues that were dropped.
    closed: Counts,
}

/// Published counts of one queue, which only its thread writes.
#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    hit_bytes: AtomicU64,
    miss_bytes: AtomicU64,
    evictions: AtomicU64,
}

impl Counts {
    fn add(&self, tally: &Tally) {
        let add = |counter: &AtomicU64, by: u64| {
            if by > 0 {
                counter.fetch_add(by, Ordering::Relaxed);
            }
        };
        add(&self.hits, tally.hits);
        add(&self.misses, tally.misses);
        add(&self.hit_bytes, tally.hit_bytes);
        add(&self.miss_bytes, tally.miss_bytes);
        add(&self.evictions, tally.evictions);
    }

    fn tally(&self) -> Tally {
        Tally {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            hit_bytes: self.hit_bytes.load(Ordering::Relaxed),
            miss_bytes: self.miss_bytes.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }
}

impl CacheState {
    fn new(options: CacheOptions, tier_len: u64) -> Result<CacheState, TierError> {
        let page = options.page_bytes as usize;
        let useful = options.budget_bytes.min(tier_len);
        let shards = (useful / (page * SHARD_SLOTS) as u64).clamp(1, MOST_SHARDS as u64) as usize;
        // A power of two, so that the highest bits of a hash choose the shard.
        let shards = 1 << shards.ilog2();
        let fixed = (size_of::<CacheState>() + shards * size_of::<LockedShard>()) as u64;
        let share = options.budget_bytes.saturating_sub(fixed) / shards as u64;
        let mut slots =
            (share / page as u64).min(most_slots(tier_len / page as u64 / shards as u64)) as usize;
        while slots > 0 && Shard::footprint(slots, page) > share {
            let excess = Shard::footprint(slots, page) - share;
            slots -= (excess as usize / (page + page / 4)).clamp(1, slots);
        }
        if slots < FEWEST_SLOTS {
            let least = fixed + shards as u64 * Shard::footprint(FEWEST_SLOTS, page);
            let what = format!(
                "a cache of {} bytes is too small: the least that works is {least}",
                options.budget_bytes
            );
            return Err(TierError::Parameter(what));
        }
        Ok(CacheState {
            shards: (0..shards).map(|_| LockedShard(RwLock::new(Shard::new(slots, page)))).collect(),
            page_bytes: page as u64,
            allocated_bytes: fixed + shards as u64 * Shard::footprint(slots, page),
            capacity_pages: (shards * slots) as u64,
            counts: Mutex::default(),
        })
    }

    fn lock(&self, page: u64) -> &RwLock<Shard> {
        // The lowest bits of the hash choose a slot within the shard, and the highest bits choose the shard.
        let shard = ((mix(page) >> 32) * self.shards.len() as u64) >> 32;
        &self.shards[shard as usize].0
    }

    #[inline]
    fn read(&self, page: u64) -> RwLockReadGuard<'_, Shard> {
        self.lock(page).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, page: u64) -> RwLockWriteGuard<'_, Shard> {
        self.lock(page).write().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_counts(&self) -> MutexGuard<'_, AllCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds counts for a new queue.
    fn open_counts(&self) -> Arc<Padded<Counts>> {
        let counts = Arc::<Padded<Counts>>::default();
        self.all_counts().open.push(counts.clone());
        counts
    }

    /// Adds the counts of a dropped queue to the sum.
    fn close_counts(&self, counts: &Arc<Padded<Counts>>) {
        let mut all = self.all_counts();
        all.open.retain(|other| !Arc::ptr_eq(other, counts));
        all.closed.add(&counts.0.tally());
    }

    /// Returns the sum of the counts of all queues.
    fn tally(&self) -> Tally {
        let all = self.all_counts();
        let sum = Counts::default();
        sum.add(&all.closed.tally());
        all.open.iter().for_each(|counts| sum.add(&counts.0.tally()));
        sum.tally()
    }

    /// Returns the numbers of the pages that a span touches.
    fn pages(&self, span: &Span) -> std::ops::Range<u64> {
        span.offset / self.page_bytes..span.end().div_ceil(self.page_bytes)
    }
}

/// Returns the number of slots that suffices for a shard if all pages of a tier are cached and a shard gets
/// `mean` of them on average: five standard deviations more. Slot numbers have 32 bits.
fn most_slots(mean: u64) -> u64 {
    let spread = 5.0 * (mean as f64).sqrt();
    (mean + spread as u64 + FEWEST_SLOTS as u64).min(1 << 31)
}

/// A tier with a cache of its pages. Clones share the cache, so that one clone can return the counters while
/// another is searched. The bytes below must not change while they are cached; see [`CacheTier::forget`].
#[derive(Clone)]
pub struct CacheTier {
    tier: Arc<dyn Tier>,
    state: Arc<CacheState>,
    profile: TierProfile,
    entry: Entry,
}

impl CacheTier {
    /// Makes a cache over `tier`.
    ///
    /// # Errors
    /// [`TierError::Parameter`] for an addressable tier, which a cache could only slow down; for a page size
    /// that is not a power of two from the tier's alignment to 4096; and for a budget of less than a few
    /// pages.
    pub fn new(tier: Arc<dyn Tier>, options: CacheOptions) -> Result<CacheTier, TierError> {
        let inner = tier.profile();
        if inner.addressable {
            return Err(TierError::Parameter("a tier that is read in place needs no cache".into()));
        }
        let page = options.page_bytes;
        if !page.is_power_of_two() || page < inner.alignment || page > LARGEST_PAGE {
            let least = inner.alignment.max(1);
            let what = format!(
                "pages of {page} bytes: the size must be a power of two from {least} to {LARGEST_PAGE}"
            );
            return Err(TierError::Parameter(what));
        }
        let state = Arc::new(CacheState::new(options, tier.len())?);
        let profile = TierProfile {
            method: format!("{}, behind a cache of {} bytes", inner.method, options.budget_bytes),
            granularity: inner.granularity.max(page),
            alignment: page,
            ..inner.clone()
        };
        Ok(CacheTier { tier, state, profile, entry: Entry::Read })
    }

    /// Returns the counts of the cache so far, over all its queues.
    pub fn counters(&self) -> CacheCounters {
        let state = &self.state;
        let resident = |s: &LockedShard| s.0.read().unwrap_or_else(PoisonError::into_inner).resident() as u64;
        let Tally { hits, misses, hit_bytes, miss_bytes, evictions } = state.tally();
        CacheCounters {
            hits,
            misses,
            hit_bytes,
            miss_bytes,
            evictions,
            resident_pages: state.shards.iter().map(resident).sum(),
            capacity_pages: state.capacity_pages,
            allocated_bytes: state.allocated_bytes,
        }
    }

    /// Drops every page that a span touches, pinned or not, so that the next read goes to the tier. For bytes
    /// that were found damaged or are about to change.
    pub fn forget(&self, span: Span) {
        let end = self.state.pages(&Span::at(self.tier.len(), 0)).end;
        let pages = self.state.pages(&span);
        for page in pages.start..pages.end.min(end) {
            self.state.write(page).forget(page);
        }
    }
}

impl LayerTier for CacheTier {
    fn below(&self) -> &dyn Tier {
        &*self.tier
    }

    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn queue_over(&self, queue: Box<dyn Queue>, depth: u32) -> Box<dyn Queue> {
        Box::new(CacheQueue::new(queue, self.state.clone(), self.entry, self.tier.len(), depth))
    }
}
