//! Calibration: measures the recall of every pair of probes and candidate list on this index.
//!
//! A scan gives the pages that each length of the candidate list would read. So one scan for each query and
//! number of probes measures all lists at once, without reading pages. It measures both kinds of searches: on
//! tiers that read whole pages, and in memory, where candidates are read alone. Vectors of the data serve as
//! queries, and each is left out of its own answer. They need not be held out of the index, as for a graph,
//! because one vector hardly changes a group.

use super::build::Work;
use super::centroids::scope::{self, DistanceRatioCounts, MeasuredPrune};
use super::open::load_for_scan;
use super::search::{Cluster, ClusterScratch};
use super::section::{ClusterEntry, ShorterCodes};
use super::shorter;
use crate::calibrate::Curve;
use crate::calibrate::probed::ProbedPoint;
use crate::calibrate::trial::{StandIns, Trial, climb};
use crate::error::IndexError;
use crate::format::appender::{ReadBack, Written};
use crate::format::manifest::Manifest;
use crate::partition::journal::ORDER_NAME;
use crate::query::{SearchMode, SearchParams};
use bathyal_kernels::Neighbor;
use std::collections::{HashMap, HashSet};

/// Numbers of groups that are measured.
const MEASURED_PROBES: [u32; 20] =
    [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288];
/// Lengths of the candidate list that are measured.
const MEASURED_LISTS: [u32; 30] = [
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 23, 26, 30, 35, 40, 50, 60, 80, 100, 130, 160, 200, 260, 320,
    400, 600, 800, 1200,
];
/// Recall of the full codes up to which numbers of probes are measured with shorter codes.
const SHORTER_RECALL: f32 = 0.996;
/// With shorter codes, one in `SHORTER_QUERY_STEP` queries is measured if there are [`MANY_QUERIES`] or more.
const SHORTER_QUERY_STEP: usize = 2;
/// Number of queries from which on only some are measured with shorter codes.
const MANY_QUERIES: usize = 500;
/// Words of the bit set of a query's pages. With a hundred neighbours on a page each, there are 40 bits for
/// each page.
const PAGE_WORDS: usize = 64;

/// Counts of true neighbours by the shortest candidate list that finds them.
struct ListHistogram {
    /// For each counter of the trial: neighbours by the rank of the best candidate on their page. The last
    /// count is of those not found.
    by_page_rank: Vec<Vec<u32>>,
    /// For each counter: neighbours by their own rank. The last count is of those not found.
    by_own_rank: Vec<Vec<u32>>,
}

impl ListHistogram {
    fn empty(counters: usize) -> ListHistogram {
        let longest = MEASURED_LISTS.last().copied().unwrap_or(1) as usize;
        let by_page_rank: Vec<Vec<u32>> = vec![vec![0; longest + 1]; counters];
        ListHistogram { by_own_rank: by_page_rank.clone(), by_page_rank }
    }

