//! A draft of a generation on a node: it lies in a folder of this machine until it is whole, and is then pushed into the
//! node's memory and given its name.

use super::object::NodeObject;
use super::session::Session;
use super::source::Source;
use crate::control::ObjectEntry;
use bathyal_store::{Append, Attend, Draft, Generation, Object, Replace, StoreError, check_name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module's description.
#[derive(Debug)]
pub(super) struct NodeDraft {
    session: Arc<Session>,
    source: Arc<Source>,
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
    /// The node's number of the draft; `None` before anything was pushed, and after all was published.
    draft: Option<u64>,
    objects: BTreeMap<String, (ObjectEntry, u32)>,
}

impl NodeDraft {
    /// On what lies in `local`.
    pub(super) fn new(
        session: Arc<Session>,
        path: PathBuf,
        (name, mark): (&str, &'static str),
        replace: Replace,
        local: Box<dyn Draft>,
    ) -> NodeDraft {
        let source = Arc::new(Source::of_drafts(session.clone()));
        let sealed = local.sealed().map(str::to_owned);
        NodeDraft {
            session,
            source,
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
    fn push(&self, from: &dyn Generation, names: &[&str], attend: &Attend<'_>) -> Result<(), StoreError> {
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
        let path = self.path.join(name);
        let draft = self.number()?;
        let bytes = from.len();
        let region = self.session.allocate(draft, name, bytes).map_err(|e| e.at("write", &path))?;
        let entry = ObjectEntry { name: name.to_owned(), bytes, region };
        let object = NodeObject::new(path, self.source.clone(), &entry, true)?;
        let mut piece = vec![0; from.piece_bytes().min(bytes as usize)];
        let (mut offset, mut checksum) = (0, 0);
        while offset < bytes {
            let now = (bytes - offset).min(piece.len() as u64);
            let part = &mut piece[..now as usize];
            from.read_at(offset, part)?;
            checksum = crc32c::crc32c_append(checksum, part);
            object.write_at(offset, part)?;
            offset += now;
            if !attend(now) {
                return Err(StoreError::Cancelled);
            }
        }
        self.pushed().objects.insert(name.to_owned(), (entry, checksum));
        Ok(())
    }

    /// The node's number of the draft.
    fn number(&self) -> Result<u64, StoreError> {
        let mut pushed = self.pushed();
        if let Some(draft) = pushed.draft {
            return Ok(draft);
        }
        let begun = self.session.begin_draft(&self.name, self.replace == Replace::Generation);
        let draft = begun.map_err(|e| e.at("write", &self.path))?;
        pushed.draft = Some(draft);
        Ok(draft)
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
        let pushed = self.pushed().objects.get(name).map(|(entry, _)| entry.clone());
        match (self.local()?.get(name), pushed) {
            (Err(StoreError::Missing { .. }), Some(entry)) => {
                Ok(Arc::new(NodeObject::new(self.path.join(name), self.source.clone(), &entry, false)?))
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
        attend: &Attend<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        self.push(from, names, attend)?;
        let pushed = self.pushed();
        Ok(names.iter().filter_map(|name| Some(pushed.objects.get(*name)?.1)).collect())
    }

    fn upload(&self, names: &[&str], _note: &str, attend: &Attend<'_>) -> Result<(), StoreError> {
        self.push(self.local()?, names, attend)
    }

    fn sealed(&self) -> Option<&str> {
        self.sealed.as_deref()
    }

    fn publish(self: Box<Self>, names: &[&str], _note: &str) -> Result<(), StoreError> {
        if !names.contains(&self.mark) {
            return Err(StoreError::Missing { what: "file", path: self.path.join(self.mark) });
        }
        self.push(self.local()?, names, &|_, _| true)?;
        let draft = self.number()?;
        let published = self.session.publish(draft, names).map_err(|e| e.at("publish", &self.path));
        if published.is_ok() {
            self.pushed().draft = None;
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
        if let Some(draft) = self.pushed().draft {
            // Nobody will publish it; without an answer it goes with the connection.
            let _ = self.session.abandon(draft);
        }
    }
}
