//! Lists of ascending numbers in few bits that decode in a few instructions each: four bits select the size
//! class of a gap, and the bits of that class follow.
//!
//! A gap is the difference to the previous number, less one; the first number is its own gap. Gaps fall into
//! 16 [`Buckets`], about one for each length in bits. The first part of the list has the bucket of every gap,
//! four bits each. The second part has each gap's offset from the start of its bucket, in as many bits as the
//! bucket takes. If the numbers are places in a file in which near vectors are close together, gaps of every
//! length are about equally frequent. Neither a Rice code ([`super::links`]: made for one mean) nor one width
//! for several gaps is then as short (`docs/format/csr.md`). The position of a gap's bits is a sum of widths
//! and needs no other gap, which makes decoding fast.

/// Number of buckets: four bits distinguish them.
const BUCKETS: usize = 16;

/// The code of gaps below a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    /// The first gap of each bucket.
    first: [u32; BUCKETS],
    /// Bits of a gap's offset in each bucket.
    width: [u8; BUCKETS],
    limit: u32,
}

impl Buckets {
    /// Returns buckets for numbers below `limit`: bucket `b` has 2^(b x t / 15) gaps (rounded down), with the
    /// least `t` for which all buckets together have `limit` gaps.
    pub fn new(limit: u32) -> Buckets {
        let widths = |top: usize| std::array::from_fn(|b| (b * top / (BUCKETS - 1)) as u8);
        let covers =
            |width: &[u8; BUCKETS]| width.iter().map(|w| 1_u64 << w).sum::<u64>() >= u64::from(limit);
        let width: [u8; BUCKETS] = (0..=32).map(widths).find(covers).unwrap_or([32; BUCKETS]);
        let mut first = [0; BUCKETS];
        for b in 1..BUCKETS {
            first[b] = first[b - 1] + (1 << width[b - 1]);
        }
        Buckets { first, width, limit }
    }

    /// Returns the bits of the longest gap, including its bucket.
    pub fn most_bits(&self) -> usize {
        4 + usize::from(self.width[BUCKETS - 1])
    }

    #[inline]
    fn bucket_of(&self, gap: u32) -> usize {
        self.first.iter().rposition(|first| *first <= gap).unwrap_or(0)
    }

    /// Appends `sorted` (ascending, without duplicates, below the limit) to `out`, in whole bytes.
    pub fn encode(&self, sorted: &[u32], out: &mut Vec<u8>) {
        let heads = out.len();
        out.resize(heads + sorted.len().div_ceil(2), 0);
        let mut next = 0;
        let (mut word, mut bits) = (0_u64, 0_u32);
        for (i, id) in sorted.iter().enumerate() {
            let gap = id - next;
            next = id + 1;
            let bucket = self.bucket_of(gap);
            out[heads + i / 2] |= (bucket as u8) << (4 * (i % 2));
            word |= u64::from(gap - self.first[bucket]) << bits;
            bits += u32::from(self.width[bucket]);
            while bits >= 8 {
                out.push(word as u8);
                (word, bits) = (word >> 8, bits - 8);
            }
        }
        if bits > 0 {
            out.push(word as u8);
        }
    }

    /// Reads `count` numbers that begin at byte `at` of `bytes` into `out`, which is emptied before. Returns
    /// the position of their end, in bits from the start of `bytes`.
    ///
    /// # Errors
    /// A sentence when the bytes end too early or a number is not below the limit.
    #[inline]
    pub fn decode(&self, bytes: &[u8], at: usize, count: usize, out: &mut Vec<u32>) -> Result<usize, String> {
        out.clear();
        let (Some(heads), Some(last)) = (bytes.get(at..at + count.div_ceil(2)), bytes.len().checked_sub(8))
        else {
            return self.decode_short(bytes, at, count, out);
        };
        let mut bit = 8 * (at + heads.len());
        let mut next = 0_u64;
        let mut gap = |bucket: u8| {
            let bucket = usize::from(bucket) % BUCKETS;
            // Near the end of the bytes, take the last eight bytes and shift more. If `bit` passes the end,
            // the check below finds it.
            let start = (bit / 8).min(last);
            let word = bytes[start..].first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
            let width = self.width[bucket];
            let rest = word.wrapping_shr((bit - 8 * start) as u32) & ((1 << width) - 1);
            bit += usize::from(width);
            let id = next + u64::from(self.first[bucket]) + rest;
            next = id + 1;
            id as u32
        };
        out.reserve(count + 1);
        for pair in heads {
            out.push(gap(pair & 15));
            // If the number of gaps is odd, the last half byte is removed below; it is bucket 0, which takes
            // no bits.
            out.push(gap(pair >> 4));
        }
        let odd = count % 2;
        if odd == 1 && heads.last().is_some_and(|pair| pair >> 4 != 0) {
            return Err("there are more links than its degree".into());
        }
        out.truncate(count);
        let largest = next.saturating_sub(1 + odd as u64);
        self.check_end(bit, bytes.len(), largest, count)
    }

