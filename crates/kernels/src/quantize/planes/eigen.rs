//! Eigenvectors of a symmetric matrix: Householder's reduction to a tridiagonal one, then QL steps with
//! implicit shifts (Golub & Van Loan, sections 8.3.1 and 8.3.3).
//!
//! Vectors are rows throughout, so that every inner loop accesses contiguous memory. Multiplications and
//! additions are not fused, so the results are the same with every instruction set.

#[cfg(target_arch = "x86_64")]
use crate::distance::Isa;

/// Most QL steps for an eigenvalue; the mean is below two.
const MOST_STEPS: usize = 60;

/// Returns the eigenvalues of the symmetric `n x n` matrix `a`, in no order, and their eigenvectors: row `i`
/// of the second result belongs to value `i`. Overwrites `a`.
pub(super) fn symmetric_eigen(a: &mut [f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    #[cfg(target_arch = "x86_64")]
    match Isa::best() {
        // SAFETY: the CPU has the instructions. (Bench: `code_table`, train.)
        Isa::Avx512 | Isa::Avx512Vnni => return unsafe { solve_avx512(a, n) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { solve_avx2(a, n) },
        _ => {}
    }
    solve(a, n)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn solve_avx512(a: &mut [f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    solve(a, n)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn solve_avx2(a: &mut [f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    solve(a, n)
}

#[inline(always)]
fn solve(a: &mut [f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    let Tridiagonal { mut diagonal, mut subdiagonal, rotation: mut vectors } = reduce(a, n);
    diagonalise(&mut diagonal, &mut subdiagonal, &mut vectors, n);
    (diagonal, vectors)
}

/// Returns a dot product. It has 16 partial sums, because the additions of one sum have to wait for each
/// other.
#[inline(always)]
pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0f64; 16];
    let (x_parts, x_tail) = x.as_chunks::<16>();
    let (y_parts, y_tail) = y.as_chunks::<16>();
    for (u, v) in x_parts.iter().zip(y_parts) {
        for l in 0..16 {
            sums[l] += u[l] * v[l];
        }
    }
    let tail: f64 = x_tail.iter().zip(y_tail).map(|(u, v)| u * v).sum();
    sums.iter().sum::<f64>() + tail
}

/// Adds `factor` times `x` to `y`.
#[inline(always)]
pub(super) fn add_scaled(y: &mut [f64], factor: f64, x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(u, v)| *u += factor * v);
}

/// A tridiagonal matrix `Q^T A Q`.
struct Tridiagonal {
    diagonal: Vec<f64>,
    subdiagonal: Vec<f64>,
    /// `Q^T`.
    rotation: Vec<f64>,
}

/// Reduces `A` to a tridiagonal matrix.
#[inline(always)]
fn reduce(a: &mut [f64], n: usize) -> Tridiagonal {
    let (mut diagonal, mut subdiagonal) = (vec![0.0; n], vec![0.0; n]);
    // Row k of `a` stores reflector k from column k + 1 on. The reflection is `1 - weight v v^T`.
    let mut weights = vec![0.0; n];
    let (mut v, mut w) = (vec![0.0; n], vec![0.0; n]);
    for k in 0..n {
        diagonal[k] = a[k * n + k];
        if k + 1 == n {
            break;
        }
        let (head, rest) = a.split_at_mut((k + 1) * n);
        let row = &mut head[k * n + k + 1..];
        let length = dot(row, row).sqrt();
        subdiagonal[k] = if row[0] > 0.0 { -length } else { length };
        if length == 0.0 {
            continue;
        }
        row[0] -= subdiagonal[k];
        let m = n - k - 1;
        let weight = 2.0 / dot(row, row);
        weights[k] = weight;
        let (v, w) = (&mut v[..m], &mut w[..m]);
        v.copy_from_slice(row);
        for (w, row) in w.iter_mut().zip(rest.chunks_exact(n)) {
            *w = weight * dot(&row[k + 1..], v);
        }
        let half = 0.5 * weight * dot(w, v);
        add_scaled(w, -half, v);
        for (i, row) in rest.chunks_exact_mut(n).enumerate() {
            let (from_v, from_w) = (v[i], w[i]);
            for (x, (v, w)) in row[k + 1..].iter_mut().zip(v.iter().zip(w.iter())) {
                *x -= from_v * w + from_w * v;
            }
        }
    }
    let mut rotation = vec![0.0; n * n];
    (0..n).for_each(|i| rotation[i * n + i] = 1.0);
    for k in (0..n.saturating_sub(1)).rev() {
        let v = &a[k * n + k + 1..(k + 1) * n];
        for row in rotation[(k + 1) * n..].chunks_exact_mut(n) {
            let row = &mut row[k + 1..];
            let projection = dot(row, v);
            add_scaled(row, -weights[k] * projection, v);
        }
    }
    Tridiagonal { diagonal, subdiagonal, rotation }
}

/// Makes QL steps until the subdiagonal is zero. Each plane rotation is also applied to two rows of
/// `vectors`.
#[inline(always)]
fn diagonalise(diagonal: &mut [f64], subdiagonal: &mut [f64], vectors: &mut [f64], n: usize) {
    for low in 0..n {
        for _ in 0..MOST_STEPS {
            let small =
                |m: usize| subdiagonal[m].abs() <= f64::EPSILON * (diagonal[m].abs() + diagonal[m + 1].abs());
            let high = (low..n - 1).find(|&m| small(m)).unwrap_or(n - 1);
            if high == low {
                break;
            }
            step(diagonal, subdiagonal, vectors, n, low, high);
        }
    }
}

/// Makes one QL step on the block from `low` to `high`, with Wilkinson's shift.
#[inline(always)]
fn step(
    diagonal: &mut [f64],
    subdiagonal: &mut [f64],
    vectors: &mut [f64],
    n: usize,
    low: usize,
    high: usize,
) {
    let slope = (diagonal[low + 1] - diagonal[low]) / (2.0 * subdiagonal[low]);
    let shift = slope + slope.hypot(1.0).copysign(slope);
    let mut g = diagonal[high] - diagonal[low] + subdiagonal[low] / shift;
    let (mut sine, mut cosine, mut moved) = (1.0, 1.0, 0.0);
    for i in (low..high).rev() {
        let (f, b) = (sine * subdiagonal[i], cosine * subdiagonal[i]);
        let r = f.hypot(g);
        subdiagonal[i + 1] = r;
        if r == 0.0 {
            // The block splits here. The next step continues with its lower part.
            diagonal[i + 1] -= moved;
            subdiagonal[high] = 0.0;
            return;
        }
        (sine, cosine) = (f / r, g / r);
        g = diagonal[i + 1] - moved;
        let r = (diagonal[i] - g) * sine + 2.0 * cosine * b;
        moved = sine * r;
        diagonal[i + 1] = g + moved;
        g = cosine * r - b;
        let (first, second) = vectors[i * n..(i + 2) * n].split_at_mut(n);
        for (x, y) in first.iter_mut().zip(second) {
            (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
        }
    }
    diagonal[low] -= moved;
    subdiagonal[low] = g;
    subdiagonal[high] = 0.0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmeans::random::Random;

    fn check(a: &[f64], n: usize) {
        let (values, vectors) = symmetric_eigen(&mut a.to_vec(), n);
        let scale = a.iter().fold(1e-300, |m: f64, v| m.max(v.abs()));
        for i in 0..n {
            let v = &vectors[i * n..(i + 1) * n];
            for j in 0..n {
                let product = dot(v, &vectors[j * n..(j + 1) * n]);
                let wanted = if i == j { 1.0 } else { 0.0 };
                assert!((product - wanted).abs() < 1e-10, "{n}: {i} {j}: {product}");
                let image = dot(&a[j * n..(j + 1) * n], v);
                assert!((image - values[i] * v[j]).abs() < 1e-9 * scale * n as f64, "{n}: value {i}");
            }
        }
    }

    #[test]
    fn eigenvectors_are_orthonormal_and_diagonalise_the_matrix() {
        let mut random = Random::new(5);
        for n in [1, 2, 3, 5, 17, 40, 90] {
            let mut a = vec![0.0; n * n];
            for i in 0..n {
                for j in 0..=i {
                    (a[i * n + j], a[j * n + i]) = {
                        let v = random.normal() * 10f64.powi((i % 7) as i32 - 3);
                        (v, v)
                    };
                }
            }
            check(&a, n);
            // Zero, with equal eigenvalues, and of rank one.
            check(&vec![0.0; n * n], n);
            check(&(0..n * n).map(|i| if i % (n + 1) == 0 { 2.0 } else { 0.0 }).collect::<Vec<_>>(), n);
            check(&vec![3.0; n * n], n);
        }
    }
}
