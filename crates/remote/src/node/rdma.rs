//! RDMA access of a session: queue pairs and registered regions. Each session has its own protection domain,
//! so that its remote keys are of no use on connections of other sessions.

use super::region_memory::{AtomicsClaim, AtomicsExecutor, NodeRegion};
use super::regions::RefusedRequest;
use crate::control::Refusal;
use crate::identity::random;
use crate::verbs::{Access, Device, DeviceQuery, Domain, Endpoint, QueuePair, Registration};
use bathyal_tier::Tier;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum number of connections of a session, which opens one for each search thread of each index.
const MAX_PAIRS: usize = 1024;

/// RDMA access of a session. The fields are dropped in this order: connections, registrations with their
/// memory, the domain.
#[derive(Debug)]
pub(super) struct RdmaAccess {
    pairs: HashMap<u32, QueuePair>,
    registered: HashMap<u64, RegisteredRegion>,
    domain: Arc<Domain>,
    access: Access,
}

#[derive(Debug)]
struct RegisteredRegion {
    registration: Registration,
    /// Keeps processors from executing atomic operations. `None` if the session only reads.
    _claim: Option<AtomicsClaim>,
    /// Keeps the memory mapped while the device can access it.
    _region: Arc<NodeRegion>,
}

impl RdmaAccess {
    /// Opens the device that most likely reaches `peer`, whose control connection ends at `local` on this
    /// machine. `write`: the session may change regions.
    pub(super) fn new(
        local: Option<IpAddr>,
        peer: &Endpoint,
        write: bool,
    ) -> Result<RdmaAccess, RefusedRequest> {
        let refused = |why: String| (Refusal::Bad, format!("RDMA on the node's machine: {why}"));
        let device = Device::open(DeviceQuery { local_ip: local, peer: Some((peer.gid, peer.is_ethernet)) })
            .map_err(refused)?;
        if write && !device.has_atomics() {
            let what = format!("{} has no atomic operations; use transport=tcp", device.describe());
            return Err(refused(what));
        }
        let domain = Arc::new(Domain::new(device).map_err(|e| refused(e.to_string()))?);
        let access = if write { Access::RemoteWrite } else { Access::RemoteRead };
        Ok(RdmaAccess { pairs: HashMap::new(), registered: HashMap::new(), domain, access })
    }

    /// Connects a new queue pair to the client's endpoint `peer`. Returns the node's endpoint.
    pub(super) fn pair(&mut self, peer: &Endpoint) -> Result<Endpoint, RefusedRequest> {
        if self.pairs.len() >= MAX_PAIRS {
            return Err((Refusal::Bad, format!("a session has at most {MAX_PAIRS} RDMA connections")));
        }
        let pair = self.connect(peer).map_err(|e| {
            (Refusal::Bad, format!("the node's RDMA device {}: {e}", self.domain.device().describe()))
        })?;
        let endpoint = pair.endpoint();
        self.pairs.insert(endpoint.queue_pair, pair);
        Ok(endpoint)
    }

    fn connect(&self, peer: &Endpoint) -> io::Result<QueuePair> {
        // The node posts no work requests, but devices create no queue pair without room for one.
        let pair = QueuePair::new(&self.domain, 1, Some(self.access), u32::from_le_bytes(random()?))?;
        pair.connect(peer, None)?;
        Ok(pair)
    }

    /// Destroys a queue pair.
    pub(super) fn end(&mut self, pair: u32) {
        self.pairs.remove(&pair);
    }

    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Registers a region. Returns its address and remote key.
    pub(super) fn expose(&mut self, region: &Arc<NodeRegion>) -> Result<(u64, u32), RefusedRequest> {
        if let Some(registered) = self.registered.get(&region.key) {
            return Ok((registered.registration.start(), registered.registration.remote_key()));
        }
        let Some(memory) = region.tier() else {
            return Err((Refusal::Bad, "the region has no bytes".into()));
        };
        let claim = match self.access {
            Access::RemoteWrite => Some(region.claim(AtomicsExecutor::Device).ok_or_else(|| {
                let what = "processes of the node's machine may change the index, and their atomic \
                            operations are not atomic for an RDMA device: use transport=tcp";
                (Refusal::Bad, what.to_owned())
            })?),
            _ => None,
        };
        let len = usize::try_from(memory.len()).map_err(|e| (Refusal::Bad, e.to_string()))?;
        // SAFETY: the memory is mapped as long as its region exists. The region is held beside the
        // registration and dropped after it. All processors access the memory by atomic operations only.
        let registration = unsafe { Registration::new(&self.domain, memory.address(), len, self.access) };
        let registration = registration.map_err(|e| (Refusal::Capacity, format!("the node's {e}")))?;
        let address_and_key = (registration.start(), registration.remote_key());
        self.registered
            .insert(region.key, RegisteredRegion { registration, _claim: claim, _region: region.clone() });
        Ok(address_and_key)
    }

    /// Ends the registration of a region: the device refuses later accesses to it.
    pub(super) fn unregister(&mut self, key: u64) {
        self.registered.remove(&key);
    }
}
