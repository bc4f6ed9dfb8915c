//! Clustered data for the tests of indexes.

use bathyal_kernels::Element;
use bathyal_vectors::VectorFile;
use half::{bf16, f16};
use rand::{Rng, SeedableRng};

/// Returns `count x dim` clustered vectors. For bits, `dim` is a number of bytes, because many vectors of few
/// bits are equally near.
pub fn vectors(element: Element, count: usize, dim: usize, seed: u64) -> VectorFile {
    let dim = if element == Element::B1 { 8 * dim } else { dim };
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let mut shape = rand::rngs::StdRng::seed_from_u64(17);
    let centres: Vec<f32> = (0..20 * dim).map(|_| shape.random_range(20.0..100.0)).collect();
    let mut rows = Vec::new();
    for _ in 0..count {
        let centre = random.random_range(0..20);
        for d in 0..dim {
            let value: f32 = centres[centre * dim + d] + random.random_range(-18.0..18.0);
            match element {
                Element::F32 => rows.extend_from_slice(&(value - 60.0).to_le_bytes()),
                Element::F16 => rows.extend_from_slice(&f16::from_f32(value - 60.0).to_le_bytes()),
                Element::U8 => rows.push(value as u8),
                Element::I8 => rows.push((value - 60.0) as i8 as u8),
                Element::Bf16 => rows.extend_from_slice(&bf16::from_f32(value - 60.0).to_le_bytes()),
                Element::B1 if d % 8 == 0 => rows.push(u8::from(value > 60.0) << 7),
                Element::B1 => *rows.last_mut().unwrap() |= u8::from(value > 60.0) << (7 - d % 8),
            }
        }
    }
    VectorFile::from_rows(element, dim, rows).unwrap()
}
