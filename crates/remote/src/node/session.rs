//! A peer that has said the token, for as long as its control connection is there.

use super::memory::Region;
use super::regions::{Generation, Held};
use crate::wire::TICKET_BYTES;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What data connections of a session are known by.
pub(super) type Ticket = [u8; TICKET_BYTES];

/// See the module's description.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) ticket: Ticket,
    /// Whether it may change anything.
    pub(super) write: bool,
    /// Regions that it may ask for.
    held: Mutex<Held>,
    /// Rises with each change of what is held.
    changes: AtomicU64,
    closed: AtomicBool,
}

impl Session {
    pub(super) fn new(ticket: Ticket, write: bool) -> Session {
        Session {
            ticket,
            write,
            held: Mutex::default(),
            changes: AtomicU64::new(1),
            closed: AtomicBool::new(false),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes able to ask for a region.
    pub(super) fn hold(&self, region: &Arc<Region>) {
        self.held().insert(region.key, region.clone());
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(super) fn hold_all(&self, generation: &Generation) {
        generation.objects.values().for_each(|(region, _)| self.hold(region));
    }

    /// Lets go of a region.
    pub(super) fn release(&self, key: u64) {
        let released = self.held().remove(&key);
        // Outside the lock: to give gigabytes back takes a while.
        drop(released);
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(super) fn get(&self, key: u64) -> Option<Arc<Region>> {
        self.held().get(&key).cloned()
    }

    /// What tells whether [`Session::regions`] is still true.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// All regions that it may ask for.
    pub(super) fn regions(&self) -> Held {
        self.held().clone()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.held().clear();
        self.changes.fetch_add(1, Ordering::Release);
    }
}
