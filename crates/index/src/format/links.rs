//! Sets of ids in few bits: sorted, with Rice-coded gaps.
//!
//! A gap is the difference to the previous id, less one; the first id is its own gap. Its part above
//! `low_bits` is written in unary (as many ones, then a zero), followed by its `low_bits` lowest bits; bits
//! fill bytes from the lowest bit up. An id takes about `log2(range / count) + 1.6` bits; a plain number
//! takes `log2(range)`.

/// Most low bits that a decoder accepts; ids have 32 bits.
pub const MOST_LOW_BITS: u32 = 31;

/// Returns the bits that `sorted` (ascending, without duplicates) takes with the best number of low bits, and
/// that number.
pub fn encoded_bits(sorted: &[u32]) -> (usize, u32) {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return (0, 0) };
    // The best number is near the logarithm of the mean gap. Gaps between neighbours in the file lower it; a
    // first id that is far from zero but near the others raises it.
    let log_mean = |sum: u32| (f64::from(sum) / sorted.len() as f64).max(1.0).log2() as u32;
    let (least, most) = (log_mean(last - first).saturating_sub(4), log_mean(*last) + 1);
    let bits_with = |low: u32| sorted.len() * (low as usize + 1) + high_parts(sorted, low);
    (least..=most.min(MOST_LOW_BITS)).map(|low| (bits_with(low), low)).min().unwrap_or((0, 0))
}

fn high_parts(sorted: &[u32], low: u32) -> usize {
    gaps(sorted).map(|gap| (gap >> low) as usize).sum()
}

fn gaps(sorted: &[u32]) -> impl Iterator<Item = u32> + '_ {
    let before = std::iter::once(None).chain(sorted.iter().copied().map(Some));
    sorted.iter().zip(before).map(|(id, before)| before.map_or(*id, |before| id - before - 1))
}

/// Writes `sorted` into `out`, which is all zeros and has space for its [`encoded_bits`].
///
/// # Panics
/// If the space is too small, which is a builder's bug.
pub fn encode(sorted: &[u32], low: u32, out: &mut [u8]) {
    let mut at = 0;
    for gap in gaps(sorted) {
        for _ in 0..gap >> low {
            out[at / 8] |= 1 << (at % 8);
            at += 1;
        }
        at += 1;
        for bit in 0..low {
            out[at / 8] |= ((gap >> bit & 1) as u8) << (at % 8);
            at += 1;
        }
    }
    assert!(at <= out.len() * 8);
}

/// Reads `count` ids into `out`, which is emptied before. Returns the bits that they take.
///
/// # Errors
/// A sentence if the bits end too early or an id is not below `limit`.
pub fn decode(bytes: &[u8], count: usize, low: u32, limit: u32, out: &mut Vec<u32>) -> Result<usize, String> {
    out.clear();
    let low = low.min(MOST_LOW_BITS);
    let end = bytes.len() * 8;
    let (mut at, mut next) = (0_usize, 0_u64);
    for _ in 0..count {
        let (beyond, bits) = gap(bytes, at, low);
        at += bits;
        let id = next + beyond;
        if at > end || id >= u64::from(limit) {
            return Err(if at > end {
                "its links end too early".into()
            } else {
                format!("it links to {id}, but there are {limit} vectors")
            });
        }
        out.push(id as u32);
        next = id + 1;
    }
    Ok(at)
}

/// Returns the gap that begins at bit `at`, and the bits that it takes, which may extend beyond the end.
#[inline]
pub(super) fn gap(bytes: &[u8], mut at: usize, low: u32) -> (u64, usize) {
    let (start, mut high) = (at, 0_u64);
    loop {
        let ones = window(bytes, at).trailing_ones().min(WINDOW_BITS);
        high += u64::from(ones);
        at += ones as usize;
        if ones < WINDOW_BITS {
            break;
        }
    }
    at += 1;
    let rest = window(bytes, at) & ((1 << low) - 1);
    (high << low | rest, at + low as usize - start)
}

/// Returns true if all bits from `bit` on are zero.
pub(super) fn zero_from(bytes: &[u8], bit: usize) -> bool {
    let rest = bytes.get(bit / 8..).unwrap_or_default();
    rest.split_first().is_none_or(|(first, rest)| first >> (bit % 8) == 0 && rest.iter().all(|b| *b == 0))
}

/// Bits that every window has, for any start within a byte.
pub(super) const WINDOW_BITS: u32 = 56;

/// Returns the bits from `at` on; zeros beyond the end.
#[inline]
pub(super) fn window(bytes: &[u8], at: usize) -> u64 {
    let start = (at / 8).min(bytes.len());
    let word = match bytes[start..].first_chunk::<8>() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => {
            let mut padded = [0_u8; 8];
            padded[..bytes.len() - start].copy_from_slice(&bytes[start..]);
            u64::from_le_bytes(padded)
        }
    };
    (word >> (at % 8)) & ((1 << WINDOW_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn sets_of_all_kinds_round_trip() {
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        for (count, range) in
            [(0, 1), (1, 1), (1, u32::MAX), (300, 1000), (300, 1 << 20), (64, u32::MAX), (5000, 5000)]
        {
            for _ in 0..20 {
                let mut ids: Vec<u32> = (0..count).map(|_| random.random_range(0..range)).collect();
                ids.sort_unstable();
                ids.dedup();
                let (bits, low) = encoded_bits(&ids);
                let mut bytes = vec![0; bits.div_ceil(8)];
                encode(&ids, low, &mut bytes);
                let mut found = Vec::new();
                assert_eq!(decode(&bytes, ids.len(), low, range, &mut found), Ok(bits));
                assert_eq!(found, ids);
                if let Some(last) = ids.last() {
                    assert!(decode(&bytes, ids.len(), low, *last, &mut found).is_err());
                    assert!(decode(&bytes, ids.len() + 9, low, u32::MAX, &mut found).is_err());
                }
            }
        }
    }

    #[test]
    fn a_set_takes_few_bits() {
        let ids: Vec<u32> = (0..256).map(|i| i * 3907 + i * i % 1000).collect();
        assert!(encoded_bits(&ids).0 <= 256 * 14, "{}", encoded_bits(&ids).0);
    }

    #[test]
    fn few_neighbours_far_from_zero_take_few_bits() {
        let ids = [900_000, 900_004];
        assert!(encoded_bits(&ids).0 <= 42, "{}", encoded_bits(&ids).0);
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut random = rand::rngs::StdRng::seed_from_u64(2);
        let mut out = Vec::new();
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.random_range(0..40))
                .map(|_| random.random::<u8>() | random.random::<u8>())
                .collect();
            let (count, low) = (random.random_range(0..2000), random.random());
            let _ = decode(&bytes, count, low, random.random(), &mut out);
        }
    }
}
