//! What the peer of a session reaches by RDMA: regions registered in a protection domain of the session's own, so that what
//! it is given to name them by is worth nothing on a connection of anybody else.

use super::memory::{Changer, Claim, Region};
use super::regions::Refused;
use crate::control::Refusal;
use crate::identity::random;
use crate::verbs::{Access, Device, Domain, Endpoint, QueuePair, Registration, Wanted};
use bathyal_tier::Tier;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Connections of a session at most: one for each search thread of each index that it has open.
const MOST_PAIRS: usize = 1024;

/// See the module's description. Its parts end in this order: connections, registrations, the memory, the domain.
#[derive(Debug)]
pub(super) struct Reach {
    pairs: HashMap<u32, QueuePair>,
    exposed: HashMap<u64, Exposed>,
    domain: Arc<Domain>,
    access: Access,
}

#[derive(Debug)]
struct Exposed {
    registration: Registration,
    /// Of who may change it.
    _claim: Option<Claim>,
    /// Holds the memory for as long as the device reaches it.
    _region: Arc<Region>,
}

impl Reach {
    /// By the device that most likely reaches `peer`, who spoke to this machine at `local`; to `write`, or to read alone.
    pub(super) fn new(local: Option<IpAddr>, peer: &Endpoint, write: bool) -> Result<Reach, Refused> {
        let refused = |why: String| (Refusal::Bad, format!("RDMA on the node's machine: {why}"));
        let device = Device::open(Wanted { known: local, peer: Some((peer.gid, peer.is_ethernet)) })
            .map_err(refused)?;
        if write && !device.has_atomics() {
            let what =
                format!("{} does not change numbers as one step; use transport=tcp", device.describe());
            return Err(refused(what));
        }
        let domain = Arc::new(Domain::new(device).map_err(|e| refused(e.to_string()))?);
        let access = if write { Access::Changed } else { Access::Read };
        Ok(Reach { pairs: HashMap::new(), exposed: HashMap::new(), domain, access })
    }

    /// Connects to an end of the peer's; the end here.
    pub(super) fn pair(&mut self, peer: &Endpoint) -> Result<Endpoint, Refused> {
        if self.pairs.len() >= MOST_PAIRS {
            return Err((Refusal::Bad, format!("a peer has {MOST_PAIRS} RDMA connections at most")));
        }
        let pair = self.connect(peer).map_err(|e| {
            (Refusal::Bad, format!("the node's RDMA device {}: {e}", self.domain.device().describe()))
        })?;
        let endpoint = pair.endpoint();
        self.pairs.insert(endpoint.queue_pair, pair);
        Ok(endpoint)
    }

    fn connect(&self, peer: &Endpoint) -> io::Result<QueuePair> {
        // The node sends nothing by itself: it has room for one, because devices do not make less.
        let pair = QueuePair::new(&self.domain, 1, Some(self.access), u32::from_le_bytes(random()?))?;
        pair.connect(peer, None)?;
        Ok(pair)
    }

    /// Ends a connection.
    pub(super) fn end(&mut self, pair: u32) {
        self.pairs.remove(&pair);
    }

    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Registers a region; its address and key for the peer.
    pub(super) fn expose(&mut self, region: &Arc<Region>) -> Result<(u64, u32), Refused> {
        if let Some(exposed) = self.exposed.get(&region.key) {
            return Ok((exposed.registration.start(), exposed.registration.remote_key()));
        }
        let Some(memory) = region.tier() else {
            return Err((Refusal::Bad, "the region has no bytes".into()));
        };
        let claim = match self.access {
            Access::Changed => Some(region.claim(Changer::Device).ok_or_else(|| {
                let what = "processes of the node's machine may change the index, and what they change as one step is none for an \
                            RDMA device: use transport=tcp";
                (Refusal::Bad, what.to_owned())
            })?),
            _ => None,
        };
        let len = usize::try_from(memory.len()).map_err(|e| (Refusal::Bad, e.to_string()))?;
        // SAFETY: the memory is mapped as long as its region, which is held beside the registration and ends after it. It is
        // touched by atomic accesses alone, whoever else changes it.
        let registration = unsafe { Registration::new(&self.domain, memory.address(), len, self.access) };
        let registration = registration.map_err(|e| (Refusal::Capacity, format!("the node's {e}")))?;
        let told = (registration.start(), registration.remote_key());
        self.exposed.insert(region.key, Exposed { registration, _claim: claim, _region: region.clone() });
        Ok(told)
    }

    /// Lets go of a region: what asks for it from now on is refused by the device.
    pub(super) fn conceal(&mut self, key: u64) {
        self.exposed.remove(&key);
    }
}
