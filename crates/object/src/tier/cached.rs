//! Reads of an object through the cache.

use super::Source;
use crate::cache::{BLOCK_BYTES, Block, BlockKey, Cache, Flight, Found, ObjectVersion, Place, blocks, span};
use crate::client::Fault;
use bathyal_store::{CacheCounts, CacheLevel};
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Blocks of one object that one thread reads from disk after each other.
const DISK_RUN_BLOCKS: usize = 32;
/// Blocks that are there already and are asked for again, so that those before and behind them are one request.
const GAP_BLOCKS: u64 = 1;

/// What a source reads through.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) cache: Arc<Cache>,
    pub(crate) place: Place,
    pub(crate) counts: Arc<CacheCounts>,
}

/// Who reads. On that depends whether a read waits for the disk to take what it brings, and where it is counted.
#[derive(Debug, Clone)]
pub(crate) enum Reader {
    /// Searches, by these reads, which are one request: what the disk cannot keep up with is not written.
    Searches(Arc<[Part]>),
    /// Whoever reads an object from front to back, perhaps for the cache's sake.
    Whole,
}

/// What one read wants of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: Range<u64>,
    /// The round of its query.
    pub(crate) round: u32,
}

impl Reader {
    /// Each block of `range` that a read wants, and that read's round: a block that two reads want is there twice, as it is
    /// where each is a request of its own, and one between two reads not at all.
    fn wanted(&self, range: &Range<u64>, mut each: impl FnMut(u64, u32)) {
        match self {
            Reader::Searches(parts) => {
                for Part { range, round } in parts.iter() {
                    blocks(range).for_each(|number| each(number, *round));
                }
            }
            Reader::Whole => blocks(range).for_each(|number| each(number, 0)),
        }
    }

    /// The round that a block is asked for in: that of the last read, by its first byte, that begins in it or before it.
    fn round(&self, number: u64) -> u32 {
        let Reader::Searches(parts) = self else { return 0 };
        let before = parts.partition_point(|part| part.range.start / BLOCK_BYTES <= number);
        before.checked_sub(1).map_or(0, |at| parts[at].round)
    }
}

impl Source {
    /// The bytes of `range`, which lies within the object: from the cache if there is one, else from the store.
    pub(crate) async fn read(self: &Arc<Source>, range: Range<u64>, reader: &Reader) -> Result<Bytes, Fault> {
        if let Some((cached, version)) = self.cached()
            && !range.is_empty()
            && let Some(parts) = collect(self, cached, version, &range, reader).await
        {
            return Ok(assemble(&parts, &range));
        }
        self.client.range(&self.key, range, &self.version, &self.traffic).await
    }

    /// The blocks of `range`, which is not empty, if all of them are in memory; a round of this number asks for them.
    pub(crate) fn in_memory(&self, range: &Range<u64>, round: u32) -> Option<Vec<Block>> {
        let (cached, version) = self.cached()?;
        let get = |number| cached.cache.memory.get(version.block(number));
        let found: Vec<Block> = blocks(range).map(get).collect::<Option<_>>()?;
        let bytes = found.iter().map(|block| block.len() as u64).sum();
        self.count(cached, CacheLevel::Memory, (found.len() as u64, bytes), round);
        Some(found)
    }

    /// So many blocks and bytes, which a round asked for, were found there.
    fn count(&self, cached: &Cached, level: CacheLevel, (blocks, bytes): (u64, u64), round: u32) {
        cached.counts.add(level, blocks, bytes);
        if let Some(counts) = self.traffic.cache_round(round) {
            counts.add(level, blocks, bytes);
        }
    }

    /// What it reads through, and the version that it reads; `None` before a version is known, and in the child of a fork.
    fn cached(&self) -> Option<(&Cached, ObjectVersion)> {
        let cached = self.cached.as_ref()?;
        let version = cached.place.version(self.version.etag()?);
        (cached.cache.process == std::process::id()).then_some((cached, version))
    }
}

