//! The contract between the families of indexes and everything above them.
//!
//! A family is a folder in `families/` and a line in the registry there, a [`Family`]. The options of a build
//! are a struct that is also the family's builder (`Builder`). A `Stored` describes an index before it is
//! opened, and a `Searcher` is the part of an open index that stays in memory. Both have a small required
//! part; the rest are `capabilities` that a family may return. The open index, the command and Python use
//! these traits and name no family.

pub(crate) mod answers;
pub(crate) mod capabilities;
pub(crate) mod in_place;
mod loaded;
mod memory_split;
pub(crate) mod pages;
pub mod reports;
pub(crate) mod rows;

pub use capabilities::{Arrival, Capability};
pub(crate) use capabilities::{CardUse, OpenCapabilities, StoredCapabilities};
pub(crate) use in_place::Paused;
pub(crate) use loaded::{Opened, QueryState, Scanned, Scratch, Searcher, impl_scratch, query_state};
pub use memory_split::MemorySplit;
pub(crate) use memory_split::{CodesOnCard, Needs, Origin, Place};
pub use reports::{Description, Fact, HistogramBar, VerifyReport};

use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc};
use crate::calibrate::reach::Reach;
use crate::error::IndexError;
use crate::format::manifest::{FileEntry, Manifest};
use crate::query::{Counter, Effort, SearchParams};
use bathyal_gpu::Card;
use bathyal_store::{Generation, Object};
use bathyal_tier::TierProfile;
use bathyal_vectors::progress::Progress;
use std::fmt;
use std::sync::Arc;

/// Receives each vector: its id, and its stored bytes.
pub(crate) type EachVector<'a> = dyn FnMut(u32, &[u8]) -> Result<(), IndexError> + 'a;

/// A family of indexes.
pub struct Family {
    /// Its name, in manifests, on the command line, in Python and of its folder.
    pub name: &'static str,
    /// One line about its structure and its use.
    pub about: &'static str,
    /// The options of a build.
    pub options: &'static [OptionDoc],
    /// Counters of its searches beside those of every family: up to
    /// [`MOST_OWN_COUNTERS`](crate::MOST_OWN_COUNTERS), in the order of their slots.
    pub counters: &'static [Counter],
    /// The capabilities that its indexes offer.
    pub capabilities: &'static [Capability],
    /// The files that its searches may read from a tier. A striped index has them on several disks.
    pub(crate) striped: &'static [&'static str],
    /// Returns the options of a build with all defaults.
    pub(crate) defaults: fn() -> FamilyOptions,
    /// Parses options by name. All names are among `options`.
    pub(crate) parse: fn(&GivenOptions) -> Result<FamilyOptions, IndexError>,
    /// Reads and checks the section of a manifest for an index of this family.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(crate) read: fn(&Manifest) -> Result<Box<dyn Stored>, String>,
}

impl Family {
    /// Returns true if its indexes offer `capability`.
    pub fn offers(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Family").field(&self.name).finish()
    }
}

/// A parameter of a search's effort. A family supports some of them; a search refuses the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knob {
    SearchList,
    Probes,
    Prune,
    BeamWidth,
    MultiProbe,
    Mode,
    Ratio,
    Probability,
}

impl Knob {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Knob::SearchList => "search_list",
            Knob::Probes => "probes",
            Knob::Prune => "prune",
            Knob::BeamWidth => "beam_width",
            Knob::MultiProbe => "multi_probe",
            Knob::Mode => "mode",
            Knob::Ratio => "ratio",
            Knob::Probability => "probability",
        }
    }
}

/// The read buffers of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffers {
    /// Number of buffers.
    pub(crate) frames: u32,
    /// Bytes of each buffer: the largest read, with its alignment.
    pub(crate) frame_bytes: usize,
    /// As `frame_bytes`, for searches that also read codes.
    pub(crate) frame_bytes_with_codes: usize,
}

