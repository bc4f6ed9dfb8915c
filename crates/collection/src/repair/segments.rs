//! Repairs segments: copies those without a fault, and writes the undamaged rows of the others as new
//! segments.

use super::lost_rows::LostRows;
use super::report::{Gap, LostId, RepairOptions, RepairedSegment};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::location::CollectionLocation;
use crate::options::CollectionOptions;
use crate::schema::Schema;
use crate::segment::{Faults, SalvagedRows, Segment, SegmentOptions, SegmentShare, SegmentWriter};
use crate::state::{Located, SegmentState, State};
use crate::version::{SegmentEntry, Version, random_digits};
use crate::write::copy_segment;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// State of the repair of segments.
pub(super) struct SegmentRepair<'a> {
    from: &'a CollectionLocation,
    to: &'a CollectionLocation,
    pub(super) version: Arc<Version>,
    schema: Arc<Schema>,
    options: &'a CollectionOptions,
    pub(super) progress: &'a dyn Progress,
    /// Segments of the new collection, with their deleted rows.
    pub(super) kept: Vec<(SegmentEntry, RowBits)>,
    /// Number of the next segment.
    pub(super) next: u64,
    /// The outcome for each segment.
    pub(super) outcomes: Vec<RepairedSegment>,
    /// Kept rows that may have been deleted before.
    pub(super) uncertain: u64,
}

/// A segment that is being written from undamaged rows.
struct NewSegment {
    writer: Option<SegmentWriter>,
    kept: u64,
    /// Rows of other segments that its rows replace.
    replaced: Vec<Located>,
}

/// Which rows of a segment to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowsToKeep {
    /// All rows.
    All,
    /// Rows whose ids no other row has, and rows that replace a row of the first segments; the number is that
    /// of these segments among the kept ones.
    NewOrReplacing(usize),
}

/// A selection of rows: their positions in ascending order, and the rows of other segments that they replace.
pub(super) struct ChosenRows {
    pub(super) positions: Vec<u32>,
    replaced: Vec<Located>,
}

