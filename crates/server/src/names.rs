//! Names of collections and indexes in addresses.

use std::fmt;
use std::str::FromStr;

/// The longest name in bytes.
const MAX_NAME_BYTES: usize = 128;

/// The name of a collection or an index: letters, digits, `.`, `_` and `-`, beginning with a letter or a
/// digit. It cannot lead out of the served folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryName(String);

impl EntryName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl FromStr for EntryName {
    type Err = String;

    fn from_str(text: &str) -> Result<EntryName, String> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !begins || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_allowed) {
            return Err(format!(
                "{text:?} is not a valid name; a name has 1 to {MAX_NAME_BYTES} letters a-z and A-Z, digits, \
                 '.', '_' and '-', and begins with a letter or a digit"
            ));
        }
        Ok(EntryName(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for good in ["a", "words-2.v1", "7", "A_b", &"x".repeat(128)] {
            assert_eq!(good.parse::<EntryName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            ".a",
            "-a",
            "_a",
            "a/b",
            "a\\b",
            "../a",
            "a b",
            "a\0",
            "a\n",
            "ä",
            "a:b",
            "a%2e",
            &"x".repeat(129),
        ] {
            assert!(bad.parse::<EntryName>().is_err(), "{bad:?}");
        }
    }
}
