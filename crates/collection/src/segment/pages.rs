//! The source of the Parquet reader: bytes of pages that were read beforehand, or that are read ahead.

use super::checked_file::CheckedFile;
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

/// Bytes that are read for the header of a page.
const HEADER_BYTES: u64 = 64 << 10;

/// The file of columns, for one reader. Clones share the bytes that were read.
#[derive(Debug, Clone)]
pub(super) struct ColumnPages(Arc<PagesInner>);

#[derive(Debug)]
struct PagesInner {
    file: Arc<CheckedFile>,
    /// The least bytes of a read.
    ahead: u64,
    /// The most runs that are kept.
    max_runs: usize,
    runs: Mutex<VecDeque<Run>>,
    /// The error of a failed read. The Parquet reader keeps only its text.
    failure: Mutex<Option<CollectionError>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ColumnPages {
    /// Creates a source from `runs`, which cover everything that will be read.
    pub(super) fn from_runs(file: Arc<CheckedFile>, runs: Vec<Run>) -> ColumnPages {
        let max_runs = runs.len().saturating_add(1);
        ColumnPages::new(file, 0, max_runs, runs.into())
    }

    /// Creates a source that is read sequentially at `streams` offsets at a time; each read takes `ahead`
    /// bytes.
    pub(super) fn read_ahead(file: Arc<CheckedFile>, streams: usize, ahead: u64) -> ColumnPages {
        ColumnPages::new(file, ahead, 2 * streams.max(1), VecDeque::new())
    }

    fn new(file: Arc<CheckedFile>, ahead: u64, max_runs: usize, runs: VecDeque<Run>) -> ColumnPages {
        ColumnPages(Arc::new(PagesInner {
            file,
            ahead,
            max_runs,
            runs: Mutex::new(runs),
            failure: Mutex::new(None),
        }))
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
        if runs.len() > shared.max_runs {
            runs.pop_front();
        }
        bytes.ok_or_else(|| shared.file.damaged(range.start, "it ends before".into()))
    }

    /// Runs `read`, which uses the Parquet library, and converts errors and panics.
    pub(super) fn decode<T, E: Display>(
        &self,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, CollectionError> {
        match catch_panic(read) {
            Some(read) => read.map_err(|error| self.failure(&error)),
            None => Err(self.failure(&"Parquet cannot read them")),
        }
    }

    /// Returns the recorded error; if there is none, an error with the text of the library.
    fn failure(&self, text: &dyn Display) -> CollectionError {
        let failed = locked(&self.0.failure).take();
        failed
            .unwrap_or_else(|| CollectionError::damaged(self.0.file.path(), "its columns", text.to_string()))
    }

    fn record_failure(&self, error: CollectionError) -> ParquetError {
        let text = error.to_string();
        locked(&self.0.failure).get_or_insert(error);
        ParquetError::General(text)
    }
}

impl Length for ColumnPages {
    fn len(&self) -> u64 {
        self.0.file.len()
    }
}

impl ChunkReader for ColumnPages {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Reader<Bytes>, ParquetError> {
        let end = start.saturating_add(HEADER_BYTES).min(self.len());
        self.range(start..end.max(start)).map(Buf::reader).map_err(|error| self.record_failure(error))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.saturating_add(length as u64);
        self.range(start..end).map_err(|error| self.record_failure(error))
    }
}
