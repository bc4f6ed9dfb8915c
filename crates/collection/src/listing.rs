//! Lists the indexes and collections in a folder, a bucket, or a memory node.

use crate::error::CollectionError;
use crate::location::Part;
use bathyal_index::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_index::locate::{IndexLocation, find, within};
use bathyal_index::{IndexError, StoreOptions};
use bathyal_store::StoreError;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::thread;

/// Threads that inspect names; in an object store each name takes a request.
const INSPECTION_THREADS: usize = 16;

/// An index or a collection in a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListingEntry {
    /// Its name in the listed folder.
    pub name: String,
    /// The path or address that opens it.
    pub path: PathBuf,
    /// Its kind.
    #[serde(flatten)]
    pub what: EntryKind,
}

/// Kind of a listed entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EntryKind {
    /// An index.
    Index {
        /// The family.
        family: String,
        /// Number of vectors when it was built.
        vectors: u64,
        /// Components of each vector.
        dim: u32,
        /// Type of the components.
        element: String,
        /// The metric.
        metric: String,
        /// Bytes of all files.
        index_bytes: u64,
    },
    /// A collection.
    Collection,
    /// An index that cannot be read.
    Unreadable {
        /// The error.
        reason: String,
    },
}

/// Lists the indexes and collections directly in `place`, by name. `place` is a folder, a bucket, a folder in
/// a bucket, or a memory node. Of an index only the manifest is read; of a collection, only whether it has a
/// version. Other files are left out.
///
/// # Errors
/// [`CollectionError`] if the folder does not exist, if `place` is an index or a collection itself, if the
/// address or the options are invalid, or if the store does not answer.
pub fn listing(
    place: impl AsRef<Path>,
    options: &StoreOptions,
) -> Result<Vec<ListingEntry>, CollectionError> {
    let place = place.as_ref();
    let holding = within(place, options)?;
    let names = holding.names()?;
    if holding.any_exists(None, &versions(&names))? {
        return Err(not_a_folder(place, "a collection", "collection inspect"));
    }
    let share = names.len().div_ceil(INSPECTION_THREADS).max(1);
    let inspect_all = |names: &[String]| {
        let found = names.iter().map(|name| inspect(&holding, place, name));
        found.filter_map(Result::transpose).collect::<Result<Vec<ListingEntry>, IndexError>>()
    };
    let inspect_all = &inspect_all;
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            names.chunks(share).map(|names| scope.spawn(move || inspect_all(names))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut found = Vec::with_capacity(names.len());
    for some in results {
        found.extend(some?);
    }
    if found.is_empty() && find(place, &[], options).is_ok() {
        return Err(not_a_folder(place, "an index", "inspect"));
    }
    Ok(found)
}

/// Inspects the entry `name`; `None` if it is neither an index nor a collection.
fn inspect(holding: &IndexLocation, place: &Path, name: &str) -> Result<Option<ListingEntry>, IndexError> {
    let what = match index_at(holding, name) {
        Err(IndexError::NotAnIndex { .. } | IndexError::Store(StoreError::Missing { .. })) => {
            let is_collection =
                holding.names_in(name).and_then(|names| holding.any_exists(Some(name), &versions(&names)));
            is_collection.map(|is_collection| is_collection.then_some(EntryKind::Collection))
        }
        found => found.map(Some),
    };
    let what = match what {
        Err(IndexError::Store(error)) if error.is_remote() => return Err(error.into()),
        Err(error) => Some(EntryKind::Unreadable { reason: error.to_string() }),
        Ok(what) => what,
    };
    Ok(what.map(|what| ListingEntry { name: name.to_owned(), path: place.join(name), what }))
}

/// Reads the manifest of an index.
fn index_at(holding: &IndexLocation, name: &str) -> Result<EntryKind, IndexError> {
    let generation = holding.store().open(name)?;
    let manifest = Manifest::load(generation.as_ref())?;
    Ok(EntryKind::Index {
        index_bytes: manifest.index_bytes() + generation.get(MANIFEST_NAME)?.len(),
        family: manifest.family,
        vectors: manifest.vectors,
        dim: manifest.dim,
        element: manifest.element,
        metric: manifest.metric,
    })
}

/// Returns those of `names` that are versions of a collection.
fn versions(names: &[String]) -> Vec<String> {
    names.iter().filter(|name| matches!(Part::parse(name), Some(Part::Version(_)))).cloned().collect()
}

fn not_a_folder(place: &Path, what: &str, command: &str) -> CollectionError {
    let path = place.display();
    CollectionError::Parameter(format!("{path}: is {what}; run `bathyal {command} {path}` to inspect it"))
}
