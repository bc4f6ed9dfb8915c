//! Properties of the data that explain why searches of it are easy or hard.

use crate::sample::DataSample;
use bathyal_index::IndexError;
use bathyal_kernels::Metric;
use bathyal_kernels::distance::Distance;
use bathyal_vectors::groundtruth::{GroundTruthError, exact_neighbors};
use bathyal_vectors::progress::{CancelOnly, Progress};
use bathyal_vectors::{IdFile, VectorFile};
use serde::{Deserialize, Serialize};

/// Neighbours from which the intrinsic dimension is estimated, as in the papers that report it.
pub(crate) const LID_NEIGHBORS: usize = 20;
/// Rows that are looked at for near copies, and the neighbours of each.
const COPY_ROWS: usize = 256;
const COPY_NEIGHBORS: usize = 10;
/// A near copy is at less than this share of the distance of the last of these neighbours.
const COPY_SHARE: f32 = 0.5;
/// Rows with which each query is compared for the mean distance.
const FAR_ROWS: usize = 100;

/// Properties of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DataStatistics {
    /// Local intrinsic dimension around the queries, by maximum likelihood from 20 neighbours in the sample
    /// (Amsaleg et al., KDD 2015); `None` under ip, or where all neighbours are at the same distance.
    pub intrinsic_dimension: Option<f64>,
    /// Mean distance of a vector divided by the mean distance of the nearest (relative contrast, He et al.,
    /// ICML 2012) in the sample; `None` under ip, or if the nearest are at distance 0.
    pub relative_contrast: Option<f64>,
    /// Share of the queries that equal a vector of the sample.
    pub copies: f64,
    /// Share of the vectors that have another one in the sample at less than half the distance of the tenth
    /// nearest: they come in groups of copies, of which the whole set has larger ones.
    #[serde(default)]
    pub near_copies: f64,
}

impl DataStatistics {
    /// Measures the sample, of whose queries `nearest` has the exact neighbours.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] if all vectors of the sample are the same; [`IndexError::Cancelled`].
    pub fn measure(
        sample: &DataSample,
        metric: Metric,
        nearest: &IdFile,
        progress: &dyn Progress,
    ) -> Result<DataStatistics, IndexError> {
        check_differ(sample)?;
        let near_copies = near_copies(sample, metric, progress)?;
        if metric == Metric::InnerProduct {
            let (intrinsic_dimension, relative_contrast, copies) = (None, None, 0.0);
            return Ok(DataStatistics { intrinsic_dimension, relative_contrast, copies, near_copies });
        }
        // A cosine distance and a squared distance are both squares of lengths, up to a factor.
        let length = |distance: f32| f64::from(distance.max(0.0)).sqrt();
        let (mut dimensions, mut first, mut copies) = (Vec::new(), 0.0, 0_usize);
        for query in 0..nearest.queries() {
            let lengths: Vec<f64> =
                nearest.distances(query).unwrap_or_default().iter().map(|d| length(*d)).collect();
            let least = lengths.first().copied().unwrap_or(0.0);
            first += least;
            copies += usize::from(least == 0.0);
            dimensions.extend(local_dimension(&lengths));
        }
        let queries = nearest.queries().max(1) as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let far = mean_far(sample, metric, &length);
        let near = first / queries;
        Ok(DataStatistics {
            intrinsic_dimension: (!dimensions.is_empty()).then(|| mean(&dimensions)),
            relative_contrast: (near > 0.0).then(|| far / near),
            copies: copies as f64 / queries,
            near_copies,
        })
    }
}

/// Refuses a sample of one vector.
fn check_differ(sample: &DataSample) -> Result<(), IndexError> {
    let first = sample.rows.row(0);
    if (1..sample.rows.count()).all(|row| sample.rows.row(row) == first) {
        return Err(IndexError::Parameter(format!(
            "all {} vectors of the sample are the same, so that no index is better than another",
            sample.rows.count()
        )));
    }
    Ok(())
}

/// Returns the share of the rows that have a near copy.
fn near_copies(sample: &DataSample, metric: Metric, progress: &dyn Progress) -> Result<f64, IndexError> {
    let rows = &sample.rows;
    let step = (rows.count() / COPY_ROWS).max(1);
    let looked: Vec<u8> =
        (0..rows.count()).step_by(step).flat_map(|row| rows.row(row).iter().copied()).collect();
    let looked = VectorFile::from_rows(rows.element(), rows.dim(), looked)?;
    // Inner products are no distances.
    let metric = if metric == Metric::InnerProduct { Metric::L2 } else { metric };
    let k = (1 + COPY_NEIGHBORS).min(rows.count());
    let nearest = exact_neighbors(rows, &looked, metric, k, None, &CancelOnly(progress)).map_err(of_truth)?;
    let has_copy = |query: &usize| {
        // The first is the row itself. Squares of lengths are compared.
        let distances = nearest.distances(*query).unwrap_or_default();
        let (near, far) = (distances.get(1).copied(), distances.last().copied());
        near.zip(far).is_some_and(|(near, far)| near <= COPY_SHARE * COPY_SHARE * far)
    };
    let copies = (0..nearest.queries()).filter(has_copy).count();
    Ok(copies as f64 / nearest.queries().max(1) as f64)
}

/// Returns the error of an exact search as one of an index.
pub(crate) fn of_truth(error: GroundTruthError) -> IndexError {
    match error {
        GroundTruthError::Cancelled => IndexError::Cancelled,
        other => IndexError::Parameter(other.to_string()),
    }
}

/// Returns the estimate from the distances of one query's neighbours, nearest first.
fn local_dimension(lengths: &[f64]) -> Option<f64> {
    let last = *lengths.last()?;
    let logs: Vec<f64> =
        lengths.iter().filter(|length| **length > 0.0).map(|length| (length / last).ln()).collect();
    let sum: f64 = logs.iter().sum();
    (sum < 0.0).then(|| -(logs.len() as f64) / sum)
}

/// Returns the mean distance between queries and rows of the sample.
fn mean_far(sample: &DataSample, metric: Metric, length: &dyn Fn(f32) -> f64) -> f64 {
    let (rows, queries) = (&sample.rows, &sample.queries);
    let distance = Distance::new(rows.element(), metric, rows.dim());
    let step = (rows.count() / FAR_ROWS).max(1);
    let (mut sum, mut count) = (0.0, 0.0);
    for query in 0..queries.count() {
        for row in (0..rows.count()).step_by(step) {
            sum += length(distance.between(queries.row(query), rows.row(row)));
            count += 1.0;
        }
    }
    sum / f64::max(count, 1.0)
}
