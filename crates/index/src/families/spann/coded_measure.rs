//! The measurement of recall for each number of lists and candidates, on the built index before it is
//! published; for lists of codes.
//!
//! A search finds a true neighbour if one of its lists is read, and if fewer vectors of these lists have a
//! better estimate than the number of candidates. The lists of a query are therefore scanned up to the worst
//! estimate of a true neighbour. One scan measures all numbers of candidates and all values of `prune`.

use super::centroids::{Centroids, ListNavigation};
use super::coded_write::CodedVectors;
use super::effort::ListPoint;
use super::measure::{PROBES, centroids, most_probes};
use super::place::Leaves;
use super::section::{POSTINGS_NAME, SpannEntry};
use super::work::Work;
use crate::calibrate::trial::{StandIns, Trial, climb};
use crate::calibrate::{Calibration, Curve};
use crate::error::IndexError;
use crate::format::postings::Postings;
use crate::query::QueryStats;
use crate::query::codes::{CodedQuery, VectorCodes};
use crate::query::visited::VisitedSet;
use bathyal_kernels::Neighbor;
use bathyal_store::Object;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers of candidates that calibration records.
const CANDIDATES: [u32; 28] = [
    1, 2, 3, 4, 6, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 50, 60, 80, 100, 130, 160, 200, 260, 320, 400, 500,
    700, 1000,
];
/// Values of `prune` that calibration records; 0 prunes nothing.
const PRUNES: [f32; 6] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.5];

/// Calibrates the index of `work`, whose manifest is not written yet.
pub(crate) fn calibrate(
    work: &Work<'_>,
    entry: &SpannEntry,
    leaves: &Leaves,
    coded: &CodedVectors,
    table: &Postings,
) -> Result<Calibration<ListPoint>, IndexError> {
    let Some(trial) = Trial::prepare(work.data, work.options, StandIns::Own, work.progress)? else {
        return Ok(Calibration::default());
    };
    let centroids = centroids(work, entry)?;
    let file = work.directory.get(POSTINGS_NAME)?;
    let slots = slots_of(leaves, &trial)?;
    let truth = Truth::read(&trial, &slots, coded)?;
    let (centroids, codes) = (&centroids, &coded.codes);
    let calibration_run =
        CodedCalibrationRun { centroids, codes, trial: &trial, slots: &slots, truth: &truth, table, file };
    let mut curves = trial.curves();
    climb(&PROBES, most_probes(entry), work.progress, |probes| {
        let found = calibration_run.run(work, probes as usize)?;
        Ok(found.points(&mut curves, probes, &trial))
    })?;
    curves.iter_mut().for_each(|curve| keep_useful(&mut curve.points));
    Ok(trial.calibration(curves))
}

/// Drops points for which another has at least the same recall with no more lists and candidates.
fn keep_useful(points: &mut Vec<ListPoint>) {
    let all = points.clone();
    let beats = |a: &ListPoint, b: &ListPoint| {
        let no_worse = a.lists <= b.lists && a.search_list <= b.search_list && a.recall >= b.recall;
        // Of equal points the one with the fewest probes stays.
        no_worse
            && ((a.lists, a.search_list, a.recall) != (b.lists, b.search_list, b.recall)
                || a.probes < b.probes)
    };
    points.retain(|point| !all.iter().any(|other| beats(other, point)));
}

/// Returns the slots of all true neighbours and of the queries, by id.
fn slots_of(leaves: &Leaves, trial: &Trial) -> Result<HashMap<u32, u32>, IndexError> {
    let mut slots: HashMap<u32, u32> = trial.all_ids().map(|id| (id, u32::MAX)).collect();
    let mut slot = 0_u32;
    leaves.each_id(|id| {
        if let Some(found) = slots.get_mut(&id) {
            *found = slot;
        }
        slot += 1;
    })?;
    Ok(slots)
}

/// The slots and codes of the true neighbours.
struct Truth {
    /// For each query, the slots of its neighbours in ascending order, with their ranks.
    neighbors: Vec<Vec<(u32, usize)>>,
    /// For each query, the codes of its neighbours in the form of lists.
    codes: Vec<Vec<u8>>,
}

