//! Sets of rows, to which a search may be restricted.

use std::ops::Range;

/// Bits of a word.
const WORD: u32 = u64::BITS;

/// A set of rows of an index, with one bit for each row. It does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSet {
    rows: u32,
    count: u32,
    /// As many words as `rows` need; bits behind the last row are 0.
    words: Vec<u64>,
}

impl RowSet {
    /// Creates the set of the rows below `rows` whose bits are set in `words`. The bit of row 0 is the lowest
    /// of the first word. Missing words contain no row, and bits from `rows` on are ignored.
    pub fn from_words(rows: u32, mut words: Vec<u64>) -> RowSet {
        words.resize(rows.div_ceil(WORD) as usize, 0);
        if let Some(last) = words.last_mut().filter(|_| !rows.is_multiple_of(WORD)) {
            *last &= (1 << (rows % WORD)) - 1;
        }
        let count = words.iter().map(|word| word.count_ones()).sum();
        RowSet { rows, count, words }
    }

    /// Creates the set of the rows `ids`, in any order. Ids that are not below `rows` are ignored.
    pub fn from_ids(rows: u32, ids: impl Iterator<Item = u32>) -> RowSet {
        let mut words = vec![0; rows.div_ceil(WORD) as usize];
        for id in ids {
            if let Some(word) = words.get_mut((id / WORD) as usize) {
                *word |= 1 << (id % WORD);
            }
        }
        RowSet::from_words(rows, words)
    }

    /// Creates the set of all rows below `rows`.
    pub fn all(rows: u32) -> RowSet {
        RowSet::from_words(rows, vec![u64::MAX; rows.div_ceil(WORD) as usize])
    }

    /// Returns the number of rows in the set.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of rows of the index, in the set or not.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns true if row `id` is in the set.
    #[inline]
    pub fn has(&self, id: u32) -> bool {
        self.words.get((id / WORD) as usize).is_some_and(|word| word >> (id % WORD) & 1 == 1)
    }

    /// Returns the rows of the set in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = (0..).step_by(WORD as usize).zip(&self.words);
        words.flat_map(|(first, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(first + bit)
            })
        })
    }

    /// Returns the bits in the form of [`RowSet::from_words`].
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the rows of this set that are also in `other`.
    pub fn and(&self, other: &RowSet) -> RowSet {
        self.joined(other, |own, other| own & other)
    }

    /// Returns the rows of this set that are not in `other`.
    pub fn and_not(&self, other: &RowSet) -> RowSet {
        self.joined(other, |own, other| own & !other)
    }

    /// Returns the bytes of memory.
    pub fn bytes(&self) -> u64 {
        (size_of::<RowSet>() + self.words.len() * size_of::<u64>()) as u64
    }

    /// Returns the number of rows of the range `rows` that are in the set.
    pub(crate) fn count_in(&self, rows: Range<u32>) -> u32 {
        self.masked(rows).map(u64::count_ones).sum()
    }

    /// Returns true if any row of the range `rows` is in the set.
    pub(crate) fn has_any(&self, rows: Range<u32>) -> bool {
        self.masked(rows).any(|word| word != 0)
    }

    /// Returns the words of the range `rows`, without the bits of other rows.
    fn masked(&self, rows: Range<u32>) -> impl Iterator<Item = u64> + '_ {
        let (first, end) = (rows.start, rows.end.min(self.rows).max(rows.start.min(self.rows)));
        let words = if first < end { first / WORD..end.div_ceil(WORD) } else { 0..0 };
        words.map(move |at| {
            let word = self.words[at as usize];
            let below = first.saturating_sub(at * WORD);
            // Bits above the last row are shifted out, and back in as zeros.
            let above = ((at + 1).saturating_mul(WORD)).saturating_sub(end).min(WORD - 1);
            ((word >> below << below) << above) >> above
        })
    }

    fn joined(&self, other: &RowSet, join: impl Fn(u64, u64) -> u64) -> RowSet {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        let words = self.words.iter().zip(others).map(|(own, other)| join(*own, other)).collect();
        RowSet::from_words(self.rows, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn bits_and_ids_beyond_the_rows_are_ignored() {
        let set = RowSet::from_words(70, vec![u64::MAX; 3]);
        assert_eq!((set.count(), set.words().len(), set.has(69), set.has(70)), (70, 2, true, false));
        assert_eq!(set, RowSet::all(70));
        assert_eq!(RowSet::from_ids(70, [3, 69, 70, 71, 127, 128, u32::MAX, 3].into_iter()).count(), 2);
        assert_eq!(RowSet::from_words(200, vec![1]).iter().collect::<Vec<_>>(), [0]);
        let none = RowSet::all(0);
        assert_eq!((none.count(), none.rows(), none.has(0), none.iter().count()), (0, 0, false, 0));
        assert!(!none.has_any(0..u32::MAX) && none.and(&set).count() == 0);
        // A set with fewer rows contains none of the rows beyond.
        assert_eq!((set.and(&RowSet::all(64)).count(), set.and_not(&RowSet::all(64)).count()), (64, 6));
        assert_eq!(RowSet::all(64).and(&set), RowSet::all(64));
    }

    proptest! {
        #[test]
        fn a_row_set_behaves_like_a_set_of_numbers(
            rows in 1..300_u32,
            ids in proptest::collection::vec(0..320_u32, 0..200),
            others in proptest::collection::vec(0..320_u32, 0..200),
            first in 0..330_u32, length in 0..330_u32,
        ) {
            let plain = |ids: &[u32]| ids.iter().copied().filter(|id| *id < rows).collect::<BTreeSet<u32>>();
            let a = RowSet::from_ids(rows, ids.iter().copied());
            let b = RowSet::from_ids(rows, others.iter().copied());
            let (x, y) = (plain(&ids), plain(&others));
            let numbers = |set: &RowSet| set.iter().collect::<BTreeSet<u32>>();
            prop_assert_eq!(numbers(&a), x.clone());
            prop_assert_eq!(a.count() as usize, x.len());
            prop_assert_eq!(numbers(&a.and(&b)), x.intersection(&y).copied().collect());
            prop_assert_eq!(numbers(&a.and_not(&b)), x.difference(&y).copied().collect());
            prop_assert_eq!(RowSet::from_words(rows, a.words().to_vec()), a.clone());
            let range = first..first + length;
            let count = x.range(range.clone()).count();
            prop_assert_eq!(a.count_in(range.clone()) as usize, count);
            prop_assert_eq!(a.has_any(range), count > 0);
            prop_assert!((0..400).all(|id| a.has(id) == x.contains(&id)));
        }
    }
}
