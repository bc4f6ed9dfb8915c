//! Measuring what recall every number of lists reaches on this very index, before it is published.
//!
//! All vectors of a list that is read are compared exactly, so a true neighbour is found if any of its lists is among
//! those that the walk through the centroids chose: no list has to be read. Vectors of the data stand in for queries,
//! each absent from its own answer.

use super::build::Work;
use super::centroids::{CentroidLinks, Centroids, Navigation, centroid_element, centroid_metric};
use super::members::Memberships;
use super::place::Leaves;
use crate::error::IndexError;
use crate::families::graph::calibrate::{CALIBRATED_K, LEAST_VECTORS, queries, sample_ids, truth};
use crate::format::manifest::{Calibration, CalibrationCurve, CalibrationPoint, Manifest, SpannEntry};
use crate::query::QueryStats;
use bathyal_kernels::{Metric, Neighbor, normalize_f32, to_f32};
use bathyal_store::GenerationExt;
use bathyal_vectors::VectorFile;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Numbers of lists that are tried.
const PROBES: [u32; 24] = [
    1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 90, 128, 180, 256, 360, 512, 720, 1024, 1440, 2048, 2880, 4096,
];
/// How much farther than the nearest a list may be; 0 is any distance.
const PRUNES: [f32; 8] = [0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7];
/// Beyond this recall more effort is noise.
const ENOUGH_RECALL: f32 = 0.9985;
/// A number of lists that gains less than this over the one before is the last.
const LEAST_GAIN: f32 = 0.0002;

/// Measures the index of `work`, whose manifest has not been written yet.
pub(crate) fn calibrate(
    work: &Work<'_>,
    manifest: &Manifest,
    leaves: &Leaves,
    members: &Memberships,
) -> Result<Calibration, IndexError> {
    let Some(trial) = Trial::prepare(work)? else { return Ok(Calibration::default()) };
    let lists = lists_of(leaves, members, &trial.truth)?;
    let entry = manifest.spann().map_err(IndexError::Internal)?;
    let centroids = centroids(work, entry)?;
    let measured = Measured { centroids: &centroids, trial: &trial, lists: &lists };
    let mut curves = trial.curves();
    climb(work, entry, |probes| {
        let found = measured.run(work, probes as usize)?;
        Ok(found.points(&mut curves, probes, trial.queries.count()))
    })?;
    for curve in &mut curves {
        // A longer walk through the centroids may miss a list that a shorter one found; no search would choose that.
        let mut most: Vec<(f32, f32)> = Vec::new();
        curve.points.retain(|point| match most.iter_mut().find(|most| most.0 == point.prune) {
            Some(most) => {
                let rises = point.recall >= most.1;
                most.1 = most.1.max(point.recall);
                rises
            }
            None => {
                most.push((point.prune, point.recall));
                true
            }
        });
    }
    Ok(trial.calibration(curves))
}

/// The queries of a calibration, with what should be found.
pub(super) struct Trial {
    pub(super) queries: VectorFile,
    /// The queries' own ids, where they are vectors of the data.
    pub(super) own: Option<Vec<u32>>,
    /// The ids of the true neighbours, the nearest first, a query itself among them where it is in the data.
    pub(super) truth: Vec<u32>,
    /// Ids a query in `truth`.
    pub(super) wide: usize,
    /// The numbers of neighbours that get a curve, rising.
    pub(super) k: Vec<u32>,
}

