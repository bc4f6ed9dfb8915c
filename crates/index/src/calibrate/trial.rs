//! The queries of a calibration, their true neighbours, and the threads of the measurement.

use super::made::{self, MOST_COPIES, Way};
use super::reach::{QueryLengths, Reach};
use super::{Calibration, Curve};
use crate::build::options::BuildOptions;
use crate::error::IndexError;
use crate::exact::{exact_neighbors_on, index_error};
use crate::extent::has_direction;
use crate::form::source::SourceVectors;
use bathyal_kernels::Metric;
use bathyal_kernels::distance::{first_non_finite, from_f32, normalize_f32, to_f32};
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{IdFile, RowReader, VectorFile};
use rand::SeedableRng;
use rand::seq::index::sample;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// The numbers of neighbours that get a curve.
pub(crate) const CALIBRATED_K: [u32; 3] = [1, 10, 100];
/// The fewest vectors with a calibration: comparing all of fewer vectors is exact and cheap.
pub(crate) const LEAST_VECTORS: usize = 200;
/// At most this fraction (1/10) of the vectors is held out, so that the index without them resembles the
/// index with them.
const HELD_OUT_SHARE: usize = 10;

/// Chooses the vectors that are used as queries, and returns their ids in ascending order. No two of them are
/// equal, if there are enough others. Some are the most outlying of all that were drawn.
pub(crate) fn sample_ids(data: &SourceVectors<'_>, options: &BuildOptions) -> Result<Vec<u32>, IndexError> {
    let mut random = rand::rngs::StdRng::seed_from_u64(options.seed ^ 0xca11);
    let count = (data.count() / HELD_OUT_SHARE).min(made::stand_in_count(options.calibration_queries));
    let drawn = sample(&mut random, data.count(), (count * DRAWN_FACTOR).min(data.count()));
    let mut reader = RowReader::new(data.given(), 0);
    let (mut distinct, mut seen) = (Vec::new(), HashSet::new());
    for id in drawn {
        if seen.insert(xxh3_64(reader.row(id)?)) {
            distinct.push(id as u32);
        }
    }
    let outlying = outlying(data, &distinct, if has_outlying(data) { count } else { 0 }, options.metric)?;
    let mut ids: Vec<u32> = outlying.iter().map(|number| distinct[*number]).collect();
    let others = (0..distinct.len()).filter(|number| outlying.binary_search(number).is_err());
    ids.extend(others.map(|number| distinct[number]).take(count - ids.len()));
    ids.sort_unstable();
    Ok(ids)
}

/// Returns the numbers of the outlying vectors among `ids`: as many as among `stand_ins` stand-ins. Under
/// cosine, vectors have length 1.
fn outlying(
    data: &SourceVectors<'_>,
    ids: &[u32],
    stand_ins: usize,
    metric: Metric,
) -> Result<Vec<usize>, IndexError> {
    let (element, dim) = (data.given().element(), data.given().dim());
    let mut reader = RowReader::new(data.given(), 0);
    made::outlying(dim, ids.len(), made::outlying_count(stand_ins), |number, values| {
        to_f32(element, reader.row(ids[number] as usize)?, values);
        if metric == Metric::Cosine {
            normalize_f32(values);
        }
        Ok(())
    })
}

/// Returns true if there are enough vectors for outlying and made queries.
fn has_outlying(data: &SourceVectors<'_>) -> bool {
    data.count() >= made::LEAST_VECTORS
}

/// Number of vectors that are drawn for each stand-in. Of equal ones, only the first is used.
const DRAWN_FACTOR: usize = 4;

/// The vectors that are used as queries if none are given.
pub(crate) enum StandIns<'a> {
    /// Vectors of the data that are in the index. Each is removed from its own answer.
    Own,
    /// Vectors of the data that are not in the index yet, by their ids in ascending order.
    HeldOut(&'a [u32]),
}

/// The queries of a calibration, with their true neighbours.
///
/// If vectors of the data stand for queries, some further queries are made from them. A vector of data with
/// near copies finds its copies easily, and a query of a user, which has no copies, finds less. Made queries
/// have no copies either.
pub(crate) struct Trial {
    /// The queries of each kind, which are numbered one kind after the other. The plain ones come first; then
    /// outlying ones, if there are any, and made ones.
    kinds: Vec<VectorFile>,
    /// For each query, the ids that are removed from its answer, in ascending order.
    absent: Vec<Vec<u32>>,
    /// `queries x wide`, row-major: the ids of the true neighbours without absent ones, the nearest first.
    /// `u32::MAX` stands for a missing neighbour.
    pub(crate) truth: Vec<u32>,
    /// `queries x wide`, row-major: the distances of `truth`.
    distances: Vec<f32>,
    /// Number of ids of each query in `truth`: the largest k.
    pub(crate) wide: usize,
    /// The numbers of neighbours that get a curve, in ascending order.
    pub(crate) k: Vec<u32>,
    source: &'static str,
    /// For each k, the share of the true neighbours that exact search of the stored vectors finds.
    left: Vec<f32>,
    reach: Vec<Reach>,
    /// Number of queries that are not made.
    stand_ins: usize,
}

