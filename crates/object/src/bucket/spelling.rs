//! The two spellings of a name as a key: as it was typed or, for indexes written by earlier versions,
//! percent-encoded.
//!
//! The typed keys are looked up first. An index that exists only under the encoded keys is found, replaced
//! and removed there, so that one name never has two indexes unnoticed. A name with the same key in both
//! spellings takes no additional request.

use super::layout::{BucketLayout, Spelling};
use super::record::GenerationRecord;
use super::{BucketStore, MOST_KEY_BYTES};
use crate::runtime::wait_for;
use bathyal_store::{Replace, StoreError, Traffic, check_name};
use futures_util::{StreamExt, TryStreamExt};
use std::path::Path;

/// The number of names that are looked up concurrently.
const CONCURRENT_LOOKUPS: usize = 32;
/// The most bytes that the files of an index add to its key: `/`, the generation, `/changes/`, the log, `/`,
/// a number; and in a collection the name of a segment.
const MAX_FILE_KEY_BYTES: usize = 128;

impl BucketStore {
    /// Returns a store for each spelling that `name` may have, in the order in which they are looked up. Each
    /// of these stores uses one spelling only.
    pub(super) fn spellings(&self, name: &str) -> Vec<BucketStore> {
        if self.one_spelling {
            return vec![self.clone()];
        }
        let encoded = self.with_spelling(Spelling::Encoded);
        let differs = encoded.layout.index(name) != self.layout.index(name);
        [Some(self.with_layout(self.layout.clone())), differs.then_some(encoded)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns the store whose names have this spelling only.
    pub(super) fn with_spelling(&self, spelling: Spelling) -> BucketStore {
        self.with_layout(self.layout.with_spelling(spelling))
    }

    fn with_layout(&self, layout: BucketLayout) -> BucketStore {
        BucketStore { layout, one_spelling: true, ..self.clone() }
    }

    /// Returns the store of the spelling under which `name` is published, and its record; the store of the
    /// first spelling and `None` if it is not published.
    pub(super) fn find_published(
        &self,
        name: &str,
        traffic: &Traffic,
    ) -> Result<(BucketStore, Option<GenerationRecord>), StoreError> {
        wait_for(self.find_published_async(name, traffic))?
    }

    async fn find_published_async(
        &self,
        name: &str,
        traffic: &Traffic,
    ) -> Result<(BucketStore, Option<GenerationRecord>), StoreError> {
        let mut spellings = self.spellings(name);
        for store in &spellings {
            let newest = store.find_newest(name, traffic).await?;
            if let Some(record) = newest.filter(|record| !record.deleted) {
                return Ok((store.clone(), Some(record)));
            }
        }
        Ok((spellings.swap_remove(0), None))
    }

    /// Returns the store of the spelling under which `name` is to be written, and true if a published
    /// generation would be replaced.
    pub(super) fn writable_store(
        &self,
        name: &str,
        replace: Replace,
    ) -> Result<(BucketStore, bool), StoreError> {
        check_name(name)?;
        if name.contains(char::is_control) {
            return Err(StoreError::Name { name: name.to_owned() });
        }
        let (store, record) = self.find_published(name, &self.traffic)?;
        let path = store.layout.path(name);
        if replace == Replace::Never && record.is_some() {
            return Err(StoreError::Exists { path });
        }
        if record.is_none() && store.layout.index(name).as_ref().contains('\\') {
            return Err(StoreError::Address(format!(
                "{}: the name contains a backslash, which some stores treat as a slash; choose another name",
                path.display()
            )));
        }
        let bytes = store.layout.index(name).as_ref().len();
        if bytes + MAX_FILE_KEY_BYTES > MOST_KEY_BYTES {
            return Err(StoreError::Address(format!(
                "{}: is too long: its key has {bytes} bytes and can have at most {}, since stores allow \
                 {MOST_KEY_BYTES} and the files of an index add up to {MAX_FILE_KEY_BYTES}; shorten the \
                 names",
                path.display(),
                MOST_KEY_BYTES - MAX_FILE_KEY_BYTES
            )));
        }
        Ok((store, record.is_some()))
    }

    /// Returns the store with one spelling for all names: the typed one, unless there are generations only in
    /// the folder of the encoded one. For a store whose generations all belong together.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not respond. Requests are sent only if the two spellings differ.
    pub fn with_one_spelling(self) -> Result<BucketStore, StoreError> {
        let encoded = self.with_spelling(Spelling::Encoded);
        let typed = self.with_layout(self.layout.clone());
        if encoded.layout.folder() == typed.layout.folder() || typed.any_published(&typed.names()?)? {
            return Ok(typed);
        }
        let is_encoded = encoded.any_published(&encoded.names()?)?;
        Ok(if is_encoded { encoded } else { typed })
    }

    /// Returns the names, sorted, of the folders in the bucket that may be generations.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not respond.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names = self.names_below(&self.layout)?;
        let encoded = self.layout.with_spelling(Spelling::Encoded);
        if !self.one_spelling && encoded.folder() != self.layout.folder() {
            names.extend(self.names_below(&encoded)?);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Returns the names, sorted, of the folders within the folder `folder` of the bucket, which may itself
    /// be a generation.
    ///
    /// # Errors
    /// As [`BucketStore::names`].
    pub fn names_in(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        for store in self.spellings(folder) {
            names.extend(self.names_below(&store.layout.subfolder(folder))?);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Returns true if one of `names` is published in the folder `folder` of the bucket, or in the store's
    /// own folder. The names are looked up from the last one on. A folder that a server keeps although it is
    /// empty is listed as a name, but is not published.
    ///
    /// # Errors
    /// As [`BucketStore::names`].
    pub fn any_published_in(&self, folder: Option<&str>, names: &[String]) -> Result<bool, StoreError> {
        let Some(folder) = folder else { return self.any_published(names) };
        for store in self.spellings(folder) {
            if store.with_layout(store.layout.subfolder(folder)).any_published(names)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn any_published(&self, names: &[String]) -> Result<bool, StoreError> {
        let lookup = |name: &String| {
            let name = name.clone();
            async move {
                let published = self.find_published_async(&name, &self.traffic).await?;
                Ok::<_, StoreError>(published.1.is_some())
            }
        };
        let lookups = futures_util::stream::iter(names.iter().rev().map(lookup)).buffered(CONCURRENT_LOOKUPS);
        let first_published = async {
            std::pin::pin!(lookups.try_skip_while(|found| std::future::ready(Ok(!found)))).try_next().await
        };
        Ok(wait_for(first_published)??.is_some())
    }

    fn names_below(&self, layout: &BucketLayout) -> Result<Vec<String>, StoreError> {
        let path: &Path = layout.address();
        let found = wait_for(self.client.children(layout.folder(), &self.traffic))?
            .map_err(|fault| fault.error("list", path))?;
        let names = found.common_prefixes.iter().filter_map(|prefix| layout.name_of(prefix));
        Ok(names.filter(|name| check_name(name).is_ok()).collect())
    }

    /// Returns the names as [`BucketStore::names`] does, each with true if a generation is published under
    /// it.
    pub(super) fn folders(&self) -> Result<Vec<(String, bool)>, StoreError> {
        let lookup = |name: String| async move {
            let (_, record) = self.find_published_async(&name, &self.traffic).await?;
            Ok::<_, StoreError>((name, record.is_some()))
        };
        let lookups = futures_util::stream::iter(self.names()?).map(lookup).buffered(CONCURRENT_LOOKUPS);
        wait_for(lookups.try_collect::<Vec<_>>())?
    }
}
