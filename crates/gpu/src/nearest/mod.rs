//! Finds the vectors that may be near to many queries: a card computes the products of all pairs, and returns
//! the pairs whose value is not above the query's limit. The caller defines the value of a pair, and its
//! accuracy, by biases, scales and limits.
//!
//! There are two blocks of vectors, each with a queue of its own, so that the copies of one overlap with the
//! products of the other.

mod sizes;

use crate::card::{Card, CardMemory, CardQueue, Kernel, Launch};
use crate::error::GpuError;
use crate::fields::append_fields;
pub use sizes::{Cells, ProductSizes};
use std::ops::Range;

/// Queries, and vectors, of a tile, which a block of threads computes. `TILE` in `kernels/nearest.cu`.
const TILE: usize = 128;
/// Threads of a block.
const THREADS: u32 = 256;
/// Bytes of shared memory of a block: 16 cells of 132 rows, twice.
const SHARED_BYTES: u32 = 2 * 16 * 132 * 4;
/// Number of blocks of vectors on the card.
pub const BLOCKS: usize = 2;

/// The card's part of an exact search by products.
#[derive(Debug)]
pub struct Nearest {
    cells: Cells,
    /// Words of a row on the card.
    words: usize,
    sizes: ProductSizes,
    queries: Box<dyn CardMemory>,
    query_count: usize,
    blocks: [VectorBlock; BLOCKS],
    /// Buffer for packed rows.
    packed: Vec<u8>,
}

/// A block of vectors, and the pairs found in it.
#[derive(Debug)]
struct VectorBlock {
    queue: Box<dyn CardQueue>,
    rows: Box<dyn CardMemory>,
    biases: Box<dyn CardMemory>,
    scales: Box<dyn CardMemory>,
    limits: Box<dyn CardMemory>,
    found: Box<dyn CardMemory>,
    /// Number of rows.
    count: usize,
    /// Rows of the last launch.
    launched: Range<usize>,
}

impl Nearest {
    /// Allocates memory of `card` for vectors of `row_bytes` bytes: as much as `wanted`, or what fits.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] if not even a tile fits, [`GpuError::Driver`].
    pub fn new(
        card: &dyn Card,
        cells: Cells,
        row_bytes: usize,
        wanted: ProductSizes,
    ) -> Result<Nearest, GpuError> {
        let (words, mut sizes) = (row_bytes.div_ceil(4).max(1), wanted.clamped());
        loop {
            match Nearest::allocate(card, cells, words, sizes) {
                Err(GpuError::Memory { free, .. }) => {
                    sizes = sizes.smaller(words).ok_or_else(|| {
                        GpuError::Unsuited(format!(
                            "the graphics card has {free} bytes free, and exact search of vectors of \
                             {row_bytes} bytes needs at least {}: stop other programs that use the card, or \
                             leave --device gpu out",
                            sizes.bytes(words)
                        ))
                    })?;
                }
                done => return done,
            }
        }
    }

    fn allocate(
        card: &dyn Card,
        cells: Cells,
        words: usize,
        sizes: ProductSizes,
    ) -> Result<Nearest, GpuError> {
        let what = "exact search";
        let block = || {
            Ok(VectorBlock {
                queue: card.queue()?,
                rows: card.allocate(what, sizes.row_bytes(words))?,
                biases: card.allocate(what, 4 * sizes.rows as u64)?,
                scales: card.allocate(what, 4 * sizes.rows as u64)?,
                limits: card.allocate(what, 4 * sizes.queries as u64)?,
                found: card.allocate(what, sizes.pair_bytes())?,
                count: 0,
                launched: 0..0,
            })
        };
        let queries = card.allocate(what, sizes.query_bytes(words))?;
        let blocks = [block()?, block()?];
        Ok(Nearest { cells, words, sizes, queries, query_count: 0, blocks, packed: Vec::new() })
    }

    /// Returns the sizes that were allocated.
    pub fn sizes(&self) -> ProductSizes {
        self.sizes
    }

