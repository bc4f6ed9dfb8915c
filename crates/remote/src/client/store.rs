//! The memory of a node as a store of generations.

use super::draft::NodeDraft;
use super::node_table::{NODES_NAME, address_of, table_in};
use super::object::NodeObject;
use super::options::{RemoteOptions, RemoteUrl};
use super::session::{NodeTarget, Session};
use super::source::RegionSource;
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
    target: NodeTarget,
    /// Name of the object that every generation has.
    mark: &'static str,
    /// Local folder of drafts before they are pushed.
    scratch: LocalStore,
    /// True if generations are opened for writing.
    write: bool,
    /// Session for requests that concern no opened generation. Begun at the first one.
    session: Arc<Mutex<Option<Arc<Session>>>>,
}

impl NodeStore {
    /// Creates the store that contains the generation at `url`. Each generation has an object named `mark`.
    /// Sends nothing to the node yet.
    ///
    /// # Errors
    /// [`StoreError::Address`] if there is no folder for drafts, or the address names several nodes.
    pub fn new(url: &RemoteUrl, options: RemoteOptions, mark: &'static str) -> Result<NodeStore, StoreError> {
        let folder = scratch_folder(url, &options)?;
        NodeStore::with_scratch(folder, url, options, mark)
    }

    /// Creates the store with drafts in the local folder `folder`.
    pub(super) fn with_scratch(
        folder: PathBuf,
        url: &RemoteUrl,
        options: RemoteOptions,
        mark: &'static str,
    ) -> Result<NodeStore, StoreError> {
        let [host] = url.hosts.as_slice() else {
            return Err(StoreError::Address(format!("{url}: names several nodes instead of one")));
        };
        let scratch = LocalStore::new(folder, mark);
        let target = NodeTarget { host: host.clone(), path: url.node_address(), options };
        Ok(NodeStore { url: url.clone(), target, mark, scratch, write: false, session: Arc::default() })
    }

    /// Returns the store with generations opened for writing: their tiers offer
    /// [`Tier::writable`](bathyal_tier::Tier::writable).
    #[must_use]
    pub fn for_writing(self) -> NodeStore {
        NodeStore { write: true, ..self }
    }

    /// Returns the local folder of drafts before they are pushed.
    pub fn scratch(&self) -> &Path {
        self.scratch.address()
    }

