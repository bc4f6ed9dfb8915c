//! The columns of a segment as they are read: the rows that are asked for, from the pages that hold them, or all of them.

use super::manifest::Manifest;
use super::pages::Pages;
use super::summed::SummedFile;
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

/// Rows of a batch of a scan.
const SCAN_ROWS: usize = 8192;
/// Rows that are read before others are, so that what they are made of is bounded.
const ROWS_AT_ONCE: usize = 8192;
/// Bytes at the end of the file that are read at once: most footers are within.
const TAIL_BYTES: u64 = 64 << 10;
/// Bytes that a scan holds of the file, about, and of each column at least.
const SCAN_BYTES: u64 = 16 << 20;
const LEAST_AHEAD_BYTES: u64 = 64 << 10;

/// The columns of a segment.
#[derive(Debug)]
pub(super) struct Columns {
    file: Arc<SummedFile>,
    metadata: ArrowReaderMetadata,
    rows: u32,
    /// The first row of each row group.
    starts: Vec<u32>,
}

/// Rows of a row group, which rise, each once.
struct OfGroup<'a> {
    group: usize,
    rows: &'a [u32],
}

impl Columns {
    /// Loads what says where pages are.
    pub(super) fn open(
        generation: &dyn Generation,
        manifest: &Manifest,
        schema: SchemaRef,
        far: bool,
    ) -> Result<Columns, CollectionError> {
        Columns::of_file(Arc::new(SummedFile::open(generation, manifest, far)?), manifest, schema)
    }

    /// Loads what of a damaged file says where pages are.
    pub(super) fn salvage(
        generation: &dyn Generation,
        manifest: &Manifest,
        schema: SchemaRef,
        far: bool,
    ) -> Result<Columns, CollectionError> {
        Columns::of_file(Arc::new(SummedFile::salvage(generation, manifest, far)?), manifest, schema)
    }

    fn of_file(
        file: Arc<SummedFile>,
        manifest: &Manifest,
        schema: SchemaRef,
    ) -> Result<Columns, CollectionError> {
        let len = file.len();
        let pages =
            Pages::holding(file.clone(), file.read(std::iter::once(len.saturating_sub(TAIL_BYTES)..len))?);
        let options = ArrowReaderOptions::new()
            .with_schema(schema)
            .with_column_index_policy(PageIndexPolicy::Skip)
            .with_offset_index_policy(PageIndexPolicy::Required);
        let metadata = pages.decoded(|| ArrowReaderMetadata::load(&pages, options))?;
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
        // Without them, pages are not found.
        if (0..columns.starts.len()).any(|group| columns.locations(group, 0).is_none()) {
            return Err(CollectionError::damaged(
                columns.file.path(),
                "its footer",
                "it has no index of pages",
            ));
        }
        Ok(columns)
    }

    /// The first row of each page of a column of a row group, and where it lies.
    fn locations(&self, group: usize, leaf: usize) -> Option<Vec<(u32, Range<u64>)>> {
        let index = self.metadata.metadata().page_index_for_row_group(group);
        let pages = index.page_locations(leaf)?.iter().map(|page| {
            let (start, len) =
                (u64::try_from(page.offset).ok()?, u64::try_from(page.compressed_page_size).ok()?);
            Some((u32::try_from(page.first_row_index).ok()?, start..start.checked_add(len)?))
        });
        pages.collect()
    }

    /// What is read of the columns that are wanted, of the file's, and how many columns of values these are.
    fn mask(&self, wanted: &BTreeSet<usize>) -> (ProjectionMask, Vec<usize>) {
        let of_file = self.metadata.parquet_schema();
        let mask = ProjectionMask::roots(of_file, wanted.iter().copied());
        let leaves = (0..of_file.num_columns()).filter(|leaf| mask.leaf_included(*leaf)).collect();
        (mask, leaves)
    }

