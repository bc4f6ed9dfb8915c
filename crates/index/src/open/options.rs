//! The options of opening an index.

use super::numa::Numa;
use super::pool::SearchMemory;
use super::tier::TierChoice;
use crate::audit::AuditOptions;
use crate::cost::processor::Processor;
use crate::error::IndexError;
use bathyal_gpu::{Card, DeviceChoice, GpuError, MOST_MINI_BATCH};
use bathyal_object::StoreOptions;
use bathyal_tier::backend::file::Method;
use bathyal_tier::numa::Nodes;
use bathyal_tier::{Tier, TierError, TierProfile};
use std::path::PathBuf;
use std::sync::Arc;

/// Options of opening an index.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// The tier from which pages of vectors and links are read.
    pub tier: TierChoice,
    /// The system interface that reads files.
    pub method: Method,
    /// True to read through the page cache. Off by default: the index then takes no memory but its own.
    pub page_cache: bool,
    /// Folders of the parts of a striped index, if they were moved, in any order. A part that is in none of
    /// them is expected in its original folder.
    pub stripe: Vec<PathBuf>,
    /// Options of a remote store, if the index is in one.
    pub store: StoreOptions,
    /// True to wait until all data that is kept in memory is loaded. Otherwise an index in a remote store
    /// answers queries while its codes are being loaded, and each query reads the codes that it needs
    /// ([`Index::arrival`](crate::Index::arrival)).
    pub wait: bool,
    /// Memory that the open index may take, in bytes. `None` means no limit.
    pub memory_bytes: Option<u64>,
    /// The longest candidate list of the searches, if it is known ([`OpenOptions::for_search`]). A budget
    /// then has space for a query with it, or the opening is refused. 0 plans for recall 0.95.
    pub planned_list: usize,
    /// Memory for the buffers of search threads and for running queries, which indexes that are opened with
    /// clones share. [`OpenOptions::memory_bytes`] is then for everything else. It has no effect without
    /// that.
    pub search_memory: Option<SearchMemory>,
    /// The measured profile of the device of the pages (of each device of a striped index). Efforts, gaps
    /// between reads and queries in flight depend on it. Its numbers replace those of the tier's own profile.
    /// `None` uses the tier's own.
    pub profile: Option<TierProfile>,
    /// The processor's times for the parts of a search. `None` measures them when they are needed first, and
    /// keeps them in the user's cache folder (`$XDG_CACHE_HOME/bathyal`, `~/.cache/bathyal`), unless the
    /// environment variable `BATHYAL_PROCESSOR` is `reference` ([`Processor::REFERENCE`]) or `measured`
    /// (measured and not kept). The effort for a recall may depend on them, the recall does not.
    pub processor: Option<Processor>,
    /// The use of NUMA nodes. An explicit choice that is not possible is an error. `None` spreads the search
    /// threads over the nodes and interleaves the memory of the index, if the system permits that. It does
    /// not replace a memory policy that this thread has already (`numactl`).
    pub numa: Option<Numa>,
    /// The nodes to use; `None` means all on which this process may run.
    pub nodes: Option<Arc<Nodes>>,
    /// The graphics card that searches the index, if its family supports that ([`bathyal_gpu::card::open`]).
    /// `None` searches on the processor.
    pub card: Option<Arc<dyn Card>>,
    /// True to search on the processor if the card cannot: if it is missing, if it does not support the index
    /// or lacks the memory for it, or if it fails while queries run. These are searched again, with their
    /// codes in this process's memory. That memory is reserved in the budget ([`OpenOptions::memory_bytes`])
    /// if the budget is large enough; otherwise the queries fail. Results have a note about it
    /// ([`SearchResult::notes`](crate::SearchResult::notes)).
    pub processor_goes_on: bool,
    /// Why there is no card although one was wanted, if [`OpenOptions::processor_goes_on`] is true.
    pub card_missing: Option<GpuError>,
    /// The number of queries for which a launch on [`OpenOptions::card`] waits, or until all running queries
    /// have a request: the mini-batches of GustANN (section 4.1.3), up to [`bathyal_gpu::MOST_MINI_BATCH`].
    /// `None` does not wait: a query continues when its own page has arrived. The answers are the same.
    pub mini_batch: Option<u32>,
    /// The audit of live searches; `None` audits none. It needs an index that is not changed in place.
    /// Queries of an index that has changed since its build are not audited, but counted as discarded.
    pub audit: Option<AuditOptions>,
    /// A function that replaces the opened tier by a layer or another backend (tracing, delays, simulation).
    /// It is called for each copy of pages that are in memory.
    pub wrap: Option<WrapTier>,
}

impl OpenOptions {
    /// Sets the device that searches.
    ///
    /// # Errors
    /// As [`bathyal_gpu::card::open`], unless `device` falls back to the processor.
    pub fn on(self, device: DeviceChoice) -> Result<OpenOptions, GpuError> {
        let processor_goes_on = matches!(device, DeviceChoice::GpuElseCpu(_));
        let (card, card_missing) = match device.card() {
            Ok(card) => (card, None),
            Err(missing) if processor_goes_on => (None, Some(missing)),
            Err(missing) => return Err(missing),
        };
        Ok(OpenOptions { card, card_missing, processor_goes_on, ..self })
    }

    /// Refuses mini-batches without a card, and sizes out of range.
    pub(super) fn check_mini_batch(&self) -> Result<(), IndexError> {
        let Some(batch) = self.mini_batch else { return Ok(()) };
        let refuse = |what: String| Err(IndexError::Parameter(what));
        if self.card.is_none() && !self.processor_goes_on {
            return refuse(
                "mini_batch (--mini-batch) requires a graphics card: open the index with one (--device gpu), \
                 or leave it out"
                    .into(),
            );
        }
        if !(1..=MOST_MINI_BATCH).contains(&batch) {
            return refuse(format!("mini_batch is {batch}; a launch takes 1 to {MOST_MINI_BATCH} queries"));
        }
        Ok(())
    }
}

/// Replaces a tier by another one over the same bytes. See [`OpenOptions::wrap`].
pub type WrapTier = Arc<dyn Fn(Arc<dyn Tier>) -> Result<Arc<dyn Tier>, TierError> + Send + Sync>;
