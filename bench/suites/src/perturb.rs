//! Makes a larger set from a real one by perturbing its vectors. It serves builds larger than memory at sizes
//! for which no real set is available.
//!
//! Every vector is written `copies` times. Each component of each copy changes by an integer drawn uniformly
//! from `-noise` to `noise`, and is clipped to 0 to 255. With `vectors` the last copy of the set may be
//! incomplete; its vectors are evenly spaced in the set. The copies of a vector are close to it and to each
//! other, so the set is denser than real data of its size. It shows whether a build stays within its memory
//! limit without losing recall, but nothing about recall on real data. Name files made with it accordingly.

use crate::numbers::Numbers;
use bathyal_kernels::Element;
use bathyal_vectors::{VectorFile, VectorWriter};
use std::error::Error;
use std::path::PathBuf;

/// Rows per write.
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
    /// Vectors to write, instead of whole copies of the set
    #[arg(long, conflicts_with = "copies")]
    vectors: Option<usize>,
    /// Largest change of a component
    #[arg(long, default_value_t = 3)]
    noise: u8,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Appends a perturbed copy of `row` to `out`.
fn perturb(row: &[u8], noise: u8, numbers: &mut Numbers, out: &mut Vec<u8>) {
    let (low, width) = (i32::from(noise), u64::from(noise) * 2 + 1);
    for values in row.chunks(4) {
        let mut random = numbers.next();
        out.extend(values.iter().map(|value| {
            // 16 bits per component: the high bits of their product with the width are the step.
            let step = (((random & 0xffff) * width) >> 16) as i32;
            random >>= 16;
            (i32::from(*value) + step - low).clamp(0, 255) as u8
        }));
    }
}

pub(crate) fn run(arguments: &PerturbArguments) -> Result<bool, Box<dyn Error>> {
    let source = VectorFile::open(&arguments.source)?;
    if source.element() != Element::U8 {
        return Err(format!(
            "{}: holds {} vectors, but u8 is needed",
            arguments.source.display(),
            source.element()
        )
        .into());
    }
    let mut writer = VectorWriter::create(&arguments.output, Element::U8, source.dim())?;
    let mut numbers = Numbers::new(arguments.seed);
    let count = source.count();
    let vectors = arguments.vectors.unwrap_or(arguments.copies * count);
    let mut rows = Vec::new();
    for first in (0..vectors).step_by(count) {
        let rows_of_copy = count.min(vectors - first);
        for begin in (0..rows_of_copy).step_by(ROWS_AT_ONCE) {
            rows.clear();
            for row in begin..rows_of_copy.min(begin + ROWS_AT_ONCE) {
                perturb(source.row(row * count / rows_of_copy), arguments.noise, &mut numbers, &mut rows);
            }
            writer.push_rows(&rows)?;
        }
        eprintln!("{} of {vectors} vectors", first + rows_of_copy);
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
        let (mut numbers, mut seen) = (Numbers::new(3), [0; 5]);
        for _ in 0..500 {
            let mut out = Vec::new();
            perturb(&row, 2, &mut numbers, &mut out);
            assert!(out.len() == row.len() && out.iter().zip(&row).all(|(a, b)| a.abs_diff(*b) <= 2));
            seen[usize::from(out[2] - 98)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}
