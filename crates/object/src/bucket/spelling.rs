//! Which keys a name has: those that were typed or, where an earlier version wrote the index, their encoded form.
//!
//! What stands under the typed keys comes first. What stands under the encoded ones alone is found, replaced and removed there, so
//! that one name never has two indexes in silence. Names that both spell alike take no request more.

use super::layout::{Layout, Spelling};
use super::record::Record;
use super::{BucketStore, MOST_KEY_BYTES};
use crate::runtime::wait_for;
use bathyal_store::{Replace, StoreError, Traffic, check_name};
use futures_util::{StreamExt, TryStreamExt};
use std::path::Path;

/// Names that are looked at together.
const LISTED_AT_ONCE: usize = 32;
/// Bytes that the files of an index add to its key at most: `/`, the generation, `/changes/`, the log, `/`, a number; and in a
/// collection the name of a segment.
const FILE_BYTES: usize = 128;

impl BucketStore {
    /// The stores of the keys that `name` may have, in the order in which they are looked at. None of them has another one.
    pub(super) fn spellings(&self, name: &str) -> Vec<BucketStore> {
        if self.settled {
            return vec![self.clone()];
        }
        let encoded = self.spelled(Spelling::Encoded);
        let differs = encoded.layout.index(name) != self.layout.index(name);
        [Some(self.with(self.layout.clone())), differs.then_some(encoded)].into_iter().flatten().collect()
    }

    /// The store of names that are spelled like this.
    pub(super) fn spelled(&self, spelling: Spelling) -> BucketStore {
        self.with(self.layout.spelled(spelling))
    }

    fn with(&self, layout: Layout) -> BucketStore {
        BucketStore { layout, settled: true, ..self.clone() }
    }

    /// Where `name` stands, and its record; the first place, and `None`, if it stands nowhere.
    pub(super) fn standing(
        &self,
        name: &str,
        traffic: &Traffic,
    ) -> Result<(BucketStore, Option<Record>), StoreError> {
        wait_for(self.find_standing(name, traffic))?
    }

    async fn find_standing(
        &self,
        name: &str,
        traffic: &Traffic,
    ) -> Result<(BucketStore, Option<Record>), StoreError> {
        let mut spellings = self.spellings(name);
        for store in &spellings {
            let newest = store.find_newest(name, traffic).await?;
            if let Some(record) = newest.filter(|record| !record.deleted) {
                return Ok((store.clone(), Some(record)));
            }
        }
        Ok((spellings.swap_remove(0), None))
    }

    /// Where `name` is written, and whether something stands there that is replaced.
    pub(super) fn writable(&self, name: &str, replace: Replace) -> Result<(BucketStore, bool), StoreError> {
        check_name(name)?;
        if name.contains(char::is_control) {
            return Err(StoreError::Name { name: name.to_owned() });
        }
        let (store, record) = self.standing(name, &self.traffic)?;
        let path = store.layout.path(name);
        if replace == Replace::Never && record.is_some() {
            return Err(StoreError::Exists { path });
        }
        if record.is_none() && store.layout.index(name).as_ref().contains('\\') {
            return Err(StoreError::Address(format!(
                "{}: has a backslash in it, which some stores take for a slash; choose another name",
                path.display()
            )));
        }
        let bytes = store.layout.index(name).as_ref().len();
        if bytes + FILE_BYTES > MOST_KEY_BYTES {
            return Err(StoreError::Address(format!(
                "{}: is too long: its key has {bytes} bytes and can have {}, since stores take {MOST_KEY_BYTES} and files of an \
                 index add up to {FILE_BYTES}; shorten the names",
                path.display(),
                MOST_KEY_BYTES - FILE_BYTES
            )));
        }
        Ok((store, record.is_some()))
    }

    /// The store with keys of one spelling for all names: the typed one, unless generations stand in the folder of the encoded one
    /// alone. For a store of which all generations belong together.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer. It is asked only where the two differ.
    pub fn settle(self) -> Result<BucketStore, StoreError> {
        let encoded = self.spelled(Spelling::Encoded);
        let typed = self.with(self.layout.clone());
        if encoded.layout.folder() == typed.layout.folder() || typed.any_stands(&typed.names()?)? {
            return Ok(typed);
        }
        let stands = encoded.any_stands(&encoded.names()?)?;
        Ok(if stands { encoded } else { typed })
    }

    /// The names of folders in the bucket that generations may have, in order.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names = self.names_below(&self.layout)?;
        let encoded = self.layout.spelled(Spelling::Encoded);
        if !self.settled && encoded.folder() != self.layout.folder() {
            names.extend(self.names_below(&encoded)?);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// The same of a folder in the bucket, which may be a generation or none.
    ///
    /// # Errors
    /// As [`BucketStore::names`].
    pub fn names_in(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        for store in self.spellings(folder) {
            names.extend(self.names_below(&store.layout.inside(folder))?);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Whether one of `names` stands in the folder `folder` of the bucket, or in the store's own folder. They are looked at from the
    /// last one on. A folder that a server keeps although it is empty has names, and nothing stands there.
    ///
    /// # Errors
    /// As [`BucketStore::names`].
    pub fn stands_in(&self, folder: Option<&str>, names: &[String]) -> Result<bool, StoreError> {
        let Some(folder) = folder else { return self.any_stands(names) };
        for store in self.spellings(folder) {
            if store.with(store.layout.inside(folder)).any_stands(names)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn any_stands(&self, names: &[String]) -> Result<bool, StoreError> {
        let look = |name: &String| {
            let name = name.clone();
            async move { Ok::<_, StoreError>(self.find_standing(&name, &self.traffic).await?.1.is_some()) }
        };
        let looks = futures_util::stream::iter(names.iter().rev().map(look)).buffered(LISTED_AT_ONCE);
        let stands = async {
            std::pin::pin!(looks.try_skip_while(|stands| std::future::ready(Ok(!stands)))).try_next().await
        };
        Ok(wait_for(stands)??.is_some())
    }

    fn names_below(&self, layout: &Layout) -> Result<Vec<String>, StoreError> {
        let path: &Path = layout.address();
        let found = wait_for(self.client.children(layout.folder(), &self.traffic))?
            .map_err(|fault| fault.error("list", path))?;
        let names = found.common_prefixes.iter().filter_map(|prefix| layout.name_of(prefix));
        Ok(names.filter(|name| check_name(name).is_ok()).collect())
    }

    /// The same, each with whether a generation stands there.
    pub(super) fn folders(&self) -> Result<Vec<(String, bool)>, StoreError> {
        let look = |name: String| async move {
            let (_, record) = self.find_standing(&name, &self.traffic).await?;
            Ok::<_, StoreError>((name, record.is_some()))
        };
        let looks = futures_util::stream::iter(self.names()?).map(look).buffered(LISTED_AT_ONCE);
        wait_for(looks.try_collect::<Vec<_>>())?
    }
}
