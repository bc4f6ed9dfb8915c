//! A store that many machines share: nothing is locked, and of two who append at once one comes second.

use super::turns::Turns;
use bathyal_store::memory::MemoryStore;
use bathyal_store::{Draft, Durability, Generation, Log, LogWriter, Object, Replace, Store, StoreError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes, and where they go.
type Pieces = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module's description. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct SharedStore {
    store: MemoryStore,
    logs: Arc<Mutex<BTreeMap<String, Pieces>>>,
    /// Whether the answer to the next append or publication is lost.
    loses: Arc<AtomicBool>,
    /// Before each step of an operation others may come.
    turns: Option<Arc<Turns>>,
}

impl SharedStore {
    pub(super) fn new() -> SharedStore {
        SharedStore {
            store: MemoryStore::new("shared"),
            logs: Arc::default(),
            loses: Arc::default(),
            turns: None,
        }
    }

    /// One whose users run in turns.
    pub(super) fn in_turns(turns: Arc<Turns>) -> SharedStore {
        SharedStore { turns: Some(turns), ..SharedStore::new() }
    }

    /// Lets another thread come first, and notes what this one does next.
    fn turn(&self, what: &'static str, name: &str, more: u64) {
        if let Some(turns) = &self.turns {
            turns.turn(what, name, more);
        }
    }

    /// Lets the answer to the next append or publication be lost, or none.
    pub(super) fn lose(&self, loses: bool) {
        self.loses.store(loses, Ordering::Relaxed);
    }

    fn answer(&self, path: &Path) -> Result<(), StoreError> {
        match self.loses.swap(false, Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let (path, reason) = (path.to_path_buf(), "the answer was lost".into());
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
        self.turn("list", "", 0);
        self.store.list()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        // First: who finds it there, and no log because it was removed meanwhile, reads nothing of it.
        self.turn("open", name, 0);
        let generation = self.store.open(name)?;
        self.turn("opened", name, 0);
        let pieces = locked(&self.logs).entry(name.into()).or_default().clone();
        Ok(Arc::new(Shared { store: self.clone(), generation, pieces }))
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
        self.turn("erase", name, 0);
        self.store.erase(name)?;
        self.turn("erased", name, 0);
        locked(&self.logs).remove(name);
        Ok(())
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        self.store.leftovers()
    }
}

/// A generation, or a log of it.
#[derive(Debug, Clone)]
struct Shared {
    store: SharedStore,
    generation: Arc<dyn Generation>,
    pieces: Pieces,
}

impl Shared {
    /// An error if the generation is gone.
    fn check_place(&self) -> Result<(), StoreError> {
        self.generation.log("place")?.read(0).map(drop)
    }

    fn turn(&self, what: &'static str, more: u64) {
        self.store.turn(what, &self.generation.address().display().to_string(), more);
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

impl Generation for Shared {
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

impl Log for Shared {
    fn address(&self) -> &Path {
        self.generation.address()
    }

    fn read(&self, from: u64) -> Result<Vec<u8>, StoreError> {
        self.turn("read", from);
        self.check_place()?;
        self.turn("is read from", from);
        let mut bytes = self.contents();
        Ok(bytes.split_off(bytes.len().min(from as usize)))
    }

    fn write(&self) -> Result<Box<dyn LogWriter>, StoreError> {
        self.turn("lock", 0);
        self.check_place()?;
        let next = locked(&self.pieces).len();
        self.turn("is locked behind pieces", next as u64);
        Ok(Box::new(SharedWriter { log: self.clone(), next }))
    }
}

#[derive(Debug)]
struct SharedWriter {
    log: Shared,
    next: usize,
}

impl LogWriter for SharedWriter {
    fn append(&mut self, at: u64, parts: &[&[u8]], _durability: Durability) -> Result<(), StoreError> {
        let path: PathBuf = self.log.generation.address().into();
        self.log.turn("append", at);
        let mut pieces = locked(&self.log.pieces);
        if pieces.len() != self.next {
            return Err(StoreError::Busy { path });
        }
        pieces.push((at, parts.concat()));
        drop(pieces);
        self.next += 1;
        self.log.turn("was appended to, pieces", self.next as u64);
        self.log.store.answer(&path)?;
        self.log.check_place()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.log.check_place()
    }
}

/// A draft whose publication may be answered by silence.
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
        self.store.turn("publish", &path.display().to_string(), 0);
        self.draft.publish(names, note)?;
        self.store.turn("published", &path.display().to_string(), 0);
        self.store.answer(&path)
    }

    fn leave(self: Box<Self>) -> Result<(), StoreError> {
        self.draft.leave()
    }
}
