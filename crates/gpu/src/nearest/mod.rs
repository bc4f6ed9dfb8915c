//! Which of many vectors may be near many queries: products of all pairs on a card, of which those come back whose value is not above the
//! query's limit. What a pair's value is, and how exact, is said by who sets biases, scales and limits.
//!
//! There are two blocks of vectors, each with a queue of its own: what one is copied overlaps with what the other is multiplied.

mod args;
mod room;

use crate::card::{Card, CardMemory, CardQueue, Kernel, Launch};
use crate::error::GpuError;
use args::Args;
pub use room::{Cells, Room};
use std::ops::Range;

/// Queries, and vectors, of a tile: a block of threads. `TILE` in `kernels/nearest.cu`.
const TILE: usize = 128;
/// Threads of a block.
const THREADS: u32 = 256;
/// Bytes that they share: 16 cells of 132 rows, twice.
const SHARED_BYTES: u32 = 2 * 16 * 132 * 4;
/// Blocks of vectors that are on the card.
pub const BLOCKS: usize = 2;

/// The card's half of a search by products.
#[derive(Debug)]
pub struct Nearest {
    cells: Cells,
    /// Of a row, as it lies on the card.
    words: usize,
    room: Room,
    queries: Box<dyn CardMemory>,
    query_count: usize,
    blocks: [Block; BLOCKS],
    /// Rows that are packed, reused.
    packed: Vec<u8>,
}

/// A block of vectors, and what came of it.
#[derive(Debug)]
struct Block {
    queue: Box<dyn CardQueue>,
    rows: Box<dyn CardMemory>,
    biases: Box<dyn CardMemory>,
    scales: Box<dyn CardMemory>,
    limits: Box<dyn CardMemory>,
    found: Box<dyn CardMemory>,
    /// Rows that are there.
    count: usize,
    /// Those that were multiplied last.
    launched: Range<usize>,
}

impl Nearest {
    /// Takes memory of `card` for vectors of `row_bytes` bytes: what `wanted` says, or what fits.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] where not even a tile fits, [`GpuError::Driver`].
    pub fn new(card: &dyn Card, cells: Cells, row_bytes: usize, wanted: Room) -> Result<Nearest, GpuError> {
        let (words, mut room) = (row_bytes.div_ceil(4).max(1), wanted.sound());
        loop {
            match Nearest::of_room(card, cells, words, room) {
                Err(GpuError::Memory { free, .. }) => {
                    room = room.smaller(words).ok_or_else(|| {
                        GpuError::Unsuited(format!(
                            "the graphics card has {free} bytes free, and exact search of vectors of {row_bytes} bytes takes {} at least: \
                             stop what else uses the card, or leave --device gpu out",
                            room.bytes(words)
                        ))
                    })?;
                }
                done => return done,
            }
        }
    }

    fn of_room(card: &dyn Card, cells: Cells, words: usize, room: Room) -> Result<Nearest, GpuError> {
        let what = "exact search";
        let block = || {
            Ok(Block {
                queue: card.queue()?,
                rows: card.allocate(what, room.row_bytes(words))?,
                biases: card.allocate(what, 4 * room.rows as u64)?,
                scales: card.allocate(what, 4 * room.rows as u64)?,
                limits: card.allocate(what, 4 * room.queries as u64)?,
                found: card.allocate(what, room.pair_bytes())?,
                count: 0,
                launched: 0..0,
            })
        };
        let queries = card.allocate(what, room.query_bytes(words))?;
        let blocks = [block()?, block()?];
        Ok(Nearest { cells, words, room, queries, query_count: 0, blocks, packed: Vec::new() })
    }

