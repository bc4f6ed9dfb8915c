//! From a path or an address to the store that an index is in: a folder of this machine, a bucket, or the memory of nodes.

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

/// The index at `path`, a folder or an address (`s3://`, `gs://`, `az://`, `memory://`, `remote://`, `file://`), in a store that `options`
/// describe. The parts of one that is striped may have been moved into the folders `stripe`, in any order. It is what
/// [`verify_in`](crate::verify_in), [`inspect_in`](crate::inspect_in) and conversions are given.
///
/// # Errors
/// [`IndexError`]: no index there, folders that are none, or folders for an index that is not striped; an address or options
/// that lead nowhere.
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
        None if !stripe.is_empty() => Err(unstriped(path)),
        None => {
            let held = far(path, options)?;
            Ok(held.store().open(&held.name)?)
        }
    }
}

/// The address of the keys of `generation`, which is what `path` leads to, where these are not the names that were typed: an
/// earlier version has encoded them.
pub fn encoded_keys(path: impl AsRef<Path>, generation: &dyn Generation) -> Option<String> {
    let path = path.as_ref();
    if is_of_nodes(path) || local_path(path).is_some() {
        return None;
    }
    let (typed, found) =
        (ObjectUrl::parse(path).ok()?.to_string(), generation.address().display().to_string());
    (typed != found).then_some(found)
}

/// Where an index is written.
#[derive(Debug)]
pub struct IndexLocation {
    place: Box<dyn IndexStore>,
    /// Its name there.
    pub name: String,
}

/// A store that holds indexes: a folder of this machine, a bucket, or the memory of nodes.
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

    /// See [`IndexLocation::prune`].
    fn prune(&self, name: &str, options: &PruneOptions) -> Result<PruneReport, IndexError>;

    /// See [`IndexLocation::cache_status`].
    fn cache_status(&self, _settled: bool) -> Result<Option<CacheStatus>, StoreError> {
        Ok(None)
    }

    /// See [`IndexLocation::folder`].
    fn folder(&self) -> &Path;

    /// See [`IndexLocation::striped`]; `None` where drafts cannot be striped over folders.
    fn striped(
        self: Box<Self>,
        striping: Option<Striping>,
        files: &[&str],
    ) -> Result<Option<Box<dyn IndexStore>>, StoreError>;
}

/// The store that the index at `path`, a folder or an address, is in, or would be in.
///
/// # Errors
/// [`IndexError`]: a path or an address that ends in no name, an address or options that lead nowhere.
pub fn holding(path: impl AsRef<Path>, options: &StoreOptions) -> Result<IndexLocation, IndexError> {
    let path = path.as_ref();
    if let Some(path) = local_path(path) {
        refuse_options(path, options)?;
        let (store, name) = LocalStore::holding(path, MANIFEST_NAME)?;
        return Ok(IndexLocation { place: Box::new(store), name });
    }
    far(path, options)
}

/// The same of an address of somewhere else.
#[cfg_attr(not(feature = "object"), allow(unused_variables))]
fn far(path: &Path, options: &StoreOptions) -> Result<IndexLocation, IndexError> {
    if is_of_nodes(path) {
        #[cfg(feature = "remote")]
        return nodes::holding(path, options);
        #[cfg(not(feature = "remote"))]
        return Err(left_out(path, "memory nodes", "remote"));
    }
    let url = ObjectUrl::parse(path)?;
    #[cfg(feature = "object")]
    return bucket::holding(&url, options);
    #[cfg(not(feature = "object"))]
    return Err(left_out(Path::new(&url.to_string()), "object stores", "object"));
}

/// The store that `path` itself is: a folder, a bucket or a folder in one, or a memory node.
///
/// # Errors
/// [`IndexError`]: an address or options that lead nowhere.
pub fn within(path: impl AsRef<Path>, options: &StoreOptions) -> Result<IndexLocation, IndexError> {
    let path = path.as_ref();
    // Of a scheme alone, what follows would be taken for a bucket. The memory of the process has none.
    if path
        .to_str()
        .is_some_and(|text| text.ends_with("://") && !matches!(text, FILE_SCHEME | "memory://" | NODE_SCHEME))
    {
        ObjectUrl::parse(path)?;
    }
    // The store does not depend on what in it is meant.
    holding(path.join("NAME"), options)
}

impl IndexLocation {
    /// The store.
    pub fn store(&self) -> &dyn Store {
        self.place.store()
    }

