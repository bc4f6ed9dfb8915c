//! The sub-indexes that were read last, within a budget, shared by all threads that search an index (d-HNSW, section 3.3).
//!
//! Each query says first which partitions it wants. One that is not there is read by the first who asks for it, and the others
//! wait; it stays for as long as a query that has said so has not searched it, so that a batch of queries reads each
//! partition once. Then it is idle, and the one that was idle for longest makes room for another. Where nothing is idle
//! partitions stand in a line. Nobody who waits holds anything, so that the line always moves.

use super::growth::reading::{ALIGNMENT, Held};
use bathyal_tier::TaskWaker;
use bathyal_tier::layer::cache::CacheCounters;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a partition takes here besides what is read of it.
pub(super) const SLOT_BYTES: u64 = 160;

/// What somebody hears who asks for a partition.
pub(super) enum Asked {
    /// Here it is.
    Here(Arc<Held>),
    /// Here it is as it was: whoever asked has to look whether that is all, and then to [`Shelf::put`] what is or to
    /// [`Shelf::fail`].
    Check(Arc<Held>),
    /// Whoever asked has to read it, and then to [`Shelf::put`] it or to [`Shelf::fail`].
    Load,
    /// Somebody else reads it, or there is no room: whoever asked is woken when that changes.
    Wait,
}

/// Where a partition is.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Away,
    /// Wanted, and without room.
    InLine,
    /// There is room for it: the next who asks reads it.
    Offered,
    /// Somebody reads it.
    Loading,
    Here(Arc<Held>),
    /// It is here, and somebody looks whether that is all.
    Checking,
}

#[derive(Default)]
struct Slot {
    stage: Stage,
    /// Queries that have said that they want it and have not searched it yet.
    wanted: u32,
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
    line: VecDeque<u32>,
    counts: CacheCounters,
}

/// See the module's description.
pub(super) struct Shelf {
    state: Mutex<State>,
    budget: u64,
}

impl Shelf {
    /// A shelf of `budget` bytes for partitions of these lengths; the longest that there may be has to fit.
    pub(super) fn new(lengths: impl Iterator<Item = u32>, longest: u32, budget: u64) -> Shelf {
        let slot = |bytes: u32| Slot { bytes: u64::from(bytes) + ALIGNMENT as u64, ..Slot::default() };
        let state = State { slots: lengths.map(slot).collect(), ..State::default() };
        Shelf { state: Mutex::new(state), budget: budget.max(u64::from(longest) + ALIGNMENT as u64) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a query wants `partitions`, each until it says that it does not any more ([`Shelf::searched`]).
    pub(super) fn want(&self, partitions: impl Iterator<Item = u32>) {
        let state = &mut *self.state();
        for partition in partitions {
            let slot = &mut state.slots[partition as usize];
            slot.wanted += 1;
            if let Some(since) = slot.idle_since.take() {
                state.idle.remove(&since);
            }
        }
    }

    /// Notes that a query that wanted a partition does not need it any more.
    pub(super) fn searched(&self, partition: u32) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        slot.wanted -= 1;
        if slot.wanted > 0 {
            return;
        }
        match slot.stage {
            Stage::Here(_) => state.rest(partition),
            Stage::Offered => {
                slot.stage = Stage::Away;
                state.used -= slot.bytes;
            }
            _ => return,
        }
        state.serve(self.budget);
    }

    /// This moment: what is asked for from now on is younger.
    pub(super) fn now(&self) -> u64 {
        self.state().tick()
    }

    /// Asks for a partition that was wanted before, of `len` bytes if it has to be read; as it was `since` a moment or later, if
    /// that counts.
    pub(super) fn ask(
        &self,
        partition: u32,
        len: u32,
        since: Option<u64>,
        waker: impl FnOnce() -> TaskWaker,
    ) -> Asked {
        let state = &mut *self.state();
        let now = state.tick();
        state.measure(partition, u64::from(len) + ALIGNMENT as u64);
        let room = matches!(state.slots[partition as usize].stage, Stage::Away)
            && state.room(partition, self.budget);
        let slot = &mut state.slots[partition as usize];
        match &slot.stage {
            Stage::Here(held) => {
                let held = held.clone();
                state.counts.hits += 1;
                state.counts.hit_bytes += slot.bytes;
                if since.is_none_or(|since| slot.since >= since) {
                    return Asked::Here(held);
                }
                (slot.stage, slot.since) = (Stage::Checking, now);
                return Asked::Check(held);
            }
            Stage::Away if room => {
                state.used += slot.bytes;
                (slot.stage, slot.since) = (Stage::Loading, now);
                return Asked::Load;
            }
            Stage::Offered => {
                (slot.stage, slot.since) = (Stage::Loading, now);
                return Asked::Load;
            }
            Stage::Away => {
                slot.stage = Stage::InLine;
                state.line.push_back(partition);
            }
            Stage::InLine | Stage::Loading | Stage::Checking => {}
        }
        let waker = waker();
        if !slot.waiting.iter().any(|other| other.is_same(&waker)) {
            slot.waiting.push(waker);
        }
        Asked::Wait
    }

    /// Brings a partition that was to be read or looked at.
    pub(super) fn put(&self, partition: u32, held: Arc<Held>) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        let read = matches!(slot.stage, Stage::Loading);
        debug_assert!(read || matches!(slot.stage, Stage::Checking), "a partition that nobody was to read");
        slot.stage = Stage::Here(held);
        if read {
            state.counts.misses += 1;
            state.counts.miss_bytes += slot.bytes;
        }
        slot.waiting.drain(..).for_each(|waker| waker.wake());
        if slot.wanted == 0 {
            state.rest(partition);
            state.serve(self.budget);
        }
    }

