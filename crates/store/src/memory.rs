//! Generations in memory, for tests and for indexes that end with their process.

use crate::contract::{
    Append, Backing, Draft, Durability, Generation, Log, LogWriter, Object, ProgressFn, Replace, Store,
};
use crate::error::StoreError;
use crate::extension::append_objects;
use crate::name::check_name;
use bathyal_tier::Tier;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::FileOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The objects of a draft, by name.
type Objects = BTreeMap<String, Arc<Mutex<Vec<u8>>>>;

/// The contents of a published generation: objects and logs by name.
#[derive(Debug, Default)]
struct Contents {
    objects: BTreeMap<String, Arc<[u8]>>,
    logs: Mutex<BTreeMap<String, Arc<Mutex<LogBytes>>>>,
}

/// The bytes of a log.
#[derive(Debug, Default)]
struct LogBytes {
    bytes: Vec<u8>,
    /// True if the log has a writer.
    busy: bool,
}

/// A store of generations in memory. Clones share them.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    address: PathBuf,
    state: Arc<Mutex<StoreState>>,
}

#[derive(Debug, Default)]
struct StoreState {
    published: BTreeMap<String, Arc<Contents>>,
    /// Abandoned drafts: their names and objects.
    abandoned: Vec<(String, Arc<Mutex<Objects>>)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code in this file panics in the middle of a change, so the state is sound even if the mutex is
    // poisoned.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStore {
    /// Makes an empty store that messages call `name`.
    pub fn new(name: &str) -> MemoryStore {
        MemoryStore { address: PathBuf::from(format!("({name})")), state: Arc::default() }
    }

    fn draft(&self, name: &str, replace: Replace, objects: Arc<Mutex<Objects>>) -> Box<dyn Draft> {
        let address = self.address.join(name);
        Box::new(MemoryDraft { store: self.clone(), name: name.into(), address, replace, objects })
    }
}

impl Store for MemoryStore {
    fn address(&self) -> &Path {
        &self.address
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        Ok(locked(&self.state).published.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        check_name(name)?;
        let path = self.address.join(name);
        match locked(&self.state).published.get(name) {
            Some(contents) => {
                let (store, contents) = (self.clone(), contents.clone());
                Ok(Arc::new(Published { store, name: name.into(), address: path, contents }))
            }
            None => Err(StoreError::Missing { what: "index", path }),
        }
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        check_name(name)?;
        if replace == Replace::Never && locked(&self.state).published.contains_key(name) {
            return Err(StoreError::Exists { path: self.address.join(name) });
        }
        Ok(())
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        self.check(name, replace)?;
        Ok(self.draft(name, replace, Arc::default()))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        self.check(name, replace)?;
        let mut state = locked(&self.state);
        let found = state.abandoned.extract_if(.., |draft| draft.0 == name).collect::<Vec<_>>();
        drop(state);
        Ok(found.into_iter().map(|(_, objects)| self.draft(name, replace, objects)).collect())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        match locked(&self.state).published.remove(name) {
            Some(_) => Ok(()),
            None => Err(StoreError::Missing { what: "index", path: self.address.join(name) }),
        }
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let mut state = locked(&self.state);
        state.published.remove(name);
        state.abandoned.retain(|draft| draft.0 != name);
        Ok(())
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        let state = locked(&self.state);
        let names: BTreeSet<&String> = state.abandoned.iter().map(|draft| &draft.0).collect();
        Ok(names.into_iter().filter(|name| !state.published.contains_key(*name)).cloned().collect())
    }
}

/// A published generation, as opened.
#[derive(Debug, Clone)]
struct Published {
    store: MemoryStore,
    name: String,
    address: PathBuf,
    contents: Arc<Contents>,
}

impl Published {
    /// Returns an error if another generation has replaced this one.
    fn check_current(&self) -> Result<(), StoreError> {
        match locked(&self.store.state).published.get(&self.name) {
            Some(current) if Arc::ptr_eq(current, &self.contents) => Ok(()),
            _ => Err(StoreError::Replaced { path: self.address.clone() }),
        }
    }
}

impl Generation for Published {
    fn address(&self) -> &Path {
        &self.address
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.contents.objects.keys().cloned().collect())
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_name(name)?;
        let path = self.address.join(name);
        match self.contents.objects.get(name) {
            Some(bytes) => Ok(Arc::new(MemoryObject { address: path, bytes: bytes.clone() })),
            None => Err(StoreError::Missing { what: "file", path }),
        }
    }

    fn log(&self, name: &str) -> Result<Arc<dyn Log>, StoreError> {
        check_name(name)?;
        let bytes = locked(&self.contents.logs).entry(name.into()).or_default().clone();
        let address = self.address.join(name);
        Ok(Arc::new(MemoryLog { address, generation: self.clone(), bytes }))
    }
}

/// A log in memory.
#[derive(Debug, Clone)]
struct MemoryLog {
    address: PathBuf,
    generation: Published,
    bytes: Arc<Mutex<LogBytes>>,
}

impl Log for MemoryLog {
    fn address(&self) -> &Path {
        &self.address
    }