    /// The names under which there may be indexes, in order. In a folder or a bucket there may also be something else.
    ///
    /// # Errors
    /// [`IndexError::Store`]: no such folder, or a store that does not answer.
    pub fn names(&self) -> Result<Vec<String>, IndexError> {
        Ok(self.place.names()?)
    }

    /// The same of a folder in the store. In the memory of a node there is none.
    ///
    /// # Errors
    /// As [`IndexLocation::names`].
    pub fn names_in(&self, folder: &str) -> Result<Vec<String>, IndexError> {
        Ok(self.place.names_in(folder)?)
    }

    /// Whether one of `names`, which are there according to [`IndexLocation::names_in`] (of `folder`) or [`IndexLocation::names`] (`None`), leads to
    /// something. In a bucket of which the server keeps empty folders it may be none.
    ///
    /// # Errors
    /// As [`IndexLocation::names`].
    pub fn any_exists(&self, folder: Option<&str>, names: &[String]) -> Result<bool, IndexError> {
        Ok(self.place.any_exists(folder, names)?)
    }

    /// Removes what of the index was replaced, deleted or never finished, as far as `options` say.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] of a folder of this machine, where nothing is left over; [`IndexError::Store`].
    pub fn prune(&self, options: &PruneOptions) -> Result<PruneReport, IndexError> {
        self.place.prune(&self.name, options)
    }

    /// The state of the cache in front of the store; `None` where the store has no cache. With `settled` the call returns when the
    /// cache has written everything to its disk.
    ///
    /// # Errors
    /// [`StoreError`] on a thread that runs asynchronous tasks itself.
    pub(crate) fn cache_status(&self, settled: bool) -> Result<Option<CacheStatus>, IndexError> {
        Ok(self.place.cache_status(settled)?)
    }

    /// A folder of this machine in which there is room for what is written.
    pub fn folder(&self) -> &Path {
        self.place.folder()
    }

    /// The same, with drafts that are striped as is asked for, or of which `files` lie over the nodes, where there are several.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a bucket or nodes, if anything is asked for.
    pub(crate) fn striped(
        self,
        striping: Option<Striping>,
        files: &[&str],
    ) -> Result<IndexLocation, IndexError> {
        let path = self.store().address().join(&self.name);
        let place = self.place.striped(striping, files)?.ok_or_else(|| unstriped(&path))?;
        Ok(IndexLocation { place, name: self.name })
    }
}

/// The folder of this machine that `path` means; `None` of an address of a bucket.
///
/// # Errors
/// [`IndexError::Parameter`] for `options` of a store that is elsewhere, and for an address of a memory node.
pub fn local_folder<'a>(path: &'a Path, options: &StoreOptions) -> Result<Option<&'a Path>, IndexError> {
    if is_of_nodes(path) {
        return Err(IndexError::Parameter(format!(
            "{}: a collection is in a folder or a bucket, not in the memory of a node; indexes can be there",
            path.display()
        )));
    }
    let local = local_path(path);
    local.map(|path| refuse_options(path, options)).transpose()?;
    Ok(local)
}

/// The folder of this machine that `path` means, byte for byte, also behind `file://`; `None` of an address of somewhere else.
fn local_path(path: &Path) -> Option<&Path> {
    if !ObjectUrl::is_url(path) {
        return Some(path);
    }
    path.to_str()?.strip_prefix(FILE_SCHEME).map(Path::new)
}

/// Whether `path` is an address of memory nodes.
fn is_of_nodes(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with(NODE_SCHEME))
}

/// What is said of an address of a kind that this program was compiled without.
#[cfg(not(all(feature = "object", feature = "remote")))]
fn left_out(path: &Path, what: &str, feature: &str) -> IndexError {
    IndexError::Parameter(format!(
        "{}: this program was compiled without {what}; compile the crate with its feature `{feature}`, or give a folder of this machine",
        path.display()
    ))
}

fn unstriped(path: &Path) -> IndexError {
    IndexError::Parameter(format!(
        "{}: disks are striped over on this machine; a store far away spreads what it holds by itself: leave the stripe out",
        path.display()
    ))
}

fn refuse_options(path: &Path, options: &StoreOptions) -> Result<(), IndexError> {
    if options.is_empty() {
        return Ok(());
    }
    Err(IndexError::Parameter(format!(
        "{}: is a folder of this machine, which takes no store options; leave them out, or give an address (s3://BUCKET/NAME)",
        path.display()
    )))
}
