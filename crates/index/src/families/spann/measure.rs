//! The measurement of recall for each number of lists, on the built index before it is published; for lists
//! of vectors.
//!
//! All vectors of a list that is read are compared exactly. A search therefore finds a true neighbour if one
//! of its lists is among those that the walk through the centroids chose, and the measurement reads no list.
//! Vectors of the data are the queries, and each is excluded from its own results.

use super::centroids::{CentroidLinks, Centroids, ListNavigation, centroid_element};
use super::effort::ListPoint;
use super::members::Memberships;
use super::place::Leaves;
use super::section::SpannEntry;
use super::work::Work;
use crate::calibrate::trial::{StandIns, Trial, climb};
use crate::calibrate::{Calibration, Curve};
use crate::error::IndexError;
use crate::form::Form;
use crate::query::QueryStats;
use crate::query::codes::plain_metric;
use bathyal_kernels::Neighbor;
use bathyal_store::GenerationExt;
use std::collections::HashMap;

/// Numbers of probes that calibration tries.
pub(super) const PROBES: [u32; 24] = [
    1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 90, 128, 180, 256, 360, 512, 720, 1024, 1440, 2048, 2880, 4096,
];
/// Values of `prune` that calibration records; 0 prunes nothing.
const PRUNES: [f32; 8] = [0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7];

/// Calibrates the index of `work`, whose manifest is not written yet.
pub(crate) fn calibrate(
    work: &Work<'_>,
    entry: &SpannEntry,
    leaves: &Leaves,
    members: &Memberships,
) -> Result<Calibration<ListPoint>, IndexError> {
    let Some(trial) = Trial::prepare(work.data, work.options, StandIns::Own, work.progress)? else {
        return Ok(Calibration::default());
    };
    let lists = lists_of(leaves, members, &trial.truth)?;
    let centroids = centroids(work, entry)?;
    let calibration_run = CalibrationRun { centroids: &centroids, trial: &trial, lists: &lists };
    let mut curves = trial.curves();
    climb(&PROBES, most_probes(entry), work.progress, |probes| {
        let found = calibration_run.run(work, probes as usize)?;
        Ok(found.points(&mut curves, probes, &trial))
    })?;
    // A longer walk through the centroids may miss a list that a shorter one found.
    curves.iter_mut().for_each(|curve| curve.keep_rising(|point| point.prune));
    Ok(trial.calibration(curves))
}

/// Returns the largest number of probes that is tried.
pub(super) fn most_probes(entry: &SpannEntry) -> u32 {
    entry.list_count.min(PROBES[PROBES.len() - 1])
}

/// Returns the lists of each vector of `wanted`, from a pass over all lists.
fn lists_of(
    leaves: &Leaves,
    members: &Memberships,
    wanted: &[u32],
) -> Result<HashMap<u32, Vec<u32>>, IndexError> {
    let mut lists: HashMap<u32, Vec<u32>> = wanted.iter().map(|id| (*id, Vec::new())).collect();
    let mut slots_of = HashMap::with_capacity(lists.len());
    let mut slot = 0_u32;
    leaves.each_id(|id| {
        if lists.contains_key(&id) {
            slots_of.insert(slot, id);
        }
        slot += 1;
    })?;
    let mut slots = Vec::new();
    let mut reader = members.read(leaves)?;
    while let Some(list) = reader.next(&mut slots)? {
        for id in slots.iter().filter_map(|slot| slots_of.get(slot)) {
            lists.entry(*id).or_default().push(list);
        }
    }
    Ok(lists)
}

/// Loads the centroids for exact comparison.
pub(super) fn centroids(work: &Work<'_>, entry: &SpannEntry) -> Result<Centroids, IndexError> {
    let load = |name: &str| work.directory.read(name);
    let (element, metric) = (work.data.element(), work.options.metric);
    let links = CentroidLinks::from_bytes(&load(&entry.links.name)?, entry.list_count)
        .map_err(|reason| IndexError::Internal(format!("the written links are invalid: {reason}")))?;
    Ok(Centroids::exact(
        centroid_element(element, metric),
        plain_metric(metric),
        work.data.dim(),
        load(&entry.centroids.name)?,
        links,
        entry.entry_point,
    ))
}