impl Trial {
    /// Finds the true neighbours of the queries by the given vectors. Returns `None` if there are too few
    /// vectors to measure.
    pub(crate) fn prepare(
        data: &SourceVectors<'_>,
        options: &BuildOptions,
        stand_ins: StandIns<'_>,
        progress: &dyn Progress,
    ) -> Result<Option<Trial>, IndexError> {
        let given = options.calibration.is_some();
        let (ids, held_out, own) = match stand_ins {
            StandIns::HeldOut(ids) => (ids.to_vec(), ids, false),
            StandIns::Own if !given && data.count() < LEAST_VECTORS => return Ok(None),
            StandIns::Own if !given => (sample_ids(data, options)?, &[][..], true),
            StandIns::Own => (Vec::new(), &[][..], false),
        };
        let is_stand_in = !ids.is_empty();
        let mut kinds = Vec::new();
        for ids in split(data, ids, options.metric)? {
            kinds.extend(queries(data, ids, options)?);
        }
        if kinds.is_empty() {
            return Ok(None);
        }
        let present = data.count() - if own { 1 } else { held_out.len() };
        let k: Vec<u32> = CALIBRATED_K.into_iter().filter(|k| *k as usize <= present).collect();
        let Some(&largest_k) = k.last() else { return Ok(None) };
        let source = match (own, held_out.is_empty()) {
            (true, _) => "vectors of the data",
            (false, true) => "given queries",
            (false, false) => "held-out vectors",
        };
        let left = k.iter().map(|k| data.loss().map_or(1.0, |loss| loss.share(*k as usize))).collect();
        let mut trial = Trial {
            kinds: Vec::new(),
            absent: Vec::new(),
            truth: Vec::new(),
            distances: Vec::new(),
            wide: largest_k as usize,
            k,
            source,
            left,
            reach: Vec::new(),
            stand_ins: 0,
        };
        let search = TruthSearch { data, held_out, options, progress };
        for (queries, ids) in kinds {
            trial.add(&search, queries, if is_stand_in { &ids } else { &[] })?;
        }
        trial.stand_ins = trial.count();
        let rows = (0..trial.stand_ins).map(|query| trial.query(query));
        let lengths = QueryLengths::of(options.metric, data.given().element(), rows);
        trial.reach = trial.k.iter().filter_map(|k| trial.reach(*k, &lengths)).collect();
        if is_stand_in && has_outlying(data) {
            for way in made::WAYS {
                if let Some((queries, origins)) = trial.make(way, data, options)? {
                    trial.add_made(&search, queries, &origins)?;
                }
            }
        }
        Ok(Some(trial))
    }

