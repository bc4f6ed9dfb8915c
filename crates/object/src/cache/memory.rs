//! The blocks in memory.

use super::key::{BLOCK_BYTES, BlockKey};
use crate::connect::CachePolicy;
use foyer_common::properties::Hint;
use foyer_memory::{Cache, CacheBuilder, CacheProperties, EvictionConfig, LruConfig, S3FifoConfig};
use std::sync::Arc;

/// The bytes of a block, alone in their allocation: a part of a larger one would keep all of that.
pub(crate) type Block = Arc<[u8]>;

/// Bytes of memory that a block takes besides its own: what links it, finds it, and remembers it when it is gone. Measured
/// (219 bytes with S3-FIFO, with the heads of two allocations 251), rounded up.
const ENTRY_BYTES: usize = 256;
/// Share of the protected segment of a segmented LRU.
const PROTECTED_SHARE: f64 = 0.8;
/// Parts that are locked apart, at most.
const MOST_SHARDS: u64 = 16;
/// Blocks of a part at least: parts do not lend each other room.
const LEAST_SHARD_BLOCKS: u64 = 64;

impl CachePolicy {
    pub(crate) fn config(self) -> EvictionConfig {
        match self {
            CachePolicy::S3Fifo => S3FifoConfig::default().into(),
            CachePolicy::SegmentedLru => LruConfig { high_priority_pool_ratio: PROTECTED_SHARE }.into(),
            CachePolicy::Lru => LruConfig { high_priority_pool_ratio: 0.0 }.into(),
        }
    }

    /// How something new comes in. The library's LRU puts what has the hint [`Hint::Low`] into its low pool, all else into its
    /// high one, moves what overflows that to the low one's young end, and takes victims from the low one's old end; a hit
    /// moves an entry within its pool alone. To make a segmented LRU of it, a hit is put in again without the hint.
    pub(crate) fn entering(self) -> CacheProperties {
        let hint = if self == CachePolicy::SegmentedLru { Hint::Low } else { Hint::Normal };
        CacheProperties::default().with_hint(hint)
    }

    /// Whether a hit is put in again, as above.
    pub(crate) fn promotes(self) -> bool {
        self == CachePolicy::SegmentedLru
    }
}

/// Parts for so many blocks.
pub(crate) fn shards(blocks: u64) -> usize {
    (blocks / LEAST_SHARD_BLOCKS).clamp(1, MOST_SHARDS) as usize
}

/// See the module's description.
pub(crate) struct Memory {
    blocks: Cache<BlockKey, Block>,
    policy: CachePolicy,
}

impl Memory {
    /// Blocks of together `bytes` at most, with all that they need.
    pub(crate) fn new(bytes: u64, policy: CachePolicy) -> Memory {
        let capacity = usize::try_from(bytes).unwrap_or(usize::MAX);
        let blocks = CacheBuilder::new(capacity)
            .with_shards(shards(bytes / BLOCK_BYTES))
            .with_eviction_config(policy.config())
            .with_weighter(|_: &BlockKey, block: &Block| block.len() + ENTRY_BYTES)
            .build();
        Memory { blocks, policy }
    }

    pub(crate) fn get(&self, key: BlockKey) -> Option<Block> {
        let block = self.blocks.get(&key)?.value().clone();
        if self.policy.promotes() {
            self.blocks.insert(key, block.clone());
        }
        Some(block)
    }

    pub(crate) fn insert(&self, key: BlockKey, block: Block) {
        self.blocks.insert_with_properties(key, block, self.policy.entering());
    }

    /// Bytes in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.usage() as u64
    }
}
