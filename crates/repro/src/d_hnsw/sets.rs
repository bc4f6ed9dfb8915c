//! The sets that indexes are built of.

use std::path::{Path, PathBuf};

use bathyal_console::{Console, Failure};
use bathyal_vectors::VectorFile;

use super::arguments::DhnswArguments;
use crate::workload::{Questions, Sources, Workload, make_folders};

/// Fewest vectors of a set: below, there is nothing to divide.
const LEAST_VECTORS: usize = 100;

/// Vectors, queries and exact neighbours, and the folder of their indexes.
pub(super) struct Set {
    pub name: String,
    pub folder: PathBuf,
    pub base: VectorFile,
    pub asked: Questions,
}

impl Set {
    /// In words.
    pub(super) fn described(&self) -> String {
        let Set { name, base, asked, .. } = self;
        let (count, dim, element) = (base.count(), base.dim(), base.element().name());
        format!("`{name}`: {count} vectors of {dim} {element}, {} queries", asked.queries.count())
    }
}

/// Opens the sets that are given.
pub(super) fn open(arguments: &DhnswArguments, console: &Console) -> Result<Vec<Set>, Failure> {
    let count = arguments.base.len();
    if arguments.query.len() != count || ![0, count].contains(&arguments.groundtruth.len()) {
        return Err(Failure::usage(format!(
            "there are {count} files of vectors, {} of queries and {} of exact neighbours: give a --query for each --base, and a \
             --groundtruth for each or none",
            arguments.query.len(),
            arguments.groundtruth.len()
        )));
    }
    let mut sets: Vec<Set> = Vec::new();
    for at in 0..count {
        let set = given(arguments, at, console)?;
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

fn given(arguments: &DhnswArguments, at: usize, console: &Console) -> Result<Set, Failure> {
    let path = &arguments.base[at];
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = arguments.work.join(&name);
    make_folders(&folder, &arguments.output)?;
    let all = VectorFile::open(path)?.count();
    let is_whole = arguments.most_vectors().is_none_or(|most| most as usize >= all);
    let sources = Sources {
        data: path,
        queries: &arguments.query[at],
        // Of fewer vectors the nearest are others.
        groundtruth: arguments.groundtruth.get(at).map(PathBuf::as_path).filter(|_| is_whole),
        work: &folder,
        vectors: arguments.most_vectors(),
        first_queries: Some(arguments.most_queries()),
        file_queries: 1,
        metric: arguments.metric,
        k: arguments.neighbours().last().copied().unwrap_or(1),
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
