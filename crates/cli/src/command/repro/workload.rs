//! What is searched for in what: vectors, queries, their exact neighbours.

use std::path::Path;

use bathyal_index::groundtruth::exact_neighbors;
use bathyal_index::vectors::{IdFile, VectorFile, write_ids};
use bathyal_kernels::Metric;

use crate::console::Console;
use crate::failure::Failure;

/// Vectors, queries and the exact neighbours of these in those.
pub(super) struct Workload {
    pub(super) base: VectorFile,
    pub(super) queries: VectorFile,
    pub(super) exact: IdFile,
}

impl Workload {
    /// Opens what `given` names, and computes the exact neighbours once where no file of them is given.
    pub(super) fn open(given: &Given<'_>, console: &Console) -> Result<Workload, Failure> {
        let base = first_rows(given.data, given.vectors)?;
        let queries = first_rows(given.queries, given.first_queries)?;
        let kept =
            given.work.join(format!("groundtruth-{}-{}-{}.ibin", base.count(), queries.count(), given.k));
        let exact = match given.groundtruth {
            Some(path) => IdFile::open(path)?,
            None if kept.exists() => IdFile::open(&kept)?,
            None => {
                let progress = console.progress();
                let found = exact_neighbors(&base, &queries, given.metric, given.k, None, &progress)?;
                drop(progress);
                write_ids(&kept, &found)?;
                found
            }
        };
        exact.check_ids(base.count())?;
        let exact = if exact.queries() > queries.count() { exact.slice(0..queries.count())? } else { exact };
        Ok(Workload { base, queries, exact })
    }
}

/// Where a workload comes from.
pub(super) struct Given<'a> {
    pub(super) data: &'a Path,
    pub(super) queries: &'a Path,
    pub(super) groundtruth: Option<&'a Path>,
    pub(super) work: &'a Path,
    pub(super) vectors: Option<u32>,
    pub(super) first_queries: Option<u32>,
    pub(super) metric: Metric,
    pub(super) k: usize,
}

/// The first rows of a file of vectors; all where no number is given.
fn first_rows(path: &Path, rows: Option<u32>) -> Result<VectorFile, Failure> {
    let file = VectorFile::open(path)?;
    let Some(rows) = rows.map(|rows| rows as usize).filter(|rows| *rows < file.count()) else {
        return Ok(file);
    };
    let mut bytes = Vec::with_capacity(rows * file.row_bytes());
    (0..rows).for_each(|row| bytes.extend_from_slice(file.row(row)));
    Ok(VectorFile::from_rows(file.element(), file.dim(), bytes)?)
}
