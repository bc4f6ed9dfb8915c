//! The files of a disk.
//!
//! `lock` is locked by the one process that uses the folder. `blocks` has slots of [`BLOCK_BYTES`]. `slots` has a line of
//! [`LINE_BYTES`] for its head, and one a slot: the block's hash, its length, a checksum of its content, and one of the line.
//! A line is written after the block; where both were not, one of the checksums says so.

use super::key::BLOCK_BYTES;
use bathyal_tier::backend::file::{read_exact_at, write_all_at};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a line of `slots`.
const LINE_BYTES: usize = 32;
/// The first bytes of `slots`.
const HEAD: &[u8; 16] = b"bathyal blocks 1";
/// Bytes of the budget that are left to what the file system needs to find the blocks: 1 of so many, and some more.
const FILE_SYSTEM_SHARE: u64 = 256;
const FILE_SYSTEM_BYTES: u64 = 128 << 10;
/// With fewer there would be nothing but slots that are written.
const LEAST_SLOTS: u64 = 16;
/// Memory and offsets of reads past the page cache are multiples of this.
const ALIGNMENT: usize = 4096;

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) hash: u64,
    pub(super) len: u32,
    pub(super) checksum: u64,
}

impl Slot {
    fn to_bytes(self) -> [u8; LINE_BYTES] {
        let mut line = [0; LINE_BYTES];
        line[..8].copy_from_slice(&self.hash.to_le_bytes());
        line[8..12].copy_from_slice(&self.len.to_le_bytes());
        line[16..24].copy_from_slice(&self.checksum.to_le_bytes());
        let own = xxh3_64(&line[..24]).to_le_bytes();
        line[24..].copy_from_slice(&own);
        line
    }

    fn parse(line: &[u8; LINE_BYTES]) -> Option<Slot> {
        let number = |at: usize| line[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let len = number(8) as u32;
        let whole = xxh3_64(&line[..24]) == number(24) && (1..=BLOCK_BYTES as u32).contains(&len);
        whole.then(|| Slot { hash: number(0), len, checksum: number(16) })
    }
}

/// Memory for a block that can be read past the page cache: its aligned part is what counts.
pub(super) fn buffer() -> Vec<u8> {
    vec![0; BLOCK_BYTES as usize + ALIGNMENT]
}

fn aligned(buffer: &mut [u8]) -> &mut [u8] {
    let from = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    &mut buffer[from..from + BLOCK_BYTES as usize]
}

/// See the module's description.
pub(super) struct Files {
    folder: PathBuf,
    blocks: File,
    lines: File,
    slots: u32,
    /// Locked as long as it is open.
    _lock: File,
}

impl Files {
    /// Opens or creates the files, and reads what they hold.
    pub(super) fn open(
        folder: &Path,
        bytes: u64,
        most_slots: u64,
    ) -> Result<(Files, Vec<(u32, Slot)>), String> {
        let failed = |error: io::Error| format!("the cache has no disk: {}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        options.mode(0o600);
        let lock = options.open(folder.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!(
                    "the cache has no disk: another process uses {}; name another folder with cache=FOLDER",
                    folder.display()
                ));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let usable = (bytes - bytes / FILE_SYSTEM_SHARE).saturating_sub(FILE_SYSTEM_BYTES);
        let slots = (usable / (BLOCK_BYTES + LINE_BYTES as u64)).min(most_slots).min(u64::from(u32::MAX));
        if slots < LEAST_SLOTS {
            return Err(
                "the cache has no disk: there is no memory to find blocks on one; raise cache_memory".into(),
            );
        }
        let lines = options.open(folder.join("slots")).map_err(failed)?;
        let path = folder.join("blocks");
        let blocks = past_the_page_cache(&options, &path).map_err(failed)?;
        let files = Files { folder: folder.to_path_buf(), blocks, lines, slots: slots as u32, _lock: lock };
        let found = files.found().map_err(failed)?;
        // A length that is known at once keeps the file system from setting more aside, and gives back what is too much.
        files.blocks.set_len(slots * BLOCK_BYTES).map_err(failed)?;
        files.lines.set_len((slots + 1) * LINE_BYTES as u64).map_err(failed)?;
        Ok((files, found))
    }

    /// What the slots hold, if these files are of this version; what they hold is thrown away else.
    fn found(&self) -> io::Result<Vec<(u32, Slot)>> {
        let mut head = [0; LINE_BYTES];
        head[..16].copy_from_slice(HEAD);
        head[16..24].copy_from_slice(&BLOCK_BYTES.to_le_bytes());
        let len = self.lines.metadata()?.len();
        let mut there = [0; LINE_BYTES];
        if len < LINE_BYTES as u64 || read_exact_at(&self.lines, &mut there, 0).is_err() || there != head {
            self.lines.set_len(0)?;
            self.blocks.set_len(0)?;
            write_all_at(&self.lines, &head, 0)?;
            return Ok(Vec::new());
        }
        let known = (len / LINE_BYTES as u64 - 1).min(u64::from(self.slots));
        let (mut found, mut lines) = (Vec::new(), vec![[0; LINE_BYTES]; 4096]);
        for first in (0..known).step_by(lines.len()) {
            let some = lines.len().min((known - first) as usize);
            let bytes = lines[..some].as_flattened_mut();
            read_exact_at(&self.lines, bytes, (first + 1) * LINE_BYTES as u64)?;
            let numbers = (first as u32..).zip(&lines[..some]);
            found.extend(numbers.filter_map(|(number, line)| Some((number, Slot::parse(line)?))));
        }
        Ok(found)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes that the slots and their lines take when all are full.
    pub(super) fn most_bytes(&self) -> u64 {
        u64::from(self.slots) * (BLOCK_BYTES + LINE_BYTES as u64)
    }

    /// The first `len` bytes of a slot, by way of `buffer`.
    pub(super) fn read<'b>(&self, slot: u32, len: u32, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let buffer = aligned(buffer);
        let whole = (len as usize).next_multiple_of(ALIGNMENT);
        read_exact_at(&self.blocks, &mut buffer[..whole], u64::from(slot) * BLOCK_BYTES)?;
        Ok(&buffer[..len as usize])
    }

    /// Fills a slot, by way of `buffer`.
    pub(super) fn write(&self, slot: u32, content: &[u8], line: Slot, buffer: &mut [u8]) -> io::Result<()> {
        let buffer = aligned(buffer);
        let whole = content.len().next_multiple_of(ALIGNMENT);
        buffer[..content.len()].copy_from_slice(content);
        buffer[content.len()..whole].fill(0);
        write_all_at(&self.blocks, &buffer[..whole], u64::from(slot) * BLOCK_BYTES)?;
        write_all_at(&self.lines, &line.to_bytes(), (u64::from(slot) + 1) * LINE_BYTES as u64)
    }
}

/// Opens the file, past the page cache where the system and the file system can: blocks are in memory already.
fn past_the_page_cache(options: &OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    if let Ok(file) = options.clone().custom_flags(libc::O_DIRECT).open(path) {
        return Ok(file);
    }
    options.open(path)
}

#[cfg(test)]
impl Files {
    /// The same files, as if their disk refused to be written.
    pub(super) fn read_only(self) -> Files {
        let blocks = File::open(self.folder.join("blocks")).unwrap();
        Files { blocks, ..self }
    }
}
