//! One file a backend. Each passes [`crate::conformance`].

pub(crate) mod bell;
pub mod dram;
pub mod file;
pub(crate) mod in_place;
pub mod mapped;
pub mod sim;
pub mod writable;
