//! Calibration: what recall every pair of probes and candidate list reaches on this very index.
//!
//! A scan says which pages each length of the candidate list would read, so one scan a query and number of probes
//! measures all lists at once, and no page is read; and it measures them twice, for tiers that read whole pages and for
//! memory, where candidates are read alone. Vectors of the data stand in for queries, each absent from its
//! own answer; unlike a graph's, the groups hardly know a single vector of theirs.

use super::build::{ORDER_NAME, Work};
use super::search::{Cluster, Scratch};
use crate::error::IndexError;
use crate::families::graph::calibrate::{CALIBRATED_K, LEAST_VECTORS, queries, sample_ids, truth};
use crate::format::appender::{ReadBack, Written};
use crate::format::manifest::{Calibration, CalibrationCurve, CalibrationPoint, Manifest};
use crate::open::family::load_cluster_for_scan;
use crate::query::{SearchMode, SearchParams};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// Numbers of groups that are tried.
const PROBES: [u32; 20] =
    [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288];
/// Lengths of the candidate list that are recorded.
const LISTS: [u32; 30] = [
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 23, 26, 30, 35, 40, 50, 60, 80, 100, 130, 160, 200, 260, 320,
    400, 600, 800, 1200,
];
/// Beyond this recall more effort is noise.
const ENOUGH_RECALL: f32 = 0.9985;
/// A number of probes that gains less than this over the one before is the last.
const LEAST_GAIN: f32 = 0.0002;

/// Microseconds that a group takes to be found, about, in memory.
const FIND_GROUP_US: f64 = 0.08;
/// Microseconds that a byte of code takes to be scanned, about: the codes come from DRAM.
const SCAN_BYTE_US: f64 = 4.5e-5;
/// Microseconds that a vector takes which is read alone, about.
const LONE_VECTOR_US: f64 = 0.05;
/// Numbers of probes that are tried between two that were measured, where both lists and probes are cheap.
const BETWEEN: u32 = 4;

/// What the parts of a search cost, up to a common factor: a group scanned, a candidate read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EffortCost {
    probe: f64,
    candidate: f64,
    /// Whether candidates are read alone.
    lone: bool,
}

impl EffortCost {
    /// Where pages are read. Microseconds, about: a group of 96 codes takes 0.1 to scan and 0.05 to find; a page takes
    /// 5 to 10 of a device's time and a tenth of that in memory.
    pub(crate) fn of_pages(addressable: bool) -> EffortCost {
        EffortCost { probe: 0.15, candidate: if addressable { 0.3 } else { 8.0 }, lone: false }
    }

    /// Where candidates are read alone: of groups of so many bytes of codes.
    pub(crate) fn of_vectors(group_codes: u64) -> EffortCost {
        let probe = FIND_GROUP_US + SCAN_BYTE_US * group_codes as f64;
        EffortCost { probe, candidate: LONE_VECTOR_US, lone: true }
    }

    fn total(&self, probes: f64, list: f64) -> f64 {
        probes * self.probe + list * self.candidate
    }
}

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