/// The part of `block` number `number` that lies in `range`, and where it begins in that.
pub(crate) fn part<'b>(number: u64, block: &'b [u8], range: &Range<u64>) -> (usize, &'b [u8]) {
    let start = number * BLOCK_BYTES;
    let from = range.start.saturating_sub(start);
    let to = range.end.saturating_sub(start).min(block.len() as u64);
    ((start + from - range.start) as usize, block.get(from as usize..to as usize).unwrap_or(&[]))
}

/// The parts of the blocks that `range` wants, one after the other.
pub(crate) fn parts<'b>(
    found: &'b [Block],
    range: &'b Range<u64>,
) -> impl Iterator<Item = (usize, &'b [u8])> {
    blocks(range).zip(found).map(|(number, block)| part(number, block, range))
}

fn assemble(found: &[Block], range: &Range<u64>) -> Bytes {
    let mut all = Vec::with_capacity((range.end - range.start) as usize);
    parts(found, range).for_each(|(_, part)| all.extend_from_slice(part));
    all.into()
}

/// The blocks of `range`, from wherever they are nearest; `None` if somebody else's read, which was waited for, failed.
async fn collect(
    source: &Arc<Source>,
    cached: &Cached,
    version: ObjectVersion,
    range: &Range<u64>,
    reader: &Reader,
) -> Option<Vec<Block>> {
    let get = |number| Some((cached.cache.memory.get(version.block(number))?, CacheLevel::Memory));
    let mut found: Vec<_> = blocks(range).map(|number| (number, get(number))).collect();
    let missing = found.iter().filter(|(_, block)| block.is_none()).map(|(number, _)| version.block(*number));
    let missing: Vec<BlockKey> = missing.collect();
    if !missing.is_empty() {
        let (flight, waiting) = cached.cache.flights.join(&missing);
        if let Some(flight) = flight {
            // A task of its own: others wait for it, even if this read is given up.
            tokio::spawn(bring(source.clone(), version, flight, reader.clone()));
        }
        for mut waiting in waiting {
            let landed = waiting.wait_for(Option::is_some).await.ok()?.clone()?.ok()?;
            for (number, block) in found.iter_mut().filter(|(_, block)| block.is_none()) {
                *block = landed.get(number).cloned();
            }
        }
    }
    let first = found.first().map_or(0, |(number, _)| *number);
    reader.wanted(range, |number, round| {
        let Some((_, Some((block, level)))) = found.get((number - first) as usize) else { return };
        // Who brought it from the store has counted its bytes, once.
        let bytes = if *level == CacheLevel::Store { 0 } else { block.len() as u64 };
        source.count(cached, *level, (1, bytes), round);
    });
    found.into_iter().map(|(_, block)| Some(block?.0)).collect()
}

