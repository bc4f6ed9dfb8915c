//! Principal components: the two directions in which vectors differ most, for a map of them.

use crate::failure::Refusal;
use bathyal_console::Kind;
use bathyal_tier::Control;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The most rounds of the iteration. Directions that are not settled by then differ little in variance, and
/// any of them shows as much.
const MOST_ROUNDS: usize = 60;
/// A change of the directions (1 - cosine) below which the iteration ends: not visible on a map.
const SETTLED: f64 = 1e-7;

/// Points of vectors in two dimensions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Projected {
    /// One for each vector, in their order.
    pub(crate) points: Vec<[f32; 2]>,
    /// Share of the variance along each of the two directions.
    pub(crate) shares: [f64; 2],
}

/// Projects `rows` (`n x dim`, row-major) on their first two principal components. Replaces `rows` by their
/// differences from the mean, divided by the largest of them.
///
/// # Errors
/// A refusal if `control` cancels the work.
pub(crate) fn project(rows: &mut [f32], dim: usize, control: Control<'_>) -> Result<Projected, Refusal> {
    let count = rows.len() / dim.max(1);
    if count == 0 {
        return Ok(Projected { points: Vec::new(), shares: [0.0; 2] });
    }
    center(rows, dim);
    let total: f64 = rows.iter().map(|value| f64::from(*value).powi(2)).sum();
    let mut axes = [start(dim, 1), start(dim, 2)];
    orthonormalize(&mut axes);
    let mut shares = [0.0; 2];
    for _ in 0..MOST_ROUNDS {
        check(control)?;
        let mut next = [vec![0.0; dim], vec![0.0; dim]];
        for row in rows.chunks_exact(dim) {
            for (axis, next) in axes.iter().zip(&mut next) {
                let along = dot(axis, row);
                next.iter_mut().zip(row).for_each(|(sum, value)| *sum += along * f64::from(*value));
            }
        }
        shares = [0, 1].map(|at| if total > 0.0 { length(&next[at]) / total } else { 0.0 });
        orthonormalize(&mut next);
        let same = |at: usize| next[at].iter().zip(&axes[at]).map(|(a, b)| a * b).sum::<f64>();
        let settled = (0..2).all(|at| 1.0 - same(at).abs() < SETTLED);
        axes = next;
        if settled {
            break;
        }
    }
    axes.iter_mut().for_each(|axis| point_up(axis));
    let points = rows.chunks_exact(dim).map(|row| [0, 1].map(|at| dot(&axes[at], row) as f32));
    Ok(Projected { points: points.collect(), shares })
}

fn check(control: Control<'_>) -> Result<(), Refusal> {
    if control.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
        return Err(Refusal::new(Kind::Cancelled, "cancelled"));
    }
    if control.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Err(Refusal::new(Kind::Timeout, "the deadline passed before the map was done"));
    }
    Ok(())
}

/// Subtracts the mean, and divides by the largest magnitude, so that squares of any finite values are finite.
fn center(rows: &mut [f32], dim: usize) {
    let count = (rows.len() / dim) as f64;
    let mut mean = vec![0.0_f64; dim];
    for row in rows.chunks_exact(dim) {
        mean.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value) / count);
    }
    let largest = rows.chunks_exact(dim).flat_map(|row| row.iter().zip(&mean));
    let largest = largest.map(|(value, mean)| (f64::from(*value) - mean).abs()).fold(0.0, f64::max);
    let scale = if largest > 0.0 { 1.0 / largest } else { 0.0 };
    for row in rows.chunks_exact_mut(dim) {
        row.iter_mut()
            .zip(&mean)
            .for_each(|(value, mean)| *value = ((f64::from(*value) - mean) * scale) as f32);
    }
}

/// Returns a direction that no data is likely to be orthogonal to; always the same one.
fn start(dim: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    };
    (0..dim).map(|_| next()).collect()
}

fn dot(axis: &[f64], row: &[f32]) -> f64 {
    axis.iter().zip(row).map(|(a, b)| a * f64::from(*b)).sum()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum::<f64>().sqrt()
}

fn orthonormalize([first, second]: &mut [Vec<f64>; 2]) {
    normalize(first);
    let along: f64 = first.iter().zip(second.iter()).map(|(a, b)| a * b).sum();
    second.iter_mut().zip(first.iter()).for_each(|(value, axis)| *value -= along * axis);
    normalize(second);
}

/// Gives a vector the length 1, or 0 if it is too short to have a direction.
fn normalize(vector: &mut [f64]) {
    let length = length(vector);
    let scale = if length > f64::MIN_POSITIVE { 1.0 / length } else { 0.0 };
    vector.iter_mut().for_each(|value| *value *= scale);
}

/// Makes the component of the largest magnitude positive, so that a map is not mirrored from call to call.
fn point_up(axis: &mut [f64]) {
    let largest = axis.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
    if largest < 0.0 {
        axis.iter_mut().for_each(|value| *value = -*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_directions_of_most_variance_are_found() {
        // Points on a rectangle of 20 x 4 that is turned by 30 degrees, in a third dimension of noise.
        let (sin, cos) = (0.5_f64, 0.75_f64.sqrt());
        let mut rows = Vec::new();
        for x in -10..=10 {
            for y in -2..=2 {
                let (x, y) = (f64::from(x), f64::from(y));
                rows.extend([x * cos - y * sin + 7.0, x * sin + y * cos, 0.001 * (x * y)].map(|v| v as f32));
            }
        }
        let Projected { points, shares } = project(&mut rows, 3, Control::default()).unwrap();
        assert_eq!(points.len(), 21 * 5);
        let spread = |at: usize| {
            let values = points.iter().map(|point| point[at]);
            values.clone().fold(f32::MIN, f32::max) - values.fold(f32::MAX, f32::min)
        };
        assert!((spread(0) / spread(1) - 5.0).abs() < 0.01, "{} {}", spread(0), spread(1));
        assert!(shares[0] > 0.9 && shares[1] > 0.03 && shares[0] + shares[1] > 0.999, "{shares:?}");
    }

    #[test]
    fn odd_sets_have_a_map() {
        let map = |rows: &[f32], dim| project(&mut rows.to_vec(), dim, Control::default()).unwrap();
        assert_eq!(map(&[], 3).points.len(), 0);
        assert_eq!(map(&[1.0, 2.0, 3.0], 3).points, [[0.0, 0.0]]);
        assert_eq!(map(&[4.0; 12], 3), Projected { points: vec![[0.0, 0.0]; 4], shares: [0.0; 2] });
        let one = map(&[1.0, 2.0, 4.0], 1);
        assert!(one.points.iter().all(|point| point[1] == 0.0) && one.shares[0] > 0.999, "{one:?}");
        for scale in [1e19, 1e-30] {
            let far = map(&[scale, 0.0, 0.0, scale, -scale, 0.0], 2);
            assert!(far.points.iter().flatten().all(|value| value.is_finite()), "{far:?}");
            assert!(far.shares[0] > 0.5, "{far:?}");
        }
    }

    #[test]
    fn cancelled_work_ends() {
        let cancel = AtomicBool::new(true);
        let control = Control { cancel: Some(&cancel), deadline: None };
        assert_eq!(project(&mut [0.0, 1.0], 1, control).unwrap_err().kind, Kind::Cancelled);
        let control = Control { cancel: None, deadline: Some(Instant::now()) };
        assert_eq!(project(&mut [0.0, 1.0], 1, control).unwrap_err().kind, Kind::Timeout);
    }
}
