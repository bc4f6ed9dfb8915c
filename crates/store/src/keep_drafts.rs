//! A wrapper around a store that keeps unfinished drafts when they are dropped, as if their process had been
//! killed, so that another build can continue them.

use crate::contract::{Append, Draft, Generation, Log, Object, ProgressFn, Replace, Store};
use crate::error::StoreError;
use crate::traffic::Traffic;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store with the generations of another one. A draft that is dropped after it was written to is kept
/// ([`Draft::leave`]), where the wrapped store would remove it.
#[derive(Debug, Clone, Copy)]
pub struct KeepDrafts<'a>(&'a dyn Store);

impl<'a> KeepDrafts<'a> {
    /// Wraps `store`.
    pub fn new(store: &'a dyn Store) -> KeepDrafts<'a> {
        KeepDrafts(store)
    }
}

impl Store for KeepDrafts<'_> {
    fn address(&self) -> &Path {
        self.0.address()
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.0.list()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        self.0.open(name)
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        self.0.check(name, replace)
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        Ok(KeptDraft::wrap(self.0.begin(name, replace)?))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        let found = self.0.abandoned(name, replace)?;
        Ok(found.into_iter().map(|draft| KeptDraft::wrap(draft) as Box<dyn Draft>).collect())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.0.delete(name)
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        self.0.erase(name)
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        self.0.leftovers()
    }
}

/// A draft that is kept on drop if it was written to.
#[derive(Debug)]
struct KeptDraft {
    /// `None` once it is published or kept.
    draft: Option<Box<dyn Draft>>,
    /// Set by the first write; a draft that was only read is removed on drop.
    written: AtomicBool,
}

impl KeptDraft {
    fn wrap(draft: Box<dyn Draft>) -> Box<KeptDraft> {
        Box::new(KeptDraft { draft: Some(draft), written: AtomicBool::new(false) })
    }

    /// Returns the draft, which is present until this value is consumed.
    fn draft(&self) -> Result<&dyn Draft, StoreError> {
        self.draft.as_deref().ok_or(StoreError::Missing { what: "draft", path: PathBuf::new() })
    }

    /// Returns the draft for a write, after which it is kept on drop.
    fn draft_to_write(&self) -> Result<&dyn Draft, StoreError> {
        self.written.store(true, Ordering::Relaxed);
        self.draft()
    }
}

impl Drop for KeptDraft {
    fn drop(&mut self) {
        if self.written.load(Ordering::Relaxed)
            && let Some(draft) = self.draft.take()
        {
            // If this fails, the next build starts from the beginning.
            let _ = draft.leave();
        }
    }
}

impl Generation for KeptDraft {
    fn address(&self) -> &Path {
        self.draft.as_ref().map_or(Path::new(""), |draft| draft.address())
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.draft()?.list()
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        self.draft()?.get(name)
    }

    fn log(&self, name: &str) -> Result<Arc<dyn Log>, StoreError> {
        self.draft()?.log(name)
    }

    fn traffic(&self) -> Option<Arc<Traffic>> {
        self.draft.as_ref()?.traffic()
    }
}

impl Draft for KeptDraft {
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn Append>, StoreError> {
        self.draft_to_write()?.append(name, from)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.draft_to_write()?.replace(name, bytes)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.draft()?.delete(name)
    }

    fn publication_note(&self) -> Option<&str> {
        self.draft.as_ref()?.publication_note()
    }

    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        progress: &ProgressFn<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        self.draft_to_write()?.adopt(from, names, progress)
    }

    fn upload(&self, names: &[&str], note: &str, progress: &ProgressFn<'_>) -> Result<(), StoreError> {
        self.draft_to_write()?.upload(names, note, progress)
    }

    fn publish(mut self: Box<Self>, names: &[&str], note: &str) -> Result<(), StoreError> {
        self.draft.take().map_or(Ok(()), |draft| draft.publish(names, note))
    }

    fn leave(mut self: Box<Self>) -> Result<(), StoreError> {
        self.draft.take().map_or(Ok(()), Draft::leave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::{DraftExt, GenerationExt};
    use crate::memory::MemoryStore;

    #[test]
    fn written_drafts_are_kept_and_unwritten_ones_are_removed() {
        let store = MemoryStore::new("left");
        let leaving = KeepDrafts::new(&store);
        drop(leaving.begin("a", Replace::Never).unwrap());
        assert!(store.leftovers().unwrap().is_empty());
        let draft = leaving.begin("a", Replace::Never).unwrap();
        draft.put("x", b"12").unwrap();
        drop(draft);
        assert_eq!(store.leftovers().unwrap(), ["a"]);
        let found = leaving.abandoned("a", Replace::Never).unwrap().remove(0);
        found.append("x", 2).unwrap().append(b"3").unwrap();
        drop(found);
        let found = leaving.abandoned("a", Replace::Never).unwrap().remove(0);
        assert_eq!(found.read("x").unwrap(), b"123");
        found.leave().unwrap();
        let found = leaving.abandoned("a", Replace::Never).unwrap().remove(0);
        found.publish(&["x"], "").unwrap();
        assert_eq!((store.list().unwrap(), store.leftovers().unwrap()), (vec!["a".into()], vec![]));
        let draft = leaving.begin("b", Replace::Never).unwrap();
        draft.put("x", b"1").unwrap();
        drop(draft);
        // No build continues this draft, so dropping it removes it.
        drop(leaving.abandoned("b", Replace::Never).unwrap());
        assert!(store.leftovers().unwrap().is_empty());
    }
}
