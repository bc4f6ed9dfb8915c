//! What lies in a folder, in a bucket or in the memory of a node: indexes and collections.

use crate::error::CollectionError;
use crate::place::Part;
use bathyal_index::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_index::locate::{IndexLocation, find, within};
use bathyal_index::{IndexError, StoreOptions};
use bathyal_store::StoreError;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::thread;

/// Names that are looked at together: where each takes a request, they wait together.
const LOOKED_AT_ONCE: usize = 16;

/// One that lies there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// Its name there.
    pub name: String,
    /// What opens it.
    pub path: PathBuf,
    /// What it is.
    #[serde(flatten)]
    pub what: Contents,
}

/// What something is that lies somewhere.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Contents {
    /// An index.
    Index {
        /// Its family.
        family: String,
        /// Vectors, as it was built.
        vectors: u64,
        /// Components of each.
        dim: u32,
        /// Of what they are made.
        element: String,
        /// What near means.
        metric: String,
        /// Bytes of all its files.
        index_bytes: u64,
    },
    /// A collection.
    Collection,
    /// An index that cannot be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// The indexes and collections directly in `place`, by their names: a folder, a bucket or a folder in it, or a memory node. Nothing
/// is read of an index but its manifest, and nothing of a collection but whether it has a version; other things that lie there are
/// left out.
///
/// # Errors
/// [`CollectionError`]: no such folder; `place` is an index or a collection itself; an address or options that lead nowhere, or a
/// store that does not answer.
pub fn listing(place: impl AsRef<Path>, options: &StoreOptions) -> Result<Vec<Listed>, CollectionError> {
    let place = place.as_ref();
    let holding = within(place, options)?;
    let names = holding.names()?;
    if holding.any_exists(None, &versions(&names))? {
        return Err(itself(place, "a collection", "collection inspect"));
    }
    let share = names.len().div_ceil(LOOKED_AT_ONCE).max(1);
    let look = |names: &[String]| {
        let found = names.iter().map(|name| look_at(&holding, place, name));
        found.filter_map(Result::transpose).collect::<Result<Vec<Listed>, IndexError>>()
    };
    let look = &look;
    let looked: Vec<_> = thread::scope(|scope| {
        let begun: Vec<_> = names.chunks(share).map(|names| scope.spawn(move || look(names))).collect();
        begun
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut found = Vec::with_capacity(names.len());
    for some in looked {
        found.extend(some?);
    }
    if found.is_empty() && find(place, &[], options).is_ok() {
        return Err(itself(place, "an index", "inspect"));
    }
    Ok(found)
}

/// What lies under `name`; `None` if that is neither an index nor a collection.
fn look_at(holding: &IndexLocation, place: &Path, name: &str) -> Result<Option<Listed>, IndexError> {
    let what = match index_at(holding, name) {
        Err(IndexError::NotAnIndex { .. } | IndexError::Store(StoreError::Missing { .. })) => {
            let stands =
                holding.names_in(name).and_then(|names| holding.any_exists(Some(name), &versions(&names)));
            stands.map(|stands| stands.then_some(Contents::Collection))
        }
        found => found.map(Some),
    };
    let what = match what {
        Err(IndexError::Store(error)) if error.is_remote() => return Err(error.into()),
        Err(error) => Some(Contents::Unreadable { reason: error.to_string() }),
        Ok(what) => what,
    };
    Ok(what.map(|what| Listed { name: name.to_owned(), path: place.join(name), what }))
}

/// What the manifest of an index says.
fn index_at(holding: &IndexLocation, name: &str) -> Result<Contents, IndexError> {
    let generation = holding.store().open(name)?;
    let manifest = Manifest::load(generation.as_ref())?;
    Ok(Contents::Index {
        index_bytes: manifest.index_bytes() + generation.get(MANIFEST_NAME)?.len(),
        family: manifest.family,
        vectors: manifest.vectors,
        dim: manifest.dim,
        element: manifest.element,
        metric: manifest.metric,
    })
}

/// The versions of a collection among the names of what its folder holds.
fn versions(names: &[String]) -> Vec<String> {
    names.iter().filter(|name| matches!(Part::of(name), Some(Part::Version(_)))).cloned().collect()
}

fn itself(place: &Path, what: &str, command: &str) -> CollectionError {
    let path = place.display();
    CollectionError::Parameter(format!("{path}: is {what} itself; `bathyal {command} {path}` says more"))
}
