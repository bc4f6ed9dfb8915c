//! The element types: types of a vector's components.

use std::fmt;
use std::str::FromStr;

/// Type of a vector's components; bytes are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// 32-bit IEEE 754 float.
    F32,
    /// 16-bit IEEE 754 float (half precision, not bfloat16).
    F16,
    /// Unsigned byte.
    U8,
    /// Signed byte.
    I8,
    /// 16-bit brain float: the upper half of an `f32`.
    Bf16,
    /// A bit, 0 or 1; eight to a byte. Unused bits of the last byte of a vector are 0.
    B1,
}

impl Element {
    /// All element types, in the order of their declaration.
    pub const ALL: [Element; 6] =
        [Element::F32, Element::F16, Element::U8, Element::I8, Element::Bf16, Element::B1];

    /// Returns the bits of one component.
    #[inline]
    pub const fn bits(self) -> usize {
        match self {
            Element::F32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::U8 | Element::I8 => 8,
            Element::B1 => 1,
        }
    }

    /// Returns the bytes of a vector of `dim` components; `usize::MAX` if no slice can be so long.
    #[inline]
    pub const fn row_bytes(self, dim: usize) -> usize {
        match self {
            Element::B1 => dim.div_ceil(8),
            _ => dim.saturating_mul(self.bits() / 8),
        }
    }

    /// Returns the number of components in `bytes` bytes.
    #[inline]
    pub const fn components_in(self, bytes: usize) -> usize {
        match self {
            Element::B1 => bytes.saturating_mul(8),
            _ => bytes / (self.bits() / 8),
        }
    }

    /// Returns the name used in files, on the command line and in Python: `f32`, `f16`, `u8`, `i8`, `bf16` or
    /// `b1`.
    pub const fn name(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::F16 => "f16",
            Element::U8 => "u8",
            Element::I8 => "i8",
            Element::Bf16 => "bf16",
            Element::B1 => "b1",
        }
    }

    /// Returns true if an index scales vectors of this type to length 1 under cosine. Only f32 is scaled.
    ///
    /// Rounding a unit vector to 16 bits changes its length by up to 2^-11, which is more than the distance
    /// between vectors of nearly the same direction. So for all other types the kernel computes the cosine
    /// from vectors of any length.
    pub const fn has_unit_vectors(self) -> bool {
        matches!(self, Element::F32)
    }

    /// Returns true for the types that can hold NaN and infinities.
    pub const fn is_float(self) -> bool {
        matches!(self, Element::F32 | Element::F16 | Element::Bf16)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Error for a name that is not an element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown element type '{0}': it is one of f32, f16, bf16, u8, i8, b1")]
pub struct UnknownElement(pub String);

impl FromStr for Element {
    type Err = UnknownElement;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Element::ALL
            .into_iter()
            .find(|element| element.name() == name)
            .ok_or_else(|| UnknownElement(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for element in Element::ALL {
            assert_eq!(element.to_string().parse(), Ok(element));
        }
        let refused = "f64".parse::<Element>().unwrap_err();
        assert!(refused.to_string().contains("f64"));
    }

    #[test]
    fn rows_have_whole_bytes() {
        for (element, bytes) in Element::ALL.into_iter().zip([40, 20, 10, 10, 20, 2]) {
            assert_eq!(element.row_bytes(10), bytes, "{element}");
            assert_eq!(element.components_in(element.row_bytes(16)), 16, "{element}");
            assert_eq!(element.row_bytes(0), 0, "{element}");
        }
        assert_eq!(Element::F32.row_bytes(usize::MAX), usize::MAX);
    }
}