impl Buffers {
    /// Returns the bytes of all buffers of a thread. For a store that is `elsewhere` they count twice, since
    /// a response is in memory before it is copied into the buffers. The gaps between joined reads, and
    /// connections, are not counted here ([`Index::connection_bytes`]).
    ///
    /// [`Index::connection_bytes`]: crate::Index::connection_bytes
    pub(crate) fn thread_bytes(&self, codes_on_tier: bool, elsewhere: bool) -> u64 {
        Buffers::held_bytes(u64::from(self.frames) * self.bytes(codes_on_tier) as u64, elsewhere)
    }

    /// As [`Buffers::thread_bytes`], for `buffers` bytes in total.
    pub(crate) fn held_bytes(buffers: u64, elsewhere: bool) -> u64 {
        if elsewhere { 2 * buffers } else { buffers }
    }

    /// Returns the bytes of a buffer, for searches that read codes from the tier or have them in memory.
    pub(crate) fn bytes(&self, codes_on_tier: bool) -> usize {
        if codes_on_tier { self.frame_bytes_with_codes } else { self.frame_bytes }
    }
}

/// The graphics card that searches, and how it batches queries.
#[derive(Clone, Copy)]
pub(crate) struct CardChoice<'a> {
    pub(crate) card: &'a dyn Card,
    /// Number of queries that a launch waits for.
    pub(crate) mini_batch: Option<u32>,
    /// True if vectors and links are on the card as well.
    pub(crate) resident: bool,
}

/// The inputs of opening an index.
pub(crate) struct Loading<'a> {
    pub(crate) directory: &'a dyn Generation,
    pub(crate) manifest: &'a Manifest,
    pub(crate) split: &'a MemorySplit,
    pub(crate) buffers: Buffers,
    /// Number of buffers of a thread; more than in `buffers` for a distant tier.
    pub(crate) frames: u32,
    /// Profile of the tier that searches read.
    pub(crate) profile: &'a TierProfile,
    /// The whole searched file, if it was loaded into this process's DRAM. Its checksum has been checked.
    pub(crate) pages: Option<&'a [u8]>,
    /// True if the whole searched file was checked when it was loaded.
    pub(crate) checked: bool,
    /// True if codes may arrive while searches run. Searches then read missing codes from the tier.
    pub(crate) arriving: bool,
    /// True if other processes may change the searched file.
    pub(crate) shared: bool,
    /// The graphics card that searches, if any.
    pub(crate) card: Option<CardChoice<'a>>,
}

/// The inputs of a verification.
pub(crate) struct Verifying<'a> {
    pub(crate) directory: &'a dyn Generation,
    /// The searched file. Its length has been checked.
    pub(crate) object: &'a dyn Object,
    pub(crate) manifest: &'a Manifest,
    pub(crate) progress: &'a dyn Progress,
}

/// An index as its manifest describes it: checked, with nothing loaded. These methods are required of every
/// family; [`Stored::capabilities`] returns what a family offers beyond them.
pub(crate) trait Stored: Send + Sync {
    /// Returns the optional capabilities of this index.
    fn capabilities(&self) -> StoredCapabilities<'_>;

    /// Returns the effort parameters that its searches accept.
    fn knobs(&self) -> &'static [Knob];

    /// Returns the read buffers that a search thread needs.
    fn buffers(&self) -> Buffers;

    /// Returns the memory that the open index needs if pages are read from `place`.
    fn needs(&self, manifest: &Manifest, place: Place) -> Needs;

    /// Returns the file that follows the searched file on a tier that also has the codes; `None` if codes
    /// must be in memory.
    fn codes_file(&self) -> Option<&FileEntry>;

    /// Estimates the peak bytes of a query with a candidate list of `search_list`.
    fn query_bytes(&self, search_list: usize) -> u64;

    /// Returns the candidate list for which memory is planned.
    fn planned_list(&self, params: &SearchParams) -> usize;

    /// Estimates the distances that a query computes, in units of one distance from a code.
    fn query_distances(&self, params: &SearchParams) -> usize;

