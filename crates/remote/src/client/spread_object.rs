//! A striped object, with parts on several nodes.

use super::draft::MIN_PIECE_BYTES;
use super::node_table::ADVICE;
use bathyal_store::stripe::{HEADER_BYTES, PartBytes, Parts, Table};
use bathyal_store::{Backing, Object, StoreError};
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of parts that count for the piece size, because more take more memory than they are worth.
pub(super) const MAX_AT_ONCE: usize = 4;

/// A striped object.
#[derive(Debug)]
pub(super) struct SpreadObject {
    /// Address that it would have on a single node.
    path: PathBuf,
    parts: Parts,
}

impl SpreadObject {
    pub(super) fn new(path: PathBuf, parts: Parts) -> SpreadObject {
        SpreadObject { path, parts }
    }

    /// Checks that `objects` are the parts of the object `name` at `path`, as `table` describes them, and
    /// returns them as such.
    ///
    /// # Errors
    /// [`StoreError::Part`] for the first object that is not the expected part.
    pub(super) fn parts(
        table: &Table,
        name: &str,
        path: &Path,
        objects: Vec<Arc<dyn Object>>,
    ) -> Result<Parts, StoreError> {
        let bytes = objects.into_iter().map(|object| Arc::new(object) as Arc<dyn PartBytes>).collect();
        Parts::from_stores(table, name, path.to_path_buf(), bytes, ADVICE)
    }

    /// Reads the bytes from `offset` on into `out`, with one read of each part.
    fn gather(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let (deal, end) = (self.parts.layout(), offset + out.len() as u64);
        let mut part_bytes = Vec::new();
        for (number, part) in self.parts.parts().enumerate() {
            let (from, to) = (deal.share(offset, number), deal.share(end, number));
            let mut bytes = vec![0; (to - from) as usize];
            part.read_at(HEADER_BYTES + from, &mut bytes)?;
            part_bytes.push((bytes, 0));
        }
        for (number, range) in deal.runs(offset, out.len()) {
            let (bytes, taken) = &mut part_bytes[number];
            let len = range.len();
            out[range].copy_from_slice(&bytes[*taken..][..len]);
            *taken += len;
        }
        Ok(())
    }
}

impl Object for SpreadObject {
    fn address(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.parts.len()
    }

    fn piece_bytes(&self) -> usize {
        MIN_PIECE_BYTES * self.parts.parts().len().min(MAX_AT_ONCE)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let wanted = out.len() as u64;
        if offset.checked_add(wanted).is_none_or(|end| end > self.len()) {
            return Err(StoreError::Short { path: self.path.clone(), offset, wanted, len: self.len() });
        }
        let piece = self.piece_bytes();
        let mut pieces = out.chunks_mut(piece).enumerate();
        pieces.try_for_each(|(number, piece_out)| self.gather(offset + (number * piece) as u64, piece_out))
    }

    fn backing(&self) -> Result<Backing, StoreError> {
        Ok(Backing::Parts(self.parts.clone()))
    }

    fn tier(&self, options: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
        Ok(self.parts.tier(options)?)
    }
}
