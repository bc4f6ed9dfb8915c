//! RDMA connection of this process to a node: the local device, and queue pairs to the node's device.

use super::session::{RequestError, Session};
use super::source::RegionSource;
use crate::control::ExposedMemory;
use crate::identity::random;
use crate::verbs::{
    Access, AckTimeout, Device, DeviceQuery, Domain, FinishedRequest, QueuePair, Registration, Work,
    WorkRequest,
};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of memory that this user must be allowed to lock: those in flight when a queue transfers whole
/// objects.
const MIN_LOCKED_BYTES: usize = 2 << 20;
/// Depth of the connection that tests whether the devices reach each other.
const FIRST_DEPTH: u32 = 8;
/// Time limit of the first read. Devices that reach each other respond within microseconds, and emulated ones
/// within milliseconds.
const FIRST_TIME: Duration = Duration::from_secs(3);
/// Interval between polls for the first read.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// Maximum number of idle connections that are kept for reuse: reads of whole objects open one queue after
/// another.
const MAX_IDLE: usize = 4;

/// The RDMA connection to a node.
#[derive(Debug)]
pub(super) struct Fabric {
    domain: Arc<Domain>,
    max_inline: u32,
    /// Connections with no operation in flight.
    idle: Mutex<Vec<Link>>,
}

/// A queue pair of a session.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) session: Arc<Session>,
    pub(super) pair: QueuePair,
    /// Number of the node's queue pair.
    node_pair: u32,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.session.end_pair(self.node_pair);
    }
}

impl Fabric {
    /// Connects to the node of `source`, and reads the first bytes of a region to verify the connection.
    ///
    /// # Errors
    /// A message that says what is missing, on this machine or on the node's.
    pub(super) fn new(source: &RegionSource, region: u64, len: u64) -> Result<Fabric, String> {
        let session = source.session();
        let query = DeviceQuery { local_ip: session.local_ip(), peer: None };
        let local_error = |why: String| format!("RDMA on this machine: {why}");
        let device = Device::open(query).map_err(local_error)?;
        let name = device.describe();
        let domain = Arc::new(Domain::new(device).map_err(|e| local_error(e.to_string()))?);
        let mut fabric = Fabric { domain, max_inline: 0, idle: Mutex::default() };
        let mut bytes = vec![0; MIN_LOCKED_BYTES];
        // SAFETY: the bytes outlive the registration, and nothing else accesses them.
        let buffer =
            unsafe { Registration::new(&fabric.domain, bytes.as_mut_ptr(), bytes.len(), Access::LocalWrite) };
        let buffer = buffer.map_err(|e| local_error(e.to_string()))?;
        let link = fabric.link(&session, FIRST_DEPTH).map_err(|e| e.to_string())?;
        fabric.max_inline = link.pair.max_inline();
        let memory = session.expose(region, len).map_err(|failed| io::Error::from(failed).to_string())?;
        let link = probe(link, &buffer, memory, len.min(8) as u32).map_err(|why| {
            format!("the node's RDMA device is not reached from {name} of this machine: {why}")
        })?;
        fabric.keep(link);
        Ok(fabric)
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the maximum length of inline data, in bytes.
    pub(super) fn max_inline(&self) -> u32 {
        self.max_inline
    }

    /// Returns a connection that takes `depth` work requests: an idle one, or a new one.
    pub(super) fn link(&self, session: &Arc<Session>, depth: u32) -> io::Result<Link> {
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|link| Arc::ptr_eq(&link.session, session));
            let found = idle.iter().position(|link| link.pair.depth() >= depth);
            if let Some(found) = found {
                return Ok(idle.swap_remove(found));
            }
        }
        let pair = QueuePair::new(&self.domain, depth, None, u32::from_le_bytes(random()?))?;
        let peer = session.pair(pair.endpoint())?;
        let link = Link { session: session.clone(), pair, node_pair: peer.queue_pair };
        link.pair.connect(&peer, Some(AckTimeout::within(session.timeout())))?;
        Ok(link)
    }

    /// Keeps a connection with no operation in flight for reuse.
    pub(super) fn keep(&self, link: Link) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(link);
        }
    }
}

