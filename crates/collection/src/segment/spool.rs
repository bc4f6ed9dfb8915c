//! Holds the vectors of a segment until its indexes are built: in memory while there are few, then in an
//! object of its draft that is not published.

use super::file_writer::FileEntry;
use crate::error::CollectionError;
use crate::schema::VectorField;
use bathyal_store::{Append, Backing, Draft, ObjectExt, StoreError};
use bathyal_vectors::VectorFile;
use std::sync::Arc;

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// The vectors of a field.
#[derive(Debug)]
pub(super) struct Spool {
    name: String,
    buffer: Vec<u8>,
    object: Option<Box<dyn Append>>,
    /// True if the vectors are in the draft.
    spilled: bool,
    /// Bytes of all vectors so far.
    bytes: u64,
    /// CRC-32C of all vectors so far.
    crc32c: u32,
}

/// Bytes of an object in memory, shared with vectors.
#[derive(Debug)]
struct SharedBytes(Arc<[u8]>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Spool {
    /// Creates the spool of the field with this number.
    pub(super) fn new(field: usize) -> Spool {
        let name = format!("v{field}.rows");
        Spool { name, buffer: Vec::new(), object: None, spilled: false, bytes: 0, crc32c: 0 }
    }

    /// Creates the spool of a field whose vectors an earlier writer has left in the draft.
    pub(super) fn resumed(field: usize) -> Spool {
        Spool { spilled: true, ..Spool::new(field) }
    }

    /// Returns the bytes of all vectors.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    pub(super) fn push(&mut self, rows: &[u8]) -> Result<(), StoreError> {
        self.buffer.extend_from_slice(rows);
        self.bytes += rows.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, rows);
        match &mut self.object {
            Some(object) if self.buffer.len() >= WRITE_BYTES => {
                object.append(&self.buffer)?;
                self.buffer.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Moves the buffered vectors into the draft. Later vectors go there, too.
    pub(super) fn spill(&mut self, draft: &dyn Draft) -> Result<(), StoreError> {
        let object = match &mut self.object {
            Some(object) => object,
            None => self.object.insert(draft.append(&self.name, 0)?),
        };
        object.append(&self.buffer)?;
        (self.buffer, self.spilled) = (Vec::new(), true);
        Ok(())
    }

    /// Moves all vectors into the draft and syncs them to the disk. No vectors may follow.
    pub(super) fn sync(&mut self, draft: &dyn Draft) -> Result<FileEntry, StoreError> {
        self.spill(draft)?;
        if let Some(object) = self.object.take() {
            object.sync()?;
        }
        Ok(FileEntry { name: self.name.clone(), bytes: self.bytes, crc32c: self.crc32c })
    }

    /// Returns all vectors.
    ///
    /// # Errors
    /// [`CollectionError::Store`], [`CollectionError::Vectors`].
    pub(super) fn finish(
        mut self,
        draft: &dyn Draft,
        field: &VectorField,
    ) -> Result<VectorFile, CollectionError> {
        if !self.spilled {
            return Ok(VectorFile::from_rows(field.element, field.dim, self.buffer)?);
        }
        if self.object.is_some() {
            self.spill(draft)?;
        }
        self.object = None;
        let object = draft.get(&self.name)?;
        Ok(match object.backing()? {
            Backing::File(file) => {
                VectorFile::from_rows_file(file, object.address(), field.element, field.dim)?
            }
            Backing::Memory(bytes) => {
                VectorFile::from_lent(field.element, field.dim, Arc::new(SharedBytes(bytes)))?
            }
            Backing::Parts(_) | Backing::Elsewhere => {
                VectorFile::from_rows(field.element, field.dim, object.read_all()?)?
            }
        })
    }

    /// Removes the vectors of a field from the draft.
    pub(super) fn remove(draft: &dyn Draft, field: usize) -> Result<(), StoreError> {
        draft.delete(&Spool::new(field).name)
    }
}
