//! The cache of the sub-indexes that were read last, within a budget. All threads that search an index share
//! it (d-HNSW, section 3.3).
//!
//! A query first registers the partitions that it will search. The first query that requests an absent
//! partition reads it; the other queries wait. A partition stays in the cache until all queries that
//! registered it have released it, so a batch of queries reads each partition once. It is then idle. If a
//! partition needs space, the cache evicts those that were idle for longest. If nothing is idle, partitions
//! wait in a queue. A waiting query holds no partition, so the queue always advances.

use super::growth::group_reader::{ALIGNMENT, LoadedPartition};
use bathyal_tier::TaskWaker;
use bathyal_tier::layer::cache::CacheCounters;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a slot: the memory of a partition in addition to its loaded bytes.
pub(super) const SLOT_BYTES: u64 = 160;

/// The result of a request for a partition.
pub(super) enum Lookup {
    /// The partition is in memory.
    Ready(Arc<LoadedPartition>),
    /// The partition is in memory, but may have changed since. The caller reads its changes, and then calls
    /// [`SubIndexCache::put`] or [`SubIndexCache::fail`].
    Revalidate(Arc<LoadedPartition>),
    /// The caller reads the partition, and then calls [`SubIndexCache::put`] or [`SubIndexCache::fail`].
    Load,
    /// Another query reads the partition, or there is no space for it. The caller is woken when that changes.
    Wait,
}

/// The state of a partition in the cache.
#[derive(Debug, Default)]
enum PartitionStage {
    #[default]
    Absent,
    /// Requested, and waiting in the queue for space.
    Queued,
    /// Its space is reserved: the next query that requests it reads it.
    Reserved,
    /// A query reads it.
    Loading,
    Cached(Arc<LoadedPartition>),
    /// It is in memory, and a query checks whether it has changed.
    Revalidating,
}

#[derive(Default)]
struct Slot {
    stage: PartitionStage,
    /// Queries that have registered it and not released it.
    users: u32,
    /// The time at which it became idle; `None` while it is not.
    idle_since: Option<u64>,
    waiting: Vec<TaskWaker>,
    bytes: u64,
    /// The time of the request that read or revalidated it.
    since: u64,
}

#[derive(Default)]
struct SubIndexCacheState {
    slots: Vec<Slot>,
    /// Bytes that are loaded or reserved.
    used: u64,
    /// Partitions that can be evicted, by the time at which they became idle.
    idle: BTreeMap<u64, u32>,
    clock: u64,
    queue: VecDeque<u32>,
    counts: CacheCounters,
}

/// The cache; see the module's documentation.
pub(super) struct SubIndexCache {
    state: Mutex<SubIndexCacheState>,
    budget: u64,
}

impl SubIndexCache {
    /// Creates a cache of `budget` bytes for partitions of these lengths. The budget is raised to the longest
    /// possible partition if it is smaller.
    pub(super) fn new(lengths: impl Iterator<Item = u32>, longest: u32, budget: u64) -> SubIndexCache {
        let slot = |bytes: u32| Slot { bytes: u64::from(bytes) + ALIGNMENT as u64, ..Slot::default() };
        let state =
            SubIndexCacheState { slots: lengths.map(slot).collect(), ..SubIndexCacheState::default() };
        SubIndexCache { state: Mutex::new(state), budget: budget.max(u64::from(longest) + ALIGNMENT as u64) }
    }

    fn state(&self) -> MutexGuard<'_, SubIndexCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a query for `partitions`. The query calls [`SubIndexCache::release`] once for each of them.
    pub(super) fn register(&self, partitions: impl Iterator<Item = u32>) {
        let state = &mut *self.state();
        for partition in partitions {
            let slot = &mut state.slots[partition as usize];
            slot.users += 1;
            if let Some(since) = slot.idle_since.take() {
                state.idle.remove(&since);
            }
        }
    }

