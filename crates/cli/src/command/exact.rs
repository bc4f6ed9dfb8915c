//! The exact neighbours that the recall of a search is counted against.

use std::path::Path;

use bathyal_console::Failure;
use bathyal_index::Index;
use bathyal_vectors::IdFile;
use bathyal_vectors::groundtruth::check_exact;

/// Opens the exact neighbours `path` for a search of `index` for `k` neighbours of each of `queries` queries.
///
/// # Errors
/// What is wrong with the file, or what does not agree with the search.
pub(super) fn open(path: &Path, index: &Index, k: usize, queries: usize) -> Result<IdFile, Failure> {
    let exact = IdFile::open(path)?;
    check_exact(&exact, k, queries)?;
    exact.check_ids(index.len())?;
    Ok(exact)
}