impl Truth {
    fn read(trial: &Trial, slots: &HashMap<u32, u32>, coded: &CodedVectors) -> Result<Truth, IndexError> {
        let mut truth = Truth { neighbors: Vec::new(), codes: Vec::new() };
        let (mut wanted, mut codes) = (Vec::new(), Vec::new());
        for query in 0..trial.count() {
            let ranked = trial.neighbors(query).enumerate();
            let slot = |(rank, id): (usize, u32)| slots.get(&id).map(|slot| (*slot, rank));
            let mut neighbors: Vec<(u32, usize)> = ranked.filter_map(slot).collect();
            neighbors.retain(|(slot, _)| *slot != u32::MAX);
            neighbors.sort_unstable();
            wanted.clear();
            wanted.extend(neighbors.iter().map(|(slot, _)| *slot));
            coded.read(&wanted, &mut codes)?;
            let mut blocks = Vec::with_capacity(codes.len());
            coded.codes.append_blocks(&codes, &mut blocks);
            truth.neighbors.push(neighbors);
            truth.codes.push(blocks);
        }
        Ok(truth)
    }
}

/// Counts over all queries.
struct CandidateCounts {
    /// For each of [`PRUNES`], each counter of the trial and each of [`CANDIDATES`]: true neighbours for
    /// which this is the least sufficient number of candidates.
    first: Vec<Vec<Vec<u64>>>,
    /// For each of [`PRUNES`]: lists that were read.
    lists: [u64; PRUNES.len()],
}

impl CandidateCounts {
    fn empty(counters: usize) -> CandidateCounts {
        // The last entry counts neighbours that need more candidates than the largest number.
        let first = vec![vec![vec![0; CANDIDATES.len() + 1]; counters]; PRUNES.len()];
        CandidateCounts { first, lists: [0; PRUNES.len()] }
    }

    fn add(&mut self, other: &CandidateCounts) {
        let (sums, parts) =
            (self.first.iter_mut().flatten().flatten(), other.first.iter().flatten().flatten());
        sums.zip(parts).for_each(|(sum, part)| *sum += part);
        self.lists.iter_mut().zip(other.lists).for_each(|(sum, part)| *sum += part);
    }

    /// Adds the points of a number of probes to every curve. Returns the best recall of the curve for k = 10.
    fn points(&self, curves: &mut [Curve<ListPoint>], probes: u32, trial: &Trial) -> f32 {
        let mut best = 0.0;
        let only = curves.len() == 1;
        for (at, curve) in curves.iter_mut().enumerate() {
            let mut sums = vec![vec![0_u64; trial.counters()]; PRUNES.len()];
            for (step, search_list) in CANDIDATES.into_iter().enumerate() {
                for (number, (prune, sums)) in PRUNES.into_iter().zip(&mut sums).enumerate() {
                    sums.iter_mut().zip(&self.first[number]).for_each(|(sum, first)| *sum += first[step]);
                    let lists = self.lists[number];
                    // A value of `prune` that leaves out no list is the same as 0.
                    if search_list < curve.k || (prune > 0.0 && lists == self.lists[0]) {
                        continue;
                    }
                    let recall = trial.recall(at, |counter| sums[counter]);
                    let lists = (lists as f64 / trial.count() as f64) as f32;
                    curve.points.push(ListPoint { search_list, probes, recall, prune, lists });
                    if prune == 0.0 && (curve.k == 10 || only) {
                        best = recall / trial.left(at);
                    }
                }
            }
        }
        best
    }
}

/// The data of a calibration run.
struct CodedCalibrationRun<'a> {
    centroids: &'a Centroids,
    codes: &'a VectorCodes,
    trial: &'a Trial,
    /// The slots of true neighbours and queries, by id.
    slots: &'a HashMap<u32, u32>,
    truth: &'a Truth,
    table: &'a Postings,
    file: Arc<dyn Object>,
}

/// The memory of one thread.
struct CodedMeasureScratch {
    floats: Vec<f32>,
    navigation: ListNavigation,
    query: CodedQuery,
    list: Vec<u8>,
    hits: Vec<Neighbor>,
    /// Vectors with an estimate no worse than that of the worst true neighbour, with the rank of the first
    /// list that contains each.
    near: Vec<(Neighbor, usize)>,
    seen: VisitedSet,
    found: CandidateCounts,
}