impl Trial {
    /// Finds the true neighbours of queries; `None` where there are too few vectors to measure anything.
    pub(super) fn prepare(work: &Work<'_>) -> Result<Option<Trial>, IndexError> {
        let (data, options) = (work.data, work.options);
        let own = options.calibration.is_none();
        if own && data.count() < LEAST_VECTORS {
            return Ok(None);
        }
        let ids = if own { sample_ids(data.count(), options.seed) } else { Vec::new() };
        let Some((queries, ids)) = queries(data, &ids, options)? else { return Ok(None) };
        let present = data.count() - usize::from(own);
        let k: Vec<u32> = CALIBRATED_K.into_iter().filter(|k| *k as usize <= present).collect();
        let Some(&largest_k) = k.last() else { return Ok(None) };
        // One more than asked for, since a query that is in the data is its own nearest.
        let wide = (largest_k as usize + usize::from(own)).min(data.count());
        let truth = truth(data, &queries, &[], options, wide, work.progress)?;
        data.release();
        Ok(Some(Trial { queries, own: own.then_some(ids), truth, wide, k }))
    }

    /// The true neighbours of a query, itself left out.
    pub(super) fn neighbors(&self, query: usize) -> impl Iterator<Item = u32> {
        let own = self.own.as_ref().map(|own| own[query]);
        let truth = &self.truth[query * self.wide..(query + 1) * self.wide];
        truth.iter().copied().filter(move |id| Some(*id) != own)
    }

    /// Curves without points.
    pub(super) fn curves(&self) -> Vec<CalibrationCurve> {
        self.k.iter().map(|k| CalibrationCurve { k: *k, points: Vec::new() }).collect()
    }

    /// What goes into the manifest.
    pub(super) fn calibration(&self, curves: Vec<CalibrationCurve>) -> Calibration {
        let source = if self.own.is_some() { "vectors of the data" } else { "given queries" };
        let queries = self.queries.count() as u32;
        Calibration { queries, source: source.into(), curves, ..Calibration::default() }
    }
}

/// Calls `measure` with rising numbers of lists, until its recall hardly rises any more.
pub(super) fn climb(
    work: &Work<'_>,
    entry: &SpannEntry,
    mut measure: impl FnMut(u32) -> Result<f32, IndexError>,
) -> Result<(), IndexError> {
    let most = entry.list_count.min(PROBES[PROBES.len() - 1]);
    let mut ladder: Vec<u32> = PROBES.into_iter().filter(|probes| *probes < most).collect();
    ladder.push(most);
    work.progress.stage("calibrating", ladder.len() as u64);
    let mut last = 0.0_f32;
    for (step, probes) in ladder.iter().enumerate() {
        let best = measure(*probes)?;
        work.progress.advance(step as u64 + 1);
        if best >= ENOUGH_RECALL || (best > 0.9 && best - last < LEAST_GAIN) {
            break;
        }
        last = best;
    }
    work.progress.advance(ladder.len() as u64);
    Ok(())
}

/// The lists of each vector of `wanted`, found by going through all.
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
    let mut reading = members.read(leaves)?;
    while let Some(list) = reading.next(&mut slots)? {
        for id in slots.iter().filter_map(|slot| slots_of.get(slot)) {
            lists.entry(*id).or_default().push(list);
        }
    }
    Ok(lists)
}

/// The centroids as an index with room for them has them.
pub(super) fn centroids(work: &Work<'_>, entry: &SpannEntry) -> Result<Centroids, IndexError> {
    let load = |name: &str| work.directory.read(name);
    let (element, metric) = (work.data.element(), work.options.metric);
    let links = CentroidLinks::from_bytes(&load(&entry.links.name)?, entry.list_count)
        .map_err(|reason| IndexError::Internal(format!("the links as written are wrong: {reason}")))?;
    Ok(Centroids::exact(
        centroid_element(element, metric),
        centroid_metric(metric),
        work.data.dim(),
        load(&entry.centroids.name)?,
        links,
        entry.entry_point,
    ))
}

/// What a calibration run reads.
struct Measured<'a> {
    centroids: &'a Centroids,
    trial: &'a Trial,
    lists: &'a HashMap<u32, Vec<u32>>,
}

/// Counts of all queries.
#[derive(Default)]
struct Found {
    /// For each of [`PRUNES`] and each k: true neighbours that were in a list.
    neighbors: [Vec<u64>; PRUNES.len()],
    /// For each of [`PRUNES`]: lists that were read.
    lists: [u64; PRUNES.len()],
}

