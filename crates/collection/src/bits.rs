//! Growing sets of rows that are cheap to copy: copies share the pieces that did not change.

use bathyal_index::RowSet;
use roaring::RoaringBitmap;
use std::sync::Arc;

/// 64-bit words of a piece. Adding a row copies one piece at most: 4 KiB for 32,768 rows.
const WORDS: usize = 512;
const ROWS: usize = 64 * WORDS;

/// A set of rows, one bit per row.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowBits {
    /// `None` for a piece without rows.
    pieces: Vec<Option<Arc<[u64; WORDS]>>>,
    count: u32,
}

impl RowBits {
    /// Returns the rows of a bitmap.
    pub(crate) fn from_bitmap(rows: &RoaringBitmap) -> RowBits {
        let mut bits = RowBits::default();
        rows.iter().for_each(|row| {
            bits.add(row);
        });
        bits
    }

    /// Returns the rows as a bitmap.
    pub(crate) fn to_bitmap(&self) -> RoaringBitmap {
        self.iter().collect()
    }

    /// Returns the number of rows in the set.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns true if the row is in the set.
    #[inline]
    pub(crate) fn has(&self, row: u32) -> bool {
        let (piece, bit) = (row as usize / ROWS, row as usize % ROWS);
        let words = self.pieces.get(piece).and_then(Option::as_ref);
        words.is_some_and(|words| words[bit / 64] >> (bit % 64) & 1 == 1)
    }

    /// Adds a row. Returns false if the row was in the set already.
    pub(crate) fn add(&mut self, row: u32) -> bool {
        if self.has(row) {
            return false;
        }
        let (piece, bit) = (row as usize / ROWS, row as usize % ROWS);
        if self.pieces.len() <= piece {
            self.pieces.resize(piece + 1, None);
        }
        let words = self.pieces[piece].get_or_insert_with(|| Arc::new([0; WORDS]));
        Arc::make_mut(words)[bit / 64] |= 1 << (bit % 64);
        self.count += 1;
        true
    }

    /// Returns the rows in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let pieces = self.pieces.iter().enumerate().filter_map(|(at, piece)| Some((at, piece.as_ref()?)));
        pieces.flat_map(|(at, words)| {
            words.iter().enumerate().flat_map(move |(word, bits)| {
                let mut left = *bits;
                std::iter::from_fn(move || {
                    let bit = (left != 0).then(|| left.trailing_zeros())?;
                    left &= left - 1;
                    Some((at * ROWS + word * 64) as u32 + bit)
                })
            })
        })
    }

    /// Returns the complement: those of `rows` rows that are not in the set.
    pub(crate) fn complement(&self, rows: u32) -> RowSet {
        let mut words: Vec<u64> = vec![u64::MAX; (rows as usize).div_ceil(64)];
        for (at, piece) in self.pieces.iter().enumerate() {
            let Some(piece) = piece else { continue };
            let piece_words = words.iter_mut().skip(at * WORDS).zip(piece.iter());
            piece_words.for_each(|(word, bits)| *word &= !bits);
        }
        if let Some(last) = words.last_mut().filter(|_| !rows.is_multiple_of(64)) {
            *last &= (1 << (rows % 64)) - 1;
        }
        RowSet::from_words(rows, words)
    }

    /// Returns the bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let pieces = self.pieces.iter().flatten().count() * (8 * WORDS);
        (pieces + self.pieces.len() * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_shares_unchanged_pieces_and_does_not_see_later_rows() {
        let mut bits = RowBits::default();
        let rows = [0, 63, 64, 32_767, 32_768, 200_000];
        assert!(rows.iter().all(|row| bits.add(*row)) && !bits.add(64));
        let before = bits.clone();
        assert!(bits.add(5));
        assert_eq!((before.count(), bits.count()), (6, 7));
        assert!(!before.has(5) && bits.has(5) && !bits.has(6) && !bits.has(u32::MAX));
        assert_eq!(before.iter().collect::<Vec<_>>(), rows);
        assert_eq!(RowBits::from_bitmap(&before.to_bitmap()).iter().collect::<Vec<_>>(), rows);
        let shared = before.pieces[6].as_ref().zip(bits.pieces[6].as_ref());
        assert!(shared.is_some_and(|(one, other)| Arc::ptr_eq(one, other)));
        let complement = bits.complement(70);
        assert_eq!(complement.count(), 70 - 4);
        assert!(complement.has(69) && !complement.has(63) && complement.has(6));
    }
}
