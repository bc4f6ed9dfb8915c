//! Bathyal.

pub mod groundtruth;
pub mod progress;
pub mod vectors;
