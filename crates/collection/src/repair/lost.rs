//! The rows that are lost.

use super::report::{Gap, LostId, Repaired};
use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::version::IdEntry;
use bathyal_store::StoreError;
use bathyal_vectors::AtomicFile;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

/// Ids and places that a report names; the others are counted.
const TOLD: usize = 100;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Lost {
    ids: Vec<Ids>,
    gaps: Vec<Gap>,
    unknown: u64,
    /// Ids that later batches wrote or deleted.
    touched: HashSet<Id>,
}

impl Lost {
    /// Rows with these ids.
    pub(super) fn ids(&mut self, ids: Ids) {
        self.ids.push(ids);
    }

    /// Rows whose ids are not known.
    pub(super) fn gap(&mut self, gap: Gap) {
        self.unknown += gap.rows;
        if self.gaps.len() < TOLD {
            self.gaps.push(gap);
        }
    }

    /// Rows that a later batch wrote or deleted are not lost.
    pub(super) fn touched(&mut self, ids: &Ids) {
        if !self.ids.is_empty() {
            self.touched.extend((0..ids.len()).map(|at| ids.get(at)));
        }
    }

    /// Adds all of it to a report, and writes the ids to a file if there is to be one.
    pub(super) fn tell(self, file: Option<&Path>, report: &mut Repaired) -> Result<(), CollectionError> {
        let all = self.ids.iter().flat_map(|ids| (0..ids.len()).map(|at| ids.get(at)));
        let lost = all.filter(|id| !self.touched.contains(id));
        let mut file = file.map(|path| AtomicFile::create(path).map(|file| (path, file))).transpose()?;
        for id in lost {
            if let Some((path, file)) = &mut file {
                let line = serde_json::json!({ "id": IdEntry::from(id.clone()) });
                writeln!(file, "{line}").map_err(|source| StoreError::io("write", *path, source))?;
            }
            report.lost_rows += 1;
            if report.lost_ids.len() < TOLD {
                report.lost_ids.push(LostId::from(id));
            }
        }
        if let Some((_, file)) = file {
            file.finish(&[])?;
        }
        report.lost_rows += self.unknown;
        report.unknown_rows = self.unknown;
        report.gaps = self.gaps;
        Ok(())
    }
}
