//! A peer that has said the token, for as long as its control connection is there.

use super::memory::{Changer, Claim, Region};
use super::rdma::Reach;
use super::regions::{Generation, Held, Refused};
use crate::control::Refusal;
use crate::verbs::Endpoint;
use crate::wire::TICKET_BYTES;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What data connections of a session are known by.
pub(super) type Ticket = [u8; TICKET_BYTES];

/// See the module's description.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) ticket: Ticket,
    /// What peers know it by.
    pub(super) number: u64,
    /// Whether it may change anything.
    pub(super) write: bool,
    /// Regions that it may ask for.
    held: Mutex<Held>,
    /// What is reached by RDMA, from the first connection on.
    reach: Mutex<Option<Reach>>,
    queue_pairs: AtomicU64,
    /// Regions whose memory the peer may change by itself.
    shared: Mutex<HashMap<u64, Claim>>,
    /// Rises with each change of what is held.
    changes: AtomicU64,
    closed: AtomicBool,
}

impl Session {
    pub(super) fn new(ticket: Ticket, number: u64, write: bool) -> Session {
        Session {
            ticket,
            number,
            write,
            held: Mutex::default(),
            reach: Mutex::default(),
            queue_pairs: AtomicU64::new(0),
            shared: Mutex::default(),
            changes: AtomicU64::new(1),
            closed: AtomicBool::new(false),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self) -> MutexGuard<'_, Option<Reach>> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self) -> MutexGuard<'_, HashMap<u64, Claim>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Some(reach) = self.reach().as_mut() {
            reach.conceal(key);
        }
        self.shared().remove(&key);
        let released = self.held().remove(&key);
        // Outside the lock: to give gigabytes back takes a while.
        drop(released);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Connects the peer, who speaks to this machine at `local`, by RDMA; connections that are `over` end.
    pub(super) fn pair(
        &self,
        local: Option<IpAddr>,
        peer: &Endpoint,
        over: &[u32],
    ) -> Result<Endpoint, Refused> {
        let mut reach = self.reach();
        let reach = match reach.as_mut() {
            Some(reach) => reach,
            None => reach.insert(Reach::new(local, peer, self.write)?),
        };
        over.iter().for_each(|pair| reach.end(*pair));
        let paired = reach.pair(peer);
        self.queue_pairs.store(reach.pairs() as u64, Ordering::Relaxed);
        paired
    }

    /// A region whose memory the peer is to have by itself, as a process of this machine.
    pub(super) fn share(&self, key: u64) -> Result<Arc<Region>, Refused> {
        let region = self.get(key).ok_or_else(no_region)?;
        let mut shared = self.shared();
        if self.write && !shared.contains_key(&key) {
            let claim = region.claim(Changer::Processor).ok_or_else(|| {
                let what = "peers may change the index by RDMA, and what their devices change as one step is none for a processor";
                (Refusal::Bad, what.to_owned())
            })?;
            shared.insert(key, claim);
        }
        Ok(region)
    }

    /// RDMA connections of its peer.
    pub(super) fn queue_pairs(&self) -> u64 {
        self.queue_pairs.load(Ordering::Relaxed)
    }

    /// Lets the peer reach a region by RDMA; by which address and key.
    pub(super) fn expose(&self, key: u64) -> Result<(u64, u32), Refused> {
        let region = self.get(key).ok_or_else(no_region)?;
        // One way or the other: whoever is far away has asked for the memory itself in vain.
        self.shared().remove(&key);
        let mut reach = self.reach();
        let reach = reach.as_mut();
        reach.ok_or_else(|| (Refusal::Bad, "there is no RDMA connection".to_owned()))?.expose(&region)
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
        let reach = self.reach().take();
        // Outside the lock: devices take their time.
        drop(reach);
        self.shared().clear();
        self.held().clear();
        self.changes.fetch_add(1, Ordering::Release);
    }
}

fn no_region() -> Refused {
    (Refusal::Missing, "there is no such region".into())
}