/// The data of a calibration run.
struct CalibrationRun<'a> {
    centroids: &'a Centroids,
    trial: &'a Trial,
    lists: &'a HashMap<u32, Vec<u32>>,
}

/// Counts over all queries.
#[derive(Default)]
struct NeighborCounts {
    /// For each of [`PRUNES`] and each counter of the trial: true neighbours in a list that was read.
    neighbors: [Vec<u64>; PRUNES.len()],
    /// For each of [`PRUNES`]: lists that were read.
    lists: [u64; PRUNES.len()],
}

impl NeighborCounts {
    /// Adds a point to every curve for each value of `prune` that left out lists. Returns the recall of the
    /// curve for k = 10.
    fn points(&self, curves: &mut [Curve<ListPoint>], probes: u32, trial: &Trial) -> f32 {
        let mut best = 0.0;
        let only = curves.len() == 1;
        for (at, curve) in curves.iter_mut().enumerate() {
            for ((prune, neighbors), lists) in PRUNES.into_iter().zip(&self.neighbors).zip(self.lists) {
                if prune > 0.0 && lists == self.lists[0] {
                    break;
                }
                let recall = trial.recall(at, |counter| neighbors[counter]);
                let lists = (lists as f64 / trial.count() as f64) as f32;
                curve.points.push(ListPoint { search_list: probes, probes, recall, prune, lists });
                if prune == 0.0 && (curve.k == 10 || only) {
                    best = recall / trial.left(at);
                }
            }
        }
        best
    }
}

/// The memory of one thread.
struct MeasureScratch {
    floats: Vec<f32>,
    navigation: ListNavigation,
    ranks: HashMap<u32, usize>,
    found: NeighborCounts,
}

impl CalibrationRun<'_> {
    /// Chooses `probes` lists for every query.
    fn run(&self, work: &Work<'_>, probes: usize) -> Result<NeighborCounts, IndexError> {
        let counts = || std::array::from_fn(|_| vec![0; self.trial.counters()]);
        let found = || NeighborCounts { neighbors: counts(), lists: Default::default() };
        let start = || {
            Ok(MeasureScratch {
                floats: vec![0.0; work.data.dim()],
                navigation: ListNavigation::new(),
                ranks: HashMap::new(),
                found: found(),
            })
        };
        let parts = self.trial.each_query(work.threads, work.progress, start, |query, scratch| {
            self.measure(work.data.form(), query, probes, scratch);
            Ok(())
        })?;
        let mut total = found();
        for MeasureScratch { found, .. } in parts {
            let pairs = total.neighbors.iter_mut().flatten().zip(found.neighbors.into_iter().flatten());
            pairs.for_each(|(sum, part)| *sum += part);
            total.lists.iter_mut().zip(found.lists).for_each(|(sum, part)| *sum += part);
        }
        Ok(total)
    }

    fn measure(&self, form: Form, query: usize, probes: usize, scratch: &mut MeasureScratch) {
        let MeasureScratch { floats, navigation, ranks, found } = scratch;
        form.floats(self.trial.query(query), floats);
        self.centroids.nearest(floats, probes, 0.0, navigation, &mut QueryStats::default());
        let lists: &[Neighbor] = &navigation.lists;
        ranks.clear();
        ranks.extend(lists.iter().enumerate().map(|(rank, list)| (list.id, rank)));
        let read = PRUNES.map(|prune| self.centroids.within_prune(floats, lists, prune));
        found.lists.iter_mut().zip(read).for_each(|(sum, read)| *sum += read as u64);
        for (number, id) in self.trial.neighbors(query).enumerate() {
            let lists = self.lists.get(&id).map_or(&[][..], |lists| &lists[..]);
            let Some(rank) = lists.iter().filter_map(|list| ranks.get(list)).min() else { continue };
            for (neighbors, read) in found.neighbors.iter_mut().zip(read) {
                for counter in self.trial.counters_of(query, number) {
                    neighbors[counter] += u64::from(*rank < read);
                }
            }
        }
    }
}
