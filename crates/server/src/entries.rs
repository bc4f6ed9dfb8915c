//! The collections and indexes of the served folder, and those of them that are open.

use crate::failure::Refusal;
use crate::lease::Lease;
use crate::names::EntryName;
use bathyal_collection::{
    Collection, CollectionOptions, CopiedCollection, DEFAULT_WRITE_MEMORY_BYTES, EntryKind, ListingEntry,
    RemovedCollection, Schema, listing,
};
use bathyal_console::Kind;
use bathyal_index::{AuditOptions, Index, OpenOptions, StoreOptions};
use bathyal_vectors::progress::Progress;
use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The most time that a deletion waits for requests to the same collection.
const DELETE_WAIT: Duration = Duration::from_secs(30);
/// The interval at which it looks whether they have ended.
const DELETE_POLL: Duration = Duration::from_millis(5);
/// How long a successful listing answers the question whether the server is ready: nobody needs a key to ask
/// it, and in a bucket each listing is paid for.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The collections and indexes of a folder.
pub(crate) struct Entries {
    data: PathBuf,
    store: StoreOptions,
    index: OpenOptions,
    write_memory_bytes: u64,
    most_open: usize,
    /// The age from which changes of other processes are looked for.
    refresh: Duration,
    audit: Option<AuditOptions>,
    /// Says if this server writes.
    lease: Arc<Lease>,
    /// When the folder was last listed for [`Entries::check`].
    checked: Mutex<Option<Instant>>,
    collections: OpenHandles<OpenCollection>,
    indexes: OpenHandles<Index>,
}

/// An open collection, and when the changes of other processes were last looked for.
pub(crate) struct OpenCollection {
    collection: Collection,
    refreshed: Mutex<Instant>,
    /// True after a change that another server has done for a client of this one: the client expects to see
    /// it.
    changed: AtomicBool,
}

impl Deref for OpenCollection {
    type Target = Collection;

    fn deref(&self) -> &Collection {
        &self.collection
    }
}

impl OpenCollection {
    fn new(collection: Collection) -> OpenCollection {
        OpenCollection { collection, refreshed: Mutex::new(Instant::now()), changed: AtomicBool::new(false) }
    }

    /// Returns true if its content is not older than `age`. Does not wait.
    fn is_recent(&self, age: Duration) -> bool {
        !self.changed.load(Ordering::Acquire)
            && self.refreshed.try_lock().is_ok_and(|refreshed| refreshed.elapsed() < age)
    }

    /// Reads the changes of other processes if the content is older than `age`. Callers that come meanwhile
    /// wait.
    fn refresh_after(&self, age: Duration, lease: &Lease) -> Result<(), Refusal> {
        let mut refreshed = self.refreshed.lock().unwrap_or_else(PoisonError::into_inner);
        if self.changed.swap(false, Ordering::AcqRel) || refreshed.elapsed() >= age {
            let now = Instant::now();
            if !lease.is_held() {
                // A collection that this server has written to would be taken for up to date.
                self.collection.release();
            }
            self.collection.refresh()?;
            *refreshed = now;
        }
        Ok(())
    }
}

/// Where the collections and indexes are, and how to open them.
pub(crate) struct EntryOptions {
    pub(crate) data: PathBuf,
    pub(crate) store: StoreOptions,
    pub(crate) index: OpenOptions,
    pub(crate) write_memory_bytes: Option<u64>,
    pub(crate) most_open: usize,
    pub(crate) refresh: Duration,
    pub(crate) audit: Option<AuditOptions>,
    pub(crate) lease: Arc<Lease>,
}

/// Handles that are open, by their names.
struct OpenHandles<T> {
    slots: Mutex<HashMap<EntryName, Arc<HandleSlot<T>>>>,
    uses: AtomicU64,
}

/// The handle of one name. Its lock is held for writing while the handle is opened, created or removed.
struct HandleSlot<T> {
    handle: RwLock<Option<Arc<T>>>,
    used: AtomicU64,
    /// True while the entry is being removed. Requests are refused then, and do not wait for the lock.
    removing: AtomicBool,
}

