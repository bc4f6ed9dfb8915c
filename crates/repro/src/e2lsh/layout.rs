//! The bytes of hash tables, in the layout of e2lsh-on-storage (sections 5.1 and 5.2): tables of addresses,
//! and buckets that are chains of blocks.
//!
//! A table uses `u` of the 32 bits of a hash value; each entry of a bucket stores the others as a fingerprint
//! with its id, in 5 bytes. A block begins with 16 bytes: the number of the next block of its chain plus 1 (8
//! bytes), the number of its entries (2), unused bytes (2), and a checksum of all other bytes and of its own
//! number (4). A slot of a table holds the number of a bucket's first block plus 1 in 6 bytes, 0 for an empty
//! bucket, and a checksum in 2.

use bathyal_kernels::lsh::VALUE_BITS;
use bathyal_tier::Span;
use serde::{Deserialize, Serialize};

/// Bytes in front of a block's entries.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 5;
/// Bytes of a slot.
const SLOT_BYTES: u64 = 8;
/// Bits of a slot before its checksum.
const ADDRESS_BITS: u32 = 48;
/// Bytes of a block's checksum.
const CHECKSUM_AT: std::ops::Range<usize> = 12..16;

/// Numbers and sizes of tables, slots and blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlockLayout {
    /// Radii (r).
    pub radii: u32,
    /// Tables per radius (L).
    pub tables: u32,
    /// Bits of a hash value that select a slot of a table (u).
    pub slot_bits: u32,
    /// Bits of an id.
    pub id_bits: u32,
    /// Bytes of a block (B).
    pub block_bytes: u32,
    /// True if a hash value gives the place of the bucket's first block, so that there are no tables of
    /// addresses.
    pub direct: bool,
}

/// A decoded block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TableBlock<'a> {
    /// Number of the next block of the chain.
    pub next: Option<u64>,
    entries: &'a [[u8; ENTRY_BYTES]],
    id_bits: u32,
}

impl TableBlock<'_> {
    /// Returns ids and fingerprints.
    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + '_ {
        let mask = (1_u64 << self.id_bits) - 1;
        self.entries.iter().map(move |bytes| {
            let [a, b, c, d, e] = *bytes;
            let entry = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
            ((entry & mask) as u32, (entry >> self.id_bits) as u32)
        })
    }
}

impl BlockLayout {
    /// Checks that ids and fingerprints fit into an entry.
    ///
    /// # Errors
    /// A sentence about the bits that do not fit.
    pub(super) fn check(&self) -> Result<(), String> {
        let bits = self.id_bits + VALUE_BITS - self.slot_bits.min(VALUE_BITS);
        let most = 8 * ENTRY_BYTES as u32;
        if self.slot_bits == 0 || self.slot_bits > 28 || bits > most {
            return Err(format!(
                "tables of {} bits leave {bits} bits for ids and fingerprints; {most} fit",
                self.slot_bits
            ));
        }
        Ok(())
    }

    /// Returns the number of entries that fit into a block.
    pub(super) fn block_entries(&self) -> usize {
        (self.block_bytes as usize - HEADER_BYTES) / ENTRY_BYTES
    }

    /// Returns the number of slots per table.
    pub(super) fn slots(&self) -> usize {
        1 << self.slot_bits
    }

    /// Returns the number of a table among all radii and tables.
    pub(super) fn place(&self, radius: usize, table: usize) -> u64 {
        (radius * self.tables as usize + table) as u64
    }

    /// Returns the slot of a hash value.
    pub(super) fn slot(&self, value: u32) -> u32 {
        value & ((1_u32 << self.slot_bits) - 1)
    }

    /// Returns the rest of a hash value after the slot.
    pub(super) fn fingerprint(&self, value: u32) -> u32 {
        value >> self.slot_bits
    }

    /// Returns the bytes of all tables of addresses; blocks follow them.
    pub(super) fn table_bytes(&self) -> u64 {
        if self.direct { 0 } else { u64::from(self.radii * self.tables) * self.slots() as u64 * SLOT_BYTES }
    }

    /// Returns the number of blocks with a fixed place.
    pub(super) fn first_blocks(&self) -> u64 {
        if self.direct { u64::from(self.radii * self.tables) * self.slots() as u64 } else { 0 }
    }

    /// Returns the span of a slot.
    pub(super) fn slot_span(&self, place: u64, slot: u32) -> Span {
        Span::at((place * self.slots() as u64 + u64::from(slot)) * SLOT_BYTES, SLOT_BYTES as u32)
    }

    /// Returns the number of a slot's first block in a direct layout.
    pub(super) fn first_block(&self, place: u64, slot: u32) -> u64 {
        place * self.slots() as u64 + u64::from(slot)
    }

    /// Returns the span of a block.
    pub(super) fn block_span(&self, block: u64) -> Span {
        Span::at(self.table_bytes() + block * u64::from(self.block_bytes), self.block_bytes)
    }

    /// Encodes a slot.
    pub(super) fn encode_slot(&self, place: u64, slot: u32, first: Option<u64>) -> [u8; SLOT_BYTES as usize] {
        let address = first.map_or(0, |block| block + 1);
        (address | u64::from(self.slot_check(place, slot, address)) << ADDRESS_BITS).to_le_bytes()
    }

    /// Returns the first block of a slot's bucket; `None` if the bucket is empty.
    ///
    /// # Errors
    /// A sentence if the slot is damaged.
    pub(super) fn decode_slot(&self, place: u64, slot: u32, bytes: &[u8]) -> Result<Option<u64>, String> {
        let stored = bytes.as_chunks().0.first().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        let address = stored & ((1 << ADDRESS_BITS) - 1);
        if stored >> ADDRESS_BITS != u64::from(self.slot_check(place, slot, address)) {
            return Err(format!("slot {slot} of table {place} does not match its checksum"));
        }
        Ok(address.checked_sub(1))
    }

