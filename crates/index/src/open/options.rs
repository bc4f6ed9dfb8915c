//! How an index is opened, and how it is searched.

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

/// Widest beam; an SSD serves no more at once.
pub const MAX_BEAM_WIDTH: u32 = 128;
/// Most further places of a hash table: there are tables enough, or none would help.
pub const MAX_MULTI_PROBE: u32 = 64;
/// Largest candidate list.
pub const MAX_SEARCH_LIST: u32 = 1 << 20;

/// How to open an index.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Where pages of vectors and links are read from.
    pub tier: TierChoice,
    /// Which system interface reads files.
    pub method: Method,
    /// Whether to read through the page cache. Off by default: the index then takes no memory but its own.
    pub page_cache: bool,
    /// Folders in which the parts of a striped index are, where they were moved, in any order. Parts that are in none of them
    /// are looked for where they were put.
    pub stripe: Vec<PathBuf>,
    /// How a store far away is reached, where the index is in one.
    pub store: StoreOptions,
    /// Whether to wait until all that is kept in memory is there. Without, an index in a store that is elsewhere answers queries
    /// before its codes are, and reads what it needs of them ([`Index::arrival`](crate::Index::arrival)).
    pub wait: bool,
    /// Memory that the open index may take, in bytes. `None` means no limit.
    pub memory_bytes: Option<u64>,
    /// Memory for the buffers of search threads and for running queries, in the place of a part of
    /// [`OpenOptions::memory_bytes`], which then is for all else; of use with that alone. Indexes that are opened with clones share it.
    pub search_memory: Option<SearchMemory>,
    /// What was measured of the device that pages are read from (of a striped index: of each), by a probe: efforts, gaps
    /// between reads and queries in flight follow it. Its numbers take the place of those that the tier knows of itself. `None` means no more than these.
    pub profile: Option<TierProfile>,
    /// What the processor takes for the parts of a search; `None` measures it at the first need and keeps that in the user's
    /// cache folder (`$XDG_CACHE_HOME/bathyal`, `~/.cache/bathyal`), unless the environment variable `BATHYAL_PROCESSOR` says
    /// `reference` ([`Processor::REFERENCE`]) or `measured` (measured and not kept). The effort for a recall may depend on
    /// it, the recall does not.
    pub processor: Option<Processor>,
    /// What is done on a machine of several NUMA nodes; what is named and cannot be done is an error. `None` spreads the search
    /// threads over the nodes and interleaves what is kept in memory, as far as the system lets: a policy that this thread
    /// has already (`numactl`) stays.
    pub numa: Option<Numa>,
    /// The nodes to use; `None` means all on which this process may run.
    pub nodes: Option<Arc<Nodes>>,
    /// The graphics card that searches the index, of a family that can be ([`bathyal_gpu::card::open`]). `None` leaves it to the processor.
    pub card: Option<Arc<dyn Card>>,
    /// Whether the processor answers where the card does not: where it is not there, where the index does not suit it or has no room in
    /// its memory, and where it fails while queries run, which are then searched again with their codes in this process's memory. As
    /// much of a budget ([`OpenOptions::memory_bytes`]) is set aside for that if it is there; if not, they fail. Results say so
    /// ([`SearchResult::notes`](crate::SearchResult::notes)).
    pub processor_goes_on: bool,
    /// Why there is no card although one was wanted, where the processor goes on.
    pub card_missing: Option<GpuError>,
    /// Queries that a launch on [`OpenOptions::card`] waits for, or until all that are under way have asked: the mini-batches of GustANN
    /// (section 4.1.3), up to [`bathyal_gpu::MOST_MINI_BATCH`]. `None` waits for none: a query goes on when its own page is there. The
    /// answers are the same.
    pub mini_batch: Option<u32>,
    /// A layer or backend to put in place of the tier that was opened (tracing, delays, simulation); called for each copy of
    /// pages that are in memory.
    pub wrap: Option<WrapTier>,
}

impl OpenOptions {
    /// The same with what searches.
    ///
    /// # Errors
    /// As [`bathyal_gpu::card::open`], unless the processor goes on.
    pub fn on(self, device: DeviceChoice) -> Result<OpenOptions, GpuError> {
        let processor_goes_on = matches!(device, DeviceChoice::GpuElseCpu(_));
        let (card, card_missing) = match device.card() {
            Ok(card) => (card, None),
            Err(missing) if processor_goes_on => (None, Some(missing)),
            Err(missing) => return Err(missing),
        };
        Ok(OpenOptions { card, card_missing, processor_goes_on, ..self })
    }

    /// Refuses mini-batches of what asks no card, and of a size that there is not.
    pub(super) fn check_mini_batch(&self) -> Result<(), IndexError> {
        let Some(batch) = self.mini_batch else { return Ok(()) };
        let refuse = |what: String| Err(IndexError::Parameter(what));
        if self.card.is_none() && !self.processor_goes_on {
            return refuse(
                "mini_batch (--mini-batch) is of searches on a graphics card: open the index with one (--device gpu), or leave it out"
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

/// How hard to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effort {
    /// As hard as this recall@k takes, by the index's calibration.
    Recall(f32),
    /// As hard as this overall ratio@k takes, at least 1 ([`OverallRatio`](bathyal_vectors::groundtruth::OverallRatio)), by
    /// the index's calibration; of hash tables, under a metric that is a distance.
    Ratio(f32),
    /// With a candidate list of this size (L in DiskANN).
    SearchList(u32),
}

/// How to search. What a family has no use for is refused, not ignored.
#[derive(Debug, Clone, Copy)]
pub struct SearchOptions {
    /// Neighbours wanted.
    pub k: usize,
    /// How hard to search.
    pub effort: Effort,
    /// Groups scanned by a cluster index, or posting lists at most; `None` chooses by the calibration: of groups an average,
    /// more for queries that need them.
    pub probes: Option<u32>,
    /// Posting lists more than `1 + prune` times as far as the nearest are left out, and none at 0 (SPANN, section
    /// 3.3); `None` chooses by the calibration.
    pub prune: Option<f32>,
    /// Reads of one hop (W in DiskANN), of a graph; `None` is [`DEFAULT_BEAM_WIDTH`](crate::DEFAULT_BEAM_WIDTH), or
    /// [`FAR_BEAM_WIDTH`](crate::FAR_BEAM_WIDTH) of a tier that is far away.
    pub beam_width: Option<u32>,
    /// Further places that are looked at in each hash table, beside the query's own bucket (T in multi-probe LSH; Lv et al.,
    /// VLDB 2007), up to [`MAX_MULTI_PROBE`]; `None` is 0. Nothing is promised of what they add, and calibrations are made without
    /// them: a search for a recall or a ratio looks at them beside what that takes.
    pub multi_probe: Option<u32>,
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// Hop by hop, or as reads arrive; `None` is [`Index::default_mode`](crate::Index::default_mode).
    pub mode: Option<SearchMode>,
    /// Queries interleaved on each thread; `None` suits the tier.
    pub in_flight: Option<usize>,
    /// Whether the time of every query is told by phase ([`SearchResult::phases`](crate::SearchResult::phases)); that costs
    /// a system call between two phases.
    pub timed: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        SearchOptions {
            k: 10,
            effort: Effort::Recall(0.95),
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
