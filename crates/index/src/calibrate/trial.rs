//! The queries of a calibration, their true neighbours, and the threads of the measurement.

use super::reach::Reach;
use super::{Calibration, Curve};
use crate::build::options::BuildOptions;
use crate::error::IndexError;
use crate::exact::{exact_neighbors_on, index_error};
use crate::extent::has_direction;
use crate::form::source::Source;
use bathyal_kernels::Metric;
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{RowReader, VectorFile};
use rand::SeedableRng;
use rand::seq::index::sample;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The numbers of neighbours that get a curve.
pub(crate) const CALIBRATED_K: [u32; 3] = [1, 10, 100];
/// The fewest vectors with a calibration: comparing all of fewer vectors is exact and cheap.
pub(crate) const LEAST_VECTORS: usize = 200;
/// At most this fraction (1/10) of the vectors is held out, so that the index without them resembles the
/// index with them.
const HELD_OUT_SHARE: usize = 10;

/// Chooses the vectors that are used as queries, and returns their ids in ascending order.
pub(crate) fn sample_ids(vectors: usize, options: &BuildOptions) -> Vec<u32> {
    let mut random = rand::rngs::StdRng::seed_from_u64(options.seed ^ 0xca11);
    let count = (vectors / HELD_OUT_SHARE).min(options.calibration_queries);
    let mut ids: Vec<u32> = sample(&mut random, vectors, count).iter().map(|id| id as u32).collect();
    ids.sort_unstable();
    ids
}

/// The vectors that are used as queries if none are given.
pub(crate) enum StandIns<'a> {
    /// Vectors of the data that are in the index. Each is removed from its own answer.
    Own,
    /// Vectors of the data that are not in the index yet, by their ids in ascending order.
    HeldOut(&'a [u32]),
}

/// The queries of a calibration, with their true neighbours.
pub(crate) struct Trial {
    pub(crate) queries: VectorFile,
    /// The ids of the queries, if they are vectors of the index.
    pub(crate) own: Option<Vec<u32>>,
    /// `queries x wide`, row-major: the ids of the true neighbours, the nearest first, including the query
    /// itself if it is in the index.
    pub(crate) truth: Vec<u32>,
    /// `queries x wide`, row-major: the distances of `truth`.
    distances: Vec<f32>,
    /// Number of ids of each query in `truth`.
    pub(crate) wide: usize,
    /// The numbers of neighbours that get a curve, in ascending order.
    pub(crate) k: Vec<u32>,
    source: &'static str,
    /// For each k, the share of the true neighbours that exact search of the stored vectors finds.
    left: Vec<f32>,
    reach: Vec<Reach>,
}

/// True neighbours, `queries x k`, row-major: their ids, and their distances.
type Truth = (Vec<u32>, Vec<f32>);

impl Trial {
    /// Finds the true neighbours of the queries by the given vectors. Returns `None` if there are too few
    /// vectors to measure.
    pub(crate) fn prepare(
        data: &Source<'_>,
        options: &BuildOptions,
        stand_ins: StandIns<'_>,
        progress: &dyn Progress,
    ) -> Result<Option<Trial>, IndexError> {
        let given = options.calibration.is_some();
        let (ids, held_out, own) = match stand_ins {
            StandIns::HeldOut(ids) => (ids.to_vec(), ids, false),
            StandIns::Own if !given && data.count() < LEAST_VECTORS => return Ok(None),
            StandIns::Own if !given => (sample_ids(data.count(), options), &[][..], true),
            StandIns::Own => (Vec::new(), &[][..], false),
        };
        let Some((queries, ids)) = queries(data, ids, options)? else { return Ok(None) };
        let present = data.count() - if own { 1 } else { held_out.len() };
        let k: Vec<u32> = CALIBRATED_K.into_iter().filter(|k| *k as usize <= present).collect();
        let Some(&largest_k) = k.last() else { return Ok(None) };
        // One more neighbour if the query is in the data, since it is its own nearest.
        let wide = (largest_k as usize + usize::from(own)).min(data.count());
        let (truth, distances) = truth(data, &queries, held_out, options, wide, progress)?;
        let source = match (own, held_out.is_empty()) {
            (true, _) => "vectors of the data",
            (false, true) => "given queries",
            (false, false) => "held-out vectors",
        };
        let left = k.iter().map(|k| data.loss().map_or(1.0, |loss| loss.share(*k as usize))).collect();
        let own = own.then_some(ids);
        let mut trial = Trial { queries, own, truth, distances, wide, k, source, left, reach: Vec::new() };
        if options.metric != Metric::InnerProduct {
            trial.reach = trial.k.iter().filter_map(|k| trial.reach(*k)).collect();
        }
        Ok(Some(trial))
    }

