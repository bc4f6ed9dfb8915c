//! Reads the columns of a segment: requested rows from the pages that hold them, or all rows.

use super::checked_file::CheckedFile;
use super::manifest::Manifest;
use super::pages::ColumnPages;
use crate::error::CollectionError;
use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use bathyal_index::ranges::Run;
use bathyal_store::Generation;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowSelection, RowSelectionPolicy,
};
use parquet::file::metadata::PageIndexPolicy;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a batch in a scan.
const SCAN_ROWS: usize = 8192;
/// Rows that are read at once; the limit bounds memory.
const ROWS_AT_ONCE: usize = 8192;
/// Bytes that are read first, at the end of the file; most footers fit.
const TAIL_BYTES: u64 = 64 << 10;
/// Approximate bytes of the file that a scan buffers.
const SCAN_BYTES: u64 = 16 << 20;
/// The least bytes that a scan buffers for each column.
const MIN_AHEAD_BYTES: u64 = 64 << 10;

/// The columns of a segment.
#[derive(Debug)]
pub(super) struct Columns {
    file: Arc<CheckedFile>,
    metadata: ArrowReaderMetadata,
    rows: u32,
    /// The first row of each row group.
    starts: Vec<u32>,
}

/// Unique rows of a row group, in ascending order.
struct GroupRows<'a> {
    group: usize,
    rows: &'a [u32],
}

impl Columns {
    /// Loads the footer, which locates the pages.
    pub(super) fn open(
        generation: &dyn Generation,
        manifest: &Manifest,
        schema: SchemaRef,
        remote: bool,
    ) -> Result<Columns, CollectionError> {
        Columns::load(Arc::new(CheckedFile::open(generation, manifest, remote)?), manifest, schema)
    }

    /// Loads the footer of a file that may be damaged.
    pub(super) fn salvage(
        generation: &dyn Generation,
        manifest: &Manifest,
        schema: SchemaRef,
        remote: bool,
    ) -> Result<Columns, CollectionError> {
        Columns::load(Arc::new(CheckedFile::salvage(generation, manifest, remote)?), manifest, schema)
    }

    fn load(
        file: Arc<CheckedFile>,
        manifest: &Manifest,
        schema: SchemaRef,
    ) -> Result<Columns, CollectionError> {
        let len = file.len();
        let pages = ColumnPages::from_runs(
            file.clone(),
            file.read(std::iter::once(len.saturating_sub(TAIL_BYTES)..len))?,
        );
        let options = ArrowReaderOptions::new()
            .with_schema(schema)
            .with_column_index_policy(PageIndexPolicy::Skip)
            .with_offset_index_policy(PageIndexPolicy::Required);
        let metadata = pages.decode(|| ArrowReaderMetadata::load(&pages, options))?;
        let (mut starts, mut rows) = (Vec::new(), 0u64);
        for group in metadata.metadata().row_groups() {
            starts.push(rows as u32);
            rows = rows.saturating_add(group.num_rows().max(0) as u64);
        }
        if rows != u64::from(manifest.rows) {
            let reason = format!("it has {rows} rows, the manifest says {}", manifest.rows);
            return Err(CollectionError::damaged(file.path(), "its footer", reason));
        }
        let columns = Columns { file, metadata, rows: manifest.rows, starts };
        // Pages cannot be found without their locations.
        if (0..columns.starts.len()).any(|group| columns.locations(group, 0).is_none()) {
            return Err(CollectionError::damaged(
                columns.file.path(),
                "its footer",
                "it has no index of pages",
            ));
        }
        Ok(columns)
    }

    /// Returns, for each page of a column in a row group, its first row and its bytes in the file.
    fn locations(&self, group: usize, leaf: usize) -> Option<Vec<(u32, Range<u64>)>> {
        let index = self.metadata.metadata().page_index_for_row_group(group);
        let pages = index.page_locations(leaf)?.iter().map(|page| {
            let (start, len) =
                (u64::try_from(page.offset).ok()?, u64::try_from(page.compressed_page_size).ok()?);
            Some((u32::try_from(page.first_row_index).ok()?, start..start.checked_add(len)?))
        });
        pages.collect()
    }

    /// Returns the projection for the `wanted` columns of the file, and the numbers of their leaf columns.
    fn mask(&self, wanted: &BTreeSet<usize>) -> (ProjectionMask, Vec<usize>) {
        let file_schema = self.metadata.parquet_schema();
        let mask = ProjectionMask::roots(file_schema, wanted.iter().copied());
        let leaves = (0..file_schema.num_columns()).filter(|leaf| mask.leaf_included(*leaf)).collect();
        (mask, leaves)
    }

