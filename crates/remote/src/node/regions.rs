//! The memory of a node: regions, the generations that they make up, and who holds them.
//!
//! A region's memory is given back when nobody holds it any more: neither a generation that stands under a name, nor a
//! session that has opened it.

use super::memory::Region;
use crate::control::{ObjectEntry, Refusal};
use crate::identity::random;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Regions by their keys.
pub(super) type Held = HashMap<u64, Arc<Region>>;

/// Why something is not done, and what to do.
pub(super) type Refused = (Refusal, String);

/// Objects that stand under a name.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) id: u64,
    /// Each with what its writer says is the CRC-32C of its bytes.
    pub(super) objects: BTreeMap<String, (Arc<Region>, u32)>,
}

impl Generation {
    /// What its openers are told of it.
    pub(super) fn entries(&self) -> Vec<ObjectEntry> {
        let entry = |(name, (region, crc32c)): (&String, &(Arc<Region>, u32))| ObjectEntry {
            name: name.clone(),
            bytes: region.bytes,
            region: region.key,
            crc32c: *crc32c,
        };
        self.objects.iter().map(entry).collect()
    }
}

/// A generation under construction.
#[derive(Debug)]
pub(super) struct Draft {
    name: String,
    replace: bool,
    objects: BTreeMap<String, Arc<Region>>,
}

impl Draft {
    /// The keys of its regions.
    pub(super) fn keys(&self) -> Vec<u64> {
        self.objects.values().map(|region| region.key).collect()
    }

    /// Gives an object up; the key that it had.
    pub(super) fn drop_object(&mut self, object: &str) -> Option<u64> {
        Some(self.objects.remove(object)?.key)
    }
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Regions {
    /// What another start of the node does not have.
    pub(super) start: u64,
    pub(super) capacity: u64,
    used: Arc<AtomicU64>,
    /// Begins somewhere else at each start, so that a key of before is none.
    next: AtomicU64,
    standing: Mutex<BTreeMap<String, Arc<Generation>>>,
}

impl Regions {
    pub(super) fn new(capacity: u64) -> io::Result<Regions> {
        let start = u64::from_le_bytes(random::<8>()?);
        let next = AtomicU64::new(u64::from_le_bytes(random::<8>()?) & !0xFFFF_FFFF | 1);
        Ok(Regions { start, capacity, used: Arc::default(), next, standing: Mutex::default() })
    }

    /// Bytes of memory taken.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn standing(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Generation>>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that nothing else has, of this start or another.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.standing().keys().cloned().collect()
    }

    pub(super) fn open(&self, name: &str) -> Option<Arc<Generation>> {
        self.standing().get(name).cloned()
    }

    /// Refuses what could not be published.
    pub(super) fn check(&self, name: &str, replace: bool) -> Result<(), Refused> {
        if !is_name(name) {
            return Err((Refusal::Bad, format!("'{name}' cannot be the name of an index")));
        }
        if !replace && self.standing().contains_key(name) {
            return Err((Refusal::Exists, format!("{name}: already exists")));
        }
        Ok(())
    }

    pub(super) fn begin(&self, name: &str, replace: bool) -> Result<(u64, Draft), Refused> {
        self.check(name, replace)?;
        Ok((self.number(), Draft { name: name.to_owned(), replace, objects: BTreeMap::new() }))
    }

    /// Takes memory for an object of a draft.
    pub(super) fn allocate(
        &self,
        draft: &mut Draft,
        object: &str,
        bytes: u64,
    ) -> Result<Arc<Region>, Refused> {
        if !is_name(object) {
            return Err((Refusal::Bad, format!("'{object}' cannot be the name of an object")));
        }
        let taken = Region::taken_bytes(bytes);
        let room = |used: u64| used.checked_add(taken).filter(|sum| *sum <= self.capacity);
        if let Err(used) = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            let left = self.capacity.saturating_sub(used);
            let what = format!(
                "{object} takes {taken} bytes of memory, the node has {left} left of {}; delete an index there, or start it with \
                 a larger --capacity",
                self.capacity
            );
            return Err((Refusal::Capacity, what));
        }
        let region = Region::new(self.number(), bytes, self.used.clone());
        let region = Arc::new(region.map_err(|e| {
            (Refusal::Capacity, format!("the node's system gives it no {taken} bytes of memory: {e}"))
        })?);
        draft.objects.insert(object.to_owned(), region.clone());
        Ok(region)
    }

    /// Makes a draft what stands under its name; what stood there, if it was replaced, stays for those who hold it.
    /// Of its objects there are those of these names, with their checksums.
    pub(super) fn publish(&self, mut draft: Draft, names: BTreeMap<String, u32>) -> Result<(), Refused> {
        let mut objects = BTreeMap::new();
        for (name, crc32c) in names {
            let Some(region) = draft.objects.remove(&name) else {
                return Err((Refusal::Missing, format!("{name}: was not written")));
            };
            objects.insert(name, (region, crc32c));
        }
        let mut standing = self.standing();
        if !draft.replace && standing.contains_key(&draft.name) {
            return Err((Refusal::Exists, format!("{}: already exists", draft.name)));
        }
        let generation = Generation { id: self.number(), objects };
        let replaced = standing.insert(draft.name, Arc::new(generation));
        drop(standing);
        // Outside the lock: to give gigabytes back takes a while.
        drop(replaced);
        Ok(())
    }

    pub(super) fn delete(&self, name: &str) -> Result<(), Refused> {
        let removed = self.standing().remove(name);
        removed.map(drop).ok_or_else(|| (Refusal::Missing, format!("{name}: there is no such index")))
    }
}

/// Whether a text can be a name: of an index or an object.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && !name.contains(['/', '\0'])
}
