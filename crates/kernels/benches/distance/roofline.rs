//! Peak rates of this core: bytes read and multiply-adds computed in a nanosecond.

use crate::clock_ns;
use std::hint::black_box;

/// Returns the read bandwidth in GB/s: the best of a few passes over `array`.
pub fn read_bandwidth(array: &[u8]) -> f64 {
    (0..5)
        .map(|_| {
            let start = clock_ns();
            black_box(sum(array));
            array.len() as f64 / (clock_ns() - start) as f64
        })
        .fold(0.0, f64::max)
}

#[cfg(target_arch = "x86_64")]
fn sum(array: &[u8]) -> u64 {
    #[target_feature(enable = "avx2")]
    fn wide(array: &[u8]) -> u64 {
        lanes(array)
    }
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        unsafe { wide(array) }
    } else {
        lanes(array)
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn sum(array: &[u8]) -> u64 {
    lanes(array)
}

#[inline(always)]
fn lanes(array: &[u8]) -> u64 {
    let mut sums = [0_u64; 16];
    for line in array.as_chunks::<128>().0 {
        for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// Rounds of a peak loop, which take some milliseconds.
const ROUNDS: usize = 1 << 20;
/// Number of independent sums: more than latency times issue width.
const SUMS: usize = 12;

/// Returns the multiply-adds a nanosecond of `work`, which computes `components` of them: the best of a few
/// runs.
fn rate(components: usize, work: impl Fn()) -> f64 {
    (0..9)
        .map(|_| {
            let start = clock_ns();
            work();
            components as f64 / (clock_ns() - start) as f64
        })
        .fold(0.0, f64::max)
}

/// Returns the peak rate of float multiply-adds a nanosecond.
pub fn float_components_a_nanosecond() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has AVX-512.
            return rate(ROUNDS * SUMS * 16, || unsafe { x86::fma_512() });
        }
        if std::is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has FMA.
            return rate(ROUNDS * SUMS * 8, || unsafe { x86::fma_256() });
        }
    }
    rate(ROUNDS * SUMS * 4, plain)
}

/// Returns the peak rate of byte multiply-adds a nanosecond.
pub fn byte_components_a_nanosecond() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512vnni") {
            // SAFETY: the CPU has AVX-512 VNNI.
            return rate(ROUNDS * SUMS * 64, || unsafe { x86::dpbusd_512() });
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            return rate(ROUNDS * SUMS * 16, || unsafe { x86::madd_256() });
        }
    }
    rate(ROUNDS * SUMS * 4, plain)
}

/// Computes multiply-adds in four lanes with the code that the compiler generates, for CPUs without an ISA
/// here.
fn plain() {
    let mut sums = [[0.0_f32; 4]; SUMS];
    let factor = black_box([0.5_f32; 4]);
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            for (sum, factor) in sum.iter_mut().zip(factor) {
                *sum = *sum * factor + factor;
            }
        }
        black_box(&mut sums);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ROUNDS, SUMS};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    macro_rules! peak {
        ($name:ident, $feature:literal, $zero:expr, $one:expr, $step:expr) => {
            #[target_feature(enable = $feature)]
            pub fn $name() {
                let factor = black_box($one);
                let mut sums = [$zero; SUMS];
                for _ in 0..ROUNDS {
                    for sum in &mut sums {
                        *sum = $step(*sum, factor);
                    }
                }
                black_box(sums);
            }
        };
    }

    peak!(fma_512, "avx512f", _mm512_setzero_ps(), _mm512_set1_ps(0.5), |sum, factor| _mm512_fmadd_ps(
        sum, factor, factor
    ));
    peak!(fma_256, "avx2,fma", _mm256_setzero_ps(), _mm256_set1_ps(0.5), |sum, factor| _mm256_fmadd_ps(
        sum, factor, factor
    ));
    // The factor depends on the sum. Otherwise the compiler would multiply once for all rounds.
    peak!(dpbusd_512, "avx512f,avx512vnni", _mm512_setzero_si512(), _mm512_set1_epi8(1), |sum, factor| {
        _mm512_dpbusd_epi32(sum, sum, factor)
    });
    peak!(madd_256, "avx2", _mm256_setzero_si256(), _mm256_set1_epi16(1), |sum, factor| _mm256_add_epi32(
        factor,
        _mm256_madd_epi16(sum, factor)
    ));
}
