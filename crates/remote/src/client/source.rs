//! The source of the regions of an opened generation: the session that holds them, and its renewal after the
//! connection was lost.

use super::fabric::Fabric;
use super::options::RemoteUrl;
use super::session::{RequestError, Session};
use crate::control::ObjectEntry;
use bathyal_store::StoreError;
use bathyal_tier::{FaultKind, ReadFault};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The regions of a generation or a draft, and the session through which they are accessed.
#[derive(Debug)]
pub(crate) struct RegionSource {
    opened: Mutex<OpenedGeneration>,
    /// Keys of the regions when the generation was opened. The tiers identify regions by them.
    keys: Vec<u64>,
    /// Name of the generation. `None` for a draft, which ends with its connection.
    name: Option<String>,
    /// True if the source ends with its session, because other clients then treat its unfinished changes as
    /// abandoned.
    pinned: bool,
    /// The RDMA connection to the node, or why there is none. Set at the first use of RDMA.
    fabric: OnceLock<Result<Arc<Fabric>, String>>,
}

/// The session and generation in use.
#[derive(Debug, Clone)]
struct OpenedGeneration {
    session: Arc<Session>,
    /// Number of the generation on the node.
    generation: u64,
    objects: Arc<Vec<ObjectEntry>>,
}

impl RegionSource {
    /// Opens the generation at `url`. Returns the source and the generation's objects.
    pub(crate) fn open(
        session: Arc<Session>,
        url: &RemoteUrl,
    ) -> Result<(RegionSource, Vec<ObjectEntry>), StoreError> {
        let path = std::path::PathBuf::from(url.to_string());
        let (generation, objects) = session.open(&url.name).map_err(|e| e.at("open", &path))?;
        let reached = OpenedGeneration { session, generation, objects: Arc::new(objects.clone()) };
        let keys = objects.iter().map(|entry| entry.region).collect();
        let (opened, name) = (Mutex::new(reached), Some(url.name.clone()));
        Ok((RegionSource { opened, keys, name, pinned: false, fabric: OnceLock::new() }, objects))
    }

    /// Opens the same generation with a new session that may write, and that the source ends with.
    ///
    /// # Errors
    /// [`StoreError::Replaced`] if another generation has been published under the name.
    pub(crate) fn for_writing(&self, path: &Path) -> Result<RegionSource, StoreError> {
        let reached = self.opened().clone();
        let replaced = || StoreError::Replaced { path: path.to_path_buf() };
        let name = self.name.clone().ok_or_else(replaced)?;
        let session = reached.session.for_writing()?;
        let (generation, objects) = session.open(&name).map_err(|e| e.at("open", path))?;
        if !session.is_of_same_start(&reached.session) || generation != reached.generation {
            return Err(replaced());
        }
        let opened = Mutex::new(OpenedGeneration { session, generation, objects: Arc::new(objects) });
        let (keys, name) = (self.keys.clone(), Some(name));
        Ok(RegionSource { opened, keys, name, pinned: true, fabric: OnceLock::new() })
    }

    /// Creates the source of the regions of a session's draft.
    pub(crate) fn of_draft(session: Arc<Session>) -> RegionSource {
        let reached = OpenedGeneration { session, generation: 0, objects: Arc::default() };
        let (opened, keys) = (Mutex::new(reached), Vec::new());
        RegionSource { opened, keys, name: None, pinned: false, fabric: OnceLock::new() }
    }

    fn opened(&self) -> MutexGuard<'_, OpenedGeneration> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        self.opened().session.clone()
    }

    /// Returns the RDMA connection to the node. The first call connects and reads from `region`, of `len`
    /// bytes.
    ///
    /// # Errors
    /// A message that says what is missing, on this machine or on the node's.
    pub(super) fn fabric(&self, region: u64, len: u64) -> Result<Arc<Fabric>, String> {
        self.fabric.get_or_init(|| Fabric::new(self, region, len).map(Arc::new)).clone()
    }

    /// Returns how long queues wait for the node to hold the same generation again.
    pub(crate) fn wait(&self) -> Duration {
        if self.name.is_some() { self.session().wait() } else { Duration::ZERO }
    }

    /// Calls `connect` with the session and the current key of the region that had the key `opened` when the
    /// generation was opened; a restarted node has other keys. Begins a new session if the node has lost this
    /// one.
    ///
    /// # Errors
    /// [`FaultKind::Forgotten`] if the generation is not there any more; [`FaultKind::LostPeer`] if the node
    /// cannot be reached.
    pub(crate) fn connect<L>(
        &self,
        opened: u64,
        connect: impl Fn(&Arc<Session>, u64) -> io::Result<L>,
    ) -> Result<L, ReadFault> {
        let reached = self.opened().clone();
        let e = match connect(&reached.session, self.key(&reached, opened)) {
            Ok(link) => return Ok(link),
            Err(e) => e,
        };
        let lost = ReadFault { kind: FaultKind::LostPeer, errno: e.raw_os_error().unwrap_or(0) };
        if self.pinned {
            return Err(lost);
        }
        let renewed = self.renew(&reached, lost)?;
        connect(&renewed.session, self.key(&renewed, opened)).map_err(|_| lost)
    }

    /// Returns the current key of the region that had the key `opened`.
    fn key(&self, generation: &OpenedGeneration, opened: u64) -> u64 {
        let position = self.keys.iter().position(|key| *key == opened);
        let current =
            position.and_then(|position| generation.objects.get(position)).map(|entry| entry.region);
        current.unwrap_or(opened)
    }

    /// Begins a new session in place of `old` and opens the generation with it. `lost` is the fault if the
    /// node cannot be reached.
    fn renew(&self, old: &OpenedGeneration, lost: ReadFault) -> Result<OpenedGeneration, ReadFault> {
        let Some(name) = &self.name else { return Err(lost) };
        let forgotten = ReadFault::of(FaultKind::Forgotten);
        let mut current = self.opened();
        if !Arc::ptr_eq(&current.session, &old.session) {
            // Another queue has renewed the session.
            return Ok(current.clone());
        }
        let session = old.session.again().map_err(|_| lost)?;
        let (generation, objects) = match session.open(name) {
            Ok(opened) => opened,
            Err(RequestError::Refused(..)) => return Err(forgotten),
            Err(RequestError::Lost(_)) => return Err(lost),
        };
        let is_same = session.is_of_same_start(&old.session) && generation == old.generation;
        let may_differ = !old.session.wait().is_zero();
        if !(is_same || may_differ && have_same_content(&objects, &old.objects)) {
            return Err(forgotten);
        }
        *current = OpenedGeneration { session, generation, objects: Arc::new(objects) };
        Ok(current.clone())
    }
}

/// Returns true if two generations have the same objects: names, lengths and checksums.
fn have_same_content(one: &[ObjectEntry], other: &[ObjectEntry]) -> bool {
    let content = |entry: &ObjectEntry| (entry.name.clone(), entry.bytes, entry.crc32c);
    one.iter().map(content).eq(other.iter().map(content))
}
