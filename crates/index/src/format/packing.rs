//! How the blocks of a file follow each other: the one arithmetic of all layouts that find a block by its number.
//!
//! A block is what one checksum covers and one read brings: a page of several records, or one long record. Devices move
//! sectors of 512 or 4,096 bytes, and a read may begin at any of them, so nothing is gained by filling up a block of 4,104
//! bytes to two pages of 4 KiB: it lies back to back with the next. A block that nearly fills whole pages or sectors is
//! filled up, since one that is aligned like the device never takes a sector more than it must.

use super::pages::PAGE_BYTES;

/// What any device can align reads to at most.
pub const LARGEST_ALIGNMENT: usize = 4096;
/// The smallest sector of a device.
pub const SECTOR_BYTES: usize = 512;
/// One byte in so many may be lost to alignment: with ids and checksums, 6% of vectors of 512 bytes is the most.
const MOST_WASTE: usize = 25;

/// Bytes from the start of a block of `bytes` to that of the next.
pub fn stride(bytes: usize) -> usize {
    let aligned = [PAGE_BYTES as usize, SECTOR_BYTES].map(|unit| bytes.next_multiple_of(unit));
    let cheap = aligned.into_iter().find(|aligned| (aligned - bytes) * MOST_WASTE <= *aligned);
    cheap.unwrap_or(bytes)
}

/// Bytes of a buffer for a read of `bytes` that begins at a multiple of `stride`, whatever a device aligns reads to.
pub fn buffer_bytes(bytes: usize, stride: usize) -> usize {
    // Where blocks begin, seen from the last boundary before.
    let step = 1 << stride.trailing_zeros().min(LARGEST_ALIGNMENT.trailing_zeros());
    (LARGEST_ALIGNMENT - step + bytes).next_multiple_of(LARGEST_ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_where_that_is_cheap_and_back_to_back_elsewhere() {
        for (bytes, expected) in [
            (4096, 4096),
            (4044, 4096),
            (3960, 4096),
            (3616, 3616),
            (1000, 1024),
            (4104, 4104),
            (12_300, 12_800),
        ] {
            assert_eq!(stride(bytes), expected, "{bytes}");
        }
        for bytes in 1..20_000 {
            assert!((bytes..=bytes * MOST_WASTE / (MOST_WASTE - 1)).contains(&stride(bytes)), "{bytes}");
        }
    }

    #[test]
    fn buffers_hold_what_a_device_brings() {
        for (bytes, stride) in [(4096, 4096), (3080, 3080), (4104, 4104), (1024, 1024), (512, 1536), (7, 7)] {
            let buffer = buffer_bytes(bytes, stride);
            let aligned = |start: usize| {
                (start + bytes).next_multiple_of(LARGEST_ALIGNMENT)
                    - start / LARGEST_ALIGNMENT * LARGEST_ALIGNMENT
            };
            let longest = (0..5000).map(|block| aligned(block * stride)).max();
            assert_eq!(longest, Some(buffer), "{bytes} at {stride}");
        }
    }
}
