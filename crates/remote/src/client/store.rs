//! The memory of a node as a store of generations.

use super::draft::NodeDraft;
use super::object::NodeObject;
use super::options::{RemoteOptions, RemoteUrl};
use super::session::{Peer, Session};
use super::source::Source;
use crate::control::ObjectEntry;
use bathyal_store::local::LocalStore;
use bathyal_store::{Draft, Generation, Object, Replace, Store, StoreError, check_name, usual_folder};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Generations in the memory of a node.
#[derive(Debug, Clone)]
pub struct NodeStore {
    url: RemoteUrl,
    peer: Peer,
    mark: &'static str,
    /// Where drafts lie until they are pushed.
    scratch: LocalStore,
    /// Whether generations are opened to be changed.
    write: bool,
    /// What is asked about generations; begun when first something is.
    asking: Arc<Mutex<Option<Arc<Session>>>>,
}

impl NodeStore {
    /// The store that the generation at `url` is in, or would be in, of generations that are known by their object `mark`.
    /// Nothing is asked of the node yet.
    ///
    /// # Errors
    /// [`StoreError::Address`] without a folder for drafts.
    pub fn new(url: &RemoteUrl, options: RemoteOptions, mark: &'static str) -> Result<NodeStore, StoreError> {
        let address = url.node_address();
        let folder = match &options.scratch {
            Some(folder) => folder.clone(),
            None => usual_folder("scratch=FOLDER")?.join("uploads"),
        };
        let here = xxhash_rust::xxh3::xxh3_64(address.as_os_str().as_encoded_bytes());
        let scratch = LocalStore::new(folder.join(format!("{here:016x}")), mark);
        let peer = Peer { host: url.host.clone(), path: address, options };
        Ok(NodeStore { url: url.clone(), peer, mark, scratch, write: false, asking: Arc::default() })
    }

    /// The same, whose generations are opened to be changed: their tiers offer [`Tier::writable`](bathyal_tier::Tier::writable).
    #[must_use]
    pub fn for_writing(self) -> NodeStore {
        NodeStore { write: true, ..self }
    }

    /// The folder of this machine in which drafts lie until they are pushed.
    pub fn scratch(&self) -> &Path {
        self.scratch.address()
    }

    /// Where the generation `name` is.
    fn path(&self, name: &str) -> PathBuf {
        self.peer.path.join(name)
    }

    /// The session for questions, which may write.
    fn asking(&self) -> Result<Arc<Session>, StoreError> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = asking.as_ref().filter(|session| !session.is_broken()) {
            return Ok(session.clone());
        }
        let session = self.peer.begin(true)?;
        *asking = Some(session.clone());
        Ok(session)
    }

    fn draft(&self, name: &str, replace: Replace, local: Box<dyn Draft>) -> Box<dyn Draft> {
        Box::new(NodeDraft::new(self.peer.clone(), self.path(name), (name, self.mark), replace, local))
    }
}

impl Store for NodeStore {
    fn address(&self) -> &Path {
        &self.peer.path
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.asking()?.names().map_err(|e| e.at("list", &self.peer.path))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        check_name(name)?;
        let url = RemoteUrl { name: name.to_owned(), ..self.url.clone() };
        let (source, objects) = Source::open(self.peer.begin(self.write)?, &url)?;
        let objects = objects.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        let (path, source) = (self.path(name), Arc::new(source));
        Ok(Arc::new(Published { path, source, objects, write: self.write }))
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        check_name(name)?;
        let checked = self.asking()?.check(name, replace == Replace::Generation);
        checked.map_err(|e| e.at("write", &self.path(name)))
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        self.check(name, replace)?;
        let local = self.scratch.begin(name, Replace::Never)?;
        Ok(self.draft(name, replace, local))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        self.check(name, replace)?;
        let found = self.scratch.abandoned(name, Replace::Never)?.into_iter();
        Ok(found.map(|local| self.draft(name, replace, local)).collect())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        self.asking()?.delete(name).map_err(|e| e.at("delete", &self.path(name)))
    }
}

/// A generation that stands on the node.
#[derive(Debug)]
struct Published {
    path: PathBuf,
    source: Arc<Source>,
    objects: BTreeMap<String, ObjectEntry>,
    write: bool,
}

impl Generation for Published {
    fn address(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.objects.keys().cloned().collect())
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_name(name)?;
        let path = self.path.join(name);
        match self.objects.get(name) {
            Some(entry) => Ok(Arc::new(NodeObject::new(path, self.source.clone(), entry, self.write)?)),
            None => Err(StoreError::Missing { what: "file", path }),
        }
    }
}
