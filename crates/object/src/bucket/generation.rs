//! A published generation and its objects.

use super::BucketStore;
use super::log::BucketLog;
use super::read_ahead::ReadAhead;
use super::record::{GenerationRecord, RecordEntry};
use crate::cache::ObjectLocation;
use crate::client::Version;
use crate::runtime::wait_for;
use crate::tier::{CacheHandle, ObjectSource, ObjectTier, ReadPurpose};
use bathyal_store::check_name;
use bathyal_store::{Backing, Generation, Log, Object, StoreError, Traffic};
use bathyal_tier::Tier;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::FileOptions;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The length of the ranges into which a read is split.
const PART_BYTES: u64 = 4 << 20;
/// The number of ranges that are read concurrently: enough to fill a link, while the buffers take no more
/// memory than twice the bytes themselves.
const CONCURRENT_PARTS: usize = 8;

/// A published generation, as opened.
#[derive(Debug, Clone)]
pub(super) struct PublishedGeneration {
    pub(super) store: BucketStore,
    pub(super) name: String,
    path: PathBuf,
    record: Arc<GenerationRecord>,
    traffic: Arc<Traffic>,
    /// The versions of the objects that were read, shared by all readers of an object, so that a replaced
    /// object is detected.
    versions: Arc<Mutex<BTreeMap<String, Arc<Version>>>>,
}

impl PublishedGeneration {
    pub(super) fn new(
        store: BucketStore,
        name: &str,
        record: GenerationRecord,
        traffic: Arc<Traffic>,
    ) -> PublishedGeneration {
        let path = store.layout.path(name);
        let (record, versions) = (Arc::new(record), Arc::default());
        PublishedGeneration { store, name: name.to_owned(), path, record, traffic, versions }
    }

    /// Returns the id in the keys of its objects.
    pub(super) fn id(&self) -> &str {
        &self.record.id
    }

    fn version(&self, name: &str, entry: &RecordEntry) -> Arc<Version> {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Version::recorded(entry.etag.clone(), entry.bytes)))
            .clone()
    }

    /// Returns the counts of its reads.
    pub(super) fn shared_traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Returns the cache that an object is read through. Its counts are kept by kind: the object's name up to
    /// the first dot.
    fn cache_handle(&self, name: &str, key: &str, len: u64) -> Option<CacheHandle> {
        let cache = self.store.cache.as_ref()?.clone();
        if let Some(trouble) = cache.status().trouble {
            self.traffic.note_cache_trouble(&trouble);
        }
        let kind = name.split('.').next().unwrap_or(name);
        let location = ObjectLocation::new(self.store.client.identity(), key, len);
        Some(CacheHandle { cache, location, counts: self.traffic.cache_counts(kind) })
    }

    /// Returns an error if another generation has been published under the name.
    pub(super) async fn check_current(&self) -> Result<(), StoreError> {
        let layout = &self.store.layout;
        let listed = self.store.client.list(&layout.records(&self.name), &self.traffic).await;
        let listed = listed.map_err(|fault| fault.error("look for", &self.path))?;
        match listed.first() {
            Some(newest) if newest.location == layout.record(&self.name, self.record.number) => Ok(()),
            _ => Err(StoreError::Replaced { path: self.path.clone() }),
        }
    }
}

impl Generation for PublishedGeneration {
    fn address(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.record.objects.keys().cloned().collect())
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_name(name)?;
        let path = self.path.join(name);
        let Some(entry) = self.record.objects.get(name) else {
            return Err(StoreError::Missing { what: "file", path });
        };
        if let Some(bytes) = self.record.small_bytes(entry) {
            return Ok(Arc::new(SmallObject { path, bytes: Arc::from(bytes) }));
        }
        let key = self.store.layout.generation(&self.name, &self.record.id).join(name);
        let source = ObjectSource {
            cached: self.cache_handle(name, key.as_ref(), entry.bytes),
            client: self.store.client.clone(),
            key,
            len: entry.bytes,
            version: self.version(name, entry),
            traffic: self.traffic.clone(),
        };
        Ok(Arc::new(BucketObject::new(Some(self.clone()), path, source)))
    }

    fn log(&self, name: &str) -> Result<Arc<dyn Log>, StoreError> {
        check_name(name)?;
        Ok(Arc::new(BucketLog::new(self.clone(), self.path.join(name), name)))
    }

    fn traffic(&self) -> Option<Arc<Traffic>> {
        Some(self.traffic.clone())
    }
}