    /// Returns rows, in their order, of these columns of the file. All rows exist; a row may occur more than
    /// once.
    pub(super) fn take(&self, rows: &[u32], columns: &[usize]) -> Result<RecordBatch, CollectionError> {
        let schema = Arc::new(self.metadata.schema().project(columns)?);
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let wanted: BTreeSet<usize> = columns.iter().copied().collect();
        if wanted.is_empty() {
            return Ok(RecordBatch::try_new_with_options(schema, Vec::new(), &options)?);
        }
        let mut unique = rows.to_vec();
        unique.sort_unstable();
        unique.dedup();
        let mut batches = Vec::new();
        for chunk in unique.chunks(ROWS_AT_ONCE) {
            self.read_rows(chunk, &wanted, &mut batches)?;
        }
        let read_schema = batches.first().map_or_else(
            || Ok(Arc::new(self.metadata.schema().project(&wanted.iter().copied().collect::<Vec<_>>())?)),
            |batch| Ok::<_, ArrowError>(batch.schema()),
        )?;
        let found = arrow_select::concat::concat_batches(&read_schema, &batches)?;
        if found.num_rows() != unique.len() {
            let reason = format!("{} rows were read of {}", found.num_rows(), unique.len());
            return Err(CollectionError::damaged(self.file.path(), "its columns", reason));
        }
        let positions = rows.iter().map(|row| unique.partition_point(|other| other < row) as u32);
        let positions = UInt32Array::from_iter_values(positions);
        let column_position = |column: &usize| wanted.iter().position(|other| other == column).unwrap_or(0);
        let taken = columns
            .iter()
            .map(|column| arrow_select::take::take(found.column(column_position(column)), &positions, None))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new_with_options(schema, taken, &options)?)
    }

    /// Reads these columns of all `rows`, and calls `each` with ranges of rows and their content or error. An
    /// error covers only rows that share the same pages.
    pub(super) fn read_ranges(
        &self,
        rows: Range<u32>,
        columns: &[usize],
        each: &mut dyn FnMut(Range<u32>, Result<RecordBatch, CollectionError>) -> Result<(), CollectionError>,
    ) -> Result<(), CollectionError> {
        let all: Vec<u32> = rows.clone().collect();
        match self.take(&all, columns) {
            Err(error) => match self.split_row(&rows, columns) {
                Some(at) => {
                    self.read_ranges(rows.start..at, columns, each)?;
                    self.read_ranges(at..rows.end, columns, each)
                }
                None => each(rows, Err(error)),
            },
            batch => each(rows, batch),
        }
    }

    /// Returns the row nearest to the middle of `rows` at which a page of one of these columns begins; `None`
    /// if all `rows` share the same pages.
    fn split_row(&self, rows: &Range<u32>, columns: &[usize]) -> Option<u32> {
        let (_, leaves) = self.mask(&columns.iter().copied().collect());
        let middle = rows.start + (rows.end - rows.start) / 2;
        let mut nearest: Option<u32> = None;
        for (group, start) in self.starts.iter().enumerate() {
            if *start >= rows.end || self.end_of(group) <= rows.start {
                continue;
            }
            let pages = leaves.iter().filter_map(|leaf| self.locations(group, *leaf)).flatten();
            let begins = pages.map(|(first, _)| start + first).chain([*start]);
            let within = begins.filter(|at| *at > rows.start && *at < rows.end);
            nearest = nearest.into_iter().chain(within).min_by_key(|at| at.abs_diff(middle));
        }
        nearest
    }

    /// Reads unique rows, in ascending order.
    fn read_rows(
        &self,
        rows: &[u32],
        wanted: &BTreeSet<usize>,
        batches: &mut Vec<RecordBatch>,
    ) -> Result<(), CollectionError> {
        let groups = self.groups_of(rows);
        let (mask, leaves) = self.mask(wanted);
        let pages = ColumnPages::from_runs(self.file.clone(), self.pages_of(&groups, &leaves)?);
        let selection = self.selection(&groups);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(pages.clone(), self.metadata.clone())
            .with_projection(mask)
            .with_row_groups(groups.iter().map(|group| group.group).collect())
            .with_row_selection(selection)
            .with_row_selection_policy(RowSelectionPolicy::Selectors)
            .with_batch_size(ROWS_AT_ONCE);
        let mut reader = pages.decode(|| reader.build())?;
        while let Some(batch) = pages.decode(|| reader.next().transpose())? {
            batches.push(batch);
        }
        Ok(())
    }

    /// Divides rows, which are in ascending order, by row groups.
    fn groups_of<'a>(&self, rows: &'a [u32]) -> Vec<GroupRows<'a>> {
        let (mut groups, mut rest) = (Vec::new(), rows);
        while let Some(first) = rest.first() {
            let group = self.starts.partition_point(|start| start <= first).saturating_sub(1);
            let (group_rows, later) = rest.split_at(rest.partition_point(|row| *row < self.end_of(group)));
            groups.push(GroupRows { group, rows: group_rows });
            rest = later;
        }
        groups
    }

    fn end_of(&self, group: usize) -> u32 {
        self.starts.get(group + 1).copied().unwrap_or(self.rows)
    }

    /// Returns the selection of rows among all rows of `groups`.
    fn selection(&self, groups: &[GroupRows<'_>]) -> RowSelection {
        let (mut ranges, mut before) = (Vec::<Range<usize>>::new(), 0);
        for GroupRows { group, rows } in groups {
            let start = self.starts[*group];
            for row in *rows {
                let at = before + (row - start) as usize;
                match ranges.last_mut() {
                    Some(last) if last.end == at => last.end += 1,
                    _ => ranges.push(at..at + 1),
                }
            }
            before += (self.end_of(*group) - start) as usize;
        }
        RowSelection::from_consecutive_ranges(ranges.into_iter(), before)
    }

    /// Reads the pages with rows of `groups`, and the dictionaries of their columns.
    fn pages_of(&self, groups: &[GroupRows<'_>], leaves: &[usize]) -> Result<Vec<Run>, CollectionError> {
        let mut ranges = Vec::new();
        for GroupRows { group, rows } in groups {
            for leaf in leaves {
                let Some(pages) = self.locations(*group, *leaf) else { continue };
                let chunk = self.metadata.metadata().row_group(*group).column(*leaf);
                let dictionary = chunk.dictionary_page_offset().and_then(|start| u64::try_from(start).ok());
                if let (Some(start), Some((_, first))) = (dictionary, pages.first()) {
                    ranges.push(start..first.start.max(start));
                }
                let start = self.starts[*group];
                let mut last = None;
                for row in *rows {
                    let at = pages.partition_point(|(first, _)| *first <= row - start).checked_sub(1);
                    if let Some(at) = at.filter(|_| at != last) {
                        ranges.push(pages[at].1.clone());
                    }
                    last = at;
                }
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        self.file.read(ranges)
    }

    /// Calls `each` for all rows in batches, with the first row and these columns of the file.
    pub(super) fn scan(
        &self,
        columns: &[usize],
        each: &mut dyn FnMut(u32, RecordBatch) -> Result<(), CollectionError>,
    ) -> Result<(), CollectionError> {
        let wanted: BTreeSet<usize> = columns.iter().copied().collect();
        let schema = Arc::new(self.metadata.schema().project(columns)?);
        let positions: Vec<usize> = columns.iter().map(|column| wanted.range(..column).count()).collect();
        let mut row = 0;
        let mut emit = |count: usize, batch: Option<RecordBatch>| {
            let arrays = batch.iter().flat_map(|batch| positions.iter().map(|at| batch.column(*at).clone()));
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            let arrays = arrays.collect();
            let first = row;
            row += count as u32;
            each(first, RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?)
        };
        if wanted.is_empty() {
            for first in (0..self.rows).step_by(SCAN_ROWS) {
                emit(SCAN_ROWS.min((self.rows - first) as usize), None)?;
            }
            return Ok(());
        }
        let (pages, mut reader) = self.reader(&wanted)?;
        while let Some(batch) = pages.decode(|| reader.next().transpose())? {
            emit(batch.num_rows(), Some(batch))?;
        }
        if row != self.rows {
            let reason = format!("it ends after {row} of {} rows", self.rows);
            return Err(CollectionError::damaged(self.file.path(), "its columns", reason));
        }
        Ok(())
    }

    /// Returns a reader of all rows, in order.
    fn reader(
        &self,
        wanted: &BTreeSet<usize>,
    ) -> Result<(ColumnPages, ParquetRecordBatchReader), CollectionError> {
        let (mask, leaves) = self.mask(wanted);
        let share = SCAN_BYTES / leaves.len().max(1) as u64;
        let ahead = self.file.read_ahead_bytes().min(share).max(MIN_AHEAD_BYTES);
        let pages = ColumnPages::read_ahead(self.file.clone(), leaves.len(), ahead);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(pages.clone(), self.metadata.clone())
            .with_projection(mask)
            .with_batch_size(SCAN_ROWS);
        let reader = pages.decode(|| reader.build())?;
        Ok((pages, reader))
    }

    /// Returns the number of row groups, and the bytes that are read for `rows` (ascending) of columns of the
    /// file.
    #[cfg(test)]
    pub(super) fn reads(&self, rows: &[u32], columns: &[usize]) -> (usize, u64) {
        let (_, leaves) = self.mask(&columns.iter().copied().collect());
        let runs = self.pages_of(&self.groups_of(rows), &leaves).unwrap();
        (self.starts.len(), runs.iter().map(|run| run.bytes.len() as u64).sum())
    }

    /// Returns the bytes of memory.
    pub(super) fn held_bytes(&self) -> u64 {
        let footer = self.metadata.metadata().memory_size() + 4 * self.starts.len() + size_of::<Columns>();
        self.file.held_bytes() + footer as u64
    }
}
