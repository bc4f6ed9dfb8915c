//! Scan of a row set: all its rows are compared. The units that contain them are read once for all queries,
//! by all threads.

use super::Index;
use super::control::{Waiting, check_control};
use super::memory_plan::SearchNeeds;
use super::pool::{AnsweredQuery, Job, JobContext, RawQueries};
use super::vectors::NOWHERE;
use crate::allocate::{try_with_capacity, try_zeros};
use crate::audit::Pace;
use crate::error::IndexError;
use crate::query::set::VectorSet;
use crate::query::{NO_ID, QueryStats, RowSet, SearchMode, SearchParams};
use bathyal_kernels::{Neighbor, TopK};
use bathyal_tier::Control;
use bathyal_vectors::progress::{Progress, Silent};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The most bytes of the neighbours of one pass, if there is no budget.
const PASS_BYTES: u64 = 256 << 20;
/// Bytes of a neighbour during a pass: in the list of a thread, and in the sorted list.
const NEIGHBOR_BYTES: u64 = 24;
/// The fewest units for which a further thread is started: starting one takes longer than reading fewer. One
/// thread reads as many at once.
const LEAST_UNITS: usize = 64;
/// The fewest comparisons of a unit with a query for which a further thread is started.
const LEAST_COMPARED: usize = 4096;
/// Rows whose units are looked up at a time, if there is no memory for those of all vectors.
const LOOKED_UP: usize = 16 << 10;

/// A scan: the rows that are compared, and how.
#[derive(Clone, Copy)]
pub(super) struct SetScan<'a> {
    /// Neighbours of each query.
    pub(super) k: usize,
    pub(super) set: &'a RowSet,
    /// True to read all units, for a set of ids that are not the rows of the index.
    pub(super) whole: bool,
    pub(super) threads: usize,
    pub(super) control: Control<'a>,
    /// Pauses between the reads of background work.
    pub(super) pace: Option<&'a Pace<'a>>,
    /// Receives the number of queries that are answered, and fractions of a pass as if they were queries.
    pub(super) progress: &'a dyn Progress,
}

impl<'a> SetScan<'a> {
    /// Returns a scan in the background, on this thread alone.
    pub(super) fn paced(k: usize, set: &'a RowSet, pace: &'a Pace<'a>) -> SetScan<'a> {
        let (control, pace) = (pace.control(), Some(pace));
        SetScan { k, set, whole: false, threads: 1, control, pace, progress: &Silent }
    }
}

/// The result of a pass over a set.
pub(super) struct Pass {
    /// The nearest rows of each query, the nearest first.
    pub(super) nearest: Vec<Vec<Neighbor>>,
    /// The reads of the pass, and the distances of one query.
    pub(super) cost: QueryStats,
}

/// Queries in the form in which they are compared with stored vectors.
struct PreparedQueries {
    bytes: Vec<u8>,
    row_bytes: usize,
}

impl PreparedQueries {
    fn new(set: &VectorSet, queries: &RawQueries) -> PreparedQueries {
        let (mut floats, mut bytes, mut one) = (vec![0.0; set.dim], Vec::new(), Vec::new());
        for row in 0..queries.count {
            set.form.floats(queries.row(row), &mut floats);
            set.form.query(queries.row(row), &floats, &mut one);
            bytes.extend_from_slice(&one);
        }
        PreparedQueries { row_bytes: one.len().max(1), bytes }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.row_bytes)
    }
}

/// The units that the threads of a pass have compared, as a share of the whole scan.
struct PassProgress<'a> {
    progress: &'a dyn Progress,
    /// Queries of the passes before, and of this one.
    before: usize,
    queries: usize,
    units: usize,
    done: AtomicU64,
}

impl PassProgress<'_> {
    /// Adds a unit.
    fn add_unit(&self) {
        let done = self.done.fetch_add(1, Relaxed) + 1;
        let part = self.queries as u64 * done.min(self.units as u64) / self.units.max(1) as u64;
        self.progress.advance(self.before as u64 + part);
    }
}

