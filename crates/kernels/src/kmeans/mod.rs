//! k-means: k-means++ seeding (Arthur & Vassilvitskii, SODA'07), Lloyd iterations, mini-batches for big
//! inputs (Sculley, WWW'10). Results depend on the data, the options and the seed, but not on the thread
//! count.

mod assign;
pub(crate) mod random;
#[cfg(test)]
mod tests;

pub(crate) use assign::Panels;
use random::{Random, sample_rows};

/// Default number of iterations. On SIFT and GloVe subspaces the error changes by less than 0.5% after the
/// 12th.
pub const DEFAULT_ITERATIONS: usize = 12;
/// Rows in a mini-batch for each centroid. faiss trains on 256 for each centroid; here every iteration draws
/// a new batch, so fewer are enough.
pub const BATCH_ROWS_PER_CENTROID: usize = 64;
/// Most rows for each centroid with which every iteration reads all rows.
pub const FULL_ROWS_PER_CENTROID: usize = 256;
/// Rows that a thread takes at a time; results do not depend on it.
const CHUNK_ROWS: usize = 4096;
/// Most centroids that are seeded one by one. More are seeded in rounds, as in k-means||.
const SEED_ROUNDS: usize = 256;

/// Options of [`kmeans`].
#[derive(Clone, Debug, PartialEq)]
pub struct KMeansOptions {
    /// Number of centroids (k).
    pub centroids: usize,
    /// Lloyd or mini-batch iterations.
    pub iterations: usize,
    /// Seed of every random choice.
    pub seed: u64,
    /// Threads to use; 0 counts as 1.
    pub threads: usize,
}

impl KMeansOptions {
    /// Creates options for `centroids` centroids, with the default number of iterations on one thread.
    pub fn new(centroids: usize, seed: u64) -> Self {
        KMeansOptions { centroids, iterations: DEFAULT_ITERATIONS, seed, threads: 1 }
    }
}

/// Reason why [`kmeans`] refused its input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KMeansError {
    /// No rows, no dimensions or no centroids.
    #[error("k-means needs at least one row, one dimension and one centroid")]
    Empty,
    /// The length of the slice is not a multiple of the dimensions.
    #[error("{len} values are not a whole number of rows of {dim}")]
    Shape {
        /// Length of the slice.
        len: usize,
        /// Dimensions of a row.
        dim: usize,
    },
    /// A value is NaN or infinite.
    #[error("row {row} holds a value that is not finite")]
    NotFinite {
        /// The first such row.
        row: usize,
    },
}

/// Centroids found by [`kmeans`].
#[derive(Clone, Debug, PartialEq)]
pub struct Clustering {
    /// `k x dim`, row-major. If there are fewer distinct rows than `k`, centroids repeat.
    pub centroids: Vec<f32>,
    /// Mean squared distance of the rows (with mini-batches: of the last batch) to their centroid, before the
    /// last update.
    pub mean_error: f64,
}

/// Clusters `n x dim` row-major `rows`.
///
/// # Errors
/// [`KMeansError`] for empty input, broken shapes and values that are not finite.
pub fn kmeans(rows: &[f32], dim: usize, options: &KMeansOptions) -> Result<Clustering, KMeansError> {
    if dim == 0 || rows.is_empty() || options.centroids == 0 {
        return Err(KMeansError::Empty);
    }
    if !rows.len().is_multiple_of(dim) {
        return Err(KMeansError::Shape { len: rows.len(), dim });
    }
    if let Some(at) = rows.iter().position(|v| !v.is_finite()) {
        return Err(KMeansError::NotFinite { row: at / dim });
    }
    let (n, k, threads) = (rows.len() / dim, options.centroids, options.threads.max(1));
    let mut random = Random::new(options.seed);
    let mut centroids = seed(rows, dim, k, threads, &mut random);
    let mini_batch = n > k.saturating_mul(FULL_ROWS_PER_CENTROID);
    let mut weights = vec![0.0f64; k];
    let mut batch = Vec::new();
    let (mut labels, mut distances) = (Vec::new(), Vec::new());
    let mut mean_error = 0.0;
    for _ in 0..options.iterations.max(1) {
        let data = if mini_batch {
            batch.clear();
            for row in sample_rows(n, k * BATCH_ROWS_PER_CENTROID, &mut random) {
                batch.extend_from_slice(&rows[row * dim..(row + 1) * dim]);
            }
            &batch[..]
        } else {
            weights.fill(0.0);
            rows
        };
        labels.resize(data.len() / dim, 0);
        distances.resize(data.len() / dim, 0.0);
        assign(data, dim, &centroids, threads, &mut labels, &mut distances);
        mean_error = distances.iter().map(|&d| f64::from(d)).sum::<f64>() / labels.len() as f64;
        update(data, dim, &labels, threads, &mut centroids, &mut weights);
        reseed_empty(data, dim, &distances, &mut centroids, &mut weights);
    }
    Ok(Clustering { centroids, mean_error })
}

