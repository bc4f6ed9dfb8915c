//! Bringing objects to a bucket: in parts, several at once, and only what is not there yet.

use super::layout::Spelling;
use super::record::Entry;
use crate::client::{Client, Fault, Why};
use crate::runtime::wait_for;
use bathyal_store::{Attend, Object, StoreError, Traffic};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::multipart::PartId;
use object_store::path::Path as Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a part; an object up to this length is one request.
const PART_BYTES: u64 = 8 << 20;
/// Parts of an object at most: Amazon S3 takes 10,000.
const MOST_PARTS: u64 = 9_000;
/// Parts that are on their way at once, and in memory.
const PARTS_AT_ONCE: usize = 4;

/// Times that an object is begun, of which the store may forget all but the last.
const MOST_BEGINNINGS: usize = 3;

/// What was brought, for one who goes on after the process was killed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The generation's name among its keys.
    pub(super) id: String,
    /// What the writer left for whoever goes on, once only the name was missing.
    pub(super) note: Option<String>,
    /// Whether names are keys as they were typed; earlier versions, which said nothing of it, encoded them.
    #[serde(default)]
    typed: bool,
    /// Objects that are there whole.
    whole: BTreeMap<String, Whole>,
    /// Objects of which parts are there.
    begun: BTreeMap<String, Begun>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Whole {
    bytes: u64,
    crc32c: u32,
    #[serde(default)]
    etag: Option<String>,
}

/// A part that is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Part {
    /// The store's name for it.
    id: String,
    bytes: u64,
    crc32c: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Begun {
    upload: String,
    bytes: u64,
    part_bytes: u64,
    /// By their numbers.
    parts: BTreeMap<u64, Part>,
}

impl Begun {
    /// The checksum of all parts.
    fn checksum(&self) -> u32 {
        self.parts.values().fold(0, |before, part| {
            crc32c::crc32c_combine(before, part.crc32c, usize::try_from(part.bytes).unwrap_or(usize::MAX))
        })
    }
}

impl Journal {
    pub(super) fn new(id: String) -> Journal {
        Journal { id, ..Journal::default() }
    }

    /// How the name became keys where something was brought.
    pub(super) fn spelling(&self) -> Spelling {
        if self.typed { Spelling::Typed } else { Spelling::Encoded }
    }

    /// Notes how the name becomes keys.
    pub(super) fn set_spelling(&mut self, spelling: Spelling) {
        self.typed = spelling == Spelling::Typed;
    }

    /// Forgets the objects that are not there, of which it returns one.
    pub(super) fn forget_unless(&mut self, there: impl Fn(&str, u64) -> bool) -> Option<String> {
        let mut gone = None;
        self.whole.retain(|name, whole| {
            let is_there = there(name, whole.bytes);
            if !is_there {
                gone = Some(name.clone());
            }
            is_there
        });
        gone
    }

    /// Whether nothing was brought.
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.begun.is_empty()
    }

    /// The entry of an object that is there.
    pub(super) fn brought(&self, name: &str) -> Option<Entry> {
        self.whole.get(name).map(|whole| Entry { bytes: whole.bytes, at: None, etag: whole.etag.clone() })
    }

    /// The CRC-32C of an object that is there.
    pub(super) fn checksum(&self, name: &str) -> Option<u32> {
        self.whole.get(name).map(|whole| whole.crc32c)
    }
}

/// An object to be brought.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) object: Arc<dyn Object>,
}

/// Where to.
pub(super) struct Upload<'a> {
    pub(super) client: &'a Client,
    pub(super) prefix: Key,
    pub(super) path: &'a Path,
    pub(super) traffic: &'a Traffic,
}

/// Keeps a journal where a later process finds it.
type Keep<'k> = dyn FnMut(&Journal) -> Result<(), StoreError> + 'k;

