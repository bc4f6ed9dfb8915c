//! Calibration: how much effort a recall takes on this very index, measured before it is published.
//!
//! Vectors of the data stand in for queries before they are inserted (unless the caller gives real queries):
//! the graph that is measured does not know them. They are searched at rising sizes of the candidate list
//! until nearly nothing is missed, and the recall of each size is stored per k.

use super::options::BuildOptions;
use crate::error::IndexError;
use crate::format::manifest::{Calibration, CalibrationCurve, CalibrationPoint, Manifest};
use crate::open::{DEFAULT_BEAM_WIDTH, Index, OpenOptions, RawQueries, TierChoice};
use crate::query::{SearchMode, SearchParams};
use bathyal_kernels::{Metric, squared_norm};
use bathyal_store::Generation;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{GroundTruthError, exact_neighbors};
use bathyal_vectors::progress::Progress;
use rand::SeedableRng;
use rand::seq::index::sample;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

/// Queries measured: recall@10 of a thousand has a standard error of about 0.2 percentage points.
const MOST_QUERIES: usize = 1000;
/// Neighbour counts that get a curve.
pub(crate) const CALIBRATED_K: [u32; 3] = [1, 10, 100];
/// Sizes of the candidate list that are tried, growing by about a quarter each.
const LADDER: [u32; 26] = [
    10, 12, 16, 20, 26, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256, 320, 400, 512, 640, 800, 1000, 1280,
    1600, 2000, 2560, 3200,
];
/// Queries interleaved a thread: what was just written is read from the page cache, and each holds memory.
const WIDTH: usize = 4;
/// Beyond this recall more effort is noise.
const ENOUGH_RECALL: f32 = 0.999;

/// Rows taken from all over a mapped file before its memory is given back: around each the system maps up to two megabytes
/// that are cached already, so that a thousand rows of ten million vectors were 600 MB of this process.
const ROWS_A_RELEASE: usize = 8;
/// Fewest vectors that are calibrated: below, looking at all of them is exact and cheap.
pub(crate) const LEAST_VECTORS: usize = 200;
/// One vector in so many is held out at most, so that the graph without them is like the graph with them.
const HELD_OUT_SHARE: usize = 10;

/// The ids of the vectors that the build inserts only after calibration, rising; `entry` is none of them.
pub(crate) fn hold_out(data: &VectorFile, entry: u32, options: &BuildOptions) -> Vec<u32> {
    if options.calibration.is_some() || data.count() < LEAST_VECTORS {
        return Vec::new();
    }
    let mut ids = sample_ids(data.count(), options.seed);
    ids.retain(|id| *id != entry);
    ids
}

/// The ids of vectors that stand in for queries, rising.
pub(crate) fn sample_ids(vectors: usize, seed: u64) -> Vec<u32> {
    let mut random = rand::rngs::StdRng::seed_from_u64(seed ^ 0xca11);
    let count = (vectors / HELD_OUT_SHARE).min(MOST_QUERIES);
    let mut ids: Vec<u32> = sample(&mut random, vectors, count).iter().map(|id| id as u32).collect();
    ids.sort_unstable();
    ids
}

/// What a graph lacks while it is calibrated.
pub(crate) struct HeldOut<'a> {
    /// The ids of vectors that no link leads to, rising.
    pub(crate) ids: &'a [u32],
    /// Their places, rising, where searches would see them nevertheless.
    pub(crate) hidden: Vec<u32>,
}

