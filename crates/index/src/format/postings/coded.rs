//! Where coupled lists of codes lie, and the vectors that the codes stand for.
//!
//! | bytes |
//! |---|
//! | all rows by place, each with its id (4 bytes) behind it |
//! | zeros up to a whole block |
//! | list after list: its codes, then their places (4 bytes each), placed as coupled lists are |

use super::{BLOCK_BYTES, ID_BYTES, ListEntry, PostingLayout, Postings};
use crate::error::Unreadable;
use crate::format::manifest::MAX_VECTORS;

impl Postings {
    /// Coupled lists of codes of `code_bytes` each, over `vectors` vectors of `row_bytes` each.
    ///
    /// # Errors
    /// As [`Postings::new`].
    pub fn coded(
        row_bytes: usize,
        code_bytes: usize,
        vectors: u64,
        entries: impl ExactSizeIterator<Item = ListEntry>,
    ) -> Result<Postings, Unreadable> {
        if row_bytes == 0 || row_bytes as u64 >= super::MOST_LIST_BYTES || vectors > MAX_VECTORS {
            return Err(format!("{vectors} vectors of {row_bytes} bytes cannot be in lists").into());
        }
        let mut postings = Postings::new(PostingLayout::Coupled, code_bytes, vectors, entries)?;
        postings.place_bytes = row_bytes + ID_BYTES;
        postings.longest = postings.longest.max(postings.place_bytes);
        // Lists were placed by blocks, so moving them by whole blocks leaves them as they are.
        let rows = (vectors * postings.place_bytes as u64).next_multiple_of(BLOCK_BYTES as u64);
        postings.starts.iter_mut().for_each(|start| *start += rows);
        Ok(postings)
    }

    /// The same from the bytes of a table.
    ///
    /// # Errors
    /// As [`Postings::coded`], and for bytes that are no whole number of entries.
    pub fn coded_from_bytes(
        row_bytes: usize,
        code_bytes: usize,
        vectors: u64,
        bytes: &[u8],
    ) -> Result<Postings, Unreadable> {
        Postings::coded(row_bytes, code_bytes, vectors, super::table_entries(bytes)?)
    }

    /// Bytes from one row by place to the next; with an id behind each row where lists hold codes.
    pub fn place_bytes(&self) -> usize {
        self.place_bytes
    }
}
