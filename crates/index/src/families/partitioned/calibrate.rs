//! Calibration: the recall for each number of partitions and each length of the candidate list. It is
//! measured while the sub-indexes are built, each without the held-out vectors.
//!
//! A search finds a true neighbour if `probes` exceeds the rank of the neighbour's partition and the walk
//! through that partition finds the vector. Distances are exact, so a vector found in one partition is also
//! among the nearest of all partitions. Each sub-index is therefore walked once for each list length and for
//! each query with a neighbour in it, and the results give the recall for every number of probes.

use super::assign::Assignment;
use super::build::Work;
use super::meta::{self, MetaIndex};
use super::subindex::SubIndex;
use crate::calibrate::Calibration;
use crate::calibrate::probed::ProbedPoint;
use crate::calibrate::trial::{LEAST_VECTORS, StandIns, Trial, sample_ids};
use crate::error::IndexError;
use crate::proximity::walk::Walk;
use crate::query::set::Exact;
use std::sync::atomic::{AtomicU8, Ordering};

/// Numbers of partitions that calibration records.
const PROBES: [u32; 17] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192];
/// Lengths of the candidate list that calibration records.
const LISTS: [u32; 6] = [10, 16, 28, 48, 100, 160];
/// The rank of a neighbour that was not found.
const NOWHERE: u8 = u8::MAX;

/// The queries of a calibration, and the rank of the partition in which each of their neighbours was found.
pub(super) struct CalibrationRun {
    trial: Trial,
    exact: Exact,
    /// For each partition, the queries with a neighbour in it, and the partition's rank among those nearest
    /// to the query.
    queries_of: Vec<Vec<(u32, u8)>>,
    /// The lowest rank of a partition in which a neighbour was found: `queries x neighbours x lists`.
    ranks: Vec<AtomicU8>,
}

/// The memory of one thread that measures.
pub(super) struct CalibrationScratch {
    walk: Walk,
    floats: Vec<f32>,
    query: Vec<u8>,
    found: Vec<u32>,
}

impl CalibrationScratch {
    pub(super) fn new() -> CalibrationScratch {
        CalibrationScratch { walk: Walk::new(0, 0), floats: Vec::new(), query: Vec::new(), found: Vec::new() }
    }
}

/// Returns the vectors to hold out as queries, in ascending order. Pivots are not among them.
pub(super) fn hold_out(work: &Work<'_>, meta: &MetaIndex) -> Result<Vec<u32>, IndexError> {
    let data = work.data;
    if work.options.calibration.is_some() || data.count() < LEAST_VECTORS {
        return Ok(Vec::new());
    }
    let mut pivots = meta.pivots.clone();
    pivots.sort_unstable();
    let mut ids = sample_ids(data, work.options)?;
    ids.retain(|id| pivots.binary_search(id).is_err());
    Ok(ids)
}

impl CalibrationRun {
    /// Finds the neighbours of the queries and the partitions that contain them. Returns `None` if there are
    /// too few vectors to measure.
    pub(super) fn prepare(
        work: &Work<'_>,
        meta: &MetaIndex,
        assignment: &Assignment,
        held_out: &[u32],
    ) -> Result<Option<CalibrationRun>, IndexError> {
        let trial = Trial::prepare(work.data, work.options, StandIns::HeldOut(held_out), work.progress)?;
        let Some(trial) = trial else { return Ok(None) };
        let neighbors = trial.wide;
        let mut ranks = Vec::new();
        ranks.resize_with(trial.count() * neighbors * LISTS.len(), || AtomicU8::new(NOWHERE));
        let exact = Exact::new(work.data.form(), work.data.dim());
        let mut run =
            CalibrationRun { trial, exact, queries_of: vec![Vec::new(); assignment.count()], ranks };
        run.assign_queries(work, meta, assignment)?;
        Ok(Some(run))
    }

