//! Bathyal.

pub mod progress;
pub mod vectors;