/// Brings the blocks of a flight: from memory, where they may have come to be, from disk, and from the store.
async fn bring(source: Arc<Source>, version: ObjectVersion, flight: Flight, reader: Reader) {
    let Some(cached @ Cached { cache, .. }) = &source.cached else { return };
    let get = |key: &BlockKey| Some((key.number, (cache.memory.get(*key)?, CacheLevel::Memory)));
    let mut found: Found = flight.keys.iter().filter_map(get).collect();
    let missing = |found: &Found| -> Vec<BlockKey> {
        flight.keys.iter().copied().filter(|key| !found.contains_key(&key.number)).collect()
    };
    let wanted = missing(&found);
    if cache.disk().is_some() && !wanted.is_empty() {
        for (number, block) in read_disk(cache, &wanted).await {
            cache.memory.insert(version.block(number), block.clone());
            found.insert(number, (block, CacheLevel::Disk));
        }
    }
    let numbers: Vec<u64> = missing(&found).iter().map(|key| key.number).collect();
    let runs = runs(&numbers).into_iter().map(|run| fetch(&source, run, &reader));
    let landed = match try_join_all(runs).await {
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
    flight.land(landed);
}

/// Those of the blocks that are on disk.
async fn read_disk(cache: &Arc<Cache>, keys: &[BlockKey]) -> Vec<(u64, Block)> {
    let runs = keys.chunks(DISK_RUN_BLOCKS).map(|run| {
        let (cache, run) = (cache.clone(), run.to_vec());
        tokio::task::spawn_blocking(move || {
            let read = |key: BlockKey| Some((key.number, cache.disk()?.read(key)?));
            run.into_iter().filter_map(read).collect::<Vec<_>>()
        })
    });
    // A thread that failed found nothing.
    join_all(runs).await.into_iter().flatten().flatten().collect()
}

/// Which of the blocks are one request.
fn runs(numbers: &[u64]) -> Vec<&[u64]> {
    numbers.chunk_by(|before, after| after - before <= GAP_BLOCKS + 1).collect()
}

/// Asks the store for blocks that are one request, and keeps them.
async fn fetch(source: &Arc<Source>, run: &[u64], reader: &Reader) -> Result<Vec<(u64, Block)>, Fault> {
    let (Some(cached), Some(first), Some(last)) = (&source.cached, run.first(), run.last()) else {
        return Ok(Vec::new());
    };
    let range = span(*first, source.len).start..span(*last, source.len).end;
    let all = source.client.range(&source.key, range.clone(), &source.version, &source.traffic).await?;
    let Some(etag) = source.version.etag() else { return Ok(Vec::new()) };
    // It may have been learnt only now that the store has another version than was recorded.
    let version = cached.place.version(etag);
    let mut found = Vec::with_capacity(run.len());
    for number in run {
        let span = span(*number, source.len);
        let block = Block::from(&all[(span.start - range.start) as usize..(span.end - range.start) as usize]);
        keep(&cached.cache, version.block(*number), &block, reader).await;
        found.push((*number, block));
    }
    Ok(found)
}

async fn keep(cache: &Cache, key: BlockKey, block: &Block, reader: &Reader) {
    cache.memory.insert(key, block.clone());
    let Some(disk) = cache.disk() else { return };
    match reader {
        Reader::Whole => disk.put(key, block).await,
        Reader::Searches(_) if !disk.offer(key, block) => {
            cache.skipped.fetch_add(1, Relaxed);
        }
        Reader::Searches(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_request() {
        assert_eq!(runs(&[1, 2, 4, 7, 8]), [&[1, 2, 4][..], &[7, 8]]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn blocks_are_looked_for_by_each_read_and_asked_for_by_the_last_that_begins_before_their_end() {
        let block = BLOCK_BYTES;
        let part = |range, round| Part { range, round };
        let parts = [
            part(0..9, 1),
            part(5..2 * block, 1),
            part(2 * block - 1..2 * block + 1, 2),
            part(9 * block..9 * block + 1, 4),
        ];
        let reader = Reader::Searches(Arc::from(parts));
        let mut wanted = Vec::new();
        reader.wanted(&(0..9 * block + 1), |number, round| wanted.push((number, round)));
        assert_eq!(wanted, [(0, 1), (0, 1), (1, 1), (1, 2), (2, 2), (9, 4)]);
        assert_eq!([0, 1, 2, 5, 9, 100].map(|number| reader.round(number)), [1, 2, 2, 2, 4, 4]);
        wanted.clear();
        Reader::Whole.wanted(&(block..3 * block), |number, round| wanted.push((number, round)));
        assert_eq!((&wanted[..], Reader::Whole.round(1)), (&[(1, 0), (2, 0)][..], 0));
    }

    #[test]
    fn parts_of_blocks_are_what_the_range_wants() {
        let object: Vec<u8> = (0..50_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let len = object.len() as u64;
        for range in [0..1, 0..len, 16_383..16_385, 20_000..30_000, 49_999..len] {
            let of = |number| {
                Block::from(&object[span(number, len).start as usize..span(number, len).end as usize])
            };
            let found: Vec<Block> = blocks(&range).map(of).collect();
            assert!(
                assemble(&found, &range) == object[range.start as usize..range.end as usize],
                "{range:?}"
            );
        }
    }
}
