//! A generation that was opened on a node: the session that holds its memory, and how that is got back when the connection
//! was lost.

use super::fabric::Fabric;
use super::options::RemoteUrl;
use super::session::{Failed, Session};
use crate::control::ObjectEntry;
use bathyal_store::StoreError;
use bathyal_tier::{FaultKind, ReadFault};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Source {
    reached: Mutex<Reached>,
    /// The keys of the objects as they were when it was opened, by which they are asked for here.
    keys: Vec<u64>,
    /// `None` of a draft, which is gone with its connection.
    name: Option<String>,
    /// Whether it ends with its session: others hold what was begun in that for over then.
    pinned: bool,
    /// The way by RDMA, once it was wanted.
    fabric: OnceLock<Result<Arc<Fabric>, String>>,
}

/// What is reached at present.
#[derive(Debug, Clone)]
struct Reached {
    session: Arc<Session>,
    /// The node's number of the generation.
    generation: u64,
    objects: Arc<Vec<ObjectEntry>>,
}

impl Source {
    /// Opens the generation at `url`; with what it consists of.
    pub(crate) fn open(
        session: Arc<Session>,
        url: &RemoteUrl,
    ) -> Result<(Source, Vec<ObjectEntry>), StoreError> {
        let path = std::path::PathBuf::from(url.to_string());
        let (generation, objects) = session.open(&url.name).map_err(|e| e.at("open", &path))?;
        let reached = Reached { session, generation, objects: Arc::new(objects.clone()) };
        let keys = objects.iter().map(|entry| entry.region).collect();
        let (reached, name) = (Mutex::new(reached), Some(url.name.clone()));
        Ok((Source { reached, keys, name, pinned: false, fabric: OnceLock::new() }, objects))
    }

    /// The same generation by a session that may change it, and that it ends with.
    ///
    /// # Errors
    /// [`StoreError::Replaced`] if another one stands under its name now.
    pub(crate) fn for_writing(&self, path: &Path) -> Result<Source, StoreError> {
        let reached = self.reached().clone();
        let replaced = || StoreError::Replaced { path: path.to_path_buf() };
        let name = self.name.clone().ok_or_else(replaced)?;
        let session = reached.session.for_writing()?;
        let (generation, objects) = session.open(&name).map_err(|e| e.at("open", path))?;
        if !session.is_of_same_start(&reached.session) || generation != reached.generation {
            return Err(replaced());
        }
        let reached = Mutex::new(Reached { session, generation, objects: Arc::new(objects) });
        let (keys, name) = (self.keys.clone(), Some(name));
        Ok(Source { reached, keys, name, pinned: true, fabric: OnceLock::new() })
    }

    /// Regions of drafts of a session.
    pub(crate) fn of_drafts(session: Arc<Session>) -> Source {
        let reached = Reached { session, generation: 0, objects: Arc::default() };
        let (reached, keys) = (Mutex::new(reached), Vec::new());
        Source { reached, keys, name: None, pinned: false, fabric: OnceLock::new() }
    }

    fn reached(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        self.reached().session.clone()
    }

    /// The way to the node by RDMA, which is tried out once, with the region that is asked for first.
    ///
    /// # Errors
    /// What is missing, here or there.
    pub(super) fn fabric(&self, region: u64, len: u64) -> Result<Arc<Fabric>, String> {
        self.fabric.get_or_init(|| Fabric::new(self, region, len).map(Arc::new)).clone()
    }

    /// How long its queues wait for the node to hold again what it held.
    pub(crate) fn wait(&self) -> Duration {
        if self.name.is_some() { self.session().wait() } else { Duration::ZERO }
    }

    /// What `connect` makes of a session and the key by which a region is asked for in it that was `opened` when its generation
    /// was opened: another one after another start. Where the node has lost the session another one is begun.
    ///
    /// # Errors
    /// [`FaultKind::Changed`] if what was opened is not there any more; [`FaultKind::LostPeer`].
    pub(crate) fn connect<L>(
        &self,
        opened: u64,
        connect: impl Fn(&Arc<Session>, u64) -> io::Result<L>,
    ) -> Result<L, ReadFault> {
        let reached = self.reached().clone();
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

    /// The key in `reached` of what was `opened` by another one.
    fn key(&self, reached: &Reached, opened: u64) -> u64 {
        let place = self.keys.iter().position(|key| *key == opened);
        let now = place.and_then(|place| reached.objects.get(place)).map(|entry| entry.region);
        now.unwrap_or(opened)
    }

    /// What is reached in the place of what is lost; `lost` is why.
    fn renew(&self, over: &Reached, lost: ReadFault) -> Result<Reached, ReadFault> {
        let Some(name) = &self.name else { return Err(lost) };
        let changed = ReadFault::of(FaultKind::Changed);
        let mut held = self.reached();
        if !Arc::ptr_eq(&held.session, &over.session) {
            // Another queue was faster.
            return Ok(held.clone());
        }
        let session = over.session.again().map_err(|_| lost)?;
        let (generation, objects) = match session.open(name) {
            Ok(opened) => opened,
            Err(Failed::Refused(..)) => return Err(changed),
            Err(Failed::Lost(_)) => return Err(lost),
        };
        let is_same = session.is_of_same_start(&over.session) && generation == over.generation;
        let may_differ = !over.session.wait().is_zero();
        if !(is_same || may_differ && alike(&objects, &over.objects)) {
            return Err(changed);
        }
        *held = Reached { session, generation, objects: Arc::new(objects) };
        Ok(held.clone())
    }
}

/// Whether two generations have the same objects, byte for byte as far as their checksums say.
fn alike(one: &[ObjectEntry], other: &[ObjectEntry]) -> bool {
    let content = |entry: &ObjectEntry| (entry.name.clone(), entry.bytes, entry.crc32c);
    one.iter().map(content).eq(other.iter().map(content))
}