    /// Makes queries from plain ones. Returns the numbers of those as well. `None` if no query can be made.
    fn make(
        &self,
        way: Way,
        data: &SourceVectors<'_>,
        options: &BuildOptions,
    ) -> Result<Option<(VectorFile, Vec<usize>)>, IndexError> {
        let Way { neighbor, share } = way;
        let (element, dim, plain) = (data.given().element(), data.given().dim(), &self.kinds[0]);
        let mut reader = RowReader::new(data.given(), 0);
        let (mut from, mut to) = (vec![0.0; dim], vec![0.0; dim]);
        let (mut rows, mut origins) = (Vec::new(), Vec::new());
        let mut row = vec![0; element.row_bytes(dim)];
        for query in (0..made::count(options.calibration_queries)).map(|number| number % plain.count()) {
            let known = self.neighbors(query).take_while(|id| *id != u32::MAX);
            let Some(id) = known.take(neighbor + 1).last() else { continue };
            to_f32(element, plain.row(query), &mut from);
            to_f32(element, reader.row(id as usize)?, &mut to);
            from.iter_mut().zip(&to).for_each(|(from, to)| *from += share * (to - *from));
            from_f32(element, &from, &mut row);
            let is_sound = first_non_finite(element, &row).is_none();
            if is_sound && (options.metric != Metric::Cosine || has_direction(element, &row)) {
                rows.extend_from_slice(&row);
                origins.push(query);
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        Ok(Some((VectorFile::from_rows(element, dim, rows)?, origins)))
    }

    /// Adds plain or outlying queries, and finds their true neighbours. `own` are their ids, if they are
    /// vectors of the data. These vectors and their near copies are absent, unless too few others are known.
    fn add(&mut self, search: &TruthSearch<'_>, queries: VectorFile, own: &[u32]) -> Result<(), IndexError> {
        let copies = if own.is_empty() { 0 } else { 1 + MOST_COPIES };
        let nearest = search.nearest(&queries, self.wide + copies)?;
        for query in 0..queries.count() {
            let all: Vec<(u32, f32)> = nearest_of(&nearest, query).collect();
            let own = own.get(query).copied();
            let copies = own.map_or(0, |own| made::count_copies(&all, own, search.options.metric));
            let mut absent: Vec<u32> =
                all[..copies].iter().map(|(id, _)| *id).filter(|id| Some(*id) != own).collect();
            absent.retain(|id| search.is_present(*id));
            let present = all.iter().filter(|(id, _)| search.is_present(*id)).count();
            if present < self.wide + absent.len() + own.iter().count() {
                absent.clear();
            }
            absent.extend(own);
            absent.sort_unstable();
            self.add_truth(all.into_iter().filter(|(id, _)| search.is_present(*id)), absent);
        }
        self.kinds.push(queries);
        Ok(())
    }

    /// Adds made queries, and finds their true neighbours. `origins` are the numbers of the plain queries
    /// from which they are made. The vectors that are absent for these are absent for the made queries as
    /// well.
    fn add_made(
        &mut self,
        search: &TruthSearch<'_>,
        queries: VectorFile,
        origins: &[usize],
    ) -> Result<(), IndexError> {
        let nearest = search.nearest(&queries, self.wide + 1 + MOST_COPIES)?;
        for (query, origin) in origins.iter().enumerate() {
            let present = nearest_of(&nearest, query).filter(|(id, _)| search.is_present(*id));
            self.add_truth(present, self.absent[*origin].clone());
        }
        self.kinds.push(queries);
        Ok(())
    }

    /// Adds the truth of a query from its nearest vectors, of which those in `absent` do not count.
    fn add_truth(&mut self, nearest: impl Iterator<Item = (u32, f32)>, absent: Vec<u32>) {
        let end = self.truth.len() + self.wide;
        let others = nearest.filter(|(id, _)| absent.binary_search(id).is_err());
        for (id, distance) in others.take(self.wide) {
            self.truth.push(id);
            self.distances.push(distance);
        }
        // If many equal vectors were held out, there may be fewer than k. Missing neighbours count as not
        // found.
        self.truth.resize(end, u32::MAX);
        self.distances.resize(end, f32::INFINITY);
        self.absent.push(absent);
    }

    /// Returns the distances of the queries that are not made to their true neighbour number `k`.
    fn reach(&self, k: u32, lengths: &QueryLengths) -> Option<Reach> {
        let distance = |query: usize| self.distances[query * self.wide + k as usize - 1];
        let of_query = |query: usize| distance(query) / lengths.get(query);
        Reach::of(k, (0..self.stand_ins).map(of_query))
    }

    /// Returns the queries of each kind.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &VectorFile> {
        self.kinds.iter()
    }

    /// Returns the number of queries.
    pub(crate) fn count(&self) -> usize {
        self.absent.len()
    }

    /// Returns the number of a query's kind, and its number within the kind.
    fn within_kind(&self, query: usize) -> (usize, usize) {
        let (mut kind, mut number) = (0, query);
        while number >= self.kinds[kind].count() {
            number -= self.kinds[kind].count();
            kind += 1;
        }
        (kind, number)
    }

    /// Returns a query.
    pub(crate) fn query(&self, query: usize) -> &[u8] {
        let (kind, number) = self.within_kind(query);
        self.kinds[kind].row(number)
    }

    /// Returns true if a vector counts as absent for a query.
    pub(crate) fn is_absent(&self, query: usize, id: u32) -> bool {
        self.absent[query].binary_search(&id).is_ok()
    }

    /// Returns the vectors that count as absent for a query, in ascending order of their ids.
    pub(crate) fn absent(&self, query: usize) -> &[u32] {
        &self.absent[query]
    }

    /// Returns the largest number of vectors that count as absent for a query.
    pub(crate) fn most_absent(&self) -> usize {
        self.absent.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Returns the ids of all true neighbours and of all vectors that are absent for some query.
    pub(crate) fn all_ids(&self) -> impl Iterator<Item = u32> {
        self.truth.iter().chain(self.absent.iter().flatten()).copied()
    }

    /// Returns the ids of the true neighbours of a query.
    pub(crate) fn neighbors(&self, query: usize) -> impl Iterator<Item = u32> {
        self.neighbors_at(query).map(|(id, _)| id)
    }

    /// Returns the true neighbours of a query with their distances.
    pub(crate) fn neighbors_at(&self, query: usize) -> impl Iterator<Item = (u32, f32)> {
        let row = query * self.wide..(query + 1) * self.wide;
        self.truth[row.clone()].iter().copied().zip(self.distances[row].iter().copied())
    }

    /// Returns true if a query is plain.
    pub(crate) fn is_plain(&self, query: usize) -> bool {
        query < self.kinds[0].count()
    }

    /// Returns the number of counters of found neighbours: one for each k and kind of query.
    pub(crate) fn counters(&self) -> usize {
        self.kinds.len() * self.k.len()
    }

    /// Returns the counters in which neighbour number `number` (from 0) of a query counts.
    pub(crate) fn counters_of(&self, query: usize, number: usize) -> std::ops::Range<usize> {
        let first = self.k.partition_point(|k| *k as usize <= number);
        let of_kind = self.within_kind(query).0 * self.k.len();
        of_kind + first..of_kind + self.k.len()
    }

    /// Returns the number of neighbours of a counter's queries.
    pub(crate) fn k_of(&self, counter: usize) -> usize {
        self.k[counter % self.k.len()] as usize
    }

    /// Returns the recall of curve number `curve` if `found` returns for each counter how many true
    /// neighbours are among the compared candidates of all queries. By the stored form of the vectors, some
    /// of these are no longer among the nearest.
    pub(crate) fn recall(&self, curve: usize, found: impl Fn(usize) -> u64) -> f32 {
        self.recall_of_some(curve, 1, found)
    }

    /// Returns the recall of curve number `curve` if only one in `step` queries was measured.
    pub(crate) fn recall_of_some(&self, curve: usize, step: usize, found: impl Fn(usize) -> u64) -> f32 {
        let k = self.k[curve];
        let (mut first, mut most) = (0, 0.0_f64);
        for (kind, queries) in self.kinds.iter().enumerate() {
            let end = first + queries.count();
            let measured = end.div_ceil(step) - first.div_ceil(step);
            let wanted = (measured as f64 * f64::from(k)).max(1.0);
            let missed = 1.0 - found(kind * self.k.len() + curve) as f64 / wanted;
            let counted = if kind == 0 { missed } else { made::counted_misses(missed, measured, k) };
            most = most.max(counted);
            first = end;
        }
        ((1.0 - most) * f64::from(self.left[curve])) as f32
    }

    /// Returns the largest recall of curve number `curve` that the stored form of the vectors allows.
    pub(crate) fn left(&self, curve: usize) -> f32 {
        self.left[curve]
    }

    /// Returns curves without points.
    pub(crate) fn curves<P>(&self) -> Vec<Curve<P>> {
        self.k.iter().map(|k| Curve { k: *k, points: Vec::new() }).collect()
    }

    /// Returns the calibration for the manifest.
    pub(crate) fn calibration<P>(&self, curves: Vec<Curve<P>>) -> Calibration<P> {
        Calibration {
            queries: self.stand_ins as u32,
            source: self.source.into(),
            curves,
            reach: self.reach.clone(),
        }
    }

    /// Calls `measure` for every query, on `threads` threads, each with its own state made by `start`.
    /// Returns these states.
    ///
    /// # Errors
    /// The first error of `measure`, and [`IndexError::Cancelled`].
    pub(crate) fn each_query<S: Send>(
        &self,
        threads: usize,
        progress: &dyn Progress,
        start: impl Fn() -> Result<S, IndexError> + Sync,
        measure: impl Fn(usize, &mut S) -> Result<(), IndexError> + Sync,
    ) -> Result<Vec<S>, IndexError> {
        let next = AtomicUsize::new(0);
        let ended = Mutex::new((Vec::new(), None));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let work = || {
                        let mut state = start()?;
                        loop {
                            let query = next.fetch_add(1, Ordering::Relaxed);
                            if query >= self.count() || progress.cancelled() {
                                return Ok(state);
                            }
                            measure(query, &mut state)?;
                        }
                    };
                    let outcome = work();
                    if let Ok(mut ended) = ended.lock() {
                        match outcome {
                            Ok(state) => ended.0.push(state),
                            Err(error) => ended.1 = ended.1.take().or(Some(error)),
                        }
                    }
                });
            }
        });
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        match ended.into_inner() {
            Ok((states, None)) => Ok(states),
            Ok((_, Some(error))) => Err(error),
            Err(_) => Err(IndexError::Internal("a calibration thread panicked".into())),
        }
    }
}