/// The state that the threads of a pass share.
struct SharedPass<'a> {
    queries: &'a PreparedQueries,
    k: usize,
    progress: PassProgress<'a>,
    /// Bits of the rows of the set that no thread has compared yet: a vector may be stored more than once.
    left: Vec<AtomicU64>,
    /// The unit of each vector, if the pass keeps them; otherwise empty.
    located: Vec<AtomicU32>,
}

impl SharedPass<'_> {
    /// Returns true if the row is in the set and was not compared before.
    fn claim(&self, id: u32) -> bool {
        let bit = 1 << (id % 64);
        let word = self.left.get(id as usize / 64);
        word.is_some_and(|word| word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, Relaxed) & bit != 0)
    }
}

impl Index {
    /// Returns the number of queries and of threads of a pass that the memory budget allows.
    ///
    /// # Errors
    /// [`IndexError::Memory`] if the memory is too small even for one query on one thread.
    fn pass_of(
        &self,
        queries: usize,
        k: usize,
        set: &RowSet,
        threads: usize,
    ) -> Result<(usize, usize), IndexError> {
        let query = self.stored.dim() as u64 * 8 + 64;
        let found_bytes = |threads: u64| k as u64 * NEIGHBOR_BYTES * (threads + 1);
        let Some(given) = self.plan.budget() else {
            let per_query = found_bytes(threads as u64) + query;
            return Ok(((PASS_BYTES / per_query).clamp(1, queries.max(1) as u64) as usize, threads));
        };
        let search = SearchNeeds { threads: 1, query_bytes: 0, noted: self.known_places.bytes() };
        let needed_bytes = |threads: u64, queries: u64| {
            let open = self.plan.needed_bytes(&SearchNeeds { threads: threads as usize, ..search }, 0);
            open + set.bytes() + queries * (query + found_bytes(threads))
        };
        let fitting = (1..=threads as u64).rev().find(|threads| needed_bytes(*threads, 1) <= given);
        let Some(threads) = fitting else {
            let query_bytes = needed_bytes(1, 1) - self.plan.needed_bytes(&search, 0);
            let search = SearchNeeds { query_bytes, ..search };
            return Err(self.plan.too_small(&self.stored, &search, "allow at least that much"));
        };
        let per_query = needed_bytes(threads, 1) - needed_bytes(threads, 0);
        let fitting = (given - needed_bytes(threads, 0)) / per_query.max(1);
        Ok((fitting.clamp(1, queries.max(1) as u64) as usize, threads as usize))
    }

    /// Finds the nearest rows of the set of `scan` for all queries. Calls `each` with the number of the first
    /// query and the result of each pass.
    ///
    /// An index that is changed in place need not have all rows of the set.
    pub(super) fn scan_set(
        &self,
        queries: &RawQueries,
        scan: &SetScan<'_>,
        mut each: impl FnMut(usize, Pass),
    ) -> Result<(), IndexError> {
        if let Some(pass) = self.pass_of_family(queries, scan)? {
            each(0, pass);
            return Ok(());
        }
        let (at_once, threads) = self.pass_of(queries.count, scan.k, scan.set, scan.threads.max(1))?;
        let scan = SetScan { threads, ..*scan };
        for first in (0..queries.count).step_by(at_once) {
            let last = queries.count.min(first + at_once);
            let bytes = (first..last).flat_map(|row| queries.row(row)).copied().collect();
            let queries = RawQueries { bytes, count: last - first };
            each(first, self.pass(&queries, first, &scan)?);
        }
        Ok(())
    }

