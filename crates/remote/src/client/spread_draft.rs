//! A draft of a generation over several nodes: one draft on each node for the parts of striped objects, and
//! one more on the first node for all other objects. The parts are published before the table that refers to
//! them, so no incomplete generation is ever visible.

use super::draft::{MIN_PIECE_BYTES, NodeDraft};
use super::node_table::NODES_NAME;
use super::spread_object::{MAX_AT_ONCE, SpreadObject};
use super::spread_store::SpreadStore;
use bathyal_store::stripe::{HEADER_BYTES, Parts, StripeLayout, Table};
use bathyal_store::{Append, Draft, Generation, Object, ProgressFn, Replace, StoreError, check_name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A draft of a generation over several nodes, at `path`.
#[derive(Debug)]
pub(super) struct SpreadDraft {
    store: SpreadStore,
    path: PathBuf,
    replace: Replace,
    table: Table,
    /// Drafts of the parts. Dropped before the draft with the table that refers to them.
    parts: Vec<NodeDraft>,
    first: NodeDraft,
    written: Arc<Mutex<BTreeMap<String, WrittenObject>>>,
}

/// Lengths and checksums of a striped object, known from writing it.
#[derive(Debug, Clone, Default)]
struct WrittenObject {
    len: u64,
    /// CRC-32C of all its bytes, if they were copied from another generation.
    crc32c: Option<u32>,
    /// CRC-32C of the bytes in each part.
    parts: Vec<u32>,
}

impl SpreadDraft {
    /// Creates a draft at `path` from the drafts of its parts, which are to be laid out as in `table`.
    pub(super) fn new(
        store: SpreadStore,
        path: PathBuf,
        replace: Replace,
        table: Table,
        (first, parts): (NodeDraft, Vec<NodeDraft>),
    ) -> SpreadDraft {
        SpreadDraft { store, path, replace, table, parts, first, written: Arc::default() }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<String, WrittenObject>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the parts of the striped object `name`.
    fn parts_of(&self, name: &str) -> Result<Parts, StoreError> {
        let path = self.path.join(name);
        let objects = self.parts.iter().map(|part| part.get(name)).collect::<Result<Vec<_>, _>>();
        let objects = objects.map_err(|error| match error {
            StoreError::Missing { what, .. } => StoreError::Missing { what, path: path.clone() },
            error => error,
        })?;
        let parts = SpreadObject::parts(&self.table, name, &path, objects)?;
        Ok(match self.written().get(name) {
            Some(written) => parts.with_checksums(written.len, written.parts.clone()),
            None => parts,
        })
    }

    /// Splits an object over the memory of the nodes. Returns the CRC-32C of its bytes.
    fn adopt_striped(
        &self,
        name: &str,
        from: &dyn Object,
        attend: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u32, StoreError> {
        if let Some(checksum) = self.written().get(name).and_then(|written| written.crc32c) {
            return Ok(checksum);
        }
        let (deal, len) = (self.table.layout(), from.len());
        let mut parts = Vec::new();
        for (number, draft) in self.parts.iter().enumerate() {
            parts.push(draft.allocate(name, HEADER_BYTES + deal.share(len, number))?);
        }
        for (number, part) in parts.iter_mut().enumerate() {
            part.append(&self.table.header_bytes(name, number))?;
        }
        let mut splitter = PartSplitter::new(deal, 0, vec![0; deal.parts()]);
        let mut crc32c = 0;
        let piece_bytes = from.piece_bytes().max(MIN_PIECE_BYTES * parts.len().min(MAX_AT_ONCE));
        let mut piece = vec![0; piece_bytes.min(len as usize)];
        while splitter.at < len {
            let left = usize::try_from(len - splitter.at).unwrap_or(usize::MAX);
            let piece_out = &mut piece[..left.min(piece_bytes)];
            from.read_at(splitter.at, piece_out)?;
            crc32c = crc32c::crc32c_append(crc32c, piece_out);
            splitter.split(piece_out, |number, part| parts[number].append(part))?;
            if !attend(piece_out.len() as u64) {
                return Err(StoreError::Cancelled);
            }
        }
        self.parts.iter().zip(parts).for_each(|(draft, part)| draft.record_pushed(part));
        let written = WrittenObject { len, crc32c: Some(crc32c), parts: splitter.checksums };
        self.written().insert(name.to_owned(), written);
        Ok(crc32c)
    }

    /// Pushes every object to its node, which is all work before publishing.
    fn push(&self, names: &[&str], note: &str, attend: &ProgressFn<'_>) -> Result<(), StoreError> {
        let total = names.iter().map(|name| Ok(self.get(name)?.len())).sum::<Result<u64, StoreError>>()?;
        let (of_parts, of_first) = self.split_names(names);
        let mut before = 0;
        let drafts = self.parts.iter().map(|part| (part, &of_parts)).chain([(&self.first, &of_first)]);
        for (draft, names) in drafts {
            let last = AtomicU64::new(0);
            draft.upload(names, note, &|done, _| {
                last.store(done, Ordering::Relaxed);
                attend((before + done).min(total), total)
            })?;
            before += last.into_inner();
        }
        Ok(())
    }

    /// Splits `names` into the objects that each part has and those that only the first node has. Both
    /// include the table.
    fn split_names<'n>(&self, names: &[&'n str]) -> (Vec<&'n str>, Vec<&'n str>) {
        let (mut of_parts, mut of_first): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| self.table.is_striped(name));
        of_parts.push(NODES_NAME);
        of_first.push(NODES_NAME);
        (of_parts, of_first)
    }
}

