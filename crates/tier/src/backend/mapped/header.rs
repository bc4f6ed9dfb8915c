//! The header of an index in shared memory, by which later runs and other processes identify it.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `BATHMAPD` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | state: 1 while it is being loaded, 2 when it is complete |
//! | 16 | 8 | length of the content in bytes |
//! | 24 | 4 | CRC-32C of the content |
//! | 28 | 4 | process that loads or has loaded it |
//! | 32 | 4 | CRC-32C of the 32 bytes before |
//!
//! Little-endian; the content begins at byte 4096.

/// Offset of the content: one page, so that the alignment of records to pages and cache lines is kept.
pub(super) const HEADER_BYTES: usize = 4096;
/// Bytes of the header that are used, rounded up to a cache line, which is written at once.
pub(super) const USED_BYTES: usize = 64;

const MAGIC: &[u8; 8] = b"BATHMAPD";
const VERSION: u32 = 1;
const CHECKED: usize = 32;
const LOADING: u32 = 1;
const READY: u32 = 2;

/// Length and checksum that identify a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentIdentity {
    pub(super) len: u64,
    pub(super) crc32c: u32,
}

/// Result of reading the header of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// All zeros, or a file without bytes.
    Empty,
    /// A content whose load has not finished.
    Loading {
        /// Number of the loading process.
        process: u32,
    },
    /// A complete content.
    Ready(ContentIdentity),
    /// A header of a later version, or no header of Bathyal.
    Foreign,
}

/// Encodes the header of a content: complete if `ready`, else being loaded.
pub(super) fn encode(identity: ContentIdentity, ready: bool) -> [u8; USED_BYTES] {
    let mut header = [0; USED_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(if ready { READY } else { LOADING }).to_le_bytes());
    header[16..24].copy_from_slice(&identity.len.to_le_bytes());
    header[24..28].copy_from_slice(&identity.crc32c.to_le_bytes());
    header[28..32].copy_from_slice(&std::process::id().to_le_bytes());
    let crc = crc32c::crc32c(&header[..CHECKED]);
    header[CHECKED..CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Decodes the first bytes of a place.
pub(super) fn decode(bytes: &[u8; USED_BYTES]) -> HeaderState {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if bytes.iter().all(|byte| *byte == 0) {
        return HeaderState::Empty;
    }
    if &bytes[..8] != MAGIC || word(8) > VERSION {
        return HeaderState::Foreign;
    }
    // A header with a wrong checksum was being written during a power failure, so its load has not finished.
    if word(CHECKED) != crc32c::crc32c(&bytes[..CHECKED]) || word(12) != READY {
        return HeaderState::Loading { process: word(28) };
    }
    let len = u64::from(word(16)) | u64::from(word(20)) << 32;
    HeaderState::Ready(ContentIdentity { len, crc32c: word(24) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded_and_a_header_with_a_flipped_bit_is_not_ready() {
        let identity = ContentIdentity { len: 5_000_000_123, crc32c: 0xDEAD_BEEF };
        let ready = encode(identity, true);
        assert_eq!(decode(&ready), HeaderState::Ready(identity));
        assert_eq!(decode(&encode(identity, false)), HeaderState::Loading { process: std::process::id() });
        assert_eq!(decode(&[0; USED_BYTES]), HeaderState::Empty);
        assert_eq!(decode(&[7; USED_BYTES]), HeaderState::Foreign);
        for bit in 0..(CHECKED + 4) * 8 {
            let mut damaged = ready;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(decode(&damaged), HeaderState::Ready(_)), "bit {bit}");
        }
    }
}
