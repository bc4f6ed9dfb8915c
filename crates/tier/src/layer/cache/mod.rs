//! Pages of a tier kept in DRAM, within a budget: for tiers whose bytes cannot be read in place.
//!
//! What stays is decided by S3-FIFO (Yang et al., SOSP'23): a page enters a small queue, and only if it is wanted
//! again does it reach the main one, so that a scan passes through without driving the hot pages out. A hit takes
//! a shared lock and copies the page; no lock is held while the tier reads.

mod ghost;
mod load;
mod queue;
mod shard;

pub use load::Loaded;

use self::queue::CacheQueue;
use self::shard::{Entry, Shard};
use crate::backend::sim::random::mix;
use crate::contract::{Queue, Span, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use crate::lanes::Padded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The largest page: what the engine aligns its buffers to.
const LARGEST_PAGE: u32 = crate::BUFFER_ALIGNMENT as u32;

/// Shards at most: a few for each thread of a large machine, so that two rarely meet.
const MOST_SHARDS: usize = 64;

/// Pages that a shard has at least: with fewer, chance would fill some long before others.
const SHARD_SLOTS: usize = 256;

/// Pages that the smallest cache holds: a small queue, a main queue, and one to spare.
const FEWEST_SLOTS: usize = 4;

/// What a cache may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of pages, tables and queues together, at most; all of it is allocated at once (and taken from the system as
    /// the cache fills), but not much more than the tier is long. What a queue remembers of its reads in flight (some
    /// 100 bytes each) comes on top.
    pub budget_bytes: u64,
    /// Bytes of one page: a power of two from the tier's alignment up to 4096. The cached tier is aligned to it, so
    /// that every read covers whole pages.
    pub page_bytes: u32,
}

impl Default for CacheOptions {
    fn default() -> Self {
        // A page of most indexes, and what a flash device reads at the price of less; 64 MiB holds 16,000 of them.
        CacheOptions { budget_bytes: 64 << 20, page_bytes: LARGEST_PAGE }
    }
}

/// What a cache has done so far. Exact counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Pages copied from the cache.
    pub hits: u64,
    /// Pages asked of the tier by queries, whether or not they arrived.
    pub misses: u64,
    /// Bytes copied from the cache.
    pub hit_bytes: u64,
    /// Bytes that arrived from the tier for queries.
    pub miss_bytes: u64,
    /// Pages that went to make room for others.
    pub evictions: u64,
    /// Pages held now.
    pub resident_pages: u64,
    /// Pages that the cache can hold.
    pub capacity_pages: u64,
    /// Bytes allocated, metadata included; never more than the budget.
    pub allocated_bytes: u64,
}

impl CacheCounters {
    /// Hits among all pages asked for, from 0 to 1; 0 before the first.
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits + self.misses;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// Counts of one queue that have not reached the shared ones yet.
#[derive(Debug, Default)]
struct Tally {
    hits: u64,
    misses: u64,
    hit_bytes: u64,
    miss_bytes: u64,
    evictions: u64,
}

/// A shard on cache lines of its own: a lock that one thread takes is not to slow its neighbours.
#[derive(Debug)]
#[repr(align(128))]
struct Locked(RwLock<Shard>);

/// What all queues of a cache share.
#[derive(Debug)]
struct Shared {
    shards: Vec<Locked>,
    page_bytes: u64,
    allocated_bytes: u64,
    capacity_pages: u64,
    counts: Mutex<Books>,
}

/// The counts of all queues.
#[derive(Debug, Default)]
struct Books {
    open: Vec<Arc<Padded<Counts>>>,
    /// Those of queues that are gone.
    closed: Counts,
}

/// What one queue has counted, where no other thread writes.
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

impl Shared {
    fn new(options: CacheOptions, tier_len: u64) -> Result<Shared, TierError> {
        let page = options.page_bytes as usize;
        let useful = options.budget_bytes.min(tier_len);
        let shards = (useful / (page * SHARD_SLOTS) as u64).clamp(1, MOST_SHARDS as u64) as usize;
        // A power of two, so that the highest bits of a hash choose.
        let shards = 1 << shards.ilog2();
        let fixed = (size_of::<Shared>() + shards * size_of::<Locked>()) as u64;
        let share = options.budget_bytes.saturating_sub(fixed) / shards as u64;
        let mut slots =
            (share / page as u64).min(most_slots(tier_len / page as u64 / shards as u64)) as usize;
        while slots > 0 && Shard::footprint(slots, page) > share {
            let excess = Shard::footprint(slots, page) - share;
            slots -= (excess as usize / (page + page / 4)).clamp(1, slots);
        }
        if slots < FEWEST_SLOTS {
            let least = fixed + shards as u64 * Shard::footprint(FEWEST_SLOTS, page);
            let what = format!("a cache of {} bytes is too small: at least {least}", options.budget_bytes);
            return Err(TierError::Parameter(what));
        }
        Ok(Shared {
            shards: (0..shards).map(|_| Locked(RwLock::new(Shard::new(slots, page)))).collect(),
            page_bytes: page as u64,
            allocated_bytes: fixed + shards as u64 * Shard::footprint(slots, page),
            capacity_pages: (shards * slots) as u64,
            counts: Mutex::default(),
        })
    }