    /// Rows, all of which there are, in their order, of these columns of the file; a row may be there more than once.
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
        for some in unique.chunks(ROWS_AT_ONCE) {
            self.read_some(some, &wanted, &mut batches)?;
        }
        let narrow = batches.first().map_or_else(
            || Ok(Arc::new(self.metadata.schema().project(&wanted.iter().copied().collect::<Vec<_>>())?)),
            |batch| Ok::<_, ArrowError>(batch.schema()),
        )?;
        let found = arrow_select::concat::concat_batches(&narrow, &batches)?;
        if found.num_rows() != unique.len() {
            let reason = format!("{} rows were read of {}", found.num_rows(), unique.len());
            return Err(CollectionError::damaged(self.file.path(), "its columns", reason));
        }
        let places = rows.iter().map(|row| unique.partition_point(|other| other < row) as u32);
        let places = UInt32Array::from_iter_values(places);
        let place_of = |column: &usize| wanted.iter().position(|other| other == column).unwrap_or(0);
        let taken = columns
            .iter()
            .map(|column| arrow_select::take::take(found.column(place_of(column)), &places, None))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new_with_options(schema, taken, &options)?)
    }

    /// Tells `each` of these columns of all of `rows`, range by range: what they hold, or why that cannot be read. What is damaged is
    /// told by the rows that lie on the same pages.
    pub(super) fn whole(
        &self,
        rows: Range<u32>,
        columns: &[usize],
        each: &mut dyn FnMut(Range<u32>, Result<RecordBatch, CollectionError>) -> Result<(), CollectionError>,
    ) -> Result<(), CollectionError> {
        let all: Vec<u32> = rows.clone().collect();
        match self.take(&all, columns) {
            Err(error) => match self.cut(&rows, columns) {
                Some(at) => {
                    self.whole(rows.start..at, columns, each)?;
                    self.whole(at..rows.end, columns, each)
                }
                None => each(rows, Err(error)),
            },
            batch => each(rows, batch),
        }
    }

    /// The row nearest to the middle of `rows` with which a page of one of these columns begins; `None` where all of `rows` lie on
    /// the same pages.
    fn cut(&self, rows: &Range<u32>, columns: &[usize]) -> Option<u32> {
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

    /// Reads rows that rise, each once.
    fn read_some(
        &self,
        rows: &[u32],
        wanted: &BTreeSet<usize>,
        batches: &mut Vec<RecordBatch>,
    ) -> Result<(), CollectionError> {
        let groups = self.groups_of(rows);
        let (mask, leaves) = self.mask(wanted);
        let pages = Pages::holding(self.file.clone(), self.pages_of(&groups, &leaves)?);
        let selection = self.selection(&groups);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(pages.clone(), self.metadata.clone())
            .with_projection(mask)
            .with_row_groups(groups.iter().map(|group| group.group).collect())
            .with_row_selection(selection)
            .with_row_selection_policy(RowSelectionPolicy::Selectors)
            .with_batch_size(ROWS_AT_ONCE);
        let mut reader = pages.decoded(|| reader.build())?;
        while let Some(batch) = pages.decoded(|| reader.next().transpose())? {
            batches.push(batch);
        }
        Ok(())
    }

    /// Rows that rise by their row groups.
    fn groups_of<'a>(&self, rows: &'a [u32]) -> Vec<OfGroup<'a>> {
        let (mut groups, mut rest) = (Vec::new(), rows);
        while let Some(first) = rest.first() {
            let group = self.starts.partition_point(|start| start <= first).saturating_sub(1);
            let (of_group, later) = rest.split_at(rest.partition_point(|row| *row < self.end_of(group)));
            groups.push(OfGroup { group, rows: of_group });
            rest = later;
        }
        groups
    }

    fn end_of(&self, group: usize) -> u32 {
        self.starts.get(group + 1).copied().unwrap_or(self.rows)
    }

    /// Which of the rows of `groups` are wanted.
    fn selection(&self, groups: &[OfGroup<'_>]) -> RowSelection {
        let (mut ranges, mut before) = (Vec::<Range<usize>>::new(), 0);
        for OfGroup { group, rows } in groups {
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

    /// Reads the pages that hold rows of `groups`, and the dictionaries of their columns.
    fn pages_of(&self, groups: &[OfGroup<'_>], leaves: &[usize]) -> Result<Vec<Run>, CollectionError> {
        let mut ranges = Vec::new();
        for OfGroup { group, rows } in groups {
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

    /// Tells `each` of all rows, these columns of the file, in batches: their first row, and what they have.
    pub(super) fn scan(
        &self,
        columns: &[usize],
        each: &mut dyn FnMut(u32, RecordBatch) -> Result<(), CollectionError>,
    ) -> Result<(), CollectionError> {
        let wanted: BTreeSet<usize> = columns.iter().copied().collect();
        let schema = Arc::new(self.metadata.schema().project(columns)?);
        let places: Vec<usize> = columns.iter().map(|column| wanted.range(..column).count()).collect();
        let mut row = 0;
        let mut tell = |count: usize, batch: Option<RecordBatch>| {
            let arrays = batch.iter().flat_map(|batch| places.iter().map(|at| batch.column(*at).clone()));
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            let arrays = arrays.collect();
            let first = row;
            row += count as u32;
            each(first, RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?)
        };
        if wanted.is_empty() {
            for first in (0..self.rows).step_by(SCAN_ROWS) {
                tell(SCAN_ROWS.min((self.rows - first) as usize), None)?;
            }
            return Ok(());
        }
        let (pages, mut reader) = self.reader(&wanted)?;
        while let Some(batch) = pages.decoded(|| reader.next().transpose())? {
            tell(batch.num_rows(), Some(batch))?;
        }
        if row != self.rows {
            let reason = format!("it ends after {row} of {} rows", self.rows);
            return Err(CollectionError::damaged(self.file.path(), "its columns", reason));
        }
        Ok(())
    }

    /// Reads all rows from front to back.
    fn reader(&self, wanted: &BTreeSet<usize>) -> Result<(Pages, ParquetRecordBatchReader), CollectionError> {
        let (mask, leaves) = self.mask(wanted);
        let share = SCAN_BYTES / leaves.len().max(1) as u64;
        let ahead = self.file.ahead_bytes().min(share).max(LEAST_AHEAD_BYTES);
        let pages = Pages::ahead(self.file.clone(), leaves.len(), ahead);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(pages.clone(), self.metadata.clone())
            .with_projection(mask)
            .with_batch_size(SCAN_ROWS);
        let reader = pages.decoded(|| reader.build())?;
        Ok((pages, reader))
    }

    /// Row groups, and the bytes that are read for rows that rise of columns of the file.
    #[cfg(test)]
    pub(super) fn reads(&self, rows: &[u32], columns: &[usize]) -> (usize, u64) {
        let (_, leaves) = self.mask(&columns.iter().copied().collect());
        let runs = self.pages_of(&self.groups_of(rows), &leaves).unwrap();
        (self.starts.len(), runs.iter().map(|run| run.bytes.len() as u64).sum())
    }

    /// Bytes of memory.
    pub(super) fn held_bytes(&self) -> u64 {
        let footer = self.metadata.metadata().memory_size() + 4 * self.starts.len() + size_of::<Columns>();
        self.file.held_bytes() + footer as u64
    }
}
