//! The loaded part of an index: the data in memory, and the tier from which the rest is read.

use super::OpenOptions;
use super::stored::StoredIndex;
use super::tier::{LoadedPages, OpenParts, Pages, TierChoice, card_profile};
use crate::cost::Machine;
use crate::cost::processor::Processor;
use crate::cost::processor_cache::processor_of_this_machine;
use crate::error::IndexError;
use crate::family::{Buffers, CardChoice, Loading, MemorySplit, Opened};
use crate::query::{ENGINE_DEPTH, FAR_LATENCY_NS, LARGEST_ENGINE_DEPTH};
use bathyal_store::Generation;
use bathyal_tier::layer::cache::{CacheCounters, CacheTier};
use bathyal_tier::{EngineOptions, Tier, TierProfile};
use std::sync::Arc;

/// The most reads that one request to a remote tier combines. 20,000 x 240 floats at recall 0.99 take 60
/// reads, of which two usually share a request.
const READS_OF_A_REQUEST: u32 = 8;
/// The most bytes of a thread's read buffers on a remote tier. The system allocates them as they are used.
const FAR_BUFFER_BYTES: f64 = 256e6;

/// The loaded part of an index, or one copy of it.
pub(super) struct Loaded {
    tier: Arc<dyn Tier>,
    opened: Arc<dyn Opened>,
    /// The tier's profile, with measured values if there are any.
    profile: TierProfile,
    /// The processor's times; `None` if they are measured when they are needed first.
    processor: Option<Processor>,
    /// Options of the engine of a search thread.
    engine: EngineOptions,
    cache: Option<CacheTier>,
    /// The parts of a striped index, if they are read.
    parts: Option<OpenParts>,
    /// The pages, until they are taken.
    pages: Option<LoadedPages>,
    /// The name of the graphics card that searches.
    card: Option<String>,
}

impl Loaded {
    /// Loads the data that the index's family keeps in memory besides `pages`.
    pub(super) fn new(
        directory: &dyn Generation,
        stored: &StoredIndex,
        split: &MemorySplit,
        options: &OpenOptions,
        arriving: bool,
        pages: Pages,
    ) -> Result<Loaded, IndexError> {
        let Pages { tier, loaded: pages, cache, parts } = pages;
        let resident = options.tier == TierChoice::Card;
        let own = if resident { &card_profile() } else { tier.profile() };
        let devices = parts.as_ref().map_or(1, |parts| parts.paths.len() as u32);
        let measured = options.profile.as_ref().map(|saved| own.measured_as(&saved.of_devices(devices)));
        let profile = measured.unwrap_or_else(|| own.clone());
        let buffers = stored.family().buffers();
        let frame_bytes = buffers.bytes(split.codes_on_tier > 0 || arriving);
        let joins = directory.traffic().is_some();
        let depth = engine_depth(&profile, options.memory_bytes, joins, (&buffers, frame_bytes));
        let frames = buffers.frames * (depth / ENGINE_DEPTH);
        let buffer_budget_bytes = u64::from(frames) * frame_bytes as u64;
        let engine = EngineOptions { depth, frame_bytes, buffer_budget_bytes, ..EngineOptions::default() };
        let loading = Loading {
            directory,
            manifest: stored.manifest(),
            split,
            buffers,
            frames,
            profile: &profile,
            pages: pages.as_ref().map(LoadedPages::bytes),
            // Pages in memory were checked when they were loaded.
            checked: split.pages > 0 || matches!(options.tier, TierChoice::Mapped(_)),
            arriving,
            shared: tier.is_shared(),
            card: options.card.as_deref().map(|card| CardChoice {
                card,
                mini_batch: options.mini_batch,
                resident,
            }),
        };
        let opened = stored.family().open(&loading)?;
        let (processor, card) = (options.processor, options.card.as_ref());
        let card = card.map(|card| card.profile().name.clone());
        Ok(Loaded { tier, opened, profile, processor, engine, cache, parts, pages, card })
    }

    pub(super) fn tier(&self) -> &Arc<dyn Tier> {
        &self.tier
    }

    /// Returns the data that the index's family keeps in memory.
    pub(super) fn opened(&self) -> &Arc<dyn Opened> {
        &self.opened
    }