impl CodedCalibrationRun<'_> {
    /// Scans `probes` lists for every query.
    fn run(&self, work: &Work<'_>, probes: usize) -> Result<CandidateCounts, IndexError> {
        let counters = self.trial.counters();
        let start = || {
            Ok(CodedMeasureScratch {
                floats: vec![0.0; work.data.dim()],
                navigation: ListNavigation::new(),
                query: CodedQuery::new(),
                list: Vec::new(),
                hits: Vec::new(),
                near: Vec::new(),
                seen: VisitedSet::new(1024),
                found: CandidateCounts::empty(counters),
            })
        };
        let parts = self.trial.each_query(work.threads, work.progress, start, |query, scratch| {
            self.measure(work, query, probes, scratch)
        })?;
        let mut total = CandidateCounts::empty(counters);
        parts.iter().for_each(|part| total.add(&part.found));
        Ok(total)
    }

    fn measure(
        &self,
        work: &Work<'_>,
        query: usize,
        probes: usize,
        scratch: &mut CodedMeasureScratch,
    ) -> Result<(), IndexError> {
        work.data.form().floats(self.trial.query(query), &mut scratch.floats);
        let CodedMeasureScratch { floats, navigation, .. } = scratch;
        self.centroids.nearest(floats, probes, 0.0, navigation, &mut QueryStats::default());
        let read = PRUNES.map(|prune| self.centroids.within_prune(floats, &navigation.lists, prune));
        scratch.found.lists.iter_mut().zip(read).for_each(|(sum, read)| *sum += read as u64);
        self.codes.begin(floats, &mut scratch.query);
        self.scan(query, scratch)?;
        self.count(query, &read, scratch);
        Ok(())
    }

    /// Collects the vectors in the lists with an estimate no worse than that of the worst true neighbour.
    fn scan(&self, query: usize, scratch: &mut CodedMeasureScratch) -> Result<(), IndexError> {
        let CodedMeasureScratch { navigation, query: prepared, list, hits, near, seen, .. } = scratch;
        hits.clear();
        self.codes.scan(prepared, &self.truth.codes[query], f32::INFINITY, hits);
        let worst = hits.iter().map(|hit| hit.distance).fold(f32::NEG_INFINITY, f32::max);
        near.clear();
        seen.clear();
        for (rank, nearest) in navigation.lists.iter().enumerate() {
            let count = self.table.stored_of(nearest.id) as usize;
            let range = self.table.rows_range(nearest.id);
            list.resize((range.end - range.start) as usize, 0);
            self.file.read_at(range.start, list)?;
            let (codes, places) = list.split_at(count * self.codes.code_bytes());
            hits.clear();
            self.codes.scan(prepared, codes, worst.next_up(), hits);
            for hit in &*hits {
                let place = u32::from_le_bytes(places.as_chunks::<4>().0[hit.id as usize]);
                if seen.insert(place) {
                    near.push((Neighbor { distance: hit.distance, id: place }, rank));
                }
            }
        }
        near.sort_unstable_by_key(|(hit, _)| *hit);
        Ok(())
    }

    /// Counts the candidates that are needed to find each true neighbour. `read` has the number of lists for
    /// each value of `prune`.
    fn count(&self, query: usize, read: &[usize; PRUNES.len()], scratch: &mut CodedMeasureScratch) {
        let absent = self.trial.absent(query).iter().filter_map(|id| self.slots.get(id).copied());
        let absent: Vec<u32> = absent.collect();
        let neighbors = &self.truth.neighbors[query];
        let mut before = [0_u32; PRUNES.len()];
        for (hit, list) in scratch.near.iter().filter(|(hit, _)| !absent.contains(&hit.id)) {
            let found = neighbors.binary_search_by_key(&hit.id, |(slot, _)| *slot).ok();
            let prunes = read.iter().zip(&mut before).zip(&mut scratch.found.first);
            for ((_, before), counts) in prunes.filter(|((read, _), _)| list < *read) {
                *before += 1;
                let Some(rank) = found.map(|at| neighbors[at].1) else { continue };
                let step = CANDIDATES.partition_point(|candidates| candidates < before);
                for counter in self.trial.counters_of(query, rank) {
                    counts[counter][step] += 1;
                }
            }
        }
    }
}
