//! Segments that only unreadable versions may name: large batches, which are in no log; flushed segments,
//! whose logs may be gone; merged segments. Replaced segments, and those that were never acknowledged, may
//! also be left.

use super::basis::number_of;
use super::lost_rows::LostRows;
use super::report::{Gap, LostId, RepairOptions, RepairedSegment};
use super::segments::{ChosenRows, RowsToKeep, SegmentRepair};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::segment::{Faults, SalvagedRows};
use crate::version::SegmentEntry;

/// Rows that would be missing without a segment.
#[derive(Debug, Default)]
struct Missing {
    /// Rows whose ids no other segment has.
    rows: u64,
    /// Rows that may be newer than those with the same ids.
    newer: u64,
}

impl SegmentRepair<'_> {
    /// Keeps the rows of these segments, newest segment first, if the options say so. Otherwise reports what
    /// is lost without them. Returns a note for the report.
    ///
    /// A segment that is newer than the basis version holds later rows: they replace those of the version. Of
    /// an older segment, only rows whose ids no other segment has are kept.
    pub(super) fn repair_unnamed(
        &mut self,
        entries: Vec<SegmentEntry>,
        what: &RepairOptions,
        lost: &mut LostRows,
        faults: &mut Faults,
    ) -> Result<Option<String>, CollectionError> {
        if entries.is_empty() {
            return Ok(None);
        }
        let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
        let names = names.join(", ");
        let (named, uncertain) = (self.kept.len(), self.uncertain);
        let mut missing = Missing::default();
        for entry in entries.into_iter().rev() {
            let later = number_of(&entry.name) >= self.version.next_segment;
            if what.keep_uncertain {
                let keep = RowsToKeep::NewOrReplacing(if later { named } else { 0 });
                self.rewrite(entry, RowBits::default(), keep, lost, faults)?;
            } else {
                self.report_left_out(entry, later, &mut missing, lost, faults)?;
            }
        }
        let which = format!("segments that no readable version names ({names})");
        Ok(Some(match (what.keep_uncertain, missing) {
            (true, _) => format!(
                "of {which} {} rows are kept; some of them may have been deleted or replaced before",
                self.uncertain - uncertain
            ),
            (false, Missing { rows: 0, newer: 0 }) => {
                format!("{which} are left out; other segments have all their rows")
            }
            (false, Missing { rows, newer }) => format!(
                "{which} are left out with {rows} rows that nothing else has, and {newer} that may be newer \
                 than those with the same ids; --keep-uncertain (keep_uncertain) keeps them, but also rows \
                 that were deleted or replaced since"
            ),
        }))
    }

    /// Reports what is lost without a segment.
    fn report_left_out(
        &mut self,
        entry: SegmentEntry,
        later: bool,
        missing: &mut Missing,
        lost: &mut LostRows,
        faults: &mut Faults,
    ) -> Result<(), CollectionError> {
        let others = self.state()?;
        let segment = self.open_source(&entry);
        segment.salvage(&self.version.id, &RowBits::default(), self.progress, faults, &mut |piece| {
            match piece {
                SalvagedRows::Complete(ids, ..) | SalvagedRows::Lost(ids) => {
                    let new_rows = ChosenRows::select(&ids, &others, 0)?.positions;
                    missing.rows += new_rows.len() as u64;
                    missing.newer += if later { (ids.len() - new_rows.len()) as u64 } else { 0 };
                    lost.ids(ids.take(&new_rows)?);
                    Ok(())
                }
                SalvagedRows::Unknown { rows, after, before } => {
                    missing.rows += rows;
                    let (after, before) = (after.map(LostId::from), before.map(LostId::from));
                    lost.gap(Gap { segment: entry.name.clone(), rows, after, before });
                    Ok(())
                }
            }
        })?;
        let (name, rows) = (entry.name, u64::from(entry.rows));
        self.outcomes.push(RepairedSegment { name, rows, kept: 0, outcome: "left out" });
        Ok(())
    }
}
