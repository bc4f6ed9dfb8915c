//! The fence of a segment's ids: finds the block of an id or of a row. It stays in memory.

use super::block::{BLOCK_NUMBERS, Key};
use super::id_writer::FenceEntry;
use crate::ids::{IdKind, MAX_ID_BYTES};
use bathyal_index::format::identity::Identity;

/// The fence of the ids of a segment.
#[derive(Debug)]
pub(super) enum Fence {
    /// The first number of every block; all blocks but the last are full.
    Numbers(Vec<u64>),
    /// For texts.
    Texts {
        /// The first row of every block.
        rows: Vec<u32>,
        /// The end of each block's divider in `dividers`.
        ends: Vec<u32>,
        /// Dividers: each is above all ids of the block before and not above those of its own block.
        dividers: Vec<u8>,
    },
}

impl Fence {
    /// Reads the fence of `rows` ids.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn read(
        kind: IdKind,
        identity: Identity,
        entry: &FenceEntry,
        rows: u32,
        bytes: &[u8],
    ) -> Result<Fence, String> {
        if bytes.len() as u64 != entry.bytes || identity.checksum(bytes) != entry.crc32c {
            return Err("the checksum of the fence is wrong".into());
        }
        let blocks = entry.blocks as usize;
        let words = |bytes: &[u8]| -> Vec<u32> {
            bytes
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .collect()
        };
        let fence = match kind {
            IdKind::Number => {
                if bytes.len() != 8 * blocks || blocks != (rows as usize).div_ceil(BLOCK_NUMBERS) {
                    return Err(format!("the fence does not fit {rows} numbers"));
                }
                let number =
                    |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
                Fence::Numbers(bytes.chunks_exact(8).map(number).collect())
            }
            IdKind::Text => {
                let (block_words, dividers) =
                    bytes.split_at_checked(8 * blocks).ok_or("the fence is too short for its blocks")?;
                let (first, ends) = block_words.split_at(4 * blocks);
                Fence::Texts { rows: words(first), ends: words(ends), dividers: dividers.to_vec() }
            }
        };
        fence.check(rows)?;
        Ok(fence)
    }

    fn check(&self, count: u32) -> Result<(), String> {
        match self {
            Fence::Numbers(numbers) => {
                if numbers.is_empty() || !numbers.is_sorted_by(|one, next| one < next) {
                    return Err("the numbers of the fence are not in ascending order".into());
                }
            }
            Fence::Texts { rows, ends, dividers } => {
                let rising = rows.is_sorted_by(|one, next| one < next);
                if !rising || rows.first() != Some(&0) || rows.last() >= Some(&count) {
                    return Err(format!("the rows of the fence do not fit {count} ids"));
                }
                let mut last = 0;
                let bounded = ends.iter().all(|end| {
                    let fits = (1..=MAX_ID_BYTES).contains(&(*end as usize).wrapping_sub(last));
                    last = *end as usize;
                    fits
                });
                if !bounded || last != dividers.len() {
                    return Err("the texts of the fence are out of bounds".into());
                }
                if (1..ends.len()).any(|at| self.divider(at - 1) >= self.divider(at)) {
                    return Err("the texts of the fence are not in ascending order".into());
                }
            }
        }
        Ok(())
    }

    /// Returns the divider between a block and the one before.
    fn divider(&self, block: usize) -> Key<'_> {
        match self {
            Fence::Numbers(numbers) => Key::Number(numbers[block]),
            Fence::Texts { ends, dividers, .. } => {
                let start = block.checked_sub(1).map_or(0, |before| ends[before]);
                Key::Text(&dividers[start as usize..ends[block] as usize])
            }
        }
    }

    /// Returns the number of blocks; at least one.
    pub(super) fn blocks(&self) -> u32 {
        match self {
            Fence::Numbers(numbers) => numbers.len() as u32,
            Fence::Texts { rows, .. } => rows.len() as u32,
        }
    }

    /// Returns the block that contains `id` if any does; the first block for an id below all.
    pub(super) fn block_of(&self, id: Key<'_>) -> u32 {
        let (mut low, mut high) = (0, self.blocks() as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.divider(middle) <= id { low = middle + 1 } else { high = middle }
        }
        low.saturating_sub(1) as u32
    }

    /// Returns the block of a row.
    pub(super) fn block_of_row(&self, row: u32) -> u32 {
        match self {
            Fence::Numbers(_) => row / BLOCK_NUMBERS as u32,
            Fence::Texts { rows, .. } => rows.partition_point(|first| *first <= row).saturating_sub(1) as u32,
        }
    }

    /// Returns the first row of a block; the number of rows for a block beyond the last.
    pub(super) fn first_row(&self, block: u32, count: u32) -> u32 {
        match self {
            Fence::Numbers(_) => block.saturating_mul(BLOCK_NUMBERS as u32).min(count),
            Fence::Texts { rows, .. } => rows.get(block as usize).copied().unwrap_or(count),
        }
    }

    /// Returns the bytes of memory.
    pub(super) fn held_bytes(&self) -> u64 {
        (match self {
            Fence::Numbers(numbers) => 8 * numbers.len(),
            Fence::Texts { rows, dividers, .. } => 8 * rows.len() + dividers.len(),
        }) as u64
    }
}
