//! Locality-sensitive hashes for the Euclidean distance, and what is known of how often they collide.
//!
//! `h(o) = floor((a . o + b) / w)` with normal `a` and uniform `b` (Datar et al., *p-stable distributions*, SoCG 2004, section 3;
//! equation 1 of e2lsh-on-storage). A compound hash is `m` of these, a table has one. Widths are `cell`, `2 cell`, `4 cell`, ...:
//! with the offsets that they share, a bucket of one width is a union of buckets of half that width, so that one *key* has the
//! buckets of all of them: the bits of the `m` values, the highest of all first (the Z-order of Tao et al., *LSB-tree*, SIGMOD 2009).
//! Two keys that begin with the same `m x i` bits are in one bucket of the `i`th coarsest width. Sorted by key, a table is the
//! tables of all radii.

mod perturbed;
mod radii;

pub use perturbed::{Perturbations, Perturbed};
pub use radii::{Ladder, RadiusHashes, VALUE_BITS};

use crate::kmeans::random::Random;
use crate::product::{Product, multiply, multiply_each};

/// Most values of a compound hash: each has at least four widths in a key.
pub const MOST_HASHES: usize = 32;
/// Most bits of a value in a key: finer cells than 1/65536 of the extent tell nothing apart that matters.
const MOST_LEVELS: usize = 16;
/// Bits of a key.
const KEY_BITS: usize = 128;
/// Standard deviations of a projection that the cells of a value cover; what lies outside is in the outermost cells. Half would
/// hold all points: the rest is room for offsets, so that there are widths many times as large as the distances between points.
const COVERED: f64 = 32.0;
/// The finest cell of any set: whatever is divided by it is finite.
const LEAST_CELL: f32 = 1e-30;
/// The part of this that offsets are drawn from, so that buckets of every width up to it lie anywhere.
const OFFSETS: f64 = 0.5;

/// The compound hashes of several tables over points of `dim` values.
#[derive(Debug, Clone, PartialEq)]
pub struct CompoundHashes {
    dim: usize,
    tables: usize,
    hashes: usize,
    cell: f32,
    /// What is taken from every point before it is hashed.
    centre: Vec<f32>,
    /// For each table the directions over `cell`, interleaved: value `i` of all, then value `i + 1`.
    directions: Vec<f32>,
    /// For each value of each table what is added to the product.
    offsets: Vec<f32>,
    /// The bits of a value's lower and upper eight, spread over a key.
    spread: [Vec<u128>; 2],
}

/// Values of points, reused.
#[derive(Debug, Default)]
pub struct HashScratch {
    values: Vec<f32>,
}

impl HashScratch {
    /// The values of the points whose keys were made last, in the units of the finest cells: those of one point, then of the next.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

impl CompoundHashes {
    /// Draws the hashes of `tables` tables of `hashes` values each for points that lie `spread` (the root of the mean square of
    /// their distances) about `centre`.
    ///
    /// # Panics
    /// Unless `hashes` is between 1 and [`MOST_HASHES`].
    pub fn draw(centre: &[f32], spread: f64, tables: usize, hashes: usize, seed: u64) -> CompoundHashes {
        assert!((1..=MOST_HASHES).contains(&hashes), "{hashes} hashes");
        let (dim, mut random) = (centre.len(), Random::new(seed));
        let cells = (1_u64 << levels(hashes)) as f64;
        // Points that are all the same need no particular width.
        let cell = if spread > 0.0 && spread.is_finite() { COVERED * spread / cells } else { 1.0 };
        let cell = (cell as f32).clamp(LEAST_CELL, 1.0 / LEAST_CELL);
        let mut directions = vec![0.0_f32; tables * dim * hashes];
        let mut offsets = Vec::with_capacity(tables * hashes);
        for table in directions.chunks_exact_mut((dim * hashes).max(1)) {
            for hash in 0..hashes {
                for row in table.chunks_exact_mut(hashes) {
                    row[hash] = (random.normal() / f64::from(cell)) as f32;
                }
                let shift = (random.unit() - 0.5) * OFFSETS * cells;
                offsets.push((cells / 2.0 + shift) as f32);
            }
        }
        CompoundHashes::new(tables, hashes, cell, centre.to_vec(), directions, offsets)
    }

    fn new(
        tables: usize,
        hashes: usize,
        cell: f32,
        centre: Vec<f32>,
        directions: Vec<f32>,
        offsets: Vec<f32>,
    ) -> CompoundHashes {
        let of_bits = |byte: u128, first: usize| {
            let bit = |i: usize| ((byte >> i) & 1) << ((first + i) * hashes).min(KEY_BITS - 1);
            (0..8).filter(|i| first + i < levels(hashes)).map(bit).sum()
        };
        let spread = [0, 8].map(|first| (0..256).map(|byte| of_bits(byte, first)).collect());
        let dim = centre.len();
        CompoundHashes { dim, tables, hashes, cell, centre, directions, offsets, spread }
    }

