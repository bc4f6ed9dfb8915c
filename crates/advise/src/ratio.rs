//! An overall ratio that is asked for instead of a recall.

use bathyal_index::{Effort, IndexError};
use bathyal_kernels::Metric;

/// The recalls that are tried for a ratio, in ascending order: each index takes the least that has it.
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
