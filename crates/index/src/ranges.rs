//! Reads ranges of an object: near ranges together, and many at once if each read has a high latency.

use bathyal_store::{Object, StoreError};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest gap between two ranges that are read together from a local device: reading it takes no longer than
/// a second read.
const NEAR_GAP_BYTES: u64 = 4 << 10;
/// Largest gap between two ranges that one request of a remote store reads, as in searches.
const FAR_GAP_BYTES: u64 = bathyal_object::GAP_BYTES;
/// Most bytes of a read, which limits the size of a buffer.
const MOST_READ_BYTES: u64 = 4 << 20;
/// Reads in flight at once if each is a request.
const FAR_READS: usize = 16;

/// A run of bytes that was read from an object.
#[derive(Debug, Clone)]
pub struct Run {
    /// The offset of the run in the object.
    pub start: u64,
    /// The bytes of the run.
    pub bytes: Bytes,
}

impl Run {
    /// Returns the bytes of `range`, if the run contains all of them.
    pub fn get(&self, range: Range<u64>) -> Option<Bytes> {
        let (from, to) = (range.start.checked_sub(self.start)?, range.end.checked_sub(self.start)?);
        (from <= to && to <= self.bytes.len() as u64).then(|| self.bytes.slice(from as usize..to as usize))
    }
}

/// Reads all of `wanted`, whose starts ascend, in few reads; `far` is true if each read is a request.
///
/// # Errors
/// [`StoreError::Short`] if the object is too short; other errors of reading.
pub fn read_runs(
    object: &dyn Object,
    wanted: impl IntoIterator<Item = Range<u64>>,
    far: bool,
) -> Result<Vec<Run>, StoreError> {
    let gap = if far { FAR_GAP_BYTES } else { NEAR_GAP_BYTES };
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in wanted {
        match joined.last_mut() {
            Some(last)
                if range.start <= last.end.saturating_add(gap)
                    && range.end.max(last.end) - last.start <= MOST_READ_BYTES =>
            {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    if !far || joined.len() < 2 {
        return joined.into_iter().map(|range| read(object, range)).collect();
    }
    read_at_once(object, &joined)
}

/// Reads all of `ranges`, [`FAR_READS`] at a time.
fn read_at_once(object: &dyn Object, ranges: &[Range<u64>]) -> Result<Vec<Run>, StoreError> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let runs: Mutex<Vec<Run>> = Mutex::new(Vec::with_capacity(ranges.len()));
    std::thread::scope(|scope| {
        let read_next = || {
            while let Some(range) = ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
                match read(object, range.clone()) {
                    Ok(run) => runs.lock().unwrap_or_else(PoisonError::into_inner).push(run),
                    Err(error) => {
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        next.store(ranges.len(), Ordering::Relaxed);
                    }
                }
            }
        };
        // If a thread cannot be started, the others read its ranges.
        for _ in 1..FAR_READS.min(ranges.len()) {
            let _ = std::thread::Builder::new().spawn_scoped(scope, read_next);
        }
        read_next();
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    runs.sort_unstable_by_key(|run| run.start);
    Ok(runs)
}

fn read(object: &dyn Object, range: Range<u64>) -> Result<Run, StoreError> {
    let len = range.end.saturating_sub(range.start);
    let memory = || StoreError::Memory { path: object.address().to_path_buf(), bytes: len };
    let mut bytes = Vec::new();
    let capacity = usize::try_from(len).map_err(|_| memory())?;
    bytes.try_reserve_exact(capacity).map_err(|_| memory())?;
    bytes.resize(capacity, 0);
    object.read_at(range.start, &mut bytes)?;
    Ok(Run { start: range.start, bytes: bytes.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_store::memory::MemoryStore;
    use bathyal_store::{DraftExt, Replace, Store};

    #[test]
    fn near_ranges_are_read_together_and_completely() {
        let draft = MemoryStore::new("memory").begin("x", Replace::Never).unwrap();
        let content: Vec<u8> = (0..9_000_000u32).map(|at| (at / 3) as u8).collect();
        draft.put("data", &content).unwrap();
        let object = draft.get("data").unwrap();
        let ranges = || (0..2000u64).map(|at| 2 * at * at..2 * at * at + 700);
        for (far, most) in [(false, 1500), (true, 3)] {
            let runs = read_runs(&*object, ranges(), far).unwrap();
            assert!(runs.len() <= most && runs.len() > 1, "{} reads", runs.len());
            assert!(runs.iter().all(|run| run.bytes.len() as u64 <= MOST_READ_BYTES));
            for range in ranges() {
                let found = runs.iter().find_map(|run| run.get(range.clone())).unwrap();
                assert_eq!(found, content[range.start as usize..range.end as usize]);
            }
        }
        let scattered = (0..50u64).map(|at| at * 100_000..at * 100_000 + 1);
        assert_eq!(read_runs(&*object, scattered, true).unwrap().len(), 50);
        let error = read_runs(&*object, [0..1, 8_999_999..9_000_001], true).unwrap_err();
        assert!(matches!(error, StoreError::Short { .. }), "{error}");
    }
}