    /// Returns the tier's profile, with measured values if there are any.
    pub(super) fn profile(&self) -> &TierProfile {
        &self.profile
    }

    /// Returns the options of the engine of a search thread.
    pub(super) fn engine(&self) -> EngineOptions {
        self.engine
    }

    /// Returns the parts of a striped index, if they are read.
    pub(super) fn parts(&self) -> Option<&OpenParts> {
        self.parts.as_ref()
    }

    /// Returns the name of the graphics card that searches.
    pub(super) fn card_name(&self) -> Option<&str> {
        self.card.as_deref()
    }

    /// Returns the pages if they were loaded into memory, and keeps them no longer.
    pub(super) fn take_pages(&mut self) -> Option<LoadedPages> {
        self.pages.take()
    }

    /// Returns the machine of searches: the tier's profile and the processor.
    pub(super) fn machine(&self) -> Machine<'_> {
        let processor = self.processor.as_ref().unwrap_or_else(|| processor_of_this_machine());
        Machine { profile: &self.profile, processor }
    }

    /// Returns true if the latency of reads is that of a remote store.
    pub(super) fn is_far(&self) -> bool {
        self.profile.latency_ns >= FAR_LATENCY_NS
    }

    /// Returns the bytes of the buffers of a search thread, and of responses that are being received into
    /// them. `elsewhere`: the index is in a remote store.
    pub(super) fn thread_bytes(&self, elsewhere: bool) -> u64 {
        match self.tier.profile().addressable {
            true => self.engine.frame_bytes as u64,
            false => Buffers::held_bytes(self.engine.buffer_budget_bytes, elsewhere),
        }
    }

    /// Returns the counters of the page cache, or of the family's own cache; `None` without one.
    pub(super) fn cache_counters(&self) -> Option<CacheCounters> {
        self.cache.as_ref().map(CacheTier::counters).or_else(|| self.opened.kept())
    }
}

/// Returns the most reads in flight of a thread's engine: more on a remote tier if no budget limits their
/// `buffers`, of `frame_bytes` each. A tier that `joins` near reads into one request can do so only for reads
/// that are submitted together. So the depth has space for all reads of as many requests as the tier takes at
/// once.
fn engine_depth(
    profile: &TierProfile,
    budget: Option<u64>,
    joins: bool,
    (buffers, frame_bytes): (&Buffers, usize),
) -> u32 {
    if budget.is_some() || profile.latency_ns < FAR_LATENCY_NS {
        return ENGINE_DEPTH;
    }
    let requests = profile.depth.clamp(ENGINE_DEPTH, LARGEST_ENGINE_DEPTH);
    if !joins {
        return requests;
    }
    let bytes_of_one = f64::from(buffers.frames) / f64::from(ENGINE_DEPTH) * frame_bytes.max(1) as f64;
    let affordable = (FAR_BUFFER_BYTES / bytes_of_one) as u32;
    (requests * READS_OF_A_REQUEST).min(affordable).max(requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::demand::tests::device;

    #[test]
    fn the_depth_on_a_remote_tier_has_space_for_all_reads_of_a_request() {
        let buffers = Buffers { frames: 256, frame_bytes: 4096, frame_bytes_with_codes: 4096 };
        let [far, near] = [31_000_000, 75_000]
            .map(|latency_ns| TierProfile { depth: 512, ..device(latency_ns, 0.0, 64, 0.0) });
        let depth = |frame_bytes| engine_depth(&far, None, true, (&buffers, frame_bytes));
        assert_eq!((depth(4096), engine_depth(&far, None, false, (&buffers, 4096))), (4096, 512));
        // Reads of whole lists: no more than one per request.
        assert_eq!(depth(4 << 20), 512);
        let between = depth(64 << 10);
        assert!(
            (512..4096).contains(&between) && f64::from(between) * 131072.0 <= FAR_BUFFER_BYTES,
            "{between}"
        );
        assert_eq!(engine_depth(&far, Some(1 << 30), true, (&buffers, 4096)), ENGINE_DEPTH);
        assert_eq!(engine_depth(&near, None, true, (&buffers, 4096)), ENGINE_DEPTH);
    }
}
