use super::*;
use half::f16;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Relative to the sum of the magnitudes of the terms: sixteen or so roundings of 2^-24.
const TOLERANCE: f64 = 2e-6;
const LONGEST: usize = 1100;

fn random_bytes(element: Element, dim: usize, random: &mut SmallRng) -> Vec<u8> {
    match element {
        Element::F32 => (0..dim).flat_map(|_| random.random_range(-1.0_f32..1.0).to_le_bytes()).collect(),
        Element::F16 => {
            (0..dim).flat_map(|_| f16::from_f32(random.random_range(-1.0_f32..1.0)).to_le_bytes()).collect()
        }
        Element::U8 | Element::I8 => (0..dim).map(|_| random.random()).collect(),
    }
}

fn as_f64(element: Element, bytes: &[u8]) -> Vec<f64> {
    match element {
        Element::F32 => {
            bytes.chunks_exact(4).map(|x| f64::from(f32::from_le_bytes([x[0], x[1], x[2], x[3]]))).collect()
        }
        Element::F16 => bytes.chunks_exact(2).map(|x| f16::from_le_bytes([x[0], x[1]]).to_f64()).collect(),
        Element::U8 => bytes.iter().map(|&x| f64::from(x)).collect(),
        Element::I8 => bytes.iter().map(|&x| f64::from(x as i8)).collect(),
    }
}

/// The distance in 64 bits, and the magnitude that its error is relative to.
fn reference(metric: Metric, a: &[f64], b: &[f64]) -> (f64, f64) {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    match metric {
        Metric::L2 => {
            let sum = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum();
            (sum, sum)
        }
        Metric::InnerProduct => (-product(a, b), a.iter().zip(b).map(|(x, y)| (x * y).abs()).sum()),
        Metric::Cosine => {
            let lengths = (product(a, a) * product(b, b)).sqrt();
            if lengths == 0.0 {
                return (1.0, 1.0);
            }
            (1.0 - product(a, b) / lengths, 1.0)
        }
    }
}

fn check(distance: f32, expected: (f64, f64), what: impl Fn() -> String) {
    let error = (f64::from(distance) - expected.0).abs();
    assert!(error <= TOLERANCE * expected.1 + 1e-30, "{}: {distance}, not {}", what(), expected.0);
}

fn available() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

#[test]
fn every_length_and_alignment_agrees_with_64_bits() {
    let mut random = SmallRng::seed_from_u64(1);
    for element in Element::ALL {
        let a = random_bytes(element, LONGEST + 16, &mut random);
        let b = random_bytes(element, LONGEST + 16, &mut random);
        for dim in 1..=LONGEST {
            // Starts that are aligned to nothing, floats included.
            let (mut left, mut right) = (vec![0; dim % 7], vec![0; dim % 13]);
            left.extend_from_slice(&a[..dim * element.size()]);
            right.extend_from_slice(&b[..dim * element.size()]);
            let (left, right) = (&left[dim % 7..], &right[dim % 13..]);
            let (x, y) = (as_f64(element, left), as_f64(element, right));
            for metric in Metric::ALL {
                let expected = reference(metric, &x, &y);
                for isa in available() {
                    let Some(distance) = Distance::with_isa(isa, element, metric, dim) else {
                        continue;
                    };
                    check(distance.between(left, right), expected, || format!("{distance:?}"));
                }
            }
        }
    }
}
