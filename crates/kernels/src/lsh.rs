//! Locality-sensitive hashes for the Euclidean distance, and their probabilities of collision.
//!
//! A hash is `h(o) = floor((a . o + b) / w)` with normal `a` and uniform `b` (Datar et al., *p-stable
//! distributions*, SoCG 2004, section 3; equation 1 of e2lsh-on-storage). A compound hash consists of `m`
//! hashes, and each table has one. Its widths are `cell`, `2 cell`, `4 cell`, .... All widths share the
//! offsets `b`, so a bucket of one width is a union of buckets of half that width. One *key* therefore
//! encodes the buckets of all widths: it consists of the bits of the `m` values, with the highest bits of all
//! values first (the Z-order of Tao et al., *LSB-tree*, SIGMOD 2009). Two keys with the same first `m x i`
//! bits are in one bucket of the `i`th coarsest width. A table that is sorted by key serves all radii.
//!
//! A key has a fixed number of cells for each value. The cells are on a circle: behind the last comes the
//! first. Two far points then share a bucket no more often than two nearer ones, wherever they are
//! ([`Buckets`]).

mod collisions;
mod perturbed;
mod radii;

pub use collisions::{Buckets, Ends, collision_probability};
pub use perturbed::{PerturbationScratch, PerturbedKeys};
pub use radii::{Ladder, RadiusHashes, VALUE_BITS};

use crate::kmeans::random::Random;
use crate::product::{Product, multiply, multiply_each};

/// Most values of a compound hash. Each then has at least four bits, so four widths, in a key.
pub const MOST_HASHES: usize = 32;
/// Most bits of a value in a key. Cells finer than 1/65536 of the extent separate no points that matter.
const MOST_LEVELS: usize = 16;
/// Bits of a key.
const KEY_BITS: usize = 128;
/// Standard deviations of a projection that the cells of a value cover. Half of it would cover nearly all
/// points; the rest is for the offsets, and allows widths many times the distances between points.
const COVERED: f64 = 32.0;
/// Least width of the finest cell, so that a division by it is finite.
const LEAST_CELL: f32 = 1e-30;
/// Share of [`COVERED`] from which offsets are drawn. Boundaries of buckets up to this width are then
/// uniformly random. No key has wider buckets, other than the one of all cells.
const OFFSETS: f64 = 0.5;

/// The compound hashes of several tables over points of `dim` values.
#[derive(Debug, Clone, PartialEq)]
pub struct CompoundHashes {
    dim: usize,
    tables: usize,
    hashes: usize,
    cell: f32,
    ends: Ends,
    /// Point that is subtracted from every point before it is hashed.
    centre: Vec<f32>,
    /// Directions `a` divided by `cell`, table by table. Those of a table are interleaved: value `i` of all,
    /// then value `i + 1`.
    directions: Vec<f32>,
    /// Offset that is added to each product: one for each value of each table.
    offsets: Vec<f32>,
    /// Tables that spread the lower and the upper eight bits of a value over a key.
    spread: [Vec<u128>; 2],
}

/// Memory for the values of points; reused.
#[derive(Debug, Default)]
pub struct HashScratch {
    values: Vec<f32>,
}

impl HashScratch {
    /// Returns the values of the points whose keys were computed last, point by point, in units of the finest
    /// cell.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

impl CompoundHashes {
    /// Draws the hashes of `tables` tables of `hashes` values each. The points are around `centre`; `spread`
    /// is the root of their mean squared distance from it.
    ///
    /// # Panics
    /// Unless `hashes` is between 1 and [`MOST_HASHES`].
    pub fn draw(centre: &[f32], spread: f64, tables: usize, hashes: usize, seed: u64) -> CompoundHashes {
        assert!((1..=MOST_HASHES).contains(&hashes), "{hashes} hashes");
        let (dim, mut random) = (centre.len(), Random::new(seed));
        let cells = (1_u64 << levels(hashes)) as f64;
        // For identical points any width will do.
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
        let spread_byte = |byte: u128, first: usize| {
            let bit = |i: usize| ((byte >> i) & 1) << ((first + i) * hashes).min(KEY_BITS - 1);
            (0..8).filter(|i| first + i < levels(hashes)).map(bit).sum()
        };
        let spread = [0, 8].map(|first| (0..256).map(|byte| spread_byte(byte, first)).collect());
        let dim = centre.len();
        CompoundHashes { dim, tables, hashes, cell, ends: Ends::Circle, centre, directions, offsets, spread }
    }

    /// Serializes the hashes: the cell, the centre, the offsets, the directions, all f32.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = [&self.centre, &self.offsets, &self.directions];
        let numbers = [self.cell].into_iter().chain(numbers.into_iter().flatten().copied());
        numbers.flat_map(f32::to_le_bytes).collect()
    }

    /// Returns the length of [`CompoundHashes::to_bytes`].
    pub fn file_bytes(dim: usize, tables: usize, hashes: usize) -> u64 {
        4 * (1 + dim as u64 + tables as u64 * hashes as u64 * (1 + dim as u64))
    }

