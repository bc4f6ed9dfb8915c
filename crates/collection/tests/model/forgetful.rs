//! A store that publishes a generation and says that it could not: as when the answer of a bucket is lost.

use bathyal_store::memory::MemoryStore;
use bathyal_store::{Append, Attend, Draft, Generation, Object, Replace, Store, StoreError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module's description. Clones share it.
#[derive(Debug, Clone)]
pub struct Forgetful {
    store: MemoryStore,
    /// Publications until one is not told of.
    left: Arc<AtomicUsize>,
}

impl Forgetful {
    /// Forgets nothing yet.
    pub fn new(store: MemoryStore) -> Forgetful {
        Forgetful { store, left: Arc::new(AtomicUsize::new(usize::MAX)) }
    }

    /// Does not tell of a version that is published after so many others.
    pub fn forget(&self, after: usize) {
        self.left.store(after, Ordering::Relaxed);
    }

    fn draft(&self, name: &str, draft: Box<dyn Draft>) -> Box<dyn Draft> {
        Box::new(ForgetfulDraft { name: name.into(), draft, left: self.left.clone() })
    }
}

impl Store for Forgetful {
    fn address(&self) -> &Path {
        self.store.address()
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.store.list()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        self.store.open(name)
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        self.store.check(name, replace)
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        Ok(self.draft(name, self.store.begin(name, replace)?))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        let drafts = self.store.abandoned(name, replace)?;
        Ok(drafts.into_iter().map(|draft| self.draft(name, draft)).collect())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.store.delete(name)
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        self.store.erase(name)
    }

    fn traces(&self) -> Result<Vec<String>, StoreError> {
        self.store.traces()
    }
}

#[derive(Debug)]
struct ForgetfulDraft {
    name: String,
    draft: Box<dyn Draft>,
    left: Arc<AtomicUsize>,
}

impl Generation for ForgetfulDraft {
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

impl Draft for ForgetfulDraft {
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn Append>, StoreError> {
        self.draft.append(name, from)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.draft.replace(name, bytes)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.draft.delete(name)
    }

    fn sealed(&self) -> Option<&str> {
        self.draft.sealed()
    }

    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        attend: &Attend<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        self.draft.adopt(from, names, attend)
    }

    fn publish(self: Box<Self>, names: &[&str], note: &str) -> Result<(), StoreError> {
        let path = self.draft.address().to_path_buf();
        self.draft.publish(names, note)?;
        if self.name.starts_with("v-") && self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Err(StoreError::Io { operation: "publish", path, source });
        }
        Ok(())
    }

    fn leave(self: Box<Self>) -> Result<(), StoreError> {
        self.draft.leave()
    }
}