    /// Releases a partition that a query had registered.
    pub(super) fn release(&self, partition: u32) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        match slot.stage {
            PartitionStage::Cached(_) => state.mark_idle(partition),
            PartitionStage::Reserved => {
                slot.stage = PartitionStage::Absent;
                state.used -= slot.bytes;
            }
            _ => return,
        }
        state.serve_queue(self.budget);
    }

    /// Returns the current time. Requests from now on get later times.
    pub(super) fn now(&self) -> u64 {
        self.state().tick()
    }

    /// Requests a registered partition, which has `len` bytes if it has to be read. If `since` is given, a
    /// partition that was requested before that time has to be revalidated.
    pub(super) fn request(
        &self,
        partition: u32,
        len: u32,
        since: Option<u64>,
        waker: impl FnOnce() -> TaskWaker,
    ) -> Lookup {
        let state = &mut *self.state();
        let now = state.tick();
        state.update_size(partition, u64::from(len) + ALIGNMENT as u64);
        let room = matches!(state.slots[partition as usize].stage, PartitionStage::Absent)
            && state.make_room(partition, self.budget);
        let slot = &mut state.slots[partition as usize];
        match &slot.stage {
            PartitionStage::Cached(loaded) => {
                let loaded = loaded.clone();
                state.counts.hits += 1;
                state.counts.hit_bytes += slot.bytes;
                if since.is_none_or(|since| slot.since >= since) {
                    return Lookup::Ready(loaded);
                }
                (slot.stage, slot.since) = (PartitionStage::Revalidating, now);
                return Lookup::Revalidate(loaded);
            }
            PartitionStage::Absent if room => {
                state.used += slot.bytes;
                (slot.stage, slot.since) = (PartitionStage::Loading, now);
                return Lookup::Load;
            }
            PartitionStage::Reserved => {
                (slot.stage, slot.since) = (PartitionStage::Loading, now);
                return Lookup::Load;
            }
            PartitionStage::Absent => {
                slot.stage = PartitionStage::Queued;
                state.queue.push_back(partition);
            }
            PartitionStage::Queued | PartitionStage::Loading | PartitionStage::Revalidating => {}
        }
        let waker = waker();
        if !slot.waiting.iter().any(|other| other.is_same(&waker)) {
            slot.waiting.push(waker);
        }
        Lookup::Wait
    }

    /// Stores a partition that was read or revalidated.
    pub(super) fn put(&self, partition: u32, loaded: Arc<LoadedPartition>) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        let read = matches!(slot.stage, PartitionStage::Loading);
        debug_assert!(
            read || matches!(slot.stage, PartitionStage::Revalidating),
            "the partition was not being read"
        );
        slot.stage = PartitionStage::Cached(loaded);
        if read {
            state.counts.misses += 1;
            state.counts.miss_bytes += slot.bytes;
        }
        slot.waiting.drain(..).for_each(|waker| waker.wake());
        if slot.users == 0 {
            state.mark_idle(partition);
            state.serve_queue(self.budget);
        }
    }

    /// Abandons a read or revalidation. The next query that requests the partition reads it.
    pub(super) fn fail(&self, partition: u32) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        slot.stage = PartitionStage::Absent;
        state.used -= slot.bytes;
        slot.waiting.drain(..).for_each(|waker| waker.wake());
        state.serve_queue(self.budget);
    }

    /// Returns the cache's counters. Its pages are sub-indexes.
    pub(super) fn counters(&self) -> CacheCounters {
        let state = &*self.state();
        let loaded = state.slots.iter().filter(|slot| matches!(slot.stage, PartitionStage::Cached(_)));
        let all: u64 = state.slots.iter().map(|slot| slot.bytes).sum();
        let mean = (all / (state.slots.len() as u64).max(1)).max(1);
        CacheCounters {
            resident_pages: loaded.count() as u64,
            capacity_pages: self.budget / mean,
            allocated_bytes: state.used + SLOT_BYTES * state.slots.len() as u64,
            ..state.counts
        }
    }
}

impl SubIndexCacheState {
    /// Advances the clock and returns the new time.
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Sets the bytes that a partition will take, unless a read of it has begun.
    fn update_size(&mut self, partition: u32, bytes: u64) {
        let slot = &mut self.slots[partition as usize];
        match slot.stage {
            PartitionStage::Absent | PartitionStage::Queued => slot.bytes = bytes,
            PartitionStage::Reserved if slot.bytes != bytes => {
                self.used -= slot.bytes;
                (slot.stage, slot.bytes) = (PartitionStage::Absent, bytes);
            }
            _ => {}
        }
    }

    /// Marks a loaded partition that no query has registered as idle.
    fn mark_idle(&mut self, partition: u32) {
        let now = self.tick();
        self.slots[partition as usize].idle_since = Some(now);
        self.idle.insert(now, partition);
    }

    /// Evicts idle partitions until `partition` fits. Returns false if there are too few of them.
    fn make_room(&mut self, partition: u32, budget: u64) -> bool {
        let bytes = self.slots[partition as usize].bytes;
        while self.used + bytes > budget {
            let Some((_, idle)) = self.idle.pop_first() else { return false };
            let slot = &mut self.slots[idle as usize];
            (slot.stage, slot.idle_since) = (PartitionStage::Absent, None);
            self.used -= slot.bytes;
            self.counts.evictions += 1;
        }
        true
    }

    /// Reserves space for the partitions in the queue, in order, until one does not fit.
    fn serve_queue(&mut self, budget: u64) {
        while let Some(&partition) = self.queue.front() {
            let slot = &self.slots[partition as usize];
            let queued = matches!(slot.stage, PartitionStage::Queued);
            if queued && slot.users > 0 {
                if !self.make_room(partition, budget) {
                    return;
                }
                let slot = &mut self.slots[partition as usize];
                slot.stage = PartitionStage::Reserved;
                self.used += slot.bytes;
                slot.waiting.drain(..).for_each(|waker| waker.wake());
            } else if queued {
                self.slots[partition as usize].stage = PartitionStage::Absent;
            }
            self.queue.pop_front();
        }
    }
}

/// The partitions that a query has registered and not yet searched. Dropping it releases them.
pub(super) struct QueryRequests<'a> {
    pub(super) cache: &'a SubIndexCache,
    /// If given, partitions that were requested before this time have to be revalidated.
    pub(super) since: Option<u64>,
    pub(super) pending: Vec<u32>,
    /// Partitions that this query is reading. They are no longer in `pending`.
    pub(super) reading: Vec<u32>,
}

impl<'a> QueryRequests<'a> {
    pub(super) fn new(
        cache: &'a SubIndexCache,
        since: Option<u64>,
        partitions: impl Iterator<Item = u32>,
    ) -> QueryRequests<'a> {
        let pending: Vec<u32> = partitions.collect();
        cache.register(pending.iter().copied());
        QueryRequests { cache, since, pending, reading: Vec::new() }
    }

    /// Abandons the read of a partition, and requests it again.
    pub(super) fn retry(&mut self, partition: u32) {
        self.reading.retain(|other| *other != partition);
        self.cache.fail(partition);
        self.pending.push(partition);
    }
}

impl Drop for QueryRequests<'_> {
    fn drop(&mut self) {
        for partition in self.reading.drain(..) {
            self.cache.fail(partition);
            self.cache.release(partition);
        }
        self.pending.drain(..).for_each(|partition| self.cache.release(partition));
    }
}
