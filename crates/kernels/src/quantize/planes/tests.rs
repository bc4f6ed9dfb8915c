use super::encode::{Grid, LANES, round_at_scale, round_at_scale_scalar, try_scales, try_scales_scalar};
use super::rotation::QueryParts;
use super::*;
use crate::kmeans::random::Random;

fn decaying(n: usize, dim: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n * dim).map(|i| random.normal() as f32 * 3.0 / (1.0 + (i % dim) as f32 / 6.0)).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot =
        |x: &[f32], y: &[f32]| -> f64 { x.iter().zip(y).map(|(u, v)| f64::from(*u) * f64::from(*v)).sum() };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(f64::MIN_POSITIVE)
}

/// Returns the greatest cosine of any grid point with the row, found by rounding the row at very many scales.
fn greatest_cosine(quantizer: &PlaneQuantizer, row: &[f32]) -> f64 {
    let mut best = 0.0f64;
    for k in 0..800 {
        let scale = 0.05 * 1.0075f32.powi(k);
        let point: Vec<f32> = (0..quantizer.layout.dims())
            .map(|d| {
                let middle = quantizer.layout.middle(d);
                let level = ((row[d] / (quantizer.steps[d] * scale)).floor() + 0.5).clamp(-middle, middle);
                level * quantizer.steps[d]
            })
            .collect();
        best = best.max(cosine(&point, row));
    }
    best
}

#[test]
fn codes_are_nearly_the_best_of_their_grid() {
    let dim = 64;
    let rows = decaying(200, dim, 3);
    let train = decaying(2000, dim, 4);
    for (name, quantizer) in [
        ("axes 16", PlaneQuantizer::train_allocated(16, &train, dim, 1, 2)),
        ("axes 32", PlaneQuantizer::train_allocated(32, &train, dim, 1, 2)),
        ("axes 48", PlaneQuantizer::train_allocated(48, &train, dim, 1, 2)),
        ("rabitq1", PlaneQuantizer::train_uniform(1, 100, &train, dim, 1)),
        ("rabitq2", PlaneQuantizer::train_uniform(2, 100, &train, dim, 1)),
        ("rabitq4", PlaneQuantizer::train_uniform(4, 100, &train, dim, 1)),
        ("rabitq8", PlaneQuantizer::train_uniform(8, 100, &train, dim, 1)),
    ] {
        let quantizer = quantizer.unwrap();
        let dims = quantizer.layout.dims();
        let (mut found, mut best, mut rotated) = (0.0, 0.0, vec![0.0; dims.max(dim)]);
        quantizer.encode_rows(&rows, None, &mut PlaneScratch::default(), |row, encoded| {
            let centred: Vec<f32> =
                rows[row * dim..][..dim].iter().zip(&quantizer.mean).map(|(v, m)| v - m).collect();
            quantizer.rotation.apply(&centred, &mut QueryParts::default(), &mut rotated);
            found += cosine(encoded.point, &rotated[..dims]);
            best += greatest_cosine(&quantizer, &rotated[..dims]);
            for (d, (&level, &value)) in encoded.levels.iter().zip(encoded.point).enumerate() {
                assert_eq!((f32::from(level) - quantizer.layout.middle(d)) * quantizer.steps[d], value);
            }
        });
        assert!(found >= 0.9995 * best, "{name}: {found} of {best}");
    }
}

#[test]
fn levels_on_this_cpu_equal_those_of_the_scalar_functions() {
    let train = decaying(500, 60, 4);
    for bytes in [8, 20, 60] {
        let quantizer = PlaneQuantizer::train_allocated(bytes, &train, 60, 1, 2).unwrap();
        let mut grid = Grid::default();
        quantizer.fill_grid(&mut grid);
        let length = quantizer.layout.dims().next_multiple_of(LANES);
        for row in decaying(50, length, 5).chunks_exact_mut(length) {
            row[quantizer.layout.dims()..].fill(0.0);
            let inverses = [3.0, 2.0, 1.5, 1.2, 1.0, 0.7, 0.5, 0.01];
            assert_eq!(try_scales(&grid, row, inverses), try_scales_scalar(&grid, row, inverses));
            let mut points = [vec![0.0; length], vec![0.0; length]];
            let mut levels = [vec![0; length], vec![0; length]];
            let dot = round_at_scale(&grid, row, 1.2, &mut points[0], &mut levels[0]);
            assert_eq!(dot, round_at_scale_scalar(&grid, row, 1.2, &mut points[1], &mut levels[1]));
            assert_eq!(points[0], points[1]);
            assert_eq!(levels[0], levels[1]);
        }
    }
}

#[test]
fn rotations_of_a_batch_equal_those_of_single_rows() {
    for (dim, bytes) in [(3, 8), (20, 9), (33, 40), (70, 64), (130, 200)] {
        let train = decaying(200, dim, 4);
        let axes = PlaneQuantizer::train_allocated(bytes, &train, dim, 1, 2).unwrap();
        let random = PlaneQuantizer::train_uniform(1, 200, &train, dim, 1).unwrap();
        for quantizer in [axes, random] {
            let stride = quantizer.layout.dims().max(dim) + 5;
            for count in [1, 2, 7, 8, 19] {
                let rows = decaying(count, dim, 6);
                let mut together = vec![0.0; count * stride];
                quantizer.rotation.apply_rows(&rows, stride, &mut together);
                let mut alone = vec![0.0; stride];
                for (row, rotated) in rows.chunks_exact(dim).zip(together.chunks_exact(stride)) {
                    quantizer.rotation.apply_rows(row, stride, &mut alone);
                    assert_eq!(rotated, alone);
                    // The rotation of a query differs from that of a row only by rounding to whole numbers.
                    quantizer.rotation.apply(row, &mut QueryParts::default(), &mut alone);
                    let length = row.iter().map(|v| v * v).sum::<f32>().sqrt();
                    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-3 * length;
                    assert!(rotated.iter().zip(&alone).all(near), "{rotated:?} {alone:?}");
                    assert!(quantizer.rotation.is_of_bytes() || rotated == alone);
                }
            }
        }
    }
}

#[test]
fn tables_on_this_cpu_equal_those_of_the_scalar_function() {
    for (dim, code_bytes) in [(7, 8), (64, 16), (100, 32), (384, 96)] {
        let train = decaying(700, dim, 4);
        let quantizer = PlaneQuantizer::train_allocated(code_bytes, &train, dim, 1, 2).unwrap();
        for scale in [0.0, 1e-30, 1.0, 1e15, 1e30] {
            let query: Vec<f32> = decaying(1, dim, 9).iter().map(|value| value * scale).collect();
            let mut prepared = GroupQuery::default();
            quantizer.prepare_groups(true, &query, &mut prepared);
            let mut expected = prepared.clone();
            quantizer.fill_tables_by(&mut expected, super::group::sums_of);
            let tables_and_weights = |query: &GroupQuery| {
                let tables: Vec<[u8; 64]> = query.tables.iter().map(|quad| quad.0).collect();
                (tables, query.weights.clone())
            };
            let (found, expected) = (tables_and_weights(&prepared), tables_and_weights(&expected));
            assert_eq!(found, expected, "{dim} x {code_bytes}, {scale}");
        }
    }
}
