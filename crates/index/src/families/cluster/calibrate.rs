//! Calibration: what recall every pair of probes and candidate list reaches on this very index.
//!
//! A scan says which pages each length of the candidate list would read, so one scan a query and number of probes
//! measures all lists at once, and no page is read; and it measures them twice, for tiers that read whole pages and for
//! memory, where candidates are read alone. Vectors of the data stand in for queries, each absent from its
//! own answer; unlike a graph's, the groups hardly know a single vector of theirs.

use super::build::Work;
use super::open::load_for_scan;
use super::scope::{self, Farness, Pruned};
use super::search::{Cluster, Scratch};
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

/// Numbers of groups that are tried.
const PROBES: [u32; 20] =
    [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288];
/// Lengths of the candidate list that are recorded.
const LISTS: [u32; 30] = [
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 23, 26, 30, 35, 40, 50, 60, 80, 100, 130, 160, 200, 260, 320,
    400, 600, 800, 1200,
];
/// From this recall on, by the codes themselves, no more groups are measured with shorter ones.
const SHORTER_RECALL: f32 = 0.996;
/// Of many queries so few as one in this number are asked with shorter codes.
const SHORTER_QUERIES: usize = 2;
/// So many queries are many.
const MANY_QUERIES: usize = 500;
/// Words of bits that say which pages a query looks for: 40 bits for each page, where a hundred neighbours are on one each.
const PAGE_WORDS: usize = 64;

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

/// Measures the index of `work`, whose manifest has not been written yet, and notes in its section what was found: where
/// pages are read, where candidates are read alone, where queries stop, and what shorter codes would reach.
pub(crate) fn calibrate(
    work: &Work<'_>,
    manifest: &Manifest,
    entry: &mut ClusterEntry,
    order: Written,
) -> Result<(), IndexError> {
    let Some(trial) = Trial::prepare(work.data, work.options, StandIns::Own, work.progress)? else {
        return Ok(());
    };
    let own = trial.own.iter().flatten();
    let places = places(work, order, trial.truth.iter().chain(own).copied().collect())?;
    let code_bytes = entry.codes.code_bytes;
    let cluster = load_for_scan(work.directory, manifest, entry.clone(), code_bytes, work.progress)?;
    let measured = Measured { cluster: &cluster, trial: &trial, places: &places, every: 1 };
    let mut found = Found { pages: trial.curves(), lone: trial.curves() };
    let mut prunes: Vec<Pruned> = Vec::new();
    climb(&PROBES, cluster.centroids.groups() as u32, work.progress, |probes| {
        prunes.extend(measured.pruned(work, probes)?);
        measured.add(work, probes, scope::prune_of(&prunes, probes as usize), &mut found)
    })?;
    entry.prunes = prunes;
    let (curves, lone_curves) = found.settle();
    (entry.calibration, entry.lone_curves) = (trial.calibration(curves), lone_curves);
    let lengths = shorter::lengths(code_bytes).into_iter();
    let lengths: Vec<u32> = lengths.filter(|n| shorter::codec(&cluster.codec, *n).is_ok()).collect();
    drop(cluster);
    let ladder = shorter_ladder(&entry.calibration.curves);
    if lengths.is_empty() || ladder.is_empty() {
        return Ok(());
    }
    work.progress.stage("calibrating shorter codes", (lengths.len() * ladder.len()) as u64);
    for (at, code_bytes) in lengths.into_iter().enumerate() {
        let cluster = load_for_scan(work.directory, manifest, entry.clone(), code_bytes, work.progress)?;
        let every = if trial.queries.count() < MANY_QUERIES { 1 } else { SHORTER_QUERIES };
        let measured = Measured { cluster: &cluster, trial: &trial, places: &places, every };
        let mut found = Found { pages: trial.curves(), lone: trial.curves() };
        for (step, probes) in ladder.iter().enumerate() {
            measured.add(work, *probes, scope::prune_of(&entry.prunes, *probes as usize), &mut found)?;
            work.progress.advance((at * ladder.len() + step + 1) as u64);
        }
        let (curves, _) = found.settle();
        if !curves.is_empty() {
            entry.shorter.push(ShorterCodes { code_bytes, curves });
        }
    }
    Ok(())
}

/// The numbers of groups that shorter codes are measured with: every second of those that the codes themselves, whose `curves`
/// these are, needed. Which groups have the neighbours does not depend on the codes.
fn shorter_ladder(curves: &[Curve<ProbedPoint>]) -> Vec<u32> {
    let Some(curve) = curves.iter().find(|curve| curve.k == 10).or(curves.first()) else { return Vec::new() };
    let series: Vec<&[ProbedPoint]> = curve.points.chunk_by(|a, b| a.probes == b.probes).collect();
    let best = |points: &&[ProbedPoint]| points.last().map_or(0.0, |point| point.recall);
    let enough = series.iter().position(|points| best(points) >= SHORTER_RECALL);
    let needed = &series[..enough.map_or(series.len(), |at| at + 1)];
    let mut ladder: Vec<u32> = needed.iter().rev().step_by(2).map(|points| points[0].probes).collect();
    ladder.reverse();
    ladder
}