/// Reads the first bytes of a region into the registered memory `buffer`. Drops the connection if the read
/// fails.
fn probe(mut link: Link, buffer: &Registration, memory: ExposedMemory, len: u32) -> io::Result<Link> {
    let read = WorkRequest {
        id: 0,
        work: Work::Read,
        fenced: false,
        local: buffer.start(),
        local_key: buffer.local_key(),
        len,
        remote: memory.address,
        remote_key: memory.key,
    };
    let end = Instant::now() + FIRST_TIME.min(link.session.timeout());
    // SAFETY: the registered bytes outlive the read: it has ended, or its connection is dropped, before this
    // function returns.
    unsafe { link.pair.post([read].into_iter())? };
    let mut finished: Vec<FinishedRequest> = Vec::new();
    while finished.is_empty() {
        link.pair.poll(&mut finished)?;
        if finished.is_empty() && Instant::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a read is not completed"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let refused = |fault: bathyal_tier::ReadFault| io::Error::other(fault.kind.words());
    finished.iter().try_for_each(|one| one.result.map_err(refused))?;
    Ok(link)
}

impl From<RequestError> for io::Error {
    fn from(failed: RequestError) -> io::Error {
        match failed {
            RequestError::Refused(_, reason) => io::Error::other(reason),
            RequestError::Lost(e) => e,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Clients that request invalid accesses from the node's device, as no queue does.

    use super::*;
    use crate::client::options::{RemoteOptions, RemoteUrl};
    use crate::client::session::NodeTarget;
    use crate::client::store::NodeStore;
    use crate::node::{Node, NodeOptions};
    use crate::{Credentials, Identity};
    use bathyal_store::{DraftExt, Replace, Store};
    use bathyal_tier::{FaultKind, ReadFault};
    use std::path::{Path, PathBuf};

    const BYTES: usize = 8192;

    /// A node with one index that has one object of [`BYTES`] bytes.
    struct TestNode {
        node: Node,
        folder: tempfile::TempDir,
    }

    /// A client that has opened the index.
    struct TestClient {
        fabric: Fabric,
        link: Link,
        memory: ExposedMemory,
        bytes: Vec<u8>,
        registration: Registration,
        _source: RegionSource,
    }

    impl TestNode {
        /// Returns `None` if the tests are not required to have a device.
        fn new() -> Option<TestNode> {
            if std::env::var_os("BATHYAL_REQUIRE_RDMA").is_none_or(|value| value != "1") {
                println!(
                    "skipped: wants an RDMA device; BATHYAL_REQUIRE_RDMA=1 runs it, as make check-rdma does"
                );
                return None;
            }
            let options = NodeOptions { listen: ([127, 0, 0, 1], 0).into(), capacity_bytes: 64 << 20 };
            let node = Node::start(&options, Identity::new().unwrap()).unwrap();
            let test_node = TestNode { node, folder: tempfile::tempdir().unwrap() };
            let store = NodeStore::new(&test_node.url(), test_node.options(), "mark").unwrap();
            let draft = store.begin("index", Replace::Never).unwrap();
            draft.put("data", &vec![5; BYTES]).unwrap();
            draft.put("mark", b"{}").unwrap();
            draft.publish(&["data", "mark"], "").unwrap();
            Some(test_node)
        }

        fn url(&self) -> RemoteUrl {
            RemoteUrl::parse(Path::new(&format!("remote://{}/index", self.node.address()))).unwrap()
        }

        fn options(&self) -> RemoteOptions {
            let Credentials { token, peer_key } = self.node.credentials();
            let scratch = self.folder.path().to_str().unwrap();
            let pairs = [("token", token.as_str()), ("peer_key", peer_key.as_str()), ("scratch", scratch)];
            RemoteOptions::new(pairs).unwrap()
        }

        fn open(&self, write: bool) -> TestClient {
            let url = self.url();
            let target = NodeTarget {
                host: url.hosts[0].clone(),
                path: PathBuf::from("index"),
                options: self.options(),
            };
            let (source, objects) = RegionSource::open(target.connect(write).unwrap(), &url).unwrap();
            let data = objects.iter().find(|object| object.name == "data").unwrap();
            let fabric = Fabric::new(&source, data.region, data.bytes).unwrap();
            let link = fabric.link(&source.session(), 8).unwrap();
            let memory = source.session().expose(data.region, data.bytes).unwrap();
            let mut bytes = vec![9; BYTES];
            // SAFETY: the bytes outlive the registration: they are in a later field, or dropped after it.
            let registration = unsafe {
                Registration::new(&fabric.domain, bytes.as_mut_ptr(), BYTES, Access::LocalWrite).unwrap()
            };
            TestClient { fabric, link, memory, bytes, registration, _source: source }
        }
    }

    impl TestClient {
        fn request(&self, id: u64, work: Work, offset: u64, len: u32) -> WorkRequest {
            WorkRequest {
                id,
                work,
                fenced: false,
                local: self.registration.start(),
                local_key: self.registration.local_key(),
                len,
                remote: self.memory.address.wrapping_add(offset),
                remote_key: self.memory.key,
            }
        }

        /// Posts a list. Returns all completions until a request has failed or the last has ended.
        fn complete(&mut self, list: Vec<WorkRequest>) -> Vec<(u64, Option<ReadFault>)> {
            let last = list.last().unwrap().id;
            // SAFETY: the bytes are registered, and outlive the connection or the requests.
            unsafe { self.link.pair.post(list.into_iter()).unwrap() };
            let (mut finished, began): (Vec<FinishedRequest>, _) = (Vec::new(), Instant::now());
            while !finished.iter().any(|one| one.id == last) {
                assert!(began.elapsed() < Duration::from_secs(30), "{finished:?}");
                self.link.pair.poll(&mut finished).unwrap();
            }
            finished.iter().map(|one| (one.id, one.result.err())).collect()
        }

        /// Returns the fault of a request that the device must refuse.
        fn refused_fault(mut self, work: Work, offset: u64, len: u32) -> ReadFault {
            let request = self.request(1, work, offset, len);
            self.complete(vec![request])[0].1.expect("refused")
        }
    }

    #[test]
    fn a_session_that_only_reads_cannot_change_anything() {
        let Some(node) = TestNode::new() else { return };
        let write = Work::Write { inline: false };
        for work in [write, Work::FetchAndAdd { by: 1 }, Work::CompareAndSwap { expected: 5, new: 6 }] {
            let refused = node.open(false).refused_fault(work, 0, 8);
            assert_eq!((refused.kind, refused.errno), (FaultKind::Denied, libc::EACCES), "{work:?}");
        }
        let mut reader = node.open(false);
        let read = reader.request(7, Work::Read, 0, BYTES as u32);
        assert_eq!(reader.complete(vec![read]), [(7, None)]);
        assert!(reader.bytes == vec![5; BYTES]);
        let mut writer = node.open(true);
        let write = writer.request(1, write, 8, 16);
        assert_eq!(writer.complete(vec![write]), [(1, None)]);
    }

    #[test]
    fn accesses_outside_a_region_are_refused() {
        let Some(node) = TestNode::new() else { return };
        let len = BYTES as u64;
        for (offset, bytes) in [(len, 1), (len - 7, 8), (u64::MAX - 7, 8), (1 << 40, 64)] {
            for (work, write) in [(Work::Read, false), (Work::Write { inline: false }, true)] {
                let refused = node.open(write).refused_fault(work, offset, bytes);
                assert_eq!(refused.kind, FaultKind::Denied, "{work:?} of {bytes} at {offset}: {refused:?}");
            }
        }
    }

    #[test]
    fn remote_keys_of_one_session_are_refused_in_another() {
        let Some(node) = TestNode::new() else { return };
        let (one, mut other) = (node.open(true), node.open(true));
        let right = other.memory;
        other.memory = one.memory;
        assert_ne!(right.key, one.memory.key);
        assert_eq!(other.refused_fault(Work::Read, 0, 64).kind, FaultKind::Denied);
        // They are refused, too, after their session has ended.
        let mut late = node.open(false);
        late.memory = one.memory;
        drop(one);
        assert_eq!(late.refused_fault(Work::Read, 0, 64).kind, FaultKind::Denied);
    }

    #[test]
    fn requests_posted_after_a_refused_one_are_not_executed() {
        let Some(node) = TestNode::new() else { return };
        let mut writer = node.open(true);
        let write = Work::Write { inline: false };
        let list = [(1, 0), (2, 64), (3, BYTES as u64), (4, 128), (5, 192)];
        let list = list.map(|(id, offset)| writer.request(id, write, offset, 8)).to_vec();
        let completions = writer.complete(list);
        let (first, refused) = completions[0];
        assert_eq!((first, refused.unwrap().kind), (3, FaultKind::Denied), "{completions:?}");
        assert!(
            completions[1..].iter().all(|(_, fault)| fault.unwrap().kind == FaultKind::LostPeer),
            "{completions:?}"
        );
        let mut reader = node.open(false);
        let read = reader.request(1, Work::Read, 0, 256);
        reader.complete(vec![read]);
        let mut expected = vec![5; 256];
        expected[..8].fill(9);
        expected[64..72].fill(9);
        assert!(reader.bytes[..256] == expected, "{:?}", &reader.bytes[..256]);
        drop(reader.fabric);
    }
}