    /// The bytes of a file: the cell, the centre, the offsets, the directions, all f32.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = [&self.centre, &self.offsets, &self.directions];
        let numbers = [self.cell].into_iter().chain(numbers.into_iter().flatten().copied());
        numbers.flat_map(f32::to_le_bytes).collect()
    }

    /// Bytes of such a file.
    pub fn file_bytes(dim: usize, tables: usize, hashes: usize) -> u64 {
        4 * (1 + dim as u64 + tables as u64 * hashes as u64 * (1 + dim as u64))
    }

    /// Reads what [`CompoundHashes::to_bytes`] wrote.
    ///
    /// # Errors
    /// A sentence when these are no such hashes.
    pub fn from_bytes(
        bytes: &[u8],
        dim: usize,
        tables: usize,
        hashes: usize,
    ) -> Result<CompoundHashes, String> {
        if !(1..=MOST_HASHES).contains(&hashes) {
            return Err(format!("{hashes} hashes are not between 1 and {MOST_HASHES}"));
        }
        if bytes.len() as u64 != CompoundHashes::file_bytes(dim, tables, hashes) {
            return Err(format!("{} bytes are not {tables} tables of {hashes} hashes", bytes.len()));
        }
        let mut numbers = bytes.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number));
        let cell =
            numbers.next().filter(|cell| cell.is_finite() && *cell > 0.0).ok_or("its cell is no width")?;
        let centre: Vec<f32> = numbers.by_ref().take(dim).collect();
        let offsets: Vec<f32> = numbers.by_ref().take(tables * hashes).collect();
        let directions: Vec<f32> = numbers.collect();
        if !centre.iter().chain(&offsets).chain(&directions).all(|number| number.is_finite()) {
            return Err("a number of it is not finite".into());
        }
        Ok(CompoundHashes::new(tables, hashes, cell, centre, directions, offsets))
    }

    /// Values of a point.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of tables (L in the paper).
    pub fn tables(&self) -> usize {
        self.tables
    }

    /// Values of a compound hash (m in the paper).
    pub fn hashes(&self) -> usize {
        self.hashes
    }

    /// Widths in a key: the `i`th finest of them, from 0, is `cell * 2^i`.
    pub fn levels(&self) -> usize {
        levels(self.hashes)
    }

    /// The finest width, in the units of the points.
    pub fn cell(&self) -> f32 {
        self.cell
    }

    /// Makes points (row-major, `dim` values each) what keys are made of.
    pub fn centred(&self, points: &mut [f32]) {
        for point in points.chunks_exact_mut(self.dim) {
            point.iter_mut().zip(&self.centre).for_each(|(value, centre)| *value -= centre);
        }
    }

    /// The keys in `table` of some [centred](CompoundHashes::centred) points, one for each.
    pub fn keys(&self, table: usize, points: &[f32], scratch: &mut HashScratch, keys: &mut Vec<u128>) {
        let (dim, hashes) = (self.dim, self.hashes);
        keys.clear();
        scratch.values.resize(points.len() / dim.max(1) * hashes, 0.0);
        let columns = &self.directions[table * dim * hashes..][..dim * hashes];
        let product = Product { rows: points, dim, columns, kept: hashes, stride: hashes };
        multiply(&product, &mut scratch.values);
        let offsets = &self.offsets[table * hashes..][..hashes];
        keys.extend(scratch.values.chunks_exact_mut(hashes).map(|values| self.key(values, offsets)));
    }

    /// The keys of one [centred](CompoundHashes::centred) point, one for each table: the same as those of one table after the other,
    /// in a fraction of the time. The scratch has its values in all tables.
    pub fn keys_of(&self, point: &[f32], scratch: &mut HashScratch, keys: &mut Vec<u128>) {
        keys.clear();
        scratch.values.resize(self.offsets.len(), 0.0);
        multiply_each(point, &self.directions, self.hashes, &mut scratch.values);
        let tables = scratch.values.chunks_exact_mut(self.hashes).zip(self.offsets.chunks_exact(self.hashes));
        keys.extend(tables.map(|(values, offsets)| self.key(values, offsets)));
    }

    /// The key that values have once their `offsets` are added, which is done.
    #[inline]
    fn key(&self, values: &mut [f32], offsets: &[f32]) -> u128 {
        values.iter_mut().zip(offsets).fold(0, |key: u128, (value, offset)| {
            *value += offset;
            // The first value's bits end up highest.
            (key << 1) | self.spread_out(self.cell_of(*value))
        })
    }

    /// The finest cell of a value.
    #[inline]
    fn cell_of(&self, value: f32) -> u32 {
        let most = ((1_u32 << self.levels()) - 1) as f32;
        // What is no number at all is in the first cell.
        value.floor().max(0.0).min(most) as u32
    }

    /// A cell's bits where those of the last value of a key are.
    #[inline]
    fn spread_out(&self, cell: u32) -> u128 {
        let [low, high] = &self.spread;
        low[cell as usize & 0xff] | high[cell as usize >> 8]
    }
}

