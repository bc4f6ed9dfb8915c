//! Several segments become one, without the rows that are deleted.

use super::flush::ROWS_AT_ONCE;
use super::rank::{Rank, yielding};
use super::shared::Shared;
use super::traffic::{Brake, Traffic};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::segment::{Merged, Segment, WriteOptions};
use crate::state::{Cursor, SegmentState, State};
use crate::version::SegmentEntry;
use bathyal_index::RowSet;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// Bytes of rows that are read at once, and the same as a part of the memory for merging. Rows come in the order of their ids, and the
/// pages of an index are in another one: a page that has many short vectors is read once for all of them that come at once.
const READ_BYTES: u64 = 32 << 20;
const READ_SHARE: u64 = 16;
/// What a value of a column may take in memory for each byte that it takes on the disk.
const UNPACKED: f64 = 4.0;

/// What became of a merge.
pub(super) struct MergedRows {
    /// Rows of the new segment; 0 where none were left, and there is none.
    pub(super) rows: u64,
    /// Whether an earlier merge had written them, which was stopped.
    pub(super) resumed: bool,
}

impl Shared {
    /// Merges the segments with these names. Rows that are deleted by the version that is the latest now are left out; those that
    /// are deleted meanwhile, by later versions or beyond them, are deleted in the new segment. Returns what it has; where a merge
    /// of the same was stopped, it is gone on with.
    pub(super) fn merge(
        &self,
        names: &[String],
        (options, rank): (&WriteOptions, Rank<'_>),
        progress: &dyn Progress,
    ) -> Result<MergedRows, CollectionError> {
        let (state, epoch) = {
            let writing = self.writing();
            (self.state().without_memory(), writing.epoch)
        };
        let stopped = yielding(rank, || self.take_stopped(&state, names, progress))?;
        let name = stopped.as_ref().map_or_else(|| self.segment_name(), |stopped| stopped.name().into());
        let written = self.segments.begin(name.clone());
        // From here on it is one that is being written.
        self.segments.forget(&name);
        let merged = match &stopped {
            Some(stopped) => stopped.merged().clone(),
            None => merged_now(&state, names),
        };
        let resumed = stopped.is_some();
        // What others wait for, the publishing, is done by this thread.
        let entry = yielding(rank, || match stopped {
            Some(stopped) => stopped.finish(&Arc::new(state.schema().clone()), options, progress).map(Some),
            None => self.write_merged((&state, &merged), (name, options), progress),
        });
        if let Err(CollectionError::Cancelled) = entry {
            // It may have come so far that another one can go on.
            self.look_for_stopped()?;
        }
        let entry = entry?;
        let _open = entry.as_ref().map(|entry| self.open_ahead(names, entry, &state));
        let published = self.publish_merged(names, entry.clone(), (&merged, epoch));
        drop(written);
        match published {
            Ok(true) => {
                // What was stopped before may be of no use any more.
                self.stopped_merge();
                // Nobody is to wait for what is removed.
                self.clean();
                Ok(MergedRows { rows: entry.map_or(0, |entry| u64::from(entry.rows)), resumed })
            }
            Ok(false) => Err(CollectionError::Fenced { path: self.place.path().to_path_buf() }),
            Err(error) => Err(error),
        }
    }

    /// Writes the rows of segments that are not `merged.left_out` as one; `None` if there are none.
    fn write_merged(
        &self,
        (state, merged): (&State, &Merged),
        (name, options): (String, &WriteOptions),
        progress: &dyn Progress,
    ) -> Result<Option<SegmentEntry>, CollectionError> {
        let chosen: Vec<Arc<RowSet>> = state
            .segments
            .iter()
            .map(|segment| match merged.left_out.get(&segment.segment.entry().name) {
                Some(left_out) => Arc::new(left_out.others(segment.segment.rows())),
                None => Arc::new(RowSet::from_words(segment.segment.rows(), Vec::new())),
            })
            .collect();
        let parts = (0..).zip(&chosen).filter(|(_, set)| set.count() > 0).map(|(part, _)| part);
        let mut cursor = Cursor::over(state, parts, &chosen, None)?;
        let left: u64 = chosen.iter().map(|set| u64::from(set.count())).sum();
        if left == 0 {
            return Ok(None);
        }
        progress.stage("reading rows", left);
        let mut done = 0;
        let row_bytes = bytes_of_a_row(state, merged);
        let at_once = self.rows_at_once(state, row_bytes, options);
        let mut brake = Brake::new(self.options.compact_bytes_per_second);
        let next = || {
            let rows = cursor.next(state, at_once)?;
            brake.pass((rows.len() as f64 * row_bytes) as u64, &|| progress.cancelled());
            done += rows.len() as u64;
            progress.advance(done);
            Ok(rows)
        };
        self.write_segment((&self.place, name, options), state, (next, Some(merged)), progress).map(Some)
    }

    /// Rows that are read at once, of `row_bytes` each on the disk.
    fn rows_at_once(&self, state: &State, row_bytes: f64, options: &WriteOptions) -> usize {
        if self.options.compact_bytes_per_second.is_some() {
            return ROWS_AT_ONCE;
        }
        let most = options.memory_bytes.map_or(READ_BYTES, |given| READ_BYTES.min(given / READ_SHARE));
        let schema = state.schema();
        let vectors = schema.vectors.iter().map(|field| field.row_bytes()).sum::<usize>() as f64;
        // What lies beside the vectors is codes where there are no columns.
        let columns = if schema.columns.is_empty() { 0.0 } else { UNPACKED * (row_bytes - vectors).max(0.0) };
        ((most as f64 / (vectors + columns)) as usize).max(ROWS_AT_ONCE)
    }

    /// The segment of an entry, with the indexes open that are open of those with these names, so that the first search after the
    /// merge does not wait for that. With a memory budget there is no room for both.
    fn open_ahead(&self, names: &[String], entry: &SegmentEntry, state: &State) -> Arc<Segment> {
        let open = self.open_segment(state, entry);
        if self.options.index.memory_bytes.is_none() {
            let merged = state.segments.iter().map(|one| &one.segment);
            open.open_as(merged.filter(|one| names.contains(&one.entry().name)));
        }
        open
    }

    /// Puts a segment in the place of others, without the rows that were left out; false if they are not there any
    /// more, or the writing was acquired anew since: whoever wrote in between removes what no version names.
    fn publish_merged(
        &self,
        names: &[String],
        entry: Option<SegmentEntry>,
        (merged, epoch): (&Merged, u64),
    ) -> Result<bool, CollectionError> {
        let mut writing = self.writing();
        let state = self.state();
        let is_merged = |segment: &SegmentState| names.contains(&segment.segment.entry().name);
        let found = state.segments.iter().filter(|segment| is_merged(segment)).count();
        if found != names.len() || writing.epoch != epoch {
            return Ok(false);
        }
        let Some(log) = &mut writing.log else { return Ok(false) };
        let mut version = (*state.version).clone();
        version.next_segment += 1;
        version.segments.retain(|segment| !names.contains(&segment.name));
        version.segments.extend(entry.clone());
        let kept = state.segments.iter().filter(|segment| !is_merged(segment));
        let mut deleted: Vec<_> = kept.clone().map(|segment| segment.published.to_bitmap()).collect();
        let mut next = (*state).clone();
        next.segments = kept.cloned().collect();
        if let Some(entry) = &entry {
            let open = self.open_segment(&state, entry);
            let mut segment = SegmentState::new(open.clone(), RowBits::default());
            for old in state.segments.iter().filter(|segment| is_merged(segment)) {
                let name = &old.segment.entry().name;
                let left_out = merged.left_out.get(name).ok_or_else(lost)?;
                // A segment may have been flushed meanwhile, with a version that deletes more.
                for (bits, own) in
                    [(&old.published, &mut segment.published), (&old.frozen, &mut segment.frozen)]
                {
                    let rows = rows_in(&open, old, bits, left_out)?;
                    rows.into_iter().for_each(|row| {
                        own.add(row);
                    });
                }
                for row in rows_in(&open, old, &old.deleted, left_out)? {
                    segment.delete(row);
                }
            }
            deleted.push(segment.published.to_bitmap());
            next.segments.push(segment);
        }
        if let Err(error) = log.publish(&mut version, &deleted) {
            writing.log = None;
            return Err(error);
        }
        Traffic::add(&self.traffic.merged, entry.as_ref().map_or(0, |entry| entry.bytes));
        next.version = Arc::new(version);
        self.show(next);
        Ok(true)
    }
}

/// The rows in a new segment of those that are `deleted` in an old one and were not `left_out`.
fn rows_in(
    new: &Segment,
    old: &SegmentState,
    deleted: &RowBits,
    left_out: &RowBits,
) -> Result<Vec<u32>, CollectionError> {
    let since: Vec<u32> = deleted.iter().filter(|row| !left_out.has(*row)).collect();
    if since.is_empty() {
        return Ok(Vec::new());
    }
    let rows = new.find(&old.segment.ids_of(&since)?)?;
    rows.into_iter().map(|row| row.ok_or_else(lost)).collect()
}

/// A merge of the segments with these names: what the latest version says is deleted of them is left out.
fn merged_now(state: &State, names: &[String]) -> Merged {
    let some = state.segments.iter().map(|segment| (&segment.segment.entry().name, &segment.published));
    let some = some.filter(|(name, _)| names.contains(name));
    Merged { left_out: some.map(|(name, published)| (name.clone(), published.clone())).collect() }
}

/// Bytes of the segments that are merged for each of their rows.
fn bytes_of_a_row(state: &State, merged: &Merged) -> f64 {
    let entries = state.segments.iter().map(|segment| segment.segment.entry());
    let (bytes, rows) = entries
        .filter(|entry| merged.left_out.contains_key(&entry.name))
        .fold((0, 0), |(bytes, rows), entry| (bytes + entry.bytes, rows + u64::from(entry.rows)));
    bytes as f64 / rows.max(1) as f64
}

fn lost() -> CollectionError {
    CollectionError::Internal("a row that was lost while segments were merged".into())
}

impl State {
    /// Rows of all segments, deleted or not, for every row that is there: what space they take for what they hold.
    pub(crate) fn space_amplification(&self) -> f64 {
        let rows: u64 = self.segments.iter().map(|segment| u64::from(segment.segment.rows())).sum();
        let live: u64 = self.segments.iter().map(|segment| u64::from(segment.live())).sum();
        rows as f64 / live.max(1) as f64
    }
}
