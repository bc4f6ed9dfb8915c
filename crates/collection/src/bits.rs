//! Sets of rows that grow while others read them: copies share all that did not change between them.

use bathyal_index::RowSet;
use roaring::RoaringBitmap;
use std::sync::Arc;

/// Words of a piece: 32,768 rows, 4 KiB, which is what adding a row copies at most.
const WORDS: usize = 512;
const ROWS: usize = 64 * WORDS;

/// Rows, a bit each.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowBits {
    /// `None` where no row of the piece is in.
    pieces: Vec<Option<Arc<[u64; WORDS]>>>,
    count: u32,
}

impl RowBits {
    /// The rows of a bitmap.
    pub(crate) fn of_bitmap(rows: &RoaringBitmap) -> RowBits {
        let mut bits = RowBits::default();
        rows.iter().for_each(|row| {
            bits.add(row);
        });
        bits
    }

    /// As a bitmap.
    pub(crate) fn to_bitmap(&self) -> RoaringBitmap {
        self.iter().collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether a row is in.
    #[inline]
    pub(crate) fn has(&self, row: u32) -> bool {
        let (piece, bit) = (row as usize / ROWS, row as usize % ROWS);
        let words = self.pieces.get(piece).and_then(Option::as_ref);
        words.is_some_and(|words| words[bit / 64] >> (bit % 64) & 1 == 1)
    }

    /// Adds a row; false where it was in.
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

    /// The rows, rising.
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

    /// The other ones of `rows` rows.
    pub(crate) fn others(&self, rows: u32) -> RowSet {
        let mut words: Vec<u64> = vec![u64::MAX; (rows as usize).div_ceil(64)];
        for (at, piece) in self.pieces.iter().enumerate() {
            let Some(piece) = piece else { continue };
            let some = words.iter_mut().skip(at * WORDS).zip(piece.iter());
            some.for_each(|(word, bits)| *word &= !bits);
        }
        if let Some(last) = words.last_mut().filter(|_| !rows.is_multiple_of(64)) {
            *last &= (1 << (rows % 64)) - 1;
        }
        RowSet::from_words(rows, words)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let pieces = self.pieces.iter().flatten().count() * (8 * WORDS);
        (pieces + self.pieces.len() * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_what_did_not_change_and_keep_what_they_were() {
        let mut bits = RowBits::default();
        let rows = [0, 63, 64, 32_767, 32_768, 200_000];
        assert!(rows.iter().all(|row| bits.add(*row)) && !bits.add(64));
        let before = bits.clone();
        assert!(bits.add(5));
        assert_eq!((before.count(), bits.count()), (6, 7));
        assert!(!before.has(5) && bits.has(5) && !bits.has(6) && !bits.has(u32::MAX));
        assert_eq!(before.iter().collect::<Vec<_>>(), rows);
        assert_eq!(RowBits::of_bitmap(&before.to_bitmap()).iter().collect::<Vec<_>>(), rows);
        let shared = before.pieces[6].as_ref().zip(bits.pieces[6].as_ref());
        assert!(shared.is_some_and(|(one, other)| Arc::ptr_eq(one, other)));
        let others = bits.others(70);
        assert_eq!(others.count(), 70 - 4);
        assert!(others.has(69) && !others.has(63) && others.has(6));
    }
}
