//! Optional capabilities: abilities that some families have. A family returns an object for each ability that
//! it has; the others are absent.

use super::EachVector;
use super::in_place::{InPlace, Paused};
use super::memory_split::CodesOnCard;
use super::rows::StoredRows;
use crate::build::options::FamilyOptions;
use crate::calibrate::solve::Solved;
use crate::cost::Machine;
use crate::cost::demand::Demand;
use crate::cost::layout::LayoutEstimate;
use crate::error::IndexError;
use crate::format::manifest::{FileEntry, Manifest};
use crate::format::positions::Positions;
use crate::query::changes::Placed;
use crate::query::pass::PassPart;
use crate::query::set::VectorSet;
use crate::query::{Effort, SearchParams};
use bathyal_gpu::{Card, CardCounters, GpuError};
use bathyal_store::{Generation, Object};
use bathyal_tier::Cx;
use bathyal_tier::layer::cache::CacheCounters;
use serde::Serialize;
use std::future::Future;
use std::pin::Pin;

/// A capability that users may ask for, and that only some families offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// A graphics card searches the index.
    Card,
    /// Vectors are inserted and deleted after the build, and a compaction builds the index again.
    Changes,
    /// Searches aim at an overall ratio.
    Ratio,
}

impl Capability {
    /// Returns the sentence that refuses the capability for `family`, which lacks it. `able` are the families
    /// that offer it.
    pub(crate) fn refusal(self, family: &str, able: &[&str]) -> String {
        let (lack, advice) = match self {
            Capability::Card => ("cannot be searched on a graphics card", "leave --device gpu (device) out"),
            Capability::Changes => ("does not change after its build", "build it again with all vectors"),
            Capability::Ratio => ("knows no ratio", "ask for a recall"),
        };
        let unlike = if able.is_empty() { String::new() } else { format!(", unlike {}", able.join(" and ")) };
        format!("an index of the family {family} {lack}{unlike}: {advice}")
    }
}

/// Data that arrive from a distant store while searches run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Arrival {
    /// Bytes in memory.
    pub here: u64,
    /// Bytes that will be in memory in the end.
    pub all: u64,
    /// The error that ended the loading, if any. Searches then read the missing data as they need them.
    pub failed: Option<String>,
}

/// How a graphics card searches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CardUse {
    /// Most candidates that it keeps of a query.
    pub(crate) list: u32,
    /// Most records that it expands at a time, for a family that expands records.
    pub(crate) width: Option<u32>,
    /// Most queries at a time.
    pub(crate) slots: u32,
    /// Bytes of its memory in use.
    pub(crate) resident_bytes: u64,
    /// Work that it has done so far.
    pub(crate) counters: CardCounters,
}

/// The capabilities of an open index ([`Opened::capabilities`](super::Opened::capabilities)).
#[derive(Clone, Copy, Default)]
pub(crate) struct OpenCapabilities<'a> {
    /// Searches aim at an overall ratio.
    pub(crate) ratio: Option<&'a dyn RatioTargets>,
    /// True if candidates are read alone, without the other vectors on their pages.
    pub(crate) reads_candidates_alone: bool,
    /// Searches are promised a probability.
    pub(crate) promised: Option<&'a dyn PromisedSearch>,
    /// Searches run before all data have arrived.
    pub(crate) arrival: Option<&'a dyn EarlySearch>,
    /// Searches know which vectors match a filter before they read them.
    pub(crate) filter: Option<&'a dyn FilteredSearch>,
    /// Queries of a batch share the reads of a search that compares all vectors.
    pub(crate) passes: Option<&'a dyn SharedPasses>,
    /// Single vectors can be found by place or id.
    pub(crate) single_vectors: Option<&'a dyn SingleVectors>,
    /// The family has a read cache of its own.
    pub(crate) read_cache: Option<&'a dyn ReadCache>,
    /// Inserted vectors are kept beside the index, by bucket.
    pub(crate) inserts: Option<&'a dyn InsertBuckets>,
    /// The index is changed in place.
    pub(crate) in_place: Option<&'a dyn InPlace>,
    /// A graphics card may search the index.
    pub(crate) card: Option<&'a dyn CardSearch>,
    /// The index can be converted to another layout.
    pub(crate) layouts: Option<&'a dyn OtherLayouts>,
}

