//! The log of calibrations of an index with queries of its user (`calibrations.log`): records, one after the
//! other. A later record replaces the earlier one of the same name. All numbers are little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | "bathycal" |
//! | 4 | bytes of the JSON |
//! | 4 | CRC-32C of the index's identity (8 bytes), of the first 12 bytes and of the JSON |
//! | | JSON: a [`QueryCalibration`], or `{"name": ..., "removed": true}` |
//!
//! A record whose writer was killed is at the end of the log, and is dropped. Any other fault is damage.

use super::Limits;
use super::given_queries::{EffortPoint, QueryCalibration};
use crate::format::identity::Identity;
use serde::{Deserialize, Serialize};

/// Name of the log within an index.
pub const CALIBRATIONS_NAME: &str = "calibrations.log";
const MAGIC: &[u8; 8] = b"bathycal";
/// Bytes of a record before the JSON.
const HEAD_BYTES: usize = 16;
/// The name by which searches choose the calibration of the build.
pub const BUILD_NAME: &str = "build";
/// The longest name of a calibration in bytes.
const LONGEST_NAME: usize = 64;

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CalibrationRecord {
    /// The calibration of this name was removed.
    Removed {
        /// The name.
        name: String,
        /// True.
        removed: bool,
    },
    /// An index was calibrated.
    Measured(QueryCalibration),
}

/// The calibrations of an index, and the end of its log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CalibrationLog {
    /// The calibrations in the order of their names.
    pub calibrations: Vec<QueryCalibration>,
    /// Bytes of the log up to the last whole record.
    pub end: u64,
}

/// Refuses what cannot be the name of a calibration.
///
/// # Errors
/// A sentence.
pub fn check_name(name: &str) -> Result<(), String> {
    if name == BUILD_NAME {
        return Err(format!("{name:?} cannot name a calibration: it is that of the build"));
    }
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "{name:?} cannot name a calibration: a name has 1 to {LONGEST_NAME} bytes of letters, digits, '-', \
         '_' and '.'"
    ))
}

/// Returns the bytes of a record.
///
/// # Errors
/// A sentence if the record cannot be serialized.
pub fn record(identity: Identity, record: &CalibrationRecord) -> Result<Vec<u8>, String> {
    let json = serde_json::to_vec(record).map_err(|error| error.to_string())?;
    let mut bytes = Vec::with_capacity(HEAD_BYTES + json.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
    let crc = checksum(identity, &bytes, &json);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(&json);
    Ok(bytes)
}

fn checksum(identity: Identity, head: &[u8], json: &[u8]) -> u32 {
    crc32c::crc32c_append(identity.checksum(head), json)
}

/// Reads the whole log of the index with this identity, which has `vectors` vectors.
///
/// # Errors
/// A sentence if the log is damaged, or if a calibration cannot have been measured on this index.
pub fn read(identity: Identity, vectors: u64, bytes: &[u8]) -> Result<CalibrationLog, String> {
    let mut log = CalibrationLog::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some((json, next)) = split_record(identity, rest) else {
            // Only an unfinished record may be wrong, and no record follows an unfinished one.
            let another = rest.windows(MAGIC.len()).skip(1).any(|bytes| bytes == MAGIC);
            return if another {
                Err(damaged(log.end, "it is damaged, or belongs to another index"))
            } else {
                Ok(log)
            };
        };
        let found: CalibrationRecord =
            serde_json::from_slice(json).map_err(|error| damaged(log.end, &error.to_string()))?;
        apply(&mut log.calibrations, found, vectors).map_err(|reason| damaged(log.end, &reason))?;
        log.end += (HEAD_BYTES + json.len()) as u64;
        rest = next;
    }
    Ok(log)
}

fn damaged(at: u64, reason: &str) -> String {
    format!("the record at byte {at}: {reason}")
}

/// Returns the JSON of the record at the start of `bytes`, and the bytes after the record; `None` if there is
/// no whole record.
fn split_record(identity: Identity, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, after) = bytes.split_at_checked(HEAD_BYTES)?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (json, next) = after.split_at_checked(number(8) as usize)?;
    let sound = head.starts_with(MAGIC) && number(12) == checksum(identity, &head[..12], json);
    sound.then_some((json, next))
}

