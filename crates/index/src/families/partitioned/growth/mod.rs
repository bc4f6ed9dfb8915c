//! Inserts into partitions that lie in memory which several machines reach (d-HNSW, section 3.2).
//!
//! `layout` and `overflow` are the bytes, which `laying` writes for the first time; `reading` is what a search does, `writer` what
//! whoever changes something does, with `regroup` for a group that is full and `units` for where that then lies. `memory` carries
//! their operations out; `changing` is what an open index offers, `verifying` looks at every byte.

mod changing;
pub(super) mod laying;
pub(super) mod layout;
mod memory;
pub(super) mod overflow;
pub(super) mod reading;
mod regroup;
#[cfg(test)]
mod tests;
mod units;
pub(super) mod verifying;
mod writer;

pub(super) use changing::{Growth, counts, pause};