/// The layouts to which an index can be converted.
pub(crate) trait OtherLayouts {
    /// Returns the estimates of a query in the layout of the index, and in the one to which it can be
    /// converted; `None` if it can be converted to no other, or if no tier is read.
    fn layouts(&self, params: &SearchParams, machine: &Machine<'_>) -> Option<[LayoutEstimate; 2]>;
}

/// Searches that aim at an overall ratio.
pub(crate) trait RatioTargets {
    /// As [`Opened::effort`](super::Opened::effort), for an overall ratio@k.
    fn effort_for_ratio(&self, k: usize, ratio: f32, machine: &Machine<'_>) -> Option<Solved>;
}

/// The effort of a search that is promised a probability.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Promised {
    pub(crate) effort: Effort,
    /// The promise in words, with the distances for which it holds.
    pub(crate) note: String,
}

/// Searches that are promised a probability for any data.
pub(crate) trait PromisedSearch {
    /// Returns the effort for which a vector at most `within` times as far away as the nearest is returned
    /// with this probability or more. `deleted` vectors were deleted since the build.
    ///
    /// # Errors
    /// A sentence that says what it would take, if comparing all vectors would take less.
    fn promise(&self, probability: f32, within: f32, deleted: u64) -> Result<Promised, String>;
}

/// Searches that run before all data have arrived from a distant store.
pub(crate) trait EarlySearch {
    /// As [`Opened::effort`](super::Opened::effort), for queries that start now; `None` once all data have
    /// arrived.
    fn early_effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved>;

    /// Returns the progress; `None` if all data were loaded by the opening.
    fn arrival(&self) -> Option<Arrival>;
}

/// Searches within a set of vectors that know the set before they read vectors.
pub(crate) trait FilteredSearch {
    /// Estimates the demand of a query that skips all vectors except `matches` of them; `None` if this open
    /// index cannot tell them apart before it reads them.
    fn among(&self, params: &SearchParams, matches: u32, machine: &Machine<'_>) -> Option<Demand>;
}

/// The future of a part of a pass.
pub(crate) type PassRun<'a> = Pin<Box<dyn Future<Output = Result<(), IndexError>> + 'a>>;

/// Searches that compare all vectors, each of which is read once for many queries.
pub(crate) trait SharedPasses {
    /// Returns the vectors.
    fn set(&self) -> &VectorSet;

    /// Returns true if a search with these parameters compares all vectors.
    fn compares_all(&self, params: &SearchParams) -> bool;

    /// Runs the part of one thread in a pass.
    fn run<'a>(&'a self, cx: Cx, part: &'a mut PassPart<'_>) -> PassRun<'a>;
}

/// Vectors that can be found one by one.
pub(crate) trait SingleVectors {
    /// Returns all places of codes with the ids of their vectors; `None` if they are not in memory.
    fn places(&self) -> Option<Box<dyn Iterator<Item = (u32, u32)> + '_>>;

    /// Reads the ids by place from their own file, if there is one. Ends with the error of `go_on`.
    fn read_places(&self, go_on: &dyn Fn() -> Result<(), IndexError>)
    -> Result<Option<Vec<u32>>, IndexError>;

