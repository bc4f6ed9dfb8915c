//! Calibration: what recall every pair of probes and candidate list reaches on this very index.
//!
//! A scan says which pages each length of the candidate list would read, so one scan a query and number of probes
//! measures all lists at once, and no page is read; and it measures them twice, for tiers that read whole pages and for
//! memory, where candidates are read alone. Vectors of the data stand in for queries, each absent from its
//! own answer; unlike a graph's, the groups hardly know a single vector of theirs.

use super::build::Work;
use super::effort::ClusterPoint;
use super::open::load_for_scan;
use super::scope::{self, Farness, Pruned};
use super::search::{Cluster, Scratch};
use super::section::ClusterEntry;
use crate::calibrate::trial::{StandIns, Trial, climb};
use crate::calibrate::{Calibration, Curve};
use crate::error::IndexError;
use crate::format::appender::{ReadBack, Written};
use crate::format::manifest::Manifest;
use crate::partition::journal::ORDER_NAME;
use crate::query::{SearchMode, SearchParams};
use std::collections::{HashMap, HashSet};

/// Numbers of groups that are tried.
const PROBES: [u32; 20] =
    [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288];
/// Lengths of the candidate list that are recorded.
const LISTS: [u32; 30] = [
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 23, 26, 30, 35, 40, 50, 60, 80, 100, 130, 160, 200, 260, 320,
    400, 600, 800, 1200,
];
/// How often a length of the list first contained a true neighbour.
struct Histogram {
    /// Its page. For each k: counts by list length, and those never found at the end.
    first_found: Vec<Vec<u32>>,
    /// The neighbour itself.
    first_named: Vec<Vec<u32>>,
}

impl Histogram {
    fn empty(k: &[u32]) -> Histogram {
        let longest = LISTS.last().copied().unwrap_or(1) as usize;
        let first_found: Vec<Vec<u32>> = k.iter().map(|_| vec![0; longest + 1]).collect();
        Histogram { first_named: first_found.clone(), first_found }
    }

    fn add(&mut self, other: &Histogram) {
        let others = other.first_found.iter().chain(&other.first_named);
        for (sum, part) in self.first_found.iter_mut().chain(&mut self.first_named).zip(others) {
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
}

/// What is measured: recall where pages are read, where candidates are read alone, and where queries stop.
type Measurements = (Calibration<ClusterPoint>, Vec<Curve<ClusterPoint>>, Vec<Pruned>);

/// Measures the index of `work`, whose manifest has not been written yet.
pub(crate) fn calibrate(
    work: &Work<'_>,
    manifest: &Manifest,
    entry: &ClusterEntry,
    order: Written,
) -> Result<Measurements, IndexError> {
    let Some(trial) = Trial::prepare(work.data, work.options, StandIns::Own, work.progress)? else {
        return Ok((Calibration::default(), Vec::new(), Vec::new()));
    };
    let own = trial.own.iter().flatten();
    let places = places(work, order, trial.truth.iter().chain(own).copied().collect())?;
    let cluster = load_for_scan(work.directory, manifest, entry.clone())?;
    let (mut curves, mut lone_curves) = (trial.curves(), trial.curves());
    let measured = Measured { cluster: &cluster, trial: &trial, places: &places };
    let mut prunes: Vec<Pruned> = Vec::new();
    climb(&PROBES, cluster.centroids.groups() as u32, work.progress, |probes| {
        prunes.extend(measured.pruned(work, probes)?);
        let histogram = measured.run(work, probes, scope::prune_of(&prunes, probes as usize))?;
        let (mut best, only) = (0.0_f32, curves.len() == 1);
        let measured = histogram.first_found.iter().zip(&histogram.first_named);
        let both = curves.iter_mut().zip(&mut lone_curves).zip(measured);
        for (at, ((curve, lone), (found, named))) in both.enumerate() {
            let points = |found: &[u32], k| points(found, k, probes, |sum| trial.recall(at, sum));
            let points_of_pages = points(found, curve.k);
            if curve.k == 10 || only {
                best = points_of_pages.last().map_or(0.0, |p: &ClusterPoint| p.recall) / trial.left(at);
            }
            curve.points.extend(points_of_pages);
            lone.points.extend(points(named, lone.k));
        }
        Ok(best)
    })?;
    // Where equal vectors crowd a neighbour out of every list, there is nothing to read off.
    lone_curves.retain(|curve| !curve.points.is_empty());
    curves.retain(|curve| !curve.points.is_empty());
    Ok((trial.calibration(curves), lone_curves, prunes))
}

/// The places of some vectors, found by going through the order of all.
fn places(work: &Work<'_>, order: Written, wanted: HashSet<u32>) -> Result<HashMap<u32, u32>, IndexError> {
    let mut file = ReadBack::open(work.directory, ORDER_NAME, order)?;
    let mut places = HashMap::with_capacity(wanted.len());
    let mut id = [0; 4];
    for place in 0..(order.bytes / 4) as u32 {
        file.fill(&mut id)?;
        let id = u32::from_le_bytes(id);
        if wanted.contains(&id) {
            places.insert(id, place);
        }
    }
    Ok(places)
}

/// The recorded points of one number of probes: recall by list length, where it rises.
fn points(found: &[u32], k: u32, probes: u32, recall_of: impl Fn(u64) -> f32) -> Vec<ClusterPoint> {
    let mut points: Vec<ClusterPoint> = Vec::new();
    let (mut sum, mut next) = (0_u64, 0_usize);
    for list in LISTS.into_iter().filter(|list| *list >= k) {
        while next < found.len() - 1 && next < list as usize {
            sum += u64::from(found[next]);
            next += 1;
        }
        let recall = recall_of(sum);
        // On a plateau the next candidates lie on pages that are read already; longer lists may rise again.
        if points.last().is_none_or(|p| recall > p.recall) {
            points.push(ClusterPoint { probes, search_list: list, recall });
        }
    }
    points
}

/// What a calibration run reads.
struct Measured<'a> {
    cluster: &'a Cluster,
    trial: &'a Trial,
    places: &'a HashMap<u32, u32>,
}

impl Measured<'_> {
    /// Where queries stop that scan so many groups on average; `None` where nothing tells how far groups are, or all are scanned.
    fn pruned(&self, work: &Work<'_>, probes: u32) -> Result<Option<Pruned>, IndexError> {
        let centroids = &self.cluster.centroids;
        if !centroids.tells_far() || probes as usize >= centroids.groups() {
            return Ok(None);
        }
        let start = || Ok((Farness::new(probes as usize), Scratch::default()));
        let parts = self.trial.each(work.threads, work.progress, start, |query, (farness, scratch)| {
            let params = params(1, probes, farness.scope().prune);
            scratch.count_far(self.cluster, self.trial.queries.row(query), &params, farness);
            Ok(())
        })?;
        let mut total = Farness::new(probes as usize);
        parts.iter().for_each(|(farness, _)| total.join(farness));
        Ok(Some(total.pruned()))
    }

