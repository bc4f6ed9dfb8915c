//! Removal of a collection, or of whatever is at a path.
//!
//! The latest version is removed last among the versions and before everything else. Until then the whole
//! collection can be opened, and afterwards nothing can.

use crate::error::CollectionError;
use crate::location::{CollectionLocation, Part};
use crate::log::{self, ListedParts, lock_last_log};
use crate::options::CollectionOptions;
use crate::version::numbers;
use crate::write::Shared;
use bathyal_index::locate::local_folder;
use bathyal_index::{IndexError, RemovedIndex, StoreOptions};
use bathyal_store::StoreError;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// A collection that would be removed, or that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemovedCollection {
    /// Number of live rows; `None` if the collection is damaged.
    pub rows: Option<u64>,
    /// Bytes of its segments; `None` if the collection is damaged.
    pub bytes: Option<u64>,
}

/// The parts that would be removed from a path, or were removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RemovedKind {
    /// An index.
    Index(RemovedIndex),
    /// A collection.
    Collection(RemovedCollection),
    /// Files that an interrupted build, copy or removal has left.
    Leftovers,
}

/// The removal of an index or a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// The path or the address.
    pub path: PathBuf,
    /// The content.
    #[serde(flatten)]
    pub what: RemovedKind,
    /// Names of the files of others in the folder. They stay there. Known only after the removal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

