//! The files of a cache's disk.
//!
//! `lock` is locked by the process that writes to the folder; others only read. `blocks` has slots of
//! [`BLOCK_BYTES`]. `slots` has records of [`RECORD_BYTES`]: a header, and then one for each slot with the
//! block's hash, its length, a checksum of its content, and a checksum of the record. A record is written
//! after its block; if only one of the two was written, one of the checksums is wrong.

use super::key::BLOCK_BYTES;
use bathyal_tier::backend::file::{read_exact_at, write_all_at};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use xxhash_rust::xxh3::xxh3_64;

/// The length of a record of `slots`.
const RECORD_BYTES: usize = 32;
/// The first bytes of `slots`.
const HEADER: &[u8; 16] = b"bathyal blocks 1";
/// The part of the budget that is left for the file system's own structures: one byte in this number, and
/// [`FILE_SYSTEM_BYTES`].
const FILE_SYSTEM_SHARE: u64 = 256;
const FILE_SYSTEM_BYTES: u64 = 128 << 10;
/// The fewest slots; with fewer, most slots would be in use by writers.
const MIN_SLOTS: u64 = 16;
/// The alignment of memory and offsets for direct I/O.
const ALIGNMENT: usize = 4096;

/// The record of a slot that holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotRecord {
    pub(super) hash: u64,
    pub(super) len: u32,
    pub(super) checksum: u64,
}

impl SlotRecord {
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&self.hash.to_le_bytes());
        record[8..12].copy_from_slice(&self.len.to_le_bytes());
        record[16..24].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = xxh3_64(&record[..24]).to_le_bytes();
        record[24..].copy_from_slice(&checksum);
        record
    }

    fn parse(record: &[u8; RECORD_BYTES]) -> Option<SlotRecord> {
        let number = |at: usize| record[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let len = number(8) as u32;
        let is_valid = xxh3_64(&record[..24]) == number(24) && (1..=BLOCK_BYTES as u32).contains(&len);
        is_valid.then(|| SlotRecord { hash: number(0), len, checksum: number(16) })
    }
}

/// Allocates a buffer for a block; the part with the alignment of direct I/O is used.
pub(super) fn buffer() -> Vec<u8> {
    vec![0; BLOCK_BYTES as usize + ALIGNMENT]
}

fn aligned(buffer: &mut [u8]) -> &mut [u8] {
    let from = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    &mut buffer[from..from + BLOCK_BYTES as usize]
}

/// The file of blocks.
pub(super) struct BlockFile(File);

impl BlockFile {
    /// Opens the file in `folder` for reading.
    pub(super) fn read_only(folder: &Path) -> io::Result<BlockFile> {
        open_direct(OpenOptions::new().read(true), &folder.join("blocks")).map(BlockFile)
    }

    /// Returns the number of slots in the file.
    pub(super) fn slots(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len() / BLOCK_BYTES)
    }

    /// Reads the first `len` bytes of a slot into `buffer`.
    pub(super) fn read<'b>(&self, slot: u32, len: u32, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let buffer = aligned(buffer);
        let padded = (len as usize).next_multiple_of(ALIGNMENT);
        read_exact_at(&self.0, &mut buffer[..padded], u64::from(slot) * BLOCK_BYTES)?;
        Ok(&buffer[..len as usize])
    }
}

/// The file of records.
pub(super) struct RecordFile(File);

impl RecordFile {
    /// Opens the file in `folder` for reading.
    pub(super) fn read_only(folder: &Path) -> io::Result<RecordFile> {
        File::open(folder.join("slots")).map(RecordFile)
    }

    fn header() -> [u8; RECORD_BYTES] {
        let mut header = [0; RECORD_BYTES];
        header[..16].copy_from_slice(HEADER);
        header[16..24].copy_from_slice(&BLOCK_BYTES.to_le_bytes());
        header
    }

    /// Returns true if the file is of this version.
    fn is_known(&self) -> io::Result<bool> {
        let mut found = [0; RECORD_BYTES];
        let len = self.0.metadata()?.len();
        Ok(len >= RECORD_BYTES as u64
            && read_exact_at(&self.0, &mut found, 0).is_ok()
            && found == RecordFile::header())
    }

    /// Returns the number of slots that the file has records of.
    pub(super) fn slots(&self) -> io::Result<u64> {
        Ok((self.0.metadata()?.len() / RECORD_BYTES as u64).saturating_sub(1))
    }

    /// Returns when the file was last changed, if the system says so.
    pub(super) fn modified(&self) -> Option<SystemTime> {
        self.0.metadata().and_then(|found| found.modified()).ok()
    }

