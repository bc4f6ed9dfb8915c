//! What names a block: the object's version, wherever that lies, and the block's number in it.

use std::ops::{Range, RangeInclusive};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// Bytes of a block: a page of a disk and some more, so that a miss brings little that nobody asked for, and a few thousandths
/// of it are enough to find it again.
pub(crate) const BLOCK_BYTES: u64 = 16 << 10;

/// Where an object lies and how long it is, without its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u128);

/// One version of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ObjectVersion(u128);

/// A block of a version of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    version: ObjectVersion,
    pub(crate) number: u64,
}

impl Place {
    /// Of the object `key` of `len` bytes in the store that `identity` names.
    pub(crate) fn new(identity: &str, key: &str, len: u64) -> Place {
        Place(xxh3_128(format!("{identity}\0{key}\0{len}").as_bytes()))
    }

    /// The version that the store calls `etag`.
    pub(crate) fn version(self, etag: &str) -> ObjectVersion {
        let mut bytes = Vec::with_capacity(16 + etag.len());
        bytes.extend_from_slice(&self.0.to_le_bytes());
        bytes.extend_from_slice(etag.as_bytes());
        ObjectVersion(xxh3_128(&bytes))
    }
}

impl ObjectVersion {
    pub(crate) fn block(self, number: u64) -> BlockKey {
        BlockKey { version: self, number }
    }
}

impl BlockKey {
    fn bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.version.0.to_le_bytes());
        bytes[16..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// What it is found by on disk. Two blocks may share it: [`BlockKey::checksum`] tells them apart.
    pub(crate) fn hash(self) -> u64 {
        xxh3_64_with_seed(&self.bytes(), 0)
    }

    /// A checksum of `content` as this block's.
    pub(crate) fn checksum(self, content: &[u8]) -> u64 {
        xxh3_64_with_seed(content, xxh3_64_with_seed(&self.bytes(), 1))
    }
}

/// The numbers of the blocks that `range`, which is not empty, lies in.
pub(crate) fn blocks(range: &Range<u64>) -> RangeInclusive<u64> {
    range.start / BLOCK_BYTES..=(range.end - 1) / BLOCK_BYTES
}

/// The bytes of block `number` of an object of `len` bytes.
pub(crate) fn span(number: u64, len: u64) -> Range<u64> {
    number * BLOCK_BYTES..((number + 1) * BLOCK_BYTES).min(len)
}
