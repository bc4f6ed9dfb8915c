//! The identity of an index: a number with which all checksums of its pages, records and blocks begin.
//!
//! The number depends on the content of the vectors and of the queries given for calibration, on every option
//! that shapes the result, and on the version of the format. Two builds of the same input have the same
//! identity, and also the same bytes. A page of any other index has a checksum that does not fit.

use std::fmt;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64;

/// The identity of an index. Indexes of version 1 have none: their checksums begin with nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    number: Option<u64>,
    /// The checksum of the number, which other checksums continue.
    start: u32,
}

impl Identity {
    /// The absent identity of indexes of version 1.
    pub const NONE: Identity = Identity { number: None, start: 0 };

    /// Returns the identity of an object that `text` describes completely.
    pub fn of(text: &str) -> Identity {
        Identity::from_number(xxh3_64(text.as_bytes()))
    }

    /// Returns an identity that depends on this one and on `what`.
    pub fn and(self, what: &str) -> Identity {
        Identity::of(&format!("{self}; {what}"))
    }

    fn from_number(number: u64) -> Identity {
        Identity { number: Some(number), start: crc32c::crc32c(&number.to_le_bytes()) }
    }

    /// Returns true for the absent identity.
    pub fn is_none(self) -> bool {
        self.number.is_none()
    }

    /// Returns the CRC-32C of the identity (8 bytes, if there is one) and of `bytes`.
    #[inline]
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.start, bytes)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "{number:016x}"),
            None => f.write_str("none"),
        }
    }
}

impl FromStr for Identity {
    type Err = String;

    /// Parses sixteen lower-case hexadecimal digits.
    fn from_str(text: &str) -> Result<Identity, String> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match u64::from_str_radix(text, 16) {
            Ok(number) if digits && text.len() == 16 => Ok(Identity::from_number(number)),
            _ => Err(format!(
                "the identity {text:?} does not consist of sixteen lower-case hexadecimal digits"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_begin_with_the_identity() {
        let identity = Identity::of("these vectors, that seed");
        assert_eq!(identity.to_string().parse(), Ok(identity));
        assert_ne!(identity, Identity::of("these vectors, another seed"));
        assert_ne!(identity, identity.and("more"));
        let number = u64::from_str_radix(&identity.to_string(), 16).expect("a number");
        assert_eq!(
            identity.checksum(b"page"),
            crc32c::crc32c(&[&number.to_le_bytes()[..], b"page"].concat())
        );
        assert_eq!(Identity::NONE.checksum(b"page"), crc32c::crc32c(b"page"));
        for text in ["", "none", "0", "+123456789abcdef", "0123456789ABCDEF", "0123456789abcdef0"] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }
}
