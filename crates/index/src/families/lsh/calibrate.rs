//! What recall and what overall ratio so many blocks of each table and so many candidates reach, measured before the index is
//! published: which of the true neighbours are in the blocks, which rank their codes have among all that is, and how far away
//! the candidates before them lie.

use super::build::Work;
use super::search::{Lsh, Scratch};
use super::section::TABLES_NAME;
use crate::calibrate::probed::ProbedPoint;
use crate::calibrate::trial::{StandIns, Trial, climb};
use crate::calibrate::{Calibration, Curve};
use crate::error::IndexError;
use crate::form::source::Source;
use crate::query::{SearchMode, SearchParams};
use bathyal_kernels::Metric;
use bathyal_store::Object;
use bathyal_vectors::RowReader;
use bathyal_vectors::groundtruth::ratio_of_query;
use std::collections::HashMap;
use std::sync::Arc;

/// Blocks of each table that are tried.
const PROBES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, MOST_PROBES];
/// More scan what a cluster index reads in no time: an index that needs them has too few tables.
const MOST_PROBES: u32 = 256;
/// Lengths of the candidate list that are recorded.
const LISTS: [u32; 24] =
    [1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 26, 32, 40, 52, 64, 80, 104, 128, 180, 256, 360, 512, 720, 1024];
/// The longest of them.
const LONGEST: usize = LISTS[LISTS.len() - 1] as usize;
/// Lists up to so long have their overall ratio measured, for which each candidate is compared.
const LONGEST_WITH_RATIO: usize = 360;
/// Queries whose ratio is measured, about: the mean of so many is some 0.0013 off where it is 1.05.
const QUERIES_WITH_RATIO: usize = 500;
/// A ratio is summed in units of one over this, so that the order of the threads makes no difference.
const RATIO_UNITS: f64 = (1_u64 << 32) as f64;

/// Measures the index of `work`, whose manifest has not been written yet.
pub(super) fn calibrate(work: &Work<'_>, lsh: &Lsh) -> Result<Calibration<ProbedPoint>, IndexError> {
    let Some(trial) = Trial::prepare(work.data, work.options, StandIns::Own, work.progress)? else {
        return Ok(Calibration::default());
    };
    let object = work.directory.get(TABLES_NAME)?;
    let measured = Measured { lsh, trial: &trial, object, data: work.data, metric: work.options.metric };
    let mut curves: Vec<Curve<ProbedPoint>> = trial.curves();
    climb(&PROBES, MOST_PROBES.min(lsh.fences.blocks() as u32), work.progress, |probes| {
        let counts = measured.counts(work, probes)?;
        Ok(add_points(&mut curves, &counts, probes, &trial))
    })?;
    curves.retain(|curve| !curve.points.is_empty());
    if curves.is_empty() {
        return Ok(Calibration::default());
    }
    Ok(trial.calibration(curves))
}

struct Measured<'a> {
    lsh: &'a Lsh,
    trial: &'a Trial,
    object: Arc<dyn Object>,
    data: &'a Source<'a>,
    metric: Metric,
}

/// What all queries have found, for one k.
#[derive(Clone)]
struct Counts {
    /// How many true neighbours have each rank, those of none or of a later one at the end.
    ranks: Vec<u64>,
    /// For each of the lists the ratios of queries, in units of one over [`RATIO_UNITS`], and how many queries have one.
    ratios: [(u128, u32); LISTS.len()],
    /// Queries of which fewer than k candidates were seen.
    short: u32,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.ranks.iter_mut().zip(&other.ranks).for_each(|(sum, part)| *sum += part);
        for (sum, part) in self.ratios.iter_mut().zip(&other.ratios) {
            *sum = (sum.0 + part.0, sum.1 + part.1);
        }
        self.short += other.short;
    }

    /// The mean ratio of a list. There is none where it would be one of fewer answers than were asked for.
    fn ratio(&self, list: usize) -> Option<f32> {
        let (sum, queries) = self.ratios[list];
        let mean = sum as f64 / RATIO_UNITS / f64::from(queries.max(1));
        (queries > 0 && self.short == 0).then_some(mean.max(1.0) as f32)
    }
}

