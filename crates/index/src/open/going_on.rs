//! A graphics card that searches, and this processor, which goes on without it where the user allows that.

use super::options::OpenOptions;
use super::pool::Standby;
use super::tier::{Loaded, TierChoice};
use crate::error::IndexError;
use crate::families;
use crate::family::{Loading, MemorySplit, Opened};
use crate::format::manifest::Manifest;
use bathyal_gpu::GpuError;
use bathyal_store::Generation;
use bathyal_tier::TierProfile;
use std::sync::Arc;

/// Why the processor searches although a card was wanted, as far as it does.
#[derive(Clone, Default)]
pub(super) struct CardTrouble {
    missing: Option<GpuError>,
    pub(super) standby: Option<Arc<Standby>>,
    /// Bytes of memory that the processor takes to go on.
    bytes: u64,
}

impl CardTrouble {
    /// What it is.
    pub(super) fn why(&self) -> Option<&GpuError> {
        self.missing.as_ref().or_else(|| self.standby.as_ref()?.lost())
    }

    /// Bytes of memory that a processor which goes on has taken.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.standby.as_ref().filter(|standby| standby.is_open()).map_or(0, |_| self.bytes)
    }

    /// What searches instead of a card that is lost.
    pub(super) fn searcher(&self) -> Option<&Arc<dyn Opened>> {
        self.standby.as_ref()?.now()
    }

    /// What a user should know of it.
    pub(super) fn note(&self) -> Option<String> {
        if let Some(why) = self.why() {
            return Some(format!("this processor searches, and not a graphics card: {why}"));
        }
        let beyond = self.standby.as_ref()?.beyond()?;
        Some(format!("this processor has searched what a graphics card does not: {beyond}"))
    }
}

/// Divides a budget by `plan`, with `standby` bytes set aside for a processor that goes on; where these are not there, how much memory
/// they would take is the second.
pub(super) fn plan(
    given: Option<u64>,
    standby: Option<u64>,
    plan: impl Fn(Option<u64>) -> Result<MemorySplit, IndexError>,
) -> Result<(MemorySplit, Option<u64>), IndexError> {
    let (Some(budget), Some(standby)) = (given, standby) else { return Ok((plan(given)?, None)) };
    match plan(Some(budget.saturating_sub(standby))) {
        Ok(split) => Ok((MemorySplit { budget: given, standby, ..split }, None)),
        Err(IndexError::Memory { needed, .. }) => Ok((plan(given)?, Some(needed + standby))),
        Err(error) => Err(error),
    }
}

/// What an index is opened from once more.
pub(super) struct Reopening {
    pub(super) directory: Arc<dyn Generation>,
    pub(super) manifest: Manifest,
    /// Bytes of memory that this takes.
    pub(super) bytes: u64,
    /// How memory was divided.
    pub(super) split: MemorySplit,
    /// What a budget lacks for it.
    pub(super) lacking: Option<u64>,
    pub(super) profile: TierProfile,
    pub(super) tier: TierChoice,
    pub(super) pages: Option<Loaded>,
    pub(super) shared: bool,
}

impl Reopening {
    fn open(&self) -> Result<Arc<dyn Opened>, IndexError> {
        if let (Some(needed), Some(given)) = (self.lacking, self.split.budget) {
            return Err(IndexError::Memory {
                what: "going on without the graphics card, whose codes come into memory then,",
                needed,
                given,
                advice: "allow at least that much, or open the index with the card again".into(),
            });
        }
        let stored = families::stored(self.directory.address(), &self.manifest)?;
        let codes = self.split.codes + self.split.codes_on_card;
        let split = MemorySplit { codes, codes_on_card: 0, ..self.split };
        let buffers = stored.buffers();
        stored.open(&Loading {
            directory: &*self.directory,
            manifest: &self.manifest,
            split: &split,
            frames: buffers.frames,
            buffers,
            profile: &self.profile,
            pages: self.pages.as_ref().map(Loaded::bytes),
            checked: split.pages > 0 || matches!(self.tier, TierChoice::Mapped(_)),
            arriving: false,
            shared: self.shared,
            card: None,
        })
    }

    /// What goes on, if that is allowed; it may be that the card is not there from the beginning.
    pub(super) fn trouble(self, options: &OpenOptions) -> CardTrouble {
        let goes_on = options.processor_goes_on && options.card.is_some();
        let bytes = self.bytes;
        let standby = goes_on.then(|| Standby::new(move || self.open()));
        CardTrouble { missing: options.card_missing.clone(), standby, bytes }
    }
}
