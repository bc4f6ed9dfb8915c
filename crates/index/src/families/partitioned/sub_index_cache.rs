//! The sub-indexes that were read last, within a budget, shared by all threads that search an index (d-HNSW, section 3.3).
//!
//! Each query says first which partitions it wants. One that is not there is read by the first who asks for it, and the others
//! wait; it stays for as long as a query that has said so has not searched it, so that a batch of queries reads each
//! partition once. Then it is idle, and the one that was idle for longest makes room for another. Where nothing is idle
//! partitions stand in a line. Nobody who waits holds anything, so that the line always moves.

use super::growth::group_reader::{ALIGNMENT, LoadedPartition};
use bathyal_tier::TaskWaker;
use bathyal_tier::layer::cache::CacheCounters;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a partition takes here besides what is read of it.
pub(super) const SLOT_BYTES: u64 = 160;

/// What somebody hears who asks for a partition.
pub(super) enum Lookup {
    /// Here it is.
    Ready(Arc<LoadedPartition>),
    /// Here it is as it was: whoever asked has to look whether that is all, and then to [`SubIndexCache::put`] what is or to
    /// [`SubIndexCache::fail`].
    Revalidate(Arc<LoadedPartition>),
    /// Whoever asked has to read it, and then to [`SubIndexCache::put`] it or to [`SubIndexCache::fail`].
    Load,
    /// Somebody else reads it, or there is no room: whoever asked is woken when that changes.
    Wait,
}

/// Where a partition is.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Absent,
    /// Wanted, and without room.
    Queued,
    /// There is room for it: the next who asks reads it.
    Reserved,
    /// Somebody reads it.
    Loading,
    Cached(Arc<LoadedPartition>),
    /// It is here, and somebody looks whether that is all.
    Revalidating,
}

#[derive(Default)]
struct Slot {
    stage: Stage,
    /// Queries that have said that they want it and have not searched it yet.
    users: u32,
    /// When it became idle, if it is.
    idle_since: Option<u64>,
    waiting: Vec<TaskWaker>,
    bytes: u64,
    /// When what is here was asked for.
    since: u64,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    /// Bytes that are here or were promised.
    used: u64,
    /// Those that may make room, by when they became idle.
    idle: BTreeMap<u64, u32>,
    clock: u64,
    queue: VecDeque<u32>,
    counts: CacheCounters,
}

/// See the module's description.
pub(super) struct SubIndexCache {
    state: Mutex<State>,
    budget: u64,
}

impl SubIndexCache {
    /// A shelf of `budget` bytes for partitions of these lengths; the longest that there may be has to fit.
    pub(super) fn new(lengths: impl Iterator<Item = u32>, longest: u32, budget: u64) -> SubIndexCache {
        let slot = |bytes: u32| Slot { bytes: u64::from(bytes) + ALIGNMENT as u64, ..Slot::default() };
        let state = State { slots: lengths.map(slot).collect(), ..State::default() };
        SubIndexCache { state: Mutex::new(state), budget: budget.max(u64::from(longest) + ALIGNMENT as u64) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a query wants `partitions`, each until it says that it does not any more ([`SubIndexCache::searched`]).
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

    /// Notes that a query that wanted a partition does not need it any more.
    pub(super) fn release(&self, partition: u32) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        match slot.stage {
            Stage::Cached(_) => state.mark_idle(partition),
            Stage::Reserved => {
                slot.stage = Stage::Absent;
                state.used -= slot.bytes;
            }
            _ => return,
        }
        state.serve_queue(self.budget);
    }

    /// This moment: what is asked for from now on is younger.
    pub(super) fn now(&self) -> u64 {
        self.state().tick()
    }

    /// Asks for a partition that was wanted before, of `len` bytes if it has to be read; as it was `since` a moment or later, if
    /// that counts.
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
        let room = matches!(state.slots[partition as usize].stage, Stage::Absent)
            && state.make_room(partition, self.budget);
        let slot = &mut state.slots[partition as usize];
        match &slot.stage {
            Stage::Cached(loaded) => {
                let loaded = loaded.clone();
                state.counts.hits += 1;
                state.counts.hit_bytes += slot.bytes;
                if since.is_none_or(|since| slot.since >= since) {
                    return Lookup::Ready(loaded);
                }
                (slot.stage, slot.since) = (Stage::Revalidating, now);
                return Lookup::Revalidate(loaded);
            }
            Stage::Absent if room => {
                state.used += slot.bytes;
                (slot.stage, slot.since) = (Stage::Loading, now);
                return Lookup::Load;
            }
            Stage::Reserved => {
                (slot.stage, slot.since) = (Stage::Loading, now);
                return Lookup::Load;
            }
            Stage::Absent => {
                slot.stage = Stage::Queued;
                state.queue.push_back(partition);
            }
            Stage::Queued | Stage::Loading | Stage::Revalidating => {}
        }
        let waker = waker();
        if !slot.waiting.iter().any(|other| other.is_same(&waker)) {
            slot.waiting.push(waker);
        }
        Lookup::Wait
    }