/// What a thread measures with.
struct State<'a> {
    scratch: Scratch,
    bytes: Vec<u8>,
    /// Rank by id.
    ranks: HashMap<u32, usize>,
    /// The true neighbours: their ids, their distances.
    truth: (Vec<u32>, Vec<f32>),
    /// Distances of candidates by rank; NaN of those that have not been compared.
    distances: Vec<f32>,
    /// The least of these so far, rising.
    nearest: Vec<f32>,
    rows: RowReader<'a>,
    stored: Vec<u8>,
    counts: Vec<Counts>,
}

impl<'a> Measured<'a> {
    fn empty(&self) -> Vec<Counts> {
        let none = Counts { ranks: vec![0; LONGEST + 1], ratios: [(0, 0); LISTS.len()], short: 0 };
        vec![none; self.trial.k.len()]
    }

    fn counts(&self, work: &Work<'_>, probes: u32) -> Result<Vec<Counts>, IndexError> {
        let start = || {
            Ok(State {
                scratch: Scratch::default(),
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
        let measure = |query: usize, state: &mut State<'a>| self.measure(query, probes, state);
        let parts = self.trial.each_query(work.threads, work.progress, start, measure)?;
        let mut counts = self.empty();
        for part in parts {
            counts.iter_mut().zip(&part.counts).for_each(|(sum, part)| sum.add(part));
        }
        Ok(counts)
    }

    fn measure(&self, query: usize, probes: u32, state: &mut State<'a>) -> Result<(), IndexError> {
        let (lsh, trial) = (self.lsh, self.trial);
        let State { scratch, bytes, ranks, truth, counts, .. } = state;
        let params = SearchParams {
            k: 1,
            search_list: LONGEST + 1,
            probes: probes as usize,
            prune: 0.0,
            beam_width: 1,
            multi_probe: 0,
            mode: SearchMode::Batched,
            timed: false,
            early: None,
        };
        scratch.begin(lsh, trial.queries.row(query), &params);
        // One more than recorded: the query itself may be there.
        scratch.look(lsh, (params.probes, params.search_list), self.object.as_ref(), bytes)?;
        let own = trial.own.as_ref().map(|own| own[query]);
        ranks.clear();
        let others = scratch.candidates.hits.iter().map(|hit| hit.id).filter(|id| Some(*id) != own);
        ranks.extend(others.take(LONGEST).zip(0..));
        truth.0.clear();
        truth.1.clear();
        for (counted, (id, distance)) in trial.neighbors_at(query).enumerate() {
            truth.0.push(id);
            truth.1.push(distance);
            let rank = ranks.get(&id).copied().unwrap_or(LONGEST);
            let of_k = trial.k.iter().zip(counts.iter_mut()).filter(|(k, _)| counted < **k as usize);
            of_k.for_each(|(_, counts)| counts.ranks[rank] += 1);
        }
        let every = trial.queries.count().div_ceil(QUERIES_WITH_RATIO);
        // An inner product is no distance.
        if self.metric == Metric::InnerProduct || !query.is_multiple_of(every) {
            return Ok(());
        }
        self.compare(own, state)?;
        self.add_ratios(state);
        Ok(())
    }

    /// Finds the distances of the candidates that ratios are measured of.
    fn compare(&self, own: Option<u32>, state: &mut State<'a>) -> Result<(), IndexError> {
        let State { scratch, ranks, truth, distances, rows, stored, .. } = state;
        let others = scratch.candidates.hits.iter().map(|hit| hit.id).filter(|id| Some(*id) != own);
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

    /// Adds the query's ratio with each of the lists.
    fn add_ratios(&self, state: &mut State<'a>) {
        let State { truth, distances, nearest, counts, .. } = state;
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

/// Adds the points of a number of blocks to every curve; returns the best recall of the curve of k = 10, or of the only one.
fn add_points(curves: &mut [Curve<ProbedPoint>], counts: &[Counts], probes: u32, trial: &Trial) -> f32 {
    let mut best = 0.0;
    let only = curves.len() == 1;
    for (at, (curve, counts)) in curves.iter_mut().zip(counts).enumerate() {
        let (mut sum, mut next, mut last) = (0, 0, None);
        for (listed, list) in LISTS.into_iter().enumerate().filter(|(_, list)| *list >= curve.k) {
            sum += counts.ranks[next..list as usize].iter().sum::<u64>();
            next = list as usize;
            let recall = trial.recall(at, sum);
            if last.is_none_or(|last| recall > last) {
                curve.points.push(ProbedPoint {
                    probes,
                    search_list: list,
                    recall,
                    ratio: counts.ratio(listed),
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