impl Found {
    /// Adds a point to every curve for each prune that left lists out; returns the recall of the curve of k = 10.
    fn points(&self, curves: &mut [CalibrationCurve], probes: u32, queries: usize) -> f32 {
        let mut best = 0.0;
        let only = curves.len() == 1;
        for (at, curve) in curves.iter_mut().enumerate() {
            for ((prune, neighbors), lists) in PRUNES.into_iter().zip(&self.neighbors).zip(self.lists) {
                if prune > 0.0 && lists == self.lists[0] {
                    break;
                }
                let recall = (neighbors[at] as f64 / (queries as f64 * f64::from(curve.k))) as f32;
                let lists = (lists as f64 / queries as f64) as f32;
                curve.points.push(CalibrationPoint { search_list: probes, probes, recall, prune, lists });
                if prune == 0.0 && (curve.k == 10 || only) {
                    best = recall;
                }
            }
        }
        best
    }
}

/// Memory of one thread.
struct Scratch {
    floats: Vec<f32>,
    navigation: Navigation,
    ranks: HashMap<u32, usize>,
    found: Found,
}

impl Measured<'_> {
    /// Chooses `probes` lists for every query.
    fn run(&self, work: &Work<'_>, probes: usize) -> Result<Found, IndexError> {
        let counts = || std::array::from_fn(|_| vec![0; self.trial.k.len()]);
        let total = Mutex::new(Found { neighbors: counts(), lists: Default::default() });
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..work.threads {
                scope.spawn(|| {
                    let mut scratch = Scratch {
                        floats: vec![0.0; work.data.dim()],
                        navigation: Navigation::new(),
                        ranks: HashMap::new(),
                        found: Found { neighbors: counts(), lists: Default::default() },
                    };
                    loop {
                        let query = next.fetch_add(1, Ordering::Relaxed);
                        if query >= self.trial.queries.count() || work.progress.cancelled() {
                            break;
                        }
                        self.measure(work.options.metric, query, probes, &mut scratch);
                    }
                    if let Ok(mut total) = total.lock() {
                        let (neighbors, lists) = (&mut total.neighbors, scratch.found.neighbors);
                        let pairs = neighbors.iter_mut().flatten().zip(lists.into_iter().flatten());
                        pairs.for_each(|(sum, part)| *sum += part);
                        total.lists.iter_mut().zip(scratch.found.lists).for_each(|(sum, part)| *sum += part);
                    }
                });
            }
        });
        work.go_on()?;
        total.into_inner().map_err(|_| IndexError::Internal("a calibration thread panicked".into()))
    }

    fn measure(&self, metric: Metric, query: usize, probes: usize, scratch: &mut Scratch) {
        let Scratch { floats, navigation, ranks, found } = scratch;
        let queries = &self.trial.queries;
        to_f32(queries.element(), queries.row(query), floats);
        if metric == Metric::Cosine {
            normalize_f32(floats);
        }
        self.centroids.nearest(floats, probes, 0.0, navigation, &mut QueryStats::default());
        let lists: &[Neighbor] = &navigation.lists;
        ranks.clear();
        ranks.extend(lists.iter().enumerate().map(|(rank, list)| (list.id, rank)));
        let read = PRUNES.map(|prune| self.centroids.within(floats, lists, prune));
        found.lists.iter_mut().zip(read).for_each(|(sum, read)| *sum += read as u64);
        for (counted, id) in self.trial.neighbors(query).enumerate() {
            let lists = self.lists.get(&id).map_or(&[][..], |lists| &lists[..]);
            let Some(rank) = lists.iter().filter_map(|list| ranks.get(list)).min() else { continue };
            for (neighbors, read) in found.neighbors.iter_mut().zip(read) {
                for (k, count) in self.trial.k.iter().zip(neighbors) {
                    *count += u64::from(counted < *k as usize && *rank < read);
                }
            }
        }
    }
}
