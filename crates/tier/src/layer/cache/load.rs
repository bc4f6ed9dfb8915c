//! Loading pages ahead of time.

use super::CacheTier;
use super::shard::Entry;
use crate::contract::Span;
use crate::engine::{Control, Cx, Engine, EngineOptions};
use crate::error::RunError;
use std::collections::HashSet;
use std::sync::Arc;

/// Adjacent pages are read together, up to this many bytes; longer reads make no device faster.
const RUN_BYTES: u64 = 128 << 10;

/// Reads in flight while loading; with runs of 128 KiB this saturates any single device.
const LOAD_DEPTH: u32 = 16;

/// Results of loading pages into the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadCounts {
    /// Distinct pages requested.
    pub wanted: u64,
    /// Number of these pages in the cache now: fewer than `wanted` if the cache is too small or a read
    /// failed.
    pub resident: u64,
    /// Reads that failed.
    pub failed_reads: u64,
}

impl CacheTier {
    /// Reads the pages of `spans`, the most important first, into the main queue of the cache. Pages that are
    /// not hit are evicted like any other page. Takes a few MiB of buffers and some 40 bytes a page while it
    /// runs. A read that fails is counted and skipped.
    ///
    /// # Errors
    /// [`RunError`] if `control` ends the load or the tier fails as a whole.
    pub fn warm(&self, spans: &[Span], control: Control<'_>) -> Result<LoadCounts, RunError> {
        self.load(spans, Entry::Warm, control)
    }

    /// Reads pages as [`CacheTier::warm`] does, and pins them until they are forgotten. At most seven eighths
    /// of the cache can be pinned; further pages are only warm.
    ///
    /// # Errors
    /// As [`CacheTier::warm`].
    pub fn pin(&self, spans: &[Span], control: Control<'_>) -> Result<LoadCounts, RunError> {
        self.load(spans, Entry::Pin, control)
    }

    fn load(&self, spans: &[Span], entry: Entry, control: Control<'_>) -> Result<LoadCounts, RunError> {
        let all = self.state.pages(&Span::at(self.tier.len(), 0)).end;
        let page_bytes = self.state.page_bytes;
        let mut wanted = HashSet::new();
        let mut pages = Vec::new();
        for span in spans {
            let touched = self.state.pages(span);
            pages.extend((touched.start..touched.end.min(all)).filter(|page| wanted.insert(*page)));
        }
        let mut counts = LoadCounts { wanted: pages.len() as u64, ..LoadCounts::default() };
        pages.truncate(self.state.capacity_pages as usize);
        pages.sort_unstable();
        let longest = (RUN_BYTES / page_bytes) as usize;
        let adjacent = |a: &u64, b: &u64| a + 1 == *b;
        let mut runs = pages.chunk_by(adjacent).flat_map(|run| run.chunks(longest));

        let loader = CacheTier { entry, ..self.clone() };
        let options = EngineOptions {
            depth: LOAD_DEPTH,
            buffer_budget_bytes: u64::from(LOAD_DEPTH) * (RUN_BYTES + u64::from(super::LARGEST_PAGE)),
            ..EngineOptions::default()
        };
        let mut engine = Engine::new(Arc::new(loader), options)?;
        let len = self.tier.len();
        let next = |cx: &Cx| {
            let run = runs.next()?;
            let start = run[0] * page_bytes;
            let end = (start + run.len() as u64 * page_bytes).min(len);
            let (cx, span) = (cx.clone(), Span::at(start, (end - start) as u32));
            Some(async move { cx.read(&[span]).await.is_err() })
        };
        let sink = |failed| counts.failed_reads += u64::from(failed);
        engine.run(LOAD_DEPTH as usize, next, sink, control)?;
        counts.resident = wanted.iter().filter(|page| self.state.read(**page).holds(**page)).count() as u64;
        Ok(counts)
    }
}
