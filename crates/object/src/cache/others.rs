//! The disk of a cache that another process writes to. This one reads the blocks that it finds there.
//!
//! Nothing is agreed with the other process. It may replace a block at any time; the checksum of a block,
//! which includes its key, then differs, and the block counts as missing.

use super::files::{BlockFile, RecordFile, SlotRecord};
use super::key::BlockKey;
use super::memory::Block;
use super::slot_map::StoredBlock;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

/// The interval at which the records are read again, if their file has changed. 600,000 records, those of a
/// disk of 10 GB, take some 100 ms.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// The longest wait for files that the other process is making just now.
const MADE_WITHIN: Duration = Duration::from_secs(2);
/// The interval at which they are looked for.
const MADE_POLL: Duration = Duration::from_millis(5);

/// Blocks by their hashes.
type KnownBlocks = HashMap<u64, StoredBlock>;

/// The disk of another process.
pub(crate) struct OtherDisk {
    blocks: BlockFile,
    records: RecordFile,
    slots: u32,
    known: RwLock<Arc<KnownBlocks>>,
    loaded: Mutex<Loaded>,
}

/// When the records were read.
struct Loaded {
    at: Instant,
    /// When their file had been changed before that.
    modified: Option<SystemTime>,
}

impl OtherDisk {
    /// Opens the files in `folder` for reading, and reads at most `max_slots` records.
    pub(super) fn open(folder: &Path, max_slots: u64) -> io::Result<OtherDisk> {
        let (blocks, records) = made_files(folder)?;
        let slots = records.slots()?.min(max_slots).min(u64::from(u32::MAX)) as u32;
        let modified = records.modified();
        let known = RwLock::new(Arc::new(known(records.read(slots)?)));
        let loaded = Mutex::new(Loaded { at: Instant::now(), modified });
        Ok(OtherDisk { blocks, records, slots, known, loaded })
    }

    pub(super) fn slots(&self) -> u64 {
        u64::from(self.slots)
    }

    /// Returns the number of blocks that were found when the records were last read.
    pub(super) fn len(&self) -> u64 {
        self.known().len() as u64
    }

    fn known(&self) -> Arc<KnownBlocks> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads a block into `buffer`; `None` if it is missing, or is being replaced.
    pub(super) fn read(&self, key: BlockKey, buffer: &mut [u8]) -> Option<Block> {
        self.reload_after(RELOAD_INTERVAL);
        let block = *self.known().get(&key.hash())?;
        let content = self.blocks.read(block.slot, block.len, buffer).ok()?;
        (key.checksum(content) == block.checksum).then(|| Block::from(content))
    }

    /// Reads the records again if they are older than `age` and their file has changed. Others use the former
    /// ones meanwhile.
    pub(super) fn reload_after(&self, age: Duration) {
        let Ok(mut loaded) = self.loaded.try_lock() else { return };
        if loaded.at.elapsed() < age {
            return;
        }
        let modified = self.records.modified();
        if modified.is_none() || modified != loaded.modified {
            // A file that is being emptied is read at the next time.
            if let Ok(found) = self.records.read(self.slots) {
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known(found));
            }
        }
        *loaded = Loaded { at: Instant::now(), modified };
    }
}

/// Opens the files once the process that makes them has given them their lengths.
fn made_files(folder: &Path) -> io::Result<(BlockFile, RecordFile)> {
    let open = || {
        let (blocks, records) = (BlockFile::read_only(folder)?, RecordFile::read_only(folder)?);
        match records.slots()? {
            slots if slots > 0 && slots == blocks.slots()? => Ok((blocks, records)),
            _ => Err(io::Error::other("its files have other lengths than expected")),
        }
    };
    let until = Instant::now() + MADE_WITHIN;
    loop {
        match open() {
            Err(_) if Instant::now() < until => std::thread::sleep(MADE_POLL),
            opened => return opened,
        }
    }
}

fn known(found: Vec<(u32, SlotRecord)>) -> KnownBlocks {
    let entry = |(slot, SlotRecord { hash, len, checksum })| (hash, StoredBlock { slot, len, checksum });
    found.into_iter().map(entry).collect()
}
