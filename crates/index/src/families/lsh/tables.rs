//! Writes the tables: the sorted keys of all vectors, as many tables at once as fit in memory.

use super::build::Work;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::tables::TableLayout;
use crate::partition::READ_BYTES;
use crate::partition::intake::Intake;
use bathyal_kernels::lsh::{CompoundHashes, HashScratch};
use bathyal_vectors::{RowReader, VectorError};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Vectors that a thread hashes at once.
pub(super) const HASH_ROWS: usize = 256;
/// Vectors between two checks for cancellation: some milliseconds of hashing.
const CHECK_ROWS: usize = 4096;
/// Vectors of the sample whose keys divide a table that does not fit in memory.
const PIVOT_ROWS: usize = 16_384;
/// Bytes of blocks that are collected before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// A vector in a table: the high and low half of its key, and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableEntry {
    high: u64,
    low: u64,
    id: u32,
}

impl TableEntry {
    fn new(key: u128, id: u32) -> TableEntry {
        TableEntry { high: (key >> 64) as u64, low: key as u64, id }
    }

    fn key(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

/// Bytes of an entry while it is sorted.
pub(super) const ENTRY_BYTES: u64 = size_of::<TableEntry>() as u64;
/// Factor by which a part of a table may exceed its share of the entries, by chance.
pub(super) const PART_SLACK: f64 = 1.25;

/// Reads vectors of the data as the points that are hashed.
pub(super) struct Points<'a> {
    given: RowReader<'a>,
    intake: &'a Intake,
    stored: Vec<u8>,
}

impl<'a> Points<'a> {
    pub(super) fn new(work: &Work<'a>, intake: &'a Intake, ahead_bytes: usize) -> Points<'a> {
        let stored = vec![0; work.data.row_bytes()];
        Points { given: RowReader::new(work.data.given(), ahead_bytes), intake, stored }
    }

    /// Writes the point of vector `id` to `out`.
    pub(super) fn read(&mut self, id: usize, out: &mut [f32]) -> Result<(), VectorError> {
        self.intake.take(self.given.row(id)?, &mut self.stored);
        self.intake.point(&self.stored, out);
        Ok(())
    }
}

/// Writes tables, within a limit of entries in memory.
pub(super) struct TableWriter<'a, 'w> {
    pub(super) work: &'a Work<'w>,
    pub(super) intake: &'a Intake,
    pub(super) functions: &'a CompoundHashes,
    pub(super) layout: TableLayout,
    /// Number of entries that fit in memory.
    pub(super) capacity: usize,
}

/// The two files that the tables are written to.
pub(super) struct TableFiles {
    pub(super) blocks: Appender,
    pub(super) fences: Appender,
}

impl TableWriter<'_, '_> {
    /// Returns the number of tables that are made in one pass, if at least one fits in memory.
    pub(super) fn tables_at_once(&self) -> usize {
        (self.capacity / self.work.data.count()).clamp(1, self.functions.tables())
    }

    /// Appends `tables`: all in one pass over the data if they fit in memory, else each table in several
    /// passes.
    pub(super) fn write(&self, tables: Range<usize>, files: &mut TableFiles) -> Result<(), IndexError> {
        let count = self.work.data.count();
        if self.capacity >= count * tables.len() {
            let mut gathered = self.gather(tables.clone(), None)?;
            self.sort(&mut gathered)?;
            for (table, entries) in tables.zip(gathered) {
                let mut blocks = Blocks::new(self.layout, table);
                blocks.add(&entries, files)?;
                blocks.finish(files)?;
            }
            return Ok(());
        }
        for table in tables {
            let pivots = self.pivots(table)?;
            let mut blocks = Blocks::new(self.layout, table);
            for range in pivots.windows(2) {
                let mut gathered = self.gather(table..table + 1, Some(range[0]..range[1]))?;
                self.sort(&mut gathered)?;
                blocks.add(&gathered[0], files)?;
            }
            blocks.finish(files)?;
        }
        Ok(())
    }

    /// Returns the entries that divide a table into parts that fit in memory, with one entry before all
    /// others and one after.
    fn pivots(&self, table: usize) -> Result<Vec<TableEntry>, IndexError> {
        let (count, dim) = (self.work.data.count(), self.functions.dim());
        let rows = count.min(PIVOT_ROWS);
        let parts = (count as f64 * PART_SLACK / self.capacity.max(1) as f64).ceil() as usize;
        let mut points = Points::new(self.work, self.intake, 0);
        let (mut point, mut keys, mut scratch) = (vec![0.0; dim], Vec::new(), HashScratch::default());
        let mut sample = Vec::with_capacity(rows);
        for i in 0..rows {
            if i % CHECK_ROWS == 0 {
                self.work.check_cancelled()?;
            }
            let id = (i as u64 * count as u64 / rows as u64) as usize;
            points.read(id, &mut point)?;
            self.functions.subtract_centre(&mut point);
            self.functions.keys(table, &point, &mut scratch, &mut keys);
            sample.extend(keys.iter().map(|key| TableEntry::new(*key, id as u32)));
        }
        sample.sort_unstable();
        let inner = (1..parts).map(|part| sample[(part * rows / parts).min(rows - 1)]);
        let mut pivots: Vec<TableEntry> = [TableEntry::new(0, 0)].into_iter().chain(inner).collect();
        pivots.push(TableEntry::new(u128::MAX, u32::MAX));
        Ok(pivots)
    }

