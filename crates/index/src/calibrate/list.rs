//! Calibration points of families whose effort is the length of the candidate list.

use super::Point;
use super::solve::{CurvePoint, Question};
use serde::{Deserialize, Serialize};

/// The recall at one size of the candidate list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ListPoint {
    /// Size of the candidate list (L in DiskANN).
    pub search_list: u32,
    /// Mean recall@k at that size.
    pub recall: f32,
}

impl Point for ListPoint {
    fn recall(&self) -> f32 {
        self.recall
    }

    fn rank(&self) -> (u32, u32, f32) {
        (self.search_list, 0, 0.0)
    }

    fn largest(&self) -> u32 {
        self.search_list
    }

    fn check(&self, _probes: u32) -> Result<(), String> {
        Ok(())
    }
}

impl Question<'_, ListPoint> {
    /// Returns the length that reaches the recall, before it is scaled to k; `None` if none does.
    pub(crate) fn list(&self) -> Option<f64> {
        let points = self.curve.points.iter().map(|point| Length {
            search_list: f64::from(point.search_list),
            recall: f64::from(point.recall),
        });
        self.cheapest([points], |_| 0.0).map(|length| length.search_list)
    }
}

/// A length of the candidate list, measured or interpolated.
#[derive(Debug, Clone, Copy)]
struct Length {
    search_list: f64,
    recall: f64,
}

impl CurvePoint for Length {
    fn value(&self) -> f64 {
        self.recall
    }

    /// Interpolates by the logarithm of the list, with which recall rises.
    fn between(&self, above: &Length, share: f64) -> Length {
        let (low, high) = (self.search_list.ln(), above.search_list.ln());
        let search_list = (low + share * (high - low)).exp();
        Length { search_list, recall: self.recall + share * (above.recall - self.recall) }
    }
}
