//! The cache level in memory.

use super::key::{BLOCK_BYTES, BlockKey};
use crate::connect::CachePolicy;
use foyer_common::properties::Hint;
use foyer_memory::{Cache, CacheBuilder, CacheProperties, EvictionConfig, LruConfig, S3FifoConfig};
use std::sync::Arc;

/// The bytes of a block in an allocation of their own: a slice of a larger allocation would keep all of it
/// alive.
pub(crate) type Block = Arc<[u8]>;

/// The memory that a block takes in addition to its own bytes, for links, lookup, and its hash after
/// eviction. Measured (219 bytes with S3-FIFO, 251 with the heads of two allocations) and rounded up.
const ENTRY_BYTES: usize = 256;
/// The share of the protected segment of a segmented LRU.
const PROTECTED_SHARE: f64 = 0.8;
/// The most shards, each with a lock of its own.
const MAX_SHARDS: u64 = 16;
/// The fewest blocks of a shard: shards do not share capacity.
const MIN_SHARD_BLOCKS: u64 = 64;

impl CachePolicy {
    pub(crate) fn config(self) -> EvictionConfig {
        match self {
            CachePolicy::S3Fifo => S3FifoConfig::default().into(),
            CachePolicy::SegmentedLru => LruConfig { high_priority_pool_ratio: PROTECTED_SHARE }.into(),
            CachePolicy::Lru => LruConfig { high_priority_pool_ratio: 0.0 }.into(),
        }
    }

    /// Returns the properties of a newly inserted block. The library's LRU inserts entries with [`Hint::Low`]
    /// into its low-priority pool and all others into its high-priority pool. Entries that overflow the high
    /// pool move to the recent end of the low pool, and the old end of the low pool is evicted. A hit moves
    /// an entry only within its pool. To make this a segmented LRU, a hit inserts the entry again without the
    /// hint.
    pub(crate) fn insertion_properties(self) -> CacheProperties {
        let hint = if self == CachePolicy::SegmentedLru { Hint::Low } else { Hint::Normal };
        CacheProperties::default().with_hint(hint)
    }

    /// Returns true if a hit inserts the entry again, as above.
    pub(crate) fn reinserts_on_hit(self) -> bool {
        self == CachePolicy::SegmentedLru
    }
}

/// Returns the number of shards for `blocks` blocks.
pub(crate) fn shards(blocks: u64) -> usize {
    (blocks / MIN_SHARD_BLOCKS).clamp(1, MAX_SHARDS) as usize
}

/// The blocks in memory, within a budget.
pub(crate) struct MemoryCache {
    blocks: Cache<BlockKey, Block>,
    policy: CachePolicy,
}

impl MemoryCache {
    /// Makes a cache of at most `bytes` bytes, including the overhead of its entries.
    pub(crate) fn new(bytes: u64, policy: CachePolicy) -> MemoryCache {
        let capacity = usize::try_from(bytes).unwrap_or(usize::MAX);
        let blocks = CacheBuilder::new(capacity)
            .with_shards(shards(bytes / BLOCK_BYTES))
            .with_eviction_config(policy.config())
            .with_weighter(|_: &BlockKey, block: &Block| block.len() + ENTRY_BYTES)
            .build();
        MemoryCache { blocks, policy }
    }

    pub(crate) fn get(&self, key: BlockKey) -> Option<Block> {
        let block = self.blocks.get(&key)?.value().clone();
        if self.policy.reinserts_on_hit() {
            self.blocks.insert(key, block.clone());
        }
        Some(block)
    }

    pub(crate) fn insert(&self, key: BlockKey, block: Block) {
        self.blocks.insert_with_properties(key, block, self.policy.insertion_properties());
    }

    /// Returns the bytes in use, including the overhead of entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.usage() as u64
    }
}
