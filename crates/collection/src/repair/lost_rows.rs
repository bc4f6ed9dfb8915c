//! Collects the rows that a repair loses.

use super::report::{Gap, LostId, RepairReport};
use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::version::IdEntry;
use bathyal_store::StoreError;
use bathyal_vectors::AtomicFile;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

/// The most ids and gaps that a report lists; further ones are only counted.
const MAX_LISTED: usize = 100;

/// The rows that a repair loses.
#[derive(Debug, Default)]
pub(super) struct LostRows {
    ids: Vec<Ids>,
    gaps: Vec<Gap>,
    unknown: u64,
    /// Ids that later batches wrote or deleted.
    touched: HashSet<Id>,
}

impl LostRows {
    /// Adds rows with these ids.
    pub(super) fn ids(&mut self, ids: Ids) {
        self.ids.push(ids);
    }

    /// Adds rows with unknown ids.
    pub(super) fn gap(&mut self, gap: Gap) {
        self.unknown += gap.rows;
        if self.gaps.len() < MAX_LISTED {
            self.gaps.push(gap);
        }
    }

    /// Records ids that a later batch wrote or deleted: these rows are not lost.
    pub(super) fn mark_touched(&mut self, ids: &Ids) {
        if !self.ids.is_empty() {
            self.touched.extend((0..ids.len()).map(|at| ids.get(at)));
        }
    }

    /// Adds everything to a report, and writes the ids to a file if one is given.
    pub(super) fn report(
        self,
        file: Option<&Path>,
        report: &mut RepairReport,
    ) -> Result<(), CollectionError> {
        let all = self.ids.iter().flat_map(|ids| (0..ids.len()).map(|at| ids.get(at)));
        let lost = all.filter(|id| !self.touched.contains(id));
        let mut file = file.map(|path| AtomicFile::create(path).map(|file| (path, file))).transpose()?;
        for id in lost {
            if let Some((path, file)) = &mut file {
                let line = serde_json::json!({ "id": IdEntry::from(id.clone()) });
                writeln!(file, "{line}").map_err(|source| StoreError::io("write", *path, source))?;
            }
            report.lost_rows += 1;
            if report.lost_ids.len() < MAX_LISTED {
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
