//! Writes the files of a segment: appends to an object of a draft, and computes checksums.

use super::block::numbered_checksum;
use bathyal_index::format::identity::Identity;
use bathyal_store::{Append, Draft, StoreError};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a piece; [`SUMS_NAME`](super::manifest::SUMS_NAME) has a checksum for each. Reading a page of
/// columns reads less than a piece too much at either end.
pub(super) const PIECE_BYTES: usize = 16 << 10;
/// Bytes of one write.
const WRITE_BYTES: usize = 16 * PIECE_BYTES;

/// Manifest entry of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// CRC-32C of the whole file.
    pub(super) crc32c: u32,
}

/// The error of a file that is written through [`io::Write`]. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteFailure(Arc<Mutex<Option<StoreError>>>);

impl WriteFailure {
    pub(super) fn take(&self) -> Option<StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Writes an object.
#[derive(Debug)]
pub(super) struct FileWriter {
    object: Box<dyn Append>,
    entry: FileEntry,
    buffer: Vec<u8>,
    /// Identity with which the checksums of pieces begin.
    identity: Identity,
    /// Checksums of the pieces so far.
    sums: Vec<u8>,
    write_failure: WriteFailure,
}

impl FileWriter {
    pub(super) fn begin(draft: &dyn Draft, name: &str, identity: Identity) -> Result<FileWriter, StoreError> {
        Ok(FileWriter {
            object: draft.append(name, 0)?,
            entry: FileEntry { name: name.into(), bytes: 0, crc32c: 0 },
            buffer: Vec::with_capacity(WRITE_BYTES),
            identity,
            sums: Vec::new(),
            write_failure: WriteFailure::default(),
        })
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, remaining) = rest.split_at(rest.len().min(WRITE_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            if self.buffer.len() == WRITE_BYTES {
                self.write_buffer()?;
            }
            rest = remaining;
        }
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<(), StoreError> {
        for piece in self.buffer.chunks(PIECE_BYTES) {
            let sum = numbered_checksum(self.identity, (self.sums.len() / 4) as u64, piece);
            self.sums.extend_from_slice(&sum.to_le_bytes());
        }
        self.object.append(&self.buffer)?;
        self.entry.crc32c = crc32c::crc32c_append(self.entry.crc32c, &self.buffer);
        self.entry.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Syncs the file to the disk. Returns its entry, and the checksums of its pieces.
    pub(super) fn finish(mut self) -> Result<(FileEntry, Vec<u8>), StoreError> {
        self.write_buffer()?;
        self.object.sync()?;
        Ok((self.entry, self.sums))
    }

    /// Returns the place where a later error of [`io::Write`] is recorded.
    pub(super) fn write_failure(&self) -> WriteFailure {
        self.write_failure.clone()
    }
}

impl io::Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.append(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                let io_error = io::Error::other(error.to_string());
                self.write_failure.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                Err(io_error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
