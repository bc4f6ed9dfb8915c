//! The log of changes to an index after its build: a head, then records. Each record begins at a multiple of
//! [`SECTOR_BYTES`] and was on the device before the next record was begun. All numbers are little-endian.
//!
//! The head is a sector:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | "bathylog" |
//! | 4 | the version, 1 |
//! | 4 | CRC-32C of the index's identity (8 bytes) and of the first 12 bytes |
//! | the rest | zeros |
//!
//! A record:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | CRC-32C of the identity and of the next 36 bytes |
//! | 4 | CRC-32C of the changed vectors or ids |
//! | 4 | 1: vectors were inserted; 2: vectors were deleted |
//! | 4 | number of vectors or ids |
//! | 8 | bytes of the changed vectors or ids |
//! | 8 | offset of the record in the log |
//! | 4 | the id of the first inserted vector, the others have the next ids; 0 for deletions |
//! | 4 | zeros |
//! | | the vectors in the element of the data, or the deleted ids (u32) |
//! | the rest of its last sector | zeros |
//!
//! A record whose writer was killed is at the end of the log. It is dropped, since its write was never
//! acknowledged. Any other fault is damage.

use super::identity::Identity;

/// Name of the log within an index.
pub const CHANGES_NAME: &str = "changes.log";
/// Records begin at multiples of this number.
pub const SECTOR_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"bathylog";
const VERSION: u32 = 1;
/// Bytes of a record before the changed vectors or ids.
const HEAD_BYTES: usize = 40;

/// A change, as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Vectors were inserted, with ascending ids.
    Insert {
        /// The id of the first vector.
        first: u32,
        /// The vectors, in the element of the data.
        rows: &'a [u8],
    },
    /// The vectors with these ids were deleted.
    Delete(&'a [[u8; 4]]),
}

/// Writes and reads the log of one index.
#[derive(Debug, Clone, Copy)]
pub struct ChangeLog {
    identity: Identity,
    row_bytes: usize,
}

/// The fields of a record's head.
struct Head {
    crc: u32,
    kind: u32,
    count: u32,
    bytes: u64,
    at: u64,
    first: u32,
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

impl ChangeLog {
    /// Creates the log of the index with this identity, whose vectors take `row_bytes` bytes in the element
    /// of the data.
    pub fn new(identity: Identity, row_bytes: usize) -> ChangeLog {
        ChangeLog { identity, row_bytes }
    }

    /// Returns the head of the log.
    pub fn head(&self) -> Vec<u8> {
        let mut head = vec![0; SECTOR_BYTES];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let crc = self.identity.checksum(&head[..12]);
        head[12..16].copy_from_slice(&crc.to_le_bytes());
        head
    }

    /// Returns the bytes of the record of a change.
    pub fn record_bytes(&self, change: &Change<'_>) -> usize {
        (HEAD_BYTES + change.bytes().len()).next_multiple_of(SECTOR_BYTES)
    }