    /// What there is room for.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Copies the queries: `rows` one behind the other, or each for itself where that is not how they lie.
    ///
    /// # Errors
    /// [`GpuError`].
    ///
    /// # Panics
    /// If they are more than there is room for, which is a caller's bug.
    pub fn set_queries<'a>(&mut self, rows: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<(), GpuError> {
        self.query_count = rows.len();
        assert!(self.query_count <= self.room.queries, "more queries than there is room for");
        pack(rows, self.words, &mut self.packed);
        let queue = &mut self.blocks[0].queue;
        queue.write(&*self.queries, 0, &self.packed)?;
        // The other queue begins when they are there.
        queue.read(&*self.queries, 0, &mut [0; 4])
    }

    /// Copies the vectors of a block, with the bias and the scale of each.
    ///
    /// # Errors
    /// [`GpuError`].
    ///
    /// # Panics
    /// If they are more than there is room for, which is a caller's bug.
    pub fn set_rows<'a>(
        &mut self,
        block: usize,
        rows: impl ExactSizeIterator<Item = &'a [u8]>,
        biases: &[f32],
        scales: &[f32],
    ) -> Result<(), GpuError> {
        let count = rows.len();
        assert!(count <= self.room.rows && biases.len() == count && scales.len() == count, "other rows");
        pack(rows, self.words, &mut self.packed);
        let block = &mut self.blocks[block];
        (block.count, block.launched) = (count, 0..0);
        block.queue.write(&*block.rows, 0, &self.packed)?;
        block.queue.write(&*block.biases, 0, &bytes(biases))?;
        block.queue.write(&*block.scales, 0, &bytes(scales))
    }

    /// Multiplies the queries with `rows` of a block; `limits` are those of the queries. Whoever calls goes on meanwhile.
    ///
    /// # Errors
    /// [`GpuError`].
    ///
    /// # Panics
    /// If the block has no such rows, or limits are missing, which are a caller's bugs.
    pub fn launch(&mut self, block: usize, rows: Range<usize>, limits: &[f32]) -> Result<(), GpuError> {
        let (room, words, block) = (self.room, self.words as u32, &mut self.blocks[block]);
        assert!(rows.end <= block.count && limits.len() == self.query_count, "other rows or queries");
        block.launched = rows.clone();
        block.queue.write(&*block.limits, 0, &bytes(limits))?;
        block.queue.write(&*block.found, 0, &[0; 8])?;
        let memories =
            [&self.queries, &block.rows, &block.biases, &block.scales, &block.limits, &block.found];
        let (query_count, first, count) = (self.query_count as u32, rows.start as u32, rows.len() as u32);
        let args = Args {
            addresses: memories.map(|memory| memory.address()),
            room: room.pairs as u64,
            numbers: [words, self.cells.kind(), query_count, first, count, 0],
        };
        let tiles = self.query_count.div_ceil(TILE) * rows.len().div_ceil(TILE);
        if tiles == 0 {
            return Ok(());
        }
        block.queue.launch(&Launch {
            kernel: Kernel::Nearest,
            blocks: tiles as u32,
            threads: THREADS,
            shared_bytes: SHARED_BYTES,
            argument: &args.bytes(),
        })
    }

    /// Waits for what was launched last of a block and tells its pairs, each a query and a row of the block, in no order. False if they
    /// were more than there is room for: none is told then, and fewer rows at a time will do.
    ///
    /// # Errors
    /// [`GpuError`]; also of a pair that there is not.
    pub fn pairs(&mut self, block: usize, pairs: &mut Vec<(u32, u32)>) -> Result<bool, GpuError> {
        pairs.clear();
        let (room, queries, block) = (self.room.pairs, self.query_count, &mut self.blocks[block]);
        let mut count = [0; 8];
        block.queue.read(&*block.found, 0, &mut count)?;
        let count = u64::from_le_bytes(count);
        if count > room as u64 {
            return Ok(false);
        }
        let mut bytes = vec![0; 8 * count as usize];
        if count > 0 {
            block.queue.read(&*block.found, 8, &mut bytes)?;
        }
        pairs.extend(bytes.as_chunks::<8>().0.iter().map(|pair| {
            let pair = u64::from_le_bytes(*pair);
            ((pair >> 32) as u32, pair as u32)
        }));
        let known = |(query, row): &(u32, u32)| {
            (*query as usize) < queries && block.launched.contains(&(*row as usize))
        };
        match pairs.iter().find(|pair| !known(pair)) {
            None => Ok(true),
            Some((query, row)) => Err(GpuError::Kernel {
                kernel: Kernel::Nearest.name(),
                reason: format!("query {query} and vector {row}, of {queries} and {:?}", block.launched),
            }),
        }
    }
}

/// Rows one behind the other, each of whole words.
fn pack<'a>(rows: impl Iterator<Item = &'a [u8]>, words: usize, packed: &mut Vec<u8>) {
    packed.clear();
    for row in rows {
        packed.extend_from_slice(row);
        packed.resize(packed.len().next_multiple_of(4), 0);
        debug_assert!(packed.len().is_multiple_of(4 * words));
    }
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
