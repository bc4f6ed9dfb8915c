//! Memory that searches may take: of one index, or of several that share it.

use bathyal_tier::EngineWaker;
use bathyal_tier::lanes::Padded;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory for the buffers of search threads and for running queries, in bytes. Indexes that are opened with clones of it
/// ([`OpenOptions::search_memory`](crate::OpenOptions::search_memory)) share it: what a search of one gives back, one of another takes.
#[derive(Clone)]
pub struct SearchMemory(Arc<Shared>);

struct Shared {
    bytes: u64,
    /// Whether somebody waits for memory; written under the lock of the ledger, and seldom.
    short: AtomicBool,
    ledger: Padded<Mutex<Ledger>>,
}

struct Ledger {
    left: u64,
    /// Those who were refused memory.
    refused: Vec<Arc<EngineWaker>>,
    /// Those who have an engine, once for each.
    hosts: Vec<Arc<EngineWaker>>,
}

impl SearchMemory {
    /// So many bytes.
    pub fn new(bytes: u64) -> SearchMemory {
        let ledger = Ledger { left: bytes, refused: Vec::new(), hosts: Vec::new() };
        let ledger = Padded(Mutex::new(ledger));
        SearchMemory(Arc::new(Shared { bytes, short: AtomicBool::new(false), ledger }))
    }

    /// How many bytes it is.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Whether that is the same memory.
    pub(super) fn is(&self, other: &SearchMemory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` if they are left.
    pub(super) fn try_take(&self, bytes: u64) -> bool {
        let mut ledger = self.ledger();
        let enough = ledger.left >= bytes;
        if enough {
            ledger.left -= bytes;
        }
        enough
    }

    /// The same; where they are not left, `me` is rung when some are given back, and those with an engine that stands idle
    /// are asked for it.
    pub(super) fn take(&self, bytes: u64, me: &Arc<EngineWaker>) -> bool {
        if self.try_take(bytes) {
            return true;
        }
        let mut ledger = self.ledger();
        if !ledger.refused.iter().any(|other| Arc::ptr_eq(other, me)) {
            ledger.refused.push(me.clone());
        }
        self.0.short.store(true, Ordering::Release);
        ledger.hosts.iter().filter(|host| !Arc::ptr_eq(host, me)).for_each(|host| host.wake());
        false
    }

    /// Gives `bytes` back.
    pub(super) fn give(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut ledger = self.ledger();
        ledger.left += bytes;
        self.0.short.store(false, Ordering::Release);
        ledger.refused.drain(..).for_each(|waiting| waiting.wake());
    }

    /// Whether somebody waits for memory, which an idle engine may hold, or a thread that has it to spare.
    pub(super) fn is_short(&self) -> bool {
        self.0.short.load(Ordering::Acquire)
    }

    /// Notes that `host` has one engine more, or one fewer.
    pub(super) fn hosted(&self, host: &Arc<EngineWaker>, has: bool) {
        let mut ledger = self.ledger();
        if has {
            return ledger.hosts.push(host.clone());
        }
        if let Some(at) = ledger.hosts.iter().position(|other| Arc::ptr_eq(other, host)) {
            ledger.hosts.swap_remove(at);
        }
    }
}