    /// Compares all rows with `queries` as a search of the family does whose queries share what is read;
    /// `None` if the family has no such searches, or if not all rows are compared.
    fn pass_of_family(&self, queries: &RawQueries, scan: &SetScan<'_>) -> Result<Option<Pass>, IndexError> {
        let SetScan { k, set, threads, control, progress, .. } = *scan;
        let all = set.count() == set.rows() && u64::from(set.rows()) == self.stored.vectors();
        if !all || scan.pace.is_some() {
            return Ok(None);
        }
        let params = SearchParams {
            k,
            search_list: k,
            probes: usize::MAX,
            prune: 0.0,
            beam_width: 1,
            multi_probe: 0,
            mode: SearchMode::Batched,
            timed: false,
            early: None,
        };
        let Some(passes) = self.passes(&params, queries.count, (threads, None)) else { return Ok(None) };
        let here = self.contexts.here();
        let (client, opened) = (here.client.clone(), here.opened.clone());
        // The callers count these queries, or none.
        let context = JobContext { client, opened, counters: Arc::default(), standby: None };
        let raw = RawQueries { bytes: queries.bytes.clone(), count: queries.count };
        let job = Job::new(Arc::new(context), raw, params, (threads, 1), control.deadline);
        let job = Arc::new(job.with_passes(Some(passes)));
        let waiting = Waiting { control, meanwhile: &|| progress.advance(job.progress()) };
        let answers = self.answers(&job, threads, waiting)?;
        let mut pass = Pass { nearest: vec![Vec::new(); queries.count], cost: QueryStats::default() };
        for part in answers {
            for (AnsweredQuery { query, cost, .. }, near) in
                part.queries.iter().zip(part.neighbors.chunks(k.max(1)))
            {
                let near = near.iter().filter(|near| near.id != NO_ID);
                pass.nearest[*query as usize].extend(near.copied());
                pass.cost.add(&QueryStats { full_distances: 0, ..*cost });
                pass.cost.full_distances = cost.full_distances;
            }
        }
        Ok(Some(pass))
    }

    /// Returns the units that contain rows of `set`, in ascending order, or all units if those of vectors are
    /// not known.
    fn units_of_set(&self, set: &RowSet, control: Control<'_>) -> Result<Vec<u32>, IndexError> {
        let opened = self.loaded.opened();
        let rows = opened.rows();
        if self.may_keep_located() {
            self.locate_all(control)?;
        }
        let located = self.known_places.located();
        let all = rows.units();
        let mut units =
            try_with_capacity("the units to read for a set of rows", set.count().min(all) as usize)?;
        let ordered = rows.unit_of(0).is_some();
        if let Some(positions) = opened.positions().filter(|_| !ordered && located.is_none()) {
            // There is no memory for the table of all units: the units of some rows at a time are looked up.
            let mut words: Vec<u64> =
                try_zeros("the units to read for a set of rows", all.div_ceil(64) as usize)?;
            let mut ids = set.iter();
            loop {
                let block: Vec<u32> = ids.by_ref().take(LOOKED_UP).collect();
                if block.is_empty() {
                    break;
                }
                check_control(control)?;
                for unit in positions.pages_of(&block, self.loaded.is_far())? {
                    words[unit as usize / 64] |= 1 << (unit % 64);
                }
            }
            units.extend(RowSet::from_words(all, words).iter());
            return Ok(units);
        }
        if !ordered && located.is_none() {
            units.extend(0..all);
            return Ok(units);
        }
        let located = |id: u32| located.and_then(|units| units.get(id as usize).copied());
        let mut seen = RowSet::from_ids(all, std::iter::empty());
        if ordered {
            // Units ascend with the ids.
            let of_set = set.iter().filter_map(|id| rows.unit_of(id)).filter(|unit| *unit < all);
            of_set.for_each(|unit| {
                if units.last() != Some(&unit) {
                    units.push(unit);
                }
            });
        } else {
            seen = RowSet::from_ids(all, set.iter().filter_map(located));
        }
        units.extend(seen.iter());
        Ok(units)
    }

