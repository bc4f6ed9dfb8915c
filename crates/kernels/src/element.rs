//! The types that a vector's components may have.

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
}

impl Element {
    /// Every element type, in the order of their declaration.
    pub const ALL: [Element; 4] = [Element::F32, Element::F16, Element::U8, Element::I8];

    /// Bytes of one component.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::F16 => 2,
            Element::U8 | Element::I8 => 1,
        }
    }

    /// The name used in files, on the command line and in Python: `f32`, `f16`, `u8` or `i8`.
    pub const fn name(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::F16 => "f16",
            Element::U8 => "u8",
            Element::I8 => "i8",
        }
    }

    /// True for the types that can hold NaN and infinities.
    pub const fn is_float(self) -> bool {
        matches!(self, Element::F32 | Element::F16)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A name that is no element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown element type '{0}': it is one of f32, f16, u8, i8")]
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
        let refused = "bf16".parse::<Element>().unwrap_err();
        assert!(refused.to_string().contains("bf16"));
    }
}
