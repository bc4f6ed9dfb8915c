//! A draft of a generation on a node. Its objects are in a local folder until they are complete; then they
//! are pushed into the node's memory and published.

use super::object::NodeObject;
use super::session::{NodeTarget, Session};
use super::source::RegionSource;
use crate::control::ObjectEntry;
use bathyal_store::{Append, Draft, Generation, Object, ProgressFn, Replace, StoreError, check_name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Minimum bytes of a piece. Each piece is pushed over a connection of its own.
pub(super) const MIN_PIECE_BYTES: usize = 4 << 20;

/// A draft of the generation `name`, at `path`.
#[derive(Debug)]
pub(super) struct NodeDraft {
    target: NodeTarget,
    path: PathBuf,
    name: String,
    /// Name of the object that every generation has.
    mark: &'static str,
    replace: Replace,
    /// The local draft. `None` after [`Draft::leave`].
    local: Option<Box<dyn Draft>>,
    pushed: Mutex<PushedObjects>,
    sealed: Option<String>,
}

/// The part of a draft that is in the node's memory.
#[derive(Debug, Default)]
struct PushedObjects {
    /// The node's draft. `None` before the first push and after publishing.
    remote: Option<NodeSideDraft>,
    objects: BTreeMap<String, ObjectEntry>,
}

/// A draft in a node's memory: the session that holds it, and its number.
#[derive(Debug, Clone)]
struct NodeSideDraft {
    session: Arc<Session>,
    source: Arc<RegionSource>,
    number: u64,
}

/// Writer of one object into the node's memory, from front to back.
#[derive(Debug)]
pub(super) struct ObjectWriter {
    object: NodeObject,
    entry: ObjectEntry,
    at: u64,
}

impl ObjectWriter {
    /// Writes the next bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.object.write_at(self.at, bytes)?;
        self.entry.crc32c = crc32c::crc32c_append(self.entry.crc32c, bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl NodeDraft {
    /// Creates a draft whose objects are in `local`.
    pub(super) fn new(
        target: NodeTarget,
        path: PathBuf,
        (name, mark): (&str, &'static str),
        replace: Replace,
        local: Box<dyn Draft>,
    ) -> NodeDraft {
        let sealed = local.publication_note().map(str::to_owned);
        NodeDraft {
            target,
            path,
            name: name.to_owned(),
            mark,
            replace,
            local: Some(local),
            pushed: Mutex::default(),
            sealed,
        }
    }

    fn local(&self) -> Result<&dyn Draft, StoreError> {
        let gone = || StoreError::Missing { what: "draft", path: self.path.clone() };
        self.local.as_deref().ok_or_else(gone)
    }

    fn pushed(&self) -> MutexGuard<'_, PushedObjects> {
        self.pushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pushes the objects `names` of `from` into the node's memory, except for those that are there already.
    fn push(&self, from: &dyn Generation, names: &[&str], attend: &ProgressFn<'_>) -> Result<(), StoreError> {
        let mut objects = Vec::new();
        for name in names {
            if !self.pushed().objects.contains_key(*name) {
                objects.push((*name, from.get(name)?));
            }
        }
        let total = objects.iter().map(|(_, object)| object.len()).sum();
        let mut done = 0;
        for (name, object) in objects {
            self.push_one(name, object.as_ref(), &mut |bytes| {
                done += bytes;
                attend(done, total)
            })?;
        }
        Ok(())
    }

    fn push_one(
        &self,
        name: &str,
        from: &dyn Object,
        attend: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), StoreError> {
        let bytes = from.len();
        let mut writer = self.allocate(name, bytes)?;
        let mut piece = vec![0; from.piece_bytes().max(MIN_PIECE_BYTES).min(bytes as usize)];
        while writer.at < bytes {
            let now = (bytes - writer.at).min(piece.len() as u64);
            let part = &mut piece[..now as usize];
            from.read_at(writer.at, part)?;
            writer.append(part)?;
            if !attend(now) {
                return Err(StoreError::Cancelled);
            }
        }
        self.record_pushed(writer);
        Ok(())
    }

    /// Allocates memory for an object of `bytes` bytes. Returns the writer that fills it.
    pub(super) fn allocate(&self, name: &str, bytes: u64) -> Result<ObjectWriter, StoreError> {
        let path = self.path.join(name);
        let remote = self.remote()?;
        let region = remote.session.allocate(remote.number, name, bytes).map_err(|e| e.at("write", &path))?;
        let entry = ObjectEntry { name: name.to_owned(), bytes, region, crc32c: 0 };
        let object = NodeObject::new(path, remote.source, &entry, true)?;
        Ok(ObjectWriter { object, entry, at: 0 })
    }

    /// Records an object as pushed, after all its bytes were written.
    pub(super) fn record_pushed(&self, written: ObjectWriter) {
        self.pushed().objects.insert(written.entry.name.clone(), written.entry);
    }

    /// Returns the draft in the node's memory. Begins it at the first call, because a build may take hours
    /// before the first push.
    fn remote(&self) -> Result<NodeSideDraft, StoreError> {
        let mut pushed = self.pushed();
        if let Some(remote) = &pushed.remote {
            return Ok(remote.clone());
        }
        let session = self.target.connect(true)?;
        let begun = session.begin_draft(&self.name, self.replace == Replace::Generation);
        let number = begun.map_err(|e| e.at("write", &self.path))?;
        let source = Arc::new(RegionSource::of_draft(session.clone()));
        let remote = NodeSideDraft { session, source, number };
        pushed.remote = Some(remote.clone());
        Ok(remote)
    }
}

impl Generation for NodeDraft {
    fn address(&self) -> &Path {
        self.local.as_deref().map_or(&self.path, |local| local.address())
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.local()?.list()
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_name(name)?;
        let pushed = self.pushed().objects.get(name).cloned();
        match (self.local()?.get(name), pushed) {
            (Err(StoreError::Missing { .. }), Some(entry)) => {
                let source = self.remote()?.source;
                Ok(Arc::new(NodeObject::new(self.path.join(name), source, &entry, false)?))
            }
            (found, _) => found,
        }
    }
}

impl Draft for NodeDraft {
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn Append>, StoreError> {
        check_name(name)?;
        self.pushed().objects.remove(name);
        self.local()?.append(name, from)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        check_name(name)?;
        self.pushed().objects.remove(name);
        self.local()?.replace(name, bytes)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        self.pushed().objects.remove(name);
        self.local()?.delete(name)
    }

    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        attend: &ProgressFn<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        self.push(from, names, attend)?;
        let pushed = self.pushed();
        Ok(names.iter().filter_map(|name| Some(pushed.objects.get(*name)?.crc32c)).collect())
    }

    fn upload(&self, names: &[&str], _note: &str, attend: &ProgressFn<'_>) -> Result<(), StoreError> {
        self.push(self.local()?, names, attend)
    }

    fn publication_note(&self) -> Option<&str> {
        self.sealed.as_deref()
    }

    fn publish(self: Box<Self>, names: &[&str], _note: &str) -> Result<(), StoreError> {
        if !names.contains(&self.mark) {
            return Err(StoreError::Missing { what: "file", path: self.path.join(self.mark) });
        }
        self.push(self.local()?, names, &|_, _| true)?;
        let remote = self.remote()?;
        let objects = self.pushed().objects.clone().into_iter();
        let checksums = objects.filter(|(name, _)| names.contains(&name.as_str()));
        let checksums = checksums.map(|(name, entry)| (name, entry.crc32c)).collect();
        let published =
            remote.session.publish(remote.number, checksums).map_err(|e| e.at("publish", &self.path));
        if published.is_ok() {
            self.pushed().remote = None;
        }
        published
    }

    fn leave(mut self: Box<Self>) -> Result<(), StoreError> {
        // The node frees the pushed objects when the connection ends.
        self.local.take().map_or(Ok(()), Draft::leave)
    }
}

impl Drop for NodeDraft {
    fn drop(&mut self) {
        if let Some(remote) = self.pushed().remote.take() {
            // It will not be published. If this fails, the node drops it when the connection ends.
            let _ = remote.session.abandon(remote.number);
        }
    }
}
