//! The registration of an open index with the pool: the tiers and options of its engines, and the memory of
//! its searches.

use super::search_memory::SearchMemory;
use bathyal_tier::numa::Nodes;
use bathyal_tier::{Engine, EngineOptions, EngineWaker, Tier, TierError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the next client. Clients are compared by number, since an address in memory may be used
/// again.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The registration of one open index with the pool.
pub(in crate::open) struct PoolClient {
    pub(super) number: u64,
    /// One tier, or one for each node.
    tiers: Box<[Arc<dyn Tier>]>,
    /// The NUMA nodes over which its threads are spread, if there are several.
    nodes: Option<Arc<Nodes>>,
    addressable: bool,
    options: EngineOptions,
    pub(super) engine_bytes: u64,
    /// The memory from which searches reserve; `None` without a budget.
    memory: Option<SearchMemory>,
}

impl PoolClient {
    /// Registers an index. `tiers` is one tier, or one for each of `nodes`; engines and running queries
    /// together reserve from `memory`.
    pub(in crate::open) fn new(
        tiers: Box<[Arc<dyn Tier>]>,
        nodes: Option<Arc<Nodes>>,
        options: EngineOptions,
        engine_bytes: u64,
        memory: Option<SearchMemory>,
    ) -> PoolClient {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let addressable = tiers.iter().all(|tier| tier.profile().addressable);
        PoolClient { number, tiers, nodes, addressable, options, engine_bytes, memory }
    }

    /// Returns true if reads are loads from memory.
    pub(in crate::open) fn is_addressable(&self) -> bool {
        self.addressable
    }

    /// Opens an engine for the calling thread. Its memory is reserved already.
    pub(in crate::open) fn open_engine(&self) -> Result<Engine, TierError> {
        let copy = self.copy_of_this_node().min(self.tiers.len() - 1);
        Engine::new(self.tiers[copy].clone(), self.options)
    }

    /// Returns the nodes over which its threads are spread, if there are several.
    pub(super) fn nodes(&self) -> Option<&Arc<Nodes>> {
        self.nodes.as_ref()
    }

    /// Returns the number of the copy for the node on which the calling thread runs now.
    pub(super) fn copy_of_this_node(&self) -> usize {
        match &self.nodes {
            Some(nodes) if self.tiers.len() > 1 => nodes.here(),
            _ => 0,
        }
    }

    /// Reserves `bytes` if they are free.
    pub(in crate::open) fn try_reserve(&self, bytes: u64) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.try_reserve(bytes))
    }

    /// Reserves `bytes` if they are free. Otherwise `waker` is woken at the next release, and the other
    /// workers with an engine are woken now, so that they close it if it is idle.
    pub(super) fn reserve(&self, bytes: u64, waker: &Arc<EngineWaker>) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.reserve(bytes, waker))
    }

    /// Releases `bytes` that were reserved.
    pub(in crate::open) fn release(&self, bytes: u64) {
        self.memory.iter().for_each(|memory| memory.release(bytes));
    }

    /// Returns true if a worker waits for memory, which an idle engine or a worker with spare reserved bytes
    /// may hold.
    pub(super) fn is_short_of_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(SearchMemory::has_waiters)
    }

    /// Returns true if the memory of searches is limited.
    pub(super) fn has_budget(&self) -> bool {
        self.memory.is_some()
    }

    /// Returns true if both are the same client, or reserve from the same memory.
    pub(super) fn shares_memory_with(&self, other: &PoolClient) -> bool {
        let memory = self.memory.as_ref().zip(other.memory.as_ref());
        self.number == other.number || memory.is_some_and(|(own, others)| own.is_same(others))
    }

    /// Records that the worker of `waker` has opened an engine (`open`), or has closed one.
    pub(super) fn record_engine(&self, waker: &Arc<EngineWaker>, open: bool) {
        self.memory.iter().for_each(|memory| memory.record_engine(waker, open));
    }
}
