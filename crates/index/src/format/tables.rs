//! The hash tables of an LSH index: blocks of ids in the order of their keys (e2lsh-on-storage, section 5.1).
//!
//! A block, all little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | CRC-32C of the index's identity (8 bytes), the block's number (8 bytes) and the rest of the block |
//! | 2 | number of ids |
//! | 2 | zeros |
//! | 8 | the number of the block that continues it; 0 if there is none |
//! | 4 x count | the ids |
//! | the rest | zeros |
//!
//! The blocks of a table lie back to back, and the tables one after the other, so a bucket takes one read for
//! any number of blocks. The first key of every block, which searches keep in memory, locates a bucket
//! without a read.

use super::identity::Identity;
use super::packing::LARGEST_ALIGNMENT;
use bathyal_tier::Span;

/// Bytes before the ids.
const HEAD_BYTES: usize = 16;
/// Least and most bytes of a block.
pub const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 128..=4096;
/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

/// The positions of the blocks of tables in a file. Pure arithmetic; all sizes are checked once, in
/// [`TableLayout::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLayout {
    begin: u64,
    block_bytes: usize,
    tables: u32,
    vectors: u64,
    identity: Identity,
}

impl TableLayout {
    /// Returns the layout of `tables` tables of `vectors` ids each, in blocks of `block_bytes` bytes, from
    /// byte `begin` on.
    ///
    /// # Errors
    /// A sentence if a number is out of range.
    pub fn new(begin: u64, block_bytes: u32, tables: u32, vectors: u64) -> Result<TableLayout, String> {
        if !BLOCK_BYTES.contains(&block_bytes) || !block_bytes.is_power_of_two() {
            return Err(format!("block_bytes {block_bytes} is not a power of two between 128 and 4096"));
        }
        let layout = TableLayout {
            begin,
            block_bytes: block_bytes as usize,
            tables,
            vectors,
            identity: Identity::NONE,
        };
        let blocks = layout.blocks().checked_mul(u64::from(tables));
        match blocks.filter(|blocks| (1..=u64::from(u32::MAX)).contains(blocks)) {
            Some(_) => Ok(layout),
            None => Err(format!(
                "{tables} tables of {vectors} vectors are more blocks than can be numbered, or none"
            )),
        }
    }

    /// Returns the same layout for the index with this identity, with which its checksums begin.
    pub fn identified(self, identity: Identity) -> TableLayout {
        TableLayout { identity, ..self }
    }

    /// Returns the bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Returns the number of tables.
    pub fn tables(&self) -> u32 {
        self.tables
    }

    /// Returns the most ids in a block.
    pub fn block_ids(&self) -> usize {
        (self.block_bytes - HEAD_BYTES) / 4
    }

    /// Returns the number of blocks of a table.
    pub fn blocks(&self) -> u64 {
        self.vectors.div_ceil(self.block_ids() as u64)
    }

    /// Returns the bytes of all tables.
    pub fn table_bytes(&self) -> u64 {
        u64::from(self.tables) * self.blocks() * self.block_bytes as u64
    }

    /// Returns the end of the file. Zeros behind the last block align a file that follows on a device.
    pub fn file_bytes(&self) -> u64 {
        self.begin.saturating_add(self.table_bytes()).next_multiple_of(LARGEST_ALIGNMENT as u64)
    }

    /// Returns the bytes of the first keys of all blocks.
    pub fn fence_bytes(&self) -> u64 {
        u64::from(self.tables) * self.blocks() * KEY_BYTES as u64
    }

    /// Returns the number of ids in block number `block` of a table.
    pub fn count(&self, block: u64) -> usize {
        let before = block * self.block_ids() as u64;
        (self.vectors.saturating_sub(before)).min(self.block_ids() as u64) as usize
    }

    /// Returns the span of `blocks` blocks from `first` on, which counts through all tables.
    pub fn span(&self, first: u32, blocks: u32) -> Span {
        let offset = self.begin + u64::from(first) * self.block_bytes as u64;
        Span { offset, len: blocks * self.block_bytes as u32 }
    }

