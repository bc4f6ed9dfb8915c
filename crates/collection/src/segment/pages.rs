//! What the reader of Parquet reads from: bytes that were read already for the pages it will ask for, or that are read ahead.

use super::summed::SummedFile;
use crate::catch_panic::catch_panic;
use crate::error::CollectionError;
use bathyal_index::ranges::Run;
use bytes::{Buf, Bytes, buf::Reader};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::collections::VecDeque;
use std::fmt::Display;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes behind the place where a header begins that are looked at for it.
const HEADER_BYTES: u64 = 64 << 10;

/// The columns' file to one reader. Clones share what was read.
#[derive(Debug, Clone)]
pub(super) struct Pages(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Arc<SummedFile>,
    /// Bytes that are read at least.
    ahead: u64,
    /// Runs that are kept at most.
    most: usize,
    runs: Mutex<VecDeque<Run>>,
    /// Why bytes could not be had: the reader keeps only the words of an error.
    failure: Mutex<Option<CollectionError>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pages {
    /// With `runs`, which hold what will be asked for.
    pub(super) fn holding(file: Arc<SummedFile>, runs: Vec<Run>) -> Pages {
        let most = runs.len().saturating_add(1);
        Pages::new(file, 0, most, runs.into())
    }

    /// From front to back in `streams` places at once, `ahead` bytes at a time.
    pub(super) fn ahead(file: Arc<SummedFile>, streams: usize, ahead: u64) -> Pages {
        Pages::new(file, ahead, 2 * streams.max(1), VecDeque::new())
    }

    fn new(file: Arc<SummedFile>, ahead: u64, most: usize, runs: VecDeque<Run>) -> Pages {
        Pages(Arc::new(Shared { file, ahead, most, runs: Mutex::new(runs), failure: Mutex::new(None) }))
    }

    fn range(&self, range: Range<u64>) -> Result<Bytes, CollectionError> {
        let shared = &*self.0;
        if let Some(bytes) = locked(&shared.runs).iter().rev().find_map(|run| run.get(range.clone())) {
            return Ok(bytes);
        }
        let end = range.end.max(range.start.saturating_add(shared.ahead).min(shared.file.len()));
        let run = shared.file.bytes(range.start..end)?;
        let bytes = run.get(range.clone());
        let mut runs = locked(&shared.runs);
        runs.push_back(run);
        if runs.len() > shared.most {
            runs.pop_front();
        }
        bytes.ok_or_else(|| shared.file.damaged(range.start, "it ends before".into()))
    }

    /// What `read` reads of them by the library.
    pub(super) fn decoded<T, E: Display>(
        &self,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, CollectionError> {
        match catch_panic(read) {
            Some(read) => read.map_err(|error| self.failure(&error)),
            None => Err(self.failure(&"they are none that Parquet can read")),
        }
    }

    /// What the reader failed with, which says `words` itself.
    fn failure(&self, words: &dyn Display) -> CollectionError {
        let failed = locked(&self.0.failure).take();
        failed
            .unwrap_or_else(|| CollectionError::damaged(self.0.file.path(), "its columns", words.to_string()))
    }

    fn told(&self, error: CollectionError) -> ParquetError {
        let words = error.to_string();
        locked(&self.0.failure).get_or_insert(error);
        ParquetError::General(words)
    }
}

impl Length for Pages {
    fn len(&self) -> u64 {
        self.0.file.len()
    }
}

impl ChunkReader for Pages {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Reader<Bytes>, ParquetError> {
        let end = start.saturating_add(HEADER_BYTES).min(self.len());
        self.range(start..end.max(start)).map(Buf::reader).map_err(|error| self.told(error))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.saturating_add(length as u64);
        self.range(start..end).map_err(|error| self.told(error))
    }
}
