//! Adds and checks the last line of manifests and journals: the checksum of the text before it.

/// Returns `text`, a line feed, and a line with the text's CRC-32C.
pub(crate) fn sealed(mut text: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&text);
    text.extend_from_slice(format!("\ncrc32c {crc:08x}\n").as_bytes());
    text
}

/// Returns the text that was passed to [`sealed`].
///
/// # Errors
/// A sentence if the last line is not the checksum of the text before it.
pub(crate) fn unsealed(bytes: &[u8]) -> Result<&[u8], String> {
    let truncated = || "the file does not end with a checksum line; it is truncated".to_string();
    let lines = bytes.strip_suffix(b"\n").ok_or_else(truncated)?;
    let split = lines.iter().rposition(|b| *b == b'\n').ok_or_else(truncated)?;
    let (text, line) = (&lines[..split], &lines[split + 1..]);
    let expected = format!("crc32c {:08x}", crc32c::crc32c(text));
    if line != expected.as_bytes() {
        let found = String::from_utf8_lossy(line);
        return Err(format!("its last line is {found:?}, but the text before it has {expected:?}"));
    }
    Ok(text)
}
