//! The memory of searches: of one index, or of several that share it.

use bathyal_tier::EngineWaker;
use bathyal_tier::lanes::Padded;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory for the buffers of search threads and for running queries, in bytes. Indexes that are opened with
/// clones of it ([`OpenOptions::search_memory`](crate::OpenOptions::search_memory)) share it: a search of one
/// index can use the memory that a search of another has released.
#[derive(Clone)]
pub struct SearchMemory(Arc<MemoryBudget>);

struct MemoryBudget {
    bytes: u64,
    /// True while a worker waits for memory. It is written under the lock of `account`, and rarely.
    has_waiters: AtomicBool,
    account: Padded<Mutex<MemoryAccount>>,
}

struct MemoryAccount {
    free_bytes: u64,
    /// Wakers of the workers that were refused memory.
    waiters: Vec<Arc<EngineWaker>>,
    /// Wakers of the workers that have engines, once for each engine.
    engine_owners: Vec<Arc<EngineWaker>>,
}

impl SearchMemory {
    /// Creates a budget of `bytes`.
    pub fn new(bytes: u64) -> SearchMemory {
        let account = MemoryAccount { free_bytes: bytes, waiters: Vec::new(), engine_owners: Vec::new() };
        let account = Padded(Mutex::new(account));
        SearchMemory(Arc::new(MemoryBudget { bytes, has_waiters: AtomicBool::new(false), account }))
    }

    /// Returns the size of the budget in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Returns true if `other` is a clone of this budget.
    pub(super) fn is_same(&self, other: &SearchMemory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn account(&self) -> MutexGuard<'_, MemoryAccount> {
        self.0.account.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves `bytes` if they are free.
    pub(super) fn try_reserve(&self, bytes: u64) -> bool {
        let mut account = self.account();
        let enough = account.free_bytes >= bytes;
        if enough {
            account.free_bytes -= bytes;
        }
        enough
    }

    /// Reserves `bytes` if they are free. Otherwise `waker` is woken at the next release, and the other
    /// workers with an engine are woken now, so that they close it if it is idle.
    pub(super) fn reserve(&self, bytes: u64, waker: &Arc<EngineWaker>) -> bool {
        if self.try_reserve(bytes) {
            return true;
        }
        let mut account = self.account();
        if !account.waiters.iter().any(|other| Arc::ptr_eq(other, waker)) {
            account.waiters.push(waker.clone());
        }
        self.0.has_waiters.store(true, Ordering::Release);
        let others = account.engine_owners.iter().filter(|owner| !Arc::ptr_eq(owner, waker));
        others.for_each(|owner| owner.wake());
        false
    }

    /// Releases `bytes` that were reserved, and wakes the workers that wait for memory.
    pub(super) fn release(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut account = self.account();
        account.free_bytes += bytes;
        self.0.has_waiters.store(false, Ordering::Release);
        account.waiters.drain(..).for_each(|waiter| waiter.wake());
    }

    /// Returns true if a worker waits for memory, which an idle engine or a worker with spare reserved bytes
    /// may hold.
    pub(super) fn has_waiters(&self) -> bool {
        self.0.has_waiters.load(Ordering::Acquire)
    }

    /// Records that the worker of `waker` has opened an engine (`open`), or has closed one.
    pub(super) fn record_engine(&self, waker: &Arc<EngineWaker>, open: bool) {
        let mut account = self.account();
        if open {
            return account.engine_owners.push(waker.clone());
        }
        if let Some(at) = account.engine_owners.iter().position(|owner| Arc::ptr_eq(owner, waker)) {
            account.engine_owners.swap_remove(at);
        }
    }
}
