//! Finds the store of an index from a path or an address: a folder of this machine, a bucket, or memory
//! nodes.

#[cfg(feature = "object")]
mod bucket;
mod local;
#[cfg(feature = "remote")]
mod nodes;

use crate::error::IndexError;
use crate::format::manifest::MANIFEST_NAME;
use bathyal_object::{CacheStatus, ObjectUrl, PruneOptions, PruneReport, StoreOptions};
use bathyal_store::local::LocalStore;
use bathyal_store::stripe::Striping;
use bathyal_store::{Generation, Store, StoreError};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The scheme of addresses of folders of this machine.
const FILE_SCHEME: &str = "file://";
/// The scheme of addresses of memory nodes.
const NODE_SCHEME: &str = "remote://";

/// Opens the index at `path`, a folder or an address (`s3://`, `gs://`, `az://`, `memory://`, `remote://`,
/// `file://`), in a store with `options`. The parts of a striped index may have been moved to the folders
/// `stripe`, in any order. The result is the input of [`verify_in`](crate::verify_in),
/// [`inspect_in`](crate::inspect_in) and conversions.
///
/// # Errors
/// [`IndexError`] if there is no index, if a folder of `stripe` does not exist, if `stripe` is given for an
/// index that is not striped, or if the address or the options are invalid.
pub fn find(
    path: impl AsRef<Path>,
    stripe: &[PathBuf],
    options: &StoreOptions,
) -> Result<Arc<dyn Generation>, IndexError> {
    let path = path.as_ref();
    match local_path(path) {
        Some(path) => {
            refuse_options(path, options)?;
            Ok(LocalStore::open_moved(path, MANIFEST_NAME, stripe)?)
        }
        None if !stripe.is_empty() => Err(striping_error(path)),
        None => {
            let holding = remote_holding(path, options)?;
            Ok(holding.store().open(&holding.name)?)
        }
    }
}

/// Returns the address of the keys of `generation`, the index at `path`, if the keys differ from the typed
/// names because an earlier version has encoded them.
pub fn encoded_keys(path: impl AsRef<Path>, generation: &dyn Generation) -> Option<String> {
    let path = path.as_ref();
    if is_node_address(path) || local_path(path).is_some() {
        return None;
    }
    let (typed, found) =
        (ObjectUrl::parse(path).ok()?.to_string(), generation.address().display().to_string());
    (typed != found).then_some(found)
}

/// The store of an index, and the index's name in it.
#[derive(Debug)]
pub struct IndexLocation {
    index_store: Box<dyn IndexStore>,
    /// The name of the index in the store.
    pub name: String,
}

/// A store of indexes: a folder of this machine, a bucket, or memory nodes.
trait IndexStore: Debug + Send + Sync {
    fn store(&self) -> &dyn Store;

    /// See [`IndexLocation::names`].
    fn names(&self) -> Result<Vec<String>, StoreError>;

    /// See [`IndexLocation::names_in`].
    fn names_in(&self, _folder: &str) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// See [`IndexLocation::any_exists`].
    fn any_exists(&self, _folder: Option<&str>, names: &[String]) -> Result<bool, StoreError> {
        Ok(!names.is_empty())
    }

    /// See [`IndexLocation::erase`].
    fn erase(&self, name: &str, _files: &[&str]) -> Result<(), StoreError> {
        self.store().erase(name)
    }

    /// See [`IndexLocation::has_leftovers`].
    fn has_leftovers(&self, name: &str) -> Result<bool, StoreError>;

    /// See [`IndexLocation::prune`].
    fn prune(&self, name: &str, options: &PruneOptions) -> Result<PruneReport, IndexError>;

    /// See [`IndexLocation::cache_status`].
    fn cache_status(&self, _settled: bool) -> Result<Option<CacheStatus>, StoreError> {
        Ok(None)
    }

    /// See [`IndexLocation::folder`].
    fn folder(&self) -> &Path;

