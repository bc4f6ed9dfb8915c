//! The way from this process to a node by RDMA: a device here, connections to the node's, and what they reach there.

use super::session::{Failed, Session};
use super::source::Source;
use crate::control::ExposedMemory;
use crate::identity::random;
use crate::verbs::{
    Access, Device, Domain, Finished, Patience, QueuePair, Registration, Wanted, Work, WorkRequest,
};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Memory that this user has to be allowed to lock: what a queue that moves whole objects has under way.
const LEAST_LOCKED_BYTES: usize = 2 << 20;
/// Operations that the connection has under way which shows that there is one.
const FIRST_DEPTH: u32 = 8;
/// How long the first read may take: devices that reach each other answer within microseconds, emulated ones within
/// milliseconds.
const FIRST_TIME: Duration = Duration::from_secs(3);
/// How often the first read's end is looked for.
const LOOK: Duration = Duration::from_micros(100);
/// Connections that are kept for the next queue: what reads whole objects opens one queue after the other.
const MOST_IDLE: usize = 4;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Fabric {
    domain: Arc<Domain>,
    most_inline: u32,
    /// Connections on which nothing is under way.
    idle: Mutex<Vec<Link>>,
}

/// A connection of a session.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) session: Arc<Session>,
    pub(super) pair: QueuePair,
    /// The number of the node's end.
    theirs: u32,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.session.end_pair(self.theirs);
    }
}

impl Fabric {
    /// The way to the node of `source`, over which the first bytes of a region have come.
    ///
    /// # Errors
    /// What is missing, here or there.
    pub(super) fn new(source: &Source, region: u64, len: u64) -> Result<Fabric, String> {
        let session = source.session();
        let wanted = Wanted { known: session.local_ip(), peer: None };
        let here = |why: String| format!("RDMA on this machine: {why}");
        let device = Device::open(wanted).map_err(here)?;
        let name = device.describe();
        let domain = Arc::new(Domain::new(device).map_err(|e| here(e.to_string()))?);
        let mut fabric = Fabric { domain, most_inline: 0, idle: Mutex::default() };
        let mut bytes = vec![0; LEAST_LOCKED_BYTES];
        // SAFETY: the bytes outlive the registration, and nobody looks at them.
        let room =
            unsafe { Registration::new(&fabric.domain, bytes.as_mut_ptr(), bytes.len(), Access::Filled) };
        let room = room.map_err(|e| here(e.to_string()))?;
        let link = fabric.link(&session, FIRST_DEPTH).map_err(|e| e.to_string())?;
        fabric.most_inline = link.pair.most_inline();
        let memory = session.expose(region, len).map_err(|failed| io::Error::from(failed).to_string())?;
        let link = read_first(link, &room, memory, len.min(8) as u32).map_err(|why| {
            format!("the node's RDMA device is not reached from {name} of this machine: {why}")
        })?;
        fabric.keep(link);
        Ok(fabric)
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Bytes of a write that may travel within its work request.
    pub(super) fn most_inline(&self) -> u32 {
        self.most_inline
    }

    /// A connection that takes `depth` work requests: one that is idle, or a new one.
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
        let link = Link { session: session.clone(), pair, theirs: peer.queue_pair };
        link.pair.connect(&peer, Some(Patience::within(session.timeout())))?;
        Ok(link)
    }

    /// Keeps a connection on which nothing is under way for the next who wants one.
    pub(super) fn keep(&self, link: Link) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            idle.push(link);
        }
    }
}