    /// Writes block number `block` (through all tables).
    pub fn encode(&self, out: &mut [u8], block: u32, ids: impl ExactSizeIterator<Item = u32>) {
        out.fill(0);
        out[4..6].copy_from_slice(&(ids.len() as u16).to_le_bytes());
        for (slot, id) in out[HEAD_BYTES..].chunks_exact_mut(4).zip(ids) {
            slot.copy_from_slice(&id.to_le_bytes());
        }
        let crc = self.crc(block, out);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    fn crc(&self, block: u32, bytes: &[u8]) -> u32 {
        // Pages of vectors in the same file have numbers of their own. The numbers of blocks are beyond them.
        let number = u64::from(block) | 1 << 63;
        crc32c::crc32c_append(self.identity.checksum(&number.to_le_bytes()), &bytes[4..self.block_bytes])
    }

    /// Checks the length, the checksum and the count of block number `block`.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    pub fn check(&self, block: u32, bytes: &[u8]) -> Result<(), String> {
        let Some(stored) = bytes.first_chunk::<4>().filter(|_| bytes.len() >= self.block_bytes) else {
            return Err(format!("{} bytes are too few for a block of {}", bytes.len(), self.block_bytes));
        };
        let (stored, found) = (u32::from_le_bytes(*stored), self.crc(block, bytes));
        if stored != found {
            return Err(format!("checksum {found:08x} differs from the stored {stored:08x}"));
        }
        let (found, expected) = (self.ids(bytes).len(), self.count(u64::from(block) % self.blocks()));
        let linked = bytes[6..HEAD_BYTES].iter().any(|byte| *byte != 0);
        if found != expected || linked {
            return Err(format!(
                "it has {found} ids instead of {expected}, or names a block that continues it"
            ));
        }
        Ok(())
    }

    /// Returns the ids of a block, as bytes.
    #[inline]
    pub fn ids<'a>(&self, block: &'a [u8]) -> &'a [[u8; 4]] {
        let count = block.get(4..6).map_or(0, |bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
        let end = HEAD_BYTES + 4 * count.min(self.block_ids());
        block.get(HEAD_BYTES..end).unwrap_or_default().as_chunks::<4>().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_all_ids_and_lie_back_to_back() {
        let layout = TableLayout::new(8192, 512, 3, 300).expect("a layout");
        assert_eq!((layout.block_ids(), layout.blocks(), layout.table_bytes()), (124, 3, 9 * 512));
        assert_eq!((layout.count(0), layout.count(2), layout.count(3)), (124, 52, 0));
        assert_eq!(layout.span(4, 2), Span { offset: 8192 + 4 * 512, len: 1024 });
        assert_eq!((layout.file_bytes(), layout.fence_bytes()), (16_384, 9 * 16));
        for (block_bytes, tables, vectors) in
            [(64, 1, 1), (8192, 1, 1), (500, 1, 1), (512, 0, 1), (512, 1, 0), (128, 1 << 20, 1 << 30)]
        {
            assert!(TableLayout::new(0, block_bytes, tables, vectors).is_err(), "{block_bytes} {tables}");
        }
    }

    #[test]
    fn blocks_round_trip_and_damage_is_detected() {
        let layout = TableLayout::new(0, 128, 2, 40).expect("a layout").identified(Identity::of("this"));
        let mut block = vec![9_u8; 128];
        layout.encode(&mut block, 3, 28..40_u32);
        assert_eq!(layout.check(3, &block), Ok(()));
        assert_eq!(
            layout.ids(&block).iter().map(|id| u32::from_le_bytes(*id)).sum::<u32>(),
            (28..40_u32).sum::<u32>()
        );
        assert!(layout.check(1, &block).is_err(), "another block");
        assert!(layout.identified(Identity::of("that")).check(3, &block).is_err(), "another index");
        for at in [0, 4, 6, 8, 15, 16, 127] {
            block[at] ^= 1;
            assert!(layout.check(3, &block).is_err(), "byte {at}");
            block[at] ^= 1;
        }
        assert!(layout.check(3, &block[..127]).is_err());
        layout.encode(&mut block, 2, 0..12_u32);
        assert!(layout.check(2, &block).is_err(), "too few ids for this block");
    }
}
