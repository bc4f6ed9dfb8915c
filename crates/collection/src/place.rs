//! Where a collection is: the store that its versions, segments and logs are generations of, and what these are called.

use crate::error::CollectionError;
use bathyal_index::format::manifest::MANIFEST_NAME;
use bathyal_object::StoreOptions;
#[cfg(feature = "object")]
use bathyal_object::{BucketStore, ObjectUrl};
use bathyal_store::local::LocalStore;
use bathyal_store::{Generation, Store, StoreError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The object that every generation of a collection has, by which it is known.
pub(crate) const MARK: &str = MANIFEST_NAME;
/// The log of a generation that is one.
pub(crate) const LOG: &str = "rows.log";
/// Digits of numbers in names, so that names sort as numbers do.
const DIGITS: usize = 20;

/// Where a collection is. Clones share the store.
#[derive(Debug, Clone)]
pub struct Place {
    store: Arc<dyn Store>,
    path: PathBuf,
    far: bool,
}

impl Place {
    /// The folder or address `path`, whether or not there is anything.
    ///
    /// # Errors
    /// [`CollectionError`] for an address or options that lead nowhere; where a bucket has to be asked how the address is spelled
    /// in it, [`CollectionError::Store`] if it does not answer.
    pub fn at(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Place, CollectionError> {
        let path = path.as_ref();
        if let Some(folder) = bathyal_index::locate::local_folder(path, options)? {
            let store = Arc::new(LocalStore::new(folder, MARK));
            return Ok(Place { store, path: path.to_path_buf(), far: false });
        }
        Place::far(path, options)
    }

    #[cfg(feature = "object")]
    fn far(path: &Path, options: &StoreOptions) -> Result<Place, CollectionError> {
        // What lies within it is what the store is asked for.
        let within = ObjectUrl::parse(&path.join(MARK)).map_err(bathyal_index::IndexError::from)?;
        let store = BucketStore::new(&within, options, MARK)?.with_one_spelling()?;
        Ok(Place { store: Arc::new(store), path: path.to_path_buf(), far: true })
    }

    #[cfg(not(feature = "object"))]
    fn far(path: &Path, options: &StoreOptions) -> Result<Place, CollectionError> {
        // It says which feature is missing.
        let held = bathyal_index::holding(path.join(MARK), options)?;
        Err(CollectionError::Parameter(format!("{}: is no folder", held.store().address().display())))
    }

    /// In a store of the caller's, which holds nothing but this collection and knows generations by [`Place::MARK`].
    pub fn in_store(store: Arc<dyn Store>) -> Place {
        let path = store.address().to_path_buf();
        Place { store, path, far: false }
    }

    /// The object by which a store of [`Place::in_store`] knows generations.
    pub const MARK: &'static str = MARK;

    /// The store.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The folder or the address, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing is there that is in the way of a new collection.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn is_vacant(&self) -> Result<bool, CollectionError> {
        Ok(self.store.list()?.is_empty() && !self.has_others())
    }

    /// Whether the folder holds what is of others. What an interrupted creation has left is not.
    fn has_others(&self) -> bool {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return false };
        let mut names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        !self.far && names.any(|name| !name.starts_with('.') && !name.starts_with("v-"))
    }

    /// The names of folders of parts that are no generations, because their mark is missing: what a repair can still read.
    pub(crate) fn unmarked(&self) -> Result<Vec<String>, CollectionError> {
        let marked = self.store.list()?;
        if self.far {
            return Ok(Vec::new());
        }
        let Ok(entries) = std::fs::read_dir(&self.path) else { return Ok(Vec::new()) };
        let names = entries.flatten().filter(|entry| entry.path().is_dir());
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.filter(|name| Part::of(name).is_some() && !marked.contains(name)).collect())
    }

    /// A generation, also where its mark is missing in a folder that has one of `others`.
    pub(crate) fn open_damaged(
        &self,
        name: &str,
        others: &[&'static str],
    ) -> Result<Arc<dyn Generation>, StoreError> {
        let opened = self.store.open(name);
        let missing =
            matches!(opened, Err(StoreError::Missing { .. } | StoreError::NoGeneration { .. })) && !self.far;
        let mut found = others
            .iter()
            .filter(|_| missing)
            .filter_map(|other| LocalStore::open_at(&self.path.join(name), other).ok());
        found.next().map_or(opened, Ok)
    }

    /// Whether each request to the store takes its time.
    pub(crate) fn is_far(&self) -> bool {
        self.far
    }
}

/// What a generation of a collection is, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// The version of this number.
    Version(u64),
    /// The log whose first record has this sequence number.
    Log(u64),
    /// What belongs to the segment of this name: `None` for its ids and metadata, or the number of a field of vectors.
    Segment(String, Option<usize>),
}

impl Part {
    /// The generation's name.
    pub(crate) fn name(&self) -> String {
        match self {
            Part::Version(number) => format!("v-{number:0DIGITS$}"),
            Part::Log(first) => format!("l-{first:0DIGITS$}"),
            Part::Segment(name, None) => format!("{name}-rows"),
            Part::Segment(name, Some(field)) => format!("{name}-v{field}"),
        }
    }

    /// The part with this name; `None` of a name that is none of ours.
    pub(crate) fn of(name: &str) -> Option<Part> {
        let number = |digits: &str| {
            let plain = digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        if let Some(digits) = name.strip_prefix("v-") {
            return number(digits).map(Part::Version);
        }
        if let Some(digits) = name.strip_prefix("l-") {
            return number(digits).map(Part::Log);
        }
        let (segment, what) = name.rsplit_once('-').filter(|(segment, _)| segment.starts_with("s-"))?;
        match what.strip_prefix('v') {
            None if what == "rows" => Some(Part::Segment(segment.into(), None)),
            Some(field) => field.parse().ok().map(|field| Part::Segment(segment.into(), Some(field))),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_sort_as_numbers_do() {
        let segment = || "s-7-00c0ffee".to_string();
        for part in [
            Part::Version(12),
            Part::Log(u64::MAX),
            Part::Segment(segment(), None),
            Part::Segment(segment(), Some(3)),
        ] {
            assert_eq!(Part::of(&part.name()).as_ref(), Some(&part));
        }
        assert!(Part::Version(9).name() < Part::Version(10).name());
        for other in ["v-1", "v-0000000000000000000x", "s-7", "x", "s-7-vx", "index"] {
            assert_eq!(Part::of(other), None, "{other}");
        }
    }
}
