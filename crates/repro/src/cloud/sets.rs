//! The data sets that indexes are built from: the given ones, and those derived from the first of them.

use std::path::{Path, PathBuf};

use bathyal_console::{Console, Failure};
use bathyal_kernels::distance::to_f32;
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::{IdFile, VectorFile, write_ids};

use super::arguments::CloudArguments;
use crate::sets::SetFacts;
use crate::workload::{QuerySet, Sources, Workload, make_folders};

/// Standard deviations from the mean beyond which values are clipped when floats become bytes.
const DEVIATIONS: f64 = 4.0;
/// Divisor of the dimensions for the projected set.
const LOW_DIVISOR: usize = 4;
/// Fewest vectors of a set: fewer leave nothing to search.
const LEAST_VECTORS: usize = 100;

/// Vectors, queries and exact neighbours of one data set, and the folder of its indexes.
pub(super) struct CloudSet {
    pub name: String,
    /// How the set was derived, if it is not a given file.
    pub made: Option<String>,
    pub folder: PathBuf,
    pub base: VectorFile,
    pub query_set: QuerySet,
}

impl CloudSet {
    /// Returns the description of the set for the line about the run.
    pub(super) fn facts(&self) -> SetFacts<'_> {
        SetFacts::of(&self.name, self.made.as_deref(), &self.base, &self.query_set)
    }

    /// Returns the first `vectors` vectors of the set, with the same queries.
    pub(super) fn prefix(
        &self,
        vectors: usize,
        arguments: &CloudArguments,
        console: &Console,
    ) -> Result<CloudSet, Failure> {
        let base = rows_of(&self.base, vectors)?;
        let queries = rows_of(&self.query_set.queries, self.query_set.queries.count())?;
        let name = format!("{}-n{vectors}", self.name);
        derive_set(name, (base, queries), "its first vectors", arguments, console)
    }
}

/// Opens the given sets, and derives those of figures 10 to 12 if only one is given.
pub(super) fn open(arguments: &CloudArguments, console: &Console) -> Result<Vec<CloudSet>, Failure> {
    let count = arguments.base.len();
    if arguments.query.len() != count || ![0, count].contains(&arguments.groundtruth.len()) {
        return Err(Failure::usage(format!(
            "got {count} files of vectors, {} of queries and {} of exact neighbours: give one --query for \
             each --base, and one --groundtruth for each --base or none at all",
            arguments.query.len(),
            arguments.groundtruth.len()
        )));
    }
    let mut sets: Vec<CloudSet> = Vec::new();
    for at in 0..count {
        let set = open_given(arguments, at, console)?;
        if sets.iter().any(|other| other.name == set.name) {
            return Err(Failure::usage(format!(
                "two files of vectors are called {}: their indexes would be in the same folder; rename one",
                set.name
            )));
        }
        sets.push(set);
    }
    if count == 1 {
        sets.extend(project(&sets[0], arguments, console)?);
        sets.extend(change_element(&sets[0], arguments, console)?);
    }
    Ok(sets)
}

fn open_given(arguments: &CloudArguments, at: usize, console: &Console) -> Result<CloudSet, Failure> {
    let path = &arguments.base[at];
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = arguments.work.join(&name);
    make_folders(&folder, &arguments.output)?;
    let all = VectorFile::open(path)?.count();
    let groundtruth = arguments.groundtruth.get(at).map(PathBuf::as_path);
    let sources = Sources {
        data: path,
        queries: &arguments.query[at],
        // The given neighbours are those among all vectors, and hold for no subset.
        groundtruth: groundtruth.filter(|_| arguments.most_vectors() as usize >= all),
        work: &folder,
        vectors: Some(arguments.most_vectors()),
        first_queries: Some(arguments.most_queries()),
        file_queries: 1,
        metric: arguments.metric,
        k: arguments.k,
    };
    let Workload { base, all: query_set, .. } = Workload::open(&sources, console)?;
    if base.count() < LEAST_VECTORS {
        return Err(Failure::usage(format!(
            "{}: has {} vectors; at least {LEAST_VECTORS} are needed",
            path.display(),
            base.count()
        )));
    }
    Ok(CloudSet { name, made: None, folder, base, query_set })
}

/// Makes a set from vectors and queries, and computes its exact neighbours once.
fn derive_set(
    name: String,
    (base, queries): (VectorFile, VectorFile),
    how: &str,
    arguments: &CloudArguments,
    console: &Console,
) -> Result<CloudSet, Failure> {
    let folder = arguments.work.join(&name);
    make_folders(&folder, &arguments.output)?;
    let exact = exact(&folder, (&base, &queries), arguments.metric, arguments.k as usize, console)?;
    Ok(CloudSet { name, made: Some(how.to_owned()), folder, base, query_set: QuerySet { queries, exact } })
}

