//! From a path or an address to the store that an index is in: a folder of this machine, a bucket, or the memory of nodes.

use crate::error::IndexError;
use crate::format::manifest::MANIFEST_NAME;
use bathyal_object::{BucketStore, Cache, ObjectUrl, PruneOptions, Pruned, StoreOptions};
use bathyal_remote::{NodeStore, RemoteOptions, RemoteUrl, SpreadStore};
use bathyal_store::local::LocalStore;
use bathyal_store::stripe::{DEFAULT_STRIPE_BYTES, Striping};
use bathyal_store::{Generation, Store, StoreError, check_name};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What folders of this machine may be written as.
const FILE_SCHEME: &str = "file://";

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
        None if RemoteUrl::is_url(path) => {
            let held = in_nodes(path, options)?;
            Ok(held.store().open(&held.name)?)
        }
        None => {
            let url = ObjectUrl::parse(path)?;
            Ok(BucketStore::new(&url, options, MANIFEST_NAME)?.open(&url.name)?)
        }
    }
}

/// The address of the keys of `generation`, which is what `path` leads to, where these are not the names that were typed: an
/// earlier version has encoded them.
pub fn encoded_keys(path: impl AsRef<Path>, generation: &dyn Generation) -> Option<String> {
    let path = path.as_ref();
    if RemoteUrl::is_url(path) || local_path(path).is_some() {
        return None;
    }
    let (typed, found) =
        (ObjectUrl::parse(path).ok()?.to_string(), generation.address().display().to_string());
    (typed != found).then_some(found)
}

/// Where an index is written.
#[derive(Debug)]
pub struct Holding {
    place: Holder,
    /// Its name there.
    pub name: String,
}

#[derive(Debug)]
enum Holder {
    Local(LocalStore),
    Bucket(Box<BucketStore>),
    Node(Box<NodeStore>),
    Nodes(Box<SpreadStore>),
}