    fn add(&mut self, other: &ListHistogram) {
        let others = other.by_page_rank.iter().chain(&other.by_own_rank);
        for (sum, part) in self.by_page_rank.iter_mut().chain(&mut self.by_own_rank).zip(others) {
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
}

/// Measures the index of `work`, whose manifest has not been written yet. Sets in `entry` the curves of
/// searches that read pages, of searches that read candidates alone, and of shorter codes, and the prunes.
/// `order` is the file of ids by place.
pub(crate) fn calibrate(
    work: &Work<'_>,
    manifest: &Manifest,
    entry: &mut ClusterEntry,
    order: Written,
) -> Result<(), IndexError> {
    let Some(trial) = Trial::prepare(work.data, work.options, StandIns::Own, work.progress)? else {
        return Ok(());
    };
    let places = find_places(work, order, trial.all_ids().collect())?;
    let code_bytes = entry.codes.code_bytes;
    let cluster = load_for_scan(work.directory, manifest, entry.clone(), code_bytes, work.progress)?;
    let measurement = ClusterMeasurement { cluster: &cluster, trial: &trial, places: &places, query_step: 1 };
    let mut measured = MeasuredCurves { pages: trial.curves(), lone: trial.curves() };
    let mut prunes: Vec<MeasuredPrune> = Vec::new();
    climb(&MEASURED_PROBES, cluster.centroids.groups() as u32, work.progress, |probes| {
        prunes.extend(measurement.find_prune(work, probes)?);
        measurement.add(work, probes, scope::prune_of(&prunes, probes as usize), &mut measured)
    })?;
    entry.prunes = prunes;
    let (curves, lone_curves) = measured.without_empty_curves();
    (entry.calibration, entry.lone_curves) = (trial.calibration(curves), lone_curves);
    let lengths = shorter::lengths(code_bytes).into_iter();
    let lengths: Vec<u32> = lengths.filter(|n| shorter::codec(&cluster.codec, *n).is_ok()).collect();
    drop(cluster);
    let shorter_probes = probes_for_shorter_codes(&entry.calibration.curves);
    if lengths.is_empty() || shorter_probes.is_empty() {
        return Ok(());
    }
    work.progress.stage("calibrating shorter codes", (lengths.len() * shorter_probes.len()) as u64);
    for (at, code_bytes) in lengths.into_iter().enumerate() {
        let cluster = load_for_scan(work.directory, manifest, entry.clone(), code_bytes, work.progress)?;
        let query_step = if trial.count() < MANY_QUERIES { 1 } else { SHORTER_QUERY_STEP };
        let measurement =
            ClusterMeasurement { cluster: &cluster, trial: &trial, places: &places, query_step };
        let mut measured = MeasuredCurves { pages: trial.curves(), lone: trial.curves() };
        for (step, probes) in shorter_probes.iter().enumerate() {
            measurement.add(
                work,
                *probes,
                scope::prune_of(&entry.prunes, *probes as usize),
                &mut measured,
            )?;
            work.progress.advance((at * shorter_probes.len() + step + 1) as u64);
        }
        let (curves, _) = measured.without_empty_curves();
        if !curves.is_empty() {
            entry.shorter.push(ShorterCodes { code_bytes, curves });
        }
    }
    Ok(())
}

/// Returns the numbers of probes that are measured with shorter codes: every second one of those that the
/// full codes, with the curves `curves`, needed. The groups that hold the neighbours do not depend on the
/// codes.
fn probes_for_shorter_codes(curves: &[Curve<ProbedPoint>]) -> Vec<u32> {
    let Some(curve) = curves.iter().find(|curve| curve.k == 10).or(curves.first()) else { return Vec::new() };
    let series: Vec<&[ProbedPoint]> = curve.points.chunk_by(|a, b| a.probes == b.probes).collect();
    let best = |points: &&[ProbedPoint]| points.last().map_or(0.0, |point| point.recall);
    let enough = series.iter().position(|points| best(points) >= SHORTER_RECALL);
    let needed = &series[..enough.map_or(series.len(), |at| at + 1)];
    let mut probes: Vec<u32> = needed.iter().rev().step_by(2).map(|points| points[0].probes).collect();
    probes.reverse();
    probes
}

/// The measured curves.
struct MeasuredCurves {
    /// Curves of searches that read pages.
    pages: Vec<Curve<ProbedPoint>>,
    /// Curves of searches that read candidates alone.
    lone: Vec<Curve<ProbedPoint>>,
}

impl MeasuredCurves {
    /// Returns the curves of pages and of lone candidates that have points. A curve has none if equal vectors
    /// keep the neighbours out of every list.
    fn without_empty_curves(mut self) -> (Vec<Curve<ProbedPoint>>, Vec<Curve<ProbedPoint>>) {
        self.pages.retain(|curve| !curve.points.is_empty());
        self.lone.retain(|curve| !curve.points.is_empty());
        (self.pages, self.lone)
    }
}

/// Returns the places of the vectors `wanted`, by id. Reads the whole file of ids by place.
fn find_places(
    work: &Work<'_>,
    order: Written,
    wanted: HashSet<u32>,
) -> Result<HashMap<u32, u32>, IndexError> {
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

/// Orders candidates so that for each length of [`MEASURED_LISTS`], the best candidates come first. Curves
/// need no finer order, and sorting takes longer than scanning the codes.
fn order_by_lists(mut candidates: &mut [Neighbor]) {
    for list in MEASURED_LISTS.into_iter().rev().map(|list| list as usize) {
        if list < candidates.len() {
            candidates.select_nth_unstable(list);
            candidates = &mut candidates[..list];
        }
    }
}

/// Returns the points of one number of probes: the recall of each length of the list that raises it. `counts`
/// are neighbours by rank for each counter, and `recall_of` returns the recall for sums of them.
fn points(
    counts: &[Vec<u32>],
    k: u32,
    probes: u32,
    recall_of: impl Fn(&dyn Fn(usize) -> u64) -> f32,
) -> Vec<ProbedPoint> {
    let mut points: Vec<ProbedPoint> = Vec::new();
    let (mut sums, mut next) = (vec![0_u64; counts.len()], 0_usize);
    for list in MEASURED_LISTS.into_iter().filter(|list| *list >= k) {
        let end = counts.first().map_or(0, |counts| counts.len() - 1).min(list as usize);
        for (sum, counts) in sums.iter_mut().zip(counts) {
            *sum += counts[next..end].iter().map(|count| u64::from(*count)).sum::<u64>();
        }
        next = end;
        let recall = recall_of(&|counter| sums[counter]);
        // On a plateau, the next candidates are on pages that are read already. Longer lists may raise the
        // recall again.
        if points.last().is_none_or(|p| recall > p.recall) {
            points.push(ProbedPoint { probes, search_list: list, recall, ratio: None });
        }
    }
    points
}

/// A measurement of an index, with full or shorter codes.
struct ClusterMeasurement<'a> {
    cluster: &'a Cluster,
    trial: &'a Trial,
    /// The places of the queries and of their true neighbours, by id.
    places: &'a HashMap<u32, u32>,
    /// Every `query_step`-th query is measured.
    query_step: usize,
}

impl ClusterMeasurement<'_> {
    /// Adds the points of one number of probes to `measured`. Returns the best recall of the points for k =
    /// 10, as a share of the recall that can be reached.
    fn add(
        &self,
        work: &Work<'_>,
        probes: u32,
        prune: f32,
        measured: &mut MeasuredCurves,
    ) -> Result<f32, IndexError> {
        let histogram = self.run(work, probes, prune)?;
        let (mut best, is_only) = (0.0_f32, measured.pages.len() == 1);
        for (at, (pages, lone)) in measured.pages.iter_mut().zip(&mut measured.lone).enumerate() {
            let recall =
                |found: &dyn Fn(usize) -> u64| self.trial.recall_of_some(at, self.query_step, found).min(1.0);
            let page_points = points(&histogram.by_page_rank, pages.k, probes, recall);
            if pages.k == 10 || is_only {
                best = page_points.last().map_or(0.0, |point| point.recall) / self.trial.left(at);
            }
            pages.points.extend(page_points);
            lone.points.extend(points(&histogram.by_own_rank, lone.k, probes, recall));
        }
        Ok(best)
    }

    /// Returns the prune at which queries scan `probes` groups on average. `None` if distances of groups are
    /// unknown, or if all groups are scanned.
    fn find_prune(&self, work: &Work<'_>, probes: u32) -> Result<Option<MeasuredPrune>, IndexError> {
        let centroids = &self.cluster.centroids;
        if !centroids.has_distances() || probes as usize >= centroids.groups() {
            return Ok(None);
        }
        let start = || Ok((DistanceRatioCounts::new(probes as usize), ClusterScratch::default()));
        let parts =
            self.trial.each_query(work.threads, work.progress, start, |query, (counts, scratch)| {
                let params = params(1, probes, counts.scope().prune);
                scratch.count_distance_ratios(self.cluster, self.trial.query(query), &params, counts);
                Ok(())
            })?;
        let mut total = DistanceRatioCounts::new(probes as usize);
        parts.iter().for_each(|(counts, _)| total.join(counts));
        Ok(Some(total.prune()))
    }

    /// Scans for all measured queries on all threads.
    fn run(&self, work: &Work<'_>, probes: u32, prune: f32) -> Result<ListHistogram, IndexError> {
        let counters = self.trial.counters();
        let longest = MEASURED_LISTS.last().copied().unwrap_or(1) as usize;
        let params = params(longest + self.trial.most_absent(), probes, prune);
        let start =
            || Ok((ListHistogram::empty(counters), ClusterScratch::default(), NeighborRanks::default()));
        let parts = self.trial.each_query(
            work.threads,
            work.progress,
            start,
            |query, (histogram, scratch, ranks)| {
                if query % self.query_step == 0 {
                    self.measure(query, &params, scratch, ranks, histogram);
                }
                Ok(())
            },
        )?;
        let mut total = ListHistogram::empty(counters);
        parts.iter().for_each(|(histogram, ..)| total.add(histogram));
        Ok(total)
    }

    /// Scans for one query, and adds the ranks of its true neighbours to `histogram`.
    fn measure(
        &self,
        query: usize,
        params: &SearchParams,
        scratch: &mut ClusterScratch,
        ranks: &mut NeighborRanks,
        histogram: &mut ListHistogram,
    ) {
        let longest = MEASURED_LISTS.last().copied().unwrap_or(1) as usize;
        scratch.scan(self.cluster, self.trial.query(query), params);
        let absent = self.trial.absent(query).iter().filter_map(|id| self.places.get(id).copied());
        let absent: Vec<u32> = absent.collect();
        let layout = &self.cluster.pages.layout;
        ranks.begin(self.trial.neighbors(query).map(|id| {
            let place = self.places.get(&id).copied();
            TrueNeighbor {
                page: place.map(|place| layout.page_of(place)),
                place,
                page_rank: longest,
                own_rank: longest,
            }
        }));
        let candidates = scratch.candidates();
        candidates.retain(|hit| !absent.contains(&hit.id));
        order_by_lists(candidates);
        for (rank, hit) in candidates.iter().take(longest).enumerate() {
            ranks.add_candidate(layout.page_of(hit.id), hit.id, rank);
        }
        for (number, neighbor) in ranks.neighbors.iter().enumerate() {
            for counter in self.trial.counters_of(query, number) {
                histogram.by_page_rank[counter][neighbor.page_rank] += 1;
                histogram.by_own_rank[counter][neighbor.own_rank] += 1;
            }
        }
    }
}

/// Returns the parameters of a search with these numbers of candidates and groups.
fn params(search_list: usize, probes: u32, prune: f32) -> SearchParams {
    SearchParams {
        k: 1,
        search_list,
        probes: probes as usize,
        prune,
        beam_width: 1,
        multi_probe: 0,
        mode: SearchMode::Batched,
        timed: false,
        early: None,
    }
}

/// A true neighbour of a query. Ranks are as precise as [`order_by_lists`].
struct TrueNeighbor {
    page: Option<u32>,
    place: Option<u32>,
    /// Rank of the best candidate on its page.
    page_rank: usize,
    /// Rank of the neighbour itself.
    own_rank: usize,
}

/// The true neighbours of a query, nearest first, with their ranks.
#[derive(Default)]
struct NeighborRanks {
    neighbors: Vec<TrueNeighbor>,
    /// The page of each neighbour, and the neighbour's number, in rising order.
    pages: Vec<(u32, usize)>,
    /// A bit set of these pages, by the remainder of their numbers. It rules out most candidates.
    bits: Vec<u64>,
}

/// Returns the number of the word with the bit of a page, and the bit.
fn page_bit(page: u32) -> (usize, u64) {
    ((page / 64) as usize % PAGE_WORDS, 1 << (page % 64))
}

impl NeighborRanks {
    fn begin(&mut self, neighbors: impl Iterator<Item = TrueNeighbor>) {
        self.neighbors.clear();
        self.neighbors.extend(neighbors);
        self.pages.clear();
        let numbered = self.neighbors.iter().enumerate();
        self.pages.extend(numbered.filter_map(|(at, neighbor)| Some((neighbor.page?, at))));
        self.pages.sort_unstable();
        self.bits.clear();
        self.bits.resize(PAGE_WORDS, 0);
        for (page, _) in &self.pages {
            let (word, bit) = page_bit(*page);
            self.bits[word] |= bit;
        }
    }

