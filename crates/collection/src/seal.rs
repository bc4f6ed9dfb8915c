//! JSON with a checksum in front: the format of versions and of the manifests of segments.

use crate::error::CollectionError;
use serde::Serialize;

/// Bytes of the line with the checksum: eight hexadecimal digits and a line feed.
const LINE_BYTES: usize = 9;

/// Returns the JSON of `value`, behind a line with its CRC-32C in eight hexadecimal digits.
///
/// # Errors
/// [`CollectionError::Internal`] if `value` cannot be written as JSON.
pub(crate) fn seal(value: &impl Serialize) -> Result<Vec<u8>, CollectionError> {
    let json = serde_json::to_vec_pretty(value).map_err(|e| CollectionError::Internal(e.to_string()))?;
    let mut text = format!("{:08x}\n", crc32c::crc32c(&json)).into_bytes();
    text.extend_from_slice(&json);
    Ok(text)
}

/// Checks the checksum. Returns it, and the JSON.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn unseal(text: &[u8]) -> Result<(u32, &[u8]), String> {
    let split = || {
        let (line, json) = text.split_at_checked(LINE_BYTES)?;
        let digits = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        Some((u32::from_str_radix(digits, 16).ok().filter(|_| plain)?, json))
    };
    let (crc, json) = split().ok_or("it has no checksum")?;
    if crc32c::crc32c(json) == crc { Ok((crc, json)) } else { Err("its checksum is wrong".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_or_flipped_text_is_refused() {
        let text = seal(&["a", "b"]).unwrap();
        let (crc, json) = unseal(&text).unwrap();
        assert_eq!(crc, crc32c::crc32c(json));
        assert_eq!(serde_json::from_slice::<Vec<String>>(json).unwrap(), ["a", "b"]);
        for at in 0..text.len() {
            assert!(unseal(&text[..at]).is_err(), "cut at {at}");
            let mut flipped = text.clone();
            flipped[at] ^= 1;
            assert!(unseal(&flipped).is_err(), "flipped at {at}");
        }
    }
}
