//! A log of changes in a bucket: numbered pieces, each with its offset in the log.
//!
//! A piece is created only if its number is free, so of two concurrent writers one gets an error. A piece
//! that begins before the end of the earlier pieces replaces their bytes from its offset on.

use super::generation::PublishedGeneration;
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

/// The first bytes of a piece.
const MAGIC: &[u8; 8] = b"bathylog";
/// The length of a piece's header: magic, the writer's id in hexadecimal digits, and the offset.
const HEAD_BYTES: usize = 8 + 32 + 8;
/// The number of pieces that are read concurrently.
const CONCURRENT_READS: usize = 32;

/// The logs that have a writer in this process. A writer in another process is detected when it creates a
/// piece.
static WRITERS: LazyLock<Mutex<BTreeSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// A log of changes in a bucket.
#[derive(Debug, Clone)]
pub(super) struct BucketLog {
    generation: PublishedGeneration,
    path: PathBuf,
    prefix: Key,
    /// The spans of the pieces that were read. Clones share them.
    spans: Arc<Mutex<BTreeMap<Key, PieceSpan>>>,
}

/// The offset and the end of a piece in the log, which never change.
#[derive(Debug, Clone, Copy)]
struct PieceSpan {
    start: u64,
    end: u64,
}

/// The contents of the log, assembled from its pieces.
#[derive(Debug, Default)]
struct Contents {
    /// The bytes from the requested offset on.
    bytes: Vec<u8>,
    /// The length of the log in bytes.
    len: u64,
    /// The number of the next piece.
    next: u64,
}

impl BucketLog {
    pub(super) fn new(generation: PublishedGeneration, path: PathBuf, name: &str) -> BucketLog {
        let prefix = generation.store.layout.log(&generation.name, generation.id(), name);
        BucketLog { generation, path, prefix, spans: Arc::default() }
    }

    fn piece(&self, number: u64) -> Key {
        self.prefix.clone().join(format!("{number:020}"))
    }

    fn spans(&self) -> MutexGuard<'_, BTreeMap<Key, PieceSpan>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the bytes from offset `from` on. Of the known pieces, only those that end after it are read.
    async fn contents(&self, from: u64) -> Result<Contents, StoreError> {
        let failed = |fault: crate::client::RequestFault| fault.error("read", &self.path);
        let (client, traffic) = (&self.generation.store.client, self.generation.shared_traffic());
        let listed = client.list(&self.prefix, traffic);
        let (current, listed) = tokio::join!(self.generation.check_current(), listed);
        current?;
        let keys: Vec<Key> = listed.map_err(failed)?.into_iter().map(|found| found.location).collect();
        let next =
            keys.last().and_then(|last| last.filename()?.parse::<u64>().ok()).map_or(0, |last| last + 1);
        let get = |key: Key| async move {
            let span = self.spans().get(&key).copied();
            match span {
                Some(span) if span.end <= from => Ok((key, Some(span), Bytes::new())),
                _ => client.get(&key, traffic).await.map(|piece| (key, span, piece)),
            }
        };
        let mut pieces = std::pin::pin!(futures_util::stream::iter(keys).map(get).buffered(CONCURRENT_READS));
        let mut contents = Contents { bytes: Vec::new(), len: 0, next };
        while let Some((key, span, piece)) = pieces.try_next().await.map_err(failed)? {
            let span = match span {
                Some(span) => span,
                None => self.span(&piece)?,
            };
            if span.start > contents.len {
                return Err(self.damaged());
            }
            contents.len = span.end;
            // The piece replaces all earlier bytes from its offset on.
            contents.bytes.truncate(span.start.saturating_sub(from) as usize);
            let new = piece.get(HEAD_BYTES..).unwrap_or_default();
            let skipped = usize::try_from(from.saturating_sub(span.start)).unwrap_or(usize::MAX);
            contents.bytes.extend_from_slice(new.get(skipped..).unwrap_or_default());
            self.spans().insert(key, span);
        }
        Ok(contents)
    }

    fn damaged(&self) -> StoreError {
        StoreError::Irregular {
            path: self.path.clone(),
            reason: "a piece of the log is damaged; restore it from a copy, or delete the log with all \
                     changes since the build"
                .into(),
        }
    }

    /// Reads the span of a piece from its header.
    fn span(&self, piece: &[u8]) -> Result<PieceSpan, StoreError> {
        let head = piece.get(..HEAD_BYTES).filter(|head| head.starts_with(MAGIC));
        let offset = head.and_then(|head| head.last_chunk::<8>()).ok_or_else(|| self.damaged())?;
        let (offset, len) = (u64::from_le_bytes(*offset), (piece.len() - HEAD_BYTES) as u64);
        Ok(PieceSpan { start: offset, end: offset.checked_add(len).ok_or_else(|| self.damaged())? })
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
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        let address = self.generation.store.layout.path_of(&self.prefix);
        if !writers.insert(address.clone()) {
            return Err(StoreError::Busy { path: self.path.clone() });
        }
        drop(writers);
        // Dropped, and so removed from the writers, if the log cannot be read.
        let reservation = WriterReservation(address);
        let Contents { len, next, .. } = wait_for(self.contents(u64::MAX))??;
        Ok(Box::new(BucketLogWriter {
            log: self.clone(),
            writer: fresh_id(),
            len,
            next,
            _reservation: reservation,
        }))
    }
}

/// The entry of a log among those with a writer in this process, removed on drop.
#[derive(Debug)]
struct WriterReservation(PathBuf);

impl Drop for WriterReservation {
    fn drop(&mut self) {
        WRITERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// The writer of a log.
#[derive(Debug)]
struct BucketLogWriter {
    log: BucketLog,
    /// The writer's random id, which distinguishes its pieces from those of other writers.
    writer: String,
    len: u64,
    next: u64,
    _reservation: WriterReservation,
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
        // Bytes appended to a replaced generation would never be read.
        generation.check_current().await
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
            // The piece may exist although the append failed, so the next append takes the number after the
            // last piece.
            Err(_) => {
                self.next = wait_for(self.log.contents(u64::MAX))
                    .ok()
                    .and_then(Result::ok)
                    .map_or(self.next, |contents| contents.next)
            }
        }
        result
    }
    fn sync(&mut self) -> Result<(), StoreError> {
        wait_for(self.log.generation.check_current())?
    }
}
