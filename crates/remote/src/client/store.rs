//! The memory of a node as a store of generations.

use super::draft::NodeDraft;
use super::nodes::{NODES_NAME, address_of, table_in};
use super::object::NodeObject;
use super::options::{RemoteOptions, RemoteUrl};
use super::session::{Peer, Session};
use super::source::Source;
use crate::control::ObjectEntry;
use bathyal_store::local::LocalStore;
use bathyal_store::stripe::Table;
use bathyal_store::{
    Draft, Generation, Object, Replace, Store, StoreError, check_name, default_cache_folder,
};
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
    /// [`StoreError::Address`] without a folder for drafts, and for several nodes.
    pub fn new(url: &RemoteUrl, options: RemoteOptions, mark: &'static str) -> Result<NodeStore, StoreError> {
        let folder = scratch_folder(url, &options)?;
        NodeStore::drafting_in(folder, url, options, mark)
    }

    /// The same with drafts that lie in `folder` until they are pushed.
    pub(super) fn drafting_in(
        folder: PathBuf,
        url: &RemoteUrl,
        options: RemoteOptions,
        mark: &'static str,
    ) -> Result<NodeStore, StoreError> {
        let [host] = url.hosts.as_slice() else {
            return Err(StoreError::Address(format!("{url}: names several nodes, where one is meant")));
        };
        let scratch = LocalStore::new(folder, mark);
        let peer = Peer { host: host.clone(), path: url.node_address(), options };
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
    pub(super) fn path(&self, name: &str) -> PathBuf {
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

    fn draft(&self, name: &str, replace: Replace, local: Box<dyn Draft>) -> NodeDraft {
        NodeDraft::new(self.peer.clone(), self.path(name), (name, self.mark), replace, local)
    }

    /// The generation `name`, whatever lies elsewhere of what it names.
    pub(super) fn opened(&self, name: &str) -> Result<Published, StoreError> {
        check_name(name)?;
        let url = RemoteUrl { name: name.to_owned(), ..self.url.clone() };
        let (source, objects) = Source::open(self.peer.begin(self.write)?, &url)?;
        let objects = objects.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        let (path, source) = (self.path(name), Arc::new(source));
        Ok(Published { path, source, objects, write: self.write })
    }

    /// Where the parts lie of what stands under `name`; `None` if it is whole, or if nothing is there.
    pub(super) fn table_of(&self, name: &str) -> Result<Option<Table>, StoreError> {
        match self.opened(name) {
            Ok(found) => found.table(),
            Err(StoreError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a generation may be begun, whatever its parts.
    pub(super) fn check_here(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        check_name(name)?;
        let checked = self.asking()?.check(name, replace == Replace::Generation);
        checked.map_err(|e| e.at("write", &self.path(name)))
    }

    /// Begins a draft, whatever stands under its name.
    pub(super) fn begin_here(&self, name: &str, replace: Replace) -> Result<NodeDraft, StoreError> {
        let local = self.scratch.begin(name, Replace::Never)?;
        Ok(self.draft(name, replace, local))
    }

    /// The drafts of `name` that nobody writes any more, whatever stands under it.
    pub(super) fn abandoned_here(&self, name: &str, replace: Replace) -> Result<Vec<NodeDraft>, StoreError> {
        let found = self.scratch.abandoned(name, Replace::Never)?.into_iter();
        Ok(found.map(|local| self.draft(name, replace, local)).collect())
    }

    /// Removes a generation, and none of its parts.
    pub(super) fn delete_here(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        self.asking()?.delete(name).map_err(|e| e.at("delete", &self.path(name)))
    }

    /// Refuses to replace or delete what has parts on other nodes, which this store does not reach.
    fn check_whole(&self, name: &str) -> Result<(), StoreError> {
        match self.table_of(name)? {
            None => Ok(()),
            Some(table) => Err(StoreError::Irreplaceable { path: self.path(name), reason: over_all(&table) }),
        }
    }
}

/// The folder in which drafts lie until they are pushed to the nodes of `url`.
///
/// # Errors
/// [`StoreError::Address`] without one.
pub(super) fn scratch_folder(url: &RemoteUrl, options: &RemoteOptions) -> Result<PathBuf, StoreError> {
    let folder = match &options.scratch {
        Some(folder) => folder.clone(),
        None => default_cache_folder("scratch=FOLDER")?.join("uploads"),
    };
    let address = url.node_address();
    let here = xxhash_rust::xxh3::xxh3_64(address.as_os_str().as_encoded_bytes());
    Ok(folder.join(format!("{here:016x}")))
}

/// What to do where one node is named of several.
fn over_all(table: &Table) -> String {
    format!("lies over several nodes; name all of them: {}", address_of(table))
}

impl Store for NodeStore {
    fn address(&self) -> &Path {
        &self.peer.path
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.asking()?.names().map_err(|e| e.at("list", &self.peer.path))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        let found = self.opened(name)?;
        if let Some(table) = found.table()? {
            return Err(StoreError::Address(format!("{}: {}", self.path(name).display(), over_all(&table))));
        }
        Ok(Arc::new(found))
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        self.check_here(name, replace)?;
        if replace == Replace::Generation { self.check_whole(name) } else { Ok(()) }
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        self.check(name, replace)?;
        Ok(Box::new(self.begin_here(name, replace)?))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        self.check(name, replace)?;
        let found = self.abandoned_here(name, replace)?.into_iter();
        Ok(found.map(|draft| Box::new(draft) as Box<dyn Draft>).collect())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.check_whole(name)?;
        self.delete_here(name)
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        match self.delete(name) {
            Ok(()) | Err(StoreError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        drop(self.abandoned_here(name, Replace::Generation)?);
        Ok(())
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        // What was pushed by a client that was killed the node forgets with the client's connection.
        let published = self.list()?;
        let mut names = self.scratch.leftovers()?;
        names.retain(|name| !published.contains(name));
        Ok(names)
    }
}

/// A generation that stands on the node.
#[derive(Debug)]
pub(super) struct Published {
    path: PathBuf,
    source: Arc<Source>,
    objects: BTreeMap<String, ObjectEntry>,
    write: bool,
}

impl Published {
    /// Where its parts lie, if it has any.
    pub(super) fn table(&self) -> Result<Option<Table>, StoreError> {
        if self.objects.contains_key(NODES_NAME) { table_in(self, &self.path).map(Some) } else { Ok(None) }
    }
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
