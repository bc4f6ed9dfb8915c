//! Memory and local disk in front of object stores, for all indexes and threads of a process.
//!
//! Objects are kept in aligned blocks, each under its object's version, so that nothing stale is ever found. What is missing
//! is asked for once, whoever waits for it, in ranges of neighbouring blocks; what came is kept in memory and written to disk.
//! Both are within their bytes at all times: what links and finds the blocks, of the disk, too, counts as memory. What is
//! given up first is decided by a library (`foyer`), on both levels in the same way.
//!
//! The disk's files are written here: the library's own keep blocks in regions that go as a whole, pad each block of 16 KiB
//! to 20 KiB, and bring two compressors in C along.

mod disk;
mod files;
mod flight;
mod key;
mod memory;
mod room;
#[cfg(test)]
mod tests;

pub(crate) use flight::{Flight, Found};
pub(crate) use key::{BLOCK_BYTES, BlockKey, ObjectVersion, Place, blocks, span};
pub(crate) use memory::Block;

use crate::connect::{CacheOptions, CacheStatus};
use crate::runtime::wait_for;
use bathyal_store::StoreError;
use disk::{Disk, MOST_WAITING, SLOT_MEMORY_BYTES};
use flight::Flights;
use memory::Memory;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// What finds blocks on disk takes no more than this share of the memory: 1 of so many.
const DISK_MEMORY_SHARE: u64 = 2;
/// Blocks that wait for the disk take no more than this share of the memory: 1 of so many.
const WAITING_SHARE: u64 = 8;

/// Caches that somebody has, by process and what they were told.
type Known = HashMap<(u32, CacheOptions), Weak<Cache>>;

static CACHES: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// See the module's description.
pub struct Cache {
    pub(crate) memory: Memory,
    memory_bytes: u64,
    /// What of the memory is not for blocks.
    set_aside: u64,
    disk: Option<Disk>,
    /// Why there is no disk although one was wanted.
    no_disk: Option<String>,
    pub(crate) flights: Arc<Flights>,
    /// Blocks that were not written because too many waited.
    pub(crate) skipped: AtomicU64,
    pub(crate) process: u32,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cache").field("status", &self.status()).finish()
    }
}

impl Cache {
    /// The cache of this process that `options` describe. One whose folder cannot be used goes on without a disk, and says so
    /// in its status.
    ///
    /// # Errors
    /// [`StoreError::Address`] without a folder where one is needed.
    pub fn of(options: &CacheOptions) -> Result<Arc<Cache>, StoreError> {
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
        let (mut disk, mut no_disk, mut set_aside) = (None, None, 0);
        if disk_bytes > 0 {
            let waiting = (MOST_WAITING as u64 * BLOCK_BYTES).min(memory_bytes / WAITING_SHARE);
            let most_slots = memory_bytes / DISK_MEMORY_SHARE / SLOT_MEMORY_BYTES;
            match Disk::open(&options.place()?, disk_bytes, most_slots, waiting / BLOCK_BYTES, policy) {
                Ok(opened) => {
                    set_aside = waiting + opened.slots() * SLOT_MEMORY_BYTES;
                    disk = Some(opened);
                }
                Err(why) => no_disk = Some(why),
            }
        }
        Ok(Cache {
            memory: Memory::new(memory_bytes - set_aside, policy),
            memory_bytes,
            set_aside,
            disk,
            no_disk,
            flights: Arc::default(),
            skipped: AtomicU64::new(0),
            process: std::process::id(),
        })
    }

    /// Waits until the disk has what it was given.
    ///
    /// # Errors
    /// [`StoreError`] on a thread that runs asynchronous tasks itself.
    pub fn settle(&self) -> Result<(), StoreError> {
        match self.disk() {
            Some(disk) => wait_for(disk.settle()),
            None => Ok(()),
        }
    }

    /// What it holds now.
    pub fn status(&self) -> CacheStatus {
        let disk = self.disk.as_ref();
        CacheStatus {
            memory_bytes: self.memory.bytes() + self.set_aside,
            most_memory_bytes: self.memory_bytes,
            disk_bytes: disk.map_or(0, Disk::bytes),
            most_disk_bytes: disk.map_or(0, Disk::most_bytes),
            damaged_blocks: disk.map_or(0, Disk::damaged),
            skipped_blocks: self.skipped.load(Relaxed),
            trouble: self.trouble().map(str::to_owned),
        }
    }

    /// Why the disk is not used, although it was wanted.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.no_disk.as_deref().or_else(|| self.disk.as_ref()?.trouble())
    }

    /// The disk, as long as it works.
    pub(crate) fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref().filter(|disk| disk.is_used())
    }
}