impl<'a> SegmentRepair<'a> {
    pub(super) fn new(
        (from, to): (&'a CollectionLocation, &'a CollectionLocation),
        version: &Version,
        options: &'a CollectionOptions,
        progress: &'a dyn Progress,
    ) -> SegmentRepair<'a> {
        let (schema, next) = (Arc::new(version.schema.clone()), version.next_segment);
        let version = Arc::new(version.clone());
        let (kept, outcomes) = (Vec::new(), Vec::new());
        SegmentRepair { from, to, version, schema, options, progress, kept, next, outcomes, uncertain: 0 }
    }

    /// Repairs all segments. Each comes with its deleted rows, if they are known.
    pub(super) fn repair_all(
        &mut self,
        all: impl Iterator<Item = (SegmentEntry, Option<RowBits>)>,
        what: &RepairOptions,
        lost: &mut LostRows,
        faults: &mut Faults,
    ) -> Result<(), CollectionError> {
        let mut uncertain = Vec::new();
        for (entry, deleted) in all {
            match deleted {
                Some(deleted) => self.repair_known(entry, deleted, lost, faults)?,
                None => uncertain.push(entry),
            }
        }
        // The newest segment comes first: of two rows with the same id the first one is kept.
        for entry in uncertain.into_iter().rev() {
            if what.keep_uncertain {
                self.rewrite(entry, RowBits::default(), RowsToKeep::NewOrReplacing(0), lost, faults)?;
            } else {
                let rows = u64::from(entry.rows - entry.deleted.min(entry.rows));
                lost.gap(Gap { segment: entry.name.clone(), rows, after: None, before: None });
                self.outcomes.push(RepairedSegment { name: entry.name, rows, kept: 0, outcome: "left out" });
            }
        }
        Ok(())
    }

    /// Returns the state of the new collection so far.
    pub(super) fn state(&self) -> Result<State, CollectionError> {
        let options = Arc::new(SegmentOptions::default());
        let segment = |(entry, deleted): &(SegmentEntry, RowBits)| {
            let segment = Segment::new(self.to, self.schema.clone(), entry.clone(), options.clone());
            SegmentState::new(Arc::new(segment), deleted.clone())
        };
        Ok(State::from_version(self.version.clone(), self.kept.iter().map(segment).collect()))
    }

    pub(super) fn open_source(&self, entry: &SegmentEntry) -> Segment {
        let options = SegmentOptions {
            index: self.options.index.clone(),
            memory_bytes: self.options.index.memory_bytes,
            // Only one segment is open at a time.
            share: SegmentShare { bytes: entry.bytes, all_bytes: entry.bytes, segments: 1 },
            vectors: None,
        };
        Segment::new(self.from, self.schema.clone(), entry.clone(), Arc::new(options))
    }

    /// Repairs a segment whose deleted rows are known.
    fn repair_known(
        &mut self,
        entry: SegmentEntry,
        deleted: RowBits,
        lost: &mut LostRows,
        faults: &mut Faults,
    ) -> Result<(), CollectionError> {
        let found = self.open_source(&entry).verify(self.progress)?;
        if !found.is_empty() {
            found.into_iter().for_each(|fault| faults.add(fault));
            return self.rewrite(entry, deleted, RowsToKeep::All, lost, faults);
        }
        self.progress.stage("copying a segment", entry.bytes);
        copy_segment((self.from, self.to), &entry.name, &self.schema, (0, self.progress))?;
        let rows = u64::from(entry.rows - deleted.count());
        let name = entry.name.clone();
        self.outcomes.push(RepairedSegment { name, rows, kept: rows, outcome: "copied" });
        self.kept.push((entry, deleted));
        Ok(())
    }

    /// Writes the undamaged rows of a segment as a new one.
    pub(super) fn rewrite(
        &mut self,
        entry: SegmentEntry,
        deleted: RowBits,
        keep: RowsToKeep,
        lost: &mut LostRows,
        faults: &mut Faults,
    ) -> Result<(), CollectionError> {
        let segment = self.open_source(&entry);
        let others = match keep {
            RowsToKeep::All => None,
            RowsToKeep::NewOrReplacing(first) => Some((self.state()?, first)),
        };
        let name = format!("s-{}-{}", self.next, random_digits(8));
        self.next += 1;
        let mut new_segment = NewSegment { writer: None, kept: 0, replaced: Vec::new() };
        let repair = &*self;
        segment.salvage(&repair.version.id, &deleted, repair.progress, faults, &mut |piece| match piece {
            SalvagedRows::Complete(ids, vectors, columns) => {
                let chosen = others
                    .as_ref()
                    .map(|(others, first)| ChosenRows::select(&ids, others, *first))
                    .transpose()?;
                repair.push(&mut new_segment, &name, (ids, vectors, columns), chosen)
            }
            SalvagedRows::Lost(ids) => {
                lost.ids(match &others {
                    None => ids,
                    Some((others, _)) => ids.take(&ChosenRows::select(&ids, others, 0)?.positions)?,
                });
                Ok(())
            }
            SalvagedRows::Unknown { rows, after, before } => {
                let (after, before) = (after.map(LostId::from), before.map(LostId::from));
                lost.gap(Gap { segment: entry.name.clone(), rows, after, before });
                Ok(())
            }
        })?;
        let NewSegment { writer, kept, replaced } = new_segment;
        for row in replaced {
            if let Some((_, deleted)) = self.kept.get_mut(row.part as usize) {
                deleted.add(row.row);
            }
        }
        let rows = u64::from(entry.rows - deleted.count());
        let outcome = if writer.is_some() { "written" } else { "left out" };
        if let Some(writer) = writer {
            self.kept.push((writer.finish(self.progress)?, RowBits::default()));
        }
        self.uncertain += if keep == RowsToKeep::All { 0 } else { kept };
        self.outcomes.push(RepairedSegment { name: entry.name, rows, kept, outcome });
        Ok(())
    }

    /// Adds rows to a new segment: those that are `chosen`, or all.
    fn push(
        &self,
        new_segment: &mut NewSegment,
        name: &str,
        (mut ids, mut vectors, mut columns): (Ids, Vec<Vec<u8>>, RecordBatch),
        chosen: Option<ChosenRows>,
    ) -> Result<(), CollectionError> {
        if let Some(ChosenRows { positions, replaced }) = chosen {
            new_segment.replaced.extend(replaced);
            ids = ids.take(&positions)?;
            columns = take_record_batch(&columns, &UInt32Array::from(positions.clone()))?;
            for (field, bytes) in self.schema.vectors.iter().zip(&mut vectors) {
                let row = |at: &u32| &bytes[*at as usize * field.row_bytes()..][..field.row_bytes()];
                *bytes = positions.iter().flat_map(row).copied().collect();
            }
        }
        if ids.is_empty() {
            return Ok(());
        }
        let writer = match &mut new_segment.writer {
            Some(writer) => writer,
            none => {
                let (schema, options) = (self.schema.clone(), self.options.for_writing());
                let id = &self.version.id;
                none.insert(SegmentWriter::begin(self.to, schema, id, name.into(), &options)?)
            }
        };
        let vectors: Vec<&[u8]> = vectors.iter().map(Vec::as_slice).collect();
        writer.push(&ids, &vectors, &columns)?;
        new_segment.kept += ids.len() as u64;
        Ok(())
    }
}

impl ChosenRows {
    /// Selects from rows with these ids: those whose ids no row of `others` has, and those whose ids rows of
    /// its first segments have. segments have.
    pub(super) fn select(ids: &Ids, others: &State, first: usize) -> Result<ChosenRows, CollectionError> {
        let mut chosen = ChosenRows { positions: Vec::new(), replaced: Vec::new() };
        for (position, found) in (0..).zip(others.find(ids)?) {
            if found.is_none_or(|row| (row.part as usize) < first) {
                chosen.positions.push(position);
                chosen.replaced.extend(found);
            }
        }
        Ok(chosen)
    }
}
