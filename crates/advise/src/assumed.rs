//! Vectors that stand for data that does not exist yet, and predictions from them.
//!
//! The vectors are drawn from a mixture of Gaussians. All clusters share a spectrum whose variances decay
//! exponentially along random directions, and there is a little noise in every dimension. Centres vary along
//! the same directions. Such data is about as hard to search as descriptors of images and embeddings of text,
//! which differ among each other by the factors below.

use crate::shape::VectorShape;
use bathyal_index::IndexError;
use bathyal_kernels::Element;
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{VectorFile, encode_row};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Effective number of directions of a cluster: the square of the sum of its variances, divided by the sum of
/// their squares. Published local intrinsic dimensions of descriptors and embeddings are 12 to 35.
const DIRECTIONS: u32 = 20;
/// The largest number of directions with a variance, in multiples of [`DIRECTIONS`]. The others would have a
/// hundredth of the largest variance.
const MOST_DIRECTIONS: u32 = 3;
/// Clusters: so few that the smallest pilot has the neighbours of a query in its own cluster.
const CLUSTERS: u32 = 50;
/// The share of the variance that is between clusters, and that of noise.
const CENTRE_SHARE: f32 = 0.5;
const NOISE_SHARE: f32 = 0.05;
/// The place of the vectors in bytes: the mean, and the bytes of a standard deviation.
const BYTE_MEAN: f32 = 100.0;
const BYTE_DEVIATION: f32 = 25.0;
/// Vectors between two reports of progress.
const ROWS_A_REPORT: usize = 256;

/// Factor by which intervals of counters, times and speeds of searches are wider than those of a sample.
const SEARCH_FACTOR: f64 = 2.5;

/// The assumption about data of which there is no sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssumedData {
    /// Clusters of the assumed vectors.
    pub clusters: u32,
    /// Directions in which a cluster extends.
    pub directions: u32,
    /// The share of the variance that is noise in all dimensions.
    pub noise: f64,
    /// Factor by which the intervals of searches are widened.
    pub widened_by: f64,
}

impl AssumedData {
    /// Returns the assumption for vectors of `dim` dimensions.
    pub fn of_dim(dim: usize) -> AssumedData {
        AssumedData {
            clusters: CLUSTERS,
            directions: DIRECTIONS.min(u32::try_from(dim).unwrap_or(DIRECTIONS)),
            noise: NOISE_SHARE.into(),
            widened_by: SEARCH_FACTOR,
        }
    }

    /// Returns the assumption in words.
    pub fn words(&self) -> String {
        format!(
            "no data was given: {} clusters of Gaussian vectors that extend in some {} directions, with \
             {:.0}% noise, are assumed. Bytes on disk are those of any data; intervals of reads, times and \
             speeds are wider by a factor of {}. A sample of the data predicts better",
            self.clusters,
            self.directions,
            100.0 * self.noise,
            self.widened_by
        )
    }