impl<T> Default for HandleSlot<T> {
    fn default() -> HandleSlot<T> {
        HandleSlot { handle: RwLock::new(None), used: AtomicU64::new(0), removing: AtomicBool::new(false) }
    }
}

impl<T> Default for OpenHandles<T> {
    fn default() -> OpenHandles<T> {
        OpenHandles { slots: Mutex::default(), uses: AtomicU64::new(0) }
    }
}

impl<T> HandleSlot<T> {
    fn get(&self) -> Option<Arc<T>> {
        self.handle.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<T> OpenHandles<T> {
    fn slots(&self) -> MutexGuard<'_, HashMap<EntryName, Arc<HandleSlot<T>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, name: &EntryName) -> Arc<HandleSlot<T>> {
        let mut slots = self.slots();
        let slot = slots.entry(name.clone()).or_insert_with(|| Arc::new(HandleSlot::default()));
        slot.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        slot.clone()
    }

    /// Returns the handle of a name if it is open. It does not wait for one that is being opened.
    fn opened(&self, name: &EntryName) -> Option<Arc<T>> {
        let slot = self.slots().get(name).cloned()?;
        slot.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        slot.handle.try_read().ok()?.clone()
    }

    /// Returns the handle of a name, opened by `open` if it is not yet.
    fn get(
        &self,
        name: &EntryName,
        most: usize,
        open: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<Arc<T>, Refusal> {
        let slot = self.slot(name);
        if slot.removing.load(Ordering::Acquire) {
            return Err(Refusal::new(Kind::Busy, format!("{name} is being removed")));
        }
        if let Some(handle) = slot.get() {
            return Ok(handle);
        }
        let handle = {
            let mut place = slot.handle.write().unwrap_or_else(PoisonError::into_inner);
            match &*place {
                Some(handle) => handle.clone(),
                None => {
                    let opened = open().map(Arc::new);
                    if opened.is_err() {
                        drop(place);
                        drop(slot);
                        self.forget_vacant(name);
                        return opened;
                    }
                    place.insert(opened?).clone()
                }
            }
        };
        drop(self.evicted(most));
        Ok(handle)
    }

    /// Drops the slot of a name without a handle, unless others use it.
    fn forget_vacant(&self, name: &EntryName) {
        let mut slots = self.slots();
        let is_unused = |slot: &Arc<HandleSlot<T>>| Arc::strong_count(slot) <= 1 && slot.get().is_none();
        if slots.get(name).is_some_and(is_unused) {
            slots.remove(name);
        }
    }

    /// Takes handles that no request uses, the least recently used first, until at most `most` are left. The
    /// caller closes them without the lock.
    fn evicted(&self, most: usize) -> Vec<Arc<HandleSlot<T>>> {
        let mut slots = self.slots();
        let mut evicted = Vec::new();
        while slots.len() > most {
            let idle = |slot: &Arc<HandleSlot<T>>| {
                let is_unused = || slot.get().is_none_or(|handle| Arc::strong_count(&handle) <= 2);
                Arc::strong_count(slot) == 1 && is_unused()
            };
            let oldest = slots
                .iter()
                .filter(|(_, slot)| idle(slot))
                .min_by_key(|(_, slot)| slot.used.load(Ordering::Relaxed))
                .map(|(name, _)| name.clone());
            let Some(slot) = oldest.and_then(|name| slots.remove(&name)) else { break };
            evicted.push(slot);
        }
        evicted
    }

    /// Returns the handles that are open. It does not wait for those that are being opened or removed.
    fn all(&self) -> Vec<(EntryName, Arc<T>)> {
        let opened = |slot: &HandleSlot<T>| slot.handle.try_read().ok()?.clone();
        self.slots().iter().filter_map(|(name, slot)| Some((name.clone(), opened(slot)?))).collect()
    }
}

impl Entries {
    pub(crate) fn new(options: EntryOptions) -> Entries {
        let EntryOptions { data, store, index, write_memory_bytes, most_open, refresh, audit, lease } =
            options;
        Entries {
            data,
            store,
            index,
            write_memory_bytes: write_memory_bytes.unwrap_or(DEFAULT_WRITE_MEMORY_BYTES),
            most_open,
            refresh,
            audit,
            lease,
            checked: Mutex::default(),
            collections: OpenHandles::default(),
            indexes: OpenHandles::default(),
        }
    }

    /// Returns the folder or the address.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Lists what the folder holds.
    pub(crate) fn list(&self) -> Result<Vec<ListingEntry>, Refusal> {
        Ok(listing(&self.data, &self.store)?)
    }

    /// Lists what the folder holds, unless it has been listed within the last seconds.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.is_none_or(|checked| checked.elapsed() >= CHECK_INTERVAL) {
            self.list()?;
            *checked = Some(Instant::now());
        }
        Ok(())
    }

