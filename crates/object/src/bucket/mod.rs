//! Generations in a bucket.
//!
//! Objects of a generation lie under a name that nobody else uses and never change; a small *record* says which generation
//! is the one under the index's name. Records are numbered and created, never replaced: of two who publish at once one comes
//! second, and is told so. What is replaced stays until it is pruned, so that those who read it may go on. The layout is in
//! docs/format/bucket.md.

mod ahead;
mod draft;
mod generation;
mod layout;
mod log;
mod prune;
mod record;
mod spelled;
mod upload;
#[cfg(test)]
mod versions;

use crate::cache::Cache;
use crate::client::{Client, Created, Fault, Why};
use crate::connect::{MOST_KEY_BYTES, ObjectUrl, StoreOptions, connect};
use crate::runtime::wait_for;
use bathyal_store::local::LocalStore;
use bathyal_store::{
    Draft, Generation, Prices, Replace, Store, StoreError, Traffic, check_name, usual_folder,
};
use bytes::Bytes;
use draft::{BucketDraft, scratch_name};
use generation::Published;
use layout::Layout;
use record::Record;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time for what can be done without.
const LATEST_TIME: Duration = Duration::from_secs(2);
/// Times that a number is taken by another one before it is told.
const TRIES: usize = 16;

/// The generations in a folder of a bucket.
#[derive(Debug, Clone)]
pub struct BucketStore {
    client: Arc<Client>,
    layout: Layout,
    /// Whether names have the keys of `layout` and no others.
    settled: bool,
    mark: &'static str,
    prices: Prices,
    /// Where drafts lie until they are uploaded.
    scratch: LocalStore,
    /// What published generations are read through.
    cache: Option<Arc<Cache>>,
    /// What is asked of the bucket, but not to read a generation.
    traffic: Arc<Traffic>,
}

impl BucketStore {
    /// The store that the generation at `url` is in, or would be in, of generations that are known by their object `mark`.
    /// Nothing is asked of it yet.
    ///
    /// # Errors
    /// [`StoreError::Address`] for options that the provider does not take; [`StoreError`] without threads to be had.
    pub fn new(
        url: &ObjectUrl,
        options: &StoreOptions,
        mark: &'static str,
    ) -> Result<BucketStore, StoreError> {
        let client = connect(url, options)?;
        let layout = Layout::new(url);
        let folder = match &options.scratch {
            Some(folder) => folder.clone(),
            None => usual_folder("scratch=FOLDER")?.join("uploads"),
        };
        let here = xxhash_rust::xxh3::xxh3_64(layout.address().as_os_str().as_encoded_bytes());
        let scratch = LocalStore::new(folder.join(format!("{here:016x}")), mark);
        let prices = options.prices(url.provider);
        let cache = options.cache().as_ref().map(Cache::of).transpose()?;
        Ok(BucketStore {
            client,
            layout,
            settled: false,
            mark,
            prices,
            scratch,
            cache,
            traffic: Arc::default(),
        })
    }

    /// What sends its requests.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// What published generations are read through; `None` if nothing is kept.
    pub fn cache(&self) -> Option<&Arc<Cache>> {
        self.cache.as_ref()
    }

    /// The folder of this machine in which drafts lie until they are uploaded.
    pub fn scratch(&self) -> &Path {
        self.scratch.address()
    }

    /// The newest record of `name`, with the keys of this layout; `None` without any.
    fn newest(&self, name: &str) -> Result<Option<Record>, StoreError> {
        wait_for(self.find_newest(name, &self.traffic))?
    }

    async fn find_newest(&self, name: &str, traffic: &Traffic) -> Result<Option<Record>, StoreError> {
        let path = self.layout.path(name);
        let failed = |fault: Fault| fault.error("look for", &path);
        // Between the two requests it may be pruned.
        for _ in 0..TRIES {
            let records = self.layout.records(name);
            let listed = self.client.list(&records, traffic);
            // What lies there is the newest record, as a rule, and comes with the listing that says which one is.
            let (listed, latest) = tokio::join!(listed, self.latest(name, traffic));
            // A store that takes other characters for slashes lists what lies under another key.
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
                    return Record::parse(&bytes, &self.layout.path_of(&first.location)).map(Some);
                }
                Err(fault) if fault.why == Why::Gone => {}
                Err(fault) => return Err(failed(fault)),
            }
        }
        Err(StoreError::Replaced { path })
    }

    /// The copy of the record that was published last, unless somebody else's came later, or it is not to be had.
    async fn latest(&self, name: &str, traffic: &Traffic) -> Option<Record> {
        let key = self.layout.latest(name);
        let bytes =
            tokio::time::timeout(LATEST_TIME, self.client.get_once(&key, traffic)).await.ok()?.ok()?;
        Record::parse(&bytes, &self.layout.path_of(&key)).ok()
    }

    /// Makes `record` the newest one of `name`, with the number that comes next.
    fn publish(&self, name: &str, mut record: Record, replace: Replace) -> Result<(), StoreError> {
        let path = self.layout.path(name);
        for _ in 0..TRIES {
            let newest = self.newest(name)?;
            match &newest {
                // An earlier try was answered by silence.
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
                // Those who open it save a request by this; without it they do not.
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
        Ok(self.folders()?.into_iter().filter(|(_, stands)| *stands).map(|(name, _)| name).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        check_name(name)?;
        let traffic = Arc::new(Traffic::priced(self.prices));
        match self.standing(name, &traffic)? {
            (store, Some(record)) => Ok(Arc::new(Published::new(store, name, record, traffic))),
            (store, None) => Err(StoreError::Missing { what: "index", path: store.layout.path(name) }),
        }
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        self.writable(name, replace).map(drop)
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        let (store, _) = self.writable(name, replace)?;
        let local = self.scratch.begin(&scratch_name(name), Replace::Never)?;
        Ok(Box::new(BucketDraft::new(store, name, replace, local)))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        let (store, stands) = self.writable(name, replace)?;
        let mut drafts: Vec<Box<dyn Draft>> = Vec::new();
        for local in self.scratch.abandoned(&scratch_name(name), Replace::Never)? {
            let draft = BucketDraft::new(store.clone(), name, replace, local);
            // What it has brought lies where the index is not looked for.
            if stands && draft.spelling() != store.layout.spelling() {
                drop(draft);
                continue;
            }
            drafts.push(Box::new(draft));
        }
        Ok(drafts)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        match self.standing(name, &self.traffic)? {
            (store, Some(_)) => store.publish(name, Record::deleted(), Replace::Generation),
            (store, None) => Err(StoreError::Missing { what: "index", path: store.layout.path(name) }),
        }
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        // Nobody is to find a generation of which something is gone already.
        let spellings = self.spellings(name);
        for store in &spellings {
            if store.newest(name)?.is_some_and(|record| !record.deleted) {
                store.publish(name, Record::deleted(), Replace::Generation)?;
            }
        }
        for local in self.scratch.abandoned(&scratch_name(name), Replace::Never)? {
            drop(BucketDraft::new(self.clone(), name, Replace::Generation, local));
        }
        spellings.iter().try_for_each(|store| store.erase_keys(name))
    }

    fn traces(&self) -> Result<Vec<String>, StoreError> {
        let folders = self.folders()?;
        let mut names = self.scratch.traces()?;
        names.retain(|name| !folders.contains(&(name.clone(), true)));
        for (name, _) in folders.into_iter().filter(|(_, stands)| !stands) {
            for store in self.spellings(&name) {
                if !store.found(&name)?.is_nothing() {
                    names.push(name.clone());
                }
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}
