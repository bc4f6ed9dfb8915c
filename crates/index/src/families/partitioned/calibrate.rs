//! Calibration: what recall every number of partitions and list of candidates reaches, measured while the sub-indexes are
//! built, each without the vectors that stand in for queries.
//!
//! A true neighbour is found by as many probes as its partition's rank says and by the lists whose walk finds it there; what is
//! found is among the nearest of all partitions, too, since distances are exact. So each sub-index is walked once a list and
//! query, for those queries alone that have a neighbour in it, and every number of probes is measured by that.

use super::assign::Assigned;
use super::build::Work;
use super::meta::{self, Meta};
use super::subindex::SubIndex;
use crate::calibrate::Calibration;
use crate::calibrate::probed::ProbedPoint;
use crate::calibrate::trial::{LEAST_VECTORS, StandIns, Trial, sample_ids};
use crate::error::IndexError;
use crate::families::graph::walk::Walk;
use crate::query::set::Exact;
use std::sync::atomic::{AtomicU8, Ordering};

/// Numbers of partitions that are recorded.
const PROBES: [u32; 17] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192];
/// Lengths of the list of candidates that are recorded.
const LISTS: [u32; 6] = [10, 16, 28, 48, 100, 160];
/// The rank of what was not found.
const NOWHERE: u8 = u8::MAX;

/// The queries of a calibration, and at which rank each of their neighbours was found.
pub(super) struct Measuring {
    trial: Trial,
    exact: Exact,
    /// For each partition the queries with a neighbour in it, and the partition's rank among those nearest to the query.
    asked: Vec<Vec<(u32, u8)>>,
    /// `queries x neighbours x lists`.
    ranks: Vec<AtomicU8>,
}

/// What a thread measures with.
pub(super) struct Measurer {
    walk: Walk,
    floats: Vec<f32>,
    query: Vec<u8>,
    found: Vec<u32>,
}

impl Measurer {
    pub(super) fn new() -> Measurer {
        Measurer { walk: Walk::new(0, 0), floats: Vec::new(), query: Vec::new(), found: Vec::new() }
    }
}

/// The vectors that stand in for queries and are left out at first, rising: none of those that stand for partitions.
pub(super) fn hold_out(work: &Work<'_>, meta: &Meta) -> Vec<u32> {
    let data = work.data;
    if work.options.calibration.is_some() || data.count() < LEAST_VECTORS {
        return Vec::new();
    }
    let mut pivots = meta.pivots.clone();
    pivots.sort_unstable();
    let mut ids = sample_ids(data.count(), work.options);
    ids.retain(|id| pivots.binary_search(id).is_err());
    ids
}

impl Measuring {
    /// Finds the neighbours of the queries and the partitions that have them; `None` where there are too few vectors to measure
    /// anything.
    pub(super) fn prepare(
        work: &Work<'_>,
        meta: &Meta,
        assigned: &Assigned,
        held_out: &[u32],
    ) -> Result<Option<Measuring>, IndexError> {
        let trial = Trial::prepare(work.data, work.options, StandIns::HeldOut(held_out), work.progress)?;
        let Some(trial) = trial else { return Ok(None) };
        let neighbors = trial.wide;
        let mut ranks = Vec::new();
        ranks.resize_with(trial.queries.count() * neighbors * LISTS.len(), || AtomicU8::new(NOWHERE));
        let exact = Exact::new(work.data.form(), work.data.dim());
        let mut measuring = Measuring { trial, exact, asked: vec![Vec::new(); assigned.count()], ranks };
        measuring.ask(work, meta, assigned)?;
        Ok(Some(measuring))
    }

    /// Notes for each partition who asks for it.
    fn ask(&mut self, work: &Work<'_>, meta: &Meta, assigned: &Assigned) -> Result<(), IndexError> {
        let most = (PROBES[PROBES.len() - 1] as usize).min(assigned.count());
        let index = SubIndex::read(&meta.bytes, meta.space.row_bytes()).map_err(IndexError::Internal)?;
        let (mut measurer, mut near) = (Measurer::new(), Vec::new());
        for query in 0..self.trial.queries.count() {
            work.check_cancelled()?;
            measurer.begin(work, self.trial.queries.row(query));
            meta::nearest(&index, &self.exact, &measurer.query, most, &mut measurer.walk, &mut near);
            for (rank, partition) in (0..).zip(&near) {
                let members = assigned.members(partition.id as usize);
                if self.trial.neighbors(query).any(|id| members.binary_search(&id).is_ok()) {
                    self.asked[partition.id as usize].push((query as u32, rank));
                }
            }
        }
        Ok(())
    }

    /// Whether any query asks for a partition.
    pub(super) fn asks_for(&self, partition: usize) -> bool {
        !self.asked[partition].is_empty()
    }

    /// Walks a sub-index for the queries that ask for it.
    pub(super) fn measure(
        &self,
        work: &Work<'_>,
        partition: usize,
        bytes: &[u8],
        measurer: &mut Measurer,
    ) -> Result<(), IndexError> {
        let index = SubIndex::read(bytes, work.data.row_bytes()).map_err(IndexError::Internal)?;
        let neighbors = self.trial.wide;
        for (query, rank) in &self.asked[partition] {
            work.check_cancelled()?;
            measurer.begin(work, self.trial.queries.row(*query as usize));
            for (at, list) in LISTS.into_iter().enumerate() {
                let Measurer { walk, query: bytes, found, .. } = measurer;
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

    /// What was found, once all sub-indexes were walked.
    pub(super) fn calibration(&self, partitions: usize) -> Calibration<ProbedPoint> {
        let mut curves = self.trial.curves::<ProbedPoint>();
        for (number, curve) in curves.iter_mut().enumerate() {
            let ladder = PROBES.into_iter().filter(|probes| *probes as usize <= partitions);
            for probes in ladder {
                for (at, search_list) in LISTS.into_iter().enumerate().filter(|(_, list)| *list >= curve.k) {
                    let recall = self.trial.recall(number, self.found(curve.k as usize, probes, at));
                    curve.points.push(ProbedPoint { probes, search_list, recall, ratio: None });
                }
            }
            curve.keep_rising(|point| point.probes);
        }
        curves.retain(|curve| !curve.points.is_empty());
        if curves.is_empty() { Calibration::default() } else { self.trial.calibration(curves) }
    }

    /// How many of the `k` nearest of all queries so many partitions find with list number `list`.
    fn found(&self, k: usize, probes: u32, list: usize) -> u64 {
        let of_query = self.ranks.chunks_exact(self.trial.wide * LISTS.len());
        let found = |ranks: &[AtomicU8]| {
            let nearest = ranks.chunks_exact(LISTS.len()).take(k);
            nearest.filter(|lists| u32::from(lists[list].load(Ordering::Relaxed)) < probes).count() as u64
        };
        of_query.map(found).sum()
    }
}

impl Measurer {
    /// Makes of a query what stored vectors are compared with.
    fn begin(&mut self, work: &Work<'_>, query: &[u8]) {
        let form = work.data.form();
        self.floats.resize(work.data.dim(), 0.0);
        form.floats(query, &mut self.floats);
        form.query(query, &self.floats, &mut self.query);
    }
}
