//! How much is multiplied at a time, and what that takes of a card.

use super::TILE;

/// Most queries, and vectors: a launch has 2^31 blocks at most.
const MOST: usize = 1 << 20;

/// What the values of a vector are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cells {
    /// `f32`.
    Floats,
    /// `f16`.
    Halves,
    /// `u8`, whose products are summed exactly.
    Unsigned,
    /// `i8`, likewise.
    Signed,
    /// `bf16`: the upper halves of `f32`.
    UpperHalves,
    /// Bits, of which a product counts the ones that both have.
    Bits,
}

impl Cells {
    /// As `kernels/nearest.cu` numbers them.
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

/// What there is room for at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Queries.
    pub queries: usize,
    /// Vectors of a block, of which two are there.
    pub rows: usize,
    /// Pairs that come back of a launch: at least one a query, so that the pairs of a single vector always do.
    pub pairs: usize,
}

impl Room {
    /// With at least one of each, a pair a query, and no more tiles than a launch has.
    pub(super) fn sound(self) -> Room {
        let [queries, rows] = [self.queries, self.rows].map(|number| number.clamp(1, MOST));
        Room { queries, rows, pairs: self.pairs.max(queries) }
    }

    /// Bytes of the queries.
    pub(super) fn query_bytes(&self, words: usize) -> u64 {
        4 * words as u64 * self.queries as u64
    }

    /// Bytes of the vectors of a block.
    pub(super) fn row_bytes(&self, words: usize) -> u64 {
        4 * words as u64 * self.rows as u64
    }

    /// Bytes of the pairs of a launch, and of how many they are.
    pub(super) fn pair_bytes(&self) -> u64 {
        8 + 8 * self.pairs as u64
    }

    /// Bytes of all, for rows of so many words.
    pub(super) fn bytes(&self, words: usize) -> u64 {
        let block =
            self.row_bytes(words) + 8 * self.rows as u64 + 4 * self.queries as u64 + self.pair_bytes();
        self.query_bytes(words) + 2 * block
    }

    /// With half of what takes most; `None` if it is a tile that is left.
    pub(super) fn smaller(&self, words: usize) -> Option<Room> {
        let (queries, rows) = (self.query_bytes(words), 2 * self.row_bytes(words));
        let pairs = if self.pairs > self.queries { 2 * self.pair_bytes() } else { 0 };
        let queries = if self.queries > TILE { queries } else { 0 };
        let rows = if self.rows > TILE { rows } else { 0 };
        let half = |number: usize| number.div_ceil(2);
        let most = queries.max(rows).max(pairs);
        let smaller = match most {
            0 => return None,
            _ if most == pairs => Room { pairs: half(self.pairs), ..*self },
            _ if most == rows => Room { rows: half(self.rows), ..*self },
            _ => Room { queries: half(self.queries), ..*self },
        };
        Some(smaller.sound())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_shrinks_to_a_tile() {
        for (queries, rows, pairs) in [(10_000, 100_000, 4_000_000), (5, 1_000_000, 0), (70_000, 3, 1)] {
            let (mut room, mut steps) = (Room { queries, rows, pairs }.sound(), 0);
            while let Some(smaller) = room.smaller(32) {
                assert!(smaller.bytes(32) < room.bytes(32), "{room:?}");
                (room, steps) = (smaller, steps + 1);
            }
            assert!(room.queries <= TILE && room.rows <= TILE && room.pairs == room.queries, "{room:?}");
            assert!(steps < 80);
        }
    }
}