    /// Returns the record of a change that begins at byte `at` of the log.
    pub fn record(&self, at: u64, change: &Change<'_>) -> Vec<u8> {
        let bytes = change.bytes();
        let (kind, first, count) = match change {
            Change::Insert { first, rows } => (1_u32, *first, rows.len() / self.row_bytes.max(1)),
            Change::Delete(ids) => (2, 0, ids.len()),
        };
        let mut record = Vec::with_capacity(self.record_bytes(change));
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
        record.extend_from_slice(&kind.to_le_bytes());
        record.extend_from_slice(&(count as u32).to_le_bytes());
        record.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        record.extend_from_slice(&at.to_le_bytes());
        record.extend_from_slice(&first.to_le_bytes());
        record.extend_from_slice(&[0; 4]);
        let crc = self.identity.checksum(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        record.extend_from_slice(bytes);
        record.resize(self.record_bytes(change), 0);
        record
    }

    /// Reads the records from byte `from` of the log on and passes each to `each`; `bytes` is the whole log
    /// from `from` on. Returns the end of the log: bytes beyond it belong to a write that was never finished.
    /// With a `from` of 0, the head is read too.
    ///
    /// # Errors
    /// Errors of `each`, and a sentence if the log is damaged.
    pub fn read<E: From<String>>(
        &self,
        mut from: u64,
        bytes: &[u8],
        mut each: impl FnMut(Change<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut rest = bytes;
        if from == 0 {
            // The log may have no records yet.
            let Some((head, records)) = rest.split_at_checked(SECTOR_BYTES) else {
                return self.check_unbegun(rest);
            };
            if head != self.head() {
                return self.check_unbegun(rest);
            }
            (from, rest) = (SECTOR_BYTES as u64, records);
        }
        while !rest.is_empty() {
            let Some(head) = self.parse_head(rest) else { return self.end_at(from, rest) };
            if head.at != from {
                return Err(damaged(from, &format!("its head has the offset {} instead", head.at)).into());
            }
            let whole = (HEAD_BYTES as u64).saturating_add(head.bytes).next_multiple_of(SECTOR_BYTES as u64);
            let Some((record, after)) = rest.split_at_checked(whole as usize) else {
                return Ok(from);
            };
            let (changed, padding) = record[HEAD_BYTES..].split_at(head.bytes as usize);
            if crc32c::crc32c(changed) != head.crc || padding.iter().any(|byte| *byte != 0) {
                // Only an unfinished record may be wrong, and no record follows an unfinished one.
                return self.end_at(from, rest);
            }
            each(self.change(from, &head, changed)?)?;
            (from, rest) = (from + whole, after);
        }
        Ok(from)
    }

    /// Returns the head of the record at the start of `bytes`; `None` if there is none.
    fn parse_head(&self, bytes: &[u8]) -> Option<Head> {
        let head = bytes.get(..HEAD_BYTES)?;
        let [crc, kind, count, first] = [4, 8, 12, 32].map(|at| number(head, at));
        let [bytes, at] =
            [16, 24].map(|at| u64::from(number(head, at)) | u64::from(number(head, at + 4)) << 32);
        let sound = number(head, 0) == self.identity.checksum(&head[4..]);
        sound.then_some(Head { crc, kind, count, bytes, at, first })
    }

    fn change<'a>(&self, at: u64, head: &Head, changed: &'a [u8]) -> Result<Change<'a>, String> {
        let (item_bytes, change) = match head.kind {
            1 => (self.row_bytes, Change::Insert { first: head.first, rows: changed }),
            2 => (4, Change::Delete(changed.as_chunks::<4>().0)),
            kind => return Err(damaged(at, &format!("it has the unknown kind {kind}"))),
        };
        if head.bytes != u64::from(head.count) * item_bytes as u64 {
            return Err(damaged(at, &format!("{} bytes are not {} of {item_bytes}", head.bytes, head.count)));
        }
        Ok(change)
    }

    /// Returns `at`, the end of a log without a whole record there.
    ///
    /// # Errors
    /// A sentence if another record follows, which means damage.
    fn end_at<E: From<String>>(&self, at: u64, rest: &[u8]) -> Result<u64, E> {
        let mut sectors = (SECTOR_BYTES..rest.len()).step_by(SECTOR_BYTES);
        match sectors.find(|sector| self.parse_head(&rest[*sector..]).is_some()) {
            Some(sector) => {
                let next = at + sector as u64;
                Err(damaged(at, &format!("it is damaged, since another record follows at byte {next}"))
                    .into())
            }
            None => Ok(at),
        }
    }