/// Divides stand-ins into plain and outlying ones, if there are enough vectors.
fn split(data: &SourceVectors<'_>, ids: Vec<u32>, metric: Metric) -> Result<Vec<Vec<u32>>, IndexError> {
    if ids.is_empty() || !has_outlying(data) {
        return Ok(vec![ids]);
    }
    let outlying = outlying(data, &ids, ids.len(), metric)?;
    let far = outlying.iter().map(|number| ids[*number]).collect();
    let near = (0..ids.len()).filter(|number| outlying.binary_search(number).is_err());
    Ok(vec![near.map(|number| ids[number]).collect(), far])
}

/// Returns the queries of a calibration and their ids: the vectors `ids` of the data, or a sample of the
/// given queries.
fn queries(
    data: &SourceVectors<'_>,
    ids: Vec<u32>,
    options: &BuildOptions,
) -> Result<Option<(VectorFile, Vec<u32>)>, IndexError> {
    let (source, ids) = match &options.calibration {
        None => (data.given(), ids),
        Some(given) => {
            let mut random = rand::rngs::StdRng::seed_from_u64(options.seed ^ 0xca11);
            let chosen = sample(&mut random, given.count(), given.count().min(options.calibration_queries));
            (given, chosen.iter().map(|id| id as u32).collect())
        }
    };
    let mut reader = RowReader::new(source, 0);
    let (mut taken, mut rows) =
        (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len() * source.row_bytes()));
    for id in ids {
        let row = reader.row(id as usize)?;
        if options.metric != Metric::Cosine || has_direction(source.element(), row) {
            rows.extend_from_slice(row);
            taken.push(id);
        }
    }
    if taken.is_empty() {
        return Ok(None);
    }
    Ok(Some((VectorFile::from_rows(source.element(), source.dim(), rows)?, taken)))
}