    /// Compares all rows of a set with `queries`, which follow `before` others, in one pass.
    fn pass(&self, queries: &RawQueries, before: usize, scan: &SetScan<'_>) -> Result<Pass, IndexError> {
        let SetScan { k, set, threads, control, progress, .. } = *scan;
        let opened = self.loaded.opened();
        let (rows, moves) = (opened.rows(), opened.in_place().is_some());
        let units = match scan.whole {
            true => (0..rows.units()).collect(),
            false => self.units_of_set(set, control)?,
        };
        let prepared = PreparedQueries::new(rows.set(), queries);
        let known = rows.unit_of(0).is_some() || self.known_places.located().is_some();
        let keeps = !known && !moves && self.may_keep_located();
        let vectors = if keeps { self.stored.vectors() as usize } else { 0 };
        let mut located = try_with_capacity("the positions of the vectors", vectors)?;
        located.resize_with(vectors, || AtomicU32::new(NOWHERE));
        let shared = SharedPass {
            queries: &prepared,
            k,
            progress: PassProgress {
                progress,
                before,
                queries: queries.count,
                units: units.len(),
                done: AtomicU64::new(0),
            },
            left: set.words().iter().map(|word| AtomicU64::new(*word)).collect(),
            located,
        };
        let compared = units.len().saturating_mul(queries.count);
        let worthwhile = (units.len() / LEAST_UNITS).max(compared / LEAST_COMPARED);
        let found = self.compare_on(scan, threads.min(worthwhile), &units, &shared)?;
        let lacking: u32 = shared.left.iter().map(|word| word.load(Relaxed).count_ones()).sum();
        if lacking > 0 && !moves {
            let reason = format!("{lacking} of the {} rows of a set were not found", set.count());
            return Err(rows.set().damaged("its vectors", reason));
        }
        if keeps {
            self.known_places.set_located(shared.located.into_iter().map(AtomicU32::into_inner).collect());
        }
        let alignment = self.loaded.tier().profile().alignment;
        let spans = units.iter().map(|unit| rows.span(*unit)).filter(|span| span.len > 0);
        let mut cost = QueryStats { full_distances: set.count() - lacking, ..QueryStats::default() };
        let mut reads = 0_u64;
        spans.for_each(|span| {
            reads += 1;
            cost.bytes += span.aligned_len(alignment);
        });
        cost.reads = reads as u32;
        cost.hops = reads.div_ceil(self.loaded.units_at_once()) as u32;
        Ok(Pass { nearest: merged(found, queries.count, k), cost })
    }

    /// Compares the rows of a set in `units` with all queries, on up to `threads` threads. Returns the
    /// nearest rows of each query, for each thread.
    fn compare_on(
        &self,
        scan: &SetScan<'_>,
        threads: usize,
        units: &[u32],
        shared: &SharedPass<'_>,
    ) -> Result<Vec<Vec<TopK>>, IndexError> {
        let threads = threads.min(units.len()).max(1);
        let part = units.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let (first, others) = units.split_at(part.min(units.len()));
            let others: Vec<_> = others
                .chunks(part)
                .map(|units| scope.spawn(move || self.compare_units(scan, units, shared)))
                .collect();
            let mut found = vec![self.compare_units(scan, first, shared)];
            let panicked = |_| Err(IndexError::Internal("a thread that compares a set panicked".into()));
            found.extend(others.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)));
            found.into_iter().collect()
        })
    }

    /// Compares the rows of a set in some units with all queries. Returns the nearest rows of each query.
    fn compare_units(
        &self,
        scan: &SetScan<'_>,
        units: &[u32],
        shared: &SharedPass<'_>,
    ) -> Result<Vec<TopK>, IndexError> {
        let rows = self.loaded.opened().rows();
        let exact = &rows.set().exact;
        let mut found: Vec<TopK> = shared.queries.iter().map(|_| TopK::new(shared.k)).collect();
        let mut current = None;
        self.walk(&*rows, units.iter().copied(), scan.control, |unit, id, row| {
            if current.replace(unit) != Some(unit) {
                scan.pace.inspect(|pace| pace.step());
                shared.progress.add_unit();
            }
            if let Some(at) = shared.located.get(id as usize) {
                // Of several units with this vector, the first is kept, whatever the order of arrival.
                at.fetch_min(unit, Relaxed);
            }
            if shared.claim(id) {
                for (query, found) in shared.queries.iter().zip(&mut found) {
                    found.push(id, exact.between(query, row));
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// Merges the nearest rows of each query over all threads.
fn merged(parts: Vec<Vec<TopK>>, queries: usize, k: usize) -> Vec<Vec<Neighbor>> {
    let mut all: Vec<TopK> = (0..queries).map(|_| TopK::new(k)).collect();
    for part in parts {
        for (all, found) in all.iter_mut().zip(part) {
            found.iter().for_each(|near| {
                all.push(near.id, near.distance);
            });
        }
    }
    all.into_iter().map(TopK::into_sorted).collect()
}
