//! The segments of a collection that is repaired: those without a fault as they are, of others what is whole.

use super::lost::Lost;
use super::report::{Gap, LostId, RepairOptions, RepairedSegment};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::options::CollectionOptions;
use crate::place::Place;
use crate::schema::Schema;
use crate::segment::{Faults, Piece, Segment, SegmentOptions, SegmentPart, SegmentWriter};
use crate::state::{SegmentState, State};
use crate::version::{SegmentEntry, Version, random_digits};
use crate::write::copy_segment;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// See the module's description.
pub(super) struct Segments<'a> {
    from: &'a Place,
    to: &'a Place,
    version: Arc<Version>,
    schema: Arc<Schema>,
    options: &'a CollectionOptions,
    progress: &'a dyn Progress,
    /// Those of the new collection, and what of them is deleted.
    kept: Vec<(SegmentEntry, RowBits)>,
    /// The number of the next one.
    pub(super) next: u64,
    /// What became of each.
    pub(super) told: Vec<RepairedSegment>,
    /// Rows of which it is not known whether they were deleted.
    pub(super) uncertain: u64,
}

/// Rows that are whole, on their way into a new segment.
struct Rewriting {
    writer: Option<SegmentWriter>,
    kept: u64,
}

impl<'a> Segments<'a> {
    pub(super) fn new(
        (from, to): (&'a Place, &'a Place),
        version: &Version,
        options: &'a CollectionOptions,
        progress: &'a dyn Progress,
    ) -> Segments<'a> {
        let (schema, next) = (Arc::new(version.schema.clone()), version.next_segment);
        let version = Arc::new(version.clone());
        let (kept, told) = (Vec::new(), Vec::new());
        Segments { from, to, version, schema, options, progress, kept, next, told, uncertain: 0 }
    }

    /// Brings all of them, with what of each is deleted, where that is known.
    pub(super) fn all(
        &mut self,
        all: impl Iterator<Item = (SegmentEntry, Option<RowBits>)>,
        what: &RepairOptions,
        lost: &mut Lost,
        faults: &mut Faults,
    ) -> Result<(), CollectionError> {
        let mut uncertain = Vec::new();
        for (entry, deleted) in all {
            match deleted {
                Some(deleted) => self.certain(entry, deleted, lost, faults)?,
                None => uncertain.push(entry),
            }
        }
        // The newest first: of two rows with the same id the one that comes first stays.
        for entry in uncertain.into_iter().rev() {
            if what.keep_uncertain {
                self.written(entry, RowBits::default(), true, lost, faults)?;
            } else {
                let rows = u64::from(entry.rows - entry.deleted.min(entry.rows));
                lost.gap(Gap { segment: entry.name.clone(), rows, after: None, before: None });
                self.told.push(RepairedSegment { name: entry.name, rows, kept: 0, outcome: "left out" });
            }
        }
        Ok(())
    }

    /// The new collection as far as it has come.
    pub(super) fn state(&self) -> Result<State, CollectionError> {
        let options = Arc::new(SegmentOptions::default());
        let segment = |(entry, deleted): &(SegmentEntry, RowBits)| {
            let segment = Segment::new(self.to, self.schema.clone(), entry.clone(), options.clone());
            SegmentState::new(Arc::new(segment), deleted.clone())
        };
        Ok(State::of(self.version.clone(), self.kept.iter().map(segment).collect()))
    }

    fn opened(&self, entry: &SegmentEntry) -> Segment {
        let options = SegmentOptions {
            index: self.options.index.clone(),
            memory_bytes: self.options.index.memory_bytes,
            // It is the only one that is open.
            part: SegmentPart { bytes: entry.bytes, all_bytes: entry.bytes, segments: 1 },
            vectors: None,
        };
        Segment::new(self.from, self.schema.clone(), entry.clone(), Arc::new(options))
    }

    /// A segment of which it is known what is deleted.
    fn certain(
        &mut self,
        entry: SegmentEntry,
        deleted: RowBits,
        lost: &mut Lost,
        faults: &mut Faults,
    ) -> Result<(), CollectionError> {
        let found = self.opened(&entry).verify(self.progress)?;
        if !found.is_empty() {
            found.into_iter().for_each(|fault| faults.add(fault));
            return self.written(entry, deleted, false, lost, faults);
        }
        self.progress.stage("copying a segment", entry.bytes);
        copy_segment((self.from, self.to), &entry.name, &self.schema, (0, self.progress))?;
        let rows = u64::from(entry.rows - deleted.count());
        let name = entry.name.clone();
        self.told.push(RepairedSegment { name, rows, kept: rows, outcome: "copied" });
        self.kept.push((entry, deleted));
        Ok(())
    }

    /// What is whole of a segment, as a new one; of an uncertain one those rows whose ids no other one has.
    fn written(
        &mut self,
        entry: SegmentEntry,
        deleted: RowBits,
        uncertain: bool,
        lost: &mut Lost,
        faults: &mut Faults,
    ) -> Result<(), CollectionError> {
        let segment = self.opened(&entry);
        let others = if uncertain { Some(self.state()?) } else { None };
        let name = format!("s-{}-{}", self.next, random_digits(8));
        self.next += 1;
        let mut rewriting = Rewriting { writer: None, kept: 0 };
        let this = &*self;
        segment.salvage(&this.version.id, &deleted, this.progress, faults, &mut |piece| match piece {
            Piece::Whole(ids, vectors, columns) => {
                let free = free(&ids, others.as_ref())?;
                this.push(&mut rewriting, &name, (ids, vectors, columns), free)
            }
            Piece::Lost(ids) => {
                let free = free(&ids, others.as_ref())?;
                lost.ids(free.map_or(Ok(ids.clone()), |free| ids.take(&free))?);
                Ok(())
            }
            Piece::Unknown { rows, after, before } => {
                let (after, before) = (after.map(LostId::from), before.map(LostId::from));
                lost.gap(Gap { segment: entry.name.clone(), rows, after, before });
                Ok(())
            }
        })?;
        let Rewriting { writer, kept } = rewriting;
        let rows = u64::from(entry.rows - deleted.count());
        let outcome = if writer.is_some() { "written" } else { "left out" };
        if let Some(writer) = writer {
            self.kept.push((writer.finish(self.progress)?, RowBits::default()));
        }
        self.uncertain += if uncertain { kept } else { 0 };
        self.told.push(RepairedSegment { name: entry.name, rows, kept, outcome });
        Ok(())
    }

    /// Adds rows to a new segment, those at the places that are `free`.
    fn push(
        &self,
        rewriting: &mut Rewriting,
        name: &str,
        (mut ids, mut vectors, mut columns): (Ids, Vec<Vec<u8>>, RecordBatch),
        free: Option<Vec<u32>>,
    ) -> Result<(), CollectionError> {
        if let Some(free) = free.filter(|free| free.len() < ids.len()) {
            ids = ids.take(&free)?;
            columns = take_record_batch(&columns, &UInt32Array::from(free.clone()))?;
            for (field, bytes) in self.schema.vectors.iter().zip(&mut vectors) {
                let row = |at: &u32| &bytes[*at as usize * field.row_bytes()..][..field.row_bytes()];
                *bytes = free.iter().flat_map(row).copied().collect();
            }
        }
        if ids.is_empty() {
            return Ok(());
        }
        let writer = match &mut rewriting.writer {
            Some(writer) => writer,
            none => {
                let (schema, options) = (self.schema.clone(), self.options.of_writing());
                let id = &self.version.id;
                none.insert(SegmentWriter::begin(self.to, schema, id, name.into(), &options)?)
            }
        };
        let vectors: Vec<&[u8]> = vectors.iter().map(Vec::as_slice).collect();
        writer.push(&ids, &vectors, &columns)?;
        rewriting.kept += ids.len() as u64;
        Ok(())
    }
}

/// The places of ids that no row of `others` has; `None` for all.
fn free(ids: &Ids, others: Option<&State>) -> Result<Option<Vec<u32>>, CollectionError> {
    let Some(others) = others else { return Ok(None) };
    let found = others.find(ids)?;
    Ok(Some((0..).zip(found).filter(|(_, found)| found.is_none()).map(|(at, _)| at).collect()))
}