    fn run(&self, work: &Work<'_>, probes: u32, prune: f32) -> Result<Histogram, IndexError> {
        let k = &self.trial.k;
        let longest = LISTS.last().copied().unwrap_or(1) as usize;
        let params = params(longest + 1, probes, prune);
        let start = || Ok((Histogram::empty(k), Scratch::default(), Ranks::default()));
        let parts =
            self.trial.each(work.threads, work.progress, start, |query, (found, scratch, ranks)| {
                self.measure(query, &params, scratch, ranks, found);
                Ok(())
            })?;
        let mut total = Histogram::empty(k);
        parts.iter().for_each(|(found, ..)| total.add(found));
        Ok(total)
    }

    fn measure(
        &self,
        query: usize,
        params: &SearchParams,
        scratch: &mut Scratch,
        ranks: &mut Ranks,
        histogram: &mut Histogram,
    ) {
        let longest = LISTS.last().copied().unwrap_or(1) as usize;
        let own = self.trial.own.as_ref().map(|own| own[query]);
        scratch.scan(self.cluster, self.trial.queries.row(query), params);
        let own_place = own.and_then(|id| self.places.get(&id).copied());
        let others = scratch.candidates().iter().filter(|hit| Some(hit.id) != own_place).take(longest);
        ranks.pages.clear();
        ranks.places.clear();
        for (hit, rank) in others.zip(0..) {
            ranks.pages.entry(self.cluster.pages.layout.page_of(hit.id)).or_insert(rank);
            ranks.places.insert(hit.id, rank);
        }
        for (counted, id) in self.trial.neighbors(query).enumerate() {
            let place = self.places.get(&id);
            let page = place.and_then(|place| ranks.pages.get(&self.cluster.pages.layout.page_of(*place)));
            let alone = place.and_then(|place| ranks.places.get(place));
            let at = |rank: Option<&u32>| rank.map_or(longest, |rank| *rank as usize);
            let lists = histogram.first_found.iter_mut().zip(&mut histogram.first_named);
            for (_, (found, named)) in self.trial.k.iter().zip(lists).filter(|(k, _)| counted < **k as usize)
            {
                found[at(page)] += 1;
                named[at(alone)] += 1;
            }
        }
    }
}

/// A search of so many candidates and groups.
fn params(search_list: usize, probes: u32, prune: f32) -> SearchParams {
    SearchParams {
        k: 1,
        search_list,
        probes: probes as usize,
        prune,
        beam_width: 1,
        mode: SearchMode::Batched,
        timed: false,
    }
}

/// The ranks of a query's candidates.
#[derive(Default)]
struct Ranks {
    /// Of the best on each page.
    pages: HashMap<u32, u32>,
    /// By place.
    places: HashMap<u32, u32>,
}
