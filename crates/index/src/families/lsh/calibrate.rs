//! Measures the recall and the overall ratio that numbers of blocks per table and of candidates reach, before
//! the index is published: which of the true neighbours are in the blocks, which rank their codes have among
//! all entries, and how far away the candidates before them are.

use super::build::Work;
use super::search::{Lsh, LshScratch};
use super::section::TABLES_NAME;
use crate::calibrate::probed::ProbedPoint;
use crate::calibrate::trial::{StandIns, Trial, climb};
use crate::calibrate::{Calibration, Curve};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::query::{SearchMode, SearchParams};
use bathyal_kernels::Metric;
use bathyal_store::Object;
use bathyal_vectors::RowReader;
use bathyal_vectors::groundtruth::ratio_of_query;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers of blocks of each table that are tried.
const PROBES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, MOST_PROBES];
/// With more blocks a `cluster` index is much faster: an index that needs more has too few tables.
const MOST_PROBES: u32 = 256;
/// Lengths of the candidate list that are recorded.
const LISTS: [u32; 24] =
    [1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 26, 32, 40, 52, 64, 80, 104, 128, 180, 256, 360, 512, 720, 1024];
/// The longest of these lists.
const LONGEST: usize = LISTS[LISTS.len() - 1] as usize;
/// The overall ratio is measured for lists up to this length, since each candidate has to be compared.
const LONGEST_WITH_RATIO: usize = 360;
/// Approximate number of queries whose ratio is measured: at a ratio of 1.05, their mean is off by some
/// 0.0013.
const QUERIES_WITH_RATIO: usize = 500;
/// Ratios are summed in units of one over this number, so that the order of the threads does not change the
/// sum.
const RATIO_UNITS: f64 = (1_u64 << 32) as f64;

/// Measures the index of `work`, whose manifest has not been written yet.
pub(super) fn calibrate(work: &Work<'_>, lsh: &Lsh) -> Result<Calibration<ProbedPoint>, IndexError> {
    let Some(trial) = Trial::prepare(work.data, work.options, StandIns::Own, work.progress)? else {
        return Ok(Calibration::default());
    };
    let object = work.directory.get(TABLES_NAME)?;
    let measurement =
        LshMeasurement { lsh, trial: &trial, object, data: work.data, metric: work.options.metric };
    let mut curves: Vec<Curve<ProbedPoint>> = trial.curves();
    climb(&PROBES, MOST_PROBES.min(lsh.fences.blocks() as u32), work.progress, |probes| {
        let counts = measurement.counts(work, probes)?;
        Ok(add_points(&mut curves, &counts, probes, &trial))
    })?;
    curves.retain(|curve| !curve.points.is_empty());
    if curves.is_empty() {
        return Ok(Calibration::default());
    }
    Ok(trial.calibration(curves))
}

struct LshMeasurement<'a> {
    lsh: &'a Lsh,
    trial: &'a Trial,
    object: Arc<dyn Object>,
    data: &'a SourceVectors<'a>,
    metric: Metric,
}

/// The counts of one counter of the trial, over all its queries.
#[derive(Clone)]
struct RankCounts {
    /// Number of true neighbours at each rank. The last entry counts those without a rank or with a later
    /// one.
    ranks: Vec<u64>,
    /// For each of the lists, the sum of the ratios of queries, in units of one over [`RATIO_UNITS`], and the
    /// number of queries that have one.
    ratios: [(u128, u32); LISTS.len()],
    /// Number of queries with fewer than k candidates.
    short: u32,
}

impl RankCounts {
    fn add(&mut self, other: &RankCounts) {
        self.ranks.iter_mut().zip(&other.ranks).for_each(|(sum, part)| *sum += part);
        for (sum, part) in self.ratios.iter_mut().zip(&other.ratios) {
            *sum = (sum.0 + part.0, sum.1 + part.1);
        }
        self.short += other.short;
    }

    /// Returns the mean ratio of a list; `None` if a query had fewer than k candidates or no query has a
    /// ratio.
    fn ratio(&self, list: usize) -> Option<f32> {
        let (sum, queries) = self.ratios[list];
        let mean = sum as f64 / RATIO_UNITS / f64::from(queries.max(1));
        (queries > 0 && self.short == 0).then_some(mean.max(1.0) as f32)
    }
}

/// Memory of a thread that measures.
struct ThreadState<'a> {
    scratch: LshScratch,
    bytes: Vec<u8>,
    /// Rank by id.
    ranks: HashMap<u32, usize>,
    /// The ids and the distances of the true neighbours.
    truth: (Vec<u32>, Vec<f32>),
    /// Distances of candidates by rank; NaN for candidates that have not been compared.
    distances: Vec<f32>,
    /// The least of these distances so far, ascending.
    nearest: Vec<f32>,
    rows: RowReader<'a>,
    stored: Vec<u8>,
    counts: Vec<RankCounts>,
}

impl<'a> LshMeasurement<'a> {
    fn empty(&self) -> Vec<RankCounts> {
        let none = RankCounts { ranks: vec![0; LONGEST + 1], ratios: [(0, 0); LISTS.len()], short: 0 };
        vec![none; self.trial.counters()]
    }

    fn counts(&self, work: &Work<'_>, probes: u32) -> Result<Vec<RankCounts>, IndexError> {
        let start = || {
            Ok(ThreadState {
                scratch: LshScratch::default(),
                bytes: Vec::new(),
                ranks: HashMap::new(),
                truth: (Vec::new(), Vec::new()),
                distances: Vec::new(),
                nearest: Vec::new(),
                rows: RowReader::new(self.data.given(), 0),
                stored: vec![0; self.data.row_bytes()],
                counts: self.empty(),
            })
        };
        let measure = |query: usize, state: &mut ThreadState<'a>| self.measure(query, probes, state);
        let parts = self.trial.each_query(work.threads, work.progress, start, measure)?;
        let mut counts = self.empty();
        for part in parts {
            counts.iter_mut().zip(&part.counts).for_each(|(sum, part)| sum.add(part));
        }
        Ok(counts)
    }

