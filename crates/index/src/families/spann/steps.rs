//! What a build of posting lists has finished after placing, so that a killed one continues: the lists that every vector
//! was admitted to. The graph and the assignment before are done again.

use super::section::{CENTROIDS_NAME, CODEC_NAME, CODES_NAME, LINKS_NAME};
use crate::build::journal::require;
use crate::format::appender::Written;
use crate::format::manifest::{CodesEntry, FileEntry};
use crate::partition;
use serde::{Deserialize, Serialize};

/// While building: how often each list is read, u32.
pub(crate) const FREQUENCIES_NAME: &str = "frequencies.tmp";

/// What comes after the vectors are placed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Steps {
    /// What came of navigation and assignment, once every list has its vectors.
    pub(crate) admitted: Option<Admitted>,
}

pub(crate) type Journal = partition::journal::Journal<Steps>;

/// What the lists are written from, in files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Admitted {
    pub(crate) centroids: FileEntry,
    pub(crate) links: FileEntry,
    pub(crate) codes: CodeFiles,
    pub(crate) entry_point: u32,
    /// The vectors of every list.
    pub(crate) members: Written,
    /// A bit a slot: whether some list has admitted it.
    pub(crate) slots: Written,
    /// How often each list is read.
    pub(crate) frequencies: Written,
}

/// The codes of the centroids as a manifest will describe them, with their files.
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
    /// What goes into the manifest.
    pub(crate) fn entry(&self) -> CodesEntry {
        CodesEntry { file: self.file.clone(), codec: self.codec.clone(), ..self.entry.clone() }
    }
}

impl Admitted {
    /// Checks what a journal says of `vectors` vectors in `leaves` leaves.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check(&self, vectors: usize, leaves: u64) -> Result<(), String> {
        let names = [
            (&self.centroids, CENTROIDS_NAME),
            (&self.links, LINKS_NAME),
            (&self.codes.file, CODES_NAME),
            (&self.codes.codec, CODEC_NAME),
        ];
        require(names.iter().all(|(file, name)| file.name == *name), "files of other names")?;
        let lengths = self.slots.bytes == 8 * vectors.div_ceil(64) as u64
            && self.frequencies.bytes == 4 * leaves
            && self.members.bytes >= 4 * leaves
            && u64::from(self.entry_point) < leaves;
        require(lengths, "the lengths of its files do not follow from the lists")
    }
}
