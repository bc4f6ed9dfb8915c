//! A larger set made from a real one by perturbing its vectors: for builds larger than memory, where a real set of
//! that size is at hand for nobody.
//!
//! Every vector is written `copies` times, each component of each copy moved by a whole number drawn evenly from
//! `-noise` to `noise` and clipped to 0 to 255. The copies of a vector lie close to it and to each other, so the set is
//! denser than real data of its size would be: it shows whether a build keeps within its memory and loses no recall by
//! that, and says nothing about recall on real data. Name files made with it accordingly.

use bathyal_kernels::Element;
use bathyal_vectors::{VectorFile, VectorWriter};
use std::error::Error;
use std::path::PathBuf;

/// Rows that are written between two releases of what was read.
const ROWS_AT_ONCE: usize = 65_536;

#[derive(Debug, clap::Args)]
pub(crate) struct PerturbArguments {
    /// Vectors of u8
    source: PathBuf,
    /// File to write, such as perturbed.u8bin
    output: PathBuf,
    /// Copies of each vector
    #[arg(long, default_value_t = 10)]
    copies: usize,
    /// Most units that a component is moved by
    #[arg(long, default_value_t = 3)]
    noise: u8,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Numbers that look random (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Appends a perturbed copy of `row` to `out`.
fn perturb(row: &[u8], noise: u8, numbers: &mut Numbers, out: &mut Vec<u8>) {
    let (low, width) = (i32::from(noise), u64::from(noise) * 2 + 1);
    for values in row.chunks(4) {
        let mut random = numbers.next();
        out.extend(values.iter().map(|value| {
            // 16 bits a component: the highest product of them and the width says which step.
            let step = (((random & 0xffff) * width) >> 16) as i32;
            random >>= 16;
            (i32::from(*value) + step - low).clamp(0, 255) as u8
        }));
    }
}

pub(crate) fn run(arguments: &PerturbArguments) -> Result<bool, Box<dyn Error>> {
    let source = VectorFile::open(&arguments.source)?;
    if source.element() != Element::U8 {
        return Err(format!("{}: holds {}, not u8", arguments.source.display(), source.element()).into());
    }
    let mut writer = VectorWriter::create(&arguments.output, Element::U8, source.dim())?;
    let mut numbers = Numbers(arguments.seed);
    let mut rows = Vec::new();
    for copy in 0..arguments.copies {
        for first in (0..source.count()).step_by(ROWS_AT_ONCE) {
            rows.clear();
            for row in first..source.count().min(first + ROWS_AT_ONCE) {
                perturb(source.row(row), arguments.noise, &mut numbers, &mut rows);
            }
            writer.push_rows(&rows)?;
        }
        eprintln!("copy {} of {}", copy + 1, arguments.copies);
    }
    writer.finish()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_move_a_little_and_stay_bytes() {
        let row = [0, 1, 100, 254, 255, 7, 8];
        let (mut numbers, mut seen) = (Numbers(3), [0; 5]);
        for _ in 0..500 {
            let mut out = Vec::new();
            perturb(&row, 2, &mut numbers, &mut out);
            assert!(out.len() == row.len() && out.iter().zip(&row).all(|(a, b)| a.abs_diff(*b) <= 2));
            seen[usize::from(out[2] - 98)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}
