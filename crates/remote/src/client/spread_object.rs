//! An object that lies in parts on several nodes.

use super::draft::LEAST_PIECE_BYTES;
use super::nodes::ADVICE;
use bathyal_store::stripe::{HEADER_BYTES, PartBytes, Parts, Table};
use bathyal_store::{Backing, Object, StoreError};
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Parts of which as much is read at once as of an object that lies on one node; more take more memory than they are worth.
pub(super) const MOST_AT_ONCE: usize = 4;

/// See the module's description.
#[derive(Debug)]
pub(super) struct SpreadObject {
    /// Where it would be if it lay on one node.
    path: PathBuf,
    parts: Parts,
}

impl SpreadObject {
    pub(super) fn new(path: PathBuf, parts: Parts) -> SpreadObject {
        SpreadObject { path, parts }
    }

    /// The parts of the object `name` at `path`, which are these, found to be what `table` says.
    ///
    /// # Errors
    /// [`StoreError::Part`] that names the first that is not.
    pub(super) fn parts(
        table: &Table,
        name: &str,
        path: &Path,
        objects: Vec<Arc<dyn Object>>,
    ) -> Result<Parts, StoreError> {
        let bytes = objects.into_iter().map(|object| Arc::new(object) as Arc<dyn PartBytes>).collect();
        Parts::from_stores(table, name, path.to_path_buf(), bytes, ADVICE)
    }

    /// Fills `out` from `offset` on with one read of each part.
    fn gather(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let (deal, end) = (self.parts.layout(), offset + out.len() as u64);
        let mut own = Vec::new();
        for (number, part) in self.parts.parts().enumerate() {
            let (from, to) = (deal.share(offset, number), deal.share(end, number));
            let mut bytes = vec![0; (to - from) as usize];
            part.read_at(HEADER_BYTES + from, &mut bytes)?;
            own.push((bytes, 0));
        }
        for (number, range) in deal.runs(offset, out.len()) {
            let (bytes, taken) = &mut own[number];
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
        LEAST_PIECE_BYTES * self.parts.parts().len().min(MOST_AT_ONCE)
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