/// Measures the index of `work`, whose manifest has not been written yet.
pub(crate) fn calibrate(
    work: &Work<'_>,
    manifest: &Manifest,
    order: Written,
) -> Result<Calibration, IndexError> {
    let Work { data, options, progress, directory, .. } = *work;
    let own = options.calibration.is_none();
    if own && data.count() < LEAST_VECTORS {
        return Ok(Calibration::default());
    }
    let ids = if own { sample_ids(data.count(), options.seed) } else { Vec::new() };
    let Some((queries, ids)) = queries(data, &ids, options)? else { return Ok(Calibration::default()) };
    let present = data.count() - usize::from(own);
    let curves_k: Vec<u32> = CALIBRATED_K.into_iter().filter(|k| *k as usize <= present).collect();
    let Some(&largest_k) = curves_k.last() else { return Ok(Calibration::default()) };
    // One more than asked for, since a query that is in the data is its own nearest.
    let wide = (largest_k as usize + usize::from(own)).min(data.count());
    let truth = truth(data, &queries, &[], options, wide, progress)?;
    data.release();
    let places = places(work, order, truth.iter().chain(&ids).copied().collect())?;
    let cluster = load_cluster_for_scan(directory, manifest)?;
    let mut curves: Vec<CalibrationCurve> =
        curves_k.iter().map(|k| CalibrationCurve { k: *k, points: Vec::new() }).collect();
    let mut lone_curves = curves.clone();
    let groups = cluster.centroids.groups() as u32;
    let mut ladder: Vec<u32> = PROBES.into_iter().filter(|probes| *probes < groups).collect();
    ladder.push(groups);
    progress.stage("calibrating", ladder.len() as u64);
    let measured = Measured {
        cluster: &cluster,
        queries: &queries,
        own: own.then_some(&ids),
        truth: &truth,
        wide,
        places: &places,
    };
    let mut last = 0.0_f32;
    for (step, probes) in ladder.iter().enumerate() {
        let histogram = measured.run(*probes, &curves_k, options.thread_count(), progress)?;
        let mut best = 0.0_f32;
        for (curve, found) in curves.iter_mut().zip(&histogram.first_found) {
            let points = points(found, curve.k, *probes, queries.count());
            if curve.k == 10 || curves_k.len() == 1 {
                best = points.last().map_or(0.0, |p| p.recall);
            }
            curve.points.extend(points);
        }
        for (curve, found) in lone_curves.iter_mut().zip(&histogram.first_named) {
            curve.points.extend(points(found, curve.k, *probes, queries.count()));
        }
        progress.advance(step as u64 + 1);
        if best >= ENOUGH_RECALL || (best > 0.9 && best - last < LEAST_GAIN) {
            break;
        }
        last = best;
    }
    progress.advance(ladder.len() as u64);
    let source = if own { "vectors of the data" } else { "given queries" };
    Ok(Calibration { queries: queries.count() as u32, source: source.into(), curves, lone_curves })
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
fn points(found: &[u32], k: u32, probes: u32, queries: usize) -> Vec<CalibrationPoint> {
    let mut points: Vec<CalibrationPoint> = Vec::new();
    let (mut sum, mut next) = (0_u64, 0_usize);
    for list in LISTS.into_iter().filter(|list| *list >= k) {
        while next < found.len() - 1 && next < list as usize {
            sum += u64::from(found[next]);
            next += 1;
        }
        let recall = (sum as f64 / (queries as f64 * f64::from(k))) as f32;
        // On a plateau the next candidates lie on pages that are read already; longer lists may rise again.
        if points.last().is_none_or(|p| recall > p.recall) {
            points.push(CalibrationPoint { search_list: list, probes, recall, prune: 0.0, lists: 0.0 });
        }
    }
    points
}

/// What a calibration run reads.
struct Measured<'a> {
    cluster: &'a Cluster,
    queries: &'a VectorFile,
    /// The queries' own ids, where they are vectors of the data.
    own: Option<&'a Vec<u32>>,
    truth: &'a [u32],
    /// Ids a query in `truth`.
    wide: usize,
    places: &'a HashMap<u32, u32>,
}