    /// Reads the bytes of [`CompoundHashes::to_bytes`].
    ///
    /// # Errors
    /// A sentence if `bytes` are not hashes of this shape.
    pub fn from_bytes(
        bytes: &[u8],
        dim: usize,
        tables: usize,
        hashes: usize,
    ) -> Result<CompoundHashes, String> {
        if !(1..=MOST_HASHES).contains(&hashes) {
            return Err(format!("the number of hashes is {hashes}, expected 1 to {MOST_HASHES}"));
        }
        let expected = CompoundHashes::file_bytes(dim, tables, hashes);
        if bytes.len() as u64 != expected {
            let shape = format!("{tables} tables of {hashes} hashes over {dim} dimensions");
            return Err(format!("has {} bytes, but {shape} take {expected}", bytes.len()));
        }
        let mut numbers = bytes.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number));
        let cell = numbers
            .next()
            .filter(|cell| cell.is_finite() && *cell > 0.0)
            .ok_or("the cell is not positive")?;
        let centre: Vec<f32> = numbers.by_ref().take(dim).collect();
        let offsets: Vec<f32> = numbers.by_ref().take(tables * hashes).collect();
        let directions: Vec<f32> = numbers.collect();
        if !centre.iter().chain(&offsets).chain(&directions).all(|number| number.is_finite()) {
            return Err("a value of the hashes is not finite".into());
        }
        Ok(CompoundHashes::new(tables, hashes, cell, centre, directions, offsets))
    }

    /// Returns the hashes of an index from before cells were on a circle. Values outside of all cells are in
    /// the outermost ones.
    pub fn clamped(self) -> CompoundHashes {
        CompoundHashes { ends: Ends::Clamped, ..self }
    }

    /// Returns the number of values of a point.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the number of tables (L in the paper).
    pub fn tables(&self) -> usize {
        self.tables
    }

    /// Returns the number of values of a compound hash (m in the paper).
    pub fn hashes(&self) -> usize {
        self.hashes
    }

    /// Returns the number of widths in a key. The `i`th finest, from 0, is `cell * 2^i`.
    pub fn levels(&self) -> usize {
        levels(self.hashes)
    }

    /// Returns the finest width, in the units of the points.
    pub fn cell(&self) -> f32 {
        self.cell
    }

    /// Subtracts the centre from points (row-major, `dim` values each). Keys are computed from such points.
    pub fn subtract_centre(&self, points: &mut [f32]) {
        for point in points.chunks_exact_mut(self.dim) {
            point.iter_mut().zip(&self.centre).for_each(|(value, centre)| *value -= centre);
        }
    }

    /// Computes the keys in `table` of [centred](CompoundHashes::subtract_centre) points, one for each point.
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

    /// Computes the keys of one [centred](CompoundHashes::subtract_centre) point, one for each table. They
    /// equal those of [`CompoundHashes::keys`] table by table, and take a fraction of the time. The scratch
    /// then holds the values of the point in all tables.
    pub fn keys_of(&self, point: &[f32], scratch: &mut HashScratch, keys: &mut Vec<u128>) {
        keys.clear();
        scratch.values.resize(self.offsets.len(), 0.0);
        multiply_each(point, &self.directions, self.hashes, &mut scratch.values);
        let tables = scratch.values.chunks_exact_mut(self.hashes).zip(self.offsets.chunks_exact(self.hashes));
        keys.extend(tables.map(|(values, offsets)| self.key(values, offsets)));
    }

    /// Adds the `offsets` to `values`, which come to lie within the cells, and returns the key of the result.
    #[inline]
    fn key(&self, values: &mut [f32], offsets: &[f32]) -> u128 {
        let cells = (1_u32 << self.levels()) as f32;
        values.iter_mut().zip(offsets).fold(0, |key: u128, (value, offset)| {
            *value += offset;
            if self.ends == Ends::Circle {
                // Exact, since the number of cells is a power of 2.
                *value -= (*value / cells).floor() * cells;
            }
            // The bits of the first value become the highest.
            (key << 1) | self.spread_out(self.cell_of(*value))
        })
    }

    /// Returns the number of the finest cell of a value.
    #[inline]
    fn cell_of(&self, value: f32) -> u32 {
        let most = ((1_u32 << self.levels()) - 1) as f32;
        // NaN is in the first cell.
        value.floor().max(0.0).min(most) as u32
    }

    /// Returns the bits of a cell at the positions of the last value of a key.
    #[inline]
    fn spread_out(&self, cell: u32) -> u128 {
        let [low, high] = &self.spread;
        low[cell as usize & 0xff] | high[cell as usize >> 8]
    }
}

/// Returns the number of widths in a key of `hashes` values.
fn levels(hashes: usize) -> usize {
    (KEY_BITS / hashes).min(MOST_LEVELS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: usize, dim: usize, random: &mut Random) -> Vec<f32> {
        (0..count * dim).map(|_| random.normal() as f32).collect()
    }

    /// Returns the number of equal first bits of two keys.
    fn common_bits(a: u128, b: u128) -> usize {
        (a ^ b).leading_zeros() as usize
    }

    #[test]
    fn keys_encode_the_buckets_of_every_width() {
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
                    assert_eq!(common_bits(keys[a], keys[b]) >= bits, same, "{hashes} {a} {width}");
                }
            }
        }
    }

    #[test]
    fn keys_of_a_point_equal_those_of_each_table() {
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
    fn hashes_collide_with_the_predicted_probability() {
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
            let expected = collision_probability(width / f64::from(distance));
            assert!((share - expected).abs() < 4.0 * (0.25 / count as f64).sqrt(), "{share} {expected}");
        }
    }

    #[test]
    fn hashes_round_trip_through_bytes_and_invalid_bytes_are_refused() {
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
