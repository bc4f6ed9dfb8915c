//! Segments that a version may name which cannot be read: a large batch, which is in no log; what was
//! flushed, whose logs may be gone; or segments merged. What has been replaced, or was never acknowledged,
//! may be left there as well.

use super::basis::number_of;
use super::lost::Lost;
use super::report::{Gap, LostId, RepairOptions, RepairedSegment};
use super::segments::{Chosen, Segments, Taken};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::segment::{Faults, SalvagedRows};
use crate::version::SegmentEntry;

/// What would be missing without a segment.
#[derive(Debug, Default)]
struct Missing {
    /// Rows whose ids no other segment has.
    rows: u64,
    /// Rows that may be newer than those with the same ids.
    newer: u64,
}

impl Segments<'_> {
    /// Brings them, the newest first, if that is wanted; otherwise says what is lost without them. Returns
    /// what is to be said of them.
    ///
    /// A segment that was begun after the version that can be read has what was true later: its rows take the
    /// place of those that the version has. Of an older one only those rows are taken whose ids no other has.
    pub(super) fn unnamed(
        &mut self,
        all: Vec<SegmentEntry>,
        what: &RepairOptions,
        lost: &mut Lost,
        faults: &mut Faults,
    ) -> Result<Option<String>, CollectionError> {
        if all.is_empty() {
            return Ok(None);
        }
        let names: Vec<String> = all.iter().map(|entry| entry.name.clone()).collect();
        let names = names.join(", ");
        let (named, uncertain) = (self.kept.len(), self.uncertain);
        let mut missing = Missing::default();
        for entry in all.into_iter().rev() {
            let later = number_of(&entry.name) >= self.version.next_segment;
            if what.keep_uncertain {
                let taken = Taken::Instead(if later { named } else { 0 });
                self.written(entry, RowBits::default(), taken, lost, faults)?;
            } else {
                self.left_out(entry, later, &mut missing, lost, faults)?;
            }
        }
        let which = format!("segments that no version names which can be read ({names})");
        Ok(Some(match (what.keep_uncertain, missing) {
            (true, _) => format!(
                "of {which} {} rows are taken; some of them may have been deleted or replaced before",
                self.uncertain - uncertain
            ),
            (false, Missing { rows: 0, newer: 0 }) => {
                format!("{which} are left out; all their rows are there without them")
            }
            (false, Missing { rows, newer }) => format!(
                "{which} are left out with {rows} rows that nothing else has, and {newer} that may be newer than those with the same \
                 ids; --keep-uncertain (keep_uncertain) takes them, and with them any that were deleted or replaced since"
            ),
        }))
    }

    /// Says what is lost without a segment.
    fn left_out(
        &mut self,
        entry: SegmentEntry,
        later: bool,
        missing: &mut Missing,
        lost: &mut Lost,
        faults: &mut Faults,
    ) -> Result<(), CollectionError> {
        let others = self.state()?;
        let segment = self.opened(&entry);
        segment.salvage(&self.version.id, &RowBits::default(), self.progress, faults, &mut |piece| {
            match piece {
                SalvagedRows::Complete(ids, ..) | SalvagedRows::Lost(ids) => {
                    let free = Chosen::of(&ids, &others, 0)?.places;
                    missing.rows += free.len() as u64;
                    missing.newer += if later { (ids.len() - free.len()) as u64 } else { 0 };
                    lost.ids(ids.take(&free)?);
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
        self.told.push(RepairedSegment { name, rows, kept: 0, outcome: "left out" });
        Ok(())
    }
}
