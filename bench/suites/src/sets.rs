//! Data sets, the indexes that are built over them and reused, and subsets of queries.

use bathyal_console::{Interrupt, StageProgress};
use bathyal_index::{BuildOptions, GraphOptions, Index, OpenOptions, build};
use bathyal_kernels::Metric;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::{IdFile, VectorFile};
use std::error::Error;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Exact neighbours per query that are computed for a subset of a set.
const SUBSET_TRUTH: usize = 50;

/// Options for data sets and for the indexes over them.
#[derive(Debug, clap::Args)]
pub(crate) struct SetArguments {
    /// Sets: sift-a, glove (cosine), glove-l2
    #[arg(long, value_delimiter = ',', default_value = "sift-a,glove")]
    sets: Vec<String>,
    /// Folder that holds sift-a/{base.u8bin,query.u8bin,gt100.ibin}
    #[arg(long, env = "BATHYAL_DATA")]
    data: PathBuf,
    /// Folder that holds glove's {base,query}.fbin, gt100.ibin and gt100_angular.ibin [default: DATA/glove]
    #[arg(long, env = "BATHYAL_GLOVE")]
    glove: Option<PathBuf>,
    /// Use only this many rows of each set, evenly spaced, with newly computed exact neighbours
    #[arg(long)]
    rows: Option<usize>,
    /// Folder for the indexes; later runs with the same build options reuse them
    #[arg(long, default_value = "bench/.work/suites")]
    work: PathBuf,
    /// Build the indexes even if they exist
    #[arg(long)]
    rebuild: bool,
    #[arg(long, default_value_t = 64)]
    max_degree: u32,
    #[arg(long, default_value_t = 100)]
    search_list: u32,
    /// Bytes of a code [default: the library's choice]
    #[arg(long)]
    code_bytes: Option<u32>,
    /// Threads; 0 means all cores
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
}

/// Vectors, queries and their exact neighbours.
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) base: VectorFile,
    pub(crate) queries: VectorFile,
    pub(crate) exact: IdFile,
    metric: Metric,
}

impl SetArguments {
    /// Opens all named sets.
    pub(crate) fn open(&self) -> Result<Vec<Set>, Box<dyn Error>> {
        self.sets.iter().map(|name| self.open_one(name)).collect()
    }

    fn open_one(&self, name: &str) -> Result<Set, Box<dyn Error>> {
        let sift = self.data.join("sift-a");
        let glove = self.glove.clone().unwrap_or_else(|| self.data.join("glove"));
        let (folder, element, truth, metric) = match name {
            "sift-a" => (sift, "u8bin", "gt100.ibin", Metric::L2),
            "glove" => (glove, "fbin", "gt100_angular.ibin", Metric::Cosine),
            "glove-l2" => (glove, "fbin", "gt100.ibin", Metric::L2),
            other => {
                return Err(
                    format!("--sets: '{other}' is not a set; expected sift-a, glove or glove-l2").into()
                );
            }
        };
        let base = VectorFile::open(folder.join(format!("base.{element}")))?;
        let queries = VectorFile::open(folder.join(format!("query.{element}")))?;
        let Some(rows) = self.rows.filter(|rows| *rows < base.count()) else {
            let exact = IdFile::open(folder.join(truth))?;
            return Ok(Set { name: name.into(), base, queries, exact, metric });
        };
        let base = spread(&base, rows)?;
        let progress = progress(&format!("{name}-{rows}"));
        let threads = NonZeroUsize::new(self.threads);
        let exact = exact_neighbors(&base, &queries, metric, SUBSET_TRUTH.min(rows), threads, &progress)?;
        Ok(Set { name: format!("{name}-{rows}"), base, queries, exact, metric })
    }

    /// Returns the folder of the index over `set` with this calibration. Builds the index if it does not
    /// exist.
    pub(crate) fn index(
        &self,
        set: &Set,
        source: &str,
        calibration: Option<VectorFile>,
    ) -> Result<PathBuf, Box<dyn Error>> {
        let codes = self.code_bytes.map_or("auto".into(), |bytes| bytes.to_string());
        let (degree, list) = (self.max_degree, self.search_list);
        let name = format!("{}-r{degree}-l{list}-c{codes}-{source}", set.name);
        let folder = self.work.join(&name);
        let reusable =
            || Index::open(&folder, &OpenOptions::default()).is_ok_and(|i| i.len() == set.base.count());
        if !self.rebuild && reusable() {
            eprintln!("{name}: reused");
            return Ok(folder);
        }
        std::fs::create_dir_all(&self.work)?;
        let family = GraphOptions {
            max_degree: degree,
            search_list: list,
            code_bytes: self.code_bytes,
            ..GraphOptions::default()
        };
        let options = BuildOptions {
            metric: set.metric,
            threads: self.threads,
            overwrite: true,
            calibration,
            ..BuildOptions::of(family)
        };
        build(&set.base, &folder, &options, &progress(&name))?;
        Ok(folder)
    }
}

/// Reports progress of the work on `what` on stderr.
fn progress(what: &str) -> StageProgress {
    eprintln!("{what}:");
    StageProgress::new(true, Interrupt::listen())
}

/// Returns `count` evenly spaced rows of `base`. The first rows of a sorted set would differ from its
/// queries.
fn spread(base: &VectorFile, count: usize) -> Result<VectorFile, Box<dyn Error>> {
    let mut rows = Vec::with_capacity(count * base.row_bytes());
    (0..count).for_each(|row| rows.extend_from_slice(base.row(row * base.count() / count)));
    Ok(VectorFile::from_rows(base.element(), base.dim(), rows)?)
}

/// A subset of the queries, with their exact neighbours.
pub(crate) struct QuerySubset {
    pub(crate) queries: VectorFile,
    pub(crate) exact: IdFile,
}

/// Returns every `step`-th query, from `first` on.
pub(crate) fn every(set: &Set, step: usize, first: usize) -> Result<QuerySubset, Box<dyn Error>> {
    let (mut rows, mut ids, mut distances) = (Vec::new(), Vec::new(), Vec::new());
    for query in (first..set.queries.count()).step_by(step) {
        rows.extend_from_slice(set.queries.row(query));
        ids.extend_from_slice(set.exact.ids(query));
        distances.extend_from_slice(set.exact.distances(query).ok_or("the ground truth has no distances")?);
    }
    let queries = VectorFile::from_rows(set.queries.element(), set.queries.dim(), rows)?;
    Ok(QuerySubset { queries, exact: IdFile::from_parts(set.exact.k(), ids, Some(distances))? })
}
