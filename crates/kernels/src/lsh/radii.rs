//! Compound hashes for a geometric series of radii, as in E2LSH: each table has a bucket of a point for each
//! radius.
//!
//! Equations 1 and 4 of e2lsh-on-storage. The hashes of all radii of a table come from one projection. The
//! hash `h_R(o) = floor((a . o / R + b_R) / w)` has the same probability of collision for a given R even if
//! other radii use the same `a`. The `m` values of a compound hash are hashed to 32 bits (section 5.2).

use crate::kmeans::random::Random;
use crate::product::{Product, multiply, multiply_each};

/// Bits of the value of a compound hash (v in the paper).
pub const VALUE_BITS: u32 = 32;

/// Parameters of hashes for a geometric series of radii.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ladder {
    /// Number of tables of each radius (L).
    pub tables: usize,
    /// Number of values of a compound hash (m).
    pub hashes: usize,
    /// Number of radii (r).
    pub radii: usize,
    /// First radius, in the units of the points.
    pub first: f64,
    /// Ratio of each radius to the one before (c).
    pub ratio: f64,
    /// Width of a hash in units of the radius (w).
    pub width: f64,
}

/// The compound hashes of all radii over points of `dim` values.
#[derive(Debug, Clone)]
pub struct RadiusHashes {
    dim: usize,
    ladder: Ladder,
    /// Directions divided by the width of the first radius, table by table. Those of a table are interleaved:
    /// value `i` of all, then value `i + 1`.
    directions: Vec<f32>,
    /// Factor of the projections for each radius.
    scales: Vec<f32>,
    /// `b / w` of each hash of each table of each radius.
    offsets: Vec<f32>,
    /// Factor of each value in the sum that hashes a compound hash; the same for all tables and radii.
    factors: Vec<u64>,
    /// Start of that sum, for each table of each radius.
    begins: Vec<u64>,
}

impl RadiusHashes {
    /// Draws hashes with the given parameters.
    pub fn draw(dim: usize, ladder: Ladder, seed: u64) -> RadiusHashes {
        let Ladder { tables, hashes, radii, first, ratio, width } = ladder;
        let mut random = Random::new(seed);
        let narrowest = first * width;
        let directions = (0..tables * dim * hashes).map(|_| (random.normal() / narrowest) as f32).collect();
        let scales = (0..radii).map(|radius| ratio.powi(-(radius as i32)) as f32).collect();
        let offsets = (0..radii * tables * hashes).map(|_| random.unit() as f32).collect();
        let factors = (0..hashes).map(|_| random.next() | 1).collect();
        let begins = (0..radii * tables).map(|_| random.next()).collect();
        RadiusHashes { dim, ladder, directions, scales, offsets, factors, begins }
    }

    /// Returns the parameters.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// Returns the number of values of a point.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the bytes of memory that the hashes take.
    pub fn bytes(&self) -> u64 {
        let floats = self.directions.len() + self.scales.len() + self.offsets.len();
        4 * floats as u64 + 8 * (self.factors.len() + self.begins.len()) as u64
    }

    /// Projects points (`rows x dim`, row-major) for a table and all radii: `rows x m`.
    pub fn project(&self, table: usize, points: &[f32], out: &mut Vec<f32>) {
        let (dim, hashes) = (self.dim, self.ladder.hashes);
        out.clear();
        out.resize(points.len() / dim.max(1) * hashes, 0.0);
        let columns = &self.directions[table * dim * hashes..][..dim * hashes];
        multiply(&Product { rows: points, dim, columns, kept: hashes, stride: hashes }, out);
    }

    /// Projects one point for all tables: `L x m`. The numbers equal those of [`RadiusHashes::project`] table
    /// by table.
    pub fn project_point(&self, point: &[f32], out: &mut Vec<f32>) {
        out.resize(self.ladder.tables * self.ladder.hashes, 0.0);
        multiply_each(point, &self.directions, self.ladder.hashes, out);
    }