impl Upload<'_> {
    /// Brings `sources` that are not there yet, according to `journal`.
    pub(super) fn run(
        &self,
        sources: &[Source],
        journal: &mut Journal,
        attend: &Attend<'_>,
        keep: &mut Keep<'_>,
    ) -> Result<(), StoreError> {
        let total = sources.iter().map(|source| source.object.len()).sum();
        let mut before = 0;
        for source in sources {
            let len = source.object.len();
            if journal.whole.get(&source.name).is_none_or(|whole| whole.bytes != len) {
                let told = |done: u64| attend(before + done, total);
                if !told(0) {
                    return Err(StoreError::Cancelled);
                }
                let (crc32c, etag) = match len {
                    0..=PART_BYTES => self.put(source)?,
                    _ => self.put_parts(source, journal, &told, keep)?,
                };
                journal.begun.remove(&source.name);
                journal.whole.insert(source.name.clone(), Whole { bytes: len, crc32c, etag });
                keep(journal)?;
            }
            before += len;
        }
        if attend(total, total) { Ok(()) } else { Err(StoreError::Cancelled) }
    }

    /// Ends what was begun in parts, which the store would keep and charge for.
    pub(super) async fn abort(&self, journal: &Journal) -> Result<(), Fault> {
        for (name, begun) in &journal.begun {
            let key = self.prefix.clone().join(name.as_str());
            let abort = self.client.multipart().abort_multipart(&key, &begun.upload);
            self.client.once(self.traffic, abort).await?;
        }
        Ok(())
    }

    fn key(&self, source: &Source) -> Key {
        self.prefix.clone().join(source.name.as_str())
    }

    fn error(&self, source: &Source, fault: Fault) -> StoreError {
        fault.error("upload", self.path.join(&source.name))
    }

    fn put(&self, source: &Source) -> Result<Brought, StoreError> {
        let bytes = read(source, 0, source.object.len())?;
        let crc32c = crc32c::crc32c(&bytes);
        let put = wait_for(self.client.put(&self.key(source), bytes, self.traffic))?;
        put.map(|etag| (crc32c, etag)).map_err(|fault| self.error(source, fault))
    }

    /// Brings an object in parts, and goes on with the parts of one that was begun; from the front where the store has forgotten
    /// them, which may be the case after a while.
    fn put_parts(
        &self,
        source: &Source,
        journal: &mut Journal,
        told: &(dyn Fn(u64) -> bool + Sync),
        keep: &mut Keep<'_>,
    ) -> Result<Brought, StoreError> {
        for _ in 0..MOST_BEGINNINGS {
            match self.try_parts(source, journal, told, keep) {
                Ok(brought) => return Ok(brought),
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Forgotten) => {
                    journal.begun.remove(&source.name);
                    keep(journal)?;
                }
            }
        }
        Err(StoreError::Remote {
            operation: "upload",
            path: self.path.join(&source.name),
            reason: "the store forgets parts before all of them are there; look for a rule of the bucket that removes unfinished \
                     uploads too soon"
                .into(),
        })
    }

    fn try_parts(
        &self,
        source: &Source,
        journal: &mut Journal,
        told: &(dyn Fn(u64) -> bool + Sync),
        keep: &mut Keep<'_>,
    ) -> Result<Brought, Stop> {
        let len = source.object.len();
        let part_bytes = PART_BYTES.max(len.div_ceil(MOST_PARTS).next_multiple_of(1 << 20));
        let known = journal
            .begun
            .get(&source.name)
            .filter(|begun| (begun.bytes, begun.part_bytes) == (len, part_bytes));
        let mut begun = match known {
            Some(begun) => begun.clone(),
            None => {
                let upload = self.begin(source)?;
                Begun { upload, bytes: len, part_bytes, parts: BTreeMap::new() }
            }
        };
        let numbers: Vec<u64> =
            (0..len.div_ceil(part_bytes)).filter(|n| !begun.parts.contains_key(n)).collect();
        for some in numbers.chunks(PARTS_AT_ONCE) {
            begun.parts.extend(self.bring_parts(source, &begun, some)?);
            journal.begun.insert(source.name.clone(), begun.clone());
            keep(journal)?;
            if !told((begun.parts.len() as u64 * part_bytes).min(len)) {
                return Err(StoreError::Cancelled.into());
            }
        }
        let parts =
            begun.parts.values().map(|part| PartId { content_id: part.id.clone() }).collect::<Vec<_>>();
        let etag = self.complete(source, &begun.upload, &parts)?;
        Ok((begun.checksum(), etag))
    }

    fn begin(&self, source: &Source) -> Result<String, StoreError> {
        let key = self.key(source);
        let begin = || self.client.once(self.traffic, self.client.multipart().create_multipart(&key));
        wait_for(self.client.again(self.traffic, begin))?.map_err(|fault| self.error(source, fault))
    }

    fn bring_parts(&self, source: &Source, begun: &Begun, numbers: &[u64]) -> Result<Vec<(u64, Part)>, Stop> {
        let key = &self.key(source);
        let mut parts = Vec::new();
        for number in numbers {
            let from = number * begun.part_bytes;
            let bytes = read(source, from, begun.part_bytes.min(begun.bytes - from))?;
            parts.push((*number, bytes));
        }
        let bring = |(number, bytes): (u64, Bytes)| async move {
            let (len, crc32c) = (bytes.len() as u64, crc32c::crc32c(&bytes));
            let put = || {
                let bytes = bytes.clone();
                let multipart = self.client.multipart();
                self.client
                    .once(self.traffic, multipart.put_part(key, &begun.upload, number as usize, bytes.into()))
            };
            self.client
                .again(self.traffic, put)
                .await
                .map(|part| (number, Part { id: part.content_id, bytes: len, crc32c }))
        };
        let all = futures_util::stream::iter(parts).map(bring).buffer_unordered(PARTS_AT_ONCE).try_collect();
        wait_for(all)?.map_err(|fault| self.stop(source, fault))
    }

    fn stop(&self, source: &Source, fault: Fault) -> Stop {
        match fault.why {
            Why::Gone => Stop::Forgotten,
            _ => Stop::Error(self.error(source, fault)),
        }
    }

    /// Makes the parts an object. Where the answer is lost it is looked for.
    fn complete(&self, source: &Source, upload: &String, parts: &[PartId]) -> Result<Option<String>, Stop> {
        let key = self.key(source);
        let done = wait_for(async {
            let complete = || {
                let complete = self.client.multipart().complete_multipart(&key, upload, parts.to_vec());
                self.client.once(self.traffic, complete)
            };
            match self.client.again(self.traffic, complete).await {
                Err(fault) if fault.is_doubtful() || fault.why == Why::Gone => {
                    match self.client.head(&key, self.traffic).await {
                        Ok(there) if there.size == source.object.len() => Ok(there.e_tag),
                        _ => Err(fault),
                    }
                }
                other => other.map(|done| done.e_tag),
            }
        })?;
        done.map_err(|fault| self.stop(source, fault))
    }
}

/// An object's CRC-32C, and the store's name of its version.
type Brought = (u32, Option<String>);

/// Why parts were not brought.
enum Stop {
    /// The store knows nothing of the upload that was begun.
    Forgotten,
    Error(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        Stop::Error(error)
    }
}

fn read(source: &Source, from: u64, len: u64) -> Result<Bytes, StoreError> {
    let mut bytes = vec![0; len as usize];
    source.object.read_at(from, &mut bytes)?;
    Ok(bytes.into())
}
