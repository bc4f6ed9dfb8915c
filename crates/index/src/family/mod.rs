//! The boundary: what a family of indexes has to bring.
//!
//! A family is a folder of `families/` and a line in its registry, a [`Family`]. What a build is told is a struct of its
//! own, which is its builder as well (`Builder`); what an index says of itself is a
//! `Stored`; what stays in memory of an open one is a `Searcher`. Everything above (the open index, the command, Python)
//! knows these and no family.

pub(crate) mod answers;
mod loaded;
mod memory;
pub(crate) mod pages;
pub mod reports;
pub(crate) mod rows;

pub use loaded::Arrival;
pub(crate) use loaded::{CardUse, InPlace, Opened, Paused, QueryState, Scanned, Scratch, Searcher};
pub use memory::MemorySplit;
pub(crate) use memory::{CodesOnCard, Needs, Origin, Place};
pub use reports::{Description, Fact, HistogramBar, VerifyReport};

use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc};
use crate::calibrate::reach::Reach;
use crate::error::IndexError;
use crate::format::manifest::{FileEntry, Manifest};
use crate::query::{Counter, Effort, SearchParams};
use bathyal_gpu::{Card, GpuError};
use bathyal_store::{Generation, Object};
use bathyal_tier::TierProfile;
use bathyal_vectors::progress::Progress;
use std::fmt;
use std::sync::Arc;

/// What is told of vectors: the id, and the vector as it is stored.
pub(crate) type EachVector<'a> = dyn FnMut(u32, &[u8]) -> Result<(), IndexError> + 'a;

/// A family of indexes.
pub struct Family {
    /// Its name: in manifests, on the command line, in Python, as a folder.
    pub name: &'static str,
    /// What it is and what it is good for, in a line.
    pub about: &'static str,
    /// What a build may be told.
    pub options: &'static [OptionDoc],
    /// What its searches count besides what those of every family do: up to
    /// [`MOST_OWN_COUNTERS`](crate::MOST_OWN_COUNTERS), in the order of the slots that they are counted in.
    pub counters: &'static [Counter],
    /// The files that its searches may read from a tier: what a striped index has on several disks.
    pub(crate) striped: &'static [&'static str],
    /// Reads options that were given by name, all of which are among `options`.
    pub(crate) parse: fn(&GivenOptions) -> Result<FamilyOptions, IndexError>,
    /// Reads and checks what a manifest says of an index of this family.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) read: fn(&Manifest) -> Result<Box<dyn Stored>, String>,
}

impl fmt::Debug for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Family").field(&self.name).finish()
    }
}

/// An effort that a search can be told, by name. A family knows some of them and refuses the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knob {
    SearchList,
    Probes,
    Prune,
    BeamWidth,
    MultiProbe,
    Mode,
    Ratio,
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
        }
    }
}

/// The read buffers of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffers {
    /// How many there are.
    pub(crate) frames: u32,
    /// Bytes of each: of the largest read, with what alignment adds.
    pub(crate) frame_bytes: usize,
    /// The same where codes are read, too.
    pub(crate) frame_bytes_with_codes: usize,
}

impl Buffers {
    /// Bytes of all buffers of a thread, and of what is on its way into them from a store that is elsewhere: an answer is in memory
    /// before its reads have it. What comes between these, and connections, are not counted ([`Index::connection_bytes`]).
    ///
    /// [`Index::connection_bytes`]: crate::Index::connection_bytes
    pub(crate) fn thread_bytes(&self, codes_on_tier: bool, elsewhere: bool) -> u64 {
        Buffers::held_bytes(u64::from(self.frames) * self.bytes(codes_on_tier) as u64, elsewhere)
    }

    /// The same of buffers of so many bytes together.
    pub(crate) fn held_bytes(buffers: u64, elsewhere: bool) -> u64 {
        if elsewhere { 2 * buffers } else { buffers }
    }

    /// Bytes of a buffer, of a search that reads codes or of one that has them in memory.
    pub(crate) fn bytes(&self, codes_on_tier: bool) -> usize {
        if codes_on_tier { self.frame_bytes_with_codes } else { self.frame_bytes }
    }
}

/// The graphics card that searches, and how queries meet there.
#[derive(Clone, Copy)]
pub(crate) struct CardChoice<'a> {
    pub(crate) card: &'a dyn Card,
    /// Queries that a launch waits for.
    pub(crate) mini_batch: Option<u32>,
    /// Whether vectors and links are to be there as well.
    pub(crate) resident: bool,
}

/// What opening an index has to work with.
pub(crate) struct Loading<'a> {
    pub(crate) directory: &'a dyn Generation,
    pub(crate) manifest: &'a Manifest,
    pub(crate) split: &'a MemorySplit,
    pub(crate) buffers: Buffers,
    /// Buffers of a thread: more than those where the tier is far away.
    pub(crate) frames: u32,
    /// What will be read, as a search will see it.
    pub(crate) profile: &'a TierProfile,
    /// The file that searches read, where all of it was loaded into this process's DRAM and its checksum found right.
    pub(crate) pages: Option<&'a [u8]>,
    /// Whether the file that searches read was checked as a whole when it was loaded.
    pub(crate) checked: bool,
    /// Whether codes may come while searches run, which then read from the tier what is not there yet.
    pub(crate) arriving: bool,
    /// Whether others may change what is read.
    pub(crate) shared: bool,
    /// The graphics card that searches.
    pub(crate) card: Option<CardChoice<'a>>,
}

