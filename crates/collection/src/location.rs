//! The location of a collection: its store, and the names of the generations in it (versions, segments,
//! logs).

use crate::error::CollectionError;
use bathyal_index::format::manifest::MANIFEST_NAME;
use bathyal_object::StoreOptions;
#[cfg(feature = "object")]
use bathyal_object::{BucketStore, ObjectUrl};
use bathyal_store::local::LocalStore;
use bathyal_store::{Generation, Store, StoreError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Object that every generation of a collection has; a store recognizes generations by it.
pub(crate) const MARK: &str = MANIFEST_NAME;
/// Object of a log's generation that holds the records.
pub(crate) const LOG: &str = "rows.log";
/// Digits of numbers in names. They are padded so that names sort as numbers do.
const DIGITS: usize = 20;
/// Hexadecimal digits of the name of queries.
pub(crate) const QUERIES_DIGITS: usize = 16;

/// Location of a collection: a store, and a path for messages. Clones share the store.
#[derive(Debug, Clone)]
pub struct CollectionLocation {
    store: Arc<dyn Store>,
    path: PathBuf,
    /// The folder of this machine that holds the collection, if it is in one.
    folder: Option<PathBuf>,
    /// True if every read is a request over the network.
    remote: bool,
}

impl CollectionLocation {
    /// Returns the location at the folder or address `path`, whether or not a collection exists there.
    ///
    /// # Errors
    /// [`CollectionError`] for an invalid address or invalid options. [`CollectionError::Store`] if a bucket
    /// has to be contacted to learn the spelling of the address, and does not answer.
    pub fn at(path: impl AsRef<Path>, options: &StoreOptions) -> Result<CollectionLocation, CollectionError> {
        let path = path.as_ref();
        if let Some(folder) = bathyal_index::locate::local_folder(path, options)? {
            let store = Arc::new(LocalStore::new(folder, MARK));
            let folder = Some(folder.to_path_buf());
            return Ok(CollectionLocation { store, path: path.to_path_buf(), folder, remote: false });
        }
        CollectionLocation::remote(path, options)
    }

    #[cfg(feature = "object")]
    fn remote(path: &Path, options: &StoreOptions) -> Result<CollectionLocation, CollectionError> {
        // The store parses the address of an object inside the collection.
        let within = ObjectUrl::parse(&path.join(MARK)).map_err(bathyal_index::IndexError::from)?;
        let store = BucketStore::new(&within, options, MARK)?.with_one_spelling()?;
        Ok(CollectionLocation {
            store: Arc::new(store),
            path: path.to_path_buf(),
            folder: None,
            remote: true,
        })
    }

    #[cfg(not(feature = "object"))]
    fn remote(path: &Path, options: &StoreOptions) -> Result<CollectionLocation, CollectionError> {
        // This call fails with an error that names the missing feature.
        let held = bathyal_index::holding(path.join(MARK), options)?;
        Err(CollectionError::Parameter(format!("{}: is not a folder", held.store().address().display())))
    }

    /// Returns a location in the caller's own store. The store must hold only this collection, and recognize
    /// generations by [`CollectionLocation::MARK`].
    pub fn in_store(store: Arc<dyn Store>) -> CollectionLocation {
        let path = store.address().to_path_buf();
        CollectionLocation { store, path, folder: None, remote: false }
    }

    /// Object by which the store of [`CollectionLocation::in_store`] must recognize generations.
    pub const MARK: &'static str = MARK;

    /// Returns the store.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the folder or the address, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder of the collection, unless it holds anything.
    pub(crate) fn remove_folder(&self) {
        // Of a link, the folder that it leads to.
        let folder = self.folder.as_ref().and_then(|folder| folder.canonicalize().ok());
        let _ = folder.map(std::fs::remove_dir);
    }

    /// Returns true if a new collection can be created here.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn is_vacant(&self) -> Result<bool, CollectionError> {
        Ok(self.store.list()?.is_empty() && !self.has_others())
    }

    /// Returns true if the folder holds foreign files. Leftovers of an interrupted creation do not count.
    fn has_others(&self) -> bool {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return false };
        let mut names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        !self.remote && names.any(|name| !name.starts_with('.') && !name.starts_with("v-"))
    }

    /// Returns the names of folders of parts whose mark is missing, so that the store does not list them. A
    /// repair can still read them.
    pub(crate) fn unmarked(&self) -> Result<Vec<String>, CollectionError> {
        let marked = self.store.list()?;
        if self.remote {
            return Ok(Vec::new());
        }
        let Ok(entries) = std::fs::read_dir(&self.path) else { return Ok(Vec::new()) };
        let names = entries.flatten().filter(|entry| entry.path().is_dir());
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.filter(|name| Part::parse(name).is_some() && !marked.contains(name)).collect())
    }

    /// Opens a generation. In a folder, if its mark is missing, one of the objects `marks` is enough.
    pub(crate) fn open_damaged(
        &self,
        name: &str,
        marks: &[&'static str],
    ) -> Result<Arc<dyn Generation>, StoreError> {
        let opened = self.store.open(name);
        let missing = matches!(opened, Err(StoreError::Missing { .. } | StoreError::NoGeneration { .. }))
            && !self.remote;
        let mut found = marks
            .iter()
            .filter(|_| missing)
            .filter_map(|mark| LocalStore::open_at(&self.path.join(name), mark).ok());
        found.next().map_or(opened, Ok)
    }

    /// Returns true if every read is a request over the network.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }
}

/// Kind of a generation, as its name tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// The version with this number.
    Version(u64),
    /// The log whose first record has this sequence number.
    Log(u64),
    /// A generation of the segment with this name: `None` for its ids and metadata, or the number of a vector
    /// field.
    Segment(String, Option<usize>),
    /// The queries of a calibration, by their whole name.
    Queries(String),
}

impl Part {
    /// Returns the name of the generation.
    pub(crate) fn name(&self) -> String {
        match self {
            Part::Version(number) => format!("v-{number:0DIGITS$}"),
            Part::Log(first) => format!("l-{first:0DIGITS$}"),
            Part::Segment(name, None) => format!("{name}-rows"),
            Part::Segment(name, Some(field)) => format!("{name}-v{field}"),
            Part::Queries(name) => name.clone(),
        }
    }

    /// Parses the name of a generation; `None` for a foreign name.
    pub(crate) fn parse(name: &str) -> Option<Part> {
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
        if let Some(digits) = name.strip_prefix("q-") {
            let plain = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
            let whole = digits.len() == QUERIES_DIGITS && digits.bytes().all(plain);
            return whole.then(|| Part::Queries(name.into()));
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
    fn names_parse_back_and_sort_in_numeric_order() {
        let segment = || "s-7-00c0ffee".to_string();
        for part in [
            Part::Version(12),
            Part::Log(u64::MAX),
            Part::Segment(segment(), None),
            Part::Segment(segment(), Some(3)),
            Part::Queries("q-00c0ffee00c0ffee".into()),
        ] {
            assert_eq!(Part::parse(&part.name()).as_ref(), Some(&part));
        }
        assert!(Part::Version(9).name() < Part::Version(10).name());
        for other in
            ["v-1", "v-0000000000000000000x", "s-7", "x", "s-7-vx", "q-1", "q-00C0FFEE00C0FFEE", "index"]
        {
            assert_eq!(Part::parse(other), None, "{other}");
        }
    }
}
