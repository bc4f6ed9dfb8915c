//! Sizes of the products that a card computes at a time, and the memory that they take.

use super::TILE;

/// Maximum number of queries, and of vectors: a launch has at most 2^31 blocks.
const MAX_ROWS: usize = 1 << 20;

/// Type of the cells of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cells {
    /// `f32`.
    Floats,
    /// `f16`.
    Halves,
    /// `u8`. Sums of products are exact.
    Unsigned,
    /// `i8`. Sums of products are exact.
    Signed,
    /// `bf16`, the upper halves of `f32`.
    UpperHalves,
    /// Bits. A product counts the bits set in both.
    Bits,
}

impl Cells {
    /// Returns the number of the type in `kernels/nearest.cu`.
    pub(super) fn kind(self) -> u32 {
        match self {
            Cells::Floats => 0,
            Cells::Halves => 1,
            Cells::Unsigned => 2,
            Cells::Signed => 3,
            Cells::UpperHalves => 4,
            Cells::Bits => 5,
        }
    }
}

/// Sizes of what the card holds at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductSizes {
    /// Number of queries.
    pub queries: usize,
    /// Number of vectors of a block. There are two blocks.
    pub rows: usize,
    /// Maximum number of pairs that a launch returns: at least one for each query, so that the pairs of a
    /// single vector always fit.
    pub pairs: usize,
}

impl ProductSizes {
    /// Returns valid sizes: at least one query and row, a pair for each query, and no more tiles than a
    /// launch has blocks.
    pub(super) fn clamped(self) -> ProductSizes {
        let [queries, rows] = [self.queries, self.rows].map(|number| number.clamp(1, MAX_ROWS));
        ProductSizes { queries, rows, pairs: self.pairs.max(queries) }
    }

    /// Returns the bytes of the queries.
    pub(super) fn query_bytes(&self, words: usize) -> u64 {
        4 * words as u64 * self.queries as u64
    }

    /// Returns the bytes of the vectors of a block.
    pub(super) fn row_bytes(&self, words: usize) -> u64 {
        4 * words as u64 * self.rows as u64
    }

    /// Returns the bytes of the pairs of a launch, and of their number.
    pub(super) fn pair_bytes(&self) -> u64 {
        8 + 8 * self.pairs as u64
    }

    /// Returns the total bytes, for rows of `words` words.
    pub(super) fn bytes(&self, words: usize) -> u64 {
        let block =
            self.row_bytes(words) + 8 * self.rows as u64 + 4 * self.queries as u64 + self.pair_bytes();
        self.query_bytes(words) + 2 * block
    }

    /// Returns sizes with the largest part halved; `None` if only a tile is left.
    pub(super) fn smaller(&self, words: usize) -> Option<ProductSizes> {
        let (queries, rows) = (self.query_bytes(words), 2 * self.row_bytes(words));
        let pairs = if self.pairs > self.queries { 2 * self.pair_bytes() } else { 0 };
        let queries = if self.queries > TILE { queries } else { 0 };
        let rows = if self.rows > TILE { rows } else { 0 };
        let half = |number: usize| number.div_ceil(2);
        let largest = queries.max(rows).max(pairs);
        let smaller = match largest {
            0 => return None,
            _ if largest == pairs => ProductSizes { pairs: half(self.pairs), ..*self },
            _ if largest == rows => ProductSizes { rows: half(self.rows), ..*self },
            _ => ProductSizes { queries: half(self.queries), ..*self },
        };
        Some(smaller.clamped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_shrink_to_a_tile() {
        for (queries, rows, pairs) in [(10_000, 100_000, 4_000_000), (5, 1_000_000, 0), (70_000, 3, 1)] {
            let (mut sizes, mut steps) = (ProductSizes { queries, rows, pairs }.clamped(), 0);
            while let Some(smaller) = sizes.smaller(32) {
                assert!(smaller.bytes(32) < sizes.bytes(32), "{sizes:?}");
                (sizes, steps) = (smaller, steps + 1);
            }
            assert!(sizes.queries <= TILE && sizes.rows <= TILE && sizes.pairs == sizes.queries, "{sizes:?}");
            assert!(steps < 80);
        }
    }
}
