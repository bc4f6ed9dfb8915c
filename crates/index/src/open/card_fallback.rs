//! The processor in place of a graphics card: if the user allows it, searches continue without a card that is
//! missing or lost.

use super::memory_plan::Division;
use super::options::OpenOptions;
use super::pool::Standby;
use super::tier::{LoadedPages, TierChoice};
use crate::error::IndexError;
use crate::families;
use crate::family::{Loading, MemorySplit, Opened};
use crate::format::manifest::Manifest;
use bathyal_gpu::GpuError;
use bathyal_store::Generation;
use bathyal_tier::TierProfile;
use std::sync::Arc;

/// The failures of a graphics card, and its replacement by the processor.
#[derive(Clone, Default)]
pub(super) struct CardTrouble {
    /// The error with which the card could not be opened.
    missing: Option<GpuError>,
    pub(super) standby: Option<Arc<Standby>>,
    /// Bytes of memory that the standby takes.
    bytes: u64,
}

impl CardTrouble {
    /// Returns why the processor searches although a card was wanted; `None` if the card searches.
    pub(super) fn why(&self) -> Option<&GpuError> {
        self.missing.as_ref().or_else(|| self.standby.as_ref()?.lost())
    }

    /// Returns the bytes of memory of the standby, or 0 until it is open.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.standby.as_ref().filter(|standby| standby.is_open()).map_or(0, |_| self.bytes)
    }

    /// Returns the searcher that replaces a lost card, once it is open.
    pub(super) fn searcher(&self) -> Option<&Arc<dyn Opened>> {
        self.standby.as_ref()?.replacement()
    }

    /// Returns the note about it for the user.
    pub(super) fn note(&self) -> Option<String> {
        if let Some(why) = self.why() {
            return Some(format!("this processor searches, and not a graphics card: {why}"));
        }
        let unsuited = self.standby.as_ref()?.unsuited()?;
        Some(format!("this processor has answered queries that the graphics card cannot answer: {unsuited}"))
    }
}

/// The input of opening an index again without its card.
pub(super) struct Reopening {
    pub(super) directory: Arc<dyn Generation>,
    pub(super) manifest: Manifest,
    /// Bytes of memory that the reopened index takes.
    pub(super) bytes: u64,
    /// The division of the memory when the index was opened with its card.
    pub(super) division: Division,
    pub(super) profile: TierProfile,
    pub(super) tier: TierChoice,
    pub(super) pages: Option<LoadedPages>,
    pub(super) shared: bool,
}

impl Reopening {
    fn open(&self) -> Result<Arc<dyn Opened>, IndexError> {
        let Division { split, lacking } = self.division;
        if let (Some(needed), Some(given)) = (lacking, split.budget) {
            return Err(IndexError::Memory {
                what: "searching without the graphics card, with its codes in memory,",
                needed,
                given,
                advice: "allow at least that much, or open the index with the card again".into(),
            });
        }
        let stored = families::stored(self.directory.address(), &self.manifest)?;
        let codes = split.codes + split.codes_on_card;
        let split = MemorySplit { codes, codes_on_card: 0, ..split };
        let buffers = stored.buffers();
        stored.open(&Loading {
            directory: &*self.directory,
            manifest: &self.manifest,
            split: &split,
            frames: buffers.frames,
            buffers,
            profile: &self.profile,
            pages: self.pages.as_ref().map(LoadedPages::bytes),
            checked: split.pages > 0 || matches!(self.tier, TierChoice::Mapped(_)),
            arriving: false,
            shared: self.shared,
            card: None,
        })
    }

    /// Creates the standby if the options allow one, and keeps the reason for a card that is missing from the
    /// start.
    pub(super) fn trouble(self, options: &OpenOptions) -> CardTrouble {
        let goes_on = options.processor_goes_on && options.card.is_some();
        let bytes = self.bytes;
        let standby = goes_on.then(|| Standby::new(move || self.open()));
        CardTrouble { missing: options.card_missing.clone(), standby, bytes }
    }
}