    /// Returns 0 for a log whose head was not written whole, which then has no records.
    ///
    /// # Errors
    /// A sentence if the head belongs to another index or is damaged.
    fn check_unbegun<E: From<String>>(&self, bytes: &[u8]) -> Result<u64, E> {
        let begun = bytes.len().min(SECTOR_BYTES);
        // The head is written with the first record. If the writer was killed then, each byte is either
        // written or zero.
        let unfinished = bytes
            .iter()
            .zip(self.head())
            .take(begun)
            .all(|(found, expected)| *found == expected || *found == 0);
        if unfinished && self.end_at::<String>(0, bytes).is_ok() {
            return Ok(0);
        }
        let reason = "its head is not that of this index: the log belongs to another index, or is damaged";
        Err(reason.to_string().into())
    }
}

fn damaged(at: u64, what: &str) -> String {
    format!("the record at byte {at}: {what}")
}

impl Change<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Change::Insert { rows, .. } => rows,
            Change::Delete(ids) => ids.as_flattened(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (ChangeLog, Vec<u8>, Vec<u64>) {
        let log = ChangeLog::new(Identity::of("this"), 8);
        let (mut bytes, mut ends) = (log.head(), vec![SECTOR_BYTES as u64]);
        let (rows, ids) = ([7; 8 * 100], [[3, 0, 0, 0], [9, 1, 0, 0]]);
        for change in [
            Change::Insert { first: 50, rows: &rows },
            Change::Delete(&ids),
            Change::Insert { first: 150, rows: &rows[..8] },
        ] {
            let record = log.record(bytes.len() as u64, &change);
            bytes.extend_from_slice(&record);
            ends.push(bytes.len() as u64);
        }
        (log, bytes, ends)
    }

    fn read(log: &ChangeLog, from: u64, bytes: &[u8]) -> Result<(Vec<String>, u64), String> {
        let mut found = Vec::new();
        let each = |change: Change<'_>| {
            found.push(match change {
                Change::Insert { first, rows } => format!("{first}: {} {}", rows.len(), rows[0]),
                Change::Delete(ids) => format!("not {ids:?}"),
            });
            Ok::<(), String>(())
        };
        log.read(from, bytes, each).map(|end| (found, end))
    }

    #[test]
    fn appended_changes_are_read_back() {
        let (log, bytes, ends) = log();
        let (found, end) = read(&log, 0, &bytes).unwrap();
        assert_eq!(found, ["50: 800 7", "not [[3, 0, 0, 0], [9, 1, 0, 0]]", "150: 8 7"]);
        assert_eq!(end, bytes.len() as u64);
        let later = read(&log, ends[1], &bytes[ends[1] as usize..]).unwrap();
        assert_eq!(later, (found[1..].to_vec(), end));
        assert_eq!(read(&log, 0, &[]), Ok((vec![], 0)));
    }

    #[test]
    fn a_log_that_is_cut_anywhere_has_its_whole_records() {
        let (log, bytes, ends) = log();
        for cut in 0..=bytes.len() {
            let (found, end) = read(&log, 0, &bytes[..cut]).unwrap_or_else(|e| panic!("{cut}: {e}"));
            let whole = ends.iter().filter(|end| **end <= cut as u64).count();
            assert_eq!(
                (found.len(), end),
                (whole.saturating_sub(1), whole.checked_sub(1).map_or(0, |i| ends[i])),
                "{cut}"
            );
            // The file was lengthened, and its new bytes were not written.
            let mut zeros = bytes[..cut].to_vec();
            zeros.resize(cut + 700, 0);
            assert!(read(&log, 0, &zeros).is_ok_and(|(found, _)| found.len() + 1 >= whole), "{cut}");
        }
    }

    #[test]
    fn damage_before_the_end_is_found() {
        let (log, bytes, ends) = log();
        let last = ends[2] as usize;
        for at in 0..last {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(read(&log, 0, &damaged).is_err(), "byte {at}");
        }
        for at in last..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(
                read(&log, 0, &damaged).map(|(found, end)| (found.len(), end)),
                Ok((2, ends[2])),
                "byte {at}"
            );
        }
        let other = ChangeLog::new(Identity::of("that"), 8);
        assert!(read(&other, 0, &bytes).is_err(), "another index");
        assert!(read(&ChangeLog::new(Identity::of("this"), 12), 0, &bytes).is_err(), "longer vectors");
        assert!(read(&log, 0, &[5; 100]).is_err() && read(&log, 0, &[5; 1000]).is_err());
        // Two records that changed places.
        let mut swapped = bytes[..ends[0] as usize].to_vec();
        swapped.extend_from_slice(&bytes[ends[1] as usize..ends[2] as usize]);
        swapped.extend_from_slice(&bytes[ends[0] as usize..ends[1] as usize]);
        assert!(read(&log, 0, &swapped).is_err());
    }
}
