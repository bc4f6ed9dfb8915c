//! Removing what nobody needs any more: generations that were replaced or deleted, and uploads that were never published.
//!
//! A bucket does not know who reads from it, so what was replaced stays for a time in which readers open the index again.

use super::BucketStore;
use super::record::Record;
use crate::client::Fault;
use crate::pruning::{PruneOptions, Pruned};
use crate::runtime::wait_for;
use bathyal_store::StoreError;
use bathyal_store::check_name;
use object_store::ObjectMeta;
use object_store::path::Path as Key;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// A generation that was published.
struct Replaced {
    id: String,
    /// The key of its record.
    record: Key,
    /// When it was replaced.
    replaced: SystemTime,
    /// It was not.
    stands: bool,
}

/// What of an index is in a bucket.
#[derive(Default)]
pub(super) struct Found {
    /// Records, the newest first.
    records: Vec<ObjectMeta>,
    /// Objects by the generation that they belong to.
    generations: BTreeMap<String, Vec<ObjectMeta>>,
    /// The copy of the newest record.
    latest: Option<Key>,
}

impl Found {
    /// Whether nothing is there that was written by a store.
    pub(super) fn is_nothing(&self) -> bool {
        self.records.is_empty() && self.generations.is_empty() && self.latest.is_none()
    }
}

impl BucketStore {
    /// Removes what of the index `name` was replaced, deleted or left longer ago than `options` say. What stands under the name
    /// stays, and so does what was replaced later, which readers may still need.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if nothing was ever there; [`StoreError`], and what was removed is removed then.
    pub fn prune(&self, name: &str, options: &PruneOptions) -> Result<Pruned, StoreError> {
        check_name(name)?;
        let mut pruned: Option<Pruned> = None;
        for store in self.spellings(name) {
            let found = store.found(name)?;
            if !found.records.is_empty() || !found.generations.is_empty() {
                pruned.get_or_insert_default().add(store.prune_found(name, found, options)?);
            }
        }
        pruned.ok_or_else(|| StoreError::Missing { what: "index", path: self.layout.path(name) })
    }

    fn prune_found(
        &self,
        name: &str,
        mut found: Found,
        options: &PruneOptions,
    ) -> Result<Pruned, StoreError> {
        let replaced = self.replaced(name, &found.records)?;
        // One whose objects all lie in its record has none besides.
        for old in &replaced {
            found.generations.entry(old.id.clone()).or_default();
        }
        let now = SystemTime::now();
        // A store whose clock is ahead says later than now.
        let is_old = |time: SystemTime| now.duration_since(time).unwrap_or_default() >= options.kept;
        let (mut pruned, mut keys, mut records) = (Pruned::default(), Vec::new(), Vec::new());
        for (id, objects) in found.generations {
            let old = replaced.iter().find(|old| old.id == id);
            if old.is_some_and(|old| old.stands) {
                continue;
            }
            let left = objects.iter().map(|object| SystemTime::from(object.last_modified)).max();
            if !old.map(|old| old.replaced).or(left).is_some_and(is_old) {
                pruned.kept += 1;
                continue;
            }
            let count = if old.is_some() { &mut pruned.generations } else { &mut pruned.unfinished };
            *count += 1;
            pruned.objects += objects.len() as u64;
            pruned.bytes += objects.iter().map(|object| object.size).sum::<u64>();
            keys.extend(objects.into_iter().map(|object| object.location));
            records.extend(old.map(|old| old.record.clone()));
        }
        if !options.dry_run {
            self.delete_keys(name, keys)?;
            // After what they name.
            self.delete_keys(name, records)?;
        }
        Ok(pruned)
    }

    /// What the records say: generations, and when each was replaced. The newest record is none of them if it says that
    /// nothing stands there: it stays, since its number must not be given again.
    fn replaced(&self, name: &str, records: &[ObjectMeta]) -> Result<Vec<Replaced>, StoreError> {
        let mut found = Vec::new();
        let mut since = None;
        for (i, meta) in records.iter().enumerate() {
            let bytes = wait_for(self.client.get(&meta.location, &self.traffic))?;
            let bytes = bytes.map_err(|fault| self.failed(name, fault))?;
            let record = Record::parse(&bytes, &self.layout.path_of(&meta.location))?;
            let published = SystemTime::from(meta.last_modified);
            if i > 0 || !record.deleted {
                // Each was replaced when the one after it was published.
                let replaced = since.unwrap_or(published);
                found.push(Replaced {
                    id: record.id,
                    record: meta.location.clone(),
                    replaced,
                    stands: i == 0,
                });
            }
            since = Some(published);
        }
        Ok(found)
    }

    /// Removes all keys of an index whose newest record, if there is one, says that nothing stands there. That record goes last: as
    /// long as it is there, nothing does.
    pub(super) fn erase_keys(&self, name: &str) -> Result<(), StoreError> {
        let found = self.found(name)?;
        let objects = found.generations.into_values().flatten().map(|object| object.location);
        self.delete_keys(name, objects.chain(found.latest).collect())?;
        let mut records: Vec<Key> = found.records.into_iter().map(|record| record.location).collect();
        let older = records.split_off(records.len().min(1));
        self.delete_keys(name, older)?;
        self.delete_keys(name, records)
    }

    fn failed(&self, name: &str, fault: Fault) -> StoreError {
        fault.error("prune", self.layout.path(name))
    }

    fn delete_keys(&self, name: &str, keys: Vec<Key>) -> Result<(), StoreError> {
        wait_for(self.client.delete(keys, &self.traffic))?.map_err(|fault| self.failed(name, fault))
    }

    pub(super) fn found(&self, name: &str) -> Result<Found, StoreError> {
        let listed = wait_for(self.client.list(&self.layout.index(name), &self.traffic))?;
        let mut found = Found::default();
        for object in listed.map_err(|fault| self.failed(name, fault))? {
            match self.layout.id_of(name, &object.location) {
                Some(id) => found.generations.entry(id).or_default().push(object),
                None if object.location.prefix_matches(&self.layout.records(name)) => {
                    found.records.push(object)
                }
                None if object.location == self.layout.latest(name) => found.latest = Some(object.location),
                // Something that is not ours.
                None => {}
            }
        }
        Ok(found)
    }
}
