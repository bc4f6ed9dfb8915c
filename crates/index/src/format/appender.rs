//! Writes a file of an index from front to back, and reads it back during the build.

use super::manifest::FileEntry;
use crate::error::IndexError;
use bathyal_store::{Append, Draft, Generation, Object, ObjectReader, StoreError};
use serde::{Deserialize, Serialize};
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of one read when few files are read back.
const READ_BYTES: usize = 1 << 20;

/// The length of the written part of a file, and its checksum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) crc32c: u32,
}

impl Written {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
    }
}

impl FileEntry {
    /// Returns the whole file as its written part.
    pub(crate) fn written(&self) -> Written {
        Written { bytes: self.bytes, crc32c: self.crc32c }
    }
}

/// A file that is written from front to back, with its checksum.
pub(crate) struct Appender {
    file: Box<dyn Append>,
    name: String,
    written: Written,
}

impl Appender {
    pub(crate) fn create(directory: &dyn Draft, name: &str) -> Result<Appender, IndexError> {
        Appender::resume(directory, name, Written::default())
    }

    /// Continues a file after its written part; any bytes beyond it are dropped.
    pub(crate) fn resume(
        directory: &dyn Draft,
        name: &str,
        written: Written,
    ) -> Result<Appender, IndexError> {
        Ok(Appender { file: directory.append(name, written.bytes)?, name: name.into(), written })
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        self.file.append(bytes)?;
        self.written.add(bytes);
        Ok(())
    }

    /// Returns the written part of the file.
    pub(crate) fn written(&self) -> Written {
        self.written
    }

    /// Waits until the written part is on the device, and returns it.
    pub(crate) fn sync(&self) -> Result<Written, IndexError> {
        self.file.sync()?;
        Ok(self.written)
    }

    pub(crate) fn finish(self) -> Result<FileEntry, IndexError> {
        let Written { bytes, crc32c } = self.sync()?;
        Ok(FileEntry { name: self.name, bytes, crc32c, stripe: None })
    }
}

/// A file of a build that is read back from front to back, and checked at its end.
pub(crate) struct ReadBack {
    file: BufReader<ObjectReader>,
    address: PathBuf,
    /// The part that was read so far.
    read: Written,
    /// The whole file.
    written: Written,
}

impl ReadBack {
    /// Opens a file to read it back from its first byte; `written` is the whole file.
    pub(crate) fn open(
        directory: &(impl Generation + ?Sized),
        name: &str,
        written: Written,
    ) -> Result<ReadBack, IndexError> {
        Ok(ReadBack::new(directory.get(name)?, written))
    }

    /// Reads back a file that is open.
    pub(crate) fn new(object: Arc<dyn Object>, written: Written) -> ReadBack {
        ReadBack::in_blocks(object, written, READ_BYTES)
    }

    /// Reads back one of many open files, `at_once` bytes per read.
    pub(crate) fn in_blocks(object: Arc<dyn Object>, written: Written, at_once: usize) -> ReadBack {
        let address = object.address().to_path_buf();
        let file = BufReader::with_capacity(at_once, ObjectReader::new(object));
        ReadBack { file, address, read: Written::default(), written }
    }

    /// Fills `bytes` with the next bytes of the file. Checks the file's checksum after the last byte.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), IndexError> {
        self.file.read_exact(bytes).map_err(|e| StoreError::io("read", &self.address, e))?;
        self.read.add(bytes);
        if self.read.bytes == self.written.bytes { self.check() } else { Ok(()) }
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn left(&self) -> u64 {
        self.written.bytes.saturating_sub(self.read.bytes)
    }

    fn check(&self) -> Result<(), IndexError> {
        let (found, written) = (self.read.crc32c, self.written.crc32c);
        if found == written {
            return Ok(());
        }
        Err(self.lost(&format!("checksum {found:08x} instead of {written:08x}")))
    }

    /// Returns the error of a file whose content is not what was written to it; `what` describes the
    /// difference.
    pub(crate) fn lost(&self, what: &str) -> IndexError {
        let reason = format!("{what}: the disk lost what was written to it; build again");
        IndexError::damaged(&self.address, "a file of the build", reason)
    }
}

/// Returns all bytes of a file of the build, and checks them.
pub(crate) fn read_back(
    directory: &(impl Generation + ?Sized),
    name: &str,
    written: Written,
) -> Result<Vec<u8>, IndexError> {
    let mut file = ReadBack::open(directory, name, written)?;
    let mut bytes = Vec::new();
    let reserved = usize::try_from(written.bytes).ok().map(|len| bytes.try_reserve_exact(len));
    if !matches!(reserved, Some(Ok(()))) {
        return Err(StoreError::Memory { path: file.address, bytes: written.bytes }.into());
    }
    bytes.resize(written.bytes as usize, 0);
    file.fill(&mut bytes)?;
    Ok(bytes)
}