fn exact(
    folder: &Path,
    (base, queries): (&VectorFile, &VectorFile),
    metric: Metric,
    k: usize,
    console: &Console,
) -> Result<IdFile, Failure> {
    let stored = folder.join(format!("groundtruth-{}-{}-{k}.ibin", base.count(), queries.count()));
    if stored.exists() {
        return Ok(IdFile::open(&stored)?);
    }
    let found = exact_neighbors(base, queries, metric, k, None, &console.progress())?;
    write_ids(&stored, &found)?;
    Ok(found)
}

/// Returns the first `rows` rows of a file.
pub(super) fn rows_of(file: &VectorFile, rows: usize) -> Result<VectorFile, Failure> {
    let rows = rows.min(file.count());
    let mut bytes = Vec::with_capacity(rows * file.row_bytes());
    (0..rows).for_each(|row| bytes.extend_from_slice(file.row(row)));
    Ok(VectorFile::from_rows(file.element(), file.dim(), bytes)?)
}

/// Converts each row to floats, applies `convert`, and returns the resulting rows, of `element` and `dim`.
fn convert_rows(
    file: &VectorFile,
    (element, dim): (Element, usize),
    convert: impl Fn(&[f32], &mut Vec<u8>),
) -> Result<VectorFile, Failure> {
    let (mut floats, mut bytes) = (vec![0.0; file.dim()], Vec::new());
    for row in 0..file.count() {
        to_f32(file.element(), file.row(row), &mut floats);
        convert(&floats, &mut bytes);
    }
    Ok(VectorFile::from_rows(element, dim, bytes)?)
}

/// Projects the set to fewer dimensions by random signs, which nearly preserve distances (Achlioptas, 2003).
fn project(
    set: &CloudSet,
    arguments: &CloudArguments,
    console: &Console,
) -> Result<Option<CloudSet>, Failure> {
    let dim = set.base.dim();
    let to = arguments.low_dim.map_or(dim / LOW_DIVISOR, |to| to as usize).max(2);
    if to >= dim {
        return Ok(None);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut sign = || {
        // xorshift64 gives the same signs in every run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state >> 63 == 0 { 1.0_f32 } else { -1.0 }
    };
    let signs: Vec<f32> = (0..to * dim).map(|_| sign()).collect();
    let scale = 1.0 / (to as f32).sqrt();
    let project_row = |floats: &[f32], bytes: &mut Vec<u8>| {
        for signs in signs.chunks_exact(dim) {
            let sum: f32 = signs.iter().zip(floats).map(|(sign, value)| sign * value).sum();
            bytes.extend_from_slice(&(sum * scale).to_le_bytes());
        }
    };
    let shape = (Element::F32, to);
    let both = (
        convert_rows(&set.base, shape, project_row)?,
        convert_rows(&set.query_set.queries, shape, project_row)?,
    );
    let how = format!("`{}` projected to {to} dimensions", set.name);
    derive_set(format!("{}-d{to}", set.name), both, &how, arguments, console).map(Some)
}

/// Returns the set with bytes in place of floats, or floats in place of smaller elements; `None` under
/// metrics other than l2, whose distances this would change.
fn change_element(
    set: &CloudSet,
    arguments: &CloudArguments,
    console: &Console,
) -> Result<Option<CloudSet>, Failure> {
    if arguments.metric != Metric::L2 {
        return Ok(None);
    }
    let dim = set.base.dim();
    if set.base.element() != Element::F32 {
        let same = |floats: &[f32], bytes: &mut Vec<u8>| {
            bytes.extend(floats.iter().flat_map(|value| value.to_le_bytes()));
        };
        let shape = (Element::F32, dim);
        let both =
            (convert_rows(&set.base, shape, same)?, convert_rows(&set.query_set.queries, shape, same)?);
        let how = format!("`{}` as floats", set.name);
        return derive_set(format!("{}-f32", set.name), both, &how, arguments, console).map(Some);
    }
    let (mean, deviation) = spread(&set.base);
    let step = (2.0 * DEVIATIONS * deviation / 255.0).max(f64::MIN_POSITIVE);
    let round = |floats: &[f32], bytes: &mut Vec<u8>| {
        let byte = |value: &f32| ((f64::from(*value) - mean) / step + 127.5).round().clamp(0.0, 255.0) as u8;
        bytes.extend(floats.iter().map(byte));
    };
    let shape = (Element::U8, dim);
    let both = (convert_rows(&set.base, shape, round)?, convert_rows(&set.query_set.queries, shape, round)?);
    let how = format!("`{}` rounded to bytes", set.name);
    derive_set(format!("{}-u8", set.name), both, &how, arguments, console).map(Some)
}

/// Returns the mean and the standard deviation of all values.
fn spread(file: &VectorFile) -> (f64, f64) {
    let (mut floats, mut sum, mut squares) = (vec![0.0; file.dim()], 0.0, 0.0);
    for row in 0..file.count() {
        to_f32(file.element(), file.row(row), &mut floats);
        sum += floats.iter().map(|value| f64::from(*value)).sum::<f64>();
        squares += floats.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
    }
    let count = (file.count() * file.dim()).max(1) as f64;
    let mean = sum / count;
    (mean, (squares / count - mean * mean).max(0.0).sqrt())
}
