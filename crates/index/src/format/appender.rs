//! A file of an index as it is written, from front to back, and as a build reads it back.

use super::manifest::FileEntry;
use crate::error::IndexError;
use bathyal_store::{Append, Draft, Generation, Object, ObjectReader, StoreError};
use serde::{Deserialize, Serialize};
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are read back at once, where few files are.
const READ_BYTES: usize = 1 << 20;

/// How far a file was written, and the checksum up to there.
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
    /// How far it is written: to its end.
    pub(crate) fn written(&self) -> Written {
        Written { bytes: self.bytes, crc32c: self.crc32c }
    }
}

/// A file written from front to back, with its checksum.
pub(crate) struct Appender {
    file: Box<dyn Append>,
    name: String,
    written: Written,
}

impl Appender {
    pub(crate) fn create(directory: &dyn Draft, name: &str) -> Result<Appender, IndexError> {
        Appender::resume(directory, name, Written::default())
    }

    /// Continues a file after what is known to be written; anything beyond is dropped.
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

    /// How far the file is written.
    pub(crate) fn written(&self) -> Written {
        self.written
    }

    /// Waits until what was written is on the device.
    pub(crate) fn sync(&self) -> Result<Written, IndexError> {
        self.file.sync()?;
        Ok(self.written)
    }

    pub(crate) fn finish(self) -> Result<FileEntry, IndexError> {
        let Written { bytes, crc32c } = self.sync()?;
        Ok(FileEntry { name: self.name, bytes, crc32c, stripe: None })
    }
}

/// A file of a build that is read back from front to back.
pub(crate) struct ReadBack {
    file: BufReader<ObjectReader>,
    address: PathBuf,
    /// What was read so far, and what was written in all.
    read: Written,
    written: Written,
}

impl ReadBack {
    /// Begins at the first byte of a file of which so much was written.
    pub(crate) fn open(
        directory: &(impl Generation + ?Sized),
        name: &str,
        written: Written,
    ) -> Result<ReadBack, IndexError> {
        Ok(ReadBack::new(directory.get(name)?, written))
    }

    /// The same of a file that is open.
    pub(crate) fn new(object: Arc<dyn Object>, written: Written) -> ReadBack {
        ReadBack::in_blocks(object, written, READ_BYTES)
    }

    /// The same where many files are open: `at_once` bytes of each are read at once.
    pub(crate) fn in_blocks(object: Arc<dyn Object>, written: Written, at_once: usize) -> ReadBack {
        let address = object.address().to_path_buf();
        let file = BufReader::with_capacity(at_once, ObjectReader::new(object));
        ReadBack { file, address, read: Written::default(), written }
    }

    /// Fills `bytes` with those that follow. After the last one the file's checksum is looked at.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), IndexError> {
        self.file.read_exact(bytes).map_err(|e| StoreError::io("read", &self.address, e))?;
        self.read.add(bytes);
        if self.read.bytes == self.written.bytes { self.check() } else { Ok(()) }
    }

    /// The bytes that are left.
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

    /// The error of a file that does not hold what was written to it, as `what` says.
    pub(crate) fn lost(&self, what: &str) -> IndexError {
        let reason = format!("{what}: the disk lost what was written to it; build again");
        IndexError::damaged(&self.address, "a file of the build", reason)
    }
}

/// All bytes of a file of the build, as they were written.
pub(crate) fn read_back(
    directory: &(impl Generation + ?Sized),
    name: &str,
    written: Written,
) -> Result<Vec<u8>, IndexError> {
    let mut file = ReadBack::open(directory, name, written)?;
    let mut bytes = Vec::new();
    let room = usize::try_from(written.bytes).ok().map(|len| bytes.try_reserve_exact(len));
    if !matches!(room, Some(Ok(()))) {
        return Err(StoreError::Memory { path: file.address, bytes: written.bytes }.into());
    }
    bytes.resize(written.bytes as usize, 0);
    file.fill(&mut bytes)?;
    Ok(bytes)
}
