//! Codes of bit planes: RaBitQ in its extended form (Gao & Long, SIGMOD'24; Gao et al., SIGMOD'25), and the
//! same code with bits allocated to principal axes.
//!
//! A vector is centred and rotated. Each coordinate becomes one of `2^bits` levels, which are chosen together
//! so that the code has nearly the direction of the vector. Two factors, `|o|^2` and `|o|^2 / <code, o>`,
//! make the estimate of the inner product unbiased.

mod axes;
mod bound;
mod eigen;
mod encode;
#[cfg(target_arch = "x86_64")]
mod encode_avx512;
mod factors;
mod group;
#[cfg(target_arch = "x86_64")]
mod group_avx2;
#[cfg(target_arch = "x86_64")]
mod group_avx512;
mod layout;
mod offload;
mod quantizer;
mod query;
mod rotation;
mod score;
#[cfg(target_arch = "x86_64")]
mod score_avx2;
#[cfg(target_arch = "x86_64")]
mod score_avx512;
mod shorten;
#[cfg(test)]
mod tests;
mod train;

pub(super) use encode::PlaneScratch;
pub(super) use group::GroupQuery;
pub use offload::{PlaneCodes, PlaneNumbers, ScanNumbers};
pub(super) use quantizer::PlaneQuantizer;
pub(super) use query::PlaneQuery;
pub(super) use score::score;
