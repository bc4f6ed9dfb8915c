//! Sums over rows in fixed lanes, compiled for the instruction set of the machine.
//!
//! Products and sums are never fused, and lanes are added in one order, so all instruction sets give the same
//! bits. The second copy of the code is there for speed: grouping a million vectors of 128 dimensions takes
//! half the time of the portable code (`group` in the stage times that a build reports).

/// Returns the sum of the products of two rows of equal length.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as checked above.
        return unsafe { dot_avx2(a, b) };
    }
    dot_lanes(a, b, |a| a)
}

/// Returns the sum of the products of a row of unsigned bytes and `normal`, of equal length.
pub(crate) fn dot_u8(row: &[u8], normal: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as checked above.
        return unsafe { dot_u8_avx2(row, normal) };
    }
    dot_lanes(row, normal, f32::from)
}

/// Returns the sum of the squared differences of two rows of equal length.
pub(super) fn squared(a: &[f32], b: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as checked above.
        return unsafe { squared_avx2(a, b) };
    }
    squared_lanes(a, b)
}

/// Adds `row` to `sum`.
pub(super) fn add(sum: &mut [f32], row: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as checked above.
        return unsafe { add_avx2(sum, row) };
    }
    add_each(sum, row);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(a: &[f32], b: &[f32]) -> f32 {
    dot_lanes(a, b, |a| a)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_u8_avx2(row: &[u8], normal: &[f32]) -> f32 {
    dot_lanes(row, normal, f32::from)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn squared_avx2(a: &[f32], b: &[f32]) -> f32 {
    squared_lanes(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_avx2(sum: &mut [f32], row: &[f32]) {
    add_each(sum, row);
}

#[inline(always)]
fn add_each(sum: &mut [f32], row: &[f32]) {
    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
}

#[inline(always)]
fn dot_lanes<T: Copy>(a: &[T], b: &[f32], value: impl Fn(T) -> f32) -> f32 {
    let (a_lanes, a_rest) = a.as_chunks::<16>();
    let (b_lanes, b_rest) = b.as_chunks::<16>();
    let mut sums = [0.0_f32; 16];
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for lane in 0..16 {
            sums[lane] += value(a[lane]) * b[lane];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| value(*a) * b).sum::<f32>()
}

#[inline(always)]
fn squared_lanes(a: &[f32], b: &[f32]) -> f32 {
    let square = |a: f32, b: f32| (a - b) * (a - b);
    let (a_lanes, a_rest) = a.as_chunks::<16>();
    let (b_lanes, b_rest) = b.as_chunks::<16>();
    let mut sums = [0.0_f32; 16];
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for lane in 0..16 {
            sums[lane] += square(a[lane], b[lane]);
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| square(*a, *b)).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_instruction_sets_give_the_same_bits() {
        for dim in [1, 15, 16, 17, 100, 128] {
            let bytes: Vec<u8> = (0..dim).map(|i| (i * 37 % 251) as u8).collect();
            let floats: Vec<f32> = bytes.iter().map(|b| f32::from(*b)).collect();
            let normal: Vec<f32> = (0..dim).map(|i| (i as f32 * 0.7).sin()).collect();
            let expected = dot_lanes(&floats, &normal, |a| a);
            assert_eq!(dot(&floats, &normal).to_bits(), expected.to_bits(), "{dim}");
            assert_eq!(dot_u8(&bytes, &normal).to_bits(), expected.to_bits(), "{dim}");
            assert_eq!(
                squared(&floats, &normal).to_bits(),
                squared_lanes(&floats, &normal).to_bits(),
                "{dim}"
            );
            let mut sum = normal.clone();
            add(&mut sum, &floats);
            assert!(sum.iter().zip(normal.iter().zip(&floats)).all(|(s, (a, b))| *s == a + b));
        }
    }
}
