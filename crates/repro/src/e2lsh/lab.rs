//! Where the experiments take place: vectors and queries, the ladder of radii that suits them, and one way to run a search.

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
use super::build::{Built, Plan, failed};
use super::filter::{Filter, LEAST_BITS};
use super::layout::Layout;
use super::points::{Point, hashes_of_theory};
use super::run::{Outcome, Width, run};
use super::search::{Ask, Searched};
use crate::workload::{Questions, Workload};

/// From one radius to the next (c).
pub(super) const RATIO: f64 = 2.0;
/// Bytes of a block where nothing else is said (section 5.1).
pub(super) const BLOCK_BYTES: u32 = 512;
/// Bits of a filter beyond those of ids: a bucket of none of 2^3 n values is known to be empty 7 times of 8.
const FILTER_BITS: u32 = 3;
/// Bits by which a table's are fewer than ids': a bucket then has some sixteen entries of others, which its fingerprints reject, and
/// blocks of 512 bytes are not mostly empty; of larger blocks there are as many fewer.
const FEWER_SLOT_BITS: u32 = 4;
/// Bytes that are read before somebody may stop it.
const READ_BYTES: u64 = 16 << 20;
/// Vectors that are looked at before somebody may stop it.
const CHECK_ROWS: usize = 4096;
/// Reads in flight on a thread.
const DEPTH: u32 = 256;
/// Vectors whose nearest other is looked for.
const SAMPLE: usize = 300;
/// The part of these that is nearer than the distance at which a ladder may begin.
const NEAREST_PART: f64 = 0.01;

/// Vectors, queries, and what hash tables of them are drawn for.
pub(super) struct Lab<'a> {
    pub arguments: &'a E2lshArguments,
    pub work: &'a Workload,
    pub console: &'a Console,
    pub control: Control<'a>,
    pub extent: Extent,
}

/// How far vectors lie apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The largest absolute value (x_max).
    pub largest: f64,
    /// A distance at which hardly any vector has another, of a sample.
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

    /// The first radius: 1 as in the paper, in the units of the data, unless vectors lie nearer together.
    pub(super) fn first_radius(&self) -> f64 {
        self.nearest.clamp(1e-30, 1.0)
    }

    /// Radii up to R_max = 2 x_max sqrt(d) (section 2.3).
    fn radii(&self, dim: usize) -> usize {
        let farthest = 2.0 * self.largest * (dim as f64).sqrt();
        (farthest / self.first_radius()).max(RATIO).log(RATIO).ceil() as usize
    }

    /// The number of the last radius of a ladder up to which hardly any query finds something.
    pub(super) fn nearest_radius(&self) -> usize {
        (self.nearest / self.first_radius()).max(1.0).log(RATIO).floor() as usize
    }
}

impl Lab<'_> {
    /// The numbers of values of a compound hash that are tried, rising.
    pub(super) fn hashes(&self) -> Vec<usize> {
        let theory = hashes_of_theory(&self.ladder(1), self.work.base.count());
        let of = |gamma: &f64| ((gamma * theory).round() as usize).max(1);
        let mut hashes: Vec<usize> = self.arguments.gammas.iter().map(of).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes
    }

    /// The ladder with so many values of a compound hash.
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

    /// What the paper would build of `vectors` vectors.
    pub(super) fn plan(&self, ladder: Ladder, vectors: usize, block_bytes: u32) -> Plan {
        let id_bits = usize::BITS - vectors.saturating_sub(1).leading_zeros();
        let id_bits = id_bits.max(1);
        let fewer = FEWER_SLOT_BITS + (block_bytes / BLOCK_BYTES).max(1).ilog2();
        let slot_bits = self.arguments.slot_bits.unwrap_or(id_bits.saturating_sub(fewer).max(1));
        let (radii, tables) = (ladder.radii as u32, ladder.tables as u32);
        let layout = Layout { radii, tables, slot_bits, id_bits, block_bytes, direct: false };
        let filter_bits = (id_bits + FILTER_BITS).max(LEAST_BITS);
        Plan { ladder, layout, filter_bits, seed: self.arguments.seed }
    }

    /// Finds or builds hash tables of the vectors under a name in the work folder.
    pub(super) fn built(&self, base: &VectorFile, plan: Plan, name: &str) -> Result<Built, Failure> {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        Built::find_or_build(base, plan, &self.folder(name), threads, &self.console.progress())
    }

    /// Where something of this name is built.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.arguments.work.join(name)
    }

    /// Removes what was built there.
    pub(super) fn remove(&self, name: &str) -> Result<(), Failure> {
        let folder = self.folder(name);
        std::fs::remove_dir_all(&folder).map_err(|e| failed(&folder, e))
    }

    /// One thread, as the paper measures, with the queries in flight that were asked for.
    pub(super) fn width(&self) -> Width {
        Width { threads: 1, in_flight: self.arguments.in_flight as usize, depth: DEPTH }
    }

    /// Searches once.
    pub(super) fn once(
        &self,
        (base, built): (&VectorFile, &Built),
        filter: Option<&Filter>,
        tier: &Arc<dyn Tier>,
        (asked, ask, width): (&Questions, Ask, Width),
    ) -> Result<Outcome, Failure> {
        let distance = Distance::new(base.element(), Metric::L2, base.dim());
        let searched = Searched { built, filter, base, distance };
        run(&searched, tier, asked, ask, width, self.control)
    }

    /// The same in the usual width, as a point: for what is counted.
    pub(super) fn counted(
        &self,
        of: (&VectorFile, &Built),
        filter: Option<&Filter>,
        tier: &Arc<dyn Tier>,
        (experiment, variant): (&'static str, String),
        (asked, ask): (&Questions, Ask),
    ) -> Result<Point, Failure> {
        let width = self.width();
        let outcome = self.once(of, filter, tier, (asked, ask, width))?;
        let how = (ask, width.threads, width.in_flight);
        Ok(Point::new((experiment, variant), of.1, of.0.count(), how, &[outcome]))
    }

    /// The bytes of what was built, in memory.
    pub(super) fn in_memory(&self, built: &Built) -> Result<Arc<dyn Tier>, Failure> {
        let (path, mut bytes) = (&built.path, Vec::new());
        if bytes.try_reserve_exact(built.index_bytes as usize).is_err() {
            let size = byte_size::format(built.index_bytes);
            return Err(Failure::new(format!(
                "{}: there is no memory for {size} of hash tables, which are measured in it; take fewer --tables or --vectors",
                path.display()
            )));
        }
        let mut file = File::open(path).map_err(|e| failed(path, e))?;
        while self.go_on()?
            && (&mut file).take(READ_BYTES).read_to_end(&mut bytes).map_err(|e| failed(path, e))? > 0
        {
        }
        Ok(Arc::new(DramTier::new(bytes)))
    }

    /// True, or an error where somebody asked to stop.
    pub(super) fn go_on(&self) -> Result<bool, Failure> {
        match self.console.interrupt().requested() {
            true => Err(Failure::cancelled()),
            false => Ok(true),
        }
    }
}
