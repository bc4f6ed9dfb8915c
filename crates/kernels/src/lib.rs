//! Bathyal.