/// Returns what [`remove`] would remove.
///
/// # Errors
/// As [`remove`].
pub fn removable(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Removal, CollectionError> {
    let path = path.as_ref();
    Ok(Removal { path: path.to_path_buf(), what: look(path, options)?, others: Vec::new() })
}

/// Removes the index or the collection at `path`, a folder or an address, with everything that belongs to it.
/// Files of others in its folder stay there.
///
/// # Errors
/// As [`bathyal_index::remove`] and [`Collection::remove`](crate::Collection::remove), and
/// [`IndexError::NotAnIndex`] if there is neither an index nor a collection.
pub fn remove(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Removal, CollectionError> {
    let path = path.as_ref();
    let what = match look(path, options)? {
        RemovedKind::Collection(_) => remove_at(&CollectionLocation::at(path, options)?)?,
        _ if is_collection_place(path, options)? => remove_at(&CollectionLocation::at(path, options)?)?,
        _ => bathyal_index::remove(path, options)?.map_or(RemovedKind::Leftovers, RemovedKind::Index),
    };
    Ok(Removal { path: path.to_path_buf(), what, others: others(path, options) })
}

/// Removes the collection at a location; what an interrupted call has left counts as one, too.
pub(crate) fn remove_at(place: &CollectionLocation) -> Result<RemovedKind, CollectionError> {
    let what = look_at(place)?;
    let _lock = lock_last_log(place)?;
    let erase = |parts: Vec<Part>| log::remove(place, &parts);
    erase(numbers(place)?.into_iter().map(Part::Version).collect())?;
    erase(log::logs(place)?.into_iter().map(Part::Log).collect())?;
    // In a bucket, a writer elsewhere is not seen. It may have published a version before it lost its log.
    erase(numbers(place)?.into_iter().map(Part::Version).collect())?;
    erase(ListedParts::list(place)?.all())?;
    if let Some(part) = ListedParts::list(place)?.all().pop() {
        let reason = "it is still there; remove the collection once more";
        let path = place.path().join(part.name());
        return Err(StoreError::io("remove", path, io::Error::other(reason)).into());
    }
    place.remove_folder();
    Ok(what)
}

/// Looks for an index or a collection.
fn look(path: &Path, options: &StoreOptions) -> Result<RemovedKind, CollectionError> {
    let index = bathyal_index::removable(path, options);
    let error = match index {
        Ok(Some(index)) => return Ok(RemovedKind::Index(index)),
        // The leftovers of an index may be beside a collection of the same name.
        Ok(None) => None,
        Err(error @ (IndexError::NotAnIndex { .. } | IndexError::Store(StoreError::Missing { .. }))) => {
            Some(error)
        }
        Err(error) => return Err(error.into()),
    };
    if is_collection_place(path, options)? {
        return look_at(&CollectionLocation::at(path, options)?);
    }
    match error {
        None => Ok(RemovedKind::Leftovers),
        Some(IndexError::NotAnIndex { path, reason }) => {
            let reason = format!("{reason}; it is no collection either, and nothing else is removed");
            Err(IndexError::NotAnIndex { path, reason }.into())
        }
        Some(error) => Err(error.into()),
    }
}

/// Returns true if parts of a collection are at `path`.
fn is_collection_place(path: &Path, options: &StoreOptions) -> Result<bool, CollectionError> {
    let look = || {
        let place = CollectionLocation::at(path, options)?;
        Ok(!numbers(&place)?.is_empty() || !ListedParts::list(&place)?.all().is_empty())
    };
    match look() {
        // A memory node holds no collections.
        Err(CollectionError::Index(IndexError::Parameter(_))) => Ok(false),
        Err(CollectionError::Store(StoreError::Io { source, .. }))
            if source.kind() == io::ErrorKind::NotADirectory =>
        {
            Ok(false)
        }
        found => found,
    }
}

/// Describes the collection at a location.
fn look_at(place: &CollectionLocation) -> Result<RemovedKind, CollectionError> {
    if numbers(place)?.is_empty() {
        if ListedParts::list(place)?.all().is_empty() {
            let reason = "it holds no version of a collection".into();
            return Err(CollectionError::NotACollection { path: place.path().to_path_buf(), reason });
        }
        return Ok(RemovedKind::Leftovers);
    }
    let (rows, bytes) = match Shared::open(place.clone(), CollectionOptions::default(), None) {
        Ok(shared) => {
            let state = shared.content.state();
            let bytes = state.segments.iter().map(|segment| segment.segment.entry().bytes).sum();
            (Some(state.live()), Some(bytes))
        }
        Err(error) if error.is_loss() => (None, None),
        Err(error) => return Err(error),
    };
    Ok(RemovedKind::Collection(RemovedCollection { rows, bytes }))
}

/// Returns the names of the files of others that are left in a local folder, sorted.
fn others(path: &Path, options: &StoreOptions) -> Vec<String> {
    let Ok(Some(folder)) = local_folder(path, options) else { return Vec::new() };
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Collection;
    use crate::ids::{IdKind, Ids};
    use crate::rows::Rows;
    use crate::schema::{Schema, VectorField};
    use bathyal_kernels::{Element, Metric};
    use bathyal_store::disk::Disk;
    use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
    use bathyal_store::local::LocalStore;
    use bathyal_vectors::VectorFile;
    use std::sync::Arc;

    const ROWS: u64 = 20;

    fn options() -> CollectionOptions {
        CollectionOptions { background: false, keep_versions: 1, threads: 1, ..CollectionOptions::default() }
    }

    fn schema() -> Schema {
        let vectors = vec![VectorField::new("v", 2, Element::F32, Metric::L2)];
        Schema { id_kind: IdKind::Number, vectors, columns: Vec::new() }
    }

    /// Creates a collection with a segment, several versions, and rows that are only in the log.
    fn fill(place: &CollectionLocation) {
        let collection = Collection::create_in(place.clone(), schema(), &options()).unwrap();
        for first in [0, ROWS / 2] {
            let ids: Vec<u64> = (first..first + ROWS / 2).collect();
            let values = ids.iter().flat_map(|id| [*id as f32, 1.0]).flat_map(f32::to_le_bytes).collect();
            let vectors = VectorFile::from_rows(Element::F32, 2, values).unwrap();
            let rows = Rows::new(&schema(), Ids::Numbers(ids.into()), vec![vectors], None).unwrap();
            collection.add(rows).unwrap();
            if first == 0 {
                collection.flush().unwrap();
            }
        }
    }

    /// Returns the rows of the collection; `None` if it cannot be opened.
    fn rows(place: &CollectionLocation) -> Option<u64> {
        let opened = Collection::open_in(place.clone(), &options());
        opened.ok().map(|collection| collection.describe().rows)
    }

    #[test]
    fn a_killed_removal_leaves_the_whole_collection_or_none_and_is_finished_later() {
        for powerless in [None, Some(1_u64), Some(2)] {
            for number in 0.. {
                let simulated = SimulatedDisk::default();
                simulated.create_folder(Path::new("/folder")).unwrap();
                simulated.sync_folder(Path::new("/")).unwrap();
                let faults = Faults::new(Arc::new(simulated.clone()));
                let store =
                    LocalStore::on_disk(Arc::new(faults.clone()), "/folder", CollectionLocation::MARK);
                let place = CollectionLocation::in_store(Arc::new(store));
                fill(&place);
                faults.inject(number, DiskFault::Kill);
                let removed = remove_at(&place);
                let failed = faults.injected();
                faults.clear();
                let Some(failed) = failed else {
                    let whole = RemovedCollection { rows: Some(ROWS), bytes: None };
                    let RemovedKind::Collection(found) = removed.unwrap() else { panic!("no collection") };
                    assert_eq!(RemovedCollection { bytes: None, ..found }, whole);
                    assert!(number > 30, "the sweep found {number} operations");
                    break;
                };
                if let Some(seed) = powerless {
                    simulated.lose_power(seed << 20 ^ number as u64);
                }
                let found = rows(&place);
                assert!(found.is_none_or(|rows| rows == ROWS), "{failed}: {found:?}");
                match remove_at(&place) {
                    Ok(RemovedKind::Collection(_)) => assert_eq!(found, Some(ROWS), "{failed}"),
                    Ok(_) => assert_eq!(found, None, "{failed}"),
                    // Nothing was left.
                    Err(CollectionError::NotACollection { .. }) => assert_eq!(found, None, "{failed}"),
                    Err(error) => panic!("{failed}: {error}"),
                }
                assert_eq!(simulated.paths(), ["/folder"], "{failed}");
                Collection::create_in(place, schema(), &options()).unwrap();
            }
        }
    }

    #[test]
    fn a_collection_with_a_writer_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let place = CollectionLocation::at(&path, &StoreOptions::default()).unwrap();
        fill(&place);
        let collection = Collection::open(&path, &options()).unwrap();
        collection.delete(Ids::Numbers(vec![3].into())).unwrap();
        let error = remove(&path, &StoreOptions::default()).unwrap_err();
        assert!(matches!(error, CollectionError::Busy { .. }), "{error}");
        drop(collection);
        // A reader does not prevent it. What it has open, it reads on.
        let reader = Collection::open(&path, &options()).unwrap();
        let removed = remove(&path, &StoreOptions::default()).unwrap();
        assert!(matches!(removed.what, RemovedKind::Collection(found) if found.rows == Some(ROWS - 1)));
        assert!(reader.refresh().is_err() && !path.exists());
        let error = remove(&path, &StoreOptions::default()).unwrap_err();
        assert!(error.to_string().contains("there is no such index"), "{error}");
    }

    #[test]
    fn files_of_others_stay_and_damaged_collections_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let place = CollectionLocation::at(&path, &StoreOptions::default()).unwrap();
        fill(&place);
        std::fs::write(path.join("notes.txt"), b"mine").unwrap();
        let newest = Part::Version(numbers(&place).unwrap().pop().unwrap()).name();
        std::fs::write(path.join(newest).join(CollectionLocation::MARK), b"damaged").unwrap();
        let removed = remove(&path, &StoreOptions::default()).unwrap();
        let damaged = RemovedCollection { rows: None, bytes: None };
        assert_eq!(removed.what, RemovedKind::Collection(damaged));
        assert_eq!(removed.others, ["notes.txt"]);
        assert_eq!(std::fs::read(path.join("notes.txt")).unwrap(), b"mine");
        let error = remove(&path, &StoreOptions::default()).unwrap_err();
        assert!(matches!(error, CollectionError::Index(IndexError::NotAnIndex { .. })), "{error}");
    }
}