    /// Returns the entries of `tables`, unsorted: all of them, or those within a range.
    fn gather(
        &self,
        tables: Range<usize>,
        within: Option<Range<TableEntry>>,
    ) -> Result<Vec<Vec<TableEntry>>, IndexError> {
        let (work, count) = (self.work, self.work.data.count());
        work.progress.stage("hashing", count as u64);
        let capacity = if within.is_some() { self.capacity } else { count };
        let mut gathered = Vec::new();
        for _ in tables.clone() {
            gathered.push(Mutex::new(crate::allocate::try_with_capacity::<TableEntry>(
                "the entries of a table",
                capacity,
            )?));
        }
        let (done, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let part = count.div_ceil(work.threads).next_multiple_of(HASH_ROWS);
        std::thread::scope(|scope| {
            for first in (0..count).step_by(part) {
                let (gathered, failed, done, tables) = (&gathered, &failed, &done, tables.clone());
                let within = within.clone();
                scope.spawn(move || {
                    let rows = first..count.min(first + part);
                    if let Err(error) = self.hash(rows, tables, within, gathered, done)
                        && let Ok(mut failed) = failed.lock()
                    {
                        failed.get_or_insert(error);
                    }
                });
            }
        });
        if let Some(error) = failed.into_inner().unwrap_or(None) {
            return Err(error);
        }
        work.progress.advance(count as u64);
        let panicked = |_| IndexError::Internal("a hashing thread panicked".into());
        gathered.into_iter().map(|entries| entries.into_inner().map_err(panicked)).collect()
    }

    /// Hashes the vectors `rows` and adds their entries to `gathered`.
    fn hash(
        &self,
        rows: Range<usize>,
        tables: Range<usize>,
        within: Option<Range<TableEntry>>,
        gathered: &[Mutex<Vec<TableEntry>>],
        done: &AtomicUsize,
    ) -> Result<(), IndexError> {
        let dim = self.functions.dim();
        let mut points = Points::new(self.work, self.intake, READ_BYTES);
        let mut values = vec![0.0_f32; HASH_ROWS * dim];
        let (mut keys, mut scratch, mut entries) = (Vec::new(), HashScratch::default(), Vec::new());
        for first in rows.clone().step_by(HASH_ROWS) {
            if (first - rows.start).is_multiple_of(CHECK_ROWS) {
                self.work.check_cancelled()?;
                self.work.progress.advance(done.fetch_add(CHECK_ROWS, Ordering::Relaxed) as u64);
            }
            let ids = first..rows.end.min(first + HASH_ROWS);
            let values = &mut values[..ids.len() * dim];
            for (id, point) in ids.clone().zip(values.chunks_exact_mut(dim)) {
                points.read(id, point)?;
            }
            self.functions.subtract_centre(values);
            for (table, gathered) in tables.clone().zip(gathered) {
                self.functions.keys(table, values, &mut scratch, &mut keys);
                let made = ids.clone().zip(&keys).map(|(id, key)| TableEntry::new(*key, id as u32));
                entries.clear();
                entries
                    .extend(made.filter(|entry| within.as_ref().is_none_or(|within| within.contains(entry))));
                if let Ok(mut gathered) = gathered.lock() {
                    gathered.extend_from_slice(&entries);
                }
            }
        }
        Ok(())
    }

    /// Sorts each table, with one thread per table.
    fn sort(&self, gathered: &mut [Vec<TableEntry>]) -> Result<(), IndexError> {
        let threads = self.work.threads.max(1);
        for batch in gathered.chunks_mut(threads) {
            self.work.check_cancelled()?;
            std::thread::scope(|scope| {
                for entries in batch {
                    scope.spawn(|| entries.sort_unstable());
                }
            });
        }
        Ok(())
    }
}

/// Makes the blocks of one table from its sorted entries.
struct Blocks {
    layout: TableLayout,
    /// The number of the next block, counted through all tables.
    next: u32,
    ids: Vec<u32>,
    out: Vec<u8>,
    fences: Vec<u8>,
}

impl Blocks {
    fn new(layout: TableLayout, table: usize) -> Blocks {
        let next = (table as u64 * layout.blocks()) as u32;
        Blocks { layout, next, ids: Vec::new(), out: Vec::new(), fences: Vec::new() }
    }

    fn add(&mut self, entries: &[TableEntry], files: &mut TableFiles) -> Result<(), IndexError> {
        for entry in entries {
            if self.ids.is_empty() {
                self.fences.extend(entry.key().to_le_bytes());
            }
            self.ids.push(entry.id);
            if self.ids.len() == self.layout.block_ids() {
                self.end_block();
                if self.out.len() >= WRITE_BYTES {
                    self.append(files)?;
                }
            }
        }
        Ok(())
    }

    fn end_block(&mut self) {
        let before = self.out.len();
        self.out.resize(before + self.layout.block_bytes(), 0);
        self.layout.encode(&mut self.out[before..], self.next, self.ids.iter().copied());
        self.next += 1;
        self.ids.clear();
    }

    fn append(&mut self, files: &mut TableFiles) -> Result<(), IndexError> {
        files.blocks.append(&self.out)?;
        files.fences.append(&self.fences)?;
        self.out.clear();
        self.fences.clear();
        Ok(())
    }

    fn finish(mut self, files: &mut TableFiles) -> Result<(), IndexError> {
        if !self.ids.is_empty() {
            self.end_block();
        }
        self.append(files)
    }
}
