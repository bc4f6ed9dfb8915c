//! Pruning: removes generations that were replaced or deleted, and uploads that were never published.
//!
//! The readers of a bucket are unknown, so a replaced generation is kept for a time in which readers reopen
//! the index.

use super::BucketStore;
use super::draft::scratch_name;
use super::record::GenerationRecord;
use crate::client::RequestFault;
use crate::pruning::{PruneOptions, PruneReport};
use crate::runtime::wait_for;
use bathyal_store::StoreError;
use bathyal_store::check_name;
use object_store::ObjectMeta;
use object_store::path::Path as Key;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// A generation that was published.
struct PublishedRecord {
    id: String,
    /// The key of its record.
    record: Key,
    /// The time of its replacement, if it was replaced.
    replaced: SystemTime,
    /// True if it has not been replaced.
    is_current: bool,
}

/// The keys of an index in a bucket.
#[derive(Default)]
pub(super) struct IndexKeys {
    /// The records, newest first.
    records: Vec<ObjectMeta>,
    /// The objects by the id of their generation.
    generations: BTreeMap<String, Vec<ObjectMeta>>,
    /// The copy of the newest record.
    latest: Option<Key>,
}

impl IndexKeys {
    /// Returns true if the index has no keys.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.generations.is_empty() && self.latest.is_none()
    }
}

impl BucketStore {
    /// Removes generations and uploads of the index `name` that were replaced, deleted or abandoned longer
    /// ago than `options` say. The current generation is kept, and so are generations that were replaced
    /// later, which readers may still need.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if the index has no keys; after any other [`StoreError`], some of the objects
    /// are removed.
    pub fn prune(&self, name: &str, options: &PruneOptions) -> Result<PruneReport, StoreError> {
        check_name(name)?;
        let mut pruned: Option<PruneReport> = None;
        for store in self.spellings(name) {
            let found = store.list_keys(name)?;
            if !found.records.is_empty() || !found.generations.is_empty() {
                pruned.get_or_insert_default().add(store.prune_found(name, found, options)?);
            }
        }
        pruned.ok_or_else(|| StoreError::Missing { what: "index", path: self.layout.path(name) })
    }

    fn prune_found(
        &self,
        name: &str,
        mut found: IndexKeys,
        options: &PruneOptions,
    ) -> Result<PruneReport, StoreError> {
        let published = self.published(name, &found.records)?;
        // A generation whose objects are all in its record has no other keys.
        for old in &published {
            found.generations.entry(old.id.clone()).or_default();
        }
        let now = SystemTime::now();
        // A store whose clock is ahead reports times after `now`.
        let is_old = |time: SystemTime| now.duration_since(time).unwrap_or_default() >= options.kept;
        let (mut pruned, mut keys, mut records) = (PruneReport::default(), Vec::new(), Vec::new());
        for (id, objects) in found.generations {
            let old = published.iter().find(|old| old.id == id);
            if old.is_some_and(|old| old.is_current) {
                continue;
            }
            let last_modified = objects.iter().map(|object| SystemTime::from(object.last_modified)).max();
            if !old.map(|old| old.replaced).or(last_modified).is_some_and(is_old) {
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
            // The records are removed after the objects that they name.
            self.delete_keys(name, records)?;
        }
        Ok(pruned)
    }

    /// Returns the published generations of the records. The newest record is left out if it records a
    /// deletion: it is kept, since its number must not be used again.
    fn published(&self, name: &str, records: &[ObjectMeta]) -> Result<Vec<PublishedRecord>, StoreError> {
        let mut found = Vec::new();
        let mut since = None;
        for (i, meta) in records.iter().enumerate() {
            let bytes = wait_for(self.client.get(&meta.location, &self.traffic))?;
            let bytes = bytes.map_err(|fault| self.failed(name, fault))?;
            let record = GenerationRecord::parse(&bytes, &self.layout.path_of(&meta.location))?;
            let published = SystemTime::from(meta.last_modified);
            if i > 0 || !record.deleted {
                // Each generation was replaced when the next one was published.
                let replaced = since.unwrap_or(published);
                found.push(PublishedRecord {
                    id: record.id,
                    record: meta.location.clone(),
                    replaced,
                    is_current: i == 0,
                });
            }
            since = Some(published);
        }
        Ok(found)
    }

    /// Returns true if objects or records of `name` exist, or local files of an unfinished upload.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not respond.
    pub fn has_leftovers(&self, name: &str) -> Result<bool, StoreError> {
        if self.scratch.has_leftovers(&scratch_name(name))? {
            return Ok(true);
        }
        for store in self.spellings(name) {
            if !store.list_keys(name)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes all keys of an index whose newest record, if there is one, records a deletion. That record is
    /// removed last: while it exists, the index counts as deleted.
    pub(super) fn erase_keys(&self, name: &str) -> Result<(), StoreError> {
        let found = self.list_keys(name)?;
        let objects = found.generations.into_values().flatten().map(|object| object.location);
        self.delete_keys(name, objects.chain(found.latest).collect())?;
        let mut records: Vec<Key> = found.records.into_iter().map(|record| record.location).collect();
        let older = records.split_off(records.len().min(1));
        self.delete_keys(name, older)?;
        self.delete_keys(name, records)
    }

    fn failed(&self, name: &str, fault: RequestFault) -> StoreError {
        fault.error("prune", self.layout.path(name))
    }

    fn delete_keys(&self, name: &str, keys: Vec<Key>) -> Result<(), StoreError> {
        wait_for(self.client.delete(keys, &self.traffic))?.map_err(|fault| self.failed(name, fault))
    }

    /// Lists the keys of the index `name`.
    pub(super) fn list_keys(&self, name: &str) -> Result<IndexKeys, StoreError> {
        let listed = wait_for(self.client.list(&self.layout.index(name), &self.traffic))?;
        let mut found = IndexKeys::default();
        for object in listed.map_err(|fault| self.failed(name, fault))? {
            match self.layout.id_of(name, &object.location) {
                Some(id) => found.generations.entry(id).or_default().push(object),
                None if object.location.prefix_matches(&self.layout.records(name)) => {
                    found.records.push(object)
                }
                None if object.location == self.layout.latest(name) => found.latest = Some(object.location),
                // A foreign object.
                None => {}
            }
        }
        Ok(found)
    }
}