    /// Returns the table of the place of each id, if there is one.
    fn positions(&self) -> Option<&Positions>;
}

/// A read cache that the family manages itself.
pub(crate) trait ReadCache {
    /// Returns its counters; `None` if this open index reads without a cache.
    fn kept(&self) -> Option<CacheCounters>;
}

/// Inserts that are kept beside the index until a compaction.
pub(crate) trait InsertBuckets {
    /// Returns the buckets of vectors, which are given as they are stored, one after the other. A search that
    /// looks at a bucket also looks at the vectors inserted into it.
    fn place(&self, rows: &[u8]) -> Vec<Placed>;
}

/// Searches on a graphics card.
pub(crate) trait CardSearch {
    /// Returns how the card searches; `None` if the processor searches alone.
    fn card(&self) -> Option<CardUse>;
}

/// The capabilities of a stored index ([`Stored::capabilities`](super::Stored::capabilities)).
#[derive(Clone, Copy, Default)]
pub(crate) struct StoredCapabilities<'a> {
    /// A graphics card can search the index.
    pub(crate) card: Option<&'a dyn StoredForCard>,
    /// Its codes may arrive while searches run.
    pub(crate) arrival: Option<&'a dyn ArrivingFiles>,
    /// Single vectors can be read from memory without their page.
    pub(crate) single_vectors: Option<&'a dyn SingleVectorReads>,
    /// Its searches have a read cache of their own, and gain from queries that run together.
    pub(crate) read_cache: Option<&'a dyn SharedReads>,
    /// The index changes: vectors are inserted and deleted, and a compaction builds it again.
    pub(crate) changes: Option<&'a dyn Rebuilds>,
    /// The index is changed in place.
    pub(crate) in_place: Option<&'a dyn ChangedInPlace>,
    /// Its vectors can be read without the data that only searches need.
    pub(crate) rows: Option<&'a dyn RowsAlone>,
}

/// A stored index that a graphics card can search.
pub(crate) trait StoredForCard {
    /// Checks that a card can search this layout with these codes.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`].
    fn check_card(&self, manifest: &Manifest) -> Result<(), GpuError>;

    /// Returns the codes that the card holds instead of this process: all of them if it holds the `whole`
    /// index.
    fn codes_on_card(&self, card: &dyn Card, whole: bool) -> Option<CodesOnCard>;
}

/// A stored index whose codes may arrive while searches run
/// ([`Loading::arriving`](super::Loading::arriving)).
pub(crate) trait ArrivingFiles {
    /// Returns the files that follow the searched file on the tier meanwhile.
    fn arriving_files(&self) -> Vec<&FileEntry>;
}

/// A stored index whose vectors can be read one by one.
pub(crate) trait SingleVectorReads {
    /// Returns the bytes of the table that checks vectors on pages that nobody has checked.
    fn places_bytes(&self) -> u64;
}

/// A stored index whose searches cache their own reads.
pub(crate) trait SharedReads {
    /// Returns the number of queries that a thread runs at once.
    fn together(&self) -> usize;
}

/// A stored index with inserts, deletes and compactions.
pub(crate) trait Rebuilds {
    /// Returns the number of buckets that an inserted vector goes into.
    fn buckets(&self) -> usize;

    /// Returns the options of the build of the same index over other vectors.
    fn rebuilding(&self) -> FamilyOptions;

    /// Calls `each` with all vectors of the searched file (id, stored bytes), in the order of their ids.
    fn vectors(&self, object: &dyn Object, each: &mut EachVector<'_>) -> Result<(), IndexError>;
}

/// A stored index that other machines may change in place.
pub(crate) trait ChangedInPlace {
    /// Keeps others from changing the index; `None` if it does not change. Its bytes may differ from those of
    /// the build.
    fn pause(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Option<Box<dyn Paused>>, IndexError>;
}

/// A stored index whose vectors can be read alone.
pub(crate) trait RowsAlone {
    /// Returns the positions of the vectors in the searched file, without the data that only searches need.
    fn rows_alone(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Box<dyn StoredRows>, IndexError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_families_that_offer_the_capability() {
        assert_eq!(
            Capability::Card.refusal("flat", &["cluster", "graph"]),
            "an index of the family flat cannot be searched on a graphics card, unlike cluster and graph: \
             leave --device gpu (device) out"
        );
        assert_eq!(
            Capability::Ratio.refusal("flat", &[]),
            "an index of the family flat knows no ratio: ask for a recall"
        );
    }
}
