//! An open index as the pool sees it: what engines are opened on, and the memory that searches of it may take.

use bathyal_tier::lanes::Padded;
use bathyal_tier::numa::Nodes;
use bathyal_tier::{Alarm, Engine, EngineOptions, Tier, TierError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Told apart by number: a place in memory may be used again.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// See the module's description.
pub(in crate::open) struct Tenant {
    pub(super) number: u64,
    /// The file that searches read.
    file: PathBuf,
    /// One, or one for each node.
    tiers: Box<[Arc<dyn Tier>]>,
    /// The NUMA nodes that its threads are spread over, where there are several.
    nodes: Option<Arc<Nodes>>,
    addressable: bool,
    options: EngineOptions,
    pub(super) engine_bytes: u64,
    /// Where a budget limits searches: what is left of it.
    memory: Option<Padded<Mutex<Ledger>>>,
    /// Whether somebody waits for memory; written under the lock of the ledger, and seldom.
    short: AtomicBool,
}

struct Ledger {
    left: u64,
    /// Those who were refused memory.
    refused: Vec<Arc<Alarm>>,
    /// Those who have an engine.
    hosts: Vec<Arc<Alarm>>,
}

impl Tenant {
    /// `tiers` is one, or one for each of `nodes`; `memory` are the bytes that engines and running queries may take together.
    pub(in crate::open) fn new(
        file: PathBuf,
        tiers: Box<[Arc<dyn Tier>]>,
        nodes: Option<Arc<Nodes>>,
        options: EngineOptions,
        engine_bytes: u64,
        memory: Option<u64>,
    ) -> Tenant {
        let ledger = |left| Padded(Mutex::new(Ledger { left, refused: Vec::new(), hosts: Vec::new() }));
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let addressable = tiers.iter().all(|tier| tier.profile().addressable);
        let (memory, short) = (memory.map(ledger), AtomicBool::new(false));
        Tenant { number, file, tiers, nodes, addressable, options, engine_bytes, memory, short }
    }

    /// The file that searches read.
    pub(super) fn file(&self) -> &Path {
        &self.file
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

    fn ledger(&self) -> Option<MutexGuard<'_, Ledger>> {
        self.memory.as_ref().map(|ledger| ledger.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes `bytes` if they are left.
    pub(in crate::open) fn try_take(&self, bytes: u64) -> bool {
        let Some(mut ledger) = self.ledger() else { return true };
        let enough = ledger.left >= bytes;
        if enough {
            ledger.left -= bytes;
        }
        enough
    }

    /// The same; where they are not left, `me` is rung when some are given back, and those with an engine that stands idle
    /// are asked for it.
    pub(super) fn take(&self, bytes: u64, me: &Arc<Alarm>) -> bool {
        if self.try_take(bytes) {
            return true;
        }
        let Some(mut ledger) = self.ledger() else { return true };
        if !ledger.refused.iter().any(|other| Arc::ptr_eq(other, me)) {
            ledger.refused.push(me.clone());
        }
        self.short.store(true, Ordering::Release);
        ledger.hosts.iter().filter(|host| !Arc::ptr_eq(host, me)).for_each(|host| host.ring());
        false
    }

    /// Gives `bytes` back.
    pub(in crate::open) fn give(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let Some(mut ledger) = self.ledger() else { return };
        ledger.left += bytes;
        self.short.store(false, Ordering::Release);
        ledger.refused.drain(..).for_each(|waiting| waiting.ring());
    }

    /// Whether somebody waits for memory, which an idle engine may hold, or a thread that has it to spare.
    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    /// Whether there is a budget.
    pub(super) fn has_budget(&self) -> bool {
        self.memory.is_some()
    }

    /// Notes that `host` has an engine, or no longer has.
    pub(super) fn hosted(&self, host: &Arc<Alarm>, has: bool) {
        let Some(mut ledger) = self.ledger() else { return };
        ledger.hosts.retain(|other| !Arc::ptr_eq(other, host));
        if has {
            ledger.hosts.push(host.clone());
        }
    }
}
