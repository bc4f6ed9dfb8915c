//! A cache in memory and on local disk in front of object stores, shared by all indexes and threads of a
//! process.
//!
//! Objects are cached in aligned blocks, each under its object's version, so a stale block is never found.
//! Concurrent readers of a missing block share one request, which covers a run of neighbouring blocks.
//! Received blocks are inserted in memory and written to disk. Both levels stay within their budgets at all
//! times; the entries that find blocks, including those on disk, count as memory. On both levels, a library
//! (`foyer`) chooses the blocks to evict.
//!
//! One process at a time writes to a folder. Others with the same folder read what it has written.
//!
//! The files on disk are implemented here because the library's keep blocks in regions that are evicted as a
//! whole, pad each block of 16 KiB to 20 KiB, and depend on two compressors in C.

mod disk;
mod fetches;
mod files;
mod key;
mod memory;
mod opened_disk;
mod others;
mod slot_map;
#[cfg(test)]
mod tests;

pub(crate) use fetches::{Fetch, FoundBlocks};
pub(crate) use key::{BLOCK_BYTES, BlockKey, ObjectLocation, ObjectVersion, block_numbers, block_span};
pub(crate) use memory::Block;

use crate::connect::{CacheOptions, CacheStatus};
use crate::runtime::wait_for;
use bathyal_store::StoreError;
use disk::{MAX_QUEUED_WRITES, SLOT_MEMORY_BYTES};
use fetches::Fetches;
use memory::MemoryCache;
use opened_disk::Disk;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// The entries of blocks on disk take at most this share of the memory: one part in this number.
const DISK_MEMORY_SHARE: u64 = 2;
/// Blocks that are queued for writing to disk take at most this share of the memory: one part in this number.
const QUEUED_WRITES_SHARE: u64 = 8;

/// The open caches, by process and options.
type OpenCaches = HashMap<(u32, CacheOptions), Weak<Cache>>;

static CACHES: LazyLock<Mutex<OpenCaches>> = LazyLock::new(Mutex::default);

/// A cache in memory and on local disk; see the module's description.
pub struct Cache {
    pub(crate) memory: MemoryCache,
    memory_bytes: u64,
    /// The part of the memory budget that is not for blocks in memory, in bytes.
    reserved_bytes: u64,
    disk: Option<Disk>,
    /// The reason why the disk could not be opened, if one was requested.
    disk_error: Option<String>,
    pub(crate) fetches: Arc<Fetches>,
    /// Blocks that were not written to disk because the write queue was full.
    pub(crate) skipped: AtomicU64,
    pub(crate) process: u32,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cache").field("status", &self.status()).finish()
    }
}

impl Cache {
    /// Returns the cache of this process with these options, and creates it if there is none. If its folder
    /// cannot be used, it runs without a disk and reports that in its status.
    ///
    /// # Errors
    /// [`StoreError::Address`] if a disk is requested without a folder and the user has no home folder.
    pub fn shared(options: &CacheOptions) -> Result<Arc<Cache>, StoreError> {
        let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|_, cache| cache.strong_count() > 0);
        let key = (std::process::id(), options.clone());
        if let Some(cache) = caches.get(&key).and_then(Weak::upgrade) {
            return Ok(cache);
        }
        let cache = Arc::new(Cache::new(options)?);
        caches.insert(key, Arc::downgrade(&cache));
        Ok(cache)
    }

    fn new(options: &CacheOptions) -> Result<Cache, StoreError> {
        let CacheOptions { memory_bytes, disk_bytes, policy, .. } = *options;
        let (mut disk, mut disk_error, mut reserved_bytes) = (None, None, 0);
        if disk_bytes > 0 {
            let queued_bytes =
                (MAX_QUEUED_WRITES as u64 * BLOCK_BYTES).min(memory_bytes / QUEUED_WRITES_SHARE);
            let max_slots = memory_bytes / DISK_MEMORY_SHARE / SLOT_MEMORY_BYTES;
            match Disk::open(
                &options.disk_folder()?,
                disk_bytes,
                max_slots,
                queued_bytes / BLOCK_BYTES,
                policy,
            ) {
                Ok(opened) => {
                    reserved_bytes = queued_bytes + opened.slots() * SLOT_MEMORY_BYTES;
                    disk = Some(opened);
                }
                Err(error) => disk_error = Some(error),
            }
        }
        Ok(Cache {
            memory: MemoryCache::new(memory_bytes - reserved_bytes, policy),
            memory_bytes,
            reserved_bytes,
            disk,
            disk_error,
            fetches: Arc::default(),
            skipped: AtomicU64::new(0),
            process: std::process::id(),
        })
    }

    /// Waits until all queued blocks are written to disk.
    ///
    /// # Errors
    /// [`StoreError`] if the runtime's threads cannot be started, or if the thread's flag cancels the wait.
    pub fn flush(&self) -> Result<(), StoreError> {
        match self.disk() {
            Some(disk) => wait_for(disk.flush()),
            None => Ok(()),
        }
    }

    /// Returns the current contents and limits.
    pub fn status(&self) -> CacheStatus {
        let disk = self.disk.as_ref();
        CacheStatus {
            memory_bytes: self.memory.bytes() + self.reserved_bytes,
            most_memory_bytes: self.memory_bytes,
            disk_bytes: disk.map_or(0, Disk::bytes),
            most_disk_bytes: disk.map_or(0, Disk::most_bytes),
            damaged_blocks: disk.map_or(0, Disk::damaged),
            skipped_blocks: self.skipped.load(Relaxed),
            trouble: self.trouble().map(str::to_owned),
        }
    }

    /// Returns the reason why a requested disk is not used.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.disk_error.as_deref().or_else(|| self.disk.as_ref()?.trouble())
    }

    /// Returns the disk, if it is in use.
    pub(crate) fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref().filter(|disk| disk.is_used())
    }
}
