//! The options of opening and of searching an index.

use super::calibrations::CalibrationChoice;
use super::numa::Numa;
use super::pool::SearchMemory;
use super::tier::TierChoice;
use crate::cost::processor::Processor;
use crate::error::IndexError;
use crate::query::SearchMode;
use bathyal_gpu::{Card, DeviceChoice, GpuError, MOST_MINI_BATCH};
use bathyal_object::StoreOptions;
use bathyal_tier::backend::file::Method;
use bathyal_tier::numa::Nodes;
use bathyal_tier::{Tier, TierError, TierProfile};
use std::path::PathBuf;
use std::sync::Arc;

/// The largest beam width: an SSD serves no more reads at once.
pub const MAX_BEAM_WIDTH: u32 = 128;
/// The most additional buckets of a hash table. An index that needs more needs more tables.
pub const MAX_MULTI_PROBE: u32 = 64;
/// The longest candidate list.
pub const MAX_SEARCH_LIST: u32 = 1 << 20;

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
                "mini_batch (--mini-batch) requires a graphics card: open the index with one (--device gpu), or leave it out".into(),
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

/// The effort of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effort {
    /// The effort for this recall@k, by the index's calibration.
    Recall(f32),
    /// The effort for this overall ratio@k, at least 1
    /// ([`OverallRatio`](bathyal_vectors::groundtruth::OverallRatio)), by the index's calibration. Only for
    /// hash tables, under a metric that is a distance.
    Ratio(f32),
    /// A candidate list of this length (L in DiskANN).
    SearchList(u32),
}

/// Options of a search. Options that a family does not support are refused, not ignored.
#[derive(Debug, Clone, Copy)]
pub struct SearchOptions {
    /// Neighbours wanted.
    pub k: usize,
    /// The effort.
    pub effort: Effort,
    /// The calibration for [`Effort::Recall`].
    pub calibration: CalibrationChoice,
    /// Groups that a cluster index scans, or the most posting lists that a query reads. `None` chooses by the
    /// calibration; the number of groups is then an average, and some queries scan more.
    pub probes: Option<u32>,
    /// Posting lists more than `1 + prune` times as far as the nearest are skipped, and none at 0 (SPANN,
    /// section 3.3). `None` chooses by the calibration.
    pub prune: Option<f32>,
    /// Reads of one hop in a graph (W in DiskANN); `None` is
    /// [`DEFAULT_BEAM_WIDTH`](crate::DEFAULT_BEAM_WIDTH), or [`FAR_BEAM_WIDTH`](crate::FAR_BEAM_WIDTH) on a
    /// remote tier.
    pub beam_width: Option<u32>,
    /// Additional buckets that a query reads in each hash table, next to its own (T in multi-probe LSH; Lv et
    /// al., VLDB 2007), up to [`MAX_MULTI_PROBE`]; `None` is 0. The promise does not cover them, and
    /// calibration does not use them: a search for a recall or a ratio reads them in addition to its
    /// calibrated effort.
    pub multi_probe: Option<u32>,
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// Batched or pipelined; `None` is [`Index::default_mode`](crate::Index::default_mode).
    pub mode: Option<SearchMode>,
    /// Queries interleaved on each thread; `None` chooses by the tier.
    pub in_flight: Option<usize>,
    /// True to measure the time of all queries by phase
    /// ([`SearchResult::phases`](crate::SearchResult::phases)), which costs a system call between two phases.
    pub timed: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        SearchOptions {
            k: 10,
            effort: Effort::Recall(0.95),
            calibration: CalibrationChoice::Usual,
            probes: None,
            prune: None,
            beam_width: None,
            multi_probe: None,
            threads: 0,
            mode: None,
            in_flight: None,
            timed: false,
        }
    }
}
