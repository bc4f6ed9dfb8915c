//! A draft of a generation over several nodes: a draft on each for the parts, and one on the first for all else. The parts are
//! published before what says where they are, so that nobody sees a generation that is not whole.

use super::draft::{LEAST_PIECE_BYTES, NodeDraft};
use super::nodes::NODES_NAME;
use super::spread_object::{MOST_AT_ONCE, SpreadObject};
use super::spread_store::SpreadStore;
use bathyal_store::stripe::{HEADER_BYTES, Parts, StripeLayout, Table};
use bathyal_store::{Append, Draft, Generation, Object, ProgressFn, Replace, StoreError, check_name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module's description.
#[derive(Debug)]
pub(super) struct SpreadDraft {
    store: SpreadStore,
    path: PathBuf,
    replace: Replace,
    table: Table,
    /// Removed before the draft that says what they are.
    parts: Vec<NodeDraft>,
    first: NodeDraft,
    written: Arc<Mutex<BTreeMap<String, Written>>>,
}

/// What is known of a striped object from writing it.
#[derive(Debug, Clone, Default)]
struct Written {
    len: u64,
    /// Of all its bytes, if they were taken over from another generation.
    crc32c: Option<u32>,
    /// Of what each part holds.
    parts: Vec<u32>,
}

impl SpreadDraft {
    /// A draft at `path` of these drafts, which are to be as `table` says.
    pub(super) fn new(
        store: SpreadStore,
        path: PathBuf,
        replace: Replace,
        table: Table,
        (first, parts): (NodeDraft, Vec<NodeDraft>),
    ) -> SpreadDraft {
        SpreadDraft { store, path, replace, table, parts, first, written: Arc::default() }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<String, Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts of the striped object `name`.
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

    /// Deals a whole object out into the memory of the nodes. Returns the CRC-32C of its bytes.
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
            parts.push(draft.place(name, HEADER_BYTES + deal.share(len, number))?);
        }
        for (number, part) in parts.iter_mut().enumerate() {
            part.append(&self.table.header_bytes(name, number))?;
        }
        let mut dealer = Dealer::new(deal, 0, vec![0; deal.parts()]);
        let mut crc32c = 0;
        let most = from.piece_bytes().max(LEAST_PIECE_BYTES * parts.len().min(MOST_AT_ONCE));
        let mut piece = vec![0; most.min(len as usize)];
        while dealer.at < len {
            let left = usize::try_from(len - dealer.at).unwrap_or(usize::MAX);
            let now = &mut piece[..left.min(most)];
            from.read_at(dealer.at, now)?;
            crc32c = crc32c::crc32c_append(crc32c, now);
            dealer.deal(now, |number, own| parts[number].append(own))?;
            if !attend(now.len() as u64) {
                return Err(StoreError::Cancelled);
            }
        }
        self.parts.iter().zip(parts).for_each(|(draft, part)| draft.placed(part));
        let written = Written { len, crc32c: Some(crc32c), parts: dealer.checksums };
        self.written().insert(name.to_owned(), written);
        Ok(crc32c)
    }

    /// All that is done before a generation is seen: brings every object to its node.
    fn push(&self, names: &[&str], note: &str, attend: &ProgressFn<'_>) -> Result<(), StoreError> {
        let total = names.iter().map(|name| Ok(self.get(name)?.len())).sum::<Result<u64, StoreError>>()?;
        let (of_parts, of_first) = self.divided(names);
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

    /// Names of objects that each part has, and of those that only the first node has.
    fn divided<'n>(&self, names: &[&'n str]) -> (Vec<&'n str>, Vec<&'n str>) {
        let (mut of_parts, mut of_first): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| self.table.is_striped(name));
        of_parts.push(NODES_NAME);
        of_first.push(NODES_NAME);
        (of_parts, of_first)
    }
}

/// Refuses names that are paths, and the one of the table.
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
            let behind = if from > 0 { HEADER_BYTES + deal.share(from, number) } else { 0 };
            let mut part = draft.append(name, behind)?;
            if behind == 0 {
                part.append(&self.table.header_bytes(name, number))?;
            }
            parts.push(part);
        }
        let (dealer, name) = (Dealer::new(deal, from, checksums), name.to_owned());
        Ok(Box::new(SpreadAppend { parts, dealer, name, written: self.written.clone() }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        check_object(name)?;
        if self.table.is_striped(name) {
            let reason = "lies in parts, so it is written from front to back".into();
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
        let (of_parts, of_first) = self.divided(names);
        let SpreadDraft { store, replace, table, parts, first, .. } = *self;
        // From here on there is nothing to do but to give names.
        let replaced = if replace == Replace::Generation { store.standing(table.name())? } else { None };
        let published = parts
            .into_iter()
            .try_for_each(|part| Box::new(part).publish(&of_parts, note))
            .and_then(|()| Box::new(first).publish(&of_first, note));
        let over = match &published {
            Ok(()) => replaced,
            // An answer that was lost may have been a good one.
            Err(_) => {
                store.standing(table.name()).ok().filter(|now| now.as_ref() != Some(&table)).map(|_| table)
            }
        };
        if let Some(over) = over {
            // What cannot be removed now is removed by the next build.
            let _ = store.remove_parts(&over);
        }
        published
    }

    fn leave(self: Box<Self>) -> Result<(), StoreError> {
        let SpreadDraft { parts, first, .. } = *self;
        parts.into_iter().chain([first]).try_for_each(|draft| Box::new(draft).leave())
    }
}

/// Deals bytes out to parts, and notes their checksums.
#[derive(Debug)]
struct Dealer {
    deal: StripeLayout,
    at: u64,
    checksums: Vec<u32>,
}

impl Dealer {
    fn new(deal: StripeLayout, at: u64, checksums: Vec<u32>) -> Dealer {
        Dealer { deal, at, checksums }
    }

    /// Gives each part what it has of `bytes`, all of it at once.
    fn deal(
        &mut self,
        bytes: &[u8],
        mut give: impl FnMut(usize, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut own = vec![Vec::new(); self.deal.parts()];
        for (number, range) in self.deal.runs(self.at, bytes.len()) {
            own[number].extend_from_slice(&bytes[range]);
        }
        for (number, own) in own.iter().enumerate().filter(|(_, own)| !own.is_empty()) {
            give(number, own)?;
            self.checksums[number] = crc32c::crc32c_append(self.checksums[number], own);
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}

/// Parts that are being written.
#[derive(Debug)]
struct SpreadAppend {
    parts: Vec<Box<dyn Append>>,
    dealer: Dealer,
    name: String,
    written: Arc<Mutex<BTreeMap<String, Written>>>,
}

impl Append for SpreadAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let SpreadAppend { parts, dealer, .. } = self;
        dealer.deal(bytes, |number, own| parts[number].append(own))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.parts.iter().try_for_each(|part| part.sync())?;
        let written = Written { len: self.dealer.at, crc32c: None, parts: self.dealer.checksums.clone() };
        self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(self.name.clone(), written);
        Ok(())
    }
}
