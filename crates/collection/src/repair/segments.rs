//! The segments of a collection that is repaired: those without a fault as they are, of others what is whole.

use super::lost::Lost;
use super::report::{Gap, LostId, RepairOptions, RepairedSegment};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::options::CollectionOptions;
use crate::place::Place;
use crate::schema::Schema;
use crate::segment::{Faults, SalvagedRows, Segment, SegmentOptions, SegmentShare, SegmentWriter};
use crate::state::{Located, SegmentState, State};
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
    pub(super) version: Arc<Version>,
    schema: Arc<Schema>,
    options: &'a CollectionOptions,
    pub(super) progress: &'a dyn Progress,
    /// Those of the new collection, and what of them is deleted.
    pub(super) kept: Vec<(SegmentEntry, RowBits)>,
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
    /// Rows of others whose place they take.
    replaced: Vec<Located>,
}

/// Which rows of a segment are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// All.
    All,
    /// Those whose ids no other row has, and those that take the place of a row of the first segments: of so
    /// many of those that are kept.
    Instead(usize),
}

/// Which of some rows are taken: their places, in order, and the rows of others that they replace.
pub(super) struct Chosen {
    pub(super) places: Vec<u32>,
    replaced: Vec<Located>,
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
                self.written(entry, RowBits::default(), Taken::Instead(0), lost, faults)?;
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
        Ok(State::from_version(self.version.clone(), self.kept.iter().map(segment).collect()))
    }

    pub(super) fn opened(&self, entry: &SegmentEntry) -> Segment {
        let options = SegmentOptions {
            index: self.options.index.clone(),
            memory_bytes: self.options.index.memory_bytes,
            // It is the only one that is open.
            share: SegmentShare { bytes: entry.bytes, all_bytes: entry.bytes, segments: 1 },
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
            return self.written(entry, deleted, Taken::All, lost, faults);
        }
        self.progress.stage("copying a segment", entry.bytes);
        copy_segment((self.from, self.to), &entry.name, &self.schema, (0, self.progress))?;
        let rows = u64::from(entry.rows - deleted.count());
        let name = entry.name.clone();
        self.told.push(RepairedSegment { name, rows, kept: rows, outcome: "copied" });
        self.kept.push((entry, deleted));
        Ok(())
    }

    /// What is whole of a segment, as a new one.
    pub(super) fn written(
        &mut self,
        entry: SegmentEntry,
        deleted: RowBits,
        taken: Taken,
        lost: &mut Lost,
        faults: &mut Faults,
    ) -> Result<(), CollectionError> {
        let segment = self.opened(&entry);
        let others = match taken {
            Taken::All => None,
            Taken::Instead(first) => Some((self.state()?, first)),
        };
        let name = format!("s-{}-{}", self.next, random_digits(8));
        self.next += 1;
        let mut rewriting = Rewriting { writer: None, kept: 0, replaced: Vec::new() };
        let this = &*self;
        segment.salvage(&this.version.id, &deleted, this.progress, faults, &mut |piece| match piece {
            SalvagedRows::Complete(ids, vectors, columns) => {
                let chosen =
                    others.as_ref().map(|(others, first)| Chosen::of(&ids, others, *first)).transpose()?;
                this.push(&mut rewriting, &name, (ids, vectors, columns), chosen)
            }
            SalvagedRows::Lost(ids) => {
                lost.ids(match &others {
                    None => ids,
                    Some((others, _)) => ids.take(&Chosen::of(&ids, others, 0)?.places)?,
                });
                Ok(())
            }
            SalvagedRows::Unknown { rows, after, before } => {
                let (after, before) = (after.map(LostId::from), before.map(LostId::from));
                lost.gap(Gap { segment: entry.name.clone(), rows, after, before });
                Ok(())
            }
        })?;
        let Rewriting { writer, kept, replaced } = rewriting;
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
        self.uncertain += if taken == Taken::All { 0 } else { kept };
        self.told.push(RepairedSegment { name: entry.name, rows, kept, outcome });
        Ok(())
    }

    /// Adds rows to a new segment: those that are `chosen`, or all.
    fn push(
        &self,
        rewriting: &mut Rewriting,
        name: &str,
        (mut ids, mut vectors, mut columns): (Ids, Vec<Vec<u8>>, RecordBatch),
        chosen: Option<Chosen>,
    ) -> Result<(), CollectionError> {
        if let Some(Chosen { places, replaced }) = chosen {
            rewriting.replaced.extend(replaced);
            ids = ids.take(&places)?;
            columns = take_record_batch(&columns, &UInt32Array::from(places.clone()))?;
            for (field, bytes) in self.schema.vectors.iter().zip(&mut vectors) {
                let row = |at: &u32| &bytes[*at as usize * field.row_bytes()..][..field.row_bytes()];
                *bytes = places.iter().flat_map(row).copied().collect();
            }
        }
        if ids.is_empty() {
            return Ok(());
        }
        let writer = match &mut rewriting.writer {
            Some(writer) => writer,
            none => {
                let (schema, options) = (self.schema.clone(), self.options.for_writing());
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

impl Chosen {
    /// Of rows with these ids: those whose ids no row of `others` has, and those whose ids rows of its first
    /// segments have.
    pub(super) fn of(ids: &Ids, others: &State, first: usize) -> Result<Chosen, CollectionError> {
        let mut chosen = Chosen { places: Vec::new(), replaced: Vec::new() };
        for (place, found) in (0..).zip(others.find(ids)?) {
            if found.is_none_or(|row| (row.part as usize) < first) {
                chosen.places.push(place);
                chosen.replaced.extend(found);
            }
        }
        Ok(chosen)
    }
}