impl Measured<'_> {
    fn run(
        &self,
        probes: u32,
        k: &[u32],
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Histogram, IndexError> {
        let total = Mutex::new(Histogram::empty(k));
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let (mut own, mut scratch, mut ranks) =
                        (Histogram::empty(k), Scratch::new(), Ranks::default());
                    loop {
                        let query = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if query >= self.queries.count() || progress.cancelled() {
                            break;
                        }
                        self.measure(query, probes, k, &mut scratch, &mut ranks, &mut own);
                    }
                    if let Ok(mut total) = total.lock() {
                        total.add(&own);
                    }
                });
            }
        });
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        total.into_inner().map_err(|_| IndexError::Internal("a calibration thread panicked".into()))
    }

    fn measure(
        &self,
        query: usize,
        probes: u32,
        k: &[u32],
        scratch: &mut Scratch,
        ranks: &mut Ranks,
        histogram: &mut Histogram,
    ) {
        let longest = LISTS.last().copied().unwrap_or(1) as usize;
        let own = self.own.map(|own| own[query]);
        let params = SearchParams {
            k: 1,
            search_list: longest + 1,
            probes: probes as usize,
            prune: 0.0,
            beam_width: 1,
            mode: SearchMode::Batched,
            timed: false,
        };
        scratch.scan(self.cluster, self.queries.row(query), &params);
        let own_place = own.and_then(|id| self.places.get(&id).copied());
        let others = scratch.candidates().iter().filter(|hit| Some(hit.id) != own_place).take(longest);
        ranks.pages.clear();
        ranks.places.clear();
        for (hit, rank) in others.zip(0..) {
            ranks.pages.entry(self.cluster.layout.page_of(hit.id)).or_insert(rank);
            ranks.places.insert(hit.id, rank);
        }
        let truth = &self.truth[query * self.wide..(query + 1) * self.wide];
        for (counted, id) in truth.iter().filter(|id| Some(**id) != own).enumerate() {
            let place = self.places.get(id);
            let page = place.and_then(|place| ranks.pages.get(&self.cluster.layout.page_of(*place)));
            let alone = place.and_then(|place| ranks.places.get(place));
            let at = |rank: Option<&u32>| rank.map_or(longest, |rank| *rank as usize);
            let lists = histogram.first_found.iter_mut().zip(&mut histogram.first_named);
            for (_, (found, named)) in k.iter().zip(lists).filter(|(k, _)| counted < **k as usize) {
                found[at(page)] += 1;
                named[at(alone)] += 1;
            }
        }
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

/// The cheapest candidate list and number of probes for a recall, and whether the calibration reaches it.
pub(crate) fn effort(
    calibration: &Calibration,
    k: usize,
    recall: f32,
    cost: EffortCost,
) -> Option<(u32, u32, bool)> {
    let lone = cost.lone && !calibration.lone_curves.is_empty();
    let curves = if lone { &calibration.lone_curves } else { &calibration.curves };
    let curve = curves.iter().find(|c| c.k as usize >= k).or(curves.last())?;
    let stretch = (k as f64 / f64::from(curve.k)).max(1.0);
    let mut best: Option<(f64, u32, u32)> = None;
    let mut offer = |list: f64, probes: f64| {
        let total = cost.total(probes, list);
        if best.is_none_or(|(least, ..)| total < least) {
            best = Some((total, (list * stretch).ceil() as u32, (probes * stretch).ceil() as u32));
        }
    };
    let mut fewer: Option<&[CalibrationPoint]> = None;
    for points in curve.points.chunk_by(|a, b| a.probes == b.probes) {
        let probes = f64::from(points[0].probes);
        if let Some(list) = list_for(points, recall) {
            offer(list, probes);
        }
        // Probes that were not measured: where a candidate is a read, its number is what counts, and the last few
        // probes are not worth one more.
        if let Some(fewer) = fewer.filter(|_| lone) {
            let least = f64::from(fewer[0].probes);
            for step in 1..BETWEEN {
                let share = f64::from(step) / f64::from(BETWEEN);
                if let Some(list) = list_between(fewer, points, share, recall) {
                    offer(list, least * (probes / least).powf(share));
                }
            }
        }
        fewer = Some(points);
    }
    let reached = best.map(|(_, list, probes)| (list, probes, true));
    let most = || curve.points.iter().max_by(|a, b| a.recall.total_cmp(&b.recall));
    reached.or_else(|| most().map(|p| ((f64::from(p.search_list) * stretch).ceil() as u32, p.probes, false)))
}

/// The length of the list at which `points`, of one number of probes, reach `recall`.
fn list_for(points: &[CalibrationPoint], recall: f32) -> Option<f64> {
    first_list(points.iter().map(|point| (f64::from(point.search_list), f64::from(point.recall))), recall)
}

/// The same for a number of probes between those of `fewer` and of `more`. Recall rises ever less with the logarithm of
/// the probes, so the mean is no more than it will be.
fn list_between(
    fewer: &[CalibrationPoint],
    more: &[CalibrationPoint],
    share: f64,
    recall: f32,
) -> Option<f64> {
    let mean = |point: &CalibrationPoint| {
        let list = point.search_list;
        (f64::from(list), (1.0 - share) * recall_at(fewer, list) + share * f64::from(point.recall))
    };
    first_list(more.iter().map(mean), recall)
}

/// The recall of a list by `points`, which end where it no longer rises.
fn recall_at(points: &[CalibrationPoint], list: u32) -> f64 {
    let above = points.partition_point(|point| point.search_list < list);
    match (above.checked_sub(1).map(|below| points[below]), points.get(above)) {
        (_, Some(point)) if point.search_list == list => f64::from(point.recall),
        (Some(below), Some(above)) => {
            let share =
                f64::from(list - below.search_list) / f64::from(above.search_list - below.search_list);
            f64::from(below.recall) + share * f64::from(above.recall - below.recall)
        }
        (Some(below), None) => f64::from(below.recall),
        (None, _) => 0.0,
    }
}

/// Where recalls, by rising length of the list, first reach `recall`.
fn first_list(points: impl Iterator<Item = (f64, f64)>, recall: f32) -> Option<f64> {
    let recall = f64::from(recall);
    let mut below: Option<(f64, f64)> = None;
    for (list, reached) in points {
        if reached >= recall {
            return Some(match below {
                Some((shorter, least)) if reached > least => {
                    shorter + (recall - least) / (reached - least) * (list - shorter)
                }
                _ => list,
            });
        }
        below = Some((list, reached));
    }
    None
}

/// Groups that are scanned for a candidate list when neither probes nor a recall were named: enough that the list,
/// not the probes, limits the recall.
pub(crate) fn probes_for(search_list: u32, groups: u32) -> u32 {
    search_list.saturating_mul(16).clamp(64, groups.max(64))
}
