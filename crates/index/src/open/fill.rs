//! Filling the cache in front of a store: an index is read for those who will search it.

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

/// Which part of an index is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FillOptions {
    /// Whether to read the file of pages, too, which searches read a little of each; else what they load when they open it.
    pub all: bool,
    /// Bytes to read at most; `None` for what the cache has room for.
    pub limit_bytes: Option<u64>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Filled {
    /// Files that were read, whole or to the limit.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes that the store was asked for: what was not in the cache.
    pub received_bytes: u64,
    /// Whether the limit, or the cache's, was reached before the end.
    pub limited: bool,
    /// Seconds.
    pub seconds: f64,
    /// What the cache holds now.
    pub cache: CacheStatus,
}

/// Reads the index at `path`, an address, into the cache that `store` names: first what every search needs, the file of pages
/// last. What is there already is not asked for again.
///
/// # Errors
/// [`IndexError::Parameter`] of a folder of this machine, and without a cache; a store that does not answer; cancellation.
pub fn fill(
    path: impl AsRef<Path>,
    store: &StoreOptions,
    options: &FillOptions,
    progress: &dyn Progress,
) -> Result<Filled, IndexError> {
    let started = Instant::now();
    let path = path.as_ref();
    let holding = holding(path, store)?;
    let Some(status) = holding.cache_status(false)? else {
        return Err(IndexError::Parameter(format!(
            "{}: there is no cache to fill; give an address (s3://BUCKET/NAME) and the store option cache=FOLDER",
            path.display()
        )));
    };
    let found = holding.store().open(&holding.name)?;
    let manifest = Manifest::load(found.as_ref())?;
    let room = status.most_memory_bytes.max(status.most_disk_bytes);
    let limit = options.limit_bytes.unwrap_or(room).min(room);
    let objects = wanted(found.as_ref(), &manifest, options.all)?;
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
    Ok(Filled { files, bytes, received_bytes, limited: bytes < total, seconds, cache })
}

/// What is read, in turn: small files first, so that a limit leaves out as few as can be, and the file of pages last.
fn wanted(
    found: &dyn Generation,
    manifest: &Manifest,
    all: bool,
) -> Result<Vec<Arc<dyn Object>>, IndexError> {
    let pages = &manifest.paged_file().name;
    let mut first = Vec::new();
    for name in found.list()?.iter().filter(|name| *name != pages) {
        let object = found.get(name)?;
        // What lies in memory came with the index's record.
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

/// Reads an object as far as `limit` goes, of which `before` bytes are used up. Returns how far that was.
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