    /// Makes assumed vectors: those of the shape, or `most` of them if they are more.
    ///
    /// # Errors
    /// [`IndexError::Vectors`] for a dim or a number out of range; [`IndexError::Cancelled`].
    pub fn vectors(
        &self,
        shape: VectorShape,
        most: usize,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<VectorFile, IndexError> {
        let VectorShape { element, dim, count: vectors } = shape;
        // The shape itself is refused before any vector of it is made.
        VectorFile::of_shape(element, dim, vectors)?;
        let count = usize::try_from(vectors).unwrap_or(usize::MAX).min(most);
        let mut mixture = Mixture::new(self, dim, seed);
        let (mut rows, mut row) = (Vec::with_capacity(count * element.row_bytes(dim)), vec![0.0; dim]);
        progress.stage("making vectors", count as u64);
        for made in 0..count {
            if made % ROWS_A_REPORT == 0 {
                progress.advance(made as u64);
                if progress.cancelled() {
                    return Err(IndexError::Cancelled);
                }
            }
            mixture.draw(&mut row);
            row.iter_mut().for_each(|value| *value = as_element(element, *value));
            encode_row(element, &row, &mut rows).map_err(|(_, why)| IndexError::Internal(why.into()))?;
        }
        Ok(VectorFile::from_rows(element, dim, rows)?)
    }
}

/// Returns a number of variance 1 as a value of an element.
fn as_element(element: Element, value: f32) -> f32 {
    let byte = (value * BYTE_DEVIATION).round();
    match element {
        Element::F32 | Element::F16 | Element::Bf16 => value,
        Element::U8 => (byte + BYTE_MEAN).clamp(0.0, 255.0),
        Element::I8 => byte.clamp(-128.0, 127.0),
        Element::B1 => f32::from(u8::from(value > 0.0)),
    }
}

/// The mixture from which vectors are drawn.
struct Mixture {
    random: StdRng,
    dim: usize,
    /// The directions, each times the root of its share of the variance: row-major.
    axes: Vec<f32>,
    /// The places of the centres along the directions.
    centres: Vec<Vec<f32>>,
}

impl Mixture {
    fn new(assumed: &AssumedData, dim: usize, seed: u64) -> Mixture {
        let mut random = StdRng::seed_from_u64(seed);
        let count = (MOST_DIRECTIONS * assumed.directions).min(u32::try_from(dim).unwrap_or(u32::MAX));
        // With these variances, the effective number of directions is about that of the assumption.
        let variances: Vec<f32> =
            (0..count).map(|at| (-2.0 * at as f32 / assumed.directions.max(1) as f32).exp()).collect();
        let sum: f32 = variances.iter().sum();
        let mut axes = Vec::with_capacity(variances.len() * dim);
        for variance in &variances {
            let length = (variance / sum).sqrt();
            axes.extend((0..dim).map(|_| length * normal(&mut random)));
        }
        let centres =
            (0..assumed.clusters).map(|_| (0..count).map(|_| normal(&mut random)).collect()).collect();
        Mixture { random, dim, axes, centres }
    }

    /// Draws a vector. Each of its components has a variance of about 1.
    fn draw(&mut self, row: &mut [f32]) {
        let Mixture { random, dim, axes, centres } = self;
        let inner = (1.0 - CENTRE_SHARE - NOISE_SHARE).sqrt();
        row.iter_mut().for_each(|value| *value = NOISE_SHARE.sqrt() * normal(random));
        let centre = &centres[random.random_range(0..centres.len())];
        for (axis, place) in axes.chunks_exact(*dim).zip(centre) {
            let along = CENTRE_SHARE.sqrt() * place + inner * normal(random);
            row.iter_mut().zip(axis).for_each(|(value, direction)| *value += along * direction);
        }
    }
}

/// Draws from the standard normal distribution (Box and Muller).
fn normal(random: &mut StdRng) -> f32 {
    let (radius, angle): (f32, f32) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f32::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_vectors::progress::Silent;

    fn made(element: Element, dim: usize, seed: u64) -> VectorFile {
        let assumed = AssumedData::of_dim(dim);
        assumed.vectors(VectorShape { element, dim, count: 3_000 }, 8_000, seed, &Silent).unwrap()
    }

    #[test]
    fn vectors_have_variance_one_and_depend_on_the_seed_alone() {
        let vectors = made(Element::F32, 32, 1);
        assert_eq!((vectors.count(), vectors.dim()), (3_000, 32));
        let bytes = vectors.rows(0..3_000).unwrap();
        let values: Vec<f32> =
            bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        let square = values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32;
        assert!((0.5..2.0).contains(&square), "{square}");
        assert_eq!(bytes, made(Element::F32, 32, 1).rows(0..3_000).unwrap());
        assert_ne!(bytes, made(Element::F32, 32, 2).rows(0..3_000).unwrap());
    }

    #[test]
    fn each_element_and_small_dims_have_vectors() {
        for element in Element::ALL {
            // Bits fill whole bytes.
            for dim in if element == Element::B1 { [8, 16, 24] } else { [1, 3, 24] } {
                assert_eq!(made(element, dim, 1).row_bytes(), element.row_bytes(dim), "{element} {dim}");
            }
        }
        let assumed = AssumedData::of_dim(8);
        let refused = |dim, vectors| {
            let made = assumed.vectors(
                VectorShape { element: Element::F32, dim, count: vectors },
                8_000,
                1,
                &Silent,
            );
            made.unwrap_err().to_string()
        };
        assert!(refused(0, 5_000).contains("dim"), "{}", refused(0, 5_000));
        assert!(refused(8, 1 << 40).contains("4294967295"), "{}", refused(8, 1 << 40));
    }
}
