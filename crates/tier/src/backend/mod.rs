//! Backends, one module each. Each passes [`crate::conformance`].

pub mod dram;
pub mod file;
pub(crate) mod in_place;
pub mod mapped;
pub mod sim;
pub(crate) mod wake_flag;
pub mod writable;
