//! The data sets that indexes are built from.

use std::path::{Path, PathBuf};

use bathyal_console::{Console, Failure};
use bathyal_kernels::Metric;
use bathyal_vectors::VectorFile;
use serde::Serialize;

use crate::workload::{QuerySet, Sources, Workload, make_folders};

/// Fewest vectors of a set: fewer cannot be partitioned sensibly.
const LEAST_VECTORS: usize = 100;

/// Options of the command line that select and limit the sets.
pub(crate) struct SetArguments<'a> {
    pub(crate) base: &'a [PathBuf],
    pub(crate) query: &'a [PathBuf],
    pub(crate) groundtruth: &'a [PathBuf],
    pub(crate) work: &'a Path,
    pub(crate) output: &'a Path,
    /// Most vectors of a set; all if `None`.
    pub(crate) vectors: Option<u32>,
    /// Most queries of a set.
    pub(crate) queries: u32,
    pub(crate) metric: Metric,
    /// Exact neighbours per query.
    pub(crate) k: u32,
}

/// Vectors, queries and exact neighbours of one data set, and the folder of its indexes.
pub(crate) struct DataSet {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) base: VectorFile,
    pub(crate) query_set: QuerySet,
}

impl DataSet {
    /// Returns the description of the set for the line about the run.
    pub(crate) fn facts(&self) -> SetFacts<'_> {
        SetFacts::of(&self.name, None, &self.base, &self.query_set)
    }
}

/// Description of a set in the line about the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SetFacts<'a> {
    name: &'a str,
    /// How the set was derived, if it is not a given file.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<&'a str>,
    vectors: usize,
    dim: usize,
    element: &'static str,
    queries: usize,
}

impl<'a> SetFacts<'a> {
    /// Describes a set of these vectors and queries; `made` tells how the set was derived, if it is not a
    /// given file.
    pub(crate) fn of(
        name: &'a str,
        made: Option<&'a str>,
        base: &VectorFile,
        query_set: &QuerySet,
    ) -> SetFacts<'a> {
        let (vectors, dim, element) = (base.count(), base.dim(), base.element().name());
        SetFacts { name, made, vectors, dim, element, queries: query_set.queries.count() }
    }
}

/// Opens the given sets.
pub(crate) fn open(given: &SetArguments<'_>, console: &Console) -> Result<Vec<DataSet>, Failure> {
    let count = given.base.len();
    if given.query.len() != count || ![0, count].contains(&given.groundtruth.len()) {
        return Err(Failure::usage(format!(
            "got {count} files of vectors, {} of queries and {} of exact neighbours: give one --query for \
             each --base, and one --groundtruth for each --base or none at all",
            given.query.len(),
            given.groundtruth.len()
        )));
    }
    let mut sets: Vec<DataSet> = Vec::new();
    for at in 0..count {
        let set = open_one(given, at, console)?;
        if sets.iter().any(|other| other.name == set.name) {
            return Err(Failure::usage(format!(
                "two files of vectors are called {}: their indexes would be in the same folder; rename one",
                set.name
            )));
        }
        sets.push(set);
    }
    Ok(sets)
}

fn open_one(given: &SetArguments<'_>, at: usize, console: &Console) -> Result<DataSet, Failure> {
    let path = &given.base[at];
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = given.work.join(&name);
    make_folders(&folder, given.output)?;
    let all = VectorFile::open(path)?.count();
    let is_whole = given.vectors.is_none_or(|most| most as usize >= all);
    let sources = Sources {
        data: path,
        queries: &given.query[at],
        // The given neighbours are those among all vectors, and hold for no subset.
        groundtruth: given.groundtruth.get(at).map(PathBuf::as_path).filter(|_| is_whole),
        work: &folder,
        vectors: given.vectors,
        first_queries: Some(given.queries),
        file_queries: 1,
        metric: given.metric,
        k: given.k,
    };
    let Workload { base, all: query_set, .. } = Workload::open(&sources, console)?;
    if base.count() < LEAST_VECTORS {
        return Err(too_few(path, base.count()));
    }
    Ok(DataSet { name, folder, base, query_set })
}

fn too_few(path: &Path, count: usize) -> Failure {
    Failure::usage(format!("{}: has {count} vectors; at least {LEAST_VECTORS} are needed", path.display()))
}