/// What a verification has to work with.
pub(crate) struct Verifying<'a> {
    pub(crate) directory: &'a dyn Generation,
    /// The file that searches read; its length is right.
    pub(crate) object: &'a dyn Object,
    pub(crate) manifest: &'a Manifest,
    pub(crate) progress: &'a dyn Progress,
}

/// An index as its manifest describes it: checked, with nothing loaded.
pub(crate) trait Stored: Send + Sync {
    /// Whether its codes may come while searches run ([`Loading::arriving`]).
    fn codes_may_arrive(&self) -> bool {
        false
    }

    /// Whether its searches keep themselves what they have read, within what a cache of pages would get, which there is none of
    /// then.
    fn keeps(&self) -> bool {
        false
    }

    /// Whether a graphics card searches it, of this layout and with these codes; a sentence why not.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`].
    fn check_card(&self, manifest: &Manifest) -> Result<(), GpuError> {
        Err(GpuError::Unsuited(format!(
            "family {} cannot be searched on a graphics card; cluster and graph can: leave --device gpu (device) out",
            manifest.family
        )))
    }

    /// The codes that a card takes, all if it is to have the `whole` index; they are not in memory then.
    fn codes_on_card(&self, _card: &dyn Card, _whole: bool) -> Option<CodesOnCard> {
        None
    }

    /// How many queries are under way on a thread at once, of a family that gains by what queries have in common; else
    /// that follows from the device.
    fn together(&self) -> Option<usize> {
        None
    }

    /// The efforts that a search of it can be told.
    fn knobs(&self) -> &'static [Knob];

    /// The read buffers that a thread of searches needs.
    fn buffers(&self) -> Buffers;

    /// What the open index keeps in memory, where pages are read from `place`.
    fn needs(&self, manifest: &Manifest, place: Place) -> Needs;

    /// Bytes of what is kept where single vectors are read that nobody has checked before; 0 of a family that reads none.
    fn places_bytes(&self) -> u64 {
        0
    }

    /// The file that follows the one that searches read, on a tier that has the codes too; `None` of a family whose codes
    /// cannot be left there.
    fn codes_file(&self) -> Option<&FileEntry>;

    /// The files that follow it there while what is kept of them in memory is on its way ([`Stored::codes_may_arrive`]).
    fn arriving_files(&self) -> Vec<&FileEntry> {
        self.codes_file().into_iter().collect()
    }

    /// Bytes that a query holds at its peak, about, with a candidate list of `search_list`.
    fn query_bytes(&self, search_list: usize) -> u64;

    /// The candidate list that memory is planned for.
    fn planned_list(&self, params: &SearchParams) -> usize;

    /// Distances that a query computes, about, in units of one from a code.
    fn query_distances(&self, params: &SearchParams) -> usize;

    /// The effort of a search of which only the candidate list is named.
    fn effort_of(&self, search_list: u32) -> Effort;

    /// How far the queries of its calibration are from their neighbours.
    fn reach(&self) -> &[Reach];

    /// Buckets that a vector goes into which is inserted; `None` of a family whose indexes do not change after their build.
    fn buckets(&self) -> Option<usize> {
        None
    }

    /// The options that the same index over other vectors is built with; `None` of a family whose indexes do not change.
    fn rebuilding(&self) -> Option<FamilyOptions> {
        None
    }

    /// Keeps others from changing the index where it lies, whose bytes may then be others than were built; `None` where nobody does.
    fn pause(
        &self,
        _directory: &dyn Generation,
        _manifest: &Manifest,
    ) -> Result<Option<Box<dyn Paused>>, IndexError> {
        Ok(None)
    }

    /// Where its vectors lie in the file that searches read, without what only searches need; `None` of a family of which that says
    /// what is kept in memory.
    fn rows_alone(
        &self,
        _directory: &dyn Generation,
        _manifest: &Manifest,
    ) -> Result<Option<Box<dyn rows::Rows>>, IndexError> {
        Ok(None)
    }

    /// Tells `each` of all vectors (id, as it is stored) in the file that searches read, in the order of their ids.
    fn vectors(&self, object: &dyn Object, _each: &mut EachVector<'_>) -> Result<(), IndexError> {
        Err(IndexError::Internal(format!("{}: its vectors are not read back", object.address().display())))
    }

    /// Loads what stays in memory and checks it.
    fn open(&self, loading: &Loading<'_>) -> Result<Arc<dyn Opened>, IndexError>;

    /// Looks at every byte of the file that searches read and at whatever else belongs together; damage goes into the
    /// report. Checksums of the other files were looked at before.
    fn verify(&self, verifying: &Verifying<'_>, report: &mut VerifyReport) -> Result<(), IndexError>;

    /// Says what the index is made of.
    fn describe(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
        progress: &dyn Progress,
    ) -> Result<Description, IndexError>;
}
