//! Going through a file from front to back, and noting what was met.

use crate::allocate::try_zeros;
use crate::error::IndexError;
use bathyal_store::Object;
use bathyal_vectors::progress::Progress;

/// Bytes read at once.
pub(crate) const READ_BYTES: usize = 4 << 20;

/// Calls `page` with the number and the bytes of each `unit` bytes of a file, and returns the file's CRC-32C.
pub(crate) fn read_through(
    object: &dyn Object,
    total: u64,
    unit: usize,
    progress: &dyn Progress,
    mut page: impl FnMut(u64, &[u8]),
) -> Result<u32, IndexError> {
    let mut buffer = vec![0_u8; (READ_BYTES / unit).max(1) * unit];
    let (mut left, mut crc, mut number) = (total, 0_u32, 0);
    while left > 0 {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let part = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        object.read_at(total - left, &mut buffer[..part])?;
        crc = crc32c::crc32c_append(crc, &buffer[..part]);
        for bytes in buffer[..part].chunks(unit) {
            page(number, bytes);
            number += 1;
        }
        left -= part as u64;
        progress.advance(total - left);
    }
    Ok(crc)
}

/// One bit a number.
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    /// No number below `numbers` is marked.
    ///
    /// # Errors
    /// [`IndexError::NoMemory`]: `numbers` may come from a manifest.
    pub(crate) fn new(numbers: u64) -> Result<Marks, IndexError> {
        try_zeros("marks of vectors", numbers as usize / 64 + 1).map(Marks).map_err(IndexError::from)
    }

    /// Marks `number`; true where it was not marked yet.
    pub(crate) fn mark(&mut self, number: u32) -> bool {
        let (word, bit) = (&mut self.0[number as usize / 64], 1 << (number % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Marks none.
    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }
}