    /// Updates the ranks of the neighbours on `page` with the candidate of rank `rank`.
    fn add_candidate(&mut self, page: u32, place: u32, rank: usize) {
        let (word, bit) = page_bit(page);
        if self.bits[word] & bit == 0 {
            return;
        }
        let first = self.pages.partition_point(|(other, _)| *other < page);
        for (_, at) in self.pages[first..].iter().take_while(|(other, _)| *other == page) {
            let neighbor = &mut self.neighbors[*at];
            neighbor.page_rank = neighbor.page_rank.min(rank);
            if neighbor.place == Some(place) {
                neighbor.own_rank = rank;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn the_best_candidates_of_each_list_come_first() {
        let mut random = StdRng::seed_from_u64(1);
        for count in [0_u32, 1, 2, 7, 100, 801, 1200, 1201, 1300] {
            // There are few different distances, so many are equal.
            let distance = |_| {
                if random.random_range(0..9) == 0 {
                    f32::INFINITY
                } else {
                    random.random_range(0..200) as f32
                }
            };
            let distances: Vec<f32> = (0..count).map(distance).collect();
            let candidate = |id: u32| Neighbor { distance: distances[id as usize], id };
            let mut candidates: Vec<Neighbor> = (0..count).rev().map(candidate).collect();
            let mut sorted = candidates.clone();
            sorted.sort_unstable();
            order_by_lists(&mut candidates);
            for list in MEASURED_LISTS.into_iter().map(|list| (list as usize).min(sorted.len())) {
                let mut first = candidates[..list].to_vec();
                first.sort_unstable();
                assert!(first == sorted[..list], "the best {list} of {count}");
            }
        }
    }

    #[test]
    fn pages_with_the_same_bit_are_distinguished() {
        let neighbor =
            |page, place| TrueNeighbor { page: Some(page), place: Some(place), page_rank: 9, own_rank: 9 };
        let mut ranks = NeighborRanks::default();
        let same = 5 + 64 * PAGE_WORDS as u32;
        assert_eq!(page_bit(5), page_bit(same));
        ranks.begin([neighbor(5, 50), neighbor(70, 700), neighbor(5, 51)].into_iter());
        let candidates =
            [(6, 60, 0), (same, 50, 1), (5, 59, 2), (70, 700, 3), (5, 51, 4), (5, 50, 5), (70, 701, 6)];
        candidates.into_iter().for_each(|(page, place, rank)| ranks.add_candidate(page, place, rank));
        let found = |ranks: &NeighborRanks| {
            ranks.neighbors.iter().map(|n| (n.page_rank, n.own_rank)).collect::<Vec<_>>()
        };
        assert_eq!(found(&ranks), [(2, 5), (3, 3), (2, 4)]);
        // `begin` removes the neighbours of the previous query.
        ranks.begin([neighbor(same, 1)].into_iter());
        let candidates = [(5, 50, 0), (70, 700, 1)];
        candidates.into_iter().for_each(|(page, place, rank)| ranks.add_candidate(page, place, rank));
        assert_eq!(found(&ranks), [(9, 9)]);
    }
}