/// Curves of pages, and of candidates that are read alone.
struct Found {
    pages: Vec<Curve<ProbedPoint>>,
    lone: Vec<Curve<ProbedPoint>>,
}

impl Found {
    /// Leaves out curves without points: where equal vectors crowd a neighbour out of every list, there is nothing to read
    /// off.
    fn settle(mut self) -> (Vec<Curve<ProbedPoint>>, Vec<Curve<ProbedPoint>>) {
        self.pages.retain(|curve| !curve.points.is_empty());
        self.lone.retain(|curve| !curve.points.is_empty());
        (self.pages, self.lone)
    }
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

/// Orders candidates so that for every length of [`LISTS`] the best so many come first. Curves tell no more ranks apart, and to order
/// all of them takes longer than to scan the codes.
fn order_by_lists(mut candidates: &mut [Neighbor]) {
    for list in LISTS.into_iter().rev().map(|list| list as usize) {
        if list < candidates.len() {
            candidates.select_nth_unstable(list);
            candidates = &mut candidates[..list];
        }
    }
}

/// The recorded points of one number of probes: recall by list length, where it rises.
fn points(found: &[u32], k: u32, probes: u32, recall_of: impl Fn(u64) -> f32) -> Vec<ProbedPoint> {
    let mut points: Vec<ProbedPoint> = Vec::new();
    let (mut sum, mut next) = (0_u64, 0_usize);
    for list in LISTS.into_iter().filter(|list| *list >= k) {
        while next < found.len() - 1 && next < list as usize {
            sum += u64::from(found[next]);
            next += 1;
        }
        let recall = recall_of(sum);
        // On a plateau the next candidates lie on pages that are read already; longer lists may rise again.
        if points.last().is_none_or(|p| recall > p.recall) {
            points.push(ProbedPoint { probes, search_list: list, recall, ratio: None });
        }
    }
    points
}

/// What a calibration run reads.
struct Measured<'a> {
    cluster: &'a Cluster,
    trial: &'a Trial,
    places: &'a HashMap<u32, u32>,
    /// Of so many queries one is asked.
    every: usize,
}