/// The store that the index at `path`, a folder or an address, is in, or would be in.
///
/// # Errors
/// [`IndexError`]: a path or an address that ends in no name, an address or options that lead nowhere.
pub fn holding(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Holding, IndexError> {
    let path = path.as_ref();
    if let Some(path) = local_path(path) {
        refuse_options(path, options)?;
        let (store, name) = LocalStore::holding(path, MANIFEST_NAME)?;
        return Ok(Holding { place: Holder::Local(store), name });
    }
    if RemoteUrl::is_url(path) {
        return in_nodes(path, options);
    }
    let url = ObjectUrl::parse(path)?;
    let store = BucketStore::new(&url, options, MANIFEST_NAME)?;
    Ok(Holding { place: Holder::Bucket(Box::new(store)), name: url.name })
}

/// The store that `path` itself is: a folder, a bucket or a folder in one, or a memory node.
///
/// # Errors
/// [`IndexError`]: an address or options that lead nowhere.
pub fn within(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Holding, IndexError> {
    let path = path.as_ref();
    // Of a scheme alone, what follows would be taken for a bucket. The memory of the process has none.
    if path
        .to_str()
        .is_some_and(|text| text.ends_with("://") && !matches!(text, FILE_SCHEME | "memory://" | "remote://"))
    {
        ObjectUrl::parse(path)?;
    }
    // The store does not depend on what in it is meant.
    holding(path.join("NAME"), options)
}

impl Holding {
    /// The store.
    pub fn store(&self) -> &dyn Store {
        match &self.place {
            Holder::Local(store) => store,
            Holder::Bucket(store) => store.as_ref(),
            Holder::Node(store) => store.as_ref(),
            Holder::Nodes(store) => store.as_ref(),
        }
    }

    /// The names under which there may be indexes, in order. In a folder or a bucket there may also be something else.
    ///
    /// # Errors
    /// [`IndexError::Store`]: no such folder, or a store that does not answer.
    pub fn names(&self) -> Result<Vec<String>, IndexError> {
        Ok(match &self.place {
            Holder::Local(store) => folders(store.address())?,
            Holder::Bucket(store) => store.names()?,
            Holder::Node(store) => store.list()?,
            Holder::Nodes(store) => store.list()?,
        })
    }

    /// The same of a folder in the store. In the memory of a node there is none.
    ///
    /// # Errors
    /// As [`Holding::names`].
    pub fn names_in(&self, folder: &str) -> Result<Vec<String>, IndexError> {
        Ok(match &self.place {
            Holder::Local(store) => folders(&store.address().join(folder))?,
            Holder::Bucket(store) => store.names_in(folder)?,
            Holder::Node(_) | Holder::Nodes(_) => Vec::new(),
        })
    }

    /// Whether one of `names`, which are there according to [`Holding::names_in`] (of `folder`) or [`Holding::names`] (`None`), leads to
    /// something. In a bucket of which the server keeps empty folders it may be none.
    ///
    /// # Errors
    /// As [`Holding::names`].
    pub fn stands_in(&self, folder: Option<&str>, names: &[String]) -> Result<bool, IndexError> {
        Ok(match &self.place {
            Holder::Bucket(store) => store.stands_in(folder, names)?,
            Holder::Local(_) | Holder::Node(_) | Holder::Nodes(_) => !names.is_empty(),
        })
    }

    /// Removes what of the index was replaced, deleted or never finished, as far as `options` say.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] of a folder of this machine, where nothing is left over; [`IndexError::Store`].
    pub fn prune(&self, options: &PruneOptions) -> Result<Pruned, IndexError> {
        match &self.place {
            Holder::Local(store) => Err(IndexError::Parameter(format!(
                "{}: is a folder of this machine, where nothing is left over that was replaced; name an address, such as \
                 s3://BUCKET/NAME",
                store.address().join(&self.name).display()
            ))),
            Holder::Node(_) | Holder::Nodes(_) => Err(IndexError::Parameter(format!(
                "{}: is the memory of a node, which gives back what was replaced by itself, once nobody reads it any more",
                self.store().address().join(&self.name).display()
            ))),
            Holder::Bucket(store) => Ok(store.prune(&self.name, options)?),
        }
    }

    /// The cache that it is read through; `None` without one, and of a folder of this machine.
    pub(crate) fn cache(&self) -> Option<&Arc<Cache>> {
        match &self.place {
            Holder::Local(_) | Holder::Node(_) | Holder::Nodes(_) => None,
            Holder::Bucket(store) => store.cache(),
        }
    }

    /// A folder of this machine in which there is room for what is written.
    pub fn folder(&self) -> &Path {
        match &self.place {
            Holder::Local(store) => store.address(),
            Holder::Bucket(store) => store.scratch(),
            Holder::Node(store) => store.scratch(),
            Holder::Nodes(store) => store.scratch(),
        }
    }

    /// The same, with drafts that are striped as is asked for, or of which `files` lie over the nodes, where there are several.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a bucket or nodes, if anything is asked for.
    pub(crate) fn striped(self, striping: Option<Striping>, files: &[&str]) -> Result<Holding, IndexError> {
        let place = match (striping, self.place) {
            (None, Holder::Nodes(store)) => {
                Holder::Nodes(Box::new(store.striped(files, DEFAULT_STRIPE_BYTES)?))
            }
            (None, place) => place,
            (Some(striping), Holder::Local(store)) => Holder::Local(store.striped(striping)),
            (Some(_), place) => {
                let held = Holding { place, name: self.name };
                return Err(unstriped(&held.store().address().join(&held.name)));
            }
        };
        Ok(Holding { place, name: self.name })
    }
}

/// The folder of this machine that `path` means; `None` of an address of a bucket.
///
/// # Errors
/// [`IndexError::Parameter`] for `options` of a store that is elsewhere, and for an address of a memory node.
pub fn local_folder<'a>(path: &'a Path, options: &StoreOptions) -> Result<Option<&'a Path>, IndexError> {
    if RemoteUrl::is_url(path) {
        return Err(IndexError::Parameter(format!(
            "{}: a collection is in a folder or a bucket, not in the memory of a node; indexes can be there",
            path.display()
        )));
    }
    let local = local_path(path);
    local.map(|path| refuse_options(path, options)).transpose()?;
    Ok(local)
}

/// The names of the folders in `folder`, without those of names that no index has.
fn folders(folder: &Path) -> Result<Vec<String>, StoreError> {
    // As stores do: the folder of a name without one is where the program runs.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut names = Vec::new();
    for entry in folder.read_dir().map_err(|error| StoreError::io("list", folder, error))? {
        let entry = entry.map_err(|error| StoreError::io("list", folder, error))?;
        names.extend(entry.file_name().into_string().ok().filter(|_| entry.path().is_dir()));
    }
    names.retain(|name| check_name(name).is_ok());
    names.sort();
    Ok(names)
}

/// The folder of this machine that `path` means, byte for byte, also behind `file://`; `None` of an address of somewhere else.
fn local_path(path: &Path) -> Option<&Path> {
    if !ObjectUrl::is_url(path) {
        return Some(path);
    }
    path.to_str()?.strip_prefix(FILE_SCHEME).map(Path::new)
}

/// The memory of the node, or of the nodes, that an address names.
fn in_nodes(path: &Path, options: &StoreOptions) -> Result<Holding, IndexError> {
    let url = RemoteUrl::parse(path)?;
    let said: Vec<(&str, &str)> = options.plain("a memory node")?.collect();
    let place = if url.hosts.len() > 1 {
        let options = RemoteOptions::each(&said, url.hosts.len())?;
        Holder::Nodes(Box::new(SpreadStore::new(&url, &options, MANIFEST_NAME)?))
    } else {
        Holder::Node(Box::new(NodeStore::new(&url, RemoteOptions::new(said)?, MANIFEST_NAME)?))
    };
    Ok(Holding { place, name: url.name })
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