/// Refuses names that are paths, and the name of the table.
pub(super) fn check_object(name: &str) -> Result<(), StoreError> {
    if name == NODES_NAME {
        return Err(StoreError::Name { name: name.to_owned() });
    }
    check_name(name)
}

impl Generation for SpreadDraft {
    fn address(&self) -> &Path {
        self.first.address()
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        let mut names = self.first.list()?;
        names.extend(self.parts[0].list()?);
        names.retain(|name| name != NODES_NAME);
        names.sort();
        Ok(names)
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_object(name)?;
        if !self.table.is_striped(name) {
            return self.first.get(name);
        }
        Ok(Arc::new(SpreadObject::new(self.path.join(name), self.parts_of(name)?)))
    }
}

impl Draft for SpreadDraft {
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn Append>, StoreError> {
        check_object(name)?;
        if !self.table.is_striped(name) {
            return self.first.append(name, from);
        }
        self.written().remove(name);
        let deal = self.table.layout();
        let mut checksums = vec![0; deal.parts()];
        if from > 0 {
            let parts = self.parts_of(name)?;
            if parts.len() < from {
                let (path, len) = (self.path.join(name), parts.len());
                return Err(StoreError::Short { path, offset: 0, wanted: from, len });
            }
            for (number, checksum) in checksums.iter_mut().enumerate() {
                *checksum = parts.checksum(number, deal.share(from, number))?;
            }
        }
        let mut parts = Vec::new();
        for (number, draft) in self.parts.iter().enumerate() {
            let part_offset = if from > 0 { HEADER_BYTES + deal.share(from, number) } else { 0 };
            let mut part = draft.append(name, part_offset)?;
            if part_offset == 0 {
                part.append(&self.table.header_bytes(name, number))?;
            }
            parts.push(part);
        }
        let (splitter, name) = (PartSplitter::new(deal, from, checksums), name.to_owned());
        Ok(Box::new(SpreadAppend { parts, splitter, name, written: self.written.clone() }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        check_object(name)?;
        if self.table.is_striped(name) {
            let reason = "is striped, so it can only be appended to".into();
            return Err(StoreError::Irregular { path: self.path.join(name), reason });
        }
        self.first.replace(name, bytes)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_object(name)?;
        self.written().remove(name);
        self.parts.iter().chain([&self.first]).try_for_each(|draft| draft.delete(name))
    }

    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        attend: &ProgressFn<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        let objects = names.iter().map(|name| from.get(name)).collect::<Result<Vec<_>, _>>()?;
        let total = objects.iter().map(|object| object.len()).sum();
        let (mut before, mut checksums) = (0, Vec::new());
        for (name, object) in names.iter().zip(objects) {
            if self.table.is_striped(name) {
                let mut done = before;
                checksums.push(self.adopt_striped(name, object.as_ref(), &mut |bytes| {
                    done += bytes;
                    attend(done, total)
                })?);
            } else {
                checksums.extend(self.first.adopt(from, &[name], &|done, _| attend(before + done, total))?);
            }
            before += object.len();
        }
        Ok(checksums)
    }

    fn publication_note(&self) -> Option<&str> {
        self.first.publication_note()
    }

    fn upload(&self, names: &[&str], note: &str, attend: &ProgressFn<'_>) -> Result<(), StoreError> {
        self.push(names, note, attend)
    }

    fn publish(self: Box<Self>, names: &[&str], note: &str) -> Result<(), StoreError> {
        self.push(names, note, &|_, _| true)?;
        let (of_parts, of_first) = self.split_names(names);
        let SpreadDraft { store, replace, table, parts, first, .. } = *self;
        // Everything is pushed: what remains is to publish the drafts.
        let replaced =
            if replace == Replace::Generation { store.published_table(table.name())? } else { None };
        let published = parts
            .into_iter()
            .try_for_each(|part| Box::new(part).publish(&of_parts, note))
            .and_then(|()| Box::new(first).publish(&of_first, note));
        let obsolete = match &published {
            Ok(()) => replaced,
            // If the reply was lost, the generation may have been published.
            Err(_) => store
                .published_table(table.name())
                .ok()
                .filter(|now| now.as_ref() != Some(&table))
                .map(|_| table),
        };
        if let Some(obsolete) = obsolete {
            // Parts that cannot be removed now are removed by the next build.
            let _ = store.remove_parts(&obsolete);
        }
        published
    }

    fn leave(self: Box<Self>) -> Result<(), StoreError> {
        let SpreadDraft { parts, first, .. } = *self;
        parts.into_iter().chain([first]).try_for_each(|draft| Box::new(draft).leave())
    }
}

/// Splits bytes into parts, and computes the checksums of the parts.
#[derive(Debug)]
struct PartSplitter {
    deal: StripeLayout,
    at: u64,
    checksums: Vec<u32>,
}

impl PartSplitter {
    fn new(deal: StripeLayout, at: u64, checksums: Vec<u32>) -> PartSplitter {
        PartSplitter { deal, at, checksums }
    }

    /// Calls `write` with the number of each part and all its bytes of `bytes`, if it has any.
    fn split(
        &mut self,
        bytes: &[u8],
        mut write: impl FnMut(usize, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut part_bytes = vec![Vec::new(); self.deal.parts()];
        for (number, range) in self.deal.runs(self.at, bytes.len()) {
            part_bytes[number].extend_from_slice(&bytes[range]);
        }
        for (number, part) in part_bytes.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            write(number, part)?;
            self.checksums[number] = crc32c::crc32c_append(self.checksums[number], part);
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}

/// Writer of a striped object.
#[derive(Debug)]
struct SpreadAppend {
    parts: Vec<Box<dyn Append>>,
    splitter: PartSplitter,
    name: String,
    written: Arc<Mutex<BTreeMap<String, WrittenObject>>>,
}

impl Append for SpreadAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let SpreadAppend { parts, splitter, .. } = self;
        splitter.split(bytes, |number, part| parts[number].append(part))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.parts.iter().try_for_each(|part| part.sync())?;
        let written =
            WrittenObject { len: self.splitter.at, crc32c: None, parts: self.splitter.checksums.clone() };
        self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(self.name.clone(), written);
        Ok(())
    }
}
