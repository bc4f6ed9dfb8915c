//! A draft of a generation on a node: it lies in a folder of this machine until it is whole, and is then pushed into the
//! node's memory and given its name.

use super::object::NodeObject;
use super::session::{Peer, Session};
use super::source::Source;
use crate::control::ObjectEntry;
use bathyal_store::{Append, Draft, Generation, Object, ProgressFn, Replace, StoreError, check_name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are pushed at once, by a connection of their own.
pub(super) const LEAST_PIECE_BYTES: usize = 4 << 20;

/// See the module's description.
#[derive(Debug)]
pub(super) struct NodeDraft {
    peer: Peer,
    path: PathBuf,
    name: String,
    /// The object that a generation is known by.
    mark: &'static str,
    replace: Replace,
    /// Gone once it is left.
    local: Option<Box<dyn Draft>>,
    pushed: Mutex<Pushed>,
    sealed: Option<String>,
}

/// What of a draft is in the node's memory.
#[derive(Debug, Default)]
struct Pushed {
    /// The session that holds them, and its number of the draft; `None` before anything was pushed, and after all was published.
    held: Option<Held>,
    objects: BTreeMap<String, ObjectEntry>,
}

/// Where a draft is in a node's memory.
#[derive(Debug, Clone)]
struct Held {
    session: Arc<Session>,
    source: Arc<Source>,
    number: u64,
}

/// An object that is being written into the node's memory.
#[derive(Debug)]
pub(super) struct Placing {
    object: NodeObject,
    entry: ObjectEntry,
    at: u64,
}

impl Placing {
    /// Writes what follows.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.object.write_at(self.at, bytes)?;
        self.entry.crc32c = crc32c::crc32c_append(self.entry.crc32c, bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl NodeDraft {
    /// On what lies in `local`.
    pub(super) fn new(
        peer: Peer,
        path: PathBuf,
        (name, mark): (&str, &'static str),
        replace: Replace,
        local: Box<dyn Draft>,
    ) -> NodeDraft {
        let sealed = local.publication_note().map(str::to_owned);
        NodeDraft {
            peer,
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

    fn pushed(&self) -> MutexGuard<'_, Pushed> {
        self.pushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings those of the objects `names` of `from` that are not there yet into the node's memory.
    fn push(&self, from: &dyn Generation, names: &[&str], attend: &ProgressFn<'_>) -> Result<(), StoreError> {
        let mut objects = Vec::new();
        for name in names {
            if !self.pushed().objects.contains_key(*name) {
                objects.push((*name, from.get(name)?));
            }
        }
        let all = objects.iter().map(|(_, object)| object.len()).sum();
        let mut done = 0;
        for (name, object) in objects {
            self.push_one(name, object.as_ref(), &mut |bytes| {
                done += bytes;
                attend(done, all)
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
        let mut placing = self.place(name, bytes)?;
        let mut piece = vec![0; from.piece_bytes().max(LEAST_PIECE_BYTES).min(bytes as usize)];
        while placing.at < bytes {
            let now = (bytes - placing.at).min(piece.len() as u64);
            let part = &mut piece[..now as usize];
            from.read_at(placing.at, part)?;
            placing.append(part)?;
            if !attend(now) {
                return Err(StoreError::Cancelled);
            }
        }
        self.placed(placing);
        Ok(())
    }

    /// Takes memory for an object of so many bytes, which are then written from front to back.
    pub(super) fn place(&self, name: &str, bytes: u64) -> Result<Placing, StoreError> {
        let path = self.path.join(name);
        let held = self.held()?;
        let region = held.session.allocate(held.number, name, bytes).map_err(|e| e.at("write", &path))?;
        let entry = ObjectEntry { name: name.to_owned(), bytes, region, crc32c: 0 };
        let object = NodeObject::new(path, held.source, &entry, true)?;
        Ok(Placing { object, entry, at: 0 })
    }

    /// Counts an object of which all bytes were written among those that are there.
    pub(super) fn placed(&self, whole: Placing) {
        self.pushed().objects.insert(whole.entry.name.clone(), whole.entry);
    }

    /// Where it is in the node's memory: from when something is pushed on, which may be hours after it was begun.
    fn held(&self) -> Result<Held, StoreError> {
        let mut pushed = self.pushed();
        if let Some(held) = &pushed.held {
            return Ok(held.clone());
        }
        let session = self.peer.begin(true)?;
        let begun = session.begin_draft(&self.name, self.replace == Replace::Generation);
        let number = begun.map_err(|e| e.at("write", &self.path))?;
        let source = Arc::new(Source::of_drafts(session.clone()));
        let held = Held { session, source, number };
        pushed.held = Some(held.clone());
        Ok(held)
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
                let source = self.held()?.source;
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
        let held = self.held()?;
        let objects = self.pushed().objects.clone().into_iter();
        let named = objects.filter(|(name, _)| names.contains(&name.as_str()));
        let named = named.map(|(name, entry)| (name, entry.crc32c)).collect();
        let published = held.session.publish(held.number, named).map_err(|e| e.at("publish", &self.path));
        if published.is_ok() {
            self.pushed().held = None;
        }
        published
    }

    fn leave(mut self: Box<Self>) -> Result<(), StoreError> {
        // What was pushed goes with the connection.
        self.local.take().map_or(Ok(()), Draft::leave)
    }
}

impl Drop for NodeDraft {
    fn drop(&mut self) {
        if let Some(held) = self.pushed().held.take() {
            // Nobody will publish it; without an answer it goes with the connection.
            let _ = held.session.abandon(held.number);
        }
    }
}
