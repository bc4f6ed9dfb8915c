//! A store of generations in a bucket.
//!
//! The objects of a generation have a random prefix of their own and never change. A small *record* says
//! which generation has the index's name. Records are numbered and created, never replaced: of two concurrent
//! writers, the second gets an error. A replaced generation is kept until it is pruned, so that its readers
//! can continue. docs/format/bucket.md describes the layout.

mod draft;
mod generation;
mod layout;
mod log;
mod prune;
mod read_ahead;
mod record;
mod spelling;
mod upload;
#[cfg(test)]
mod versions;

use crate::cache::Cache;
use crate::client::{Cause, Client, Created, RequestFault};
use crate::connect::{MOST_KEY_BYTES, ObjectUrl, StoreOptions, connect};
use crate::runtime::wait_for;
use bathyal_store::local::LocalStore;
use bathyal_store::{
    Draft, Generation, Prices, Replace, Store, StoreError, Traffic, check_name, default_cache_folder,
};
use bytes::Bytes;
use draft::{BucketDraft, scratch_name};
use generation::PublishedGeneration;
use layout::BucketLayout;
use record::GenerationRecord;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for the copy of the latest record, which is optional.
const LATEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts at a step that other writers or a prune can interfere with.
const MAX_ATTEMPTS: usize = 16;

/// A store of generations in a folder of a bucket.
#[derive(Debug, Clone)]
pub struct BucketStore {
    client: Arc<Client>,
    layout: BucketLayout,
    /// True if names map only to keys in the spelling of `layout`.
    one_spelling: bool,
    mark: &'static str,
    prices: Prices,
    /// The local store in which drafts are written before they are uploaded.
    scratch: LocalStore,
    /// The cache that published generations are read through.
    cache: Option<Arc<Cache>>,
    /// Counts of all requests to the bucket except the reads of generations.
    traffic: Arc<Traffic>,
}

impl BucketStore {
    /// Makes the store that contains the generation at `url`, which need not exist. Each of its generations
    /// contains an object named `mark`. Sends no request.
    ///
    /// # Errors
    /// [`StoreError::Address`] for options that the provider does not have; [`StoreError`] if threads cannot
    /// be started.
    pub fn new(
        url: &ObjectUrl,
        options: &StoreOptions,
        mark: &'static str,
    ) -> Result<BucketStore, StoreError> {
        let client = connect(url, options)?;
        let layout = BucketLayout::new(url);
        let folder = match &options.scratch {
            Some(folder) => folder.clone(),
            None => default_cache_folder("scratch=FOLDER")?.join("uploads"),
        };
        let address_hash = xxhash_rust::xxh3::xxh3_64(layout.address().as_os_str().as_encoded_bytes());
        let scratch = LocalStore::new(folder.join(format!("{address_hash:016x}")), mark);
        let prices = options.prices(url.provider);
        let cache = options.cache().as_ref().map(Cache::shared).transpose()?;
        Ok(BucketStore {
            client,
            layout,
            one_spelling: false,
            mark,
            prices,
            scratch,
            cache,
            traffic: Arc::default(),
        })
    }

    /// Returns the client that sends its requests.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns the cache that published generations are read through, if any.
    pub fn cache(&self) -> Option<&Arc<Cache>> {
        self.cache.as_ref()
    }

    /// Returns the local folder in which drafts are written before they are uploaded.
    pub fn scratch(&self) -> &Path {
        self.scratch.address()
    }

    /// Returns the newest record of `name`, under the keys of this layout; `None` if there is none.
    fn newest(&self, name: &str) -> Result<Option<GenerationRecord>, StoreError> {
        wait_for(self.find_newest(name, &self.traffic))?
    }

    async fn find_newest(
        &self,
        name: &str,
        traffic: &Traffic,
    ) -> Result<Option<GenerationRecord>, StoreError> {
        let path = self.layout.path(name);
        let failed = |fault: RequestFault| fault.error("look for", &path);
        // The record may be pruned between the listing and the read, so both are repeated.
        for _ in 0..MAX_ATTEMPTS {
            let records = self.layout.records(name);
            let listed = self.client.list(&records, traffic);
            // The copy usually equals the newest record. It is requested together with the listing that shows
            // which record is the newest.
            let (listed, latest) = tokio::join!(listed, self.latest(name, traffic));
            // A store that treats other characters as slashes lists keys of other folders, too.
            let mut listed = listed.map_err(failed)?;
            listed.retain(|record| record.location.prefix_matches(&records));
            let Some(first) = listed.first() else { return Ok(None) };
            if let Some(latest) = latest
                && self.layout.record(name, latest.number) == first.location
            {
                return Ok(Some(latest));
            }
            match self.client.get(&first.location, traffic).await {
                Ok(bytes) => {
                    return GenerationRecord::parse(&bytes, &self.layout.path_of(&first.location)).map(Some);
                }
                Err(fault) if fault.cause == Cause::Gone => {}
                Err(fault) => return Err(failed(fault)),
            }
        }
        Err(StoreError::Replaced { path })
    }

