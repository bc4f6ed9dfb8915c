//! Vectors that stand for data that does not exist yet, and predictions from them.
//!
//! The vectors are drawn from a mixture of Gaussians. All clusters share a spectrum whose variances decay
//! exponentially along random directions, and there is a little noise in every dimension. Centres vary along
//! the same directions. Such data is about as hard to search as descriptors of images and embeddings of text,
//! which differ among each other by the factors below.

use crate::candidates::VectorShape;
use crate::interval::Interval;
use crate::prediction::{IndexPrediction, PredictedLoad};
use crate::request::{LEAST_VECTORS, SamplePace};
use bathyal_index::{BuildPlan, IndexError};
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

/// Factors by which intervals are wider than those of a sample: for counters, times and speeds of searches,
/// and for the time of a build.
const SEARCH_FACTOR: f64 = 2.5;
const BUILD_FACTOR: f64 = 1.5;

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
             speeds are wider by a factor of {}. A sample of the data, from {LEAST_VECTORS} vectors on, \
             predicts better",
            self.clusters,
            self.directions,
            100.0 * self.noise,
            self.widened_by
        )
    }

    /// Makes assumed vectors: as many as a sample has, or `vectors` if these are fewer.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a dim out of range or too few vectors; [`IndexError::Cancelled`].
    pub fn vectors(
        &self,
        shape: VectorShape,
        pace: SamplePace,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<VectorFile, IndexError> {
        let VectorShape { element, dim, count: vectors } = shape;
        // The shape itself is refused before any vector of it is made.
        VectorFile::of_shape(element, dim, vectors)?;
        if vectors < LEAST_VECTORS as u64 {
            return Err(IndexError::Parameter(format!(
                "the index is to have {vectors} vectors; a prediction needs {LEAST_VECTORS} at least"
            )));
        }
        let count = usize::try_from(vectors).unwrap_or(usize::MAX).min(pace.rows());
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

    /// Returns a prediction from assumed vectors with the intervals that it deserves. Files whose length
    /// depends on the vectors may have any length that the plan of the build allows.
    pub(crate) fn widened(&self, prediction: IndexPrediction, plan: &BuildPlan) -> IndexPrediction {
        let wider = |number: Interval, factor: f64| Interval {
            low: number.low / factor,
            high: number.high * factor,
            ..number
        };
        // A counter that is known, such as the reads of a scan, is that of any data.
        let search = |number: Interval| match number.low < number.high {
            true => wider(number, self.widened_by),
            false => number,
        };
        let disk = prediction.disk_bytes;
        let depends = disk.low < disk.high;
        let disk_bytes = match depends {
            true => Interval {
                low: disk.low.min(plan.least_index_bytes as f64),
                high: disk.high.max(plan.most_index_bytes as f64),
                ..disk
            },
            false => disk,
        };
        let dram = prediction.dram_bytes;
        let dram_bytes = Interval {
            low: dram.low * (disk_bytes.low / disk.low.max(1.0)),
            high: dram.high * (disk_bytes.high / disk.high.max(1.0)),
            ..dram
        };
        let loads = prediction.loads.into_iter().map(|load| PredictedLoad {
            queries_per_second: search(load.queries_per_second),
            p50_us: search(load.p50_us),
            p99_us: search(load.p99_us),
            ..load
        });
        IndexPrediction {
            disk_bytes,
            dram_bytes,
            build_seconds: wider(prediction.build_seconds, BUILD_FACTOR),
            rounds: search(prediction.rounds),
            reads: search(prediction.reads),
            read_bytes: search(prediction.read_bytes),
            moved_bytes: search(prediction.moved_bytes),
            processor_us: search(prediction.processor_us),
            loads: loads.collect(),
            ..prediction
        }
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
        assumed.vectors(VectorShape { element, dim, count: 3_000 }, SamplePace::Quick, seed, &Silent).unwrap()
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
                SamplePace::Quick,
                1,
                &Silent,
            );
            made.unwrap_err().to_string()
        };
        assert!(refused(0, 5_000).contains("dim"), "{}", refused(0, 5_000));
        assert!(refused(8, 100).contains("100 vectors"), "{}", refused(8, 100));
    }
}
