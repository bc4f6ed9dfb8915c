//! What is open of segments, in all collections of this process together: with thousands of small collections it is more than a
//! process may have files open, so that what was used longest ago is closed, and opened again at the next need.

use super::Opened;
use super::columns::Columns;
use super::id_map::IdMap;
use super::in_memory::FieldIndex;
use super::lazily::Lazily;
use super::manifest::Manifest;
use crate::error::CollectionError;
use bathyal_tier::process::open_files_limit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Of the files that a process may have open, segments leave so many times as many to others.
const FILES_SHARE: u64 = 2;
/// Files of segments that are open at most, however many may be: what is open takes memory, too.
const MOST_FILES: u64 = 4096;
/// Files that are open of a segment besides those of its indexes: its ids and its columns.
const OWN_FILES: u64 = 2;

/// Vectors in memory that nobody has searched for so long make room for those of others. What is searched more often stays, so that
/// segments which are searched in turn, and come to more than there is room for, are not loaded again and again.
const REST: Duration = Duration::from_secs(10);
/// How long after it was looked for such vectors it is looked again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The segments of which something may be open.
static OPEN: Mutex<Vec<Weak<Parts>>> = Mutex::new(Vec::new());
/// From when on it is counted what was used last.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// When it was last looked for vectors that make room, in nanoseconds since [`START`].
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds since [`START`].
fn now() -> u64 {
    START.elapsed().as_nanos() as u64
}

/// What may be open of a segment.
pub(super) struct Parts {
    pub(super) rows: Lazily<Opened>,
    pub(super) ids: Lazily<IdMap>,
    pub(super) columns: Lazily<Columns>,
    /// Of each field of vectors.
    pub(super) indexes: Vec<Lazily<FieldIndex>>,
    /// Files that are open where all is.
    files: u64,
    /// When something of it was used last, in nanoseconds since [`START`].
    used: AtomicU64,
    /// Whether it is among [`OPEN`]; written under that lock.
    listed: AtomicBool,
}

impl Parts {
    pub(super) fn new(fields: usize, far: bool) -> Parts {
        let (rows, ids, columns) = (Lazily::new(), Lazily::new(), Lazily::new());
        let indexes = (0..fields).map(|_| Lazily::new()).collect();
        // What is far away shares the connections of its store.
        let files = if far { 1 } else { OWN_FILES + fields as u64 };
        Parts { rows, ids, columns, indexes, files, used: AtomicU64::new(0), listed: AtomicBool::new(false) }
    }

    /// The part that `which` chooses; `open` opens it where it is not open.
    pub(super) fn part<T>(
        parts: &Arc<Parts>,
        which: impl Fn(&Parts) -> &Lazily<T>,
        open: impl FnOnce() -> Result<T, CollectionError>,
    ) -> Result<Arc<T>, CollectionError> {
        parts.used.store(now(), Ordering::Relaxed);
        if let Some(part) = which(parts).get() {
            return Ok(part);
        }
        let part = which(parts).get_or(open)?;
        Parts::opened(parts);
        Ok(part)
    }

    /// Notes that something of it was opened, and closes what was used longest ago where too much is open. What somebody uses at
    /// the moment stays.
    fn opened(parts: &Arc<Parts>) {
        let most = (open_files_limit() / FILES_SHARE).min(MOST_FILES);
        let mut closed = Vec::new();
        {
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            if !parts.listed.swap(true, Ordering::Relaxed) {
                open.push(Arc::downgrade(parts));
            }
            let mut all: Vec<Arc<Parts>> = open.iter().filter_map(Weak::upgrade).collect();
            let mut files: u64 = all.iter().map(|one| one.files).sum();
            if files > most {
                all.retain(|one| !Arc::ptr_eq(one, parts) && !one.is_used());
                all.sort_unstable_by_key(|one| one.used.load(Ordering::Relaxed));
                for one in all {
                    if files <= most {
                        break;
                    }
                    files -= one.files;
                    one.listed.store(false, Ordering::Relaxed);
                    closed.push(one);
                }
            }
            open.retain(|one| one.upgrade().is_some_and(|one| one.listed.load(Ordering::Relaxed)));
        }
        // Without the lock: an index waits for its search threads.
        closed.iter().for_each(|one| one.close());
    }

    /// Puts the index of a field that `open` opens in the place of the one that is open, unless somebody does so at the moment.
    pub(super) fn reopened(
        parts: &Arc<Parts>,
        field: usize,
        open: impl FnOnce() -> Option<FieldIndex>,
    ) -> Option<Arc<FieldIndex>> {
        let index = parts.indexes[field].replace(open)?;
        // It may have been closed meanwhile.
        Parts::opened(parts);
        Some(index)
    }

    /// Closes indexes whose vectors are in memory and that nobody has used for [`REST`], those that were used longest ago first, until
    /// they come to `bytes`; whether they do.
    pub(super) fn make_room(bytes: u64) -> bool {
        let looked = LOOKED.load(Ordering::Relaxed);
        let again = looked + LOOK_AGAIN.as_nanos() as u64;
        // At first it is looked at once.
        if looked > 0 && now() < again {
            return false;
        }
        LOOKED.store(now().max(1), Ordering::Relaxed);
        Parts::close_unused(bytes, REST)
    }

    /// The same of what nobody has used for `rest`, as often as it is asked.
    pub(super) fn close_unused(bytes: u64, rest: Duration) -> bool {
        let mut all: Vec<Arc<Parts>> = {
            let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            open.iter().filter_map(Weak::upgrade).collect()
        };
        let before = now().saturating_sub(rest.as_nanos() as u64);
        all.retain(|one| one.used.load(Ordering::Relaxed) <= before && !one.is_used());
        all.sort_unstable_by_key(|one| one.used.load(Ordering::Relaxed));
        let mut given = 0;
        for index in all.iter().flat_map(|one| &one.indexes) {
            if given >= bytes {
                break;
            }
            let room = index.get().map_or(0, |index| index.room_bytes());
            if room > 0 {
                given += room;
                drop(index.take());
            }
        }
        given >= bytes
    }

    fn is_used(&self) -> bool {
        let own = self.rows.is_used() || self.ids.is_used() || self.columns.is_used();
        own || self.indexes.iter().any(Lazily::is_used)
    }

    fn close(&self) {
        drop((self.rows.take(), self.ids.take(), self.columns.take()));
        self.indexes.iter().for_each(|index| drop(index.take()));
    }

    /// Bytes of memory that it takes now, about, the search threads' not counted.
    pub(super) fn held_bytes(&self) -> u64 {
        let ids = self.ids.get().map_or(0, |ids| ids.held_bytes());
        let columns = self.columns.get().map_or(0, |columns| columns.held_bytes());
        let opened = self.rows.get().map_or(0, |_| (size_of::<Opened>() + size_of::<Manifest>()) as u64);
        let indexes = self.indexes.iter().filter_map(Lazily::get).map(|index| index.dram_bytes(0, 0, 0));
        opened + ids + columns + indexes.sum::<u64>()
    }
}
