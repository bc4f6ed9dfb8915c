//! Uploads of objects to a bucket: in parts, several of them concurrently, skipping what was already
//! uploaded.

use super::layout::Spelling;
use super::record::RecordEntry;
use crate::client::{Cause, Client, RequestFault};
use crate::runtime::wait_for;
use bathyal_store::{Object, ProgressFn, StoreError, Traffic};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::multipart::PartId;
use object_store::path::Path as Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The length of a part in bytes; an object up to this length is uploaded in one request.
const PART_BYTES: u64 = 8 << 20;
/// The most parts of an object; Amazon S3 allows 10,000.
const MAX_PARTS: u64 = 9_000;
/// The number of parts that are uploaded concurrently and held in memory.
const CONCURRENT_PARTS: usize = 4;

/// Attempts to upload an object in parts; the store may lose all but the last multipart upload.
const MAX_ATTEMPTS: usize = 3;

/// The record of what was uploaded, by which a later process continues the upload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct UploadJournal {
    /// The id in the keys of the generation.
    pub(super) id: String,
    /// The writer's note, set once only the publication is left to do.
    pub(super) note: Option<String>,
    /// True if names in keys are spelled as typed; earlier versions encoded them and did not write this
    /// field.
    #[serde(default)]
    typed: bool,
    /// Objects that are uploaded completely.
    whole: BTreeMap<String, CompleteObject>,
    /// Objects of which some parts are uploaded.
    begun: BTreeMap<String, UnfinishedObject>,
}

/// An object that is uploaded completely.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CompleteObject {
    bytes: u64,
    crc32c: u32,
    #[serde(default)]
    etag: Option<String>,
}

/// An uploaded part.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct UploadedPart {
    /// The store's id of the part.
    id: String,
    bytes: u64,
    crc32c: u32,
}

/// An unfinished multipart upload of an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct UnfinishedObject {
    /// The store's id of the multipart upload.
    upload: String,
    bytes: u64,
    part_bytes: u64,
    /// The uploaded parts by number, from 0.
    parts: BTreeMap<u64, UploadedPart>,
}

impl UnfinishedObject {
    /// Returns the checksum of all parts together.
    fn checksum(&self) -> u32 {
        self.parts.values().fold(0, |before, part| {
            crc32c::crc32c_combine(before, part.crc32c, usize::try_from(part.bytes).unwrap_or(usize::MAX))
        })
    }
}

impl UploadJournal {
    pub(super) fn new(id: String) -> UploadJournal {
        UploadJournal { id, ..UploadJournal::default() }
    }

    /// Returns the spelling of the name in the keys of uploaded objects.
    pub(super) fn spelling(&self) -> Spelling {
        if self.typed { Spelling::Typed } else { Spelling::Encoded }
    }

    /// Sets the spelling of the name in keys.
    pub(super) fn set_spelling(&mut self, spelling: Spelling) {
        self.typed = spelling == Spelling::Typed;
    }

    /// Removes the entries of objects for which `exists` is false, and returns the name of one of them.
    pub(super) fn remove_missing(&mut self, exists: impl Fn(&str, u64) -> bool) -> Option<String> {
        let mut missing = None;
        self.whole.retain(|name, object| {
            let is_present = exists(name, object.bytes);
            if !is_present {
                missing = Some(name.clone());
            }
            is_present
        });
        missing
    }

    /// Returns true if nothing was uploaded.
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.begun.is_empty()
    }

    /// Returns the record's entry of an object that is uploaded completely.
    pub(super) fn uploaded(&self, name: &str) -> Option<RecordEntry> {
        self.whole.get(name).map(|whole| RecordEntry {
            bytes: whole.bytes,
            at: None,
            etag: whole.etag.clone(),
        })
    }

    /// Returns the CRC-32C of an object that is uploaded completely.
    pub(super) fn checksum(&self, name: &str) -> Option<u32> {
        self.whole.get(name).map(|whole| whole.crc32c)
    }
}

/// An object to upload.
pub(super) struct UploadSource {
    pub(super) name: String,
    pub(super) object: Arc<dyn Object>,
}

/// The destination of an upload.
pub(super) struct Upload<'a> {
    pub(super) client: &'a Client,
    pub(super) prefix: Key,
    pub(super) path: &'a Path,
    pub(super) traffic: &'a Traffic,
}

