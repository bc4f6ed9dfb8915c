//! The files of a segment as they are written: bytes that go to an object of a draft, and the checksums of these.

use super::block::numbered_checksum;
use bathyal_index::format::identity::Identity;
use bathyal_store::{Append, Draft, StoreError};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that a checksum of [`SUMS_NAME`](super::manifest::SUMS_NAME) is of: what reading a page of columns reads besides it is
/// less than that at either end.
pub(super) const PIECE_BYTES: usize = 16 << 10;
/// Bytes that are gathered for one write.
const WRITE_BYTES: usize = 16 * PIECE_BYTES;

/// A file: its name, its length and its checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// CRC-32C of all of it.
    pub(super) crc32c: u32,
}

/// Why a file could not be written, where that went through [`io::Write`]. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Failing(Arc<Mutex<Option<StoreError>>>);

impl Failing {
    pub(super) fn take(&self) -> Option<StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An object that is being written.
#[derive(Debug)]
pub(super) struct FileWriter {
    object: Box<dyn Append>,
    entry: FileEntry,
    held: Vec<u8>,
    /// What the checksums of pieces begin with, and these so far.
    identity: Identity,
    sums: Vec<u8>,
    failing: Failing,
}

impl FileWriter {
    pub(super) fn begin(draft: &dyn Draft, name: &str, identity: Identity) -> Result<FileWriter, StoreError> {
        Ok(FileWriter {
            object: draft.append(name, 0)?,
            entry: FileEntry { name: name.into(), bytes: 0, crc32c: 0 },
            held: Vec::with_capacity(WRITE_BYTES),
            identity,
            sums: Vec::new(),
            failing: Failing::default(),
        })
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(WRITE_BYTES - self.held.len()));
            self.held.extend_from_slice(now);
            if self.held.len() == WRITE_BYTES {
                self.write_held()?;
            }
            rest = later;
        }
        Ok(())
    }

    fn write_held(&mut self) -> Result<(), StoreError> {
        for piece in self.held.chunks(PIECE_BYTES) {
            let sum = numbered_checksum(self.identity, (self.sums.len() / 4) as u64, piece);
            self.sums.extend_from_slice(&sum.to_le_bytes());
        }
        self.object.append(&self.held)?;
        self.entry.crc32c = crc32c::crc32c_append(self.entry.crc32c, &self.held);
        self.entry.bytes += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    /// Makes what was written outlive the machine. Returns what it is, and the checksums of its pieces.
    pub(super) fn finish(mut self) -> Result<(FileEntry, Vec<u8>), StoreError> {
        self.write_held()?;
        self.object.sync()?;
        Ok((self.entry, self.sums))
    }

    /// What will say why a write failed.
    pub(super) fn failing(&self) -> Failing {
        self.failing.clone()
    }
}

impl io::Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.append(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                let told = io::Error::other(error.to_string());
                self.failing.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                Err(told)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
