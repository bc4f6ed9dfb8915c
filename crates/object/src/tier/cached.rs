//! Reads of an object through the cache.

use super::ObjectSource;
use crate::cache::{
    BLOCK_BYTES, Block, BlockKey, Cache, Fetch, FoundBlocks, ObjectLocation, ObjectVersion, block_numbers,
    block_span,
};
use crate::client::RequestFault;
use bathyal_store::{CacheCounts, CacheLevel};
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most blocks of one object that one thread reads from disk in sequence.
const DISK_RUN_BLOCKS: usize = 32;
/// The most cached blocks between two missing ones that are requested again, so that the missing ones share a
/// request.
const GAP_BLOCKS: u64 = 1;

/// The cache that an object is read through.
#[derive(Debug)]
pub(crate) struct CacheHandle {
    pub(crate) cache: Arc<Cache>,
    pub(crate) location: ObjectLocation,
    /// The counts of objects of this kind.
    pub(crate) counts: Arc<CacheCounts>,
}

/// The purpose of a read. It decides whether the read waits for the disk to take its blocks, and which counts
/// it adds to.
#[derive(Debug, Clone)]
pub(crate) enum ReadPurpose {
    /// Reads of searches that share one request. Blocks that the disk cannot keep up with are not written to
    /// it.
    Searches(Arc<[ReadPart]>),
    /// A read of an object from front to back, possibly only to fill the cache.
    Whole,
}

/// One read of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadPart {
    pub(crate) range: Range<u64>,
    /// The round of its query, from 1; 0 for none.
    pub(crate) round: u32,
}

impl ReadPurpose {
    /// Calls `count_block` with each block that a read overlaps and that read's round. A block that two reads
    /// overlap is counted twice, as if each read were a request of its own; a block between two reads is not
    /// counted.
    fn for_each_block(&self, range: &Range<u64>, mut count_block: impl FnMut(u64, u32)) {
        match self {
            ReadPurpose::Searches(parts) => {
                for ReadPart { range, round } in parts.iter() {
                    block_numbers(range).for_each(|number| count_block(number, *round));
                }
            }
            ReadPurpose::Whole => block_numbers(range).for_each(|number| count_block(number, 0)),
        }
    }

    /// Returns the round that a block is requested in: that of the last read, by its first byte, that begins
    /// in the block or before it.
    fn round(&self, number: u64) -> u32 {
        let ReadPurpose::Searches(parts) = self else { return 0 };
        let before = parts.partition_point(|part| part.range.start / BLOCK_BYTES <= number);
        before.checked_sub(1).map_or(0, |at| parts[at].round)
    }
}

impl ObjectSource {
    /// Reads the bytes of `range`, which must lie within the object: from the cache if there is one, else
    /// from the store.
    pub(crate) async fn read(
        self: &Arc<ObjectSource>,
        range: Range<u64>,
        reader: &ReadPurpose,
    ) -> Result<Bytes, RequestFault> {
        if let Some((cached, version)) = self.cached()
            && !range.is_empty()
            && let Some(parts) = collect_blocks(self, cached, version, &range, reader).await
        {
            return Ok(assemble(&parts, &range));
        }
        self.client.range(&self.key, range, &self.version, &self.traffic).await
    }

    /// Returns the blocks of `range`, which must not be empty, if all of them are in memory. The hits are
    /// counted for `round`.
    pub(crate) fn in_memory(&self, range: &Range<u64>, round: u32) -> Option<Vec<Block>> {
        let (cached, version) = self.cached()?;
        let get = |number| cached.cache.memory.get(version.block(number));
        let found: Vec<Block> = block_numbers(range).map(get).collect::<Option<_>>()?;
        let bytes = found.iter().map(|block| block.len() as u64).sum();
        self.count(cached, CacheLevel::Memory, (found.len() as u64, bytes), round);
        Some(found)
    }

    /// Counts `blocks` blocks of `bytes` bytes in all that were found at `level`, for a read of `round`.
    fn count(&self, cached: &CacheHandle, level: CacheLevel, (blocks, bytes): (u64, u64), round: u32) {
        cached.counts.add(level, blocks, bytes);
        if let Some(counts) = self.traffic.cache_round(round) {
            counts.add(level, blocks, bytes);
        }
    }

    /// Returns the cache and the version that is read. `None` without a cache, before a version is known, and
    /// in the child of a fork.
    fn cached(&self) -> Option<(&CacheHandle, ObjectVersion)> {
        let cached = self.cached.as_ref()?;
        let version = cached.location.version(self.version.etag()?);
        (cached.cache.process == std::process::id()).then_some((cached, version))
    }
}