    fn lock(&self, page: u64) -> &RwLock<Shard> {
        // The lowest bits choose within a shard, so the highest choose among them.
        let which = ((mix(page) >> 32) * self.shards.len() as u64) >> 32;
        &self.shards[which as usize].0
    }

    #[inline]
    fn read(&self, page: u64) -> RwLockReadGuard<'_, Shard> {
        self.lock(page).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, page: u64) -> RwLockWriteGuard<'_, Shard> {
        self.lock(page).write().unwrap_or_else(PoisonError::into_inner)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the counts of a new queue.
    fn begin(&self) -> Arc<Padded<Counts>> {
        let counts = Arc::<Padded<Counts>>::default();
        self.books().open.push(counts.clone());
        counts
    }

    /// Keeps the counts of a queue that goes.
    fn end(&self, counts: &Arc<Padded<Counts>>) {
        let mut books = self.books();
        books.open.retain(|other| !Arc::ptr_eq(other, counts));
        books.closed.add(&counts.0.tally());
    }

    /// What all queues have counted.
    fn tally(&self) -> Tally {
        let books = self.books();
        let all = Counts::default();
        all.add(&books.closed.tally());
        books.open.iter().for_each(|counts| all.add(&counts.0.tally()));
        all.tally()
    }

    /// The numbers of the pages that a span touches.
    fn pages(&self, span: &Span) -> std::ops::Range<u64> {
        span.offset / self.page_bytes..span.end().div_ceil(self.page_bytes)
    }
}

/// Slots of a shard that gets `mean` pages if all of a tier's are cached: five standard deviations more, so that
/// practically none is short of one. A slot's number has 32 bits.
fn most_slots(mean: u64) -> u64 {
    let spread = 5.0 * (mean as f64).sqrt();
    (mean + spread as u64 + FEWEST_SLOTS as u64).min(1 << 31)
}

/// A tier behind a cache of its pages. Clones share the cache, so one can be searched while another is asked for
/// its counters. The bytes below must not change while they are cached; see [`CacheTier::forget`].
#[derive(Clone)]
pub struct CacheTier {
    tier: Arc<dyn Tier>,
    shared: Arc<Shared>,
    profile: TierProfile,
    entry: Entry,
}

impl CacheTier {
    /// Puts a cache over `tier`. Refused for addressable tiers, which it could only slow down, for pages that are no
    /// power of two from the tier's alignment to 4096, and for a budget of less than a few pages.
    pub fn new(tier: Arc<dyn Tier>, options: CacheOptions) -> Result<CacheTier, TierError> {
        let below = tier.profile();
        if below.addressable {
            return Err(TierError::Parameter("a tier that is read in place needs no cache".into()));
        }
        let page = options.page_bytes;
        if !page.is_power_of_two() || page < below.alignment || page > LARGEST_PAGE {
            let least = below.alignment.max(1);
            let what =
                format!("{page} bytes are no page: it takes a power of two from {least} to {LARGEST_PAGE}");
            return Err(TierError::Parameter(what));
        }
        let shared = Arc::new(Shared::new(options, tier.len())?);
        let profile = TierProfile {
            method: format!("{}, behind a cache of {} bytes", below.method, options.budget_bytes),
            granularity: below.granularity.max(page),
            alignment: page,
            ..below.clone()
        };
        Ok(CacheTier { tier, shared, profile, entry: Entry::Read })
    }

    /// What the cache has done so far, over all its queues.
    pub fn counters(&self) -> CacheCounters {
        let shared = &self.shared;
        let resident = |s: &Locked| s.0.read().unwrap_or_else(PoisonError::into_inner).resident() as u64;
        let Tally { hits, misses, hit_bytes, miss_bytes, evictions } = shared.tally();
        CacheCounters {
            hits,
            misses,
            hit_bytes,
            miss_bytes,
            evictions,
            resident_pages: shared.shards.iter().map(resident).sum(),
            capacity_pages: shared.capacity_pages,
            allocated_bytes: shared.allocated_bytes,
        }
    }

    /// Drops every page that a span touches, pinned or not: for bytes that turned out to be damaged, so that the next
    /// read asks the tier again, or that are about to change.
    pub fn forget(&self, span: Span) {
        let end = self.shared.pages(&Span::at(self.tier.len(), 0)).end;
        let pages = self.shared.pages(&span);
        for page in pages.start..pages.end.min(end) {
            self.shared.write(page).forget(page);
        }
    }
}

impl Tier for CacheTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.tier.len()
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        let queue = self.tier.open(depth)?;
        Ok(Box::new(CacheQueue::new(queue, self.shared.clone(), self.entry, self.tier.len(), depth)))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }
}
