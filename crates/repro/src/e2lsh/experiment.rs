//! Arguments and data of the experiments: vectors and queries, the ladder of radii that suits them, and
//! functions that build tables and search them.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_kernels::Metric;
use bathyal_kernels::distance::{Distance, to_f32};
use bathyal_kernels::lsh::Ladder;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;

use super::arguments::E2lshArguments;
use super::build::{BuiltTables, TablePlan, failed};
use super::filter::{Filter, LEAST_BITS};
use super::layout::BlockLayout;
use super::points::{PaperPoint, hashes_of_theory};
use super::run::{Outcome, Parallelism, run};
use super::search::{SearchParameters, Searcher};
use crate::workload::{QuerySet, Workload};

/// Ratio of successive radii (c).
pub(super) const RATIO: f64 = 2.0;
/// Default bytes of a block (section 5.1).
pub(super) const BLOCK_BYTES: u32 = 512;
/// Bits of a filter beyond those of an id: with 2^3 n bits, 7 of 8 empty buckets are recognized.
const FILTER_BITS: u32 = 3;
/// Bits by which a slot number is shorter than an id. A bucket then has some sixteen entries with other hash
/// values, which their fingerprints reject, and blocks of 512 bytes are not mostly empty. Larger blocks get
/// correspondingly fewer slots.
const FEWER_SLOT_BITS: u32 = 4;
/// Bytes that are read between checks for a cancellation.
const READ_BYTES: u64 = 16 << 20;
/// Vectors that are read between checks for a cancellation.
const CHECK_ROWS: usize = 4096;
/// Most reads in flight on a thread.
const DEPTH: u32 = 256;
/// Vectors whose nearest other vector is searched for.
const SAMPLE: usize = 300;
/// Quantile of those distances at which the ladder of radii may begin.
const NEAREST_PART: f64 = 0.01;

/// Arguments, data and environment of all measurements.
pub(super) struct E2lshExperiment<'a> {
    pub arguments: &'a E2lshArguments,
    pub work: &'a Workload,
    pub console: &'a Console,
    pub control: Control<'a>,
    pub extent: Extent,
}

/// Range of the distances between vectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The largest absolute value (x_max).
    pub largest: f64,
    /// A distance within which almost no vector of a sample has another.
    pub nearest: f64,
}

impl Extent {
    /// Measures the data.
    pub(super) fn of(base: &VectorFile, console: &Console) -> Result<Extent, Failure> {
        let mut point = vec![0.0; base.dim()];
        let mut largest = 0.0_f32;
        for row in 0..base.count() {
            if row.is_multiple_of(CHECK_ROWS) && console.interrupt().requested() {
                return Err(Failure::cancelled());
            }
            to_f32(base.element(), base.row(row), &mut point);
            largest = point.iter().fold(largest, |largest, value| largest.max(value.abs()));
        }
        let step = base.count().div_ceil(SAMPLE).max(1);
        let rows = (0..base.count()).step_by(step).flat_map(|row| base.row(row).iter().copied()).collect();
        let sample = VectorFile::from_rows(base.element(), base.dim(), rows)?;
        let found =
            exact_neighbors(base, &sample, Metric::L2, base.count().min(2), None, &console.progress())?;
        let second = |query| found.distances(query).and_then(|distances| distances.get(1)).copied();
        let mut apart: Vec<f32> =
            (0..sample.count()).filter_map(second).filter(|distance| *distance > 0.0).collect();
        apart.sort_unstable_by(f32::total_cmp);
        let nearest = apart.get((apart.len() as f64 * NEAREST_PART) as usize).copied().unwrap_or(1.0);
        Ok(Extent { largest: f64::from(largest), nearest: f64::from(nearest).sqrt() })
    }

    /// Returns the first radius: 1 as in the paper, in the units of the data, or less if vectors are closer
    /// to each other.
    pub(super) fn first_radius(&self) -> f64 {
        self.nearest.clamp(1e-30, 1.0)
    }

    /// Returns the number of radii up to R_max = 2 x_max sqrt(d) (section 2.3).
    fn radii(&self, dim: usize) -> usize {
        let farthest = 2.0 * self.largest * (dim as f64).sqrt();
        (farthest / self.first_radius()).max(RATIO).log(RATIO).ceil() as usize
    }

    /// Returns the number of the last radius up to which almost no query finds anything.
    pub(super) fn nearest_radius(&self) -> usize {
        (self.nearest / self.first_radius()).max(1.0).log(RATIO).floor() as usize
    }
}

