//! The offsets of the records of a packed file, in a few bits per record: Elias-Fano codes of the lengths
//! beyond the shortest record.
//!
//! Record `i` begins at `i * stride + excess(i)`, where `stride` is the least distance between two records,
//! so the excess never falls. Its lowest bits are stored as they are, the rest in unary: a bit string with
//! one set bit per record. A record is found by a search for the `i`-th set bit (Elias 1974, Fano 1971; Vigna
//! 2013 for the search). There is one entry more than there are records, for the end of the last record. The
//! file, all little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `stride` |
//! | 8 x ceil((records + 1) x low bits / 64) | the low bits of every excess |
//! | 8 x ceil((records + 1 + (last excess >> low bits)) / 64) | the bit string |
//!
//! `low bits` is the logarithm of the mean excess, rounded down, so it follows from `stride`, the number of
//! records and the length of their file.

use crate::allocate::{try_collect, try_with_capacity};
use crate::error::Unreadable;
use bathyal_tier::Span;

/// Bytes before the low bits.
const HEADER_BYTES: usize = 8;
/// Set bits between two remembered positions: a search reads two words on average, for one bit per record in
/// memory.
const SAMPLE: usize = 64;

/// The offsets of all records of a file, in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offsets {
    records: usize,
    stride: u64,
    low_bits: u32,
    low: Vec<u64>,
    high: Vec<u64>,
    /// The position in `high` of every [`SAMPLE`]-th set bit.
    samples: Vec<u64>,
    longest: u32,
}

/// The sizes that follow from the number of records, the length of their file and the stride.
struct OffsetShape {
    low_bits: u32,
    low_words: usize,
    high_words: usize,
}

impl OffsetShape {
    fn new(records: usize, file_bytes: u64, stride: u64) -> Option<OffsetShape> {
        let last = file_bytes.checked_sub(stride.checked_mul(records as u64)?)?;
        let low_bits = last.checked_div(records as u64)?.checked_ilog2().unwrap_or(0);
        let entries = records.checked_add(1)?;
        let low_words = entries.checked_mul(low_bits as usize)?.div_ceil(64);
        let high_words = entries.checked_add(usize::try_from(last >> low_bits).ok()?)?.div_ceil(64);
        Some(OffsetShape { low_bits, low_words, high_words })
    }
}

/// Returns the bytes of the file of offsets for records of `lengths` bytes, one after the other; empty
/// without records.
pub fn encode(lengths: &[u32]) -> Vec<u8> {
    let stride = u64::from(lengths.iter().copied().min().unwrap_or(0));
    let total = lengths.iter().map(|length| u64::from(*length)).sum();
    let Some(shape) = OffsetShape::new(lengths.len(), total, stride) else { return Vec::new() };
    let mut low = vec![0_u64; shape.low_words];
    let mut high = vec![0_u64; shape.high_words];
    let mut excess = 0;
    for i in 0..=lengths.len() {
        let (at, one) = (i * shape.low_bits as usize, (excess >> shape.low_bits) as usize + i);
        let rest = excess & ((1 << shape.low_bits) - 1);
        if shape.low_bits > 0 {
            low[at / 64] |= rest << (at % 64);
            if at % 64 + shape.low_bits as usize > 64 {
                low[at / 64 + 1] |= rest >> (64 - at % 64);
            }
        }
        high[one / 64] |= 1 << (one % 64);
        excess += lengths.get(i).map_or(0, |length| u64::from(*length) - stride);
    }
    let words = [stride].into_iter().chain(low).chain(high);
    words.flat_map(u64::to_le_bytes).collect()
}