/// Applies a record to the calibrations before it.
fn apply(
    calibrations: &mut Vec<QueryCalibration>,
    record: CalibrationRecord,
    vectors: u64,
) -> Result<(), String> {
    let name = match &record {
        CalibrationRecord::Removed { name, .. } => name,
        CalibrationRecord::Measured(measured) => &measured.name,
    };
    check_name(name)?;
    let at = calibrations.binary_search_by(|known| known.name.as_str().cmp(name));
    match (record, at) {
        (CalibrationRecord::Removed { .. }, Ok(at)) => {
            calibrations.remove(at);
        }
        (CalibrationRecord::Removed { .. }, Err(_)) => {}
        (CalibrationRecord::Measured(measured), at) => {
            // Of two efforts of which neither includes the other, either may find more.
            let series = None::<fn(&EffortPoint)>;
            super::check(&measured.calibration, &Limits { vectors, probes: 0, series })?;
            match at {
                Ok(at) => calibrations[at] = measured,
                Err(at) => calibrations.insert(at, measured),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::given_queries::Conditions;
    use crate::calibrate::{Calibration, Curve};

    fn measured(name: &str, recall: f32) -> CalibrationRecord {
        let point = |probes, recall| EffortPoint { probes, search_list: 10, prune: 0.0, recall, asked: 0.5 };
        let curves = vec![Curve { k: 10, points: vec![point(1, recall), point(2, 1.0)] }];
        let calibration = Calibration { queries: 7, source: "given queries".into(), curves, reach: vec![] };
        CalibrationRecord::Measured(QueryCalibration {
            name: name.into(),
            measured_at: 1,
            conditions: Conditions::default(),
            calibration,
        })
    }

    fn removed(name: &str) -> CalibrationRecord {
        CalibrationRecord::Removed { name: name.into(), removed: true }
    }

    fn names(log: &CalibrationLog) -> Vec<&str> {
        log.calibrations.iter().map(|one| one.name.as_str()).collect()
    }

    #[test]
    fn later_records_replace_and_remove_earlier_ones() {
        let identity = Identity::of("an index");
        let records = [
            measured("text", 0.2),
            measured("image", 0.3),
            measured("text", 0.4),
            removed("image"),
            removed("x"),
        ];
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for one in &records {
            bytes.extend(record(identity, one).expect("a record"));
            ends.push(bytes.len() as u64);
        }
        let whole = read(identity, 100, &bytes).expect("a log");
        assert_eq!((names(&whole), whole.end), (vec!["text"], bytes.len() as u64));
        assert_eq!(CalibrationRecord::Measured(whole.calibrations[0].clone()), records[2]);
        // A writer may be killed at any byte: whole records count.
        for len in 0..bytes.len() {
            let log = read(identity, 100, &bytes[..len]).expect("a log that ends early");
            let records = ends.iter().rposition(|end| *end <= len as u64).expect("an end");
            assert_eq!(log.end, ends[records], "{len} bytes");
            assert_eq!(log.calibrations.len(), [0, 1, 2, 2, 1, 1][records], "{len} bytes");
        }
    }

    #[test]
    fn damage_before_the_last_record_is_found() {
        let identity = Identity::of("an index");
        let first = record(identity, &measured("a", 0.2)).expect("a record");
        let bytes = [first.clone(), record(identity, &measured("b", 0.2)).expect("a record")].concat();
        for at in 0..first.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let refused = read(identity, 100, &damaged).is_err_and(|reason| reason.contains("at byte 0"));
            assert!(refused, "byte {at}");
        }
        assert!(read(Identity::of("another"), 100, &bytes).is_err());
        assert!(read(identity, 5, &bytes).is_err_and(|reason| reason.contains("10")));
    }

    #[test]
    fn names_are_plain() {
        assert!(["text", "text-2.b_c", "Übersetzung"].into_iter().all(|name| check_name(name).is_ok()));
        let long = "x".repeat(65);
        for name in ["", "a b", "a/b", "..\n", &long] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
