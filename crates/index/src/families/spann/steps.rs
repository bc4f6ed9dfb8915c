//! The steps of a build of posting lists after the placing of vectors, as recorded in the journal for a
//! killed build. The record contains the lists that admitted each vector. The graph and the assignment are
//! repeated until it exists.

use super::section::{CENTROIDS_NAME, CODEC_NAME, CODES_NAME, LINKS_NAME};
use crate::build::journal::require;
use crate::format::appender::Written;
use crate::format::manifest::{CodesEntry, FileEntry};
use crate::partition;
use serde::{Deserialize, Serialize};

/// The temporary file with how often each list is read, u32.
pub(crate) const FREQUENCIES_NAME: &str = "frequencies.tmp";

/// The finished steps after the vectors are placed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Steps {
    /// The result of building the graph and admitting vectors to lists.
    pub(crate) admitted: Option<AdmittedFiles>,
}

pub(crate) type Journal = partition::journal::Journal<Steps>;

/// The files from which the lists are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AdmittedFiles {
    pub(crate) centroids: FileEntry,
    pub(crate) links: FileEntry,
    pub(crate) codes: CodeFiles,
    pub(crate) entry_point: u32,
    /// The vectors of every list.
    pub(crate) members: Written,
    /// A bit for each slot, which is set if a list has admitted it.
    pub(crate) slots: Written,
    /// How often each list is read.
    pub(crate) frequencies: Written,
}

/// The manifest's entry for the codes of the centroids, with the files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CodeFiles {
    pub(crate) file: FileEntry,
    pub(crate) codec: FileEntry,
    pub(crate) entry: CodesEntry,
}

impl From<CodesEntry> for CodeFiles {
    fn from(entry: CodesEntry) -> CodeFiles {
        CodeFiles { file: entry.file.clone(), codec: entry.codec.clone(), entry }
    }
}

impl CodeFiles {
    /// Returns the manifest's entry.
    pub(crate) fn entry(&self) -> CodesEntry {
        CodesEntry { file: self.file.clone(), codec: self.codec.clone(), ..self.entry.clone() }
    }
}

impl AdmittedFiles {
    /// Checks the record for `vectors` vectors in `leaves` leaves.
    ///
    /// # Errors
    /// A description of the first fault.
    pub(crate) fn check(&self, vectors: usize, leaves: u64) -> Result<(), String> {
        let names = [
            (&self.centroids, CENTROIDS_NAME),
            (&self.links, LINKS_NAME),
            (&self.codes.file, CODES_NAME),
            (&self.codes.codec, CODEC_NAME),
        ];
        require(names.iter().all(|(file, name)| file.name == *name), "its files have unexpected names")?;
        let lengths = self.slots.bytes == 8 * vectors.div_ceil(64) as u64
            && self.frequencies.bytes == 4 * leaves
            && self.members.bytes >= 4 * leaves
            && u64::from(self.entry_point) < leaves;
        require(lengths, "the lengths of its files do not match the lists")
    }
}