    /// Returns the path or address of an entry, which is not a link that leads elsewhere.
    fn path(&self, name: &EntryName) -> Result<PathBuf, Refusal> {
        let path = self.data.join(name.as_str());
        if std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
            let message = format!("{name} is a link, which the server does not follow; move the data itself");
            return Err(Refusal::new(Kind::NotFound, message));
        }
        Ok(path)
    }

    fn collection_options(&self) -> CollectionOptions {
        CollectionOptions {
            store: self.store.clone(),
            index: OpenOptions { store: self.store.clone(), ..self.index.clone() },
            write_memory_bytes: self.write_memory_bytes,
            audit: self.audit,
            ..CollectionOptions::default()
        }
    }

    /// Returns a collection if it is open, and changes of other processes need not be looked for.
    pub(crate) fn opened_collection(&self, name: &EntryName) -> Option<Arc<OpenCollection>> {
        self.collections.opened(name).filter(|open| open.is_recent(self.refresh))
    }

    /// Returns a collection, and opens it if it is not yet.
    pub(crate) fn collection(&self, name: &EntryName) -> Result<Arc<OpenCollection>, Refusal> {
        let open = self.collections.get(name, self.most_open, || {
            let path = self.path(name)?;
            Collection::open(&path, &self.collection_options())
                .map(OpenCollection::new)
                .map_err(|error| missing(name, "collection", error.into()))
        })?;
        if let Err(refusal) = open.refresh_after(self.refresh, &self.lease) {
            let refusal = missing(name, "collection", refusal);
            if refusal.kind == Kind::NotFound {
                // Another server has removed it.
                self.forget(name);
            }
            return Err(refusal);
        }
        Ok(open)
    }

    /// Returns a collection that is about to be changed.
    pub(crate) fn collection_to_change(&self, name: &EntryName) -> Result<Arc<OpenCollection>, Refusal> {
        let open = self.collection(name)?;
        // As late as possible: a server that has lost the lease must not take the log from the one that has
        // it.
        self.lease.check()?;
        Ok(open)
    }

    /// Closes a collection that another server has removed for a client of this one: one that is made later
    /// under its name is another one.
    pub(crate) fn forget(&self, name: &EntryName) {
        let removed = self.collections.slots().remove(name);
        drop(removed);
    }

    /// Notes a change that another server has done for a client of this one: of a collection, or of any. The
    /// next request sees it.
    pub(crate) fn note_change(&self, name: Option<&EntryName>) {
        let changed: Vec<_> = match name {
            Some(name) => self.collections.opened(name).into_iter().collect(),
            None => self.collections.all().into_iter().map(|(_, open)| open).collect(),
        };
        changed.iter().for_each(|open| open.changed.store(true, Ordering::Release));
    }

    /// Creates a collection.
    pub(crate) fn create(&self, name: &EntryName, schema: Schema) -> Result<Arc<OpenCollection>, Refusal> {
        let path = self.path(name)?;
        if self.collections.opened(name).is_some() {
            // Another server may have removed it.
            self.note_change(Some(name));
            drop(self.collection(name));
        }
        let mut created = false;
        let open = self.collections.get(name, self.most_open, || {
            created = true;
            self.lease.check()?;
            Ok(OpenCollection::new(Collection::create(&path, schema, &self.collection_options())?))
        })?;
        if !created {
            return Err(Refusal::new(Kind::Exists, format!("the collection {name} exists already")));
        }
        Ok(open)
    }

    /// Removes a collection, once no other request uses it. New requests are refused meanwhile.
    pub(crate) fn remove(&self, name: &EntryName) -> Result<Option<RemovedCollection>, Refusal> {
        let path = self.path(name)?;
        let slot = self.collections.slot(name);
        if slot.removing.swap(true, Ordering::AcqRel) {
            return Err(Refusal::new(Kind::Busy, format!("{name} is being removed")));
        }
        let removed = self.remove_unused(&path, name, &slot);
        slot.removing.store(false, Ordering::Release);
        drop(slot);
        self.collections.forget_vacant(name);
        removed
    }

    /// Removes a collection once no request uses its handle.
    fn remove_unused(
        &self,
        path: &Path,
        name: &EntryName,
        slot: &HandleSlot<OpenCollection>,
    ) -> Result<Option<RemovedCollection>, Refusal> {
        let mut place = slot.handle.write().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + DELETE_WAIT;
        while place.as_ref().is_some_and(|handle| Arc::strong_count(handle) > 1) {
            if Instant::now() > until {
                let message =
                    format!("other requests use the collection {name}; try again when they have ended");
                return Err(Refusal::new(Kind::Busy, message));
            }
            std::thread::sleep(DELETE_POLL);
        }
        *place = None;
        self.lease.check()?;
        Collection::remove(path, &self.store).map_err(|error| missing(name, "collection", error.into()))
    }

    /// Copies a collection to a new name.
    pub(crate) fn copy(
        &self,
        from: &Collection,
        to: &EntryName,
        progress: &dyn Progress,
    ) -> Result<CopiedCollection, Refusal> {
        let path = self.path(to)?;
        self.lease.check()?;
        Ok(from.copy_to(&path, &self.store, progress)?)
    }

    /// Returns an index if it is open.
    pub(crate) fn opened_index(&self, name: &EntryName) -> Option<Arc<Index>> {
        self.indexes.opened(name)
    }

    /// Returns an index, and opens it if it is not yet.
    pub(crate) fn index(&self, name: &EntryName) -> Result<Arc<Index>, Refusal> {
        self.indexes.get(name, self.most_open, || {
            let path = self.path(name)?;
            let options = OpenOptions { store: self.store.clone(), audit: self.audit, ..self.index.clone() };
            Index::open(&path, &options).map_err(|error| missing(name, "index", error.into()))
        })
    }

    /// Returns the collections that are open.
    pub(crate) fn open_collections(&self) -> Vec<(EntryName, Arc<OpenCollection>)> {
        self.collections.all()
    }

    /// Returns the indexes that are open.
    pub(crate) fn open_indexes(&self) -> Vec<(EntryName, Arc<Index>)> {
        self.indexes.all()
    }

    /// Closes everything. Acknowledged writes are on disk already.
    pub(crate) fn close(&self) {
        drop(std::mem::take(&mut *self.collections.slots()));
        drop(std::mem::take(&mut *self.indexes.slots()));
    }
}

/// Returns the refusal for an entry that cannot be opened, in the words of the server if there is none.
fn missing(name: &EntryName, what: &str, refusal: Refusal) -> Refusal {
    match refusal.kind {
        Kind::NotFound | Kind::NotAnIndex => {
            Refusal::new(Kind::NotFound, format!("there is no {what} {name}"))
        }
        _ => refusal,
    }
}

/// Returns true if an entry of a listing is a collection.
pub(crate) fn is_collection(entry: &ListingEntry) -> bool {
    entry.what == EntryKind::Collection
}
