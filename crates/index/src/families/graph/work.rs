//! The input of the stages of a graph build, and the interface of a built graph to the last stages.

use super::options::GraphOptions;
use super::section::GraphEntry;
use crate::error::IndexError;
use crate::format::identity::Identity;
use crate::format::manifest::{CodesEntry, FileEntry};
use crate::partition;

/// Input of all stages of a build.
pub(super) type Work<'a> = partition::Work<'a, (), GraphOptions>;

/// The written files: the graph, and the offsets of its records if they are packed.
pub(super) type GraphFiles = (FileEntry, Option<FileEntry>);

/// A graph in memory or in temporary files. It lacks the held-out vectors until [`complete`](Self::complete).
pub(super) trait GrownGraph {
    /// Returns the ids of the vectors that are inserted after the calibration, in rising order.
    fn held_out(&self) -> &[u32];

    /// Returns the places of the held-out vectors, in rising order.
    fn hidden(&self) -> Vec<u32>;

    /// Derives the identity from the links, and sets it; checksums begin with it. The links must be part of
    /// it: several threads grow a different graph each time from the same input.
    fn identify(&mut self, work: &Work<'_>) -> Result<Identity, IndexError>;

    /// Writes the graph with the identity that [`identify`](Self::identify) has set.
    fn write(&self, work: &Work<'_>) -> Result<GraphFiles, IndexError>;

    /// Writes the codec and the codes.
    fn write_codes(&self, work: &Work<'_>) -> Result<CodesEntry, IndexError>;

    /// Returns the entry of the manifest, with an empty calibration.
    fn section(&self, work: &Work<'_>, files: GraphFiles, codes: CodesEntry) -> GraphEntry;

    /// Inserts the held-out vectors.
    fn complete(&mut self, work: &Work<'_>) -> Result<(), IndexError>;

    /// Returns the number of links of all vectors.
    fn links(&self) -> u64;
}