    /// Copies the queries, one row each.
    ///
    /// # Errors
    /// [`GpuError`].
    ///
    /// # Panics
    /// If there are more than allocated, which is a bug of the caller.
    pub fn set_queries<'a>(&mut self, rows: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<(), GpuError> {
        self.query_count = rows.len();
        assert!(self.query_count <= self.sizes.queries, "more queries than allocated");
        pack(rows, self.words, &mut self.packed);
        let queue = &mut self.blocks[0].queue;
        queue.write(&*self.queries, 0, &self.packed)?;
        // Wait for the copy, because the other queue uses the queries, too.
        queue.read(&*self.queries, 0, &mut [0; 4])
    }

    /// Copies the vectors of a block, with the bias and the scale of each.
    ///
    /// # Errors
    /// [`GpuError`].
    ///
    /// # Panics
    /// If there are more than allocated, which is a bug of the caller.
    pub fn set_rows<'a>(
        &mut self,
        block: usize,
        rows: impl ExactSizeIterator<Item = &'a [u8]>,
        biases: &[f32],
        scales: &[f32],
    ) -> Result<(), GpuError> {
        let count = rows.len();
        assert!(
            count <= self.sizes.rows && biases.len() == count && scales.len() == count,
            "other rows than announced"
        );
        pack(rows, self.words, &mut self.packed);
        let block = &mut self.blocks[block];
        (block.count, block.launched) = (count, 0..0);
        block.queue.write(&*block.rows, 0, &self.packed)?;
        block.queue.write(&*block.biases, 0, &bytes(biases))?;
        block.queue.write(&*block.scales, 0, &bytes(scales))
    }

    /// Launches the products of the queries with `rows` of a block. `limits` has one value for each query.
    /// Does not wait for the launch.
    ///
    /// # Errors
    /// [`GpuError`].
    ///
    /// # Panics
    /// If the block has no such rows, or limits are missing, which is a bug of the caller.
    pub fn launch(&mut self, block: usize, rows: Range<usize>, limits: &[f32]) -> Result<(), GpuError> {
        let (sizes, words, block) = (self.sizes, self.words as u32, &mut self.blocks[block]);
        assert!(
            rows.end <= block.count && limits.len() == self.query_count,
            "other rows or queries than set"
        );
        block.launched = rows.clone();
        block.queue.write(&*block.limits, 0, &bytes(limits))?;
        block.queue.write(&*block.found, 0, &[0; 8])?;
        let memories =
            [&self.queries, &block.rows, &block.biases, &block.scales, &block.limits, &block.found];
        let (query_count, first, count) = (self.query_count as u32, rows.start as u32, rows.len() as u32);
        let mut argument = Vec::new();
        append_fields(&memories.map(|memory| memory.address()), &[], &mut argument);
        let numbers = [words, self.cells.kind(), query_count, first, count, 0];
        append_fields(&[sizes.pairs as u64], &numbers, &mut argument);
        let tiles = self.query_count.div_ceil(TILE) * rows.len().div_ceil(TILE);
        if tiles == 0 {
            return Ok(());
        }
        block.queue.launch(&Launch {
            kernel: Kernel::Nearest,
            blocks: tiles as u32,
            threads: THREADS,
            shared_bytes: SHARED_BYTES,
            argument: &argument,
        })
    }

    /// Waits for the last launch of a block. Writes its pairs to `pairs`, each a query and a row of the
    /// block, in no order. Returns false, and no pairs, if there are more than allocated; launch fewer rows
    /// then.
    ///
    /// # Errors
    /// [`GpuError`], also for a pair that does not exist.
    pub fn pairs(&mut self, block: usize, pairs: &mut Vec<(u32, u32)>) -> Result<bool, GpuError> {
        pairs.clear();
        let (max_pairs, queries, block) = (self.sizes.pairs, self.query_count, &mut self.blocks[block]);
        let mut count = [0; 8];
        block.queue.read(&*block.found, 0, &mut count)?;
        let count = u64::from_le_bytes(count);
        if count > max_pairs as u64 {
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
        let is_valid = |(query, row): &(u32, u32)| {
            (*query as usize) < queries && block.launched.contains(&(*row as usize))
        };
        match pairs.iter().find(|pair| !is_valid(pair)) {
            None => Ok(true),
            Some((query, row)) => Err(GpuError::Kernel {
                kernel: Kernel::Nearest.name(),
                reason: format!(
                    "it returned query {query} of {queries}, and vector {row} of {:?}",
                    block.launched
                ),
            }),
        }
    }
}

/// Writes rows one after another, each padded to whole words.
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