    /// See [`IndexLocation::striped`]; `None` if drafts cannot be striped over folders.
    fn striped(
        self: Box<Self>,
        striping: Option<Striping>,
        files: &[&str],
    ) -> Result<Option<Box<dyn IndexStore>>, StoreError>;
}

/// Returns the store that the index at `path`, a folder or an address, is in or would be in.
///
/// # Errors
/// [`IndexError`] for a path or an address without a name at its end, and for an invalid address or invalid
/// options.
pub fn holding(path: impl AsRef<Path>, options: &StoreOptions) -> Result<IndexLocation, IndexError> {
    let path = path.as_ref();
    if let Some(path) = local_path(path) {
        refuse_options(path, options)?;
        let (store, name) = LocalStore::holding(path, MANIFEST_NAME)?;
        return Ok(IndexLocation { index_store: Box::new(store), name });
    }
    remote_holding(path, options)
}

/// Returns the store of an address that is not a local folder.
#[cfg_attr(not(feature = "object"), allow(unused_variables))]
fn remote_holding(path: &Path, options: &StoreOptions) -> Result<IndexLocation, IndexError> {
    if is_node_address(path) {
        #[cfg(feature = "remote")]
        return nodes::holding(path, options);
        #[cfg(not(feature = "remote"))]
        return Err(feature_error(path, "memory nodes", "remote"));
    }
    let url = ObjectUrl::parse(path)?;
    #[cfg(feature = "object")]
    return bucket::holding(&url, options);
    #[cfg(not(feature = "object"))]
    return Err(feature_error(Path::new(&url.to_string()), "object stores", "object"));
}

/// Returns the store at `path` itself: a folder, a bucket, a folder in a bucket, or a memory node.
///
/// # Errors
/// [`IndexError`] for an invalid address or invalid options.
pub fn within(path: impl AsRef<Path>, options: &StoreOptions) -> Result<IndexLocation, IndexError> {
    let path = path.as_ref();
    // A bare scheme is an error: the name that is joined below would be parsed as a bucket. The memory of the
    // process has no buckets.
    if path
        .to_str()
        .is_some_and(|text| text.ends_with("://") && !matches!(text, FILE_SCHEME | "memory://" | NODE_SCHEME))
    {
        ObjectUrl::parse(path)?;
    }
    // The store does not depend on the name of the index.
    holding(path.join("NAME"), options)
}

impl IndexLocation {
    /// Returns the store.
    pub fn store(&self) -> &dyn Store {
        self.index_store.store()
    }

    /// Returns the names that may be indexes, in order. A folder or a bucket may also contain something else.
    ///
    /// # Errors
    /// [`IndexError::Store`] if there is no such folder, or if the store does not respond.
    pub fn names(&self) -> Result<Vec<String>, IndexError> {
        Ok(self.index_store.names()?)
    }

    /// Returns the names in a folder of the store that may be indexes. A memory node has no folders.
    ///
    /// # Errors
    /// As [`IndexLocation::names`].
    pub fn names_in(&self, folder: &str) -> Result<Vec<String>, IndexError> {
        Ok(self.index_store.names_in(folder)?)
    }

    /// Returns true if at least one of `names` exists. The names are from [`IndexLocation::names_in`] for
    /// `folder`, or from [`IndexLocation::names`] for `None`. In a bucket whose server keeps empty folders,
    /// none may exist.
    ///
    /// # Errors
    /// As [`IndexLocation::names`].
    pub fn any_exists(&self, folder: Option<&str>, names: &[String]) -> Result<bool, IndexError> {
        Ok(self.index_store.any_exists(folder, names)?)
    }

    /// Removes the leftovers of the index: replaced, deleted or unfinished parts, as far as `options` allow.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a folder of this machine, which has no leftovers; [`IndexError::Store`].
    pub fn prune(&self, options: &PruneOptions) -> Result<PruneReport, IndexError> {
        self.index_store.prune(&self.name, options)
    }

