//! The positions of the blocks of a file. All layouts that find a block by its number share this arithmetic.
//!
//! A block is the unit of one checksum and of one read: a page of several records, or one long record.
//! Devices move sectors of 512 or 4,096 bytes, and a read may begin at any of them. So padding a block of
//! 4,104 bytes to two pages of 4 KiB gains nothing: such blocks lie back to back. A block that nearly fills
//! whole pages or sectors is padded to them, since an aligned block never takes more sectors than it must.

use super::pages::PAGE_BYTES;

/// The largest alignment of reads that any device requires.
pub const LARGEST_ALIGNMENT: usize = 4096;
/// The smallest sector of a device.
pub const SECTOR_BYTES: usize = 512;
/// At most one byte in this many is lost to alignment. With ids and checksums, that is at most 6% for vectors
/// of 512 bytes.
const MOST_WASTE: usize = 25;

/// Returns the bytes from the start of a block of `bytes` bytes to the start of the next.
pub fn stride(bytes: usize) -> usize {
    let aligned = [PAGE_BYTES as usize, SECTOR_BYTES].map(|unit| bytes.next_multiple_of(unit));
    let cheap = aligned.into_iter().find(|aligned| (aligned - bytes) * MOST_WASTE <= *aligned);
    cheap.unwrap_or(bytes)
}

/// Returns the bytes of a buffer for a read of `bytes` bytes that begins at a multiple of `stride`, for any
/// alignment of a device.
pub fn buffer_bytes(bytes: usize, stride: usize) -> usize {
    // Blocks begin at multiples of this step after an aligned boundary.
    let step = 1 << stride.trailing_zeros().min(LARGEST_ALIGNMENT.trailing_zeros());
    (LARGEST_ALIGNMENT - step + bytes).next_multiple_of(LARGEST_ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_if_that_is_cheap_and_back_to_back_otherwise() {
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
    fn buffers_are_as_long_as_the_longest_aligned_read() {
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
