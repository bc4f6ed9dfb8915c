//! What the stages of a graph's build read, and what the last of them need of a graph, however it is grown.

use super::options::GraphOptions;
use super::section::GraphEntry;
use crate::error::IndexError;
use crate::format::identity::Identity;
use crate::format::manifest::{CodesEntry, FileEntry};
use crate::partition;

/// What all stages of a build read.
pub(super) type Work<'a> = partition::Work<'a, (), GraphOptions>;

/// What was written: the graph, and where its records begin.
pub(super) type GraphFiles = (FileEntry, Option<FileEntry>);

/// A graph that lacks the vectors held out.
pub(super) trait Grown {
    /// The ids of the vectors that are inserted only after calibration, rising.
    fn held_out(&self) -> &[u32];

    /// The places of these, rising.
    fn hidden(&self) -> Vec<u32>;

    /// Sets what the checksums begin with, which follows from the links: threads grow another graph each time, so an index is
    /// not told from others by what it was built from alone.
    fn identify(&mut self, work: &Work<'_>) -> Result<Identity, IndexError>;

    /// Writes the graph, with the identity that was set.
    fn write(&self, work: &Work<'_>) -> Result<GraphFiles, IndexError>;

    /// Writes codec and codes.
    fn write_codes(&self, work: &Work<'_>) -> Result<CodesEntry, IndexError>;

    /// What the manifest says, but for the calibration.
    fn section(&self, work: &Work<'_>, files: GraphFiles, codes: CodesEntry) -> GraphEntry;

    /// Inserts the vectors held out.
    fn complete(&mut self, work: &Work<'_>) -> Result<(), IndexError>;

    /// The number of all links.
    fn links(&self) -> u64;
}
