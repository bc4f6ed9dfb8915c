//! Answers for an overall ratio instead of a recall: each index is asked for the least recall whose answers
//! are near enough.

use crate::prediction::IndexPrediction;
use crate::request::AdviceRequest;
use bathyal_index::{Effort, IndexError, SearchResult};
use bathyal_kernels::Metric;
use bathyal_vectors::IdFile;
use bathyal_vectors::groundtruth::{GroundTruthError, OverallRatio};

/// The recalls that are tried for a ratio, in ascending order.
pub(crate) const RATIO_RECALLS: [f32; 9] = [0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995];

/// Refuses a ratio that no search has, a metric without ratios, and a ratio beside several recalls.
pub(crate) fn check_ratio(ratio: f32, metric: Metric, more_recalls: &[f32]) -> Result<(), IndexError> {
    let refuse = |what: String| Err(IndexError::Parameter(what));
    Effort::Ratio(ratio).checked().map_err(|refused| IndexError::Parameter(refused.to_string()))?;
    if metric == Metric::InnerProduct {
        return refuse("there is no ratio of inner products, which are not distances; give a recall".into());
    }
    match more_recalls.is_empty() {
        true => Ok(()),
        false => refuse("a ratio is asked for instead of recalls; leave one of them out".into()),
    }
}

/// Returns the overall ratio of the answers to `queries` queries; `None` if the request names none, or if no
/// query has one.
pub(crate) fn found_ratio(
    request: &AdviceRequest,
    truth: &IdFile,
    found: &SearchResult,
    queries: usize,
) -> Result<Option<f64>, GroundTruthError> {
    let options = request.options();
    let wanted = options.ratio.and_then(|_| OverallRatio::new(options.metric, truth));
    let Some(mut ratio) = wanted else { return Ok(None) };
    ratio.add(truth, &found.ids, &found.distances, found.k, queries)?;
    Ok(ratio.mean())
}

/// Returns, of each index on each device, the prediction for the least recall with which its pilots have the
/// ratio; that of the largest recall if none has. `predictions` are those of each recall, in ascending order,
/// of the same indexes in the same order.
pub(crate) fn least_recalls(predictions: Vec<Vec<IndexPrediction>>, ratio: f64) -> Vec<IndexPrediction> {
    let mut least: Vec<IndexPrediction> = Vec::new();
    for of_recall in predictions {
        for (at, prediction) in of_recall.into_iter().enumerate() {
            match least.get_mut(at) {
                None => least.push(prediction),
                Some(known) if !known.is_near_enough(ratio) => *known = prediction,
                Some(_) => {}
            }
        }
    }
    least
}

impl IndexPrediction {
    /// Returns true if the answers of the pilots have the ratio.
    pub(crate) fn is_near_enough(&self, ratio: f64) -> bool {
        self.pilot_ratio.is_some_and(|found| found <= ratio)
    }
}