/// Finds the nearest centroid of each of `n x dim` rows, and its squared L2 distance. Of equally near
/// centroids the first one is taken.
///
/// `labels` and `distances` hold `n` values each; `distances` may be empty if it is not needed.
///
/// # Panics
/// If `rows` is too short for `labels`.
pub fn assign(
    rows: &[f32],
    dim: usize,
    centroids: &[f32],
    threads: usize,
    labels: &mut [u32],
    distances: &mut [f32],
) {
    let panels = Panels::new(centroids, dim);
    let n = labels.len();
    if threads <= 1 || n <= CHUNK_ROWS {
        return panels.assign(rows, dim, labels, distances);
    }
    let part = n.div_ceil(threads).next_multiple_of(CHUNK_ROWS.min(n));
    std::thread::scope(|scope| {
        let mut rest = distances;
        for (part_rows, part_labels) in rows.chunks(part * dim).zip(labels.chunks_mut(part)) {
            let (part_distances, later) = rest.split_at_mut(part_labels.len().min(rest.len()));
            rest = later;
            let panels = &panels;
            scope.spawn(move || panels.assign(part_rows, dim, part_labels, part_distances));
        }
    });
}

/// Chooses initial centroids by k-means++. For large k each round draws k / 256 rows by squared distance at
/// once (k-means||).
fn seed(rows: &[f32], dim: usize, k: usize, threads: usize, random: &mut Random) -> Vec<f32> {
    let n = rows.len() / dim;
    let row = |r: usize| &rows[r * dim..(r + 1) * dim];
    let mut centroids = Vec::with_capacity(k * dim);
    centroids.extend_from_slice(row(random.below(n)));
    let mut nearest = vec![f32::INFINITY; n];
    let mut labels = vec![0u32; n];
    let mut distances = vec![0.0f32; n];
    // Start of the centroids of the last round.
    let mut last_round = 0;
    while centroids.len() < k * dim {
        if centroids.len() - last_round <= dim {
            let newest = &centroids[last_round..];
            for (near, r) in nearest.iter_mut().zip(rows.chunks_exact(dim)) {
                *near = near.min(squared_l2(r, newest));
            }
        } else {
            assign(rows, dim, &centroids[last_round..], threads, &mut labels, &mut distances);
            nearest.iter_mut().zip(&distances).for_each(|(near, &d)| *near = near.min(d));
        }
        last_round = centroids.len();
        let total: f64 = nearest.iter().map(|&v| f64::from(v)).sum();
        let draws = (k / SEED_ROUNDS).clamp(1, k - centroids.len() / dim);
        let mut targets: Vec<f64> = (0..draws).map(|_| random.unit() * total).collect();
        targets.sort_by(f64::total_cmp);
        let (mut sum, mut at) = (0.0, 0);
        for target in targets {
            while at + 1 < n && sum + f64::from(nearest[at]) <= target {
                sum += f64::from(nearest[at]);
                at += 1;
            }
            // If all rows are centroids already (total 0), any row will do; it makes a repeated centroid,
            // which is harmless.
            let chosen = if total > 0.0 { at } else { random.below(n) };
            centroids.extend_from_slice(row(chosen));
        }
    }
    centroids
}