    /// Reads the records of the first `slots` slots; none from a file of another version.
    pub(super) fn read(&self, slots: u32) -> io::Result<Vec<(u32, SlotRecord)>> {
        if !self.is_known()? {
            return Ok(Vec::new());
        }
        let known = self.slots()?.min(u64::from(slots));
        let (mut found, mut records) = (Vec::new(), vec![[0; RECORD_BYTES]; 4096]);
        for first in (0..known).step_by(records.len()) {
            let count = records.len().min((known - first) as usize);
            let bytes = records[..count].as_flattened_mut();
            read_exact_at(&self.0, bytes, (first + 1) * RECORD_BYTES as u64)?;
            let numbers = (first as u32..).zip(&records[..count]);
            found.extend(numbers.filter_map(|(number, record)| Some((number, SlotRecord::parse(record)?))));
        }
        Ok(found)
    }
}

/// Reason why the files of a disk cannot be used.
#[derive(Debug, PartialEq)]
pub(super) enum FilesError {
    /// Another process writes to the folder.
    InUse,
    /// Any other reason: a sentence for the user.
    Unusable(String),
}

/// The open files of a cache's disk.
pub(super) struct Files {
    folder: PathBuf,
    blocks: BlockFile,
    records: RecordFile,
    slots: u32,
    /// The locked file `lock`; the lock is held while the file is open.
    _lock: File,
}

impl Files {
    /// Opens or creates the files. Returns them, and the numbers and records of the slots that hold blocks.
    pub(super) fn open(
        folder: &Path,
        bytes: u64,
        max_slots: u64,
    ) -> Result<(Files, Vec<(u32, SlotRecord)>), FilesError> {
        let failed = |error: io::Error| {
            FilesError::Unusable(format!("the cache has no disk: {}: {error}", folder.display()))
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        options.mode(0o600);
        let lock = options.open(folder.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FilesError::InUse),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let usable = (bytes - bytes / FILE_SYSTEM_SHARE).saturating_sub(FILE_SYSTEM_BYTES);
        let slots = (usable / (BLOCK_BYTES + RECORD_BYTES as u64)).min(max_slots).min(u64::from(u32::MAX));
        if slots < MIN_SLOTS {
            return Err(FilesError::Unusable(
                "the cache has no disk: the cache's memory is too small to find blocks on a disk; raise \
                 cache_memory"
                    .into(),
            ));
        }
        let records = options.open(folder.join("slots")).map(RecordFile).map_err(failed)?;
        let path = folder.join("blocks");
        let blocks = open_direct(&options, &path).map(BlockFile).map_err(failed)?;
        let files = Files { folder: folder.to_path_buf(), blocks, records, slots: slots as u32, _lock: lock };
        let found = files.read_records().map_err(failed)?;
        // Setting the length at once keeps the file system from preallocating more, and truncates a file that
        // is too long.
        files.blocks.0.set_len(slots * BLOCK_BYTES).map_err(failed)?;
        files.records.0.set_len((slots + 1) * RECORD_BYTES as u64).map_err(failed)?;
        Ok((files, found))
    }

    /// Reads the records of the slots. Files of another version are emptied.
    fn read_records(&self) -> io::Result<Vec<(u32, SlotRecord)>> {
        if self.records.is_known()? {
            return self.records.read(self.slots);
        }
        self.records.0.set_len(0)?;
        self.blocks.0.set_len(0)?;
        write_all_at(&self.records.0, &RecordFile::header(), 0)?;
        Ok(Vec::new())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the bytes that the files take when all slots are full.
    pub(super) fn most_bytes(&self) -> u64 {
        u64::from(self.slots) * (BLOCK_BYTES + RECORD_BYTES as u64)
    }

    /// Reads the first `len` bytes of a slot into `buffer`.
    pub(super) fn read<'b>(&self, slot: u32, len: u32, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        self.blocks.read(slot, len, buffer)
    }

    /// Writes a block and its record to a slot, through `buffer`.
    pub(super) fn write(
        &self,
        slot: u32,
        content: &[u8],
        record: SlotRecord,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let buffer = aligned(buffer);
        let padded = content.len().next_multiple_of(ALIGNMENT);
        buffer[..content.len()].copy_from_slice(content);
        buffer[content.len()..padded].fill(0);
        write_all_at(&self.blocks.0, &buffer[..padded], u64::from(slot) * BLOCK_BYTES)?;
        write_all_at(&self.records.0, &record.to_bytes(), (u64::from(slot) + 1) * RECORD_BYTES as u64)
    }
}

/// Opens the file for direct I/O if the system and the file system allow it: the blocks need no second copy
/// in the page cache.
fn open_direct(options: &OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    if let Ok(file) = options.clone().custom_flags(libc::O_DIRECT).open(path) {
        return Ok(file);
    }
    options.open(path)
}

#[cfg(test)]
impl Files {
    /// Opens the file of blocks again without write access, as on a disk that fails.
    pub(super) fn read_only(self) -> Files {
        let blocks = BlockFile::read_only(&self.folder).unwrap();
        Files { blocks, ..self }
    }
}
