//! A chunk of consecutive rows in memory, with an index of their ids.

use crate::error::CollectionError;
use crate::ids::Ids;
use crate::rows::Rows;
use bathyal_vectors::VectorFile;
use parquet::bloom_filter::Sbbf;
use std::cmp::Ordering;

/// Chunks are not joined beyond this size: joining copies ids and columns, and an array of Arrow holds 2 GiB
/// of text.
const LARGEST_BYTES: u64 = 16 << 20;

/// Bits of the Bloom filter for each id. About one in a hundred unknown ids passes the filter.
const BLOOM_BITS: usize = 10;
/// Bytes of a block of the Bloom filter.
const BLOOM_BLOCK_BYTES: usize = 32;

/// A chunk of consecutive rows in memory.
#[derive(Debug)]
pub(super) struct Chunk {
    first: u32,
    rows: Rows,
    /// Positions in ascending order of the ids. At most one row of equal ids is live; the others are deleted.
    order: Vec<u32>,
    /// Bloom filter of the ids.
    bloom_filter: Sbbf,
    bytes: u64,
}

impl Chunk {
    /// Creates a chunk; the number of its first row is `first`.
    pub(super) fn new(first: u32, rows: Rows) -> Chunk {
        let order = rows.ids().order();
        Chunk::with_order(first, rows, order)
    }

    fn with_order(first: u32, rows: Rows, order: Vec<u32>) -> Chunk {
        let mut bloom_filter = Sbbf::new_with_num_of_bytes(rows.len() * BLOOM_BITS / 8);
        match rows.ids() {
            Ids::Numbers(numbers) => numbers.values().iter().for_each(|number| bloom_filter.insert(number)),
            Ids::Texts(texts) => texts.iter().flatten().for_each(|text| bloom_filter.insert(text)),
        }
        let bytes =
            rows.bytes() + 4 * order.len() as u64 + (bloom_filter.num_blocks() * BLOOM_BLOCK_BYTES) as u64;
        Chunk { first, rows, order, bloom_filter, bytes }
    }

    /// Returns the number of the first row.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Returns the rows.
    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Returns the positions of the rows in ascending order of the ids.
    #[cfg(test)]
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Returns the approximate bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the vectors of these rows followed by those of `next`, if they are adjacent in memory. Returns
    /// `None` also if the chunks are too large to be joined.
    pub(super) fn followed_by(&self, next: &Chunk) -> Option<Vec<VectorFile>> {
        if self.bytes + next.bytes > LARGEST_BYTES {
            return None;
        }
        let pairs = self.rows.vectors().iter().zip(next.rows.vectors());
        pairs.map(|(one, two)| one.followed_by(two)).collect()
    }

    /// Joins two chunks. `vectors` comes from [`Chunk::followed_by`].
    pub(super) fn joined(&self, next: &Chunk, vectors: Vec<VectorFile>) -> Result<Chunk, CollectionError> {
        let rows = Rows::joined(&self.rows, &next.rows, vectors)?;
        let (ids, begin) = (rows.ids(), self.order.len() as u32);
        let mut order = Vec::with_capacity(rows.len());
        let (mut one, mut two) = (self.order.iter().peekable(), next.order.iter().peekable());
        while let (Some(first), Some(second)) = (one.peek(), two.peek()) {
            let second = begin + **second;
            // Equal ids keep their order.
            if ids.compare(**first as usize, ids, second as usize) == Ordering::Greater {
                order.push(second);
                two.next();
            } else {
                order.push(**first);
                one.next();
            }
        }
        order.extend(one.copied());
        order.extend(two.map(|position| begin + position));
        Ok(Chunk::with_order(self.first, rows, order))
    }

    /// Returns true if any of `ids` is between the smallest and the largest id of the chunk.
    pub(super) fn may_have(&self, ids: &Ids) -> bool {
        let (chunk_ids, Some(smallest), Some(largest)) =
            (self.rows.ids(), self.order.first(), self.order.last())
        else {
            return false;
        };
        (0..ids.len()).any(|at| {
            ids.compare(at, chunk_ids, *smallest as usize) != Ordering::Less
                && ids.compare(at, chunk_ids, *largest as usize) != Ordering::Greater
        })
    }

    /// Finds the id at position `at` of `ids`. Returns the number of its row, if `live` is true for it.
    pub(super) fn find(&self, ids: &Ids, at: usize, live: impl Fn(u32) -> bool) -> Option<u32> {
        let chunk_ids = self.rows.ids();
        let may_be_here = match ids {
            Ids::Numbers(numbers) => self.bloom_filter.check(&numbers.value(at)),
            Ids::Texts(texts) => self.bloom_filter.check(texts.value(at)),
        };
        if !may_be_here {
            return None;
        }
        let begin = self
            .order
            .partition_point(|position| ids.compare(at, chunk_ids, *position as usize) == Ordering::Greater);
        let same = self.order[begin..]
            .iter()
            .take_while(|position| ids.compare(at, chunk_ids, **position as usize).is_eq());
        same.map(|position| self.first + position).find(|row| live(*row))
    }
}
