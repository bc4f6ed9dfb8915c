//! The positions of coupled lists of codes, and of the vectors that the codes stand for.
//!
//! | bytes |
//! |---|
//! | all rows by place, each with its id (4 bytes) behind it |
//! | zeros up to a whole block |
//! | list after list: its codes, then their places (4 bytes each), positioned like coupled lists of vectors |

use super::{BLOCK_BYTES, ID_BYTES, ListEntry, PostingLayout, Postings};
use crate::error::Unreadable;
use crate::format::manifest::MAX_VECTORS;

impl Postings {
    /// Returns coupled lists of codes of `code_bytes` each, over `vectors` vectors of `row_bytes` each.
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
        // The positions of lists follow from blocks, so a shift by whole blocks keeps them valid.
        let rows = (vectors * postings.place_bytes as u64).next_multiple_of(BLOCK_BYTES as u64);
        postings.starts.iter_mut().for_each(|start| *start += rows);
        Ok(postings)
    }

    /// Returns the lists from the bytes of a table.
    ///
    /// # Errors
    /// As [`Postings::coded`], and for a length that is not a whole number of entries.
    pub fn coded_from_bytes(
        row_bytes: usize,
        code_bytes: usize,
        vectors: u64,
        bytes: &[u8],
    ) -> Result<Postings, Unreadable> {
        Postings::coded(row_bytes, code_bytes, vectors, super::table_entries(bytes)?)
    }

    /// Returns the bytes from one row by place to the next, including the id behind each row if lists hold
    /// codes.
    pub fn place_bytes(&self) -> usize {
        self.place_bytes
    }
}
