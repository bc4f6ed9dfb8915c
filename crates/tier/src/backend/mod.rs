//! One file a backend. Each passes [`crate::conformance`].

pub mod dram;
pub mod file;
pub mod sim;
