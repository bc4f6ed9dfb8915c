//! Search for queries in a file, block by block, in the memory of one block.

use super::{Index, SearchOptions, SearchRequest, SearchResult};
use crate::error::IndexError;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::num::NonZeroUsize;
use std::ops::Range;

/// The default number of queries in a block: enough work for all threads, and 10 neighbours of each take 5
/// MB.
pub const DEFAULT_BLOCK_QUERIES: usize = 65_536;

impl Index {
    /// Answers all `queries` in blocks of `block`, and calls `each` with the rows and the answers of each
    /// block, in order.
    ///
    /// Only one block of queries and of answers is in memory at a time: mapped pages of answered queries are
    /// released. Queries are checked block by block, so a query that is not finite is refused after the
    /// answers to the blocks before it.
    ///
    /// # Errors
    /// As [`Index::search`], and the errors of `each`, which end the search.
    pub fn search_blocks<E: From<IndexError>>(
        &self,
        queries: &VectorFile,
        block: NonZeroUsize,
        options: &SearchOptions,
        control: Control<'_>,
        mut each: impl FnMut(Range<usize>, SearchResult) -> Result<(), E>,
    ) -> Result<(), E> {
        let request = SearchRequest::new(options)?;
        for first in (0..queries.count()).step_by(block.get()) {
            let rows = first..queries.count().min(first.saturating_add(block.get()));
            self.check_queries(queries, rows.clone())?;
            let found = self.search_rows(queries, rows.clone(), &request, control)?;
            queries.release();
            each(rows, found)?;
        }
        Ok(())
    }
}
