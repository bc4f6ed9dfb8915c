//! What is searched for in what: vectors, queries, their exact neighbours.

use std::path::Path;

use bathyal_console::{Console, Failure};
use bathyal_kernels::Metric;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::{IdFile, VectorFile, write_ids};

/// Where vectors and queries come from, and how many of them are taken.
pub(crate) struct Sources<'a> {
    pub(crate) data: &'a Path,
    pub(crate) queries: &'a Path,
    pub(crate) groundtruth: Option<&'a Path>,
    /// Folder in which exact neighbours are kept where no file of them is given.
    pub(crate) work: &'a Path,
    pub(crate) vectors: Option<u32>,
    pub(crate) first_queries: Option<u32>,
    /// Queries that files are searched for.
    pub(crate) file_queries: u32,
    pub(crate) metric: Metric,
    /// Exact neighbours a query.
    pub(crate) k: u32,
}

/// Vectors, queries, and those of them that are searched for in files.
pub(crate) struct Workload {
    pub(crate) base: VectorFile,
    pub(crate) all: Questions,
    /// The first of them: files are slow.
    pub(crate) few: Questions,
}

/// Queries and their exact neighbours.
pub(crate) struct Questions {
    pub(crate) queries: VectorFile,
    pub(crate) exact: IdFile,
}

impl Workload {
    /// Opens what is named, and computes the exact neighbours once where no file of them is given.
    pub(crate) fn open(sources: &Sources<'_>, console: &Console) -> Result<Workload, Failure> {
        let base = first_rows(sources.data, sources.vectors)?;
        let queries = first_rows(sources.queries, sources.first_queries)?;
        let k = sources.k as usize;
        let kept = format!("groundtruth-{}-{}-{k}.ibin", base.count(), queries.count());
        let kept = sources.work.join(kept);
        let exact = match sources.groundtruth {
            Some(path) => IdFile::open(path)?,
            None if kept.exists() => IdFile::open(&kept)?,
            None => {
                let progress = console.progress();
                let found = exact_neighbors(&base, &queries, sources.metric, k, None, &progress)?;
                drop(progress);
                write_ids(&kept, &found)?;
                found
            }
        };
        exact.check_ids(base.count())?;
        let few = queries.count().min(sources.file_queries as usize);
        let few =
            Questions { queries: first_rows(sources.queries, Some(few as u32))?, exact: first(&exact, few)? };
        let exact = first(&exact, queries.count())?;
        Ok(Workload { base, all: Questions { queries, exact }, few })
    }
}

/// A file's name as records have it: without the folders that only this machine knows.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Makes the work folder and that of the records where they are not there.
pub(crate) fn make_folders(work: &Path, output: &Path) -> Result<(), Failure> {
    for folder in [work, output] {
        std::fs::create_dir_all(folder)
            .map_err(|e| Failure::new(format!("{}: cannot make the folder: {e}", folder.display())))?;
    }
    Ok(())
}

/// The exact neighbours of the first queries; all where there are no more.
fn first(exact: &IdFile, queries: usize) -> Result<IdFile, Failure> {
    Ok(exact.slice(0..queries.min(exact.queries()))?)
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