impl Offsets {
    /// Parses the offsets of `records` records in a file of `file_bytes` bytes, from the bytes that
    /// [`encode`] made.
    ///
    /// # Errors
    /// A sentence if they do not divide the whole file into records.
    pub fn from_bytes(bytes: &[u8], records: u64, file_bytes: u64) -> Result<Offsets, Unreadable> {
        let too_many = || format!("{records} records are too many");
        let records = usize::try_from(records).map_err(|_| too_many())?;
        let (words, rest) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let stride = words.next().ok_or("the offsets have no header")?;
        let shape = OffsetShape::new(records, file_bytes, stride).ok_or_else(|| {
            format!("{records} records of at least {stride} bytes do not fit a file of {file_bytes} bytes")
        })?;
        let expected = shape.low_words.checked_add(shape.high_words).and_then(|w| w.checked_mul(8));
        if expected != Some(bytes.len() - HEADER_BYTES) || !rest.is_empty() {
            return Err(format!(
                "a file of {} bytes does not have the offsets of {records} records in {file_bytes} bytes",
                bytes.len()
            )
            .into());
        }
        let low = try_collect("the offsets of records", words.by_ref().take(shape.low_words))?;
        let high = try_collect("the offsets of records", words)?;
        let ones: usize = high.iter().map(|word| word.count_ones() as usize).sum();
        if ones != records + 1 {
            return Err(format!("there are {ones} offsets instead of {}", records + 1).into());
        }
        let samples = try_with_capacity("the offsets of records", records / SAMPLE + 1)?;
        let mut offsets =
            Offsets { records, stride, low_bits: shape.low_bits, low, high, samples, longest: 0 };
        offsets.remember_samples();
        offsets.check(file_bytes)?;
        Ok(offsets)
    }

    fn remember_samples(&mut self) {
        let mut seen = 0_usize;
        for (at, word) in self.high.iter().enumerate() {
            let ones = word.count_ones() as usize;
            // The first sampled bit at or behind this word.
            let next = seen.next_multiple_of(SAMPLE);
            if next < seen + ones {
                let bit = nth_one(*word, next - seen);
                self.samples.push(at as u64 * 64 + u64::from(bit));
            }
            seen += ones;
        }
    }

    /// Checks that the offsets ascend from 0 to the end of the file, in steps that fit a span. Finds the
    /// longest record.
    fn check(&mut self, file_bytes: u64) -> Result<(), String> {
        let (mut entry, mut before) = (0, 0);
        for at in 0..self.high.len() {
            let mut word = self.high[at];
            while word != 0 {
                let start = self.start(entry, at as u64 * 64 + u64::from(word.trailing_zeros()));
                word &= word - 1;
                let length = start.checked_sub(before).and_then(|length| u32::try_from(length).ok());
                match length {
                    Some(0) if entry == 0 => {}
                    Some(length) if entry > 0 && length > 0 => self.longest = self.longest.max(length),
                    _ => return Err(format!("offset {entry} is {start} after {before}")),
                }
                (entry, before) = (entry + 1, start);
            }
        }
        if before != file_bytes {
            return Err(format!("the last record ends at {before} of {file_bytes} bytes"));
        }
        Ok(())
    }

    /// Returns the offset of entry `i`, whose set bit is at `one`.
    #[inline]
    fn start(&self, i: usize, one: u64) -> u64 {
        // Checked offsets do not wrap. Unchecked ones may, and are then refused by the check.
        let excess = one.wrapping_sub(i as u64) << self.low_bits | self.low(i);
        self.stride.wrapping_mul(i as u64).wrapping_add(excess)
    }

    #[inline]
    fn low(&self, i: usize) -> u64 {
        if self.low_bits == 0 {
            return 0;
        }
        let at = i * self.low_bits as usize;
        let (word, bit) = (at / 64, at % 64);
        let mut value = self.low[word] >> bit;
        if bit + self.low_bits as usize > 64 {
            value |= self.low[word + 1] << (64 - bit);
        }
        value & ((1 << self.low_bits) - 1)
    }

    /// Returns the span of record `i`; an empty span if there is no such record.
    #[inline]
    pub fn span(&self, i: u32) -> Span {
        let i = i as usize;
        if i >= self.records {
            return Span { offset: 0, len: 0 };
        }
        let sample = self.samples[i / SAMPLE];
        let mut at = (sample / 64) as usize;
        let mut word = self.high[at] & (u64::MAX << (sample % 64));
        let mut left = i % SAMPLE;
        loop {
            let ones = word.count_ones() as usize;
            if left < ones {
                break;
            }
            left -= ones;
            at += 1;
            word = self.high[at];
        }
        let bit = nth_one(word, left);
        let start = self.start(i, at as u64 * 64 + u64::from(bit));
        // Keep the bits behind this one. The shift is in two steps because it may be by 64.
        word &= u64::MAX << bit << 1;
        while word == 0 {
            at += 1;
            word = self.high[at];
        }
        let end = self.start(i + 1, at as u64 * 64 + u64::from(word.trailing_zeros()));
        Span { offset: start, len: (end - start) as u32 }
    }