    /// Reads the copy of the latest record. It may be older than the newest record if another writer
    /// published later. Returns `None` if it cannot be read soon.
    async fn latest(&self, name: &str, traffic: &Traffic) -> Option<GenerationRecord> {
        let key = self.layout.latest(name);
        let bytes =
            tokio::time::timeout(LATEST_TIMEOUT, self.client.get_once(&key, traffic)).await.ok()?.ok()?;
        GenerationRecord::parse(&bytes, &self.layout.path_of(&key)).ok()
    }

    /// Publishes `record` as the newest one of `name`, with the next number.
    fn publish(&self, name: &str, mut record: GenerationRecord, replace: Replace) -> Result<(), StoreError> {
        let path = self.layout.path(name);
        for _ in 0..MAX_ATTEMPTS {
            let newest = self.newest(name)?;
            match &newest {
                // An earlier attempt has created it, but its response was lost.
                Some(newest) if newest.id == record.id => return Ok(()),
                Some(newest) if replace == Replace::Never && !newest.deleted => {
                    return Err(StoreError::Exists { path });
                }
                _ => {}
            }
            record.number = newest.map_or(0, |newest| newest.number) + 1;
            let key = self.layout.record(name, record.number);
            let bytes = Bytes::from(record.to_bytes()?);
            let created = wait_for(self.client.create(&key, bytes.clone(), &self.traffic))?;
            if created.map_err(|fault| fault.error("publish", &path))? == Created::Ours {
                // The copy saves readers a request; they can do without it.
                let _ = wait_for(self.client.put(&self.layout.latest(name), bytes, &self.traffic))?;
                return Ok(());
            }
        }
        Err(StoreError::Busy { path })
    }
}

impl Store for BucketStore {
    fn address(&self) -> &Path {
        self.layout.address()
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        let folders = self.folders()?.into_iter();
        Ok(folders.filter(|(_, is_published)| *is_published).map(|(name, _)| name).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        check_name(name)?;
        let traffic = Arc::new(Traffic::with_prices(self.prices));
        traffic.note_cache_memory(self.cache.as_ref().map_or(0, |cache| cache.status().most_memory_bytes));
        match self.find_published(name, &traffic)? {
            (store, Some(record)) => Ok(Arc::new(PublishedGeneration::new(store, name, record, traffic))),
            (store, None) => Err(StoreError::Missing { what: "index", path: store.layout.path(name) }),
        }
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        self.writable_store(name, replace).map(drop)
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        let (store, _) = self.writable_store(name, replace)?;
        let local = self.scratch.begin(&scratch_name(name), Replace::Never)?;
        Ok(Box::new(BucketDraft::new(store, name, replace, local)))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        let (store, is_published) = self.writable_store(name, replace)?;
        let mut drafts: Vec<Box<dyn Draft>> = Vec::new();
        for local in self.scratch.abandoned(&scratch_name(name), Replace::Never)? {
            let draft = BucketDraft::new(store.clone(), name, replace, local);
            // Its uploaded objects have the other spelling, under which the published index is not found.
            if is_published && draft.spelling() != store.layout.spelling() {
                drop(draft);
                continue;
            }
            drafts.push(Box::new(draft));
        }
        Ok(drafts)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        match self.find_published(name, &self.traffic)? {
            (store, Some(_)) => store.publish(name, GenerationRecord::deleted(), Replace::Generation),
            (store, None) => Err(StoreError::Missing { what: "index", path: store.layout.path(name) }),
        }
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        // The generation is deleted first, so that no reader finds one with missing objects.
        let spellings = self.spellings(name);
        for store in &spellings {
            if store.newest(name)?.is_some_and(|record| !record.deleted) {
                store.publish(name, GenerationRecord::deleted(), Replace::Generation)?;
            }
        }
        for local in self.scratch.abandoned(&scratch_name(name), Replace::Never)? {
            drop(BucketDraft::new(self.clone(), name, Replace::Generation, local));
        }
        spellings.iter().try_for_each(|store| store.erase_keys(name))
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        let folders = self.folders()?;
        let mut names = self.scratch.leftovers()?;
        names.retain(|name| !folders.contains(&(name.clone(), true)));
        for (name, _) in folders.into_iter().filter(|(_, is_published)| !is_published) {
            for store in self.spellings(&name) {
                if !store.list_keys(&name)?.is_empty() {
                    names.push(name.clone());
                }
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}