    fn read(&self, from: u64) -> Result<Vec<u8>, StoreError> {
        self.generation.check_current()?;
        let log = locked(&self.bytes);
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(log.bytes.len());
        Ok(log.bytes[from..].to_vec())
    }

    fn write(&self) -> Result<Box<dyn LogWriter>, StoreError> {
        self.generation.check_current()?;
        let mut log = locked(&self.bytes);
        if log.busy {
            return Err(StoreError::Busy { path: self.address.clone() });
        }
        log.busy = true;
        Ok(Box::new(MemoryLogWriter(self.clone())))
    }
}

/// The writer of a log in memory.
#[derive(Debug)]
struct MemoryLogWriter(MemoryLog);

impl LogWriter for MemoryLogWriter {
    fn append(&mut self, at: u64, parts: &[&[u8]], _durability: Durability) -> Result<(), StoreError> {
        let MemoryLog { address, generation, bytes: log } = &self.0;
        let mut log = locked(log);
        let len = log.bytes.len() as u64;
        if len < at {
            return Err(StoreError::Short { path: address.clone(), offset: 0, wanted: at, len });
        }
        log.bytes.truncate(at as usize);
        parts.iter().for_each(|part| log.bytes.extend_from_slice(part));
        drop(log);
        generation.check_current()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.0.generation.check_current()
    }
}

impl Drop for MemoryLogWriter {
    fn drop(&mut self) {
        locked(&self.0.bytes).busy = false;
    }
}

/// A generation under construction.
#[derive(Debug)]
struct MemoryDraft {
    store: MemoryStore,
    name: String,
    address: PathBuf,
    replace: Replace,
    objects: Arc<Mutex<Objects>>,
}

impl Generation for MemoryDraft {
    fn address(&self) -> &Path {
        &self.address
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        Ok(locked(&self.objects).keys().cloned().collect())
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_name(name)?;
        let address = self.address.join(name);
        match locked(&self.objects).get(name) {
            Some(bytes) => Ok(Arc::new(MemoryObject { address, bytes: locked(bytes).as_slice().into() })),
            None => Err(StoreError::Missing { what: "file", path: address }),
        }
    }
}

impl Draft for MemoryDraft {
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn Append>, StoreError> {
        check_name(name)?;
        let bytes = locked(&self.objects).entry(name.into()).or_default().clone();
        let (mut content, path) = (locked(&bytes), self.address.join(name));
        let len = content.len() as u64;
        if len < from {
            return Err(StoreError::Short { path, offset: 0, wanted: from, len });
        }
        content.truncate(from as usize);
        drop(content);
        Ok(Box::new(MemoryAppend { bytes, path }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        check_name(name)?;
        locked(&self.objects).insert(name.into(), Arc::new(Mutex::new(bytes.to_vec())));
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        locked(&self.objects).remove(name);
        Ok(())
    }

    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        progress: &ProgressFn<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        append_objects(self, from, names, progress)
    }

    fn publication_note(&self) -> Option<&str> {
        // A kill during publication ends the process and its memory, so no draft is left half published.
        None
    }

    fn publish(self: Box<Self>, names: &[&str], _note: &str) -> Result<(), StoreError> {
        let mut objects = BTreeMap::new();
        for name in names {
            let missing = || StoreError::Missing { what: "file", path: self.address.join(name) };
            let bytes = locked(&self.objects).get(*name).cloned().ok_or_else(missing)?;
            let bytes: Arc<[u8]> = locked(&bytes).as_slice().into();
            objects.insert((*name).to_string(), bytes);
        }
        let mut state = locked(&self.store.state);
        if self.replace == Replace::Never && state.published.contains_key(&self.name) {
            return Err(StoreError::Exists { path: self.address.clone() });
        }
        let contents = Contents { objects, logs: Mutex::default() };
        state.published.insert(self.name.clone(), Arc::new(contents));
        Ok(())
    }

    fn leave(self: Box<Self>) -> Result<(), StoreError> {
        locked(&self.store.state).abandoned.push((self.name.clone(), self.objects.clone()));
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryAppend {
    bytes: Arc<Mutex<Vec<u8>>>,
    path: PathBuf,
}

impl Append for MemoryAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let mut content = locked(&self.bytes);
        if content.try_reserve(bytes.len()).is_err() {
            return Err(StoreError::Memory { path: self.path.clone(), bytes: bytes.len() as u64 });
        }
        content.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryObject {
    address: PathBuf,
    bytes: Arc<[u8]>,
}

impl Object for MemoryObject {
    fn address(&self) -> &Path {
        &self.address
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let bytes =
            usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)?.get(..out.len()));
        let Some(bytes) = bytes else {
            let (path, wanted) = (self.address.clone(), out.len() as u64);
            return Err(StoreError::Short { path, offset, wanted, len: self.len() });
        };
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn backing(&self) -> Result<Backing, StoreError> {
        Ok(Backing::Memory(self.bytes.clone()))
    }

    fn tier(&self, _options: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
        Ok(Arc::new(DramTier::new(self.bytes.to_vec())))
    }
}
