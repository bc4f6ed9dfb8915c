//! The vectors of a segment that is being written, until its indexes are built: in memory while they are few, then in an object of
//! its draft, which is not published.

use super::written::FileEntry;
use crate::error::CollectionError;
use crate::schema::VectorField;
use bathyal_store::{Append, Backing, Draft, ObjectExt, StoreError};
use bathyal_vectors::VectorFile;
use std::sync::Arc;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// The vectors of a field.
#[derive(Debug)]
pub(super) struct Spool {
    name: String,
    held: Vec<u8>,
    object: Option<Box<dyn Append>>,
    /// Whether they are in the draft.
    spilled: bool,
    /// Bytes that came so far, and their checksum.
    bytes: u64,
    crc32c: u32,
}

/// Bytes of an object of a draft, as vectors.
#[derive(Debug)]
struct Shared(Arc<[u8]>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Spool {
    /// Of the field with this number.
    pub(super) fn new(field: usize) -> Spool {
        let name = format!("v{field}.rows");
        Spool { name, held: Vec::new(), object: None, spilled: false, bytes: 0, crc32c: 0 }
    }

    /// Of the field with this number, whose vectors an earlier writer has left in the draft.
    pub(super) fn left(field: usize) -> Spool {
        Spool { spilled: true, ..Spool::new(field) }
    }

    /// Bytes of all vectors.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held.len() as u64
    }

    pub(super) fn push(&mut self, rows: &[u8]) -> Result<(), StoreError> {
        self.held.extend_from_slice(rows);
        self.bytes += rows.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, rows);
        match &mut self.object {
            Some(object) if self.held.len() >= WRITE_BYTES => {
                object.append(&self.held)?;
                self.held.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Moves what is held into the draft, where all that follows goes, too.
    pub(super) fn spill(&mut self, draft: &dyn Draft) -> Result<(), StoreError> {
        let object = match &mut self.object {
            Some(object) => object,
            None => self.object.insert(draft.append(&self.name, 0)?),
        };
        object.append(&self.held)?;
        (self.held, self.spilled) = (Vec::new(), true);
        Ok(())
    }

    /// Makes all of them, which are in the draft, outlive the machine. No more come after that.
    pub(super) fn settle(&mut self, draft: &dyn Draft) -> Result<FileEntry, StoreError> {
        self.spill(draft)?;
        if let Some(object) = self.object.take() {
            object.sync()?;
        }
        Ok(FileEntry { name: self.name.clone(), bytes: self.bytes, crc32c: self.crc32c })
    }

    /// All vectors.
    ///
    /// # Errors
    /// [`CollectionError::Store`], [`CollectionError::Vectors`].
    pub(super) fn finish(
        mut self,
        draft: &dyn Draft,
        field: &VectorField,
    ) -> Result<VectorFile, CollectionError> {
        if !self.spilled {
            return Ok(VectorFile::from_rows(field.element, field.dim, self.held)?);
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
                VectorFile::from_lent(field.element, field.dim, Arc::new(Shared(bytes)))?
            }
            Backing::Parts(_) | Backing::Elsewhere => {
                VectorFile::from_rows(field.element, field.dim, object.read_all()?)?
            }
        })
    }

    /// Removes what was moved into the draft.
    pub(super) fn remove(draft: &dyn Draft, field: usize) -> Result<(), StoreError> {
        draft.delete(&Spool::new(field).name)
    }
}
