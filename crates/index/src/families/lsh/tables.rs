//! Writing the tables: keys of all vectors, sorted, as many tables at once as there is memory for.

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
/// Vectors between two looks at cancellation: some milliseconds of hashing.
const CHECK_ROWS: usize = 4096;
/// Vectors by whose keys a table is divided that does not fit.
const PIVOT_ROWS: usize = 16_384;
/// Bytes of blocks that are made before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// A vector in a table: its key, high and low, and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    high: u64,
    low: u64,
    id: u32,
}

impl Entry {
    fn new(key: u128, id: u32) -> Entry {
        Entry { high: (key >> 64) as u64, low: key as u64, id }
    }

    fn key(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

/// Bytes of an entry while it is sorted.
pub(super) const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;
/// A part of a table may have so many times as many entries as its share, by chance.
pub(super) const PART_SLACK: f64 = 1.25;

/// The vectors of the data as points that are hashed.
pub(super) struct Points<'a> {
    given: RowReader<'a>,
    intake: &'a Intake,
    taken: Vec<u8>,
}

impl<'a> Points<'a> {
    pub(super) fn new(work: &Work<'a>, intake: &'a Intake, ahead_bytes: usize) -> Points<'a> {
        let taken = vec![0; work.data.row_bytes()];
        Points { given: RowReader::new(work.data.given(), ahead_bytes), intake, taken }
    }

    /// Vector `id`.
    pub(super) fn read(&mut self, id: usize, out: &mut [f32]) -> Result<(), VectorError> {
        self.intake.take(self.given.row(id)?, &mut self.taken);
        self.intake.point(&self.taken, out);
        Ok(())
    }
}

/// What writes tables.
pub(super) struct TableWriter<'a, 'w> {
    pub(super) work: &'a Work<'w>,
    pub(super) intake: &'a Intake,
    pub(super) functions: &'a CompoundHashes,
    pub(super) layout: TableLayout,
    /// Entries that there is memory for.
    pub(super) room: usize,
}

/// The two files of tables.
pub(super) struct TableFiles {
    pub(super) blocks: Appender,
    pub(super) fences: Appender,
}

impl TableWriter<'_, '_> {
    /// Tables that are made at once, where at least one fits.
    pub(super) fn at_once(&self) -> usize {
        (self.room / self.work.data.count()).clamp(1, self.functions.tables())
    }

    /// Appends the tables `tables`, all in one pass over the data if they fit, or one in several.
    pub(super) fn write(&self, tables: Range<usize>, files: &mut TableFiles) -> Result<(), IndexError> {
        let count = self.work.data.count();
        if self.room >= count * tables.len() {
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

    /// Entries between which a table is divided into parts that fit, with one before and one behind all.
    fn pivots(&self, table: usize) -> Result<Vec<Entry>, IndexError> {
        let (count, dim) = (self.work.data.count(), self.functions.dim());
        let rows = count.min(PIVOT_ROWS);
        let parts = (count as f64 * PART_SLACK / self.room.max(1) as f64).ceil() as usize;
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
            sample.extend(keys.iter().map(|key| Entry::new(*key, id as u32)));
        }
        sample.sort_unstable();
        let inner = (1..parts).map(|part| sample[(part * rows / parts).min(rows - 1)]);
        let mut pivots: Vec<Entry> = [Entry::new(0, 0)].into_iter().chain(inner).collect();
        pivots.push(Entry::new(u128::MAX, u32::MAX));
        Ok(pivots)
    }

    /// The entries of some tables, in no order: all, or those of a range.
    fn gather(
        &self,
        tables: Range<usize>,
        within: Option<Range<Entry>>,
    ) -> Result<Vec<Vec<Entry>>, IndexError> {
        let (work, count) = (self.work, self.work.data.count());
        work.progress.stage("hashing", count as u64);
        let room = if within.is_some() { self.room } else { count };
        let mut gathered = Vec::new();
        for _ in tables.clone() {
            gathered.push(Mutex::new(crate::allocate::try_with_capacity::<Entry>(
                "the entries of a table",
                room,
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

    /// Hashes some vectors and adds their entries.
    fn hash(
        &self,
        rows: Range<usize>,
        tables: Range<usize>,
        within: Option<Range<Entry>>,
        gathered: &[Mutex<Vec<Entry>>],
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
                let made = ids.clone().zip(&keys).map(|(id, key)| Entry::new(*key, id as u32));
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

    /// Sorts each of some tables, a thread a table.
    fn sort(&self, gathered: &mut [Vec<Entry>]) -> Result<(), IndexError> {
        let threads = self.work.threads.max(1);
        for some in gathered.chunks_mut(threads) {
            self.work.check_cancelled()?;
            std::thread::scope(|scope| {
                for entries in some {
                    scope.spawn(|| entries.sort_unstable());
                }
            });
        }
        Ok(())
    }
}

/// The blocks of a table, as its sorted entries come.
struct Blocks {
    layout: TableLayout,
    /// The next block's number, through all tables.
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

    fn add(&mut self, entries: &[Entry], files: &mut TableFiles) -> Result<(), IndexError> {
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