/// Measures the index in `directory`, whose manifest has not been written yet and whose graph lacks `missing`, with
/// its pages read from `tier`.
pub(crate) fn calibrate(
    directory: &dyn Generation,
    manifest: &Manifest,
    data: &VectorFile,
    missing: HeldOut<'_>,
    tier: TierChoice,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Calibration, IndexError> {
    let held_out = missing.ids;
    let Some((queries, _)) = queries(data, held_out, options)? else { return Ok(Calibration::default()) };
    let present = data.count() - held_out.len();
    let curves_k: Vec<u32> = CALIBRATED_K.into_iter().filter(|k| *k as usize <= present).collect();
    let Some(&largest_k) = curves_k.last() else { return Ok(Calibration::default()) };
    let truth = truth(data, &queries, held_out, options, largest_k as usize, progress)?;
    data.release();

    let index = Index::open_unpublished(directory, manifest, &OpenOptions::cached(tier), missing.hidden)?;
    // How many vectors the codes rank before a true neighbour grows with their number, so the finished index
    // needs a list longer by the share that is still missing. Nothing to speak of where there are many.
    let with_all = |list: u32| (u64::from(list) * data.count() as u64).div_ceil(present as u64) as u32;
    let mut curves: Vec<CalibrationCurve> =
        curves_k.iter().map(|k| CalibrationCurve { k: *k, points: Vec::new() }).collect();
    progress.stage("calibrating", LADDER.len() as u64);
    for (step, search_list) in LADDER.into_iter().enumerate() {
        let wanted = |c: &CalibrationCurve| search_list >= c.k && !c.is_finished();
        if search_list > largest_k && !curves.iter().any(wanted) {
            break;
        }
        let k = (largest_k as usize).min(search_list as usize);
        let found = run(&index, &queries, k, search_list, options.thread_count(), progress)?;
        for curve in curves.iter_mut().filter(|c| wanted(c)) {
            let recall = recall_at(curve.k as usize, k, &found, &truth);
            curve.points.push(CalibrationPoint {
                search_list: with_all(search_list),
                probes: 0,
                recall,
                prune: 0.0,
                lists: 0.0,
            });
        }
        progress.advance(step as u64 + 1);
    }
    progress.advance(LADDER.len() as u64);
    curves.iter_mut().for_each(CalibrationCurve::keep_rising);
    let source = if held_out.is_empty() { "given queries" } else { "held-out vectors" };
    Ok(Calibration {
        queries: queries.count() as u32,
        source: source.into(),
        curves,
        lone_curves: Vec::new(),
    })
}

impl CalibrationCurve {
    fn is_finished(&self) -> bool {
        self.points.last().is_some_and(|p| p.recall >= ENOUGH_RECALL)
    }
}

/// The queries of a calibration and their ids: the vectors named, or a sample of what the caller gave.
pub(crate) fn queries(
    data: &VectorFile,
    held_out: &[u32],
    options: &BuildOptions,
) -> Result<Option<(VectorFile, Vec<u32>)>, IndexError> {
    let (source, mut ids) = match &options.calibration {
        None => (data, held_out.to_vec()),
        Some(given) => {
            let mut random = rand::rngs::StdRng::seed_from_u64(options.seed ^ 0xca11);
            let chosen = sample(&mut random, given.count(), given.count().min(MOST_QUERIES));
            (given, chosen.iter().map(|id| id as u32).collect())
        }
    };
    if options.metric == Metric::Cosine {
        let mut looked_at = 0;
        ids.retain(|id| {
            looked_at += 1;
            if looked_at % ROWS_A_RELEASE == 0 {
                source.release();
            }
            squared_norm(source.element(), source.row(*id as usize)) > 0.0
        });
    }
    if ids.is_empty() {
        return Ok(None);
    }
    let mut rows = Vec::with_capacity(ids.len() * source.row_bytes());
    for (taken, id) in ids.iter().enumerate() {
        rows.extend_from_slice(source.row(*id as usize));
        if taken % ROWS_A_RELEASE == 0 {
            source.release();
        }
    }
    source.release();
    Ok(Some((VectorFile::from_rows(data.element(), data.dim(), rows)?, ids)))
}

/// The true neighbours of each query among the vectors not held out: `queries x k`.
pub(crate) fn truth(
    data: &VectorFile,
    queries: &VectorFile,
    held_out: &[u32],
    options: &BuildOptions,
    k: usize,
    progress: &dyn Progress,
) -> Result<Vec<u32>, IndexError> {
    // Held-out vectors are a small share; room for twice their share among the nearest, and for chance.
    let extra = if held_out.is_empty() { 0 } else { 2 * k / HELD_OUT_SHARE + 32 };
    let threads = NonZeroUsize::new(options.thread_count());
    let exact =
        exact_neighbors(data, queries, options.metric, (k + extra).min(data.count()), threads, progress);
    let exact = exact.map_err(|error| match error {
        GroundTruthError::Cancelled => IndexError::Cancelled,
        other => IndexError::Internal(other.to_string()),
    })?;
    let mut truth = Vec::with_capacity(queries.count() * k);
    for query in 0..queries.count() {
        let present = exact.ids(query).iter().filter(|id| held_out.binary_search(id).is_err());
        // Where many equal vectors were held out there may be fewer: what is missing counts as not found.
        truth.extend(present.copied().chain(std::iter::repeat(u32::MAX)).take(k));
    }
    Ok(truth)
}

fn run(
    index: &Index,
    queries: &VectorFile,
    k: usize,
    search_list: u32,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<u32>, IndexError> {
    let params = SearchParams {
        k,
        search_list: search_list as usize,
        probes: 0,
        prune: 0.0,
        beam_width: DEFAULT_BEAM_WIDTH as usize,
        mode: SearchMode::Batched,
        timed: false,
    };
    let rows = queries.rows(0..queries.count()).unwrap_or_default();
    let raw = RawQueries { bytes: rows.to_vec(), count: queries.count() };
    let stop = AtomicBool::new(false);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                stop.store(progress.cancelled(), Ordering::Relaxed);
                std::thread::park_timeout(std::time::Duration::from_millis(10));
            }
        });
        let control = Control { cancel: Some(&stop), deadline: None };
        let found = index.search_raw(raw, params, threads, Some(WIDTH), control);
        done.store(true, Ordering::Relaxed);
        // A search of a few queries takes less than a look at whether to go on.
        watcher.thread().unpark();
        Ok(found?.ids)
    })
}

