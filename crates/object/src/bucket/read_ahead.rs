//! Reading ahead for those who read an object from front to back in small pieces: each request to a store takes long, so the
//! next pieces come with the first.

use std::ops::Range;
use std::sync::Mutex;

/// Bytes that are read at first when one piece follows another.
const FIRST_BYTES: u64 = 1 << 20;
/// Bytes that are read ahead at most.
const MOST_BYTES: u64 = 16 << 20;

/// What was read, and what is expected to be read next.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    start: u64,
    bytes: Vec<u8>,
    /// Where the piece after the last one begins.
    next: u64,
    /// Bytes to read when it comes.
    step: u64,
}

impl Ahead {
    /// Fills `out` with what lies from `offset` on in an object of `len` bytes, by `fetch` if it is not here.
    pub(super) fn read<E>(
        &self,
        offset: u64,
        out: &mut [u8],
        len: u64,
        fetch: impl Fn(Range<u64>, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = offset + out.len() as u64;
        // Several who read at once do not read from front to back.
        let Ok(mut state) = self.state.try_lock() else { return fetch(offset..end, out) };
        let follows = offset == state.next;
        state.next = end;
        if !follows || out.len() as u64 >= MOST_BYTES {
            *state = State { next: end, step: FIRST_BYTES, ..State::default() };
            return fetch(offset..end, out);
        }
        let State { start, bytes, step, .. } = &mut *state;
        if offset < *start || end > *start + bytes.len() as u64 {
            let wanted = (out.len() as u64).max(*step).min(len - offset);
            bytes.resize(wanted as usize, 0);
            *start = offset;
            if let Err(error) = fetch(offset..offset + wanted, bytes) {
                bytes.clear();
                return Err(error);
            }
            *step = (*step * 2).clamp(FIRST_BYTES, MOST_BYTES);
        }
        out.copy_from_slice(&bytes[(offset - *start) as usize..][..out.len()]);
        if end == len {
            // Nobody comes back for it.
            state.bytes = Vec::new();
        }
        Ok(())
    }

    /// Forgets what was read.
    #[cfg(test)]
    fn forget(&self) {
        *self.state.lock().unwrap() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn one_after_the_other_is_read_ahead_and_here_and_there_is_not() {
        let content: Vec<u8> = (0..40 << 20_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let (ahead, fetched) = (Ahead::default(), RefCell::new(Vec::new()));
        let read = |offset: usize, len: usize| {
            let mut out = vec![0; len];
            let fetch = |range: Range<u64>, out: &mut [u8]| {
                fetched.borrow_mut().push(range.end - range.start);
                out.copy_from_slice(&content[range.start as usize..range.end as usize]);
                Ok::<(), ()>(())
            };
            ahead.read(offset as u64, &mut out, content.len() as u64, fetch).unwrap();
            assert!(out == content[offset..offset + len], "{offset}");
        };
        (0..content.len()).step_by(1 << 16).for_each(|at| read(at, 1 << 16));
        let all = fetched.take();
        assert!(all.len() < 10, "{all:?}");
        assert_eq!(all.iter().sum::<u64>(), content.len() as u64);
        [5_000_000, 1_000_000, 9_000_000, 2_000_000].iter().for_each(|at| read(*at, 1000));
        assert_eq!(fetched.take(), [1000; 4]);
        ahead.forget();
        read(0, 20_000_000);
        assert_eq!(fetched.take(), [20_000_000], "what is large is read as it is");
    }
}
