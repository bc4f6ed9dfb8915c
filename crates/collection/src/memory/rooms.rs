//! Where the vectors of rows in memory lie: one after the other, as they came.

use crate::error::CollectionError;
use bathyal_vectors::{VectorBuffer, VectorFile};

/// Bytes of a room at most, unless a batch alone is larger.
const MOST_BYTES: u64 = 8 << 20;

/// Room for the vectors of each field. What is copied into it can be read as long as somebody has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Rooms(Vec<VectorBuffer>);

impl Rooms {
    /// Copies of the vectors of each field, which follow those that were taken before where there was room behind these: else they
    /// have new room, for as much again as the `held` bytes that there are.
    pub(super) fn take(
        &mut self,
        vectors: &[VectorFile],
        held: u64,
    ) -> Result<Vec<VectorFile>, CollectionError> {
        let rows = vectors.first().map_or(0, VectorFile::count);
        if self.0.len() != vectors.len() || self.0.iter().any(|room| room.remaining() < rows) {
            let row_bytes: u64 = vectors.iter().map(|vectors| vectors.row_bytes() as u64).sum();
            let room_for = held.min(MOST_BYTES) / row_bytes.max(1);
            let new = |vectors: &VectorFile| {
                VectorBuffer::new(vectors.element(), vectors.dim(), rows.max(room_for as usize))
            };
            self.0 = vectors.iter().map(new).collect::<Result<_, _>>()?;
        }
        let taken: Option<Vec<_>> =
            self.0.iter().zip(vectors).map(|(room, vectors)| room.push(vectors)).collect();
        taken.ok_or_else(|| CollectionError::Internal("no room for the vectors that it was made for".into()))
    }
}
