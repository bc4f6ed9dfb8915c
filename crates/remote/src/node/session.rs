//! Sessions of clients that have sent the token. A session lasts as long as its control connection.

use super::rdma::RdmaAccess;
use super::region_memory::{AtomicsClaim, AtomicsExecutor, NodeRegion};
use super::regions::{Generation, RefusedRequest, RegionMap};
use crate::control::Refusal;
use crate::verbs::Endpoint;
use crate::wire::TICKET_BYTES;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Secret with which the data connections of a session begin.
pub(super) type SessionTicket = [u8; TICKET_BYTES];

/// A client's session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) ticket: SessionTicket,
    /// Number of the session, by which other clients identify it.
    pub(super) number: u64,
    /// True if the session may change anything.
    pub(super) write: bool,
    /// Regions that the session may access.
    held: Mutex<RegionMap>,
    /// Regions and connections for RDMA. Created with the first connection.
    rdma: Mutex<Option<RdmaAccess>>,
    queue_pairs: AtomicU64,
    /// Claims on regions whose memory the client maps and may change.
    shared_claims: Mutex<HashMap<u64, AtomicsClaim>>,
    /// Incremented by each change of `held`.
    changes: AtomicU64,
    closed: AtomicBool,
}

impl Session {
    pub(super) fn new(ticket: SessionTicket, number: u64, write: bool) -> Session {
        Session {
            ticket,
            number,
            write,
            held: Mutex::default(),
            rdma: Mutex::default(),
            queue_pairs: AtomicU64::new(0),
            shared_claims: Mutex::default(),
            changes: AtomicU64::new(1),
            closed: AtomicBool::new(false),
        }
    }

    fn held(&self) -> MutexGuard<'_, RegionMap> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rdma(&self) -> MutexGuard<'_, Option<RdmaAccess>> {
        self.rdma.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared_claims(&self) -> MutexGuard<'_, HashMap<u64, AtomicsClaim>> {
        self.shared_claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the session access to a region.
    pub(super) fn hold(&self, region: &Arc<NodeRegion>) {
        self.held().insert(region.key, region.clone());
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(super) fn hold_all(&self, generation: &Generation) {
        generation.objects.values().for_each(|(region, _)| self.hold(region));
    }

    /// Removes a region from the session.
    pub(super) fn release(&self, key: u64) {
        if let Some(rdma) = self.rdma().as_mut() {
            rdma.unregister(key);
        }
        self.shared_claims().remove(&key);
        let released = self.held().remove(&key);
        // Dropped outside the lock: freeing gigabytes takes a while.
        drop(released);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Connects a new queue pair to the client, whose control connection ends at `local` on this machine.
    /// Destroys the queue pairs in `ended`.
    pub(super) fn pair(
        &self,
        local: Option<IpAddr>,
        peer: &Endpoint,
        ended: &[u32],
    ) -> Result<Endpoint, RefusedRequest> {
        let mut rdma = self.rdma();
        let rdma = match rdma.as_mut() {
            Some(rdma) => rdma,
            None => rdma.insert(RdmaAccess::new(local, peer, self.write)?),
        };
        ended.iter().for_each(|pair| rdma.end(*pair));
        let paired = rdma.pair(peer);
        self.queue_pairs.store(rdma.pairs() as u64, Ordering::Relaxed);
        paired
    }

    /// Returns a region that the client maps as a process of this machine. Claims its atomic operations for
    /// processors if the session may write.
    pub(super) fn share(&self, key: u64) -> Result<Arc<NodeRegion>, RefusedRequest> {
        let region = self.get(key).ok_or_else(no_region)?;
        let mut claims = self.shared_claims();
        if self.write && !claims.contains_key(&key) {
            let claim = region.claim(AtomicsExecutor::Processor).ok_or_else(|| {
                let what = "peers may change the index by RDMA, and atomic operations of their devices are \
                            not atomic for processors";
                (Refusal::Bad, what.to_owned())
            })?;
            claims.insert(key, claim);
        }
        Ok(region)
    }

    /// Returns the number of RDMA connections.
    pub(super) fn queue_pairs(&self) -> u64 {
        self.queue_pairs.load(Ordering::Relaxed)
    }

    /// Registers a region for RDMA. Returns its address and remote key.
    pub(super) fn expose(&self, key: u64) -> Result<(u64, u32), RefusedRequest> {
        let region = self.get(key).ok_or_else(no_region)?;
        // The client uses one transport: one that asks for RDMA did not manage to map the memory.
        self.shared_claims().remove(&key);
        let mut rdma = self.rdma();
        let rdma = rdma.as_mut();
        rdma.ok_or_else(|| (Refusal::Bad, "there is no RDMA connection".to_owned()))?.expose(&region)
    }

    pub(super) fn get(&self, key: u64) -> Option<Arc<NodeRegion>> {
        self.held().get(&key).cloned()
    }

    /// Returns a number that changes whenever the result of [`Session::regions`] does.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns all regions that the session may access.
    pub(super) fn regions(&self) -> RegionMap {
        self.held().clone()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let rdma = self.rdma().take();
        // Dropped outside the lock: the device may take a while.
        drop(rdma);
        self.shared_claims().clear();
        self.held().clear();
        self.changes.fetch_add(1, Ordering::Release);
    }
}

fn no_region() -> RefusedRequest {
    (Refusal::Missing, "the session holds no such region".into())
}