/// Returns the squared L2 distance. It has 16 partial sums, so that the compiler can vectorise it without
/// re-association.
fn squared_l2(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let (a_chunks, b_chunks) = (a.chunks_exact(16), b.chunks_exact(16));
    let tail: f32 =
        a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| (x - y) * (x - y)).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for l in 0..16 {
            let d = x[l] - y[l];
            sums[l] += d * d;
        }
    }
    sums.iter().sum::<f32>() + tail
}

/// Moves each centroid to the mean of its rows, weighted with the rows of earlier mini-batches.
///
/// One thread sums the rows of a cluster in row order, so the sums do not depend on the thread count.
fn update(
    rows: &[f32],
    dim: usize,
    labels: &[u32],
    threads: usize,
    centroids: &mut [f32],
    weights: &mut [f64],
) {
    let k = weights.len();
    let mut starts = vec![0usize; k + 1];
    labels.iter().for_each(|&l| starts[l as usize + 1] += 1);
    (0..k).for_each(|c| starts[c + 1] += starts[c]);
    let mut order = vec![0u32; labels.len()];
    let mut next = starts.clone();
    for (r, &l) in labels.iter().enumerate() {
        order[next[l as usize]] = r as u32;
        next[l as usize] += 1;
    }
    let part = k.div_ceil(threads.max(1));
    let (starts, order) = (&starts, &order);
    let move_part = move |first: usize, part_centroids: &mut [f32], part_weights: &mut [f64]| {
        let mut sum = vec![0.0f64; dim];
        for (i, (centroid, weight)) in part_centroids.chunks_exact_mut(dim).zip(part_weights).enumerate() {
            let members = &order[starts[first + i]..starts[first + i + 1]];
            if members.is_empty() {
                continue;
            }
            sum.iter_mut().zip(centroid.iter()).for_each(|(s, &c)| *s = f64::from(c) * *weight);
            for &r in members {
                let row = &rows[r as usize * dim..(r as usize + 1) * dim];
                sum.iter_mut().zip(row).for_each(|(s, &v)| *s += f64::from(v));
            }
            *weight += members.len() as f64;
            centroid.iter_mut().zip(&sum).for_each(|(c, s)| *c = (s / *weight) as f32);
        }
    };
    if threads <= 1 || labels.len() <= CHUNK_ROWS {
        return move_part(0, centroids, weights);
    }
    std::thread::scope(|scope| {
        for (p, (c, w)) in centroids.chunks_mut(part * dim).zip(weights.chunks_mut(part)).enumerate() {
            let move_part = &move_part;
            scope.spawn(move || move_part(p * part, c, w));
        }
    });
}

/// Moves each centroid without rows to one of the rows that are farthest from their centroids (of equally far
/// rows, the first).
fn reseed_empty(rows: &[f32], dim: usize, distances: &[f32], centroids: &mut [f32], weights: &mut [f64]) {
    let empty: Vec<usize> = (0..weights.len()).filter(|&c| weights[c] == 0.0).collect();
    if empty.is_empty() {
        return;
    }
    let mut farthest: Vec<u32> = (0..distances.len() as u32).collect();
    let by_distance =
        |a: &u32, b: &u32| distances[*b as usize].total_cmp(&distances[*a as usize]).then(a.cmp(b));
    if empty.len() < farthest.len() {
        farthest.select_nth_unstable_by(empty.len(), by_distance);
        farthest.truncate(empty.len());
    }
    farthest.sort_unstable_by(by_distance);
    for (&c, &r) in empty.iter().zip(&farthest) {
        if distances[r as usize] == 0.0 {
            break;
        }
        let r = r as usize;
        centroids[c * dim..(c + 1) * dim].copy_from_slice(&rows[r * dim..(r + 1) * dim]);
        weights[c] = 1.0;
    }
}
