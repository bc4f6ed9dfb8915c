//! The sub-indexes that were read last, within a budget, shared by all threads that search an index (d-HNSW, section 3.3).
//!
//! Each query says first which partitions it wants. One that is not there is read by the first who asks for it, and the others
//! wait; it stays for as long as a query that has said so has not searched it, so that a batch of queries reads each
//! partition once. Then it is idle, and the one that was idle for longest makes room for another. Where nothing is idle
//! partitions stand in a line. Nobody who waits holds anything, so that the line always moves.

use bathyal_tier::TaskWaker;
use bathyal_tier::layer::cache::CacheCounters;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a partition takes here besides its sub-index.
pub(super) const SLOT_BYTES: u64 = 96;
/// Where the bytes of a sub-index begin: at a cache line, as their vectors then do.
const ALIGNMENT: usize = 64;

/// The bytes of a sub-index.
#[derive(Debug)]
pub(super) struct Held {
    bytes: Vec<u8>,
    lead: usize,
}

impl Held {
    /// A copy of `bytes`.
    pub(super) fn copy(from: &[u8]) -> Held {
        let mut bytes: Vec<u8> = Vec::with_capacity(from.len() + ALIGNMENT);
        let lead = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        bytes.resize(lead, 0);
        bytes.extend_from_slice(from);
        Held { bytes, lead }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.lead..]
    }
}

/// What somebody hears who asks for a partition.
pub(super) enum Asked {
    /// Here it is.
    Here(Arc<Held>),
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
    /// A shelf of `budget` bytes for sub-indexes of these lengths; the longest has to fit.
    pub(super) fn new(lengths: impl Iterator<Item = u32>, budget: u64) -> Shelf {
        let slot = |bytes: u32| Slot { bytes: u64::from(bytes) + ALIGNMENT as u64, ..Slot::default() };
        let state = State { slots: lengths.map(slot).collect(), ..State::default() };
        let longest = state.slots.iter().map(|slot| slot.bytes).max().unwrap_or(0);
        Shelf { state: Mutex::new(state), budget: budget.max(longest) }
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

    /// Asks for a partition that was wanted before.
    pub(super) fn ask(&self, partition: u32, waker: impl FnOnce() -> TaskWaker) -> Asked {
        let state = &mut *self.state();
        let room = matches!(state.slots[partition as usize].stage, Stage::Away)
            && state.room(partition, self.budget);
        let slot = &mut state.slots[partition as usize];
        match &slot.stage {
            Stage::Here(held) => {
                state.counts.hits += 1;
                state.counts.hit_bytes += slot.bytes;
                return Asked::Here(held.clone());
            }
            Stage::Away if room => {
                state.used += slot.bytes;
                slot.stage = Stage::Loading;
                return Asked::Load;
            }
            Stage::Offered => {
                slot.stage = Stage::Loading;
                return Asked::Load;
            }
            Stage::Away => {
                slot.stage = Stage::InLine;
                state.line.push_back(partition);
            }
            Stage::InLine | Stage::Loading => {}
        }
        let waker = waker();
        if !slot.waiting.iter().any(|other| other.is_same(&waker)) {
            slot.waiting.push(waker);
        }
        Asked::Wait
    }

    /// Brings a partition that was to be read.
    pub(super) fn put(&self, partition: u32, held: Arc<Held>) {
        let state = &mut *self.state();
        let slot = &mut state.slots[partition as usize];
        debug_assert!(matches!(slot.stage, Stage::Loading), "a partition that nobody was to read");
        slot.stage = Stage::Here(held);
        state.counts.misses += 1;
        state.counts.miss_bytes += slot.bytes;
        slot.waiting.drain(..).for_each(|waker| waker.wake());
        if slot.wanted == 0 {
            state.rest(partition);
            state.serve(self.budget);
        }
    }

    /// Gives up reading a partition: the next who asks tries it.
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
    /// Notes that nobody wants a partition that is here.
    fn rest(&mut self, partition: u32) {
        self.clock += 1;
        self.slots[partition as usize].idle_since = Some(self.clock);
        self.idle.insert(self.clock, partition);
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
    pub(super) left: Vec<u32>,
    /// Of these, the ones that it reads itself.
    pub(super) loads: Vec<u32>,
}

impl<'a> Wants<'a> {
    pub(super) fn new(shelf: &'a Shelf, partitions: impl Iterator<Item = u32>) -> Wants<'a> {
        let left: Vec<u32> = partitions.collect();
        shelf.want(left.iter().copied());
        Wants { shelf, left, loads: Vec::new() }
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
