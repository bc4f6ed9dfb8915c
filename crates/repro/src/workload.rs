//! Vectors, queries and exact neighbours of a measurement.

use std::path::Path;

use bathyal_console::{Console, Failure};
use bathyal_kernels::Metric;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::{IdFile, VectorFile, write_ids};

/// Files of vectors and queries, and how many rows of them are used.
pub(crate) struct Sources<'a> {
    pub(crate) data: &'a Path,
    pub(crate) queries: &'a Path,
    pub(crate) groundtruth: Option<&'a Path>,
    /// Folder in which computed exact neighbours are stored if no file of them is given.
    pub(crate) work: &'a Path,
    pub(crate) vectors: Option<u32>,
    pub(crate) first_queries: Option<u32>,
    /// Number of queries for searches of files.
    pub(crate) file_queries: u32,
    pub(crate) metric: Metric,
    /// Exact neighbours per query.
    pub(crate) k: u32,
}

/// Vectors and queries, and fewer queries for searches of files.
pub(crate) struct Workload {
    pub(crate) base: VectorFile,
    pub(crate) all: QuerySet,
    /// The first of the queries, for searches of files, which are slow.
    pub(crate) few: QuerySet,
}

/// Queries and their exact neighbours.
pub(crate) struct QuerySet {
    pub(crate) queries: VectorFile,
    pub(crate) exact: IdFile,
}

impl Workload {
    /// Opens the files, and computes the exact neighbours once if no file of them is given.
    pub(crate) fn open(sources: &Sources<'_>, console: &Console) -> Result<Workload, Failure> {
        let base = first_rows(sources.data, sources.vectors)?;
        let queries = first_rows(sources.queries, sources.first_queries)?;
        let k = sources.k as usize;
        let stored = format!("groundtruth-{}-{}-{k}.ibin", base.count(), queries.count());
        let stored = sources.work.join(stored);
        let exact = match sources.groundtruth {
            Some(path) => IdFile::open(path)?,
            None if stored.exists() => IdFile::open(&stored)?,
            None => {
                let progress = console.progress();
                let found = exact_neighbors(&base, &queries, sources.metric, k, None, &progress)?;
                drop(progress);
                write_ids(&stored, &found)?;
                found
            }
        };
        exact.check_ids(base.count())?;
        let few = queries.count().min(sources.file_queries as usize);
        let few =
            QuerySet { queries: first_rows(sources.queries, Some(few as u32))?, exact: first(&exact, few)? };
        let exact = first(&exact, queries.count())?;
        Ok(Workload { base, all: QuerySet { queries, exact }, few })
    }
}

/// Returns a file's name for the records, without its folder, which is of this machine only.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Creates the work folder and the output folder if they do not exist.
pub(crate) fn make_folders(work: &Path, output: &Path) -> Result<(), Failure> {
    for folder in [work, output] {
        std::fs::create_dir_all(folder)
            .map_err(|e| Failure::new(format!("{}: cannot create the folder: {e}", folder.display())))?;
    }
    Ok(())
}

/// Returns the exact neighbours of the first `queries` queries, or of all if there are fewer.
fn first(exact: &IdFile, queries: usize) -> Result<IdFile, Failure> {
    Ok(exact.slice(0..queries.min(exact.queries()))?)
}

/// Returns the first `rows` rows of a file of vectors, or all if `rows` is `None`.
fn first_rows(path: &Path, rows: Option<u32>) -> Result<VectorFile, Failure> {
    let file = VectorFile::open(path)?;
    let Some(rows) = rows.map(|rows| rows as usize).filter(|rows| *rows < file.count()) else {
        return Ok(file);
    };
    let mut bytes = Vec::with_capacity(rows * file.row_bytes());
    (0..rows).for_each(|row| bytes.extend_from_slice(file.row(row)));
    Ok(VectorFile::from_rows(file.element(), file.dim(), bytes)?)
}
