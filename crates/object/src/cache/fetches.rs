//! Fetches of missing blocks that are under way. A reader that misses a block waits for the fetch of another
//! reader instead of sending a second request.

use super::key::BlockKey;
use super::memory::Block;
use crate::client::RequestFault;
use bathyal_store::CacheLevel;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Blocks by number, each with the level it was found at.
pub(crate) type FoundBlocks = HashMap<u64, (Block, CacheLevel)>;
/// The result of a fetch: its blocks, or the fault.
pub(crate) type FetchResult = Result<Arc<FoundBlocks>, RequestFault>;
/// A receiver of the result of a fetch.
pub(crate) type FetchReceiver = watch::Receiver<Option<FetchResult>>;

/// The fetches that are under way.
#[derive(Default)]
pub(crate) struct Fetches {
    by_block: Mutex<HashMap<BlockKey, FetchReceiver>>,
}

/// A fetch of missing blocks by one reader. If it is dropped before it completes, the waiting readers send
/// requests of their own.
pub(crate) struct Fetch {
    fetches: Arc<Fetches>,
    pub(crate) keys: Vec<BlockKey>,
    sender: watch::Sender<Option<FetchResult>>,
}

impl Fetches {
    fn lock(&self) -> MutexGuard<'_, HashMap<BlockKey, FetchReceiver>> {
        self.by_block.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a fetch of those of `keys` that no other fetch covers, if there are any. Returns it, and the
    /// receivers of all fetches to wait for.
    pub(crate) fn join(self: &Arc<Self>, keys: &[BlockKey]) -> (Option<Fetch>, Vec<FetchReceiver>) {
        let mut by_block = self.lock();
        let (mut receivers, mut missing): (Vec<FetchReceiver>, Vec<BlockKey>) = (Vec::new(), Vec::new());
        for key in keys {
            match by_block.get(key) {
                Some(other) if receivers.iter().any(|known| known.same_channel(other)) => {}
                Some(other) => receivers.push(other.clone()),
                None => missing.push(*key),
            }
        }
        if missing.is_empty() {
            return (None, receivers);
        }
        let (sender, receiver) = watch::channel(None);
        by_block.extend(missing.iter().map(|key| (*key, receiver.clone())));
        receivers.push(receiver);
        (Some(Fetch { fetches: self.clone(), keys: missing, sender }), receivers)
    }
}

impl Fetch {
    /// Sends the result to the waiting readers. The blocks must be inserted in memory before.
    pub(crate) fn complete(self, result: FetchResult) {
        self.sender.send_replace(Some(result));
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let mut by_block = self.fetches.lock();
        for key in &self.keys {
            by_block.remove(key);
        }
    }
}
