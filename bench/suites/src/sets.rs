//! The data sets, the indexes that are built over them and kept, and recall.

use bathyal_console::{Interrupt, StageProgress};
use bathyal_index::{BuildOptions, GraphOptions, Index, OpenOptions, build};
use bathyal_kernels::Metric;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::{IdFile, VectorFile};
use std::error::Error;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Exact neighbours computed a query where only some rows of a set are used.
const SUBSET_TRUTH: usize = 50;

/// Which data, and how indexes over it are built.
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
    /// Use only so many rows of each set, spread evenly over it, with exact neighbours computed anew
    #[arg(long)]
    rows: Option<usize>,
    /// Folder for the indexes, which are reused by later runs of the same build
    #[arg(long, default_value = "bench/.work/suites")]
    work: PathBuf,
    /// Build the indexes even if they are there
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
    /// Opens all sets that were named.
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
                return Err(format!("no set is called {other}; there are sift-a, glove, glove-l2").into());
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

    /// The folder of the index over `set` with this calibration, which is built if it is not there.
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

/// Says on stderr how far the work on `what` is.
fn progress(what: &str) -> StageProgress {
    eprintln!("{what}:");
    StageProgress::new(true, Interrupt::listen())
}

/// `count` rows of `base` spread evenly over it: the first ones of a sorted set would be unlike its queries.
fn spread(base: &VectorFile, count: usize) -> Result<VectorFile, Box<dyn Error>> {
    let mut rows = Vec::with_capacity(count * base.row_bytes());
    (0..count).for_each(|place| rows.extend_from_slice(base.row(place * base.count() / count)));
    Ok(VectorFile::from_rows(base.element(), base.dim(), rows)?)
}

/// Rows of a set of queries, with their exact neighbours.
pub(crate) struct Part {
    pub(crate) queries: VectorFile,
    pub(crate) exact: IdFile,
}

/// Takes every `step`-th query, from `first` on.
pub(crate) fn every(set: &Set, step: usize, first: usize) -> Result<Part, Box<dyn Error>> {
    let (mut rows, mut ids, mut distances) = (Vec::new(), Vec::new(), Vec::new());
    for query in (first..set.queries.count()).step_by(step) {
        rows.extend_from_slice(set.queries.row(query));
        ids.extend_from_slice(set.exact.ids(query));
        distances.extend_from_slice(set.exact.distances(query).ok_or("the ground truth has no distances")?);
    }
    let queries = VectorFile::from_rows(set.queries.element(), set.queries.dim(), rows)?;
    Ok(Part { queries, exact: IdFile::from_parts(set.exact.k(), ids, Some(distances))? })
}
