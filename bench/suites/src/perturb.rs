//! A larger set made from a real one by perturbing its vectors: for builds larger than memory, where a real set of
//! that size is at hand for nobody.
//!
//! Every vector is written `copies` times, each component of each copy moved by a whole number drawn evenly from
//! `-noise` to `noise` and clipped to 0 to 255. Where `vectors` says how many are wanted, the last copy is one of vectors
//! that lie evenly over the set. The copies of a vector lie close to it and to each other, so the set is
//! denser than real data of its size would be: it shows whether a build keeps within its memory and loses no recall by
//! that, and says nothing about recall on real data. Name files made with it accordingly.

use crate::numbers::Numbers;
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
    /// Vectors to write, instead of whole copies of the set
    #[arg(long, conflicts_with = "copies")]
    vectors: Option<usize>,
    /// Most units that a component is moved by
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
    let mut numbers = Numbers::new(arguments.seed);
    let count = source.count();
    let vectors = arguments.vectors.unwrap_or(arguments.copies * count);
    let mut rows = Vec::new();
    for first in (0..vectors).step_by(count) {
        let wanted = count.min(vectors - first);
        for begin in (0..wanted).step_by(ROWS_AT_ONCE) {
            rows.clear();
            for row in begin..wanted.min(begin + ROWS_AT_ONCE) {
                perturb(source.row(row * count / wanted), arguments.noise, &mut numbers, &mut rows);
            }
            writer.push_rows(&rows)?;
        }
        eprintln!("{} of {vectors} vectors", first + wanted);
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
