use super::random::Random;
use super::*;

fn gaussian(n: usize, dim: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n * dim).map(|_| random.normal() as f32).collect()
}

fn blobs(n: usize, dim: usize, count: usize, seed: u64) -> Vec<f32> {
    let centers = gaussian(count, dim, seed);
    let noise = gaussian(n, dim, seed + 1);
    (0..n * dim).map(|i| 20.0 * centers[(i / dim % count) * dim + i % dim] + 0.1 * noise[i]).collect()
}

fn nearest(row: &[f32], centroids: &[f32], dim: usize) -> (u32, f64) {
    let distance = |c: &[f32]| row.iter().zip(c).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    let mut best = (0, f64::INFINITY);
    for (i, c) in centroids.chunks_exact(dim).enumerate() {
        if distance(c) < best.1 {
            best = (i as u32, distance(c));
        }
    }
    best
}

fn error(rows: &[f32], centroids: &[f32], dim: usize) -> f64 {
    rows.chunks_exact(dim).map(|r| nearest(r, centroids, dim).1).sum::<f64>() / (rows.len() / dim) as f64
}

#[test]
fn assignment_agrees_with_the_naive_one() {
    for (n, k, dim) in [(1, 1, 1), (7, 3, 2), (33, 17, 5), (100, 40, 31), (257, 16, 64), (64, 100, 3)] {
        let (rows, centroids) = (gaussian(n, dim, 1), gaussian(k, dim, 2));
        let (mut labels, mut distances) = (vec![0; n], vec![0.0; n]);
        assign(&rows, dim, &centroids, 1, &mut labels, &mut distances);
        for r in 0..n {
            let (_, best) = nearest(&rows[r * dim..(r + 1) * dim], &centroids, dim);
            let chosen =
                nearest(&rows[r * dim..(r + 1) * dim], &centroids[labels[r] as usize * dim..][..dim], dim).1;
            assert!((chosen - best).abs() <= 1e-4 * (1.0 + best), "{n} {k} {dim} row {r}");
            assert!((f64::from(distances[r]) - best).abs() <= 1e-4 * (1.0 + best));
        }
    }
}

#[test]
fn ties_go_to_the_lower_centroid() {
    let mut labels = [9; 3];
    assign(&[1.0, 1.0, 1.0], 1, &[1.0; 40], 1, &mut labels, &mut []);
    assert_eq!(labels, [0; 3]);
}

#[test]
fn separated_blobs_are_found() {
    let (dim, k) = (8, 12);
    let rows = blobs(2400, dim, k, 5);
    let found = kmeans(&rows, dim, &KMeansOptions::new(k, 1)).unwrap();
    assert!(error(&rows, &found.centroids, dim) < 0.2, "{}", error(&rows, &found.centroids, dim));
}

/// Lloyd iterations from random rows, in plain loops. The fast implementation must not be worse.
fn naive_kmeans(rows: &[f32], dim: usize, k: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let mut centroids: Vec<f32> = sample_rows(rows.len() / dim, k, &mut random)
        .iter()
        .flat_map(|r| rows[r * dim..(r + 1) * dim].to_vec())
        .collect();
    for _ in 0..DEFAULT_ITERATIONS {
        let (mut sums, mut counts) = (vec![0.0f64; k * dim], vec![0.0f64; k]);
        for row in rows.chunks_exact(dim) {
            let label = nearest(row, &centroids, dim).0 as usize;
            counts[label] += 1.0;
            row.iter().enumerate().for_each(|(d, v)| sums[label * dim + d] += f64::from(*v));
        }
        for (i, c) in centroids.iter_mut().enumerate() {
            if counts[i / dim] > 0.0 {
                *c = (sums[i] / counts[i / dim]) as f32;
            }
        }
    }
    centroids
}

#[test]
fn kmeans_is_no_worse_than_naive_lloyd() {
    let (dim, k) = (6, 24);
    let rows = gaussian(3000, dim, 3);
    let fast = error(&rows, &kmeans(&rows, dim, &KMeansOptions::new(k, 7)).unwrap().centroids, dim);
    let naive = error(&rows, &naive_kmeans(&rows, dim, k, 7), dim);
    assert!(fast <= naive * 1.03, "{fast} against {naive}");
}

#[test]
fn mini_batches_come_close_to_full_passes() {
    let (dim, k) = (4, 8);
    let rows = gaussian(8 * FULL_ROWS_PER_CENTROID + 4000, dim, 9);
    let batched = error(&rows, &kmeans(&rows, dim, &KMeansOptions::new(k, 1)).unwrap().centroids, dim);
    let full = error(&rows, &naive_kmeans(&rows, dim, k, 1), dim);
    assert!(batched <= full * 1.05, "{batched} against {full}");
}

#[test]
fn the_thread_count_changes_nothing() {
    let (dim, k) = (5, 600);
    let rows = gaussian(20_000, dim, 4);
    let run = |threads| {
        let options = KMeansOptions { iterations: 3, threads, ..KMeansOptions::new(k, 11) };
        kmeans(&rows, dim, &options).unwrap()
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(7));
    assert_eq!(one, run(0));
}

#[test]
fn degenerate_inputs_are_clustered() {
    let few = kmeans(&[1.0, 2.0, 3.0], 1, &KMeansOptions::new(8, 0)).unwrap();
    assert_eq!(few.centroids.len(), 8);
    for row in [1.0, 2.0, 3.0] {
        assert!(few.centroids.contains(&row));
    }
    let equal = kmeans(&[4.0; 60], 3, &KMeansOptions::new(5, 0)).unwrap();
    assert_eq!(equal.centroids, vec![4.0; 15]);
    assert_eq!(equal.mean_error, 0.0);
    assert_eq!(kmeans(&[0.0; 6], 2, &KMeansOptions::new(1, 0)).unwrap().centroids, vec![0.0; 2]);
}

#[test]
fn invalid_inputs_are_refused() {
    let options = KMeansOptions::new(2, 0);
    assert_eq!(kmeans(&[], 3, &options), Err(KMeansError::Empty));
    assert_eq!(kmeans(&[1.0], 0, &options), Err(KMeansError::Empty));
    assert_eq!(kmeans(&[1.0], 1, &KMeansOptions::new(0, 0)), Err(KMeansError::Empty));
    assert_eq!(kmeans(&[1.0; 5], 2, &options), Err(KMeansError::Shape { len: 5, dim: 2 }));
    assert_eq!(kmeans(&[1.0, 2.0, f32::NAN, 0.0], 2, &options), Err(KMeansError::NotFinite { row: 1 }));
}

#[test]
fn empty_clusters_are_reseeded() {
    let rows = [0.0, 0.1, 10.0, 10.1];
    let mut centroids = [0.0, 50.0];
    let mut weights = [4.0, 0.0];
    reseed_empty(&rows, 1, &[0.0, 0.01, 100.0, 102.0], &mut centroids, &mut weights);
    assert_eq!(centroids, [0.0, 10.1]);
}