    fn measure(&self, query: usize, probes: u32, state: &mut ThreadState<'a>) -> Result<(), IndexError> {
        let (lsh, trial) = (self.lsh, self.trial);
        let ThreadState { scratch, bytes, ranks, truth, counts, .. } = state;
        let params = SearchParams {
            k: 1,
            search_list: LONGEST + trial.most_absent(),
            probes: probes as usize,
            prune: 0.0,
            beam_width: 1,
            multi_probe: 0,
            mode: SearchMode::Batched,
            timed: false,
            early: None,
        };
        scratch.begin(lsh, trial.query(query), &params);
        scratch.find_candidates(lsh, (params.probes, params.search_list), self.object.as_ref(), bytes)?;
        ranks.clear();
        let others = scratch.candidates.hits.iter().map(|hit| hit.id);
        let others = others.filter(|id| !trial.is_absent(query, *id));
        ranks.extend(others.take(LONGEST).zip(0..));
        truth.0.clear();
        truth.1.clear();
        for (number, (id, distance)) in trial.neighbors_at(query).enumerate() {
            truth.0.push(id);
            truth.1.push(distance);
            let rank = ranks.get(&id).copied().unwrap_or(LONGEST);
            trial.counters_of(query, number).for_each(|counter| counts[counter].ranks[rank] += 1);
        }
        let interval = trial.count().div_ceil(QUERIES_WITH_RATIO);
        // Inner products have no ratio.
        if self.metric == Metric::InnerProduct || !trial.is_plain(query) || !query.is_multiple_of(interval) {
            return Ok(());
        }
        self.compare(query, state)?;
        self.add_ratios(state);
        Ok(())
    }

    /// Finds the distances of the candidates for which ratios are measured.
    fn compare(&self, query: usize, state: &mut ThreadState<'a>) -> Result<(), IndexError> {
        let ThreadState { scratch, ranks, truth, distances, rows, stored, .. } = state;
        let others = scratch.candidates.hits.iter().map(|hit| hit.id);
        let others = others.filter(|id| !self.trial.is_absent(query, *id));
        distances.clear();
        distances.resize(ranks.len().min(LONGEST_WITH_RATIO), f32::NAN);
        for (id, distance) in truth.0.iter().zip(&truth.1) {
            if let Some(known) = ranks.get(id).and_then(|rank| distances.get_mut(*rank)) {
                *known = *distance;
            }
        }
        for (id, distance) in others.zip(distances.iter_mut()).filter(|(_, distance)| distance.is_nan()) {
            self.data.form().take(rows.row(id as usize)?, stored);
            *distance = self.lsh.set.exact.between(&scratch.query.bytes, stored);
        }
        Ok(())
    }

    /// Adds the query's ratio at each of the lists.
    fn add_ratios(&self, state: &mut ThreadState<'a>) {
        let ThreadState { truth, distances, nearest, counts, .. } = state;
        let most = self.trial.k.last().map_or(0, |k| *k as usize);
        nearest.clear();
        let mut next = 0;
        for (at, list) in
            LISTS.into_iter().enumerate().take_while(|(_, list)| *list as usize <= LONGEST_WITH_RATIO)
        {
            let end = distances.len().min(list as usize);
            for distance in &distances[next..end] {
                let place = nearest.partition_point(|nearer| nearer <= distance);
                if place < most {
                    nearest.truncate(most - 1);
                    nearest.insert(place, *distance);
                }
            }
            next = end;
            for (k, counts) in self.trial.k.iter().zip(counts.iter_mut()).filter(|(k, _)| **k <= list) {
                let found = nearest.get(..*k as usize);
                if let Some(ratio) = found.and_then(|found| ratio_of_query(self.metric, found, &truth.1)) {
                    let sum = &mut counts.ratios[at];
                    *sum = (sum.0 + (ratio * RATIO_UNITS) as u128, sum.1 + 1);
                }
            }
        }
        for (k, counts) in self.trial.k.iter().zip(counts.iter_mut()) {
            counts.short += u32::from(distances.len() < *k as usize);
        }
    }
}

/// Adds the points of one number of blocks to every curve. Returns the best recall of the curve of k = 10, or
/// of the only curve.
fn add_points(curves: &mut [Curve<ProbedPoint>], counts: &[RankCounts], probes: u32, trial: &Trial) -> f32 {
    let mut best = 0.0;
    let only = curves.len() == 1;
    for (at, curve) in curves.iter_mut().enumerate() {
        let (mut sums, mut next, mut last) = (vec![0; counts.len()], 0, None);
        for (listed, list) in LISTS.into_iter().enumerate().filter(|(_, list)| *list >= curve.k) {
            for (sum, counts) in sums.iter_mut().zip(counts) {
                *sum += counts.ranks[next..list as usize].iter().sum::<u64>();
            }
            next = list as usize;
            let recall = trial.recall(at, |counter| sums[counter]);
            if last.is_none_or(|last| recall > last) {
                curve.points.push(ProbedPoint {
                    probes,
                    search_list: list,
                    recall,
                    ratio: counts[at].ratio(listed),
                });
                last = Some(recall);
            }
        }
        if curve.k == 10 || only {
            best = last.unwrap_or(0.0) / trial.left(at).max(f32::MIN_POSITIVE);
        }
    }
    best
}