/// A small object whose bytes are in the record.
#[derive(Debug)]
struct SmallObject {
    path: PathBuf,
    bytes: Arc<[u8]>,
}

impl Object for SmallObject {
    fn address(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let range = check_range(&self.path, offset, out.len(), self.len())?;
        out.copy_from_slice(&self.bytes[range.start as usize..range.end as usize]);
        Ok(())
    }

    fn backing(&self) -> Result<Backing, StoreError> {
        Ok(Backing::Memory(self.bytes.clone()))
    }

    fn tier(&self, _options: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
        Ok(Arc::new(DramTier::new(self.bytes.to_vec())))
    }
}

/// Returns the range of `wanted` bytes from `offset` on, or an error if it ends beyond `len`.
fn check_range(path: &Path, offset: u64, wanted: usize, len: u64) -> Result<Range<u64>, StoreError> {
    match offset.checked_add(wanted as u64) {
        Some(end) if end <= len => Ok(offset..end),
        _ => Err(StoreError::Short { path: path.to_path_buf(), offset, wanted: wanted as u64, len }),
    }
}

/// An object with a key of its own.
#[derive(Debug)]
pub(super) struct BucketObject {
    /// The generation that it belongs to; `None` for an object of a draft.
    generation: Option<PublishedGeneration>,
    path: PathBuf,
    source: Arc<ObjectSource>,
    read_ahead: ReadAhead,
}

impl BucketObject {
    pub(super) fn new(
        generation: Option<PublishedGeneration>,
        path: PathBuf,
        source: ObjectSource,
    ) -> BucketObject {
        BucketObject { generation, path, source: Arc::new(source), read_ahead: ReadAhead::default() }
    }

    /// Reads a range in parts, several of them concurrently.
    fn read_range(&self, range: Range<u64>, out: &mut [u8]) -> Result<(), StoreError> {
        self.source.traffic.count_reads(1, range.end - range.start);
        let parts = (range.start..range.end).step_by(PART_BYTES as usize);
        let parts = parts.map(|from| from..(from + PART_BYTES).min(range.end));
        let fetch = |part: Range<u64>| self.source.read(part, &ReadPurpose::Whole);
        let all = futures_util::stream::iter(parts).map(fetch).buffered(CONCURRENT_PARTS);
        let mut rest = out;
        let copied = wait_for(all.try_for_each(|bytes: Bytes| {
            let (part, remaining) = std::mem::take(&mut rest).split_at_mut(bytes.len());
            part.copy_from_slice(&bytes);
            rest = remaining;
            std::future::ready(Ok(()))
        }))?;
        copied.map_err(|fault| match (&self.generation, fault.cause) {
            // A missing object of a replaced generation was pruned; of the current one, it is damage.
            (Some(generation), crate::client::Cause::Gone) => match wait_for(generation.check_current()) {
                Ok(Err(replaced)) | Err(replaced) => replaced,
                Ok(Ok(())) => fault.error("read", &self.path),
            },
            _ => fault.error("read", &self.path),
        })
    }
}

impl Object for BucketObject {
    fn address(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.source.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let range = check_range(&self.path, offset, out.len(), self.len())?;
        if range.is_empty() {
            return Ok(());
        }
        self.read_ahead.read(range.start, out, self.len(), |range, out| self.read_range(range, out))
    }

    fn piece_bytes(&self) -> usize {
        PART_BYTES as usize * CONCURRENT_PARTS
    }

    fn backing(&self) -> Result<Backing, StoreError> {
        Ok(Backing::Elsewhere)
    }

    fn tier(&self, _options: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
        Ok(Arc::new(ObjectTier::new(self.source.clone())))
    }
}