    /// Removes the index with everything that the store keeps for its name. Of the files in a local folder,
    /// only `files` are removed.
    ///
    /// # Errors
    /// [`IndexError::Store`]; the next call completes an interrupted one.
    pub(crate) fn erase(&self, files: &[&str]) -> Result<(), IndexError> {
        Ok(self.index_store.erase(&self.name, files)?)
    }

    /// Returns true if a build or a removal that was interrupted has left something of the index.
    ///
    /// # Errors
    /// [`IndexError::Store`].
    pub(crate) fn has_leftovers(&self) -> Result<bool, IndexError> {
        Ok(self.index_store.has_leftovers(&self.name)?)
    }

    /// Returns the state of the cache in front of the store; `None` if the store has no cache. With
    /// `settled`, the call first waits until the cache has written everything to its disk.
    ///
    /// # Errors
    /// [`StoreError`] on a thread that runs asynchronous tasks itself.
    pub(crate) fn cache_status(&self, settled: bool) -> Result<Option<CacheStatus>, IndexError> {
        Ok(self.index_store.cache_status(settled)?)
    }

    /// Returns a folder of this machine with space for temporary files.
    pub fn folder(&self) -> &Path {
        self.index_store.folder()
    }

    /// Returns the same store with drafts that are striped as requested, or whose `files` are spread over the
    /// nodes if there are several.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a bucket or nodes, if striping is requested.
    pub(crate) fn striped(
        self,
        striping: Option<Striping>,
        files: &[&str],
    ) -> Result<IndexLocation, IndexError> {
        let path = self.store().address().join(&self.name);
        let index_store = self.index_store.striped(striping, files)?.ok_or_else(|| striping_error(&path))?;
        Ok(IndexLocation { index_store, name: self.name })
    }
}

/// Returns the folder of this machine that `path` names; `None` for an address of a bucket.
///
/// # Errors
/// [`IndexError::Parameter`] for a local folder with `options`, and for an address of a memory node.
pub fn local_folder<'a>(path: &'a Path, options: &StoreOptions) -> Result<Option<&'a Path>, IndexError> {
    if is_node_address(path) {
        return Err(IndexError::Parameter(format!(
            "{}: a collection can be in a folder or a bucket, but not in a memory node, which can only have \
             indexes",
            path.display()
        )));
    }
    let local = local_path(path);
    local.map(|path| refuse_options(path, options)).transpose()?;
    Ok(local)
}

/// Returns the folder of this machine that `path` names, byte for byte, also after `file://`; `None` for any
/// other address.
fn local_path(path: &Path) -> Option<&Path> {
    if !ObjectUrl::is_url(path) {
        return Some(path);
    }
    path.to_str()?.strip_prefix(FILE_SCHEME).map(Path::new)
}

/// Returns true if `path` is an address of memory nodes.
fn is_node_address(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with(NODE_SCHEME))
}

/// Returns the error for a kind of address that this program was compiled without.
#[cfg(not(all(feature = "object", feature = "remote")))]
fn feature_error(path: &Path, what: &str, feature: &str) -> IndexError {
    IndexError::Parameter(format!(
        "{}: this program was compiled without {what}; compile the crate with its feature `{feature}`, or \
         give a folder of this machine",
        path.display()
    ))
}

fn striping_error(path: &Path) -> IndexError {
    IndexError::Parameter(format!(
        "{}: only an index in a folder of this machine can be striped over disks; leave the stripe out",
        path.display()
    ))
}

fn refuse_options(path: &Path, options: &StoreOptions) -> Result<(), IndexError> {
    if options.is_empty() {
        return Ok(());
    }
    Err(IndexError::Parameter(format!(
        "{}: is a folder of this machine, which takes no store options; leave them out, or give an address, \
         such as s3://BUCKET/NAME",
        path.display()
    )))
}
