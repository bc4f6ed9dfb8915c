//! JSON with its checksum in front: what versions and manifests of segments are written as.

use crate::error::CollectionError;
use serde::Serialize;

/// Bytes of the checksum: eight hexadecimal digits and a line feed.
const LINE_BYTES: usize = 9;

/// The CRC-32C of the JSON of `value` as a line of eight hexadecimal digits, then the JSON.
///
/// # Errors
/// [`CollectionError::Internal`] for what is no JSON.
pub(crate) fn seal(value: &impl Serialize) -> Result<Vec<u8>, CollectionError> {
    let json = serde_json::to_vec_pretty(value).map_err(|e| CollectionError::Internal(e.to_string()))?;
    let mut text = format!("{:08x}\n", crc32c::crc32c(&json)).into_bytes();
    text.extend_from_slice(&json);
    Ok(text)
}

/// The checksum, and the JSON that it is of.
///
/// # Errors
/// A sentence where it is not.
pub(crate) fn unseal(text: &[u8]) -> Result<(u32, &[u8]), String> {
    let sealed = || {
        let (line, json) = text.split_at_checked(LINE_BYTES)?;
        let digits = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        Some((u32::from_str_radix(digits, 16).ok().filter(|_| plain)?, json))
    };
    let (crc, json) = sealed().ok_or("it has no checksum")?;
    if crc32c::crc32c(json) == crc { Ok((crc, json)) } else { Err("its checksum is wrong".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_refused() {
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
