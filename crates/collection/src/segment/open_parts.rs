//! The open parts of segments, in all collections of this process. With thousands of small collections these
//! exceed the limit of open files. Then the least recently used ones are closed; they are opened again when
//! needed.

use super::OpenedRows;
use super::columns::Columns;
use super::id_map::IdMap;
use super::lazy::Lazy;
use super::manifest::Manifest;
use super::vector_memory::FieldIndex;
use crate::error::CollectionError;
use bathyal_tier::process::open_files_limit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The open-files limit of the process, divided by this, is the most open files of segments.
const FILES_DIVISOR: u64 = 2;
/// The most open files of segments, whatever the limit of the process: open files take memory, too.
const MAX_OPEN_FILES: u64 = 4096;
/// Open files of a segment besides its indexes: ids and columns.
const ROW_FILES: u64 = 2;

/// Vectors in memory that were not searched for this long may be evicted. If several segments are searched in
/// turn and do not all fit, this keeps them from being loaded again and again.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// Interval between searches for vectors to evict.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);

/// The segments with open parts.
static OPEN: Mutex<Vec<Weak<OpenParts>>> = Mutex::new(Vec::new());
/// The time from which uses are timed.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Time of the last search for vectors to evict, in nanoseconds since [`START`].
static LAST_EVICTION: AtomicU64 = AtomicU64::new(0);

/// Returns the nanoseconds since [`START`].
fn now() -> u64 {
    START.elapsed().as_nanos() as u64
}

/// The parts of a segment, opened when needed.
pub(super) struct OpenParts {
    pub(super) rows: Lazy<OpenedRows>,
    pub(super) ids: Lazy<IdMap>,
    pub(super) columns: Lazy<Columns>,
    /// The index of each vector field.
    pub(super) indexes: Vec<Lazy<FieldIndex>>,
    /// Number of open files if all parts are open.
    files: u64,
    /// Time of the last use, in nanoseconds since [`START`].
    last_used: AtomicU64,
    /// True if the segment is in [`OPEN`]. Written under that lock.
    listed: AtomicBool,
}

impl OpenParts {
    pub(super) fn new(fields: usize, remote: bool) -> OpenParts {
        let (rows, ids, columns) = (Lazy::new(), Lazy::new(), Lazy::new());
        let indexes = (0..fields).map(|_| Lazy::new()).collect();
        // Parts in an object store share the connections of the store.
        let files = if remote { 1 } else { ROW_FILES + fields as u64 };
        OpenParts {
            rows,
            ids,
            columns,
            indexes,
            files,
            last_used: AtomicU64::new(0),
            listed: AtomicBool::new(false),
        }
    }

    /// Returns the part that `which` selects; `open` opens it if it is not open.
    pub(super) fn get_or_open<T>(
        parts: &Arc<OpenParts>,
        which: impl Fn(&OpenParts) -> &Lazy<T>,
        open: impl FnOnce() -> Result<T, CollectionError>,
    ) -> Result<Arc<T>, CollectionError> {
        parts.last_used.store(now(), Ordering::Relaxed);
        if let Some(part) = which(parts).get() {
            return Ok(part);
        }
        let part = which(parts).get_or(open)?;
        OpenParts::note_opened(parts);
        Ok(part)
    }

    /// Records that a part was opened. If too many files are open, closes the least recently used segments
    /// that are not in use.
    fn note_opened(parts: &Arc<OpenParts>) {
        let max_files = (open_files_limit() / FILES_DIVISOR).min(MAX_OPEN_FILES);
        let mut closed = Vec::new();
        {
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            if !parts.listed.swap(true, Ordering::Relaxed) {
                open.push(Arc::downgrade(parts));
            }
            let mut all: Vec<Arc<OpenParts>> = open.iter().filter_map(Weak::upgrade).collect();
            let mut files: u64 = all.iter().map(|segment| segment.files).sum();
            if files > max_files {
                all.retain(|segment| !Arc::ptr_eq(segment, parts) && !segment.is_used());
                all.sort_unstable_by_key(|segment| segment.last_used.load(Ordering::Relaxed));
                for segment in all {
                    if files <= max_files {
                        break;
                    }
                    files -= segment.files;
                    segment.listed.store(false, Ordering::Relaxed);
                    closed.push(segment);
                }
            }
            open.retain(|segment| {
                segment.upgrade().is_some_and(|segment| segment.listed.load(Ordering::Relaxed))
            });
        }
        // The lock is released before: closing an index waits for its search threads.
        closed.iter().for_each(|segment| segment.close());
    }

    /// Replaces the open index of a field by the one that `open` opens, unless another thread is doing so.
    pub(super) fn replace_index(
        parts: &Arc<OpenParts>,
        field: usize,
        open: impl FnOnce() -> Option<FieldIndex>,
    ) -> Option<Arc<FieldIndex>> {
        let index = parts.indexes[field].replace(open)?;
        // The segment may have been closed in the meantime.
        OpenParts::note_opened(parts);
        Some(index)
    }

    /// Closes indexes with vectors in memory that were not used for [`IDLE_TIME`], least recently used first,
    /// until `bytes` are free. Returns true if it succeeds.
    pub(super) fn free_memory(bytes: u64) -> bool {
        let last = LAST_EVICTION.load(Ordering::Relaxed);
        let next = last + EVICTION_INTERVAL.as_nanos() as u64;
        // The first call always searches.
        if last > 0 && now() < next {
            return false;
        }
        LAST_EVICTION.store(now().max(1), Ordering::Relaxed);
        OpenParts::close_unused(bytes, IDLE_TIME)
    }

    /// Does the same for indexes that were not used for `idle_time`, whenever it is called.
    pub(super) fn close_unused(bytes: u64, idle_time: Duration) -> bool {
        let mut all: Vec<Arc<OpenParts>> = {
            let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            open.iter().filter_map(Weak::upgrade).collect()
        };
        let before = now().saturating_sub(idle_time.as_nanos() as u64);
        all.retain(|segment| segment.last_used.load(Ordering::Relaxed) <= before && !segment.is_used());
        all.sort_unstable_by_key(|segment| segment.last_used.load(Ordering::Relaxed));
        let mut freed = 0;
        for index in all.iter().flat_map(|segment| &segment.indexes) {
            if freed >= bytes {
                break;
            }
            let reserved = index.get().map_or(0, |index| index.reserved_bytes());
            if reserved > 0 {
                freed += reserved;
                drop(index.take());
            }
        }
        freed >= bytes
    }

    fn is_used(&self) -> bool {
        let row_parts = self.rows.is_used() || self.ids.is_used() || self.columns.is_used();
        row_parts || self.indexes.iter().any(Lazy::is_used)
    }

    fn close(&self) {
        drop((self.rows.take(), self.ids.take(), self.columns.take()));
        self.indexes.iter().for_each(|index| drop(index.take()));
    }

    /// Returns the approximate bytes of memory, without search threads.
    pub(super) fn held_bytes(&self) -> u64 {
        let ids = self.ids.get().map_or(0, |ids| ids.held_bytes());
        let columns = self.columns.get().map_or(0, |columns| columns.held_bytes());
        let opened = self.rows.get().map_or(0, |_| (size_of::<OpenedRows>() + size_of::<Manifest>()) as u64);
        let indexes = self.indexes.iter().filter_map(Lazy::get).map(|index| index.dram_bytes(0, 0, 0));
        opened + ids + columns + indexes.sum::<u64>()
    }
}
