//! A filter in memory that recognizes empty buckets, with a few bits per vector and table, to save their
//! reads.

/// Fewest bits of a filter: one word per table.
pub(super) const LEAST_BITS: u32 = 6;

/// For each table, one bit for each value of the lowest `bits` bits of a hash: set if a vector has a hash
/// with that value.
pub(super) struct Filter {
    bits: u32,
    words: Vec<u64>,
}

impl Filter {
    /// Returns an empty filter for `tables` tables.
    pub(super) fn new(tables: usize, bits: u32) -> Filter {
        let bits = bits.max(LEAST_BITS);
        Filter { bits, words: vec![0; tables << (bits - LEAST_BITS)] }
    }

    /// Returns the words of a table.
    pub(super) fn table(&mut self, place: u64) -> &mut [u64] {
        let words = 1_usize << (self.bits - LEAST_BITS);
        &mut self.words[place as usize * words..][..words]
    }

    /// Returns the number of low bits of a hash value that the filter uses.
    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns false if no vector has this value in a table; true if one may.
    pub(super) fn holds(&self, place: u64, value: u32) -> bool {
        let at = ((place as usize) << self.bits) + low(value, self.bits);
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// Adds a value to the words of a table.
    pub(super) fn add(words: &mut [u64], bits: u32, value: u32) {
        let at = low(value, bits);
        words[at / 64] |= 1 << (at % 64);
    }

    /// Returns the same filter with fewer bits.
    pub(super) fn folded(&self, bits: u32) -> Filter {
        let bits = bits.clamp(LEAST_BITS, self.bits);
        let (words, kept) = (1_usize << (self.bits - LEAST_BITS), 1_usize << (bits - LEAST_BITS));
        let mut folded = Vec::with_capacity(self.words.len() / words * kept);
        for table in self.words.chunks_exact(words) {
            let first = folded.len();
            folded.extend_from_slice(&table[..kept]);
            for more in table.chunks_exact(kept).skip(1) {
                folded[first..].iter_mut().zip(more).for_each(|(word, more)| *word |= more);
            }
        }
        Filter { bits, words: folded }
    }

    /// Returns the bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }

    /// Returns the content of a filter file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads the output of [`Filter::to_bytes`]; `None` if the length is wrong.
    pub(super) fn from_bytes(bytes: &[u8], tables: usize, bits: u32) -> Option<Filter> {
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        (bits >= LEAST_BITS && bytes.len() == tables << (bits - 3)).then_some(Filter { bits, words })
    }
}

fn low(value: u32, bits: u32) -> usize {
    (u64::from(value) & ((1 << bits) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_values_are_found_with_fewer_bits_too() {
        let mut filter = Filter::new(3, 12);
        let values: Vec<u32> = (0..200_u32).map(|i| i.wrapping_mul(0x9E37_79B9) ^ i >> 3).collect();
        values.iter().for_each(|value| Filter::add(filter.table(1), 12, *value));
        for bits in [12, 9, 6] {
            let folded = filter.folded(bits);
            assert_eq!((folded.bits(), folded.bytes()), (bits, 3 << (bits - 3)));
            assert!(values.iter().all(|value| folded.holds(1, *value)), "{bits}");
            assert!(!(0..64).any(|value| folded.holds(0, value) || folded.holds(2, value)));
            let read = Filter::from_bytes(&folded.to_bytes(), 3, bits).unwrap();
            assert_eq!(read.words, folded.words);
        }
        assert!((0..4096).filter(|value| filter.holds(1, *value)).count() <= 200);
        assert!(Filter::from_bytes(&[0; 16], 3, 12).is_none());
    }
}
