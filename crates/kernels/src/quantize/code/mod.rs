//! What codes of all kinds have in common: their names, errors, serialised form, blocks for scans.

pub(super) mod block;
pub(super) mod bytes;
pub(super) mod prefetch;

use crate::kmeans::KMeansError;
use std::fmt;
use std::str::FromStr;

/// Largest dimension of a codec; keeps every size computation far from overflow.
pub const MAX_DIM: usize = 1 << 16;

/// The family of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodeKind {
    /// Product quantization (Jégou et al., PAMI'11), 8 bits a subspace: one byte each.
    Pq,
    /// Product quantization, 4 bits a subspace: two subspaces a byte.
    Pq4,
    /// Extended RaBitQ (Gao & Long, SIGMOD'24; Gao et al., SIGMOD'25): 1 to 8 bits a dimension after a random
    /// rotation, and two factors a vector.
    RaBitQ {
        /// Bits a dimension.
        bits: u8,
    },
    /// The same code with its bits allocated to the principal axes by their variance; any number of bytes from 8.
    Axes,
}

impl fmt::Display for CodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeKind::Pq => f.write_str("pq"),
            CodeKind::Pq4 => f.write_str("pq4"),
            CodeKind::RaBitQ { bits } => write!(f, "rabitq{bits}"),
            CodeKind::Axes => f.write_str("axes"),
        }
    }
}

impl FromStr for CodeKind {
    type Err = QuantizeError;

    fn from_str(text: &str) -> Result<Self, QuantizeError> {
        match text {
            "pq" => Ok(CodeKind::Pq),
            "pq4" => Ok(CodeKind::Pq4),
            "axes" => Ok(CodeKind::Axes),
            "rabitq1" => Ok(CodeKind::RaBitQ { bits: 1 }),
            "rabitq2" => Ok(CodeKind::RaBitQ { bits: 2 }),
            "rabitq3" => Ok(CodeKind::RaBitQ { bits: 3 }),
            "rabitq4" => Ok(CodeKind::RaBitQ { bits: 4 }),
            "rabitq5" => Ok(CodeKind::RaBitQ { bits: 5 }),
            "rabitq6" => Ok(CodeKind::RaBitQ { bits: 6 }),
            "rabitq7" => Ok(CodeKind::RaBitQ { bits: 7 }),
            "rabitq8" => Ok(CodeKind::RaBitQ { bits: 8 }),
            _ => Err(QuantizeError::UnknownKind(text.to_string())),
        }
    }
}

/// Why a codec could not be trained or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantizeError {
    /// The name is of no code.
    #[error("unknown code `{0}`; known are pq, pq4, rabitq1 to rabitq8, axes")]
    UnknownKind(String),
    /// Zero or too many dimensions.
    #[error("{0} dimensions; a codec takes 1 to {MAX_DIM}")]
    Dimension(usize),
    /// RaBitQ takes 1 to 8 bits a dimension.
    #[error("{0} bits a dimension; rabitq takes 1 to 8")]
    Bits(u8),
    /// A code of this size cannot be made.
    #[error("codes of {code_bytes} bytes are too small for {kind}; it needs at least {least}")]
    CodeBytes {
        /// Bytes asked for.
        code_bytes: usize,
        /// The kind asked for.
        kind: CodeKind,
        /// The least size of this kind.
        least: usize,
    },
    /// The training sample is empty, ragged or not finite.
    #[error("training sample: {0}")]
    Sample(#[from] KMeansError),
    /// The squares of the sample's values are beyond what an f32 holds.
    #[error("the values are so large that their squares overflow; scale the vectors down")]
    TooLarge,
    /// The bytes are not a codec of this version.
    #[error("not a readable codec: {0}")]
    Malformed(&'static str),
}

/// The whole number nearest to `value`, to the even one of two, if it is below 2 to the 22nd: as `round_ties_even` tells it, which
/// is a call where no instruction set is promised.
#[inline(always)]
pub(super) fn nearest_whole(value: f32) -> i32 {
    // Its last bit stands for 1, and so does that of its sum with anything shorter.
    const UNIT_STEPS: f32 = 12_582_912.0;
    (value + UNIT_STEPS).to_bits().wrapping_sub(UNIT_STEPS.to_bits()) as i32
}

/// What a unit of a query's tables stands for, and its inverse; zeros where a float cannot hold both.
///
/// That is at values whose squares vanish or overflow: nothing is told apart there, and nothing becomes NaN.
pub(super) fn held(scale: f32, inverse: f32) -> (f32, f32) {
    if scale.is_finite() && inverse.is_finite() { (scale, inverse) } else { (0.0, 0.0) }
}
