//! The record of a generation: the list of its objects, and the bytes of small objects, which can then be
//! read without a request for each.
//!
//! ```text
//! {"bathyal_record":1,"number":3,"id":"...","objects":{"pages":{"bytes":4096},"small":{"bytes":900,"at":0}}}
//! 1a2b3c4d
//! ...the bytes of the small objects, one after the other
//! ```
//!
//! The second line is the CRC-32C of the first line and of all bytes after the second.

use super::layout::is_id;
use bathyal_store::StoreError;
use bathyal_store::check_name;
use rand::RngCore;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the format that this program writes and reads.
const VERSION: u32 = 1;
/// The longest object that is stored in the record.
pub(super) const SMALL_BYTES: u64 = 640 << 10;
/// The most bytes of all objects in a record together.
pub(super) const MAX_TOTAL_SMALL_BYTES: u64 = 2 << 20;

/// The entry of an object of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordEntry {
    pub(super) bytes: u64,
    /// Its offset among the small objects of the record; `None` if it has a key of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<u64>,
    /// Its entity tag from when it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
}

/// The record of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GenerationRecord {
    pub(super) number: u64,
    /// The unique id of the generation, which is part of its objects' keys.
    pub(super) id: String,
    /// True if this record deletes the index.
    pub(super) deleted: bool,
    pub(super) objects: BTreeMap<String, RecordEntry>,
    /// The bytes of the small objects, back to back.
    pub(super) small: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct RecordHead {
    bathyal_record: u32,
    number: u64,
    id: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    objects: BTreeMap<String, RecordEntry>,
}

/// Returns a random id of 32 hexadecimal digits.
pub(super) fn fresh_id() -> String {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl GenerationRecord {
    /// Makes the record of a generation with this id, without objects.
    pub(super) fn new(id: String) -> GenerationRecord {
        GenerationRecord { number: 0, id, deleted: false, objects: BTreeMap::new(), small: Vec::new() }
    }

    /// Makes a record that deletes the index.
    pub(super) fn deleted() -> GenerationRecord {
        GenerationRecord { deleted: true, ..GenerationRecord::new(fresh_id()) }
    }

    /// Returns true if an object of `bytes` bytes fits into this record.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        bytes <= SMALL_BYTES && self.small.len() as u64 + bytes <= MAX_TOTAL_SMALL_BYTES
    }

    /// Adds an object to the record's small objects.
    pub(super) fn add_small(&mut self, name: &str, bytes: &[u8]) {
        let entry = RecordEntry { bytes: bytes.len() as u64, at: Some(self.small.len() as u64), etag: None };
        self.small.extend_from_slice(bytes);
        self.objects.insert(name.to_owned(), entry);
    }

    /// Returns the bytes of a small object; `None` if it is not in the record.
    pub(super) fn small_bytes(&self, entry: &RecordEntry) -> Option<&[u8]> {
        let at = usize::try_from(entry.at?).ok()?;
        self.small.get(at..at.checked_add(usize::try_from(entry.bytes).ok()?)?)
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        let head = RecordHead {
            bathyal_record: VERSION,
            number: self.number,
            id: self.id.clone(),
            deleted: self.deleted,
            objects: self.objects.clone(),
        };
        let mut bytes = serde_json::to_vec(&head)
            .map_err(|e| StoreError::Address(format!("a record of {} cannot be written: {e}", self.id)))?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), &self.small);
        bytes.extend_from_slice(format!("\n{crc:08x}\n").as_bytes());
        bytes.extend_from_slice(&self.small);
        Ok(bytes)
    }

    /// Parses the bytes that [`GenerationRecord::to_bytes`] wrote. `path` is their address, for messages.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<GenerationRecord, StoreError> {
        let damaged = |what: &str| {
            let reason =
                format!("the record of an index is damaged ({what}); restore it, or publish the index again");
            StoreError::Irregular { path: path.to_path_buf(), reason }
        };
        let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
        let (Some(head), Some(crc), Some(small)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(damaged("it ends too early"));
        };
        let recorded = std::str::from_utf8(crc).ok().and_then(|crc| u32::from_str_radix(crc, 16).ok());
        if recorded != Some(crc32c::crc32c_append(crc32c::crc32c(head), small)) {
            return Err(damaged("its checksum is wrong"));
        }
        #[derive(Deserialize)]
        struct RecordVersion {
            bathyal_record: u32,
        }
        let version: RecordVersion =
            serde_json::from_slice(head).map_err(|_| damaged("it has no version"))?;
        if version.bathyal_record > VERSION {
            let reason = format!(
                "the record has version {}, but this Bathyal reads versions up to {VERSION}; upgrade Bathyal",
                version.bathyal_record
            );
            return Err(StoreError::NoGeneration { path: path.to_path_buf(), reason });
        }
        let head: RecordHead = serde_json::from_slice(head).map_err(|e| damaged(&e.to_string()))?;
        if !is_id(&head.id) || head.objects.keys().any(|name| check_name(name).is_err()) {
            return Err(damaged("it has an invalid name"));
        }
        let RecordHead { number, id, deleted, objects, .. } = head;
        let record = GenerationRecord { number, id, deleted, objects, small: small.to_vec() };
        if record.objects.values().any(|entry| entry.at.is_some() && record.small_bytes(entry).is_none()) {
            return Err(damaged("an object ends beyond its end"));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> GenerationRecord {
        let mut record = GenerationRecord::new(fresh_id());
        record.number = 7;
        record
            .objects
            .insert("pages".into(), RecordEntry { bytes: 1 << 40, at: None, etag: Some("\"x\"".into()) });
        record.add_small("manifest", b"line\nline");
        record.add_small("ids", b"");
        record
    }

    #[test]
    fn a_record_is_read_back_as_written() {
        let record = record();
        let read = GenerationRecord::parse(&record.to_bytes().unwrap(), Path::new("s3://x")).unwrap();
        assert_eq!(read, record);
        assert_eq!(read.small_bytes(&read.objects["manifest"]), Some(&b"line\nline"[..]));
        assert_eq!(read.small_bytes(&read.objects["pages"]), None);
        assert_ne!(fresh_id(), fresh_id());
    }

    #[test]
    fn every_damaged_byte_is_detected() {
        let bytes = record().to_bytes().unwrap();
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 0x20;
            // A hexadecimal digit in capitals is the same number.
            if damaged[i].eq_ignore_ascii_case(&bytes[i])
                && GenerationRecord::parse(&damaged, Path::new("x")).is_ok()
            {
                continue;
            }
            assert!(GenerationRecord::parse(&damaged, Path::new("x")).is_err(), "byte {i}");
        }
        for len in 0..bytes.len() {
            assert!(GenerationRecord::parse(&bytes[..len], Path::new("x")).is_err(), "{len} bytes");
        }
    }
}
