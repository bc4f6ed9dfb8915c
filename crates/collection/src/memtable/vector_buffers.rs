//! Buffers for the vectors of rows in memory, in the order of their arrival.

use crate::error::CollectionError;
use bathyal_vectors::{VectorBuffer, VectorFile};

/// The largest buffer in bytes, unless a single batch is larger.
const MAX_BUFFER_BYTES: u64 = 8 << 20;

/// One buffer per vector field. The vectors in it can be read for as long as anything refers to them.
#[derive(Debug, Clone, Default)]
pub(super) struct VectorBuffers(Vec<VectorBuffer>);

impl VectorBuffers {
    /// Appends copies of the vectors of each field to the buffers, and returns the copies. If a buffer is
    /// full, all get new memory: room for the batch, or for as many bytes as the memtable holds
    /// (`held_bytes`), whichever is more.
    pub(super) fn append(
        &mut self,
        vectors: &[VectorFile],
        held_bytes: u64,
    ) -> Result<Vec<VectorFile>, CollectionError> {
        let rows = vectors.first().map_or(0, VectorFile::count);
        if self.0.len() != vectors.len() || self.0.iter().any(|buffer| buffer.remaining() < rows) {
            let row_bytes: u64 = vectors.iter().map(|vectors| vectors.row_bytes() as u64).sum();
            let spare_rows = held_bytes.min(MAX_BUFFER_BYTES) / row_bytes.max(1);
            let new = |vectors: &VectorFile| {
                VectorBuffer::new(vectors.element(), vectors.dim(), rows.max(spare_rows as usize))
            };
            self.0 = vectors.iter().map(new).collect::<Result<_, _>>()?;
        }
        let copies: Option<Vec<_>> =
            self.0.iter().zip(vectors).map(|(buffer, vectors)| buffer.push(vectors)).collect();
        copies.ok_or_else(|| CollectionError::Internal("a new buffer is too small for its vectors".into()))
    }
}
