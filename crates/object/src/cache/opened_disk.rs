//! The cache level on disk: that of this process, or that of another process that has the same folder.

use super::disk::OwnDisk;
use super::files::{Files, FilesError, buffer};
use super::key::{BLOCK_BYTES, BlockKey};
use super::memory::Block;
use super::others::OtherDisk;
use crate::connect::CachePolicy;
use std::path::Path;

/// A disk with cached blocks.
pub(crate) enum Disk {
    /// This process writes to it.
    Own(OwnDisk),
    /// Another process writes to it, and this one reads what it finds there.
    Other(OtherDisk),
}

impl Disk {
    /// Opens the disk in `folder` with the blocks already there, within `bytes` bytes and `max_slots` slots.
    /// At most `max_queued` blocks are queued for writing. If another process writes to the folder, the
    /// budget on disk is that of the other process.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(crate) fn open(
        folder: &Path,
        bytes: u64,
        max_slots: u64,
        max_queued: u64,
        policy: CachePolicy,
    ) -> Result<Disk, String> {
        match Files::open(folder, bytes, max_slots) {
            Ok((files, found)) => OwnDisk::new(files, found, max_queued, policy).map(Disk::Own),
            Err(FilesError::InUse) => OtherDisk::open(folder, max_slots).map(Disk::Other).map_err(|error| {
                let folder = folder.display();
                format!("the cache has no disk: {folder}, which another process writes to: {error}")
            }),
            Err(FilesError::Unusable(why)) => Err(why),
        }
    }

    /// Reads a block; `None` if it is missing or damaged. Blocks until the disk has read it.
    pub(crate) fn read(&self, key: BlockKey) -> Option<Block> {
        match self {
            Disk::Own(disk) => disk.read(key),
            Disk::Other(disk) => disk.read(key, &mut buffer()),
        }
    }

    /// Returns true if the disk has not failed.
    pub(crate) fn is_used(&self) -> bool {
        match self {
            Disk::Own(disk) => disk.is_used(),
            Disk::Other(_) => true,
        }
    }

    /// Queues a block for writing, if this process writes. Returns false if the write queue is full.
    pub(crate) fn try_write(&self, key: BlockKey, block: &Block) -> bool {
        match self {
            Disk::Own(disk) => disk.try_write(key, block),
            Disk::Other(_) => true,
        }
    }

    /// Queues a block for writing, if this process writes, and waits while the write queue is full.
    pub(crate) async fn write(&self, key: BlockKey, block: &Block) {
        match self {
            Disk::Own(disk) => disk.write(key, block).await,
            Disk::Other(_) => {}
        }
    }

    /// Waits until the write queue is empty.
    pub(crate) async fn flush(&self) {
        match self {
            Disk::Own(disk) => disk.flush().await,
            Disk::Other(_) => {}
        }
    }

    /// Returns the reason why the disk is no longer used.
    pub(crate) fn trouble(&self) -> Option<&str> {
        match self {
            Disk::Own(disk) => disk.trouble(),
            Disk::Other(_) => None,
        }
    }

    /// Returns the bytes of the slots with blocks.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Disk::Own(disk) => disk.bytes(),
            Disk::Other(disk) => disk.len() * BLOCK_BYTES,
        }
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> u64 {
        match self {
            Disk::Own(disk) => disk.slots(),
            Disk::Other(disk) => disk.slots(),
        }
    }

    /// Returns the most bytes that its files take.
    pub(crate) fn most_bytes(&self) -> u64 {
        match self {
            Disk::Own(disk) => disk.most_bytes(),
            Disk::Other(disk) => disk.slots() * BLOCK_BYTES,
        }
    }

    /// Returns the number of blocks that were found damaged.
    pub(crate) fn damaged(&self) -> u64 {
        match self {
            Disk::Own(disk) => disk.damaged(),
            Disk::Other(_) => 0,
        }
    }
}