    /// Computes the value of a compound hash from the [projections](RadiusHashes::project) of a point for its
    /// table.
    #[inline]
    pub fn value(&self, radius: usize, table: usize, projections: &[f32]) -> u32 {
        let (at, scale) = (radius * self.ladder.tables + table, self.scales[radius]);
        let offsets = &self.offsets[at * self.ladder.hashes..][..self.ladder.hashes];
        let cells = projections.iter().zip(offsets).zip(&self.factors);
        let sum = cells.fold(self.begins[at], |sum, ((projection, offset), factor)| {
            let cell = (projection * scale + offset).floor() as i64;
            sum.wrapping_add((cell as u64).wrapping_mul(*factor))
        });
        // A final mix makes every bit depend on the whole sum.
        let mixed = (sum ^ (sum >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (mixed >> (64 - VALUE_BITS)) as u32
    }

    /// Returns true if two points are in one bucket of a table: all their `m` cells are equal, not only the
    /// hashes of these.
    pub fn in_same_bucket(&self, radius: usize, table: usize, a: &[f32], b: &[f32]) -> bool {
        let (at, scale) = (radius * self.ladder.tables + table, self.scales[radius]);
        let offsets = &self.offsets[at * self.ladder.hashes..][..self.ladder.hashes];
        let cell = |projection: &f32, offset: &f32| (projection * scale + offset).floor();
        a.iter().zip(b).zip(offsets).all(|((a, b), offset)| cell(a, offset) == cell(b, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsh::collision_probability;

    const LADDER: Ladder = Ladder { tables: 400, hashes: 3, radii: 4, first: 0.5, ratio: 2.0, width: 4.0 };

    #[test]
    fn points_collide_with_the_predicted_probability() {
        let (dim, mut random) = (10, Random::new(5));
        let drawn = RadiusHashes::draw(dim, LADDER, 1);
        let mut projections = (Vec::new(), Vec::new());
        for distance in [0.25, 1.0, 2.0, 8.0] {
            let (mut shared, mut same) = ([0_u32; 4], [0_u32; 4]);
            let pairs = 20;
            for _ in 0..pairs {
                let a: Vec<f32> = (0..dim).map(|_| random.normal() as f32 * 30.0).collect();
                let step: Vec<f64> = (0..dim).map(|_| random.normal()).collect();
                let length = step.iter().map(|x| x * x).sum::<f64>().sqrt();
                let b: Vec<f32> =
                    a.iter().zip(&step).map(|(a, x)| a + (x / length * distance) as f32).collect();
                for table in 0..LADDER.tables {
                    drawn.project(table, &a, &mut projections.0);
                    drawn.project(table, &b, &mut projections.1);
                    for radius in 0..LADDER.radii {
                        let value = |projections: &[f32]| drawn.value(radius, table, projections);
                        shared[radius] +=
                            u32::from(drawn.in_same_bucket(radius, table, &projections.0, &projections.1));
                        same[radius] += u32::from(value(&projections.0) == value(&projections.1));
                    }
                }
            }
            let tried = f64::from(pairs) * LADDER.tables as f64;
            for radius in 0..LADDER.radii {
                let r = LADDER.first * LADDER.ratio.powi(radius as i32);
                let expected = collision_probability(LADDER.width * r / distance).powi(3);
                let measured = f64::from(shared[radius]) / tried;
                assert!((measured - expected).abs() < 0.03, "{distance} {r}: {measured}, not {expected}");
                // 32 bits distinguish all other buckets.
                assert_eq!(shared[radius], same[radius], "{distance} {r}");
            }
        }
    }

    #[test]
    fn projections_for_all_tables_equal_those_for_each() {
        let drawn = RadiusHashes::draw(23, LADDER, 3);
        let mut random = Random::new(11);
        let point: Vec<f32> = (0..23).map(|_| random.normal() as f32).collect();
        let (mut all, mut one) = (Vec::new(), Vec::new());
        drawn.project_point(&point, &mut all);
        for (table, expected) in all.chunks_exact(LADDER.hashes).enumerate() {
            drawn.project(table, &point, &mut one);
            assert_eq!(one, expected, "{table}");
        }
    }

    #[test]
    fn values_are_spread_over_all_bits() {
        let drawn = RadiusHashes::draw(4, LADDER, 2);
        let (mut random, mut ones, count) = (Random::new(9), [0_u32; 32], 4000);
        let mut projections = Vec::new();
        for _ in 0..count {
            let point: Vec<f32> = (0..4).map(|_| random.normal() as f32 * 100.0).collect();
            drawn.project(7, &point, &mut projections);
            let value = drawn.value(1, 7, &projections);
            (0..32).for_each(|bit| ones[bit] += (value >> bit) & 1);
        }
        assert!(ones.iter().all(|ones| ones.abs_diff(count / 2) < 200), "{ones:?}");
    }
}