    /// Collects for each partition the queries with a neighbour in it.
    fn assign_queries(
        &mut self,
        work: &Work<'_>,
        meta: &MetaIndex,
        assignment: &Assignment,
    ) -> Result<(), IndexError> {
        let most = (PROBES[PROBES.len() - 1] as usize).min(assignment.count());
        let index = SubIndex::read(&meta.bytes, meta.space.row_bytes()).map_err(IndexError::Internal)?;
        let (mut scratch, mut near) = (CalibrationScratch::new(), Vec::new());
        for query in 0..self.trial.count() {
            work.check_cancelled()?;
            scratch.set_query(work, self.trial.query(query));
            meta::nearest(&index, &self.exact, &scratch.query, most, &mut scratch.walk, &mut near);
            for (rank, partition) in (0..).zip(&near) {
                let members = assignment.members(partition.id as usize);
                if self.trial.neighbors(query).any(|id| members.binary_search(&id).is_ok()) {
                    self.queries_of[partition.id as usize].push((query as u32, rank));
                }
            }
        }
        Ok(())
    }

    /// Returns true if a query has a neighbour in the partition.
    pub(super) fn has_queries(&self, partition: usize) -> bool {
        !self.queries_of[partition].is_empty()
    }

    /// Walks a sub-index for the queries with a neighbour in it.
    pub(super) fn measure(
        &self,
        work: &Work<'_>,
        partition: usize,
        bytes: &[u8],
        scratch: &mut CalibrationScratch,
    ) -> Result<(), IndexError> {
        let index = SubIndex::read(bytes, work.data.row_bytes()).map_err(IndexError::Internal)?;
        let neighbors = self.trial.wide;
        for (query, rank) in &self.queries_of[partition] {
            work.check_cancelled()?;
            scratch.set_query(work, self.trial.query(*query as usize));
            for (at, list) in LISTS.into_iter().enumerate() {
                let CalibrationScratch { walk, query: bytes, found, .. } = scratch;
                let score =
                    |ids: &[u32], scores: &mut [f32]| self.exact.score_some(bytes, index.rows, ids, scores);
                index.search(walk, list as usize, score);
                found.clear();
                found.extend(walk.found().map(|near| index.id(near.id)));
                found.sort_unstable();
                for (number, id) in self.trial.neighbors(*query as usize).enumerate() {
                    if found.binary_search(&id).is_ok() {
                        let place = (*query as usize * neighbors + number) * LISTS.len() + at;
                        self.ranks[place].fetch_min(*rank, Ordering::Relaxed);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the measured curves, after all sub-indexes were walked.
    pub(super) fn calibration(&self, partitions: usize) -> Calibration<ProbedPoint> {
        let mut curves = self.trial.curves::<ProbedPoint>();
        for (number, curve) in curves.iter_mut().enumerate() {
            let ladder = PROBES.into_iter().filter(|probes| *probes as usize <= partitions);
            for probes in ladder {
                for (at, search_list) in LISTS.into_iter().enumerate().filter(|(_, list)| *list >= curve.k) {
                    let counts = self.counts(probes, at);
                    let recall = self.trial.recall(number, |counter| counts[counter]);
                    curve.points.push(ProbedPoint { probes, search_list, recall, ratio: None });
                }
            }
            curve.keep_rising(|point| point.probes);
        }
        curves.retain(|curve| !curve.points.is_empty());
        if curves.is_empty() { Calibration::default() } else { self.trial.calibration(curves) }
    }

    /// Returns for each counter of the trial how many neighbours `probes` partitions find with the list
    /// length `LISTS[list]`.
    fn counts(&self, probes: u32, list: usize) -> Vec<u64> {
        let mut counts = vec![0; self.trial.counters()];
        let by_query = self.ranks.chunks_exact(self.trial.wide * LISTS.len());
        for (query, ranks) in by_query.enumerate() {
            for (number, lists) in ranks.chunks_exact(LISTS.len()).enumerate() {
                let is_found = u32::from(lists[list].load(Ordering::Relaxed)) < probes;
                self.trial
                    .counters_of(query, number)
                    .for_each(|counter| counts[counter] += u64::from(is_found));
            }
        }
        counts
    }
}

impl CalibrationScratch {
    /// Converts a query to the form in which it is compared with stored vectors.
    fn set_query(&mut self, work: &Work<'_>, query: &[u8]) {
        let form = work.data.form();
        self.floats.resize(work.data.dim(), 0.0);
        form.floats(query, &mut self.floats);
        form.query(query, &self.floats, &mut self.query);
    }
}