/// The widest cells, as a power of 2 of the finest, whose buckets lie anywhere: offsets are drawn from as much.
pub fn widest(hashes: usize) -> u32 {
    levels(hashes) as u32 - OFFSETS.recip().log2() as u32
}

/// Widths in a key of so many values.
fn levels(hashes: usize) -> usize {
    (KEY_BITS / hashes).min(MOST_LEVELS)
}

/// The probability that two points collide in one hash whose width is `widths` times their distance (p_w in the paper;
/// Datar et al., section 3.2).
pub fn collision(widths: f64) -> f64 {
    if widths <= 0.0 {
        return 0.0;
    }
    if !widths.is_finite() {
        return 1.0;
    }
    let outside = (1.0 - normal_within(widths)).max(0.0);
    let edges = 2.0 / ((std::f64::consts::TAU).sqrt() * widths) * (1.0 - (-widths * widths / 2.0).exp());
    (1.0 - outside - edges).clamp(0.0, 1.0)
}

/// The share of a standard normal distribution that lies within `x` of its middle: erf(x / sqrt 2), by its series or its
/// continued fraction, to 1e-10.
fn normal_within(x: f64) -> f64 {
    if x < 3.0 {
        // erf(z) = 2 z / sqrt(pi) * exp(-z^2) * sum of (2 z^2)^n / (1 * 3 * 5 ...).
        let square = x * x;
        let (mut term, mut sum, mut odd) = (1.0, 1.0, 1.0);
        while term > 1e-16 * sum {
            odd += 2.0;
            term *= square / odd;
            sum += term;
        }
        return (2.0 / std::f64::consts::PI).sqrt() * x * (-square / 2.0).exp() * sum;
    }
    // The tail: exp(-x^2/2) / sqrt(2 pi) / (x + 1 / (x + 2 / (x + 3 / ...))).
    let fraction = (1..=60).rev().fold(x, |below, n| x + f64::from(n) / below);
    1.0 - 2.0 * (-x * x / 2.0).exp() / (std::f64::consts::TAU.sqrt() * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: usize, dim: usize, random: &mut Random) -> Vec<f32> {
        (0..count * dim).map(|_| random.normal() as f32).collect()
    }

    /// How many of the first bits of two keys are the same.
    fn shared(a: u128, b: u128) -> usize {
        (a ^ b).leading_zeros() as usize
    }

    #[test]
    fn keys_have_the_buckets_of_every_width() {
        let mut random = Random::new(1);
        let (dim, count) = (9, 200);
        let points = points(count, dim, &mut random);
        for hashes in [1, 5, 8, 12, 16, 32] {
            let drawn = CompoundHashes::draw(&vec![0.0; dim], 3.0, 3, hashes, 7);
            let levels = drawn.levels();
            assert_eq!(levels, (128 / hashes).min(16), "{hashes}");
            let (mut keys, mut scratch) = (Vec::new(), HashScratch::default());
            drawn.keys(2, &points, &mut scratch, &mut keys);
            let cell = |point: usize, hash: usize| {
                let directions = &drawn.directions[2 * dim * hashes..];
                let sum = (0..dim)
                    .fold(0.0, |sum, i| sum + points[point * dim + i] * directions[i * hashes + hash]);
                let most = (1 << levels) - 1;
                ((sum + drawn.offsets[2 * hashes + hash]).floor() as i64).clamp(0, most)
            };
            for (a, b) in (0..count).zip(1..count) {
                for width in 0..levels {
                    let same = (0..hashes).all(|hash| cell(a, hash) >> width == cell(b, hash) >> width);
                    let unused = KEY_BITS - hashes * levels;
                    let bits = unused + hashes * (levels - width);
                    assert_eq!(shared(keys[a], keys[b]) >= bits, same, "{hashes} {a} {width}");
                }
            }
        }
    }

    #[test]
    fn a_point_has_the_keys_of_one_table_after_the_other() {
        let mut random = Random::new(4);
        for (dim, tables, hashes) in [(1, 1, 1), (128, 16, 16), (37, 21, 12), (9, 3, 32), (960, 9, 10)] {
            let drawn = CompoundHashes::draw(&vec![0.0; dim], 3.0, tables, hashes, 7);
            let point = points(1, dim, &mut random);
            let (mut all, mut scratch) = (Vec::new(), HashScratch::default());
            drawn.keys_of(&point, &mut scratch, &mut all);
            let values = scratch.values().to_vec();
            for table in 0..tables {
                let mut keys = Vec::new();
                drawn.keys(table, &point, &mut scratch, &mut keys);
                assert_eq!(keys, all[table..=table], "{dim} {tables} {hashes}");
                assert_eq!(scratch.values(), &values[table * hashes..][..hashes], "{dim} {tables} {hashes}");
            }
        }
    }

    #[test]
    fn hashes_collide_as_often_as_the_theory_says() {
        // One value of 16 bits: its widths are cell x 2^level.
        let (dim, count) = (24, 4000);
        let mut random = Random::new(3);
        for (distance, level) in [(1.0_f32, 11), (0.5, 9), (2.0, 12)] {
            let drawn = CompoundHashes::draw(&vec![0.0; dim], 5.0, count, 1, 11);
            let a = points(1, dim, &mut random);
            let mut step = points(1, dim, &mut random);
            let length = step.iter().map(|x| x * x).sum::<f32>().sqrt();
            step.iter_mut().for_each(|x| *x *= distance / length);
            let both: Vec<f32> = a.iter().copied().chain(a.iter().zip(&step).map(|(a, s)| a + s)).collect();
            let (mut keys, mut scratch) = (Vec::new(), HashScratch::default());
            let collided = (0..count).filter(|table| {
                drawn.keys(*table, &both, &mut scratch, &mut keys);
                keys[0] >> level == keys[1] >> level
            });
            let share = collided.count() as f64 / count as f64;
            let width = f64::from(drawn.cell()) * f64::from(1 << level);
            let expected = collision(width / f64::from(distance));
            assert!((share - expected).abs() < 4.0 * (0.25 / count as f64).sqrt(), "{share} {expected}");
        }
    }

    #[test]
    fn collision_has_the_values_of_tables() {
        // The normal distribution to ten digits, and p_w of w = 4 and of a tail.
        for (x, share) in [(1.0, 0.6826894921), (2.0, 0.9544997361), (3.0, 0.9973002039), (5.0, 0.9999994267)]
        {
            assert!((normal_within(x) - share).abs() < 1e-9, "{x}: {}", normal_within(x));
        }
        assert!((collision(4.0) - 0.800_532_4).abs() < 1e-6, "{}", collision(4.0));
        assert_eq!((collision(0.0), collision(-1.0), collision(f64::INFINITY)), (0.0, 0.0, 1.0));
        let rising: Vec<f64> = (1..1000).map(|i| collision(f64::from(i) / 50.0)).collect();
        assert!(rising.is_sorted() && rising[0] > 0.0 && rising[998] < 1.0);
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let drawn = CompoundHashes::draw(&[1.0, -2.0, 3.0], 2.0, 4, 12, 5);
        let bytes = drawn.to_bytes();
        assert_eq!(bytes.len() as u64, CompoundHashes::file_bytes(3, 4, 12));
        assert_eq!(CompoundHashes::from_bytes(&bytes, 3, 4, 12), Ok(drawn));
        for (dim, tables, hashes) in [(3, 4, 11), (2, 4, 12), (3, 0, 12), (3, 4, 0), (3, 4, 33)] {
            assert!(CompoundHashes::from_bytes(&bytes, dim, tables, hashes).is_err());
        }
        for (at, number) in
            [(0, 0.0), (0, f32::NAN), (4, f32::INFINITY), (20, f32::NAN), (bytes.len() - 4, f32::NAN)]
        {
            let mut bad = bytes.clone();
            bad[at..at + 4].copy_from_slice(&number.to_le_bytes());
            assert!(CompoundHashes::from_bytes(&bad, 3, 4, 12).is_err());
        }
    }

    #[test]
    fn points_of_any_extent_have_keys() {
        for spread in [0.0, 1e-30, 1e19, f64::NAN, f64::INFINITY] {
            let drawn = CompoundHashes::draw(&[0.0; 4], spread, 1, 16, 5);
            let (mut keys, mut scratch) = (Vec::new(), HashScratch::default());
            drawn.keys(0, &[1e19, -1e19, 0.0, 1e-30], &mut scratch, &mut keys);
            assert_eq!(keys.len(), 1);
            assert!(CompoundHashes::from_bytes(&drawn.to_bytes(), 4, 1, 16).is_ok(), "{spread}");
        }
    }
}