/// Saves the journal where a later process finds it.
type SaveJournal<'k> = dyn FnMut(&UploadJournal) -> Result<(), StoreError> + 'k;

impl Upload<'_> {
    /// Uploads those of `sources` that are not uploaded yet according to `journal`.
    pub(super) fn run(
        &self,
        sources: &[UploadSource],
        journal: &mut UploadJournal,
        progress: &ProgressFn<'_>,
        save_journal: &mut SaveJournal<'_>,
    ) -> Result<(), StoreError> {
        let total = sources.iter().map(|source| source.object.len()).sum();
        let mut before = 0;
        for source in sources {
            let len = source.object.len();
            if journal.whole.get(&source.name).is_none_or(|whole| whole.bytes != len) {
                let object_progress = |done: u64| progress(before + done, total);
                if !object_progress(0) {
                    return Err(StoreError::Cancelled);
                }
                let UploadedObject { crc32c, etag } = match len {
                    0..=PART_BYTES => self.put(source)?,
                    _ => self.put_parts(source, journal, &object_progress, save_journal)?,
                };
                journal.begun.remove(&source.name);
                journal.whole.insert(source.name.clone(), CompleteObject { bytes: len, crc32c, etag });
                save_journal(journal)?;
            }
            before += len;
        }
        if progress(total, total) { Ok(()) } else { Err(StoreError::Cancelled) }
    }

    /// Aborts unfinished multipart uploads, whose parts the store would keep and charge for.
    pub(super) async fn abort(&self, journal: &UploadJournal) -> Result<(), RequestFault> {
        for (name, begun) in &journal.begun {
            let key = self.prefix.clone().join(name.as_str());
            let abort = self.client.multipart().abort_multipart(&key, &begun.upload);
            self.client.send_once(self.traffic, abort).await?;
        }
        Ok(())
    }

    fn key(&self, source: &UploadSource) -> Key {
        self.prefix.clone().join(source.name.as_str())
    }

    fn error(&self, source: &UploadSource, fault: RequestFault) -> StoreError {
        fault.error("upload", self.path.join(&source.name))
    }

    fn put(&self, source: &UploadSource) -> Result<UploadedObject, StoreError> {
        let bytes = read(source, 0, source.object.len())?;
        let crc32c = crc32c::crc32c(&bytes);
        let put = wait_for(self.client.put(&self.key(source), bytes, self.traffic))?;
        put.map(|etag| UploadedObject { crc32c, etag }).map_err(|fault| self.error(source, fault))
    }

    /// Uploads an object in parts, and continues an unfinished upload. Starts again if the store has dropped
    /// the unfinished upload, as some do after a while.
    fn put_parts(
        &self,
        source: &UploadSource,
        journal: &mut UploadJournal,
        object_progress: &(dyn Fn(u64) -> bool + Sync),
        save_journal: &mut SaveJournal<'_>,
    ) -> Result<UploadedObject, StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            match self.try_parts(source, journal, object_progress, save_journal) {
                Ok(uploaded) => return Ok(uploaded),
                Err(PartsError::Error(error)) => return Err(error),
                Err(PartsError::Dropped) => {
                    journal.begun.remove(&source.name);
                    save_journal(journal)?;
                }
            }
        }
        Err(StoreError::Remote {
            operation: "upload",
            path: self.path.join(&source.name),
            reason: "the store drops parts before all of them are uploaded; look for a rule of the bucket \
                     that removes unfinished uploads too soon"
                .into(),
        })
    }

    fn try_parts(
        &self,
        source: &UploadSource,
        journal: &mut UploadJournal,
        object_progress: &(dyn Fn(u64) -> bool + Sync),
        save_journal: &mut SaveJournal<'_>,
    ) -> Result<UploadedObject, PartsError> {
        let len = source.object.len();
        let part_bytes = PART_BYTES.max(len.div_ceil(MAX_PARTS).next_multiple_of(1 << 20));
        let unfinished = journal
            .begun
            .get(&source.name)
            .filter(|begun| (begun.bytes, begun.part_bytes) == (len, part_bytes));
        let mut begun = match unfinished {
            Some(begun) => begun.clone(),
            None => {
                let upload = self.begin(source)?;
                UnfinishedObject { upload, bytes: len, part_bytes, parts: BTreeMap::new() }
            }
        };
        let numbers: Vec<u64> =
            (0..len.div_ceil(part_bytes)).filter(|n| !begun.parts.contains_key(n)).collect();
        for batch in numbers.chunks(CONCURRENT_PARTS) {
            begun.parts.extend(self.upload_parts(source, &begun, batch)?);
            journal.begun.insert(source.name.clone(), begun.clone());
            save_journal(journal)?;
            if !object_progress((begun.parts.len() as u64 * part_bytes).min(len)) {
                return Err(StoreError::Cancelled.into());
            }
        }
        let parts =
            begun.parts.values().map(|part| PartId { content_id: part.id.clone() }).collect::<Vec<_>>();
        let etag = self.complete(source, &begun.upload, &parts)?;
        Ok(UploadedObject { crc32c: begun.checksum(), etag })
    }

    fn begin(&self, source: &UploadSource) -> Result<String, StoreError> {
        let key = self.key(source);
        let begin = || self.client.send_once(self.traffic, self.client.multipart().create_multipart(&key));
        wait_for(self.client.with_retries(self.traffic, begin))?.map_err(|fault| self.error(source, fault))
    }

    fn upload_parts(
        &self,
        source: &UploadSource,
        begun: &UnfinishedObject,
        numbers: &[u64],
    ) -> Result<Vec<(u64, UploadedPart)>, PartsError> {
        let key = &self.key(source);
        let mut parts = Vec::new();
        for number in numbers {
            let from = number * begun.part_bytes;
            let bytes = read(source, from, begun.part_bytes.min(begun.bytes - from))?;
            parts.push((*number, bytes));
        }
        let upload_part = |(number, bytes): (u64, Bytes)| async move {
            let (len, crc32c) = (bytes.len() as u64, crc32c::crc32c(&bytes));
            let put = || {
                let bytes = bytes.clone();
                let multipart = self.client.multipart();
                self.client.send_once(
                    self.traffic,
                    multipart.put_part(key, &begun.upload, number as usize, bytes.into()),
                )
            };
            self.client
                .with_retries(self.traffic, put)
                .await
                .map(|part| (number, UploadedPart { id: part.content_id, bytes: len, crc32c }))
        };
        let all = futures_util::stream::iter(parts)
            .map(upload_part)
            .buffer_unordered(CONCURRENT_PARTS)
            .try_collect();
        wait_for(all)?.map_err(|fault| self.parts_error(source, fault))
    }

    fn parts_error(&self, source: &UploadSource, fault: RequestFault) -> PartsError {
        match fault.cause {
            Cause::Gone => PartsError::Dropped,
            _ => PartsError::Error(self.error(source, fault)),
        }
    }

    /// Completes a multipart upload. If the response is lost, the object is looked up.
    fn complete(
        &self,
        source: &UploadSource,
        upload: &String,
        parts: &[PartId],
    ) -> Result<Option<String>, PartsError> {
        let key = self.key(source);
        let done = wait_for(async {
            let complete = || {
                let complete = self.client.multipart().complete_multipart(&key, upload, parts.to_vec());
                self.client.send_once(self.traffic, complete)
            };
            match self.client.with_retries(self.traffic, complete).await {
                Err(fault) if fault.is_doubtful() || fault.cause == Cause::Gone => {
                    match self.client.head(&key, self.traffic).await {
                        Ok(found) if found.size == source.object.len() => Ok(found.e_tag),
                        _ => Err(fault),
                    }
                }
                other => other.map(|done| done.e_tag),
            }
        })?;
        done.map_err(|fault| self.parts_error(source, fault))
    }
}

/// The CRC-32C and the entity tag of an uploaded object.
struct UploadedObject {
    crc32c: u32,
    etag: Option<String>,
}

/// The reason why an upload in parts failed.
enum PartsError {
    /// The store has dropped the unfinished upload.
    Dropped,
    Error(StoreError),
}

impl From<StoreError> for PartsError {
    fn from(error: StoreError) -> PartsError {
        PartsError::Error(error)
    }
}

fn read(source: &UploadSource, from: u64, len: u64) -> Result<Bytes, StoreError> {
    let mut bytes = vec![0; len as usize];
    source.object.read_at(from, &mut bytes)?;
    Ok(bytes.into())
}
