//! An open index as the pool sees it: what engines are opened on, and the memory that searches of it may take.

use super::memory::SearchMemory;
use bathyal_tier::numa::Nodes;
use bathyal_tier::{Engine, EngineOptions, EngineWaker, Tier, TierError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Told apart by number: a place in memory may be used again.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// See the module's description.
pub(in crate::open) struct Tenant {
    pub(super) number: u64,
    /// One, or one for each node.
    tiers: Box<[Arc<dyn Tier>]>,
    /// The NUMA nodes that its threads are spread over, where there are several.
    nodes: Option<Arc<Nodes>>,
    addressable: bool,
    options: EngineOptions,
    pub(super) engine_bytes: u64,
    /// Where a budget limits searches: what these may take.
    memory: Option<SearchMemory>,
}

impl Tenant {
    /// `tiers` is one, or one for each of `nodes`; `memory` is what engines and running queries may take together.
    pub(in crate::open) fn new(
        tiers: Box<[Arc<dyn Tier>]>,
        nodes: Option<Arc<Nodes>>,
        options: EngineOptions,
        engine_bytes: u64,
        memory: Option<SearchMemory>,
    ) -> Tenant {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let addressable = tiers.iter().all(|tier| tier.profile().addressable);
        Tenant { number, tiers, nodes, addressable, options, engine_bytes, memory }
    }

    /// Whether reads are loads from memory.
    pub(in crate::open) fn is_addressable(&self) -> bool {
        self.addressable
    }

    /// An engine for the calling thread, whose memory has been taken.
    pub(in crate::open) fn open(&self) -> Result<Engine, TierError> {
        let here = self.here().min(self.tiers.len() - 1);
        Engine::new(self.tiers[here].clone(), self.options)
    }

    /// The nodes that its threads are spread over, where there are several.
    pub(super) fn nodes(&self) -> Option<&Arc<Nodes>> {
        self.nodes.as_ref()
    }

    /// The copy for the node on which the calling thread runs now.
    pub(super) fn here(&self) -> usize {
        match &self.nodes {
            Some(nodes) if self.tiers.len() > 1 => nodes.here(),
            _ => 0,
        }
    }

    /// Takes `bytes` if they are left.
    pub(in crate::open) fn try_take(&self, bytes: u64) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.try_take(bytes))
    }

    /// The same; where they are not left, `me` is rung when some are given back, and those with an engine that stands idle
    /// are asked for it.
    pub(super) fn take(&self, bytes: u64, me: &Arc<EngineWaker>) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.take(bytes, me))
    }

    /// Gives `bytes` back.
    pub(in crate::open) fn give(&self, bytes: u64) {
        self.memory.iter().for_each(|memory| memory.give(bytes));
    }

    /// Whether somebody waits for memory, which an idle engine may hold, or a thread that has it to spare.
    pub(super) fn is_short(&self) -> bool {
        self.memory.as_ref().is_some_and(SearchMemory::is_short)
    }

    /// Whether there is a budget.
    pub(super) fn has_budget(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether what one of them gives back is the other's, too.
    pub(super) fn shares_with(&self, other: &Tenant) -> bool {
        let memory = self.memory.as_ref().zip(other.memory.as_ref());
        self.number == other.number || memory.is_some_and(|(own, its)| own.is(its))
    }

    /// Notes that `host` has an engine, or no longer has.
    pub(super) fn hosted(&self, host: &Arc<EngineWaker>, has: bool) {
        self.memory.iter().for_each(|memory| memory.hosted(host, has));
    }
}
