//! A file of an index as it is written: from front to back, with its checksum.

use super::manifest::FileEntry;
use crate::error::IndexError;
use bathyal_tier::TierWrite;
use bathyal_tier::backend::file::FileWriter;
use std::path::Path;

/// A file written from front to back, with its checksum.
pub(crate) struct Appender {
    writer: Box<FileWriter>,
    name: &'static str,
    bytes: u64,
    crc32c: u32,
}

impl Appender {
    pub(crate) fn create(directory: &Path, name: &'static str) -> Result<Appender, IndexError> {
        let writer = Box::new(FileWriter::create(directory.join(name))?);
        Ok(Appender { writer, name, bytes: 0, crc32c: 0 })
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        self.writer.write_at(self.bytes, bytes)?;
        self.bytes += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<FileEntry, IndexError> {
        self.writer.publish()?;
        Ok(FileEntry { name: self.name.into(), bytes: self.bytes, crc32c: self.crc32c })
    }
}