impl Measured<'_> {
    /// Adds the points of one number of probes, and returns the best recall that they reach.
    fn add(&self, work: &Work<'_>, probes: u32, prune: f32, found: &mut Found) -> Result<f32, IndexError> {
        let histogram = self.run(work, probes, prune)?;
        let queries = self.trial.queries.count();
        let asked = queries as f32 / queries.div_ceil(self.every) as f32;
        let (mut best, only) = (0.0_f32, found.pages.len() == 1);
        let measured = histogram.first_found.iter().zip(&histogram.first_named);
        let both = found.pages.iter_mut().zip(&mut found.lone).zip(measured);
        for (at, ((curve, lone), (found, named))) in both.enumerate() {
            let recall = |sum| (asked * self.trial.recall(at, sum)).min(1.0);
            let points_of_pages = points(found, curve.k, probes, recall);
            if curve.k == 10 || only {
                best = points_of_pages.last().map_or(0.0, |point| point.recall) / self.trial.left(at);
            }
            curve.points.extend(points_of_pages);
            lone.points.extend(points(named, lone.k, probes, recall));
        }
        Ok(best)
    }

    /// Where queries stop that scan so many groups on average; `None` where nothing tells how far groups are, or all are scanned.
    fn pruned(&self, work: &Work<'_>, probes: u32) -> Result<Option<Pruned>, IndexError> {
        let centroids = &self.cluster.centroids;
        if !centroids.tells_far() || probes as usize >= centroids.groups() {
            return Ok(None);
        }
        let start = || Ok((Farness::new(probes as usize), Scratch::default()));
        let parts =
            self.trial.each_query(work.threads, work.progress, start, |query, (farness, scratch)| {
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
            self.trial.each_query(work.threads, work.progress, start, |query, (found, scratch, ranks)| {
                if query % self.every == 0 {
                    self.measure(query, &params, scratch, ranks, found);
                }
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
        let layout = &self.cluster.pages.layout;
        ranks.begin(self.trial.neighbors(query).map(|id| {
            let place = self.places.get(&id).copied();
            Wanted { page: place.map(|place| layout.page_of(place)), place, on_page: longest, named: longest }
        }));
        let candidates = scratch.candidates();
        if let Some(at) = own_place.and_then(|own| candidates.iter().position(|hit| hit.id == own)) {
            candidates.swap_remove(at);
        }
        order_by_lists(candidates);
        for (rank, hit) in candidates.iter().take(longest).enumerate() {
            ranks.meet(layout.page_of(hit.id), hit.id, rank);
        }
        for (counted, wanted) in ranks.wanted.iter().enumerate() {
            let lists = histogram.first_found.iter_mut().zip(&mut histogram.first_named);
            for (_, (found, named)) in self.trial.k.iter().zip(lists).filter(|(k, _)| counted < **k as usize)
            {
                found[wanted.on_page] += 1;
                named[wanted.named] += 1;
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
        multi_probe: 0,
        mode: SearchMode::Batched,
        timed: false,
        early: None,
    }
}

/// A true neighbour, and the ranks of the best candidate on its page and of itself, as far as [`LISTS`] tell ranks apart.
struct Wanted {
    page: Option<u32>,
    place: Option<u32>,
    on_page: usize,
    named: usize,
}

/// The true neighbours of a query, the nearest first.
#[derive(Default)]
struct Ranks {
    wanted: Vec<Wanted>,
    /// Pages, with the number of the neighbour that each has, in order.
    pages: Vec<(u32, usize)>,
    /// A bit for each of these, by the remainder of its number: most candidates are on no such page, which their bit says.
    bits: Vec<u64>,
}

/// The word that has the bit of a page, and the bit.
fn page_bit(page: u32) -> (usize, u64) {
    ((page / 64) as usize % PAGE_WORDS, 1 << (page % 64))
}

impl Ranks {
    fn begin(&mut self, wanted: impl Iterator<Item = Wanted>) {
        self.wanted.clear();
        self.wanted.extend(wanted);
        self.pages.clear();
        let paged = self.wanted.iter().enumerate();
        self.pages.extend(paged.filter_map(|(at, wanted)| Some((wanted.page?, at))));
        self.pages.sort_unstable();
        self.bits.clear();
        self.bits.resize(PAGE_WORDS, 0);
        for (page, _) in &self.pages {
            let (word, bit) = page_bit(*page);
            self.bits[word] |= bit;
        }
    }

    /// Notes the candidate of a rank.
    fn meet(&mut self, page: u32, place: u32, rank: usize) {
        let (word, bit) = page_bit(page);
        if self.bits[word] & bit == 0 {
            return;
        }
        let first = self.pages.partition_point(|(other, _)| *other < page);
        for (_, at) in self.pages[first..].iter().take_while(|(other, _)| *other == page) {
            let wanted = &mut self.wanted[*at];
            wanted.on_page = wanted.on_page.min(rank);
            if wanted.place == Some(place) {
                wanted.named = rank;
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
    fn candidates_are_in_order_as_far_as_lists_tell() {
        let mut random = StdRng::seed_from_u64(1);
        for count in [0_u32, 1, 2, 7, 100, 801, 1200, 1201, 1300] {
            // Few distances, so that many are equal.
            let distance = |_| {
                if random.random_range(0..9) == 0 {
                    f32::INFINITY
                } else {
                    random.random_range(0..200) as f32
                }
            };
            let distances: Vec<f32> = (0..count).map(distance).collect();
            let of = |id: u32| Neighbor { distance: distances[id as usize], id };
            let mut candidates: Vec<Neighbor> = (0..count).rev().map(of).collect();
            let mut sorted = candidates.clone();
            sorted.sort_unstable();
            order_by_lists(&mut candidates);
            for list in LISTS.into_iter().map(|list| (list as usize).min(sorted.len())) {
                let mut first = candidates[..list].to_vec();
                first.sort_unstable();
                assert!(first == sorted[..list], "the best {list} of {count}");
            }
        }
    }

    #[test]
    fn pages_with_the_same_bit_are_told_apart() {
        let wanted = |page, place| Wanted { page: Some(page), place: Some(place), on_page: 9, named: 9 };
        let mut ranks = Ranks::default();
        let same = 5 + 64 * PAGE_WORDS as u32;
        assert_eq!(page_bit(5), page_bit(same));
        ranks.begin([wanted(5, 50), wanted(70, 700), wanted(5, 51)].into_iter());
        let met = [(6, 60, 0), (same, 50, 1), (5, 59, 2), (70, 700, 3), (5, 51, 4), (5, 50, 5), (70, 701, 6)];
        met.into_iter().for_each(|(page, place, rank)| ranks.meet(page, place, rank));
        let found = |ranks: &Ranks| ranks.wanted.iter().map(|w| (w.on_page, w.named)).collect::<Vec<_>>();
        assert_eq!(found(&ranks), [(2, 5), (3, 3), (2, 4)]);
        // Nothing stays of the query before.
        ranks.begin([wanted(same, 1)].into_iter());
        [(5, 50, 0), (70, 700, 1)].into_iter().for_each(|(page, place, rank)| ranks.meet(page, place, rank));
        assert_eq!(found(&ranks), [(9, 9)]);
    }
}
