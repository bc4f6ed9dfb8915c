//! A store that several machines share. It has no locks; the second of two concurrent appends fails.

use super::scheduler::Scheduler;
use bathyal_store::memory::MemoryStore;
use bathyal_store::{Draft, Durability, Generation, Log, LogWriter, Object, Replace, Store, StoreError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Appended bytes, each with its offset.
type Pieces = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store without locks, in memory. Clones share its content.
#[derive(Debug, Clone)]
pub(super) struct SharedStore {
    store: MemoryStore,
    logs: Arc<Mutex<BTreeMap<String, Pieces>>>,
    /// True if the response to the next append or publication is lost.
    loses_response: Arc<AtomicBool>,
    /// Lets other threads run before each step of an operation.
    scheduler: Option<Arc<Scheduler>>,
}

impl SharedStore {
    pub(super) fn new() -> SharedStore {
        SharedStore {
            store: MemoryStore::new("shared"),
            logs: Arc::default(),
            loses_response: Arc::default(),
            scheduler: None,
        }
    }

    /// Creates a store whose users are scheduled.
    pub(super) fn scheduled(scheduler: Arc<Scheduler>) -> SharedStore {
        SharedStore { scheduler: Some(scheduler), ..SharedStore::new() }
    }

    /// Lets other threads run first, and records the operation in the trace.
    fn step(&self, operation: &'static str, name: &str, number: u64) {
        if let Some(scheduler) = &self.scheduler {
            scheduler.step(operation, name, number);
        }
    }

    /// Sets whether the response to the next append or publication is lost.
    pub(super) fn lose_response(&self, loses_response: bool) {
        self.loses_response.store(loses_response, Ordering::Relaxed);
    }

    fn respond(&self, path: &Path) -> Result<(), StoreError> {
        match self.loses_response.swap(false, Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let (path, reason) = (path.to_path_buf(), "the response was lost".into());
                Err(StoreError::Remote { operation: "write", path, reason })
            }
        }
    }
}

impl Store for SharedStore {
    fn address(&self) -> &Path {
        self.store.address()
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.step("list", "", 0);
        self.store.list()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        // This step comes first: a generation whose log was removed meanwhile must not be read.
        self.step("open", name, 0);
        let generation = self.store.open(name)?;
        self.step("opened", name, 0);
        let pieces = locked(&self.logs).entry(name.into()).or_default().clone();
        Ok(Arc::new(SharedGeneration { store: self.clone(), generation, pieces }))
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        self.store.check(name, replace)
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        Ok(Box::new(SharedDraft { store: self.clone(), draft: self.store.begin(name, replace)? }))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        self.store.abandoned(name, replace)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.store.delete(name)?;
        locked(&self.logs).remove(name);
        Ok(())
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        self.step("erase", name, 0);
        self.store.erase(name)?;
        self.step("erased", name, 0);
        locked(&self.logs).remove(name);
        Ok(())
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        self.store.leftovers()
    }
}

/// A generation, and its log.
#[derive(Debug, Clone)]
struct SharedGeneration {
    store: SharedStore,
    generation: Arc<dyn Generation>,
    pieces: Pieces,
}

impl SharedGeneration {
    /// Returns an error if the generation was removed.
    fn check_exists(&self) -> Result<(), StoreError> {
        self.generation.log("place")?.read(0).map(drop)
    }

    fn step(&self, operation: &'static str, number: u64) {
        self.store.step(operation, &self.generation.address().display().to_string(), number);
    }

    fn contents(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, piece) in locked(&self.pieces).iter() {
            bytes.truncate(*at as usize);
            bytes.extend_from_slice(piece);
        }
        bytes
    }
}

impl Generation for SharedGeneration {
    fn address(&self) -> &Path {
        self.generation.address()
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.generation.list()
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        self.generation.get(name)
    }

    fn log(&self, _name: &str) -> Result<Arc<dyn Log>, StoreError> {
        Ok(Arc::new(self.clone()))
    }
}

impl Log for SharedGeneration {
    fn address(&self) -> &Path {
        self.generation.address()
    }

    fn read(&self, from: u64) -> Result<Vec<u8>, StoreError> {
        self.step("read", from);
        self.check_exists()?;
        self.step("is read from", from);
        let mut bytes = self.contents();
        Ok(bytes.split_off(bytes.len().min(from as usize)))
    }

    fn write(&self) -> Result<Box<dyn LogWriter>, StoreError> {
        self.step("lock", 0);
        self.check_exists()?;
        let next = locked(&self.pieces).len();
        self.step("is locked behind pieces", next as u64);
        Ok(Box::new(SharedWriter { log: self.clone(), next }))
    }
}

#[derive(Debug)]
struct SharedWriter {
    log: SharedGeneration,
    next: usize,
}

impl LogWriter for SharedWriter {
    fn append(&mut self, at: u64, parts: &[&[u8]], _durability: Durability) -> Result<(), StoreError> {
        let path: PathBuf = self.log.generation.address().into();
        self.log.step("append", at);
        let mut pieces = locked(&self.log.pieces);
        if pieces.len() != self.next {
            return Err(StoreError::Busy { path });
        }
        pieces.push((at, parts.concat()));
        drop(pieces);
        self.next += 1;
        self.log.step("was appended to, pieces", self.next as u64);
        self.log.store.respond(&path)?;
        self.log.check_exists()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.log.check_exists()
    }
}

/// A draft whose response to the publication can be lost.
#[derive(Debug)]
struct SharedDraft {
    store: SharedStore,
    draft: Box<dyn Draft>,
}

impl Generation for SharedDraft {
    fn address(&self) -> &Path {
        self.draft.address()
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.draft.list()
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        self.draft.get(name)
    }
}

impl Draft for SharedDraft {
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn bathyal_store::Append>, StoreError> {
        self.draft.append(name, from)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.draft.replace(name, bytes)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.draft.delete(name)
    }

    fn publication_note(&self) -> Option<&str> {
        self.draft.publication_note()
    }

    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        attend: &bathyal_store::ProgressFn<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        self.draft.adopt(from, names, attend)
    }

    fn publish(self: Box<Self>, names: &[&str], note: &str) -> Result<(), StoreError> {
        let path = self.draft.address().to_path_buf();
        self.store.step("publish", &path.display().to_string(), 0);
        self.draft.publish(names, note)?;
        self.store.step("published", &path.display().to_string(), 0);
        self.store.respond(&path)
    }

    fn leave(self: Box<Self>) -> Result<(), StoreError> {
        self.draft.leave()
    }
}