    /// Returns the number of records.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Returns the bytes of the longest record, including padding up to the next record.
    pub fn longest(&self) -> u32 {
        self.longest
    }

    /// Returns the bytes that the offsets take in memory.
    pub fn memory_bytes(&self) -> u64 {
        8 * (self.low.len() + self.high.len() + self.samples.len()) as u64
    }

    /// Returns the approximate bytes in memory of the offsets in a file of `file_bytes` bytes.
    pub fn planned_bytes(file_bytes: u64, records: u64) -> u64 {
        file_bytes + 8 * records.div_ceil(SAMPLE as u64)
    }
}

/// The position of each set bit of a byte, for the last step of [`nth_one`].
const ONES_OF_BYTE: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut n) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[byte][n] = bit as u8;
                n += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// Returns the position of set bit number `n` (from 0) of a word with more than `n` set bits. It has no
/// branches, since each mispredicted branch would cost more than the whole function (Vigna 2008).
#[inline]
fn nth_one(word: u64, n: usize) -> u32 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    let pairs = word - ((word >> 1) & (LOW * 0x55));
    let nibbles = (pairs & (LOW * 0x33)) + ((pairs >> 2) & (LOW * 0x33));
    // Each byte gets the number of set bits in it and in the bytes below.
    let sums = ((nibbles + (nibbles >> 4)) & (LOW * 0x0f)).wrapping_mul(LOW);
    let below = ((LOW.wrapping_mul(n as u64) | HIGH).wrapping_sub(sums) & HIGH) >> 7;
    let byte = (below.wrapping_mul(LOW) >> 56) as u32 & 7;
    let before = ((sums << 8) >> (8 * byte)) as usize & 0xff;
    let bits = ONES_OF_BYTE[(word >> (8 * byte)) as usize & 0xff];
    8 * byte + u32::from(bits[n.wrapping_sub(before) & 7])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng};

    fn total(lengths: &[u32]) -> u64 {
        lengths.iter().map(|length| u64::from(*length)).sum()
    }

    fn round_trip(lengths: &[u32]) -> usize {
        let bytes = encode(lengths);
        let offsets = Offsets::from_bytes(&bytes, lengths.len() as u64, total(lengths)).unwrap();
        let mut start = 0;
        for (i, length) in lengths.iter().enumerate() {
            assert_eq!(offsets.span(i as u32), Span { offset: start, len: *length }, "record {i}");
            start += u64::from(*length);
        }
        assert_eq!(offsets.longest(), lengths.iter().copied().max().unwrap());
        assert_eq!(offsets.span(lengths.len() as u32).len, 0);
        assert_eq!(offsets.span(u32::MAX).len, 0);
        bytes.len()
    }

    #[test]
    fn lengths_of_all_kinds_round_trip() {
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        for (count, range) in [
            (1, 1..2),
            (1, 70_000..70_001),
            (2, 1..500),
            (63, 9..10),
            (64, 1..3),
            (65, 180..260),
            (5000, 1..100_000),
            (20_000, 160..220),
        ] {
            let lengths: Vec<u32> = (0..count).map(|_| random.random_range(range.clone())).collect();
            round_trip(&lengths);
        }
        // One very long record among short ones.
        let mut lengths = vec![5_u32; 3000];
        lengths[7] = 4_000_000_000;
        round_trip(&lengths);
    }

    #[test]
    fn set_bits_are_found() {
        let mut random = rand::rngs::StdRng::seed_from_u64(4);
        for round in 0..2000 {
            let word = match round {
                0 => u64::MAX,
                1 => 1 << 63,
                _ => random.random::<u64>() & random.random::<u64>() | 1 << (round % 64),
            };
            let ones = (0..64).filter(|bit| word >> bit & 1 == 1);
            for (n, bit) in ones.enumerate() {
                assert_eq!(nth_one(word, n), bit, "{word:x}");
            }
        }
    }

    #[test]
    fn an_offset_takes_a_few_bits() {
        let mut random = rand::rngs::StdRng::seed_from_u64(2);
        let lengths: Vec<u32> = (0..100_000).map(|_| random.random_range(150..220)).collect();
        let bits = 8.0 * round_trip(&lengths) as f64 / lengths.len() as f64;
        assert!(bits < 7.6, "{bits}");
        assert!(8.0 * round_trip(&[190; 100_000]) as f64 / 100_000.0 < 1.01);
    }

    #[test]
    fn offsets_that_do_not_end_at_the_end_of_the_file_are_refused() {
        let lengths: Vec<u32> = (0..500).map(|i| 100 + i * 7 % 90).collect();
        let bytes = encode(&lengths);
        let read = |bytes: &[u8], records, length| Offsets::from_bytes(bytes, records, length);
        assert!(read(&bytes, 500, total(&lengths)).is_ok());
        assert!(read(&bytes, 499, total(&lengths)).is_err());
        assert!(read(&bytes, 501, total(&lengths)).is_err());
        assert!(read(&bytes, 0, total(&lengths)).is_err());
        assert!(read(&bytes, u64::MAX, total(&lengths)).is_err());
        assert!(read(&bytes, 500, total(&lengths) + 1).is_err(), "past the end");
        assert!(read(&bytes, 500, u64::MAX).is_err());
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len], 500, total(&lengths)).is_err(), "cut to {len}");
        }
        // Falling low parts, with all else unchanged, are not monotone.
        let mut random = rand::rngs::StdRng::seed_from_u64(3);
        let mut refused = 0;
        for _ in 0..2000 {
            let mut damaged = bytes.clone();
            let bit = random.random_range(0..bytes.len() * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
            match read(&damaged, 500, total(&lengths)) {
                Err(_) => refused += 1,
                // Still valid offsets from start to end; the file's checksum detects the damage.
                Ok(offsets) => {
                    let end = (0..500).map(|i| offsets.span(i)).fold(0, |end, span| {
                        assert_eq!(span.offset, end);
                        assert!(span.len > 0);
                        span.end()
                    });
                    assert_eq!(end, total(&lengths));
                }
            }
        }
        assert!(refused > 500, "{refused}");
    }

    proptest! {
        #[test]
        fn any_lengths_round_trip(
            lengths in prop::collection::vec(
                prop_oneof![
                    4 => 1_u32..300,
                    1 => 1..70_000_u32,
                    1 => Just(1),
                    1 => any::<u32>().prop_map(|n| n.max(1)),
                ],
                1..300,
            ),
        ) {
            round_trip(&lengths);
        }

        #[test]
        fn any_bytes_are_refused_or_lead_from_start_to_end(
            bytes in prop::collection::vec(
                prop_oneof![2 => Just(0_u8), 1 => Just(0xff), 2 => any::<u8>()],
                0..120,
            ),
            records in 0_u64..40, file_bytes in 0_u64..2_000,
        ) {
            if let Ok(offsets) = Offsets::from_bytes(&bytes, records, file_bytes) {
                let mut end = 0;
                for i in 0..records as u32 {
                    let span = offsets.span(i);
                    prop_assert!(span.offset == end && span.len > 0 && span.len <= offsets.longest());
                    end = span.end();
                }
                prop_assert_eq!(end, file_bytes);
                prop_assert_eq!(offsets.span(records as u32).len, 0);
            }
        }

        #[test]
        fn damaged_offsets_are_refused_or_lead_from_start_to_end(
            lengths in prop::collection::vec(1_u32..500, 1..200),
            at in any::<prop::sample::Index>(),
            value in any::<u8>(),
        ) {
            let mut bytes = encode(&lengths);
            let at = at.index(bytes.len());
            bytes[at] = value;
            if let Ok(offsets) = Offsets::from_bytes(&bytes, lengths.len() as u64, total(&lengths)) {
                let end = (0..lengths.len() as u32).try_fold(0, |end, i| {
                    let span = offsets.span(i);
                    (span.offset == end && span.len > 0).then(|| span.end())
                });
                prop_assert_eq!(end, Some(total(&lengths)));
            }
        }
    }
}
