//! Filling the cache in front of a store: an index is read before it is searched.

use crate::error::IndexError;
use crate::format::manifest::Manifest;
use crate::locate::holding;
use bathyal_object::{CacheStatus, StoreOptions};
use bathyal_store::{Backing, Generation, Object};
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The part of an index to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FillOptions {
    /// True to read also the file of pages, of which each search reads a small part. Otherwise only the files
    /// are read that opening the index loads.
    pub all: bool,
    /// The most bytes to read; `None` for the capacity of the cache.
    pub limit_bytes: Option<u64>,
}

/// The report of a fill.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FillReport {
    /// Files that were read, as a whole or up to the limit.
    pub files: u64,
    /// Bytes that were read of these.
    pub bytes: u64,
    /// Bytes received from the store: those that were not in the cache.
    pub received_bytes: u64,
    /// True if the given limit, or that of the cache, was reached before the end.
    pub limited: bool,
    /// Seconds.
    pub seconds: f64,
    /// The state of the cache after the fill.
    pub cache: CacheStatus,
}

/// Reads the index at `path`, an address, into the cache of `store`: first the files that every search needs,
/// the file of pages last. Data that is in the cache already is not requested again.
///
/// # Errors
/// [`IndexError::Parameter`] for a local folder, or without a cache; a store that does not answer;
/// cancellation.
pub fn fill(
    path: impl AsRef<Path>,
    store: &StoreOptions,
    options: &FillOptions,
    progress: &dyn Progress,
) -> Result<FillReport, IndexError> {
    let started = Instant::now();
    let path = path.as_ref();
    let holding = holding(path, store)?;
    let Some(status) = holding.cache_status(false)? else {
        return Err(IndexError::Parameter(format!(
            "{}: there is no cache to fill; give an address (s3://BUCKET/NAME) and the store option \
             cache=FOLDER",
            path.display()
        )));
    };
    let found = holding.store().open(&holding.name)?;
    let manifest = Manifest::load(found.as_ref())?;
    let capacity = status.most_memory_bytes.max(status.most_disk_bytes);
    let limit = options.limit_bytes.unwrap_or(capacity).min(capacity);
    let objects = objects_to_read(found.as_ref(), &manifest, options.all)?;
    let total: u64 = objects.iter().map(|object| object.len()).sum();
    progress.stage("fill", total.min(limit));
    let (mut bytes, mut files) = (0, 0);
    for object in &objects {
        files += u64::from(bytes < limit);
        bytes += read(object.as_ref(), bytes, limit, progress)?;
    }
    let received_bytes = found.traffic().map_or(0, |traffic| traffic.now().received_bytes);
    let cache = holding.cache_status(true)?.unwrap_or(status);
    let seconds = started.elapsed().as_secs_f64();
    Ok(FillReport { files, bytes, received_bytes, limited: bytes < total, seconds, cache })
}

/// Returns the objects to read in this order: small files first, so that a limit leaves out few files, and
/// the file of pages last.
fn objects_to_read(
    found: &dyn Generation,
    manifest: &Manifest,
    all: bool,
) -> Result<Vec<Arc<dyn Object>>, IndexError> {
    let pages = &manifest.paged_file().name;
    let mut first = Vec::new();
    for name in found.list()?.iter().filter(|name| *name != pages) {
        let object = found.get(name)?;
        // An object in memory came with the record of the index.
        if matches!(object.backing()?, Backing::Elsewhere) {
            first.push(object);
        }
    }
    first.sort_by_key(|object| object.len());
    if all {
        first.push(found.get(pages)?);
    }
    Ok(first)
}

/// Reads an object up to `limit`, of which `before` bytes are used already. Returns the number of bytes read.
fn read(object: &dyn Object, before: u64, limit: u64, progress: &dyn Progress) -> Result<u64, IndexError> {
    let end = object.len().min(limit.saturating_sub(before));
    let mut piece = vec![0; object.piece_bytes().min(usize::try_from(end).unwrap_or(usize::MAX))];
    let mut done = 0;
    while done < end {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let len = (piece.len() as u64).min(end - done);
        object.read_at(done, &mut piece[..len as usize])?;
        done += len;
        progress.advance(before + done);
    }
    Ok(end)
}
