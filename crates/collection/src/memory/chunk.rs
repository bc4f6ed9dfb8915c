//! Rows that came one after the other, and an order of their ids.

use crate::error::CollectionError;
use crate::ids::Ids;
use crate::rows::Rows;
use bathyal_vectors::VectorFile;
use parquet::bloom_filter::Sbbf;
use std::cmp::Ordering;

/// Chunks do not become larger by being joined: joining copies ids and columns, and an array of Arrow holds 2 GiB of text.
const LARGEST_BYTES: u64 = 16 << 20;

/// Bits of a filter for each id, at least: of ids that are not there one in a hundred is looked for.
const SEEN_BITS: usize = 10;
/// Bytes of a block of the filter.
const SEEN_BLOCK_BYTES: usize = 32;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Chunk {
    first: u32,
    rows: Rows,
    /// Places in rising order of the ids. Of equal ids one row is there at most; the others were deleted.
    order: Vec<u32>,
    /// Which ids may be here: of others nearly none.
    seen: Sbbf,
    bytes: u64,
}

impl Chunk {
    /// Rows of which the first has the number `first`.
    pub(super) fn new(first: u32, rows: Rows) -> Chunk {
        let order = rows.ids().order();
        Chunk::of(first, rows, order)
    }

    fn of(first: u32, rows: Rows, order: Vec<u32>) -> Chunk {
        let mut seen = Sbbf::new_with_num_of_bytes(rows.len() * SEEN_BITS / 8);
        match rows.ids() {
            Ids::Numbers(numbers) => numbers.values().iter().for_each(|number| seen.insert(number)),
            Ids::Texts(texts) => texts.iter().flatten().for_each(|text| seen.insert(text)),
        }
        let bytes = rows.bytes() + 4 * order.len() as u64 + (seen.num_blocks() * SEEN_BLOCK_BYTES) as u64;
        Chunk { first, rows, order, seen, bytes }
    }

    /// Number of its first row.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Its rows.
    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The places of its rows, in rising order of the ids.
    #[cfg(test)]
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The vectors of these rows and of the `next` ones, where they lie one after the other; `None` also for so much that it is not
    /// worth joining.
    pub(super) fn followed_by(&self, next: &Chunk) -> Option<Vec<VectorFile>> {
        if self.bytes + next.bytes > LARGEST_BYTES {
            return None;
        }
        let pairs = self.rows.vectors().iter().zip(next.rows.vectors());
        pairs.map(|(one, two)| one.followed_by(two)).collect()
    }

    /// These rows and the `next` ones, whose `vectors` are those that [`Chunk::followed_by`] says.
    pub(super) fn joined(&self, next: &Chunk, vectors: Vec<VectorFile>) -> Result<Chunk, CollectionError> {
        let rows = Rows::joined(&self.rows, &next.rows, vectors)?;
        let (ids, begin) = (rows.ids(), self.order.len() as u32);
        let mut order = Vec::with_capacity(rows.len());
        let (mut one, mut two) = (self.order.iter().peekable(), next.order.iter().peekable());
        while let (Some(first), Some(second)) = (one.peek(), two.peek()) {
            let second = begin + **second;
            // Of equal ids the first comes first.
            if ids.compare(**first as usize, ids, second as usize) == Ordering::Greater {
                order.push(second);
                two.next();
            } else {
                order.push(**first);
                one.next();
            }
        }
        order.extend(one.copied());
        order.extend(two.map(|place| begin + place));
        Ok(Chunk::of(self.first, rows, order))
    }

    /// Whether any of `ids` may be here, if they are as many as one at least: by the smallest and the largest id here.
    pub(super) fn may_have(&self, ids: &Ids) -> bool {
        let (own, Some(smallest), Some(largest)) = (self.rows.ids(), self.order.first(), self.order.last())
        else {
            return false;
        };
        (0..ids.len()).any(|at| {
            ids.compare(at, own, *smallest as usize) != Ordering::Less
                && ids.compare(at, own, *largest as usize) != Ordering::Greater
        })
    }

    /// The number of the row with the id at `at`, of those that are `there`.
    pub(super) fn find(&self, ids: &Ids, at: usize, there: impl Fn(u32) -> bool) -> Option<u32> {
        let own = self.rows.ids();
        let seen = match ids {
            Ids::Numbers(numbers) => self.seen.check(&numbers.value(at)),
            Ids::Texts(texts) => self.seen.check(texts.value(at)),
        };
        if !seen {
            return None;
        }
        let begin =
            self.order.partition_point(|place| ids.compare(at, own, *place as usize) == Ordering::Greater);
        let same =
            self.order[begin..].iter().take_while(|place| ids.compare(at, own, **place as usize).is_eq());
        same.map(|place| self.first + place).find(|row| there(*row))
    }
}
