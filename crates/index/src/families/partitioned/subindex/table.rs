//! The table of the positions of sub-indexes (docs/format/partitioned.md). In d-HNSW it is at the beginning
//! of the remote memory (section 3.2); here every search has it in memory.

use crate::allocate::try_with_capacity;
use crate::error::Unreadable;
use bathyal_tier::Span;

/// Bytes of an entry: offset, bytes, vectors.
pub(in super::super) const ENTRY_BYTES: usize = 16;
/// Sub-indexes begin at multiples of this.
pub(in super::super) const ALIGNMENT: u64 = 64;

/// The position of a sub-index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct SubIndexEntry {
    pub(in super::super) offset: u64,
    pub(in super::super) bytes: u32,
    /// Vectors in the partition, copies included.
    pub(in super::super) vectors: u32,
}

impl SubIndexEntry {
    pub(in super::super) fn span(&self) -> Span {
        Span::at(self.offset, self.bytes)
    }

    pub(in super::super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.offset.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.vectors.to_le_bytes());
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> SubIndexEntry {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        SubIndexEntry {
            offset: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            bytes: u32::from_le_bytes([i, j, k, l]),
            vectors: u32::from_le_bytes([m, n, o, p]),
        }
    }
}

/// The table of positions, by partition.
#[derive(Debug, Clone)]
pub(in super::super) struct SubIndexTable {
    entries: Vec<SubIndexEntry>,
}

impl SubIndexTable {
    /// Decodes the table's file.
    ///
    /// # Errors
    /// A description of the fault; no memory.
    pub(in super::super) fn from_bytes(bytes: &[u8]) -> Result<SubIndexTable, Unreadable> {
        let (found, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        if found.is_empty() || !rest.is_empty() {
            return Err(format!("{} bytes are not a table of partitions", bytes.len()).into());
        }
        let mut entries = try_with_capacity("the table of partitions", found.len())?;
        entries.extend(found.iter().map(SubIndexEntry::decode));
        Ok(SubIndexTable { entries })
    }

    /// Checks that the sub-indexes follow each other and fill a file of `file_bytes` bytes.
    ///
    /// # Errors
    /// A description of the first fault.
    pub(in super::super) fn check(&self, file_bytes: u64) -> Result<(), String> {
        let mut end = 0_u64;
        for (number, entry) in self.entries.iter().enumerate() {
            if entry.offset != end.next_multiple_of(ALIGNMENT) || entry.bytes == 0 || entry.vectors == 0 {
                return Err(format!("partition {number} is empty, or does not follow the one before"));
            }
            end = entry.offset.saturating_add(u64::from(entry.bytes));
            if end > file_bytes {
                return Err(format!("partition {number} ends at {end} of {file_bytes} bytes"));
            }
        }
        if end != file_bytes {
            return Err(format!("the partitions end at {end} of {file_bytes} bytes"));
        }
        Ok(())
    }

    pub(in super::super) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(in super::super) fn entry(&self, partition: u32) -> SubIndexEntry {
        self.entries[partition as usize]
    }

    pub(in super::super) fn entries(&self) -> &[SubIndexEntry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_round_trip_and_invalid_ones_are_refused() {
        let entries = [
            SubIndexEntry { offset: 0, bytes: 100, vectors: 3 },
            SubIndexEntry { offset: 128, bytes: 64, vectors: 1 },
            SubIndexEntry { offset: 192, bytes: 1, vectors: 2 },
        ];
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        let read = |bytes: &[u8], file_bytes: u64| {
            let table = SubIndexTable::from_bytes(bytes).map_err(|error| error.to_string())?;
            table.check(file_bytes).map(|()| table)
        };
        let table = read(&bytes, 193).expect("sound");
        assert_eq!((table.count(), table.entries()), (3, &entries[..]));
        for file_bytes in [0, 192, 194, u64::MAX] {
            assert!(read(&bytes, file_bytes).is_err());
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x80;
            let _ = read(&changed, 193);
            assert!(read(&bytes[..at], 193).is_err());
        }
    }
}