impl E2lshExperiment<'_> {
    /// Returns the numbers of values of a compound hash to try, in ascending order.
    pub(super) fn hashes(&self) -> Vec<usize> {
        let theory = hashes_of_theory(&self.ladder(1), self.work.base.count());
        let values = |gamma: &f64| ((gamma * theory).round() as usize).max(1);
        let mut hashes: Vec<usize> = self.arguments.gammas.iter().map(values).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes
    }

    /// Returns the ladder with `hashes` values in a compound hash.
    pub(super) fn ladder(&self, hashes: usize) -> Ladder {
        Ladder {
            tables: self.arguments.tables as usize,
            hashes,
            radii: self.extent.radii(self.work.base.dim()),
            first: self.extent.first_radius(),
            ratio: RATIO,
            width: self.arguments.width,
        }
    }

    /// Returns the plan of the paper's tables for `vectors` vectors.
    pub(super) fn plan(&self, ladder: Ladder, vectors: usize, block_bytes: u32) -> TablePlan {
        let id_bits = usize::BITS - vectors.saturating_sub(1).leading_zeros();
        let id_bits = id_bits.max(1);
        let fewer = FEWER_SLOT_BITS + (block_bytes / BLOCK_BYTES).max(1).ilog2();
        let slot_bits = self.arguments.slot_bits.unwrap_or(id_bits.saturating_sub(fewer).max(1));
        let (radii, tables) = (ladder.radii as u32, ladder.tables as u32);
        let layout = BlockLayout { radii, tables, slot_bits, id_bits, block_bytes, direct: false };
        let filter_bits = (id_bits + FILTER_BITS).max(LEAST_BITS);
        TablePlan { ladder, layout, filter_bits, seed: self.arguments.seed }
    }

    /// Finds or builds hash tables over the vectors, under `name` in the work folder.
    pub(super) fn find_or_build(
        &self,
        base: &VectorFile,
        plan: TablePlan,
        name: &str,
    ) -> Result<BuiltTables, Failure> {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        BuiltTables::find_or_build(base, plan, &self.folder(name), threads, &self.console.progress())
    }

    /// Returns the folder `name` in the work folder.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.arguments.work.join(name)
    }

    /// Removes the folder `name` from the work folder.
    pub(super) fn remove(&self, name: &str) -> Result<(), Failure> {
        let folder = self.folder(name);
        std::fs::remove_dir_all(&folder).map_err(|e| failed(&folder, e))
    }

    /// Returns one thread, as in the paper, with the requested queries in flight.
    pub(super) fn parallelism(&self) -> Parallelism {
        Parallelism { threads: 1, in_flight: self.arguments.in_flight as usize, depth: DEPTH }
    }

    /// Searches once with all queries.
    pub(super) fn search_once(
        &self,
        (base, built): (&VectorFile, &BuiltTables),
        filter: Option<&Filter>,
        tier: &Arc<dyn Tier>,
        query_set: &QuerySet,
        parameters: SearchParameters,
        parallelism: Parallelism,
    ) -> Result<Outcome, Failure> {
        let distance = Distance::new(base.element(), Metric::L2, base.dim());
        let searcher = Searcher { built, filter, base, distance };
        run(&searcher, tier, query_set, parameters, parallelism, self.control)
    }

    /// Searches once with the default parallelism and returns a point, for its counters.
    pub(super) fn measure(
        &self,
        (base, built): (&VectorFile, &BuiltTables),
        filter: Option<&Filter>,
        tier: &Arc<dyn Tier>,
        (experiment, variant): (&'static str, String),
        (query_set, parameters): (&QuerySet, SearchParameters),
    ) -> Result<PaperPoint, Failure> {
        let parallelism = self.parallelism();
        let outcome = self.search_once((base, built), filter, tier, query_set, parameters, parallelism)?;
        let (vectors, outcomes) = (base.count(), [outcome]);
        Ok(PaperPoint::new((experiment, variant), built, vectors, parameters, parallelism, &outcomes))
    }

    /// Reads the tables into memory and returns them as a tier.
    pub(super) fn in_memory(&self, built: &BuiltTables) -> Result<Arc<dyn Tier>, Failure> {
        let (path, mut bytes) = (&built.path, Vec::new());
        if bytes.try_reserve_exact(built.index_bytes as usize).is_err() {
            let size = byte_size::format(built.index_bytes);
            return Err(Failure::new(format!(
                "{}: not enough memory for {size} of hash tables, which are measured in memory; use fewer \
                 --tables or --vectors",
                path.display()
            )));
        }
        let mut file = File::open(path).map_err(|e| failed(path, e))?;
        while self.check_interrupt()?
            && (&mut file).take(READ_BYTES).read_to_end(&mut bytes).map_err(|e| failed(path, e))? > 0
        {
        }
        Ok(Arc::new(DramTier::new(bytes)))
    }

    /// Returns true, or an error after an interrupt.
    pub(super) fn check_interrupt(&self) -> Result<bool, Failure> {
        match self.console.interrupt().requested() {
            true => Err(Failure::cancelled()),
            false => Ok(true),
        }
    }
}
