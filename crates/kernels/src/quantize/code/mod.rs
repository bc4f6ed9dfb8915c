//! Definitions that all kinds of codes share: names, errors, serialised form, blocks for scans.

pub(super) mod block;
pub(super) mod bytes;
pub(super) mod prefetch;

use crate::kmeans::KMeansError;
use std::fmt;
use std::str::FromStr;

/// Largest dimension of a codec. It keeps all computations of sizes far from overflow.
pub const MAX_DIM: usize = 1 << 16;

/// The kind of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodeKind {
    /// Product quantization (Jégou et al., PAMI'11) with 8 bits for each subspace: one byte.
    Pq,
    /// Product quantization with 4 bits for each subspace: two subspaces share a byte.
    Pq4,
    /// Extended RaBitQ (Gao & Long, SIGMOD'24; Gao et al., SIGMOD'25): 1 to 8 bits for each dimension after a
    /// random rotation, and two factors for each vector.
    RaBitQ {
        /// Bits of each dimension.
        bits: u8,
    },
    /// Extended RaBitQ with bits allocated to the principal axes by their variance: any number of bytes from
    /// 8 on.
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

/// The reason why a codec could not be trained or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantizeError {
    /// The name is not that of a kind of code.
    #[error("unknown code `{0}`; known are pq, pq4, rabitq1 to rabitq8, axes")]
    UnknownKind(String),
    /// Zero or too many dimensions.
    #[error("{0} dimensions; a codec takes 1 to {MAX_DIM}")]
    Dimension(usize),
    /// RaBitQ takes 1 to 8 bits a dimension.
    #[error("{0} bits a dimension; rabitq takes 1 to 8")]
    Bits(u8),
    /// The size is too small for a code of this kind.
    #[error("codes of {code_bytes} bytes are too small for {kind}; it needs at least {least}")]
    CodeBytes {
        /// Bytes asked for.
        code_bytes: usize,
        /// The kind asked for.
        kind: CodeKind,
        /// The least size of this kind.
        least: usize,
    },
    /// The training sample is empty, has an incomplete row or a value that is not finite.
    #[error("training sample: {0}")]
    Sample(#[from] KMeansError),
    /// The squares of the sample's values overflow an f32.
    #[error("the values are so large that their squares overflow; scale the vectors down")]
    TooLarge,
    /// The bytes are not a codec of this version.
    #[error("not a readable codec: {0}")]
    Malformed(&'static str),
}

/// Rounds `value`, of magnitude below 2 to the 22nd, to the nearest whole number, ties to even.
///
/// It equals `round_ties_even`, which is a function call unless the target's instruction set has rounding.
#[inline(always)]
pub(super) fn nearest_whole(value: f32) -> i32 {
    // The last bit of this number has the value 1. The same holds for its sum with any smaller number, which
    // is so rounded.
    const UNIT_STEPS: f32 = 12_582_912.0;
    (value + UNIT_STEPS).to_bits().wrapping_sub(UNIT_STEPS.to_bits()) as i32
}

/// Returns `scale`, the value of a unit in the tables of a query, and its `inverse`; zeros unless both are
/// finite.
///
/// They are not finite for values whose squares vanish or overflow. All such values then score the same, and
/// no score is NaN.
pub(super) fn finite_or_zero(scale: f32, inverse: f32) -> (f32, f32) {
    if scale.is_finite() && inverse.is_finite() { (scale, inverse) } else { (0.0, 0.0) }
}
