//! The header of a part, which identifies it. All numbers are little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `BATHYALP` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | CRC-32C of the bytes from 16 to 4096 |
//! | 16 | 8 | the key: the number of the draft, which no other one has |
//! | 24 | 4 | number of this part, from 1 |
//! | 28 | 4 | number of parts |
//! | 32 | 4 | bytes of a unit |
//! | 36 | 4 | length of the object's name |
//! | 40 | up to 255 | the object's name |
//! | then | up to 4096 | zeros |

/// The length of the header, before the first unit: the largest alignment of reads that devices require.
pub const HEADER_BYTES: u64 = 4096;

const MAGIC: &[u8; 8] = b"BATHYALP";
const VERSION: u32 = 1;
const NAME_OFFSET: usize = 40;
/// The longest name of an object in bytes.
const MAX_NAME_BYTES: usize = 255;

/// The fields of a part's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartHeader {
    pub(crate) key: u64,
    /// The number of the part, from 0.
    pub(crate) part: u32,
    pub(crate) parts: u32,
    pub(crate) stripe_bytes: u32,
    pub(crate) object: String,
}

impl PartHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        let name = &self.object.as_bytes()[..self.object.len().min(MAX_NAME_BYTES)];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key.to_le_bytes());
        let words = [self.part + 1, self.parts, self.stripe_bytes, name.len() as u32];
        let slots = bytes[24..NAME_OFFSET].chunks_exact_mut(4);
        slots.zip(words).for_each(|(slot, word)| slot.copy_from_slice(&word.to_le_bytes()));
        bytes[NAME_OFFSET..NAME_OFFSET + name.len()].copy_from_slice(name);
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses the bytes that [`PartHeader::encode`] wrote.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<PartHeader, String> {
        if bytes.len() < HEADER_BYTES as usize || bytes[..8] != *MAGIC {
            return Err("is no part of a striped index: it was truncated or overwritten".into());
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (version, found) = (word(8), crc32c::crc32c(&bytes[16..HEADER_BYTES as usize]));
        if version != VERSION {
            return Err(format!(
                "is a part of format version {version}, but this Bathyal reads version {VERSION}"
            ));
        }
        if word(12) != found {
            return Err(format!("its header is damaged: checksum {found:08x} instead of {:08x}", word(12)));
        }
        let damaged = || "its header is damaged: it names no object".to_string();
        let name = bytes
            .get(NAME_OFFSET..NAME_OFFSET + (word(36) as usize).min(MAX_NAME_BYTES))
            .ok_or_else(damaged)?;
        let object = String::from_utf8(name.to_vec()).map_err(|_| damaged())?;
        let key = u64::from(word(16)) | u64::from(word(20)) << 32;
        let part = word(24).checked_sub(1).ok_or_else(damaged)?;
        Ok(PartHeader { key, part, parts: word(28), stripe_bytes: word(32), object })
    }

    /// Returns an error, as a sentence, unless `found` equals this header.
    pub(crate) fn compare(&self, found: &PartHeader) -> Result<(), String> {
        if found.key != self.key {
            return Err(format!(
                "is a part of another index or of another build: its key is {:016x}, not {:016x}",
                found.key, self.key
            ));
        }
        if found.object != self.object {
            return Err(format!("is a part of {}, not of {}", found.object, self.object));
        }
        if found.part != self.part {
            return Err(format!(
                "is part {} where part {} belongs: parts were exchanged",
                u64::from(found.part) + 1,
                self.part + 1
            ));
        }
        if found != self {
            return Err(format!(
                "is one of {} parts in units of {} bytes, not one of {} parts in units of {} bytes",
                found.parts, found.stripe_bytes, self.parts, self.stripe_bytes
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_of_a_header_is_detected() {
        let header = PartHeader {
            key: 0x1234_5678_9abc_def0,
            part: 2,
            parts: 5,
            stripe_bytes: 8192,
            object: "data".into(),
        };
        let mut bytes = header.encode();
        assert_eq!(PartHeader::decode(&bytes).as_ref(), Ok(&header));
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(PartHeader::decode(&bytes).is_err(), "byte {at}");
            bytes[at] ^= 1;
        }
        assert!(PartHeader::decode(&bytes[..4095]).is_err());
        let changes: [fn(&mut PartHeader); 5] = [
            |h| h.key = 1,
            |h| h.part = 1,
            |h| h.parts = 4,
            |h| h.stripe_bytes = 4096,
            |h| h.object = "codes".into(),
        ];
        for change in changes {
            let mut other = header.clone();
            change(&mut other);
            assert!(header.compare(&other).is_err(), "{other:?}");
            assert_eq!(PartHeader::decode(&other.encode()), Ok(other));
        }
    }
}