    /// Returns the distances of the queries to their true neighbour number `k`.
    fn reach(&self, k: u32) -> Option<Reach> {
        let of_query = |query: usize| {
            let mut others = self.neighbors_at(query);
            others.nth(k as usize - 1).map_or(f32::INFINITY, |(_, distance)| distance)
        };
        Reach::of(k, (0..self.queries.count()).map(of_query))
    }

    /// Returns the ids of the true neighbours of a query, without the query itself.
    pub(crate) fn neighbors(&self, query: usize) -> impl Iterator<Item = u32> {
        self.neighbors_at(query).map(|(id, _)| id)
    }

    /// Returns the true neighbours of a query with their distances, without the query itself.
    pub(crate) fn neighbors_at(&self, query: usize) -> impl Iterator<Item = (u32, f32)> {
        let own = self.own.as_ref().map(|own| own[query]);
        let row = query * self.wide..(query + 1) * self.wide;
        let all = self.truth[row.clone()].iter().copied().zip(self.distances[row].iter().copied());
        all.filter(move |(id, _)| Some(*id) != own)
    }

    /// Returns the recall of curve number `curve` if `found` true neighbours of all queries are among the
    /// compared candidates. By the stored form of the vectors, some of these are no longer among the nearest.
    pub(crate) fn recall(&self, curve: usize, found: u64) -> f32 {
        let of = self.queries.count() as f64 * f64::from(self.k[curve]);
        (found as f64 / of * f64::from(self.left[curve])) as f32
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
            queries: self.queries.count() as u32,
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
                            if query >= self.queries.count() || progress.cancelled() {
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

/// Returns the queries of a calibration and their ids: the vectors `ids` of the data, or a sample of the
/// given queries.
fn queries(
    data: &Source<'_>,
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

/// Finds the true neighbours of each query among the vectors that are not held out.
fn truth(
    data: &Source<'_>,
    queries: &VectorFile,
    held_out: &[u32],
    options: &BuildOptions,
    k: usize,
    progress: &dyn Progress,
) -> Result<Truth, IndexError> {
    // Held-out vectors are at most a tenth: `extra` covers twice that share among the nearest, and chance.
    let extra = if held_out.is_empty() { 0 } else { 2 * k / HELD_OUT_SHARE + 32 };
    let threads = NonZeroUsize::new(options.thread_count());
    let exact = exact_neighbors_on(
        options.card.as_ref(),
        data.given(),
        queries,
        options.metric,
        (k + extra).min(data.count()),
        threads,
        progress,
    );
    let exact = exact.map_err(index_error)?;
    let (mut ids, mut distances) = (Vec::new(), Vec::new());
    for query in 0..queries.count() {
        let all = exact.ids(query).iter().zip(exact.distances(query).unwrap_or_default());
        let present = all.filter(|(id, _)| held_out.binary_search(id).is_err());
        // If many equal vectors were held out, there may be fewer than k. Missing neighbours count as not
        // found.
        let missing = std::iter::repeat((&u32::MAX, &f32::INFINITY));
        for (id, distance) in present.chain(missing).take(k) {
            ids.push(*id);
            distances.push(*distance);
        }
    }
    Ok((ids, distances))
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
