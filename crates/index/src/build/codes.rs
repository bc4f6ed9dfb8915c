//! The default codes of an index.

use crate::error::IndexError;
use crate::format::manifest::MAX_CODE_BYTES;
use bathyal_kernels::Element;
use bathyal_kernels::quantize::{CodeKind, Codec};

/// The default bytes of a code: with 32 per vector, the codes of a billion vectors take 32 GB (GustANN,
/// section 4.5.1).
pub const DEFAULT_CODE_BYTES: u32 = 32;
/// Bits of a vector for each bit of its code, for vectors of bits. The default of other elements, an eighth
/// of a byte per dimension, would be as much as the vectors themselves. With half of that, a `cluster` index
/// of MiniLM's signs takes 12.5 reads per query instead of 7.9 at recall 0.97, and 1.9 times the size of the
/// data instead of 2.5.
const BITS_A_CODE_BIT: usize = 2;
/// The fewest bytes of such a code.
const LEAST_CODE_BYTES: usize = 8;

/// Returns the bytes of a code for vectors of `element` if the default of [`CodeChoice`] does not suit them.
/// Vectors with too many dimensions for codes of axes need a bit per dimension anyway.
pub(super) fn default_code_bytes(element: Element, dim: usize) -> Option<u32> {
    let suits = element == Element::B1 && dim <= Codec::MOST_AXES_DIM;
    suits.then(|| (dim / 8 / BITS_A_CODE_BIT).max(LEAST_CODE_BYTES) as u32)
}

/// The caller's choice of codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodeChoice {
    /// Bytes per vector; `None` chooses by the dimensions.
    pub(crate) bytes: Option<u32>,
    /// The kind; `None` chooses the best by measurement (`docs/codes.md`).
    pub(crate) kind: Option<CodeKind>,
}

/// Returns the fewest bytes of a code of this kind.
fn least_bytes(kind: CodeKind, dim: usize) -> u32 {
    match kind {
        // `bits` per dimension, and the factors.
        CodeKind::RaBitQ { bits } => u32::from(bits) * dim.div_ceil(8) as u32 + 8,
        CodeKind::Axes => 8,
        _ => 1,
    }
}

impl CodeChoice {
    /// Returns true if no size was chosen, and the kind supports any size.
    pub(crate) fn may_be_short(self) -> bool {
        self.bytes.is_none() && matches!(self.kind, None | Some(CodeKind::Axes))
    }

    /// Refuses sizes out of range.
    pub(crate) fn check(self) -> Result<(), IndexError> {
        if self.bytes.is_some_and(|bytes| bytes == 0 || bytes > MAX_CODE_BYTES) {
            return Err(IndexError::Parameter(format!("code_bytes must be between 1 and {MAX_CODE_BYTES}")));
        }
        Ok(())
    }

    /// Returns the chosen bytes of a code, or the default: short vectors need at most one byte per dimension;
    /// long vectors need more bytes to navigate well; and a chosen kind may have a minimum.
    pub(crate) fn bytes(self, dim: usize) -> u32 {
        let default = DEFAULT_CODE_BYTES.max(dim as u32 / 8).min(dim.max(8) as u32);
        self.bytes.unwrap_or_else(|| default.max(self.kind.map_or(1, |kind| least_bytes(kind, dim))))
    }

    /// Returns half the bytes of a code for `dim` dimensions; `None` if the kind does not support that.
    pub(crate) fn halved(self, dim: usize) -> Option<u32> {
        let least = self.kind.map_or(1, |kind| least_bytes(kind, dim));
        Some(self.bytes(dim) / 2).filter(|half| *half >= least)
    }

    /// Returns the kind and the size of codes that are scanned in groups.
    pub(crate) fn of_groups(self, dim: usize) -> (CodeKind, usize) {
        let bytes = self.bytes(dim) as usize;
        let kind = self.kind.unwrap_or_else(|| match Codec::default_for(dim, bytes) {
            // Tables of product codes do not fit in registers. Residuals need fewer bytes than whole vectors,
            // so codes of planes are better at any size.
            CodeKind::Pq | CodeKind::Pq4 if dim <= Codec::MOST_AXES_DIM => CodeKind::Axes,
            CodeKind::Pq | CodeKind::Pq4 => CodeKind::RaBitQ { bits: 1 },
            kind => kind,
        });
        let least = least_bytes(kind, dim) as usize;
        (kind, if self.bytes.is_none() { bytes.max(least) } else { bytes })
    }

    /// Returns the most bytes of memory of training, besides its sample and a copy of it.
    pub(crate) fn training_bytes(self, dim: usize) -> u64 {
        Codec::training_bytes(self.of_groups(dim).0, dim)
    }

    /// Returns the most bytes of a trained codec while it encodes: its matrix as floats and in its stored
    /// form.
    pub(crate) fn codec_bytes(self, dim: usize) -> u64 {
        8 * if self.of_groups(dim).0 == CodeKind::Axes { (dim as u64).pow(2) } else { dim as u64 * 1024 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_kernels::Metric;

    #[test]
    fn the_default_size_suits_every_kind() {
        let kinds = [CodeKind::Pq, CodeKind::Pq4, CodeKind::Axes];
        let kinds = kinds.into_iter().chain((1..=8).map(|bits| CodeKind::RaBitQ { bits }));
        for kind in kinds {
            for dim in [1, 3, 7, 8, 9, 100, 128, 1000, 4096] {
                // Finding the axes of long vectors takes long.
                if kind == CodeKind::Axes && dim > 128 {
                    continue;
                }
                let choice = CodeChoice { bytes: None, kind: Some(kind) };
                let rows: Vec<f32> = (0..20 * dim).map(|at| (at * 7919 % 101) as f32).collect();
                for bytes in [choice.bytes(dim) as usize, choice.of_groups(dim).1] {
                    let trained = Codec::train(kind, bytes, Metric::L2, &rows, dim, 1, 1);
                    assert!(trained.is_ok(), "{kind} of {dim}: {:?}", trained.err());
                }
                // The size that is advised if memory is short is possible, too.
                if let Some(half) = choice.halved(dim) {
                    let trained = Codec::train(kind, half as usize, Metric::L2, &rows, dim, 1, 1);
                    assert!(trained.is_ok(), "{kind} of {dim}, {half} bytes: {:?}", trained.err());
                }
            }
            assert!(CodeChoice { bytes: None, kind: Some(kind) }.bytes(65_536) <= MAX_CODE_BYTES);
        }
    }
}