/// Returns the part of block number `number` that lies in `range`, and its offset in `range`.
pub(crate) fn part<'b>(number: u64, block: &'b [u8], range: &Range<u64>) -> (usize, &'b [u8]) {
    let start = number * BLOCK_BYTES;
    let from = range.start.saturating_sub(start);
    let to = range.end.saturating_sub(start).min(block.len() as u64);
    ((start + from - range.start) as usize, block.get(from as usize..to as usize).unwrap_or(&[]))
}

/// Returns the parts of the blocks that lie in `range`, each with its offset in `range`, in order.
pub(crate) fn parts<'b>(
    found: &'b [Block],
    range: &'b Range<u64>,
) -> impl Iterator<Item = (usize, &'b [u8])> {
    block_numbers(range).zip(found).map(|(number, block)| part(number, block, range))
}

fn assemble(found: &[Block], range: &Range<u64>) -> Bytes {
    let mut all = Vec::with_capacity((range.end - range.start) as usize);
    parts(found, range).for_each(|(_, part)| all.extend_from_slice(part));
    all.into()
}

/// Returns the blocks of `range` from the nearest level. Returns `None` if a fetch that was waited for
/// failed.
async fn collect_blocks(
    source: &Arc<ObjectSource>,
    cached: &CacheHandle,
    version: ObjectVersion,
    range: &Range<u64>,
    reader: &ReadPurpose,
) -> Option<Vec<Block>> {
    let get = |number| Some((cached.cache.memory.get(version.block(number))?, CacheLevel::Memory));
    let mut found: Vec<_> = block_numbers(range).map(|number| (number, get(number))).collect();
    let missing = found.iter().filter(|(_, block)| block.is_none()).map(|(number, _)| version.block(*number));
    let missing: Vec<BlockKey> = missing.collect();
    if !missing.is_empty() {
        let (fetch, receivers) = cached.cache.fetches.join(&missing);
        if let Some(fetch) = fetch {
            // Fetched in a separate task: other readers wait for the blocks even if this read is dropped.
            tokio::spawn(fetch_missing(source.clone(), version, fetch, reader.clone()));
        }
        for mut receiver in receivers {
            let fetched = receiver.wait_for(Option::is_some).await.ok()?.clone()?.ok()?;
            for (number, block) in found.iter_mut().filter(|(_, block)| block.is_none()) {
                *block = fetched.get(number).cloned();
            }
        }
    }
    let first = found.first().map_or(0, |(number, _)| *number);
    reader.for_each_block(range, |number, round| {
        let Some((_, Some((block, level)))) = found.get((number - first) as usize) else { return };
        // The fetch has counted the bytes that came from the store, once.
        let bytes = if *level == CacheLevel::Store { 0 } else { block.len() as u64 };
        source.count(cached, *level, (1, bytes), round);
    });
    found.into_iter().map(|(_, block)| Some(block?.0)).collect()
}

/// Fetches missing blocks: from memory, where another fetch may have inserted them meanwhile, from disk, and
/// from the store.
async fn fetch_missing(source: Arc<ObjectSource>, version: ObjectVersion, fetch: Fetch, reader: ReadPurpose) {
    let Some(cached @ CacheHandle { cache, .. }) = &source.cached else { return };
    let get = |key: &BlockKey| Some((key.number, (cache.memory.get(*key)?, CacheLevel::Memory)));
    let mut found: FoundBlocks = fetch.keys.iter().filter_map(get).collect();
    let missing = |found: &FoundBlocks| -> Vec<BlockKey> {
        fetch.keys.iter().copied().filter(|key| !found.contains_key(&key.number)).collect()
    };
    let not_in_memory = missing(&found);
    if cache.disk().is_some() && !not_in_memory.is_empty() {
        for (number, block) in read_disk(cache, &not_in_memory).await {
            cache.memory.insert(version.block(number), block.clone());
            found.insert(number, (block, CacheLevel::Disk));
        }
    }
    let numbers: Vec<u64> = missing(&found).iter().map(|key| key.number).collect();
    let runs = runs(&numbers).into_iter().map(|run| fetch_run(&source, run, &reader));
    let result = match try_join_all(runs).await {
        Ok(fetched) => {
            let fetched = fetched.into_iter().flatten();
            for (number, block) in fetched {
                source.count(cached, CacheLevel::Store, (0, block.len() as u64), reader.round(number));
                found.insert(number, (block, CacheLevel::Store));
            }
            Ok(Arc::new(found))
        }
        Err(fault) => Err(fault),
    };
    if let Some(trouble) = cache.trouble() {
        source.traffic.note_cache_trouble(trouble);
    }
    fetch.complete(result);
}