    fn slot_check(&self, place: u64, slot: u32, address: u64) -> u16 {
        let number = crc32c::crc32c(&self.first_block(place, slot).to_le_bytes());
        crc32c::crc32c_append(number, &address.to_le_bytes()) as u16
    }

    /// Encodes a block into `out`, which has a block's length. `entries` are ids and whole hash values.
    pub(super) fn encode_block(&self, out: &mut [u8], block: u64, next: Option<u64>, entries: &[(u32, u32)]) {
        out.fill(0);
        out[..8].copy_from_slice(&next.map_or(0, |next| next + 1).to_le_bytes());
        out[8..10].copy_from_slice(&(entries.len() as u16).to_le_bytes());
        for ((id, value), bytes) in entries.iter().zip(out[HEADER_BYTES..].as_chunks_mut::<ENTRY_BYTES>().0) {
            let entry = u64::from(*id) | u64::from(self.fingerprint(*value)) << self.id_bits;
            bytes.copy_from_slice(&entry.to_le_bytes()[..ENTRY_BYTES]);
        }
        let checksum = block_check(block, out);
        out[CHECKSUM_AT].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes a block.
    ///
    /// # Errors
    /// A sentence if the block is damaged, or is another block.
    pub(super) fn decode_block<'a>(&self, block: u64, bytes: &'a [u8]) -> Result<TableBlock<'a>, String> {
        let whole = bytes.len() == self.block_bytes as usize;
        if !whole || bytes[CHECKSUM_AT] != block_check(block, bytes).to_le_bytes() {
            return Err(format!("block {block} does not match its checksum"));
        }
        let next = bytes.as_chunks().0.first().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let count = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let entries = &bytes[HEADER_BYTES..].as_chunks().0;
        match entries.get(..count) {
            Some(entries) => Ok(TableBlock { next: next.checked_sub(1), entries, id_bits: self.id_bits }),
            None => Err(format!("block {block} has {count} entries, but only {} fit", entries.len())),
        }
    }
}

/// Returns the checksum of a block's number and bytes, without those of the checksum. The number makes a
/// misplaced block detectable.
fn block_check(block: u64, bytes: &[u8]) -> u32 {
    let number = crc32c::crc32c(&block.to_le_bytes());
    let head = crc32c::crc32c_append(number, &bytes[..CHECKSUM_AT.start]);
    crc32c::crc32c_append(head, &bytes[CHECKSUM_AT.end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: BlockLayout =
        BlockLayout { radii: 3, tables: 5, slot_bits: 10, id_bits: 18, block_bytes: 512, direct: false };

    #[test]
    fn a_block_has_as_many_entries_as_in_the_paper() {
        assert_eq!(LAYOUT.block_entries(), 99);
        assert!(LAYOUT.check().is_ok());
        for (slot_bits, id_bits) in [(10, 19), (0, 8), (29, 8)] {
            assert!(BlockLayout { slot_bits, id_bits, ..LAYOUT }.check().is_err(), "{slot_bits} {id_bits}");
        }
    }

    #[test]
    fn a_written_block_is_read_and_damage_is_detected() {
        let entries: Vec<(u32, u32)> = (0..99_u32).map(|i| (i * 2600, i.wrapping_mul(0x9E37_79B9))).collect();
        let mut bytes = vec![0xaa; 512];
        LAYOUT.encode_block(&mut bytes, 7, Some(u64::from(u32::MAX)), &entries);
        let block = LAYOUT.decode_block(7, &bytes).unwrap();
        assert_eq!(block.next, Some(u64::from(u32::MAX)));
        let expected = entries.iter().map(|(id, value)| (*id, value >> 10));
        assert!(block.entries().eq(expected));
        assert!(LAYOUT.decode_block(8, &bytes).is_err(), "another block");
        assert!(LAYOUT.decode_block(7, &bytes[..511]).is_err());
        for at in [0, 8, 10, 12, 16, 510, 511] {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            assert!(LAYOUT.decode_block(7, &bad).is_err(), "{at}");
        }
        LAYOUT.encode_block(&mut bytes, 0, None, &[]);
        let empty = LAYOUT.decode_block(0, &bytes).unwrap();
        assert_eq!((empty.next, empty.entries().len()), (None, 0));
    }

    #[test]
    fn slots_give_the_first_block_of_a_bucket() {
        for first in [None, Some(0), Some(1 << 40)] {
            let bytes = LAYOUT.encode_slot(4, 1023, first);
            assert_eq!(LAYOUT.decode_slot(4, 1023, &bytes), Ok(first));
            assert!(LAYOUT.decode_slot(4, 1022, &bytes).is_err(), "another slot");
            let mut bad = bytes;
            bad[2] ^= 1;
            assert!(LAYOUT.decode_slot(4, 1023, &bad).is_err());
        }
        assert!(LAYOUT.decode_slot(0, 0, &[]).is_err());
        assert_eq!(LAYOUT.slot_span(1, 2), Span::at((1024 + 2) * 8, 8));
        assert_eq!(LAYOUT.block_span(3), Span::at(15 * 1024 * 8 + 3 * 512, 512));
        let direct = BlockLayout { direct: true, ..LAYOUT };
        assert_eq!((direct.block_span(3), direct.first_block(2, 5)), (Span::at(3 * 512, 512), 2053));
    }
}