    /// Brings a partition that was to be read or looked at.
    pub(super) fn put(&self, partition: u32, loaded: Arc<LoadedPartition>) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        let read = matches!(slot.stage, Stage::Loading);
        debug_assert!(
            read || matches!(slot.stage, Stage::Revalidating),
            "a partition that nobody was to read"
        );
        slot.stage = Stage::Cached(loaded);
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

    /// Gives up reading a partition or looking at it: the next who asks reads it.
    pub(super) fn fail(&self, partition: u32) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        slot.stage = Stage::Absent;
        state.used -= slot.bytes;
        slot.waiting.drain(..).for_each(|waker| waker.wake());
        state.serve_queue(self.budget);
    }

    /// What it has done so far: its pages are sub-indexes.
    pub(super) fn counters(&self) -> CacheCounters {
        let state = &*self.state();
        let here = state.slots.iter().filter(|slot| matches!(slot.stage, Stage::Cached(_)));
        let all: u64 = state.slots.iter().map(|slot| slot.bytes).sum();
        let mean = (all / (state.slots.len() as u64).max(1)).max(1);
        CacheCounters {
            resident_pages: here.count() as u64,
            capacity_pages: self.budget / mean,
            allocated_bytes: state.used + SLOT_BYTES * state.slots.len() as u64,
            ..state.counts
        }
    }
}

impl State {
    /// The next moment.
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Notes what a partition takes here once it is read, if nobody has begun to.
    fn update_size(&mut self, partition: u32, bytes: u64) {
        let slot = &mut self.slots[partition as usize];
        match slot.stage {
            Stage::Absent | Stage::Queued => slot.bytes = bytes,
            Stage::Reserved if slot.bytes != bytes => {
                self.used -= slot.bytes;
                (slot.stage, slot.bytes) = (Stage::Absent, bytes);
            }
            _ => {}
        }
    }

    /// Notes that nobody wants a partition that is here.
    fn mark_idle(&mut self, partition: u32) {
        let now = self.tick();
        self.slots[partition as usize].idle_since = Some(now);
        self.idle.insert(now, partition);
    }

    /// Makes room for a partition by letting idle ones go; false where there are not enough of them.
    fn make_room(&mut self, partition: u32, budget: u64) -> bool {
        let bytes = self.slots[partition as usize].bytes;
        while self.used + bytes > budget {
            let Some((_, idle)) = self.idle.pop_first() else { return false };
            let slot = &mut self.slots[idle as usize];
            (slot.stage, slot.idle_since) = (Stage::Absent, None);
            self.used -= slot.bytes;
            self.counts.evictions += 1;
        }
        true
    }

    /// Offers room to those who stand in line, for as long as there is some.
    fn serve_queue(&mut self, budget: u64) {
        while let Some(&partition) = self.queue.front() {
            let slot = &self.slots[partition as usize];
            let waits = matches!(slot.stage, Stage::Queued);
            if waits && slot.users > 0 {
                if !self.make_room(partition, budget) {
                    return;
                }
                let slot = &mut self.slots[partition as usize];
                slot.stage = Stage::Reserved;
                self.used += slot.bytes;
                slot.waiting.drain(..).for_each(|waker| waker.wake());
            } else if waits {
                self.slots[partition as usize].stage = Stage::Absent;
            }
            self.queue.pop_front();
        }
    }
}

/// What a query still wants: whatever is left of it when the query ends is wanted no more.
pub(super) struct QueryRequests<'a> {
    pub(super) cache: &'a SubIndexCache,
    /// Nothing that was asked for before counts.
    pub(super) since: Option<u64>,
    pub(super) pending: Vec<u32>,
    /// Of these, the ones that it reads itself.
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

    /// Begins again with a partition that it was reading.
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
