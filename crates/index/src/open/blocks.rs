//! Search over queries that stay on disk: block by block, in the memory of one block.

use super::{Index, SearchOptions, SearchResult};
use crate::error::IndexError;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Queries of a block when the caller does not say: threads are busy for a while, and 10 answers of each take 5 MB.
pub const DEFAULT_BLOCK_QUERIES: usize = 65_536;

impl Index {
    /// Answers all `queries` in blocks of `block` and gives each block's numbers and answers to `each`, in order.
    ///
    /// At no time more than one block of queries and of answers is in memory: mapped pages of queries that were
    /// answered are given back. Queries are checked block by block, so one that is not finite is found after the
    /// blocks before it have been given out.
    ///
    /// # Errors
    /// As [`Index::search`], and whatever `each` returns, which ends the search.
    pub fn search_blocks<E: From<IndexError>>(
        &self,
        queries: &VectorFile,
        block: NonZeroUsize,
        options: &SearchOptions,
        control: Control<'_>,
        mut each: impl FnMut(Range<usize>, SearchResult) -> Result<(), E>,
    ) -> Result<(), E> {
        for first in (0..queries.count()).step_by(block.get()) {
            let rows = first..queries.count().min(first.saturating_add(block.get()));
            self.check_queries(queries, rows.clone())?;
            let found = self.search_rows(queries, rows.clone(), options, control)?;
            queries.release();
            each(rows, found)?;
        }
        Ok(())
    }
}