    /// Returns the effort of a search for which only the candidate list is given.
    fn effort_of(&self, search_list: u32) -> Effort;

    /// Returns how far the queries of the calibration are from their neighbours.
    fn reach(&self) -> &[Reach];

    /// Loads the data that stay in memory, and checks them.
    fn open(&self, loading: &Loading<'_>) -> Result<Arc<dyn Opened>, IndexError>;

    /// Checks every byte of the searched file, and that the files agree; adds damage to the report. The
    /// checksums of the other files have been checked before.
    fn verify(&self, verifying: &Verifying<'_>, report: &mut VerifyReport) -> Result<(), IndexError>;

    /// Describes the index.
    fn describe(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
        progress: &dyn Progress,
    ) -> Result<Description, IndexError>;
}

/// The capabilities as calls, with the result for a family that lacks the capability.
impl dyn Stored + '_ {
    /// Returns true if codes may arrive while searches run ([`Loading::arriving`]).
    pub(crate) fn codes_may_arrive(&self) -> bool {
        self.capabilities().arrival.is_some()
    }

    /// Returns the files that follow the searched file on the tier while codes arrive.
    pub(crate) fn arriving_files(&self) -> Vec<&FileEntry> {
        let files = self.capabilities().arrival.map(|arrival| arrival.arriving_files());
        files.unwrap_or_else(|| self.codes_file().into_iter().collect())
    }

    /// Returns true if searches cache their own reads within the page cache's budget. No page cache is
    /// created then.
    pub(crate) fn keeps(&self) -> bool {
        self.capabilities().read_cache.is_some()
    }

    /// Returns the number of queries that a thread runs at once, if the family determines it and not the
    /// device.
    pub(crate) fn together(&self) -> Option<usize> {
        Some(self.capabilities().read_cache?.together())
    }

    /// Returns the codes that the card holds instead of this process.
    pub(crate) fn codes_on_card(&self, card: &dyn Card, whole: bool) -> Option<CodesOnCard> {
        self.capabilities().card?.codes_on_card(card, whole)
    }

    /// Returns the bytes of the table that checks single vectors; 0 for a family that reads none.
    pub(crate) fn places_bytes(&self) -> u64 {
        self.capabilities().single_vectors.map_or(0, |vectors| vectors.places_bytes())
    }

    /// Returns the number of buckets that an inserted vector goes into; `None` if indexes of the family do
    /// not change.
    pub(crate) fn buckets(&self) -> Option<usize> {
        Some(self.capabilities().changes?.buckets())
    }

    /// Returns the options of the build of the same index over other vectors; `None` if indexes of the family
    /// do not change.
    pub(crate) fn rebuilding(&self) -> Option<FamilyOptions> {
        Some(self.capabilities().changes?.rebuilding())
    }

    /// Calls `each` with all vectors of the searched file (id, stored bytes), in the order of their ids.
    ///
    /// # Errors
    /// Damage, the error of `each`, and [`IndexError::Internal`] for a family that is never compacted.
    pub(crate) fn vectors(&self, object: &dyn Object, each: &mut EachVector<'_>) -> Result<(), IndexError> {
        match self.capabilities().changes {
            Some(changes) => changes.vectors(object, each),
            None => Err(IndexError::Internal(format!(
                "{}: the vectors of this family are not read back",
                object.address().display()
            ))),
        }
    }

    /// Keeps others from changing the index in place; `None` if nobody does.
    pub(crate) fn pause(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Option<Box<dyn Paused>>, IndexError> {
        self.capabilities().in_place.map_or(Ok(None), |in_place| in_place.pause(directory, manifest))
    }

    /// Returns the positions of the vectors in the searched file, without the data that only searches need;
    /// `None` for a family whose positions follow from data in memory.
    pub(crate) fn rows_alone(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Option<Box<dyn rows::StoredRows>>, IndexError> {
        self.capabilities().rows.map(|rows| rows.rows_alone(directory, manifest)).transpose()
    }
}
