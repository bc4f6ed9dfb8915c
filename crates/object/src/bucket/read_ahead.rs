//! Read-ahead for readers that read an object from front to back in small pieces: each request has a high
//! latency, so the next pieces are read with the first.

use std::ops::Range;
use std::sync::Mutex;

/// The first length of a read-ahead, when one piece follows another.
const FIRST_BYTES: u64 = 1 << 20;
/// The longest read-ahead.
const MAX_BYTES: u64 = 16 << 20;

/// The bytes that were read ahead, and the position of the next expected read.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    state: Mutex<ReadAheadState>,
}

#[derive(Debug, Default)]
struct ReadAheadState {
    /// The offset of `bytes` in the object.
    start: u64,
    bytes: Vec<u8>,
    /// The offset after the last piece that was read.
    next: u64,
    /// The length of the next read-ahead in bytes.
    step: u64,
}

impl ReadAhead {
    /// Fills `out` with the bytes from `offset` on of an object of `len` bytes, from the bytes read ahead or
    /// by `fetch`.
    pub(super) fn read<E>(
        &self,
        offset: u64,
        out: &mut [u8],
        len: u64,
        fetch: impl Fn(Range<u64>, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = offset + out.len() as u64;
        // Concurrent readers do not read from front to back.
        let Ok(mut state) = self.state.try_lock() else { return fetch(offset..end, out) };
        let follows = offset == state.next;
        state.next = end;
        if !follows || out.len() as u64 >= MAX_BYTES {
            *state = ReadAheadState { next: end, step: FIRST_BYTES, ..ReadAheadState::default() };
            return fetch(offset..end, out);
        }
        let ReadAheadState { start, bytes, step, .. } = &mut *state;
        if offset < *start || end > *start + bytes.len() as u64 {
            let wanted = (out.len() as u64).max(*step).min(len - offset);
            bytes.resize(wanted as usize, 0);
            *start = offset;
            if let Err(error) = fetch(offset..offset + wanted, bytes) {
                bytes.clear();
                return Err(error);
            }
            *step = (*step * 2).clamp(FIRST_BYTES, MAX_BYTES);
        }
        out.copy_from_slice(&bytes[(offset - *start) as usize..][..out.len()]);
        if end == len {
            // The end of the object was read, so the bytes are not needed again.
            state.bytes = Vec::new();
        }
        Ok(())
    }

    /// Drops the bytes that were read ahead.
    #[cfg(test)]
    fn clear(&self) {
        *self.state.lock().unwrap() = ReadAheadState::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn sequential_reads_are_read_ahead_and_scattered_ones_are_not() {
        let content: Vec<u8> = (0..40 << 20_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let (read_ahead, fetched) = (ReadAhead::default(), RefCell::new(Vec::new()));
        let read = |offset: usize, len: usize| {
            let mut out = vec![0; len];
            let fetch = |range: Range<u64>, out: &mut [u8]| {
                fetched.borrow_mut().push(range.end - range.start);
                out.copy_from_slice(&content[range.start as usize..range.end as usize]);
                Ok::<(), ()>(())
            };
            read_ahead.read(offset as u64, &mut out, content.len() as u64, fetch).unwrap();
            assert!(out == content[offset..offset + len], "{offset}");
        };
        (0..content.len()).step_by(1 << 16).for_each(|at| read(at, 1 << 16));
        let all = fetched.take();
        assert!(all.len() < 10, "{all:?}");
        assert_eq!(all.iter().sum::<u64>(), content.len() as u64);
        [5_000_000, 1_000_000, 9_000_000, 2_000_000].iter().for_each(|at| read(*at, 1000));
        assert_eq!(fetched.take(), [1000; 4]);
        read_ahead.clear();
        read(0, 20_000_000);
        assert_eq!(fetched.take(), [20_000_000], "a large read is not extended");
    }
}