/// Reads those of the blocks that are on disk.
async fn read_disk(cache: &Arc<Cache>, keys: &[BlockKey]) -> Vec<(u64, Block)> {
    let runs = keys.chunks(DISK_RUN_BLOCKS).map(|run| {
        let (cache, run) = (cache.clone(), run.to_vec());
        tokio::task::spawn_blocking(move || {
            let read = |key: BlockKey| Some((key.number, cache.disk()?.read(key)?));
            run.into_iter().filter_map(read).collect::<Vec<_>>()
        })
    });
    // A thread that panicked counts as having found nothing.
    join_all(runs).await.into_iter().flatten().flatten().collect()
}

/// Splits the numbers of blocks, which are sorted, into runs that share a request.
fn runs(numbers: &[u64]) -> Vec<&[u64]> {
    numbers.chunk_by(|before, after| after - before <= GAP_BLOCKS + 1).collect()
}

/// Fetches the blocks of one run from the store, and inserts them into the cache.
async fn fetch_run(
    source: &Arc<ObjectSource>,
    run: &[u64],
    reader: &ReadPurpose,
) -> Result<Vec<(u64, Block)>, RequestFault> {
    let (Some(cached), Some(first), Some(last)) = (&source.cached, run.first(), run.last()) else {
        return Ok(Vec::new());
    };
    let range = block_span(*first, source.len).start..block_span(*last, source.len).end;
    let all = source.client.range(&source.key, range.clone(), &source.version, &source.traffic).await?;
    let Some(etag) = source.version.etag() else { return Ok(Vec::new()) };
    // The response may have revealed that the store has another version than the recorded one.
    let version = cached.location.version(etag);
    let mut found = Vec::with_capacity(run.len());
    for number in run {
        let span = block_span(*number, source.len);
        let block = Block::from(&all[(span.start - range.start) as usize..(span.end - range.start) as usize]);
        insert(&cached.cache, version.block(*number), &block, reader).await;
        found.push((*number, block));
    }
    Ok(found)
}

async fn insert(cache: &Cache, key: BlockKey, block: &Block, reader: &ReadPurpose) {
    cache.memory.insert(key, block.clone());
    let Some(disk) = cache.disk() else { return };
    match reader {
        ReadPurpose::Whole => disk.write(key, block).await,
        ReadPurpose::Searches(_) if !disk.try_write(key, block) => {
            cache.skipped.fetch_add(1, Relaxed);
        }
        ReadPurpose::Searches(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_blocks_share_a_request() {
        assert_eq!(runs(&[1, 2, 4, 7, 8]), [&[1, 2, 4][..], &[7, 8]]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn each_read_counts_its_blocks_and_the_last_read_before_a_block_sets_its_round() {
        let block = BLOCK_BYTES;
        let part = |range, round| ReadPart { range, round };
        let parts = [
            part(0..9, 1),
            part(5..2 * block, 1),
            part(2 * block - 1..2 * block + 1, 2),
            part(9 * block..9 * block + 1, 4),
        ];
        let reader = ReadPurpose::Searches(Arc::from(parts));
        let mut wanted = Vec::new();
        reader.for_each_block(&(0..9 * block + 1), |number, round| wanted.push((number, round)));
        assert_eq!(wanted, [(0, 1), (0, 1), (1, 1), (1, 2), (2, 2), (9, 4)]);
        assert_eq!([0, 1, 2, 5, 9, 100].map(|number| reader.round(number)), [1, 2, 2, 2, 4, 4]);
        wanted.clear();
        ReadPurpose::Whole.for_each_block(&(block..3 * block), |number, round| wanted.push((number, round)));
        assert_eq!((&wanted[..], ReadPurpose::Whole.round(1)), (&[(1, 0), (2, 0)][..], 0));
    }

    #[test]
    fn parts_of_blocks_make_up_the_range() {
        let object: Vec<u8> = (0..50_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let len = object.len() as u64;
        for range in [0..1, 0..len, 16_383..16_385, 20_000..30_000, 49_999..len] {
            let block_of = |number| {
                let span = block_span(number, len);
                Block::from(&object[span.start as usize..span.end as usize])
            };
            let found: Vec<Block> = block_numbers(&range).map(block_of).collect();
            assert!(
                assemble(&found, &range) == object[range.start as usize..range.end as usize],
                "{range:?}"
            );
        }
    }
}
