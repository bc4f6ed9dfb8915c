//! A log of changes in a bucket: pieces that are created one after the other, each of which says where in the log it goes.
//!
//! A piece's number is taken by whoever creates it, so of two writers one finds out. A piece that begins before the end of
//! those before it takes the place of what lies beyond.

use super::generation::Published;
use super::record::fresh_id;
use crate::client::Created;
use crate::runtime::wait_for;
use bathyal_store::{Durability, Log, LogWriter, StoreError};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// First bytes of a piece.
const MAGIC: &[u8; 8] = b"bathylog";
/// Magic, the writer's name in hexadecimal digits, and the offset.
const HEAD_BYTES: usize = 8 + 32 + 8;
/// Pieces that are read at once.
const READ_AT_ONCE: usize = 32;

/// Logs that somebody in this process writes. Elsewhere a writer is noticed when it writes.
static WRITTEN: LazyLock<Mutex<BTreeSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// See the module's description.
#[derive(Debug, Clone)]
pub(super) struct BucketLog {
    generation: Published,
    path: PathBuf,
    prefix: Key,
    /// The pieces that were read. Clones share them.
    known: Arc<Mutex<BTreeMap<Key, Span>>>,
}

/// Where a piece goes, and how far it reaches: it never changes.
type Span = (u64, u64);

/// What the pieces come to.
#[derive(Debug, Default)]
struct Contents {
    /// The bytes that were asked for: those from some place on.
    bytes: Vec<u8>,
    /// How long the log is.
    len: u64,
    /// The number that the next piece takes.
    next: u64,
}

impl BucketLog {
    pub(super) fn new(generation: Published, path: PathBuf, name: &str) -> BucketLog {
        let prefix = generation.store.layout.log(&generation.name, generation.id(), name);
        BucketLog { generation, path, prefix, known: Arc::default() }
    }

    fn piece(&self, number: u64) -> Key {
        self.prefix.clone().join(format!("{number:020}"))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Key, Span>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what lies from byte `from` on, in the pieces that are new or reach so far.
    async fn contents(&self, from: u64) -> Result<Contents, StoreError> {
        let failed = |fault: crate::client::Fault| fault.error("read", &self.path);
        let (client, traffic) = (&self.generation.store.client, self.generation.shared_traffic());
        let listed = client.list(&self.prefix, traffic);
        let (placed, listed) = tokio::join!(self.generation.check_place(), listed);
        placed?;
        let keys: Vec<Key> = listed.map_err(failed)?.into_iter().map(|found| found.location).collect();
        let next =
            keys.last().and_then(|last| last.filename()?.parse::<u64>().ok()).map_or(0, |last| last + 1);
        let get = |key: Key| async move {
            let span = self.known().get(&key).copied();
            match span {
                Some(span) if span.1 <= from => Ok((key, Some(span), Bytes::new())),
                _ => client.get(&key, traffic).await.map(|piece| (key, span, piece)),
            }
        };
        let mut pieces = std::pin::pin!(futures_util::stream::iter(keys).map(get).buffered(READ_AT_ONCE));
        let mut contents = Contents { bytes: Vec::new(), len: 0, next };
        while let Some((key, span, piece)) = pieces.try_next().await.map_err(failed)? {
            let (at, end) = match span {
                Some(span) => span,
                None => self.span(&piece)?,
            };
            if at > contents.len {
                return Err(self.damaged());
            }
            contents.len = end;
            // What lies beyond its beginning it takes the place of.
            contents.bytes.truncate(at.saturating_sub(from) as usize);
            let new = piece.get(HEAD_BYTES..).unwrap_or_default();
            let before = usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX);
            contents.bytes.extend_from_slice(new.get(before..).unwrap_or_default());
            self.known().insert(key, (at, end));
        }
        Ok(contents)
    }

    fn damaged(&self) -> StoreError {
        StoreError::Irregular {
            path: self.path.clone(),
            reason: "a piece of the log is none; restore it from a copy, or delete what was changed since the build".into(),
        }
    }

    /// Where a piece goes in a log, and how far it reaches.
    fn span(&self, piece: &[u8]) -> Result<Span, StoreError> {
        let head = piece.get(..HEAD_BYTES).filter(|head| head.starts_with(MAGIC));
        let offset = head.and_then(|head| head.last_chunk::<8>()).ok_or_else(|| self.damaged())?;
        let (offset, len) = (u64::from_le_bytes(*offset), (piece.len() - HEAD_BYTES) as u64);
        Ok((offset, offset.checked_add(len).ok_or_else(|| self.damaged())?))
    }
}

impl Log for BucketLog {
    fn address(&self) -> &Path {
        &self.path
    }

    fn read(&self, from: u64) -> Result<Vec<u8>, StoreError> {
        Ok(wait_for(self.contents(from))??.bytes)
    }

    fn write(&self) -> Result<Box<dyn LogWriter>, StoreError> {
        let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.generation.store.layout.path_of(&self.prefix);
        if !written.insert(place.clone()) {
            return Err(StoreError::Busy { path: self.path.clone() });
        }
        drop(written);
        // Given back if the log cannot be read.
        let held = Held(place);
        let Contents { len, next, .. } = wait_for(self.contents(u64::MAX))??;
        Ok(Box::new(BucketLogWriter { log: self.clone(), writer: fresh_id(), len, next, _held: held }))
    }
}

/// A log's place among those that are written.
#[derive(Debug)]
struct Held(PathBuf);

impl Drop for Held {
    fn drop(&mut self) {
        WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// The writer of a log.
#[derive(Debug)]
struct BucketLogWriter {
    log: BucketLog,
    /// Tells its pieces from those of others.
    writer: String,
    len: u64,
    next: u64,
    _held: Held,
}

impl BucketLogWriter {
    async fn create(&self, piece: Bytes) -> Result<(), StoreError> {
        let generation = &self.log.generation;
        let key = self.log.piece(self.next);
        let created = generation.store.client.create(&key, piece, generation.shared_traffic()).await;
        match created.map_err(|fault| fault.error("append to", &self.log.path))? {
            Created::Another => return Err(StoreError::Busy { path: self.log.path.clone() }),
            Created::Ours => {}
        }
        // Nobody would read what was appended to a generation that was replaced.
        generation.check_place().await
    }
}

impl LogWriter for BucketLogWriter {
    fn append(&mut self, at: u64, parts: &[&[u8]], _durability: Durability) -> Result<(), StoreError> {
        if self.len < at {
            let path = self.log.path.clone();
            return Err(StoreError::Short { path, offset: 0, wanted: at, len: self.len });
        }
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut piece = Vec::with_capacity(HEAD_BYTES + bytes);
        piece.extend_from_slice(MAGIC);
        piece.extend_from_slice(self.writer.as_bytes());
        piece.extend_from_slice(&at.to_le_bytes());
        parts.iter().for_each(|part| piece.extend_from_slice(part));
        let result = wait_for(self.create(piece.into()))?;
        match &result {
            Ok(()) => (self.len, self.next) = (at + bytes as u64, self.next + 1),
            Err(StoreError::Busy { .. } | StoreError::Replaced { .. }) => {}
            // It may be there all the same; whoever appends next takes the number after it.
            Err(_) => {
                self.next = wait_for(self.log.contents(u64::MAX))
                    .ok()
                    .and_then(Result::ok)
                    .map_or(self.next, |now| now.next)
            }
        }
        result
    }
    fn sync(&mut self) -> Result<(), StoreError> {
        wait_for(self.log.generation.check_place())?
    }
}
