//! Spare engines: callers that answer lone queries by themselves leave engines, with the memory of a query,
//! to later callers.

use super::client::PoolClient;
use super::job::Scratch;
use bathyal_tier::ParkedEngine;
use bathyal_tier::lanes::{Lanes, Padded, thread_number};
use bathyal_tier::process::open_files_limit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of the lists of engines that were displaced from their lanes.
const SHARED_LISTS: usize = 16;
/// The most engines in a list.
const MOST_LISTED: u64 = 8;
/// The most bytes of the engines in a list, unless it has a single one.
const LIST_BYTES: u64 = 8 << 20;
/// The engines in all lists may have this fraction (1/8) of the files that a process may open.
const FILES_SHARE: u64 = 8;
/// The lanes (or permits) that a caller looks at: its own and a few others, not all of a large machine.
const LANES_TRIED: usize = 4;

/// An engine that no caller uses now, with the memory of a query.
pub(super) struct SpareEngine {
    pub(super) client: Arc<PoolClient>,
    pub(super) engine: ParkedEngine,
    pub(super) scratch: Option<Scratch>,
    /// Bytes reserved from the client's budget for both.
    pub(super) reserved_bytes: u64,
}

impl SpareEngine {
    /// Drops the engine and releases its memory.
    pub(super) fn close(self) {
        let SpareEngine { client, engine, scratch, reserved_bytes } = self;
        drop((engine, scratch));
        client.release(reserved_bytes);
    }
}

/// The spare engines. A thread leaves an engine in its lane, which has space for one and where the thread
/// looks first. An engine displaced from its lane goes to a list, so that a caller that searches several
/// indexes in turn finds it again.
#[derive(Default)]
pub(super) struct SpareEngines {
    lanes: Lanes<Mutex<Option<SpareEngine>>>,
    /// All engines of a client are in one list, the newest at the end.
    lists: [Mutex<Vec<SpareEngine>>; SHARED_LISTS],
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SpareEngines {
    /// Returns the lane of the calling thread and a few others. A locked lane is skipped: its thread is using
    /// it.
    fn near_lanes(&self) -> impl Iterator<Item = MutexGuard<'_, Option<SpareEngine>>> {
        self.lanes.from_here().take(LANES_TRIED).filter_map(|lane| lane.try_lock().ok())
    }

    fn list_of(&self, client: u64) -> MutexGuard<'_, Vec<SpareEngine>> {
        locked(&self.lists[client as usize % SHARED_LISTS])
    }

    /// Takes an engine of the client with this number.
    pub(super) fn take(&self, client: u64) -> Option<SpareEngine> {
        let near = self.near_lanes().find_map(|mut lane| lane.take_if(|spare| spare.client.number == client));
        near.or_else(|| {
            let mut list = self.list_of(client);
            let at = list.iter().rposition(|spare| spare.client.number == client)?;
            Some(list.remove(at))
        })
    }

    /// Adds an engine, and returns the engines that it displaced.
    pub(super) fn put(&self, spare: SpareEngine) -> Vec<SpareEngine> {
        if let Some(mut lane) = self.near_lanes().find(|lane| lane.is_none()) {
            *lane = Some(spare);
            return Vec::new();
        }
        let mut moved = spare;
        if let Some(mut lane) = self.near_lanes().next() {
            match lane.replace(moved) {
                Some(replaced) => moved = replaced,
                // The lane's engine was taken meanwhile.
                None => return Vec::new(),
            }
        }
        self.put_in_list(moved)
    }

    fn put_in_list(&self, spare: SpareEngine) -> Vec<SpareEngine> {
        let files = open_files_limit() / FILES_SHARE / SHARED_LISTS as u64;
        let mut list = self.list_of(spare.client.number);
        list.push(spare);
        let mut bytes: u64 = list.iter().map(|spare| spare.reserved_bytes).sum();
        let (mut displaced, mut left) = (0, list.len());
        while left > 1 && (left as u64 > files.clamp(1, MOST_LISTED) || bytes > LIST_BYTES) {
            bytes -= list[displaced].reserved_bytes;
            (displaced, left) = (displaced + 1, left - 1);
        }
        list.drain(..displaced).collect()
    }

    /// Closes the engines of the clients for which `closes` is true.
    pub(super) fn close_if(&self, closes: impl Fn(&PoolClient) -> bool) {
        for lane in self.lanes.iter() {
            let mut lane = locked(lane);
            let spare = lane.take_if(|spare| closes(&spare.client));
            drop(lane);
            spare.into_iter().for_each(SpareEngine::close);
        }
        for list in &self.lists {
            let closed: Vec<SpareEngine> =
                locked(list).extract_if(.., |spare| closes(&spare.client)).collect();
            closed.into_iter().for_each(SpareEngine::close);
        }
    }
}

/// Permits to answer a lone query from a device on the caller's thread: as many as there are cores.
pub(super) struct DevicePermits(Box<[Padded<AtomicBool>]>);

impl DevicePermits {
    pub(super) fn new(permits: usize) -> DevicePermits {
        DevicePermits((0..permits.max(1)).map(|_| Padded::default()).collect())
    }

    /// Acquires a free permit among those that the calling thread tries, and returns its number.
    pub(super) fn acquire(&self) -> Option<usize> {
        let first = thread_number();
        let try_acquire = |permit: &usize| {
            let taken = &self.0[*permit].0;
            !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Acquire)
        };
        (0..self.0.len().min(LANES_TRIED)).map(|i| first.wrapping_add(i) % self.0.len()).find(try_acquire)
    }

    /// Releases a permit.
    pub(super) fn release(&self, permit: usize) {
        self.0[permit].0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_permits_are_acquired_than_exist() {
        let permits = DevicePermits::new(3);
        let taken: Vec<usize> = (0..3).filter_map(|_| permits.acquire()).collect();
        assert_eq!((taken.len(), permits.acquire()), (3, None));
        permits.release(taken[1]);
        assert_eq!((permits.acquire(), permits.acquire()), (Some(taken[1]), None));
    }
}
