//! Blocks that are on their way: whoever misses one waits for the read that is under way, and sends no second one.

use super::key::BlockKey;
use super::memory::Block;
use crate::client::Fault;
use bathyal_store::CacheLevel;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Blocks by their numbers, and where they were.
pub(crate) type Found = HashMap<u64, (Block, CacheLevel)>;
/// What came of a flight: its blocks, or why there are none.
pub(crate) type Landed = Result<Arc<Found>, Fault>;
/// Tells those who wait.
pub(crate) type Waiting = watch::Receiver<Option<Landed>>;

/// Blocks on their way.
#[derive(Default)]
pub(crate) struct Flights {
    under_way: Mutex<HashMap<BlockKey, Waiting>>,
}

/// Blocks that one read brings. Dropped without having landed, it lets those who wait ask by themselves.
pub(crate) struct Flight {
    flights: Arc<Flights>,
    pub(crate) keys: Vec<BlockKey>,
    sender: watch::Sender<Option<Landed>>,
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, HashMap<BlockKey, Waiting>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes on those of `keys` that nobody brings, if there are such; and who to wait for, all in all.
    pub(crate) fn join(self: &Arc<Self>, keys: &[BlockKey]) -> (Option<Flight>, Vec<Waiting>) {
        let mut under_way = self.lock();
        let (mut waiting, mut ours): (Vec<Waiting>, Vec<BlockKey>) = (Vec::new(), Vec::new());
        for key in keys {
            match under_way.get(key) {
                Some(other) if waiting.iter().any(|known| known.same_channel(other)) => {}
                Some(other) => waiting.push(other.clone()),
                None => ours.push(*key),
            }
        }
        if ours.is_empty() {
            return (None, waiting);
        }
        let (sender, receiver) = watch::channel(None);
        under_way.extend(ours.iter().map(|key| (*key, receiver.clone())));
        waiting.push(receiver);
        (Some(Flight { flights: self.clone(), keys: ours, sender }), waiting)
    }
}

impl Flight {
    /// Tells those who wait. What landed is in memory before.
    pub(crate) fn land(self, landed: Landed) {
        self.sender.send_replace(Some(landed));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut under_way = self.flights.lock();
        for key in &self.keys {
            under_way.remove(key);
        }
    }
}