/// Mean recall@k of `found` (`queries x width`) against `truth` (`queries x truth_k`), both nearest first.
fn recall_at(k: usize, width: usize, found: &[u32], truth: &[u32]) -> f32 {
    let queries = found.len() / width.max(1);
    if queries == 0 {
        return 0.0;
    }
    let truth_k = truth.len() / queries;
    let hits: usize = found
        .chunks(width)
        .zip(truth.chunks(truth_k))
        .map(|(found, truth)| truth[..k].iter().filter(|id| found[..k].contains(id)).count())
        .sum();
    hits as f32 / (queries * k) as f32
}

/// The size of the candidate list for a recall, and whether the curve reaches it.
pub(crate) fn effort(calibration: &Calibration, k: usize, recall: f32) -> Option<(u32, bool)> {
    // The curve of the next larger k is on the safe side; beyond the largest, its effort grows with k.
    let curves = &calibration.curves;
    let curve = curves.iter().find(|c| c.k as usize >= k).or(curves.last())?;
    let stretch = (k as f32 / curve.k as f32).max(1.0);
    let mut below: Option<CalibrationPoint> = None;
    for point in &curve.points {
        if point.recall >= recall {
            let exact = match below {
                Some(b) if point.recall > b.recall => {
                    let share = (recall - b.recall) / (point.recall - b.recall);
                    let (low, high) = ((b.search_list as f32).ln(), (point.search_list as f32).ln());
                    (low + share * (high - low)).exp()
                }
                _ => point.search_list as f32,
            };
            return Some(((exact * stretch).ceil() as u32, true));
        }
        below = Some(*point);
    }
    below.map(|b| ((b.search_list as f32 * stretch).ceil() as u32, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(k: u32, points: &[(u32, f32)]) -> CalibrationCurve {
        let points = points.iter().map(|(search_list, recall)| CalibrationPoint {
            search_list: *search_list,
            probes: 0,
            recall: *recall,
            prune: 0.0,
            lists: 0.0,
        });
        CalibrationCurve { k, points: points.collect() }
    }

    #[test]
    fn effort_is_read_off_the_right_curve() {
        let curves = vec![curve(1, &[(10, 0.9), (20, 0.99)]), curve(10, &[(10, 0.5), (40, 0.9), (160, 1.0)])];
        let calibration = Calibration { queries: 1, source: "test".into(), curves, lone_curves: Vec::new() };
        assert_eq!(effort(&calibration, 1, 0.5), Some((10, true)));
        assert_eq!(effort(&calibration, 10, 0.9), Some((40, true)));
        assert_eq!(effort(&calibration, 5, 0.9), Some((40, true)), "the next larger k");
        assert_eq!(effort(&calibration, 10, 0.95), Some((80, true)), "halfway between, in logarithms");
        assert_eq!(effort(&calibration, 1, 0.999), Some((20, false)), "beyond the curve");
        assert_eq!(effort(&calibration, 20, 0.9), Some((80, true)), "twice the largest k");
        assert_eq!(effort(&Calibration::default(), 1, 0.5), None);
    }

    #[test]
    fn recall_counts_hits_within_k() {
        let found = [1, 2, 3, 7, 8, 9];
        let truth = [2, 1, 5, 9, 8, 7];
        assert_eq!(recall_at(1, 3, &found, &truth), 0.0);
        assert_eq!(recall_at(2, 3, &found, &truth), 0.75);
        assert!((recall_at(3, 3, &found, &truth) - 5.0 / 6.0).abs() < 1e-6);
    }
}
