//! The sets that indexes are built of.

use std::path::{Path, PathBuf};

use bathyal_console::{Console, Failure};
use bathyal_kernels::Metric;
use bathyal_vectors::VectorFile;
use serde::Serialize;

use crate::workload::{Questions, Sources, Workload, make_folders};

/// Fewest vectors of a set: below, there is nothing to divide.
const LEAST_VECTORS: usize = 100;

/// What was given on the command line.
pub(crate) struct Given<'a> {
    pub(crate) base: &'a [PathBuf],
    pub(crate) query: &'a [PathBuf],
    pub(crate) groundtruth: &'a [PathBuf],
    pub(crate) work: &'a Path,
    pub(crate) output: &'a Path,
    /// Vectors of a set, at most; all where nothing is said.
    pub(crate) vectors: Option<u32>,
    /// Queries of a set, at most.
    pub(crate) queries: u32,
    pub(crate) metric: Metric,
    /// Exact neighbours a query.
    pub(crate) k: u32,
}

/// Vectors, queries and exact neighbours, and the folder of their indexes.
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) base: VectorFile,
    pub(crate) asked: Questions,
}

impl Set {
    /// What the line about the run says of it.
    pub(crate) fn facts(&self) -> SetFacts<'_> {
        SetFacts::of(&self.name, None, &self.base, &self.asked)
    }
}

/// A set, as the line about the run has it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SetFacts<'a> {
    name: &'a str,
    /// What it is made of, where it is not as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<&'a str>,
    vectors: usize,
    dim: usize,
    element: &'static str,
    queries: usize,
}

impl<'a> SetFacts<'a> {
    /// Those of a set of these vectors and queries; `made` says of what, where they are not as they were given.
    pub(crate) fn of(
        name: &'a str,
        made: Option<&'a str>,
        base: &VectorFile,
        asked: &Questions,
    ) -> SetFacts<'a> {
        let (vectors, dim, element) = (base.count(), base.dim(), base.element().name());
        SetFacts { name, made, vectors, dim, element, queries: asked.queries.count() }
    }
}

/// Opens the sets that are given.
pub(crate) fn open(given: &Given<'_>, console: &Console) -> Result<Vec<Set>, Failure> {
    let count = given.base.len();
    if given.query.len() != count || ![0, count].contains(&given.groundtruth.len()) {
        return Err(Failure::usage(format!(
            "there are {count} files of vectors, {} of queries and {} of exact neighbours: give a --query for each --base, and a \
             --groundtruth for each or none",
            given.query.len(),
            given.groundtruth.len()
        )));
    }
    let mut sets: Vec<Set> = Vec::new();
    for at in 0..count {
        let set = one(given, at, console)?;
        if sets.iter().any(|other| other.name == set.name) {
            return Err(Failure::usage(format!(
                "two files of vectors are called {}: their indexes would lie in one folder; rename one",
                set.name
            )));
        }
        sets.push(set);
    }
    Ok(sets)
}

fn one(given: &Given<'_>, at: usize, console: &Console) -> Result<Set, Failure> {
    let path = &given.base[at];
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = given.work.join(&name);
    make_folders(&folder, given.output)?;
    let all = VectorFile::open(path)?.count();
    let is_whole = given.vectors.is_none_or(|most| most as usize >= all);
    let sources = Sources {
        data: path,
        queries: &given.query[at],
        // Of fewer vectors the nearest are others.
        groundtruth: given.groundtruth.get(at).map(PathBuf::as_path).filter(|_| is_whole),
        work: &folder,
        vectors: given.vectors,
        first_queries: Some(given.queries),
        file_queries: 1,
        metric: given.metric,
        k: given.k,
    };
    let Workload { base, all: asked, .. } = Workload::open(&sources, console)?;
    if base.count() < LEAST_VECTORS {
        return Err(too_few(path, base.count()));
    }
    Ok(Set { name, folder, base, asked })
}

fn too_few(path: &Path, count: usize) -> Failure {
    Failure::usage(format!("{}: has {count} vectors; {LEAST_VECTORS} are needed at least", path.display()))
}
