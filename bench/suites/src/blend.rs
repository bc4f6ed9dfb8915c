//! Makes a larger set from a real one by blending near vectors, without near copies. It serves measurements
//! of growth at sizes for which no real set is available.
//!
//! A new vector is `(x + y + z - w) / 2`, where `x` is a vector of the set and the others are three different
//! near neighbours of `x`. The weights 1/2, 1/2, 1/2 and -1/2 add up to 1, and so do their squares: if near
//! vectors are drawn independently around their mean, a blend has their mean and their covariance, so it is
//! as far from a query as they are. (Interpolation has a smaller sum of squares and contracts the set toward
//! the middle. Noise has a larger sum and moves vectors away from the data.) Two blends of one `x` are some
//! 0.87 times as far apart as the blended vectors, and a neighbourhood of 32 has 14,880 blends. Components
//! are clipped to 0 to 255, and halves are rounded up or down at random.
//!
//! `x` runs through the set in strides that visit every vector once before any vector twice. So the first
//! vectors of a long stream are a shorter stream of the same seed, and a fair sample of the long one.

use crate::numbers::Numbers;
use bathyal_kernels::Element;
use bathyal_vectors::{IdFile, VectorFile, VectorWriter};
use std::error::Error;
use std::path::PathBuf;

/// Vectors per write.
const ROWS_AT_ONCE: usize = 65_536;
/// Neighbours of `x` in a blend.
const OTHERS: usize = 3;
/// Stride of `x` as a share of the set (the golden ratio spreads any number of strides evenly).
const STRIDE: f64 = 0.618_033_988_75;

#[derive(Debug, clap::Args)]
pub(crate) struct BlendArguments {
    /// Vectors of u8
    source: PathBuf,
    /// Near neighbours of each of these vectors, with or without the vector itself (.ibin, .ivecs): `bathyal
    /// search INDEX SOURCE -k 33 --output FILE`
    neighbors: PathBuf,
    /// File to write, such as blended.u8bin
    output: PathBuf,
    /// Vectors to write
    #[arg(long)]
    vectors: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Appends the blend of four rows to `out`: half of the sum of the first three minus the fourth.
fn blend(rows: [&[u8]; OTHERS + 1], numbers: &mut Numbers, out: &mut Vec<u8>) {
    let [first, second, third, fourth] = rows;
    let mut random = 0;
    for (at, (((x, y), z), w)) in first.iter().zip(second).zip(third).zip(fourth).enumerate() {
        if at % 64 == 0 {
            random = numbers.next();
        }
        let sum = i16::from(*x) + i16::from(*y) + i16::from(*z) - i16::from(*w) + (random & 1) as i16;
        random >>= 1;
        out.push((sum >> 1).clamp(0, 255) as u8);
    }
}

/// Draws three different neighbours of `row`, without `row` itself.
fn draw(row: usize, neighbors: &[u32], numbers: &mut Numbers) -> [usize; OTHERS] {
    let mut drawn = [row; OTHERS];
    for at in 0..OTHERS {
        while drawn[at] == row || drawn[..at].contains(&drawn[at]) {
            drawn[at] = neighbors[numbers.below(neighbors.len())] as usize;
        }
    }
    drawn
}

/// Returns the least stride from [`STRIDE`] of `count` on that has no common divisor with `count`.
fn stride(count: usize) -> usize {
    let divisor = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let first = (count as f64 * STRIDE) as usize;
    (first.max(1)..).find(|stride| divisor(*stride, count) == 1).unwrap_or(1)
}

pub(crate) fn run(arguments: &BlendArguments) -> Result<bool, Box<dyn Error>> {
    let source = VectorFile::open(&arguments.source)?;
    let neighbors = IdFile::open(&arguments.neighbors)?;
    check(arguments, &source, &neighbors)?;
    let mut writer = VectorWriter::create(&arguments.output, Element::U8, source.dim())?;
    let mut numbers = Numbers::new(arguments.seed);
    let (count, stride) = (source.count(), stride(source.count()));
    let (mut row, mut rows) = (0, Vec::new());
    for first in (0..arguments.vectors).step_by(ROWS_AT_ONCE) {
        rows.clear();
        for _ in first..arguments.vectors.min(first + ROWS_AT_ONCE) {
            let [second, third, fourth] =
                draw(row, neighbors.ids(row), &mut numbers).map(|row| source.row(row));
            blend([source.row(row), second, third, fourth], &mut numbers, &mut rows);
            row = (row + stride) % count;
        }
        writer.push_rows(&rows)?;
    }
    writer.finish()?;
    Ok(true)
}

/// Refuses files that cannot be blended, before any work.
fn check(arguments: &BlendArguments, source: &VectorFile, neighbors: &IdFile) -> Result<(), Box<dyn Error>> {
    let (path, others) = (arguments.source.display(), arguments.neighbors.display());
    if source.element() != Element::U8 {
        return Err(format!("{path}: holds {} vectors, but u8 is needed", source.element()).into());
    }
    if neighbors.queries() != source.count() {
        let (held, count) = (neighbors.queries(), source.count());
        return Err(format!("{others}: holds neighbours of {held} vectors, but {path} has {count}").into());
    }
    neighbors.check_ids(source.count())?;
    for row in 0..source.count() {
        let mut different = [row; OTHERS];
        let mut found = 0;
        for id in neighbors.ids(row) {
            if found < OTHERS && *id as usize != row && !different.contains(&(*id as usize)) {
                different[found] = *id as usize;
                found += 1;
            }
        }
        if found < OTHERS {
            return Err(format!(
                "{others}: vector {row} has {found} neighbours besides itself, but {OTHERS} are needed"
            )
            .into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_visit_every_vector_once() {
        for count in [1, 2, 3, 10, 97, 1000] {
            let stride = stride(count);
            let mut seen = vec![false; count];
            let mut row = 0;
            for _ in 0..count {
                assert!(!std::mem::replace(&mut seen[row], true), "{count} in strides of {stride}");
                row = (row + stride) % count;
            }
        }
    }

    #[test]
    fn draws_are_three_different_neighbours() {
        let mut numbers = Numbers::new(5);
        let mut seen = [0; 5];
        for _ in 0..600 {
            let mut drawn = draw(2, &[2, 0, 1, 3, 4, 0], &mut numbers);
            drawn.iter().for_each(|row| seen[*row] += 1);
            drawn.sort();
            assert!(drawn[0] < drawn[1] && drawn[1] < drawn[2]);
        }
        assert!(seen[2] == 0 && [0, 1, 3, 4].iter().all(|row| seen[*row] > 300), "{seen:?}");
    }

    #[test]
    fn blends_keep_the_mean_and_the_spread() {
        let mut numbers = Numbers::new(7);
        let mut drawn = || (0..16).map(|_| numbers.below(64) as u8 + 96).collect::<Vec<u8>>();
        let rows: Vec<Vec<u8>> = (0..4000).map(|_| drawn()).collect();
        let mut blended = Vec::new();
        let mut numbers = Numbers::new(8);
        for four in rows.chunks_exact(4) {
            blend([&four[0], &four[1], &four[2], &four[3]], &mut numbers, &mut blended);
        }
        let moments = |values: &[u8]| {
            let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64;
            let spread = values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>();
            (mean, spread / values.len() as f64)
        };
        let ((mean, spread), (blended_mean, blended_spread)) = (moments(&rows.concat()), moments(&blended));
        assert!((mean - blended_mean).abs() < 1.0, "{mean} and {blended_mean}");
        assert!((blended_spread / spread - 1.0).abs() < 0.05, "{spread} and {blended_spread}");
    }
}