    /// Returns the address of the generation `name`.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.target.path.join(name)
    }

    /// Returns the session for requests, which may write. Begins a new one if there is none or it has failed.
    fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut current = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = current.as_ref().filter(|session| !session.is_broken()) {
            return Ok(session.clone());
        }
        let session = self.target.connect(true)?;
        *current = Some(session.clone());
        Ok(session)
    }

    fn draft(&self, name: &str, replace: Replace, local: Box<dyn Draft>) -> NodeDraft {
        NodeDraft::new(self.target.clone(), self.path(name), (name, self.mark), replace, local)
    }

    /// Opens the generation `name` on this node, without the parts that it may have on others.
    pub(super) fn open_generation(&self, name: &str) -> Result<NodeGeneration, StoreError> {
        check_name(name)?;
        let url = RemoteUrl { name: name.to_owned(), ..self.url.clone() };
        let (source, objects) = RegionSource::open(self.target.connect(self.write)?, &url)?;
        let objects = objects.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        let (path, source) = (self.path(name), Arc::new(source));
        Ok(NodeGeneration { path, source, objects, write: self.write })
    }

    /// Returns the table of the generation `name`; `None` if there is no such generation, or it is not
    /// striped.
    pub(super) fn table_of(&self, name: &str) -> Result<Option<Table>, StoreError> {
        match self.open_generation(name) {
            Ok(found) => found.table(),
            Err(StoreError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks that a generation may be published, whether or not the present one is striped.
    pub(super) fn check_publishable(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        check_name(name)?;
        let checked = self.session()?.check(name, replace == Replace::Generation);
        checked.map_err(|e| e.at("write", &self.path(name)))
    }

    /// Begins a draft without checking what is published under its name.
    pub(super) fn begin_draft(&self, name: &str, replace: Replace) -> Result<NodeDraft, StoreError> {
        let local = self.scratch.begin(name, Replace::Never)?;
        Ok(self.draft(name, replace, local))
    }

    /// Returns the drafts of `name` that no process writes any more, without checking what is published.
    pub(super) fn abandoned_drafts(
        &self,
        name: &str,
        replace: Replace,
    ) -> Result<Vec<NodeDraft>, StoreError> {
        let found = self.scratch.abandoned(name, Replace::Never)?.into_iter();
        Ok(found.map(|local| self.draft(name, replace, local)).collect())
    }

    /// Deletes a generation, but none of its parts.
    pub(super) fn delete_generation(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        self.session()?.delete(name).map_err(|e| e.at("delete", &self.path(name)))
    }

    /// Returns true if local files of a draft of `name` are left that no process writes any more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn has_leftovers(&self, name: &str) -> Result<bool, StoreError> {
        self.scratch.has_leftovers(name)
    }

    /// Refuses to replace or delete a generation with parts on other nodes, which this store does not reach.
    fn check_whole(&self, name: &str) -> Result<(), StoreError> {
        match self.table_of(name)? {
            None => Ok(()),
            Some(table) => Err(StoreError::Irreplaceable {
                path: self.path(name),
                reason: incomplete_address_message(&table),
            }),
        }
    }
}

/// Returns the local folder of drafts for the nodes of `url`.
///
/// # Errors
/// [`StoreError::Address`] if there is none.
pub(super) fn scratch_folder(url: &RemoteUrl, options: &RemoteOptions) -> Result<PathBuf, StoreError> {
    let folder = match &options.scratch {
        Some(folder) => folder.clone(),
        None => default_cache_folder("scratch=FOLDER")?.join("uploads"),
    };
    let address = url.node_address();
    let address_hash = xxhash_rust::xxh3::xxh3_64(address.as_os_str().as_encoded_bytes());
    Ok(folder.join(format!("{address_hash:016x}")))
}

/// Returns the message for a generation over several nodes whose address names only one.
fn incomplete_address_message(table: &Table) -> String {
    format!("is on several nodes; name all of them: {}", address_of(table))
}

impl Store for NodeStore {
    fn address(&self) -> &Path {
        &self.target.path
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.session()?.names().map_err(|e| e.at("list", &self.target.path))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        let found = self.open_generation(name)?;
        if let Some(table) = found.table()? {
            return Err(StoreError::Address(format!(
                "{}: {}",
                self.path(name).display(),
                incomplete_address_message(&table)
            )));
        }
        Ok(Arc::new(found))
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        self.check_publishable(name, replace)?;
        if replace == Replace::Generation { self.check_whole(name) } else { Ok(()) }
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        self.check(name, replace)?;
        Ok(Box::new(self.begin_draft(name, replace)?))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        self.check(name, replace)?;
        let found = self.abandoned_drafts(name, replace)?.into_iter();
        Ok(found.map(|draft| Box::new(draft) as Box<dyn Draft>).collect())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.check_whole(name)?;
        self.delete_generation(name)
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        match self.delete(name) {
            Ok(()) | Err(StoreError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        drop(self.abandoned_drafts(name, Replace::Generation)?);
        Ok(())
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        // The node forgets pushed objects when the connection of a killed client ends.
        let published = self.list()?;
        let mut names = self.scratch.leftovers()?;
        names.retain(|name| !published.contains(name));
        Ok(names)
    }
}

/// A published generation on one node.
#[derive(Debug)]
pub(super) struct NodeGeneration {
    path: PathBuf,
    source: Arc<RegionSource>,
    objects: BTreeMap<String, ObjectEntry>,
    write: bool,
}

impl NodeGeneration {
    /// Returns the table of its parts, if it is striped.
    pub(super) fn table(&self) -> Result<Option<Table>, StoreError> {
        if self.objects.contains_key(NODES_NAME) { table_in(self, &self.path).map(Some) } else { Ok(None) }
    }
}

impl Generation for NodeGeneration {
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