    /// Gives up reading a partition or looking at it: the next who asks reads it.
    pub(super) fn fail(&self, partition: u32) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        slot.stage = Stage::Away;
        state.used -= slot.bytes;
        slot.waiting.drain(..).for_each(|waker| waker.wake());
        state.serve(self.budget);
    }

    /// What it has done so far: its pages are sub-indexes.
    pub(super) fn counters(&self) -> CacheCounters {
        let state = &*self.state();
        let here = state.slots.iter().filter(|slot| matches!(slot.stage, Stage::Here(_)));
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
    fn measure(&mut self, partition: u32, bytes: u64) {
        let slot = &mut self.slots[partition as usize];
        match slot.stage {
            Stage::Away | Stage::InLine => slot.bytes = bytes,
            Stage::Offered if slot.bytes != bytes => {
                self.used -= slot.bytes;
                (slot.stage, slot.bytes) = (Stage::Away, bytes);
            }
            _ => {}
        }
    }

    /// Notes that nobody wants a partition that is here.
    fn rest(&mut self, partition: u32) {
        let now = self.tick();
        self.slots[partition as usize].idle_since = Some(now);
        self.idle.insert(now, partition);
    }

    /// Makes room for a partition by letting idle ones go; false where there are not enough of them.
    fn room(&mut self, partition: u32, budget: u64) -> bool {
        let bytes = self.slots[partition as usize].bytes;
        while self.used + bytes > budget {
            let Some((_, idle)) = self.idle.pop_first() else { return false };
            let slot = &mut self.slots[idle as usize];
            (slot.stage, slot.idle_since) = (Stage::Away, None);
            self.used -= slot.bytes;
            self.counts.evictions += 1;
        }
        true
    }

    /// Offers room to those who stand in line, for as long as there is some.
    fn serve(&mut self, budget: u64) {
        while let Some(&partition) = self.line.front() {
            let slot = &self.slots[partition as usize];
            let waits = matches!(slot.stage, Stage::InLine);
            if waits && slot.wanted > 0 {
                if !self.room(partition, budget) {
                    return;
                }
                let slot = &mut self.slots[partition as usize];
                slot.stage = Stage::Offered;
                self.used += slot.bytes;
                slot.waiting.drain(..).for_each(|waker| waker.wake());
            } else if waits {
                self.slots[partition as usize].stage = Stage::Away;
            }
            self.line.pop_front();
        }
    }
}

/// What a query still wants: whatever is left of it when the query ends is wanted no more.
pub(super) struct Wants<'a> {
    pub(super) shelf: &'a Shelf,
    /// Nothing that was asked for before counts.
    pub(super) since: Option<u64>,
    pub(super) left: Vec<u32>,
    /// Of these, the ones that it reads itself.
    pub(super) loads: Vec<u32>,
}

impl<'a> Wants<'a> {
    pub(super) fn new(
        shelf: &'a Shelf,
        since: Option<u64>,
        partitions: impl Iterator<Item = u32>,
    ) -> Wants<'a> {
        let left: Vec<u32> = partitions.collect();
        shelf.want(left.iter().copied());
        Wants { shelf, since, left, loads: Vec::new() }
    }

    /// Begins again with a partition that it was reading.
    pub(super) fn again(&mut self, partition: u32) {
        self.loads.retain(|other| *other != partition);
        self.shelf.fail(partition);
        self.left.push(partition);
    }
}

impl Drop for Wants<'_> {
    fn drop(&mut self) {
        for partition in self.loads.drain(..) {
            self.shelf.fail(partition);
            self.shelf.searched(partition);
        }
        self.left.drain(..).for_each(|partition| self.shelf.searched(partition));
    }
}
