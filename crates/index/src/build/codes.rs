//! Which codes an index has when its caller did not say.

use crate::error::IndexError;
use crate::format::manifest::MAX_CODE_BYTES;
use bathyal_kernels::Element;
use bathyal_kernels::quantize::{CodeKind, Codec};

/// Bytes of a code: 32 a vector fit a billion vectors into 32 GB (GustANN, section 4.5.1).
pub const DEFAULT_CODE_BYTES: u32 = 32;
/// Bits of a vector for each bit of its code, where vectors are of bits: an eighth of the dimensions, as of other elements, would be
/// as much as the vectors themselves. With half of that, a `cluster` index of MiniLM's signs reads 12.5 times a query instead of
/// 7.9 at recall 0.97, and takes 1.9 times the data instead of 2.5.
const BITS_A_CODE_BIT: usize = 2;
/// Least bytes of such a code.
const LEAST_CODE_BYTES: usize = 8;

/// Bytes of a code of vectors of `element` where those of [`CodeChoice`] do not suit it. Longer vectors than axes are made for
/// need a bit a dimension anyway.
pub(super) fn default_code_bytes(element: Element, dim: usize) -> Option<u32> {
    let suits = element == Element::B1 && dim <= Codec::MOST_AXES_DIM;
    suits.then(|| (dim / 8 / BITS_A_CODE_BIT).max(LEAST_CODE_BYTES) as u32)
}

/// The codes that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodeChoice {
    /// Bytes a vector; `None` picks a size that suits the dimension.
    pub(crate) bytes: Option<u32>,
    /// `None` picks the best by measurement (`docs/codes.md`).
    pub(crate) kind: Option<CodeKind>,
}

/// Bytes that a code of this kind takes at least.
fn least_bytes(kind: CodeKind, dim: usize) -> u32 {
    match kind {
        // So many bits a dimension, and the factors.
        CodeKind::RaBitQ { bits } => u32::from(bits) * dim.div_ceil(8) as u32 + 8,
        CodeKind::Axes => 8,
        _ => 1,
    }
}

impl CodeChoice {
    /// Whether the size is open, and the kind can have any.
    pub(crate) fn may_be_short(self) -> bool {
        self.bytes.is_none() && matches!(self.kind, None | Some(CodeKind::Axes))
    }

    /// Refuses sizes that no code has.
    pub(crate) fn check(self) -> Result<(), IndexError> {
        if self.bytes.is_some_and(|bytes| bytes == 0 || bytes > MAX_CODE_BYTES) {
            return Err(IndexError::Parameter(format!("code_bytes must be between 1 and {MAX_CODE_BYTES}")));
        }
        Ok(())
    }

    /// Bytes of a code when the caller did not say: small vectors need no more than they have dimensions; long ones need
    /// more to navigate well.
    /// A kind that is named may have no shorter ones.
    pub(crate) fn bytes(self, dim: usize) -> u32 {
        let usual = DEFAULT_CODE_BYTES.max(dim as u32 / 8).min(dim.max(8) as u32);
        self.bytes.unwrap_or_else(|| usual.max(self.kind.map_or(1, |kind| least_bytes(kind, dim))))
    }

    /// Half the bytes that a code of `dim` dimensions has.
    pub(crate) fn halved(self, dim: usize) -> Option<u32> {
        let least = self.kind.map_or(1, |kind| least_bytes(kind, dim));
        Some(self.bytes(dim) / 2).filter(|half| *half >= least)
    }

    /// The kind and the size of codes that are scanned in groups.
    pub(crate) fn of_groups(self, dim: usize) -> (CodeKind, usize) {
        let bytes = self.bytes(dim) as usize;
        let kind = self.kind.unwrap_or_else(|| match Codec::default_for(dim, bytes) {
            // Tables of product codes do not fit registers. Residuals want fewer bytes than whole vectors, so the planes
            // are ahead at any size.
            CodeKind::Pq | CodeKind::Pq4 if dim <= Codec::MOST_AXES_DIM => CodeKind::Axes,
            CodeKind::Pq | CodeKind::Pq4 => CodeKind::RaBitQ { bits: 1 },
            kind => kind,
        });
        let least = least_bytes(kind, dim) as usize;
        (kind, if self.bytes.is_none() { bytes.max(least) } else { bytes })
    }

    /// Most bytes of memory that training takes besides its sample and a copy of it.
    pub(crate) fn training_bytes(self, dim: usize) -> u64 {
        Codec::training_bytes(self.of_groups(dim).0, dim)
    }

    /// Most bytes of a trained codec while it encodes: its matrix as floats and as it is stored.
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
                // The axes of long vectors take long to find.
                if kind == CodeKind::Axes && dim > 128 {
                    continue;
                }
                let choice = CodeChoice { bytes: None, kind: Some(kind) };
                let rows: Vec<f32> = (0..20 * dim).map(|at| (at * 7919 % 101) as f32).collect();
                for bytes in [choice.bytes(dim) as usize, choice.of_groups(dim).1] {
                    let trained = Codec::train(kind, bytes, Metric::L2, &rows, dim, 1, 1);
                    assert!(trained.is_ok(), "{kind} of {dim}: {:?}", trained.err());
                }
                // What is advised where memory is short is possible, too.
                if let Some(half) = choice.halved(dim) {
                    let trained = Codec::train(kind, half as usize, Metric::L2, &rows, dim, 1, 1);
                    assert!(trained.is_ok(), "{kind} of {dim}, {half} bytes: {:?}", trained.err());
                }
            }
            assert!(CodeChoice { bytes: None, kind: Some(kind) }.bytes(65_536) <= MAX_CODE_BYTES);
        }
    }
}