/// The search for the true neighbours of queries.
struct TruthSearch<'a> {
    data: &'a SourceVectors<'a>,
    /// Vectors of the data that are not in the index, in ascending order.
    held_out: &'a [u32],
    options: &'a BuildOptions,
    progress: &'a dyn Progress,
}

/// Returns the ids and distances that a search found for a query.
fn nearest_of(nearest: &IdFile, query: usize) -> impl Iterator<Item = (u32, f32)> + Clone {
    let distances = nearest.distances(query).unwrap_or_default();
    nearest.ids(query).iter().copied().zip(distances.iter().copied())
}

impl TruthSearch<'_> {
    /// Returns true if a vector is in the index.
    fn is_present(&self, id: u32) -> bool {
        self.held_out.binary_search(&id).is_err()
    }

    /// Finds the nearest vectors of each query: `k`, and enough others for those that are held out.
    fn nearest(&self, queries: &VectorFile, k: usize) -> Result<IdFile, IndexError> {
        let TruthSearch { data, held_out, options, progress } = self;
        // Held-out vectors are at most a tenth: `extra` covers twice that share among the nearest, and
        // chance.
        let extra = if held_out.is_empty() { 0 } else { 2 * k / HELD_OUT_SHARE + 32 };
        let threads = NonZeroUsize::new(options.thread_count());
        let (k, card) = ((k + extra).min(data.count()), options.card.as_ref());
        let exact = exact_neighbors_on(card, data.given(), queries, options.metric, k, threads, *progress);
        exact.map_err(index_error)
    }
}

/// Calls `measure` with the ascending numbers of probes in `ladder` below `most`, and then with `most`, until
/// the recall that it returns hardly rises.
pub(crate) fn climb(
    ladder: &[u32],
    most: u32,
    progress: &dyn Progress,
    mut measure: impl FnMut(u32) -> Result<f32, IndexError>,
) -> Result<(), IndexError> {
    /// Differences beyond this recall are noise.
    const ENOUGH_RECALL: f32 = 0.9985;
    /// A step that gains less than this over the previous one is the last.
    const LEAST_GAIN: f32 = 0.0002;
    let mut ladder: Vec<u32> = ladder.iter().copied().filter(|probes| *probes < most).collect();
    ladder.push(most);
    progress.stage("calibrating", ladder.len() as u64);
    let mut last = 0.0_f32;
    for (step, probes) in ladder.iter().enumerate() {
        let best = measure(*probes)?;
        progress.advance(step as u64 + 1);
        if best >= ENOUGH_RECALL || (best > 0.9 && best - last < LEAST_GAIN) {
            break;
        }
        last = best;
    }
    progress.advance(ladder.len() as u64);
    Ok(())
}
