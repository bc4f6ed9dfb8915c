//! Removal of an index with everything that belongs to it.

use crate::error::IndexError;
use crate::families;
use crate::format::changes::CHANGES_NAME;
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use crate::locate::{IndexLocation, holding};
use crate::open::change_counts;
use bathyal_object::StoreOptions;
use bathyal_store::{Generation, GenerationExt, LogWriter, StoreError};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// An index that would be removed, or that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemovedIndex {
    /// The family.
    pub family: String,
    /// Number of vectors, with inserted and without deleted ones.
    pub vectors: u64,
    /// Bytes of all files, with the manifest and the log of changes.
    pub index_bytes: u64,
}

/// An index that was found at the path.
struct FoundIndex {
    generation: Arc<dyn Generation>,
    manifest: Manifest,
    removed: RemovedIndex,
}

/// Returns what [`remove`] would remove; `None` if only files of an interrupted build or removal are left.
///
/// # Errors
/// As [`remove`].
pub fn removable(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Option<RemovedIndex>, IndexError> {
    Ok(look(&holding(path, options)?)?.map(|found| found.removed))
}

/// Removes the index at `path`, a folder or an address, with its log of changes, the parts of striped files,
/// and what interrupted builds have left. Returns what was removed; `None` if there was no index but only
/// such leftovers. Files of others in the folder of the index stay there.
///
/// Searches that have the index open in files go on, and so do those in the memory of a node, which frees the
/// memory after the last of them. In a bucket, open searches fail from now on. If the call is interrupted,
/// the index cannot be opened any more, and the next call removes the rest.
///
/// # Errors
/// [`IndexError::NotAnIndex`] and [`StoreError::Missing`] if there is no index; [`StoreError::Busy`] if it is
/// being changed; [`IndexError::Damaged`] and [`IndexError::LaterVersion`] if the manifest cannot be read,
/// which names the files; [`IndexError::Store`].
pub fn remove(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Option<RemovedIndex>, IndexError> {
    let location = holding(path, options)?;
    let Some(found) = look(&location)? else {
        location.erase(&[])?;
        return Ok(None);
    };
    let _writer = found.writer()?;
    let files = found.manifest.files.iter().map(|file| file.name.as_str());
    location.erase(&files.chain([MANIFEST_NAME, CHANGES_NAME]).collect::<Vec<_>>())?;
    Ok(Some(found.removed))
}

/// Looks for an index; `None` if only leftovers are there.
fn look(location: &IndexLocation) -> Result<Option<FoundIndex>, IndexError> {
    let generation = match location.store().open(&location.name) {
        Ok(generation) => generation,
        Err(StoreError::Missing { .. } | StoreError::NoGeneration { .. }) if location.has_leftovers()? => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let manifest = Manifest::load(&*generation)?;
    let stored = families::stored(generation.address(), &manifest)?;
    // An index whose log of changes is damaged can be removed, too.
    let (changed, _) = change_counts(&*generation, &manifest, &*stored).unwrap_or_default();
    let removed = RemovedIndex {
        family: manifest.family.clone(),
        vectors: (manifest.vectors + changed.inserted).saturating_sub(changed.deleted),
        index_bytes: manifest.index_bytes()
            + generation.len_of(MANIFEST_NAME).unwrap_or(0)
            + changed.log_bytes,
    };
    Ok(Some(FoundIndex { generation, manifest, removed }))
}

impl FoundIndex {
    /// Locks the log of changes, if the family has one, so that nobody changes the index meanwhile.
    fn writer(&self) -> Result<Option<Box<dyn LogWriter>>, IndexError> {
        let stored = families::stored(self.generation.address(), &self.manifest)?;
        if stored.buckets().is_none() || self.manifest.is_striped() {
            return Ok(None);
        }
        match self.generation.log(CHANGES_NAME) {
            Ok(log) => Ok(Some(log.write()?)),
            Err(StoreError::Unchangeable { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
