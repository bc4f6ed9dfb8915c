//! Calibration: what recall every pair of probes and candidate list reaches on this very index.
//!
//! A scan says which pages each length of the candidate list would read, so one scan a query and number of probes
//! measures all lists at once, and no page is read. Vectors of the data stand in for queries, each absent from its
//! own answer; unlike a graph's, the groups hardly know a single vector of theirs.

use super::build::{ORDER_NAME, Work};
use super::search::{Cluster, Scratch};
use crate::error::IndexError;
use crate::format::manifest::{Calibration, CalibrationCurve, CalibrationPoint, Manifest};
use crate::index::family::load_cluster_for_scan;
use crate::progress::Progress;
use crate::query::{SearchMode, SearchParams};
use crate::vamana::calibrate::{CALIBRATED_K, LEAST_VECTORS, queries, sample_ids, truth};
use crate::vectors::VectorFile;
use bathyal_tier::TierError;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufRead;
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

/// What the parts of a search cost, up to a common factor: a group scanned, a candidate read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EffortCost {
    probe: f64,
    candidate: f64,
}

impl EffortCost {
    /// Microseconds, about: a group of 96 codes takes 0.1 to scan and 0.05 to find; a page takes 5 to 10 of a device's
    /// time and a tenth of that in memory.
    pub(crate) fn of(addressable: bool) -> EffortCost {
        EffortCost { probe: 0.15, candidate: if addressable { 0.3 } else { 8.0 } }
    }
}

/// How often a length of the list first contained a true neighbour's page.
struct Histogram {
    /// For each k: counts by list length, and those never found at the end.
    first_found: Vec<Vec<u32>>,
}

/// Measures the index of `work`, whose manifest has not been written yet.
pub(crate) fn calibrate(work: &Work<'_>, manifest: &Manifest) -> Result<Calibration, IndexError> {
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
    let places = places(work, truth.iter().chain(&ids).copied().collect())?;
    let cluster = load_cluster_for_scan(directory, manifest)?;
    let mut curves: Vec<CalibrationCurve> =
        curves_k.iter().map(|k| CalibrationCurve { k: *k, points: Vec::new() }).collect();
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
        progress.advance(step as u64 + 1);
        if best >= ENOUGH_RECALL || (best > 0.9 && best - last < LEAST_GAIN) {
            break;
        }
        last = best;
    }
    progress.advance(ladder.len() as u64);
    let source = if own { "vectors of the data" } else { "given queries" };
    Ok(Calibration { queries: queries.count() as u32, source: source.into(), curves })
}

/// The places of some vectors, found by going through the order of all.
fn places(work: &Work<'_>, wanted: HashSet<u32>) -> Result<HashMap<u32, u32>, IndexError> {
    let path = work.directory.join(ORDER_NAME);
    let failed = |e| TierError::io("read", &path, e);
    let mut file = std::io::BufReader::with_capacity(1 << 20, File::open(&path).map_err(failed)?);
    let mut places = HashMap::with_capacity(wanted.len());
    let mut place = 0;
    loop {
        let bytes = file.fill_buf().map_err(failed)?;
        let ids = bytes.as_chunks::<4>().0;
        if ids.is_empty() {
            return Ok(places);
        }
        let read = 4 * ids.len();
        for id in ids.iter().map(|id| u32::from_le_bytes(*id)) {
            if wanted.contains(&id) {
                places.insert(id, place);
            }
            place += 1;
        }
        file.consume(read);
    }
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
        let longest = LISTS.last().copied().unwrap_or(1) as usize;
        let empty = || Histogram { first_found: k.iter().map(|_| vec![0; longest + 1]).collect() };
        let total = Mutex::new(empty());
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let (mut own, mut scratch, mut pages) = (empty(), Scratch::new(), HashMap::new());
                    loop {
                        let query = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if query >= self.queries.count() || progress.cancelled() {
                            break;
                        }
                        self.measure(query, probes, k, longest, &mut scratch, &mut pages, &mut own);
                    }
                    if let Ok(mut total) = total.lock() {
                        for (sum, part) in total.first_found.iter_mut().zip(&own.first_found) {
                            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
                        }
                    }
                });
            }
        });
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        total.into_inner().map_err(|_| IndexError::Internal("a calibration thread panicked".into()))
    }

    #[allow(clippy::too_many_arguments)]
    fn measure(
        &self,
        query: usize,
        probes: u32,
        k: &[u32],
        longest: usize,
        scratch: &mut Scratch,
        pages: &mut HashMap<u32, u32>,
        histogram: &mut Histogram,
    ) {
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
        pages.clear();
        let own_place = own.and_then(|id| self.places.get(&id).copied());
        let others = scratch.candidates().iter().filter(|hit| Some(hit.id) != own_place).take(longest);
        for (rank, hit) in others.enumerate() {
            pages.entry(self.cluster.layout.page_of(hit.id)).or_insert(rank as u32);
        }
        let truth = &self.truth[query * self.wide..(query + 1) * self.wide];
        for (counted, id) in truth.iter().filter(|id| Some(**id) != own).enumerate() {
            let page = self.places.get(id).map(|place| self.cluster.layout.page_of(*place));
            let rank = page.and_then(|page| pages.get(&page)).map_or(longest, |rank| *rank as usize);
            for (k, found) in k.iter().zip(&mut histogram.first_found) {
                if counted < *k as usize {
                    found[rank] += 1;
                }
            }
        }
    }
}

/// The cheapest candidate list and number of probes for a recall, and whether the calibration reaches it.
pub(crate) fn effort(
    calibration: &Calibration,
    k: usize,
    recall: f32,
    cost: EffortCost,
) -> Option<(u32, u32, bool)> {
    let curves = &calibration.curves;
    let curve = curves.iter().find(|c| c.k as usize >= k).or(curves.last())?;
    let stretch = (k as f64 / f64::from(curve.k)).max(1.0);
    let mut best: Option<(f64, u32, u32)> = None;
    for points in curve.points.chunk_by(|a, b| a.probes == b.probes) {
        let Some(list) = list_for(points, recall) else { continue };
        let probes = points[0].probes;
        let total = f64::from(probes) * cost.probe + list * cost.candidate;
        if best.is_none_or(|(least, ..)| total < least) {
            best = Some((total, (list * stretch).ceil() as u32, (f64::from(probes) * stretch).ceil() as u32));
        }
    }
    let reached = best.map(|(_, list, probes)| (list, probes, true));
    let most = || curve.points.iter().max_by(|a, b| a.recall.total_cmp(&b.recall));
    reached.or_else(|| most().map(|p| ((f64::from(p.search_list) * stretch).ceil() as u32, p.probes, false)))
}

/// The length of the list at which `points`, of one number of probes, reach `recall`.
fn list_for(points: &[CalibrationPoint], recall: f32) -> Option<f64> {
    let at = points.iter().position(|point| point.recall >= recall)?;
    let above = points[at];
    let Some(below) = at.checked_sub(1).map(|at| points[at]) else {
        return Some(f64::from(above.search_list));
    };
    let share = f64::from((recall - below.recall) / (above.recall - below.recall));
    Some(f64::from(below.search_list) + share * f64::from(above.search_list - below.search_list))
}

/// Groups that are scanned for a candidate list when neither probes nor a recall were named: enough that the list,
/// not the probes, limits the recall.
pub(crate) fn probes_for(search_list: u32, groups: u32) -> u32 {
    search_list.saturating_mul(16).clamp(64, groups.max(64))
}