    #[inline]
    fn check_end(&self, bit: usize, len: usize, largest: u64, count: usize) -> Result<usize, String> {
        if bit > 8 * len {
            return Err("its links end too early".into());
        }
        if count > 0 && largest >= u64::from(self.limit) {
            return Err(format!("it links to {largest}, but there are {} vectors", self.limit));
        }
        Ok(bit)
    }

    /// Decodes from fewer bytes than a word has, or fails.
    #[cold]
    fn decode_short(
        &self,
        bytes: &[u8],
        at: usize,
        count: usize,
        out: &mut Vec<u32>,
    ) -> Result<usize, String> {
        if bytes.len() >= 8 || bytes.len() < at + count.div_ceil(2) {
            return Err("its links end too early".into());
        }
        let mut padded = [0_u8; 16];
        padded[..bytes.len()].copy_from_slice(bytes);
        let bit = self.decode(&padded, at, count, out)?;
        self.check_end(bit, bytes.len(), 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn lists_of_all_kinds_round_trip() {
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        for limit in [1, 2, 3, 17, 1000, 1 << 20, u32::MAX] {
            let buckets = Buckets::new(limit);
            for count in [0, 1, 2, 3, 7, 32, 33, 300] {
                for before in [0, 1, 9] {
                    let near = random.random_range(0..limit);
                    let mut ids: Vec<u32> = (0..count)
                        .map(|i| match i % 3 {
                            0 => random.random_range(0..limit),
                            1 => near,
                            _ => near.saturating_add(random.random_range(0..40)).min(limit - 1),
                        })
                        .chain([limit - 1])
                        .take(count)
                        .collect();
                    ids.sort_unstable();
                    ids.dedup();
                    let mut bytes = vec![7; before];
                    buckets.encode(&ids, &mut bytes);
                    assert!(8 * bytes.len() <= 8 * before + ids.len() * buckets.most_bits() + 4 + 7);
                    let mut found = Vec::new();
                    let bits = buckets.decode(&bytes, before, ids.len(), &mut found).unwrap();
                    assert_eq!(found, ids, "limit {limit}");
                    assert_eq!(bits.div_ceil(8), bytes.len());
                    if !ids.is_empty() {
                        let cut = &bytes[..bytes.len() - 1];
                        assert!(buckets.decode(cut, before, ids.len(), &mut found).is_err());
                    }
                    assert!(buckets.decode(&bytes, before, 5000, &mut found).is_err());
                }
            }
        }
    }

    #[test]
    fn ids_beyond_the_limit_are_refused() {
        let buckets = Buckets::new(1000);
        let mut bytes = Vec::new();
        Buckets::new(2000).encode(&[5, 1000], &mut bytes);
        let mut found = Vec::new();
        // The buckets of both limits are equal or nearly so; a decoded number is below the limit, or decoding
        // fails.
        if buckets.decode(&bytes, 0, 2, &mut found).is_ok() {
            assert!(found.iter().all(|id| *id < 1000));
        }
        let full = [0xff; 64];
        assert!(buckets.decode(&full, 0, 9, &mut found).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut random = rand::rngs::StdRng::seed_from_u64(2);
        let mut out = Vec::new();
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.random_range(0..60)).map(|_| random.random()).collect();
            let buckets = Buckets::new(random.random_range(1..=u32::MAX) >> random.random_range(0..32));
            let (at, count) = (random.random_range(0..70), random.random_range(0..100));
            if buckets.decode(&bytes, at, count, &mut out).is_ok() {
                assert!(out.len() == count && out.iter().all(|id| *id < buckets.limit));
                assert!(out.is_sorted());
            }
        }
    }
}
