//! Removing what nobody needs any more: generations that were replaced or deleted, and uploads that were never published.
//!
//! A bucket does not know who reads from it, so what was replaced stays for a time in which readers open the index again.

use super::{BucketStore, check_name};
use crate::client::Fault;
use crate::runtime::wait_for;
use bathyal_store::StoreError;
use object_store::ObjectMeta;
use object_store::path::Path as Key;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

/// How long what was replaced stays by default: longer than anybody keeps an index open without a look.
const DEFAULT_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What to remove.
#[derive(Debug, Clone, Copy)]
pub struct PruneOptions {
    /// What was replaced, deleted or left within this time stays.
    pub kept: Duration,
    /// Whether to say what would be removed, and to remove nothing.
    pub dry_run: bool,
}

impl Default for PruneOptions {
    fn default() -> Self {
        PruneOptions { kept: DEFAULT_KEPT, dry_run: false }
    }
}

/// What was removed, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Generations that were replaced or deleted.
    pub generations: u64,
    /// Uploads that were never published.
    pub unfinished: u64,
    /// Objects of both.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Generations and uploads that are not old enough.
    pub kept: u64,
}

/// What of an index is in a bucket.
#[derive(Default)]
struct Found {
    /// Records, the newest first.
    records: Vec<ObjectMeta>,
    /// Objects by the generation that they belong to.
    generations: BTreeMap<String, Vec<ObjectMeta>>,
}

impl BucketStore {
    /// Removes what of the index `name` was replaced, deleted or left longer ago than `options` say. What stands under the name
    /// stays, and so does what readers of what was replaced later still need.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if nothing was ever there; [`StoreError`], and what was removed is removed then.
    pub fn prune(&self, name: &str, options: &PruneOptions) -> Result<Pruned, StoreError> {
        check_name(name)?;
        let found = self.found(name)?;
        let newest = self.newest(name)?;
        let Some(newest) = newest else {
            if found.generations.is_empty() {
                return Err(StoreError::Missing { what: "index", path: self.layout.path(name) });
            }
            return self.prune_all(name, &found, &BTreeMap::new(), None, options);
        };
        // Each was replaced when the one after it was published.
        let mut replaced: BTreeMap<String, SystemTime> = BTreeMap::new();
        let mut standing = None;
        let mut published_after = SystemTime::from(
            found.records.first().map_or_else(|| SystemTime::UNIX_EPOCH.into(), |first| first.last_modified),
        );
        if !newest.deleted {
            standing = Some(newest.id.clone());
        }
        for meta in found.records.iter().skip(usize::from(standing.is_some())) {
            let bytes = wait_for(self.client.get(&meta.location, &self.traffic))?;
            let bytes = bytes.map_err(|fault| self.failed(name, fault))?;
            let record = super::record::Record::parse(&bytes, &self.layout.path_of(&meta.location))?;
            replaced.insert(record.id, published_after);
            published_after = meta.last_modified.into();
        }
        self.prune_all(name, &found, &replaced, standing.as_deref(), options)
    }

    fn prune_all(
        &self,
        name: &str,
        found: &Found,
        replaced: &BTreeMap<String, SystemTime>,
        standing: Option<&str>,
        options: &PruneOptions,
    ) -> Result<Pruned, StoreError> {
        let now = SystemTime::now();
        let is_old = |time: SystemTime| now.duration_since(time).is_ok_and(|age| age >= options.kept);
        let mut pruned = Pruned::default();
        let mut keys: Vec<Key> = Vec::new();
        let mut stays: BTreeSet<&str> = standing.into_iter().collect();
        for (id, objects) in &found.generations {
            if Some(id.as_str()) == standing {
                continue;
            }
            let left = objects.iter().map(|object| SystemTime::from(object.last_modified)).max();
            let since = replaced.get(id).copied().or(left);
            if !since.is_some_and(is_old) {
                stays.insert(id);
                pruned.kept += 1;
                continue;
            }
            pruned.objects += objects.len() as u64;
            pruned.bytes += objects.iter().map(|object| object.size).sum::<u64>();
            if replaced.contains_key(id) {
                pruned.generations += 1
            } else {
                pruned.unfinished += 1
            }
            keys.extend(objects.iter().map(|object| object.location.clone()));
        }
        if options.dry_run {
            return Ok(pruned);
        }
        self.delete_keys(name, keys)?;
        // Records go after what they name; the newest one stays, since its number must not be given again.
        let old = found.records.iter().skip(1).filter(|record| is_old(record.last_modified.into()));
        let ids: BTreeSet<&String> =
            replaced.iter().filter(|(id, _)| stays.contains(id.as_str())).map(|(id, _)| id).collect();
        let old: Vec<Key> =
            if ids.is_empty() { old.map(|record| record.location.clone()).collect() } else { Vec::new() };
        self.delete_keys(name, old)?;
        Ok(pruned)
    }

    fn failed(&self, name: &str, fault: Fault) -> StoreError {
        fault.error("prune", self.layout.path(name))
    }

    fn delete_keys(&self, name: &str, keys: Vec<Key>) -> Result<(), StoreError> {
        wait_for(self.client.delete(keys, &self.traffic))?.map_err(|fault| self.failed(name, fault))
    }

    /// Removes the objects of a generation that was never published.
    pub(super) fn remove(&self, name: &str, id: &str) -> Result<(), StoreError> {
        let listed = wait_for(self.client.list(&self.layout.generation(name, id), &self.traffic))?;
        let listed = listed.map_err(|fault| self.failed(name, fault))?;
        self.delete_keys(name, listed.into_iter().map(|object| object.location).collect())
    }

    fn found(&self, name: &str) -> Result<Found, StoreError> {
        let listed = wait_for(self.client.list(&self.layout.index(name), &self.traffic))?;
        let mut found = Found::default();
        for object in listed.map_err(|fault| self.failed(name, fault))? {
            match self.layout.id_of(name, &object.location) {
                Some(id) => found.generations.entry(id).or_default().push(object),
                None if object.location.prefix_matches(&self.layout.records(name)) => {
                    found.records.push(object)
                }
                // Something that is not ours.
                None => {}
            }
        }
        Ok(found)
    }
}