/// Reads the first bytes of a region into registered ones of here. A connection over which they do not come is gone when this
/// returns.
fn read_first(mut link: Link, room: &Registration, memory: ExposedMemory, len: u32) -> io::Result<Link> {
    let read = WorkRequest {
        id: 0,
        work: Work::Read,
        fenced: false,
        local: room.start(),
        local_key: room.local_key(),
        len,
        remote: memory.address,
        remote_key: memory.key,
    };
    let end = Instant::now() + FIRST_TIME.min(link.session.timeout());
    // SAFETY: registered bytes that outlive the connection, or the read if that is well.
    unsafe { link.pair.post([read].into_iter())? };
    let mut finished: Vec<Finished> = Vec::new();
    while finished.is_empty() {
        link.pair.poll(&mut finished)?;
        if finished.is_empty() && Instant::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a read does not come back"));
        }
        std::thread::sleep(LOOK);
    }
    let refused = |fault: bathyal_tier::ReadFault| io::Error::other(fault.kind.words());
    finished.iter().try_for_each(|one| one.result.map_err(refused))?;
    Ok(link)
}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> io::Error {
        match failed {
            Failed::Refused(_, reason) => io::Error::other(reason),
            Failed::Lost(e) => e,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Peers that ask the node's device for what they may not have, as no queue does.

    use super::*;
    use crate::client::options::{RemoteOptions, RemoteUrl};
    use crate::client::session::Peer;
    use crate::client::store::NodeStore;
    use crate::node::{Node, NodeOptions};
    use crate::{Credentials, Identity};
    use bathyal_store::{DraftExt, Replace, Store};
    use bathyal_tier::{FaultKind, ReadFault};
    use std::path::{Path, PathBuf};

    const BYTES: usize = 8192;

    /// A node with one index, of one object of [`BYTES`] bytes.
    struct Place {
        node: Node,
        folder: tempfile::TempDir,
    }

    /// One who has opened the index.
    struct Reader {
        fabric: Fabric,
        link: Link,
        memory: ExposedMemory,
        bytes: Vec<u8>,
        registration: Registration,
        _source: Source,
    }

    impl Place {
        /// `None` where no device is promised.
        fn new() -> Option<Place> {
            if std::env::var_os("BATHYAL_REQUIRE_RDMA").is_none_or(|value| value != "1") {
                println!(
                    "skipped: wants an RDMA device; BATHYAL_REQUIRE_RDMA=1 runs it, as make check-rdma does"
                );
                return None;
            }
            let options = NodeOptions { listen: ([127, 0, 0, 1], 0).into(), capacity_bytes: 64 << 20 };
            let node = Node::start(&options, Identity::new().unwrap()).unwrap();
            let place = Place { node, folder: tempfile::tempdir().unwrap() };
            let store = NodeStore::new(&place.url(), place.options(), "mark").unwrap();
            let draft = store.begin("index", Replace::Never).unwrap();
            draft.put("data", &vec![5; BYTES]).unwrap();
            draft.put("mark", b"{}").unwrap();
            draft.publish(&["data", "mark"], "").unwrap();
            Some(place)
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

        fn open(&self, write: bool) -> Reader {
            let url = self.url();
            let peer =
                Peer { host: url.hosts[0].clone(), path: PathBuf::from("index"), options: self.options() };
            let (source, objects) = Source::open(peer.begin(write).unwrap(), &url).unwrap();
            let data = objects.iter().find(|object| object.name == "data").unwrap();
            let fabric = Fabric::new(&source, data.region, data.bytes).unwrap();
            let link = fabric.link(&source.session(), 8).unwrap();
            let memory = source.session().expose(data.region, data.bytes).unwrap();
            let mut bytes = vec![9; BYTES];
            // SAFETY: the bytes outlive the registration, in a field behind it or before this returns.
            let registration = unsafe {
                Registration::new(&fabric.domain, bytes.as_mut_ptr(), BYTES, Access::Filled).unwrap()
            };
            Reader { fabric, link, memory, bytes, registration, _source: source }
        }
    }

    impl Reader {
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

        /// Posts a list and waits for what the device says: all that finished until one failed or the last was done.
        fn carry_out(&mut self, list: Vec<WorkRequest>) -> Vec<(u64, Option<ReadFault>)> {
            let last = list.last().unwrap().id;
            // SAFETY: within registered bytes, which outlive the connection or are waited for.
            unsafe { self.link.pair.post(list.into_iter()).unwrap() };
            let (mut finished, began): (Vec<Finished>, _) = (Vec::new(), Instant::now());
            while !finished.iter().any(|one| one.id == last) {
                assert!(began.elapsed() < Duration::from_secs(30), "{finished:?}");
                self.link.pair.poll(&mut finished).unwrap();
            }
            finished.iter().map(|one| (one.id, one.result.err())).collect()
        }

        /// What the device says of one request that it is to refuse.
        fn refusal(mut self, work: Work, offset: u64, len: u32) -> ReadFault {
            let request = self.request(1, work, offset, len);
            self.carry_out(vec![request])[0].1.expect("refused")
        }
    }

    #[test]
    fn who_opened_an_index_to_read_it_changes_nothing() {
        let Some(place) = Place::new() else { return };
        let write = Work::Write { inline: false };
        for work in [write, Work::FetchAndAdd { by: 1 }, Work::CompareAndSwap { expected: 5, new: 6 }] {
            let refused = place.open(false).refusal(work, 0, 8);
            assert_eq!((refused.kind, refused.errno), (FaultKind::Denied, libc::EACCES), "{work:?}");
        }
        let mut reader = place.open(false);
        let read = reader.request(7, Work::Read, 0, BYTES as u32);
        assert_eq!(reader.carry_out(vec![read]), [(7, None)]);
        assert!(reader.bytes == vec![5; BYTES]);
        let mut writer = place.open(true);
        let write = writer.request(1, write, 8, 16);
        assert_eq!(writer.carry_out(vec![write]), [(1, None)]);
    }

    #[test]
    fn nothing_is_reached_outside_a_region() {
        let Some(place) = Place::new() else { return };
        let len = BYTES as u64;
        for (offset, bytes) in [(len, 1), (len - 7, 8), (u64::MAX - 7, 8), (1 << 40, 64)] {
            for (work, write) in [(Work::Read, false), (Work::Write { inline: false }, true)] {
                let refused = place.open(write).refusal(work, offset, bytes);
                assert_eq!(refused.kind, FaultKind::Denied, "{work:?} of {bytes} at {offset}: {refused:?}");
            }
        }
    }

    #[test]
    fn keys_of_one_session_are_worth_nothing_in_another() {
        let Some(place) = Place::new() else { return };
        let (one, mut other) = (place.open(true), place.open(true));
        let right = other.memory;
        other.memory = one.memory;
        assert_ne!(right.key, one.memory.key);
        assert_eq!(other.refusal(Work::Read, 0, 64).kind, FaultKind::Denied);
        // And nothing once the session is over.
        let mut late = place.open(false);
        late.memory = one.memory;
        drop(one);
        assert_eq!(late.refusal(Work::Read, 0, 64).kind, FaultKind::Denied);
    }

    #[test]
    fn what_was_posted_behind_a_refusal_is_not_done() {
        let Some(place) = Place::new() else { return };
        let mut writer = place.open(true);
        let write = Work::Write { inline: false };
        let list = [(1, 0), (2, 64), (3, BYTES as u64), (4, 128), (5, 192)];
        let list = list.map(|(id, offset)| writer.request(id, write, offset, 8)).to_vec();
        let told = writer.carry_out(list);
        let (first, refused) = told[0];
        assert_eq!((first, refused.unwrap().kind), (3, FaultKind::Denied), "{told:?}");
        assert!(told[1..].iter().all(|(_, fault)| fault.unwrap().kind == FaultKind::LostPeer), "{told:?}");
        let mut reader = place.open(false);
        let read = reader.request(1, Work::Read, 0, 256);
        reader.carry_out(vec![read]);
        let mut expected = vec![5; 256];
        expected[..8].fill(9);
        expected[64..72].fill(9);
        assert!(reader.bytes[..256] == expected, "{:?}", &reader.bytes[..256]);
        drop(reader.fabric);
    }
}
