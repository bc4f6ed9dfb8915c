//! Keys of blocks: the object's version, independent of where it is cached, and the number of the block in
//! it.

use std::ops::{Range, RangeInclusive};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// The length of a block in bytes: a few pages of a disk. A miss reads few bytes that were not requested, and
/// a few thousandths of the block's size are enough to find it.
pub(crate) const BLOCK_BYTES: u64 = 16 << 10;

/// A hash of an object's store, key and length, without its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectLocation(u128);

/// A hash that identifies one version of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ObjectVersion(u128);

/// The key of a block: a version of an object and the block's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    version: ObjectVersion,
    pub(crate) number: u64,
}

impl ObjectLocation {
    /// Hashes the object `key` of `len` bytes in the store with this identity.
    pub(crate) fn new(identity: &str, key: &str, len: u64) -> ObjectLocation {
        ObjectLocation(xxh3_128(format!("{identity}\0{key}\0{len}").as_bytes()))
    }

    /// Returns the version with this entity tag.
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

    /// Returns the hash by which the block is found on disk. Two blocks may share it; [`BlockKey::checksum`]
    /// distinguishes them.
    pub(crate) fn hash(self) -> u64 {
        xxh3_64_with_seed(&self.bytes(), 0)
    }

    /// Returns the checksum of `content` as the content of this block.
    pub(crate) fn checksum(self, content: &[u8]) -> u64 {
        xxh3_64_with_seed(content, xxh3_64_with_seed(&self.bytes(), 1))
    }
}

/// Returns the numbers of the blocks that overlap `range`, which must not be empty.
pub(crate) fn block_numbers(range: &Range<u64>) -> RangeInclusive<u64> {
    range.start / BLOCK_BYTES..=(range.end - 1) / BLOCK_BYTES
}

/// Returns the byte range of block `number` of an object of `len` bytes.
pub(crate) fn block_span(number: u64, len: u64) -> Range<u64> {
    number * BLOCK_BYTES..((number + 1) * BLOCK_BYTES).min(len)
}
