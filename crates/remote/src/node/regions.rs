//! The memory of a node: regions, and the generations that consist of them.
//!
//! A region is freed when neither a published generation nor a session refers to it any more.

use super::region_memory::NodeRegion;
use crate::control::{ObjectEntry, Refusal};
use crate::identity::random;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Regions by their keys.
pub(super) type RegionMap = HashMap<u64, Arc<NodeRegion>>;

/// A refused request: the kind of refusal, and a message that says what to do.
pub(super) type RefusedRequest = (Refusal, String);

/// The objects published under a name.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) id: u64,
    /// Region of each object, and the CRC-32C of its bytes as computed by its writer.
    pub(super) objects: BTreeMap<String, (Arc<NodeRegion>, u32)>,
}

impl Generation {
    /// Returns the description of the objects for clients.
    pub(super) fn entries(&self) -> Vec<ObjectEntry> {
        let entry = |(name, (region, crc32c)): (&String, &(Arc<NodeRegion>, u32))| ObjectEntry {
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
    objects: BTreeMap<String, Arc<NodeRegion>>,
}

impl Draft {
    /// Returns the keys of its regions.
    pub(super) fn keys(&self) -> Vec<u64> {
        self.objects.values().map(|region| region.key).collect()
    }

    /// Removes an object. Returns the key of its region.
    pub(super) fn drop_object(&mut self, object: &str) -> Option<u64> {
        Some(self.objects.remove(object)?.key)
    }
}

/// All regions and generations of a node.
#[derive(Debug)]
pub(super) struct Regions {
    /// A random number of this run of the node.
    pub(super) start: u64,
    pub(super) capacity: u64,
    used: Arc<AtomicU64>,
    /// Next number. It starts at random in each run, so that keys of an earlier run are unknown in this one.
    next: AtomicU64,
    /// Published generations by name.
    published: Mutex<BTreeMap<String, Arc<Generation>>>,
}

impl Regions {
    pub(super) fn new(capacity: u64) -> io::Result<Regions> {
        let start = u64::from_le_bytes(random::<8>()?);
        let next = AtomicU64::new(u64::from_le_bytes(random::<8>()?) & !0xFFFF_FFFF | 1);
        Ok(Regions { start, capacity, used: Arc::default(), next, published: Mutex::default() })
    }

    /// Returns the bytes of memory that regions take.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn published(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Generation>>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number that nothing else has, of this or another run of the node.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.published().keys().cloned().collect()
    }

    pub(super) fn open(&self, name: &str) -> Option<Arc<Generation>> {
        self.published().get(name).cloned()
    }

    /// Checks that a draft may be published under `name`.
    pub(super) fn check(&self, name: &str, replace: bool) -> Result<(), RefusedRequest> {
        if !is_name(name) {
            return Err((Refusal::Bad, format!("'{name}' cannot be the name of an index")));
        }
        if !replace && self.published().contains_key(name) {
            return Err((Refusal::Exists, format!("{name}: already exists")));
        }
        Ok(())
    }

    pub(super) fn begin(&self, name: &str, replace: bool) -> Result<(u64, Draft), RefusedRequest> {
        self.check(name, replace)?;
        Ok((self.number(), Draft { name: name.to_owned(), replace, objects: BTreeMap::new() }))
    }

    /// Allocates memory for an object of a draft.
    pub(super) fn allocate(
        &self,
        draft: &mut Draft,
        object: &str,
        bytes: u64,
    ) -> Result<Arc<NodeRegion>, RefusedRequest> {
        if !is_name(object) {
            return Err((Refusal::Bad, format!("'{object}' cannot be the name of an object")));
        }
        let allocated = NodeRegion::allocated_bytes(bytes);
        let add_region = |used: u64| used.checked_add(allocated).filter(|sum| *sum <= self.capacity);
        if let Err(used) = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add_region) {
            let left = self.capacity.saturating_sub(used);
            let what = format!(
                "{object} needs {allocated} bytes of memory, and the node has {left} left of {}; delete an \
                 index there, or start it with a larger --capacity",
                self.capacity
            );
            return Err((Refusal::Capacity, what));
        }
        let region = NodeRegion::new(self.number(), bytes, self.used.clone());
        let region = Arc::new(region.map_err(|e| {
            (Refusal::Capacity, format!("the node's system cannot allocate {allocated} bytes: {e}"))
        })?);
        draft.objects.insert(object.to_owned(), region.clone());
        Ok(region)
    }

    /// Publishes the objects of a draft that are in `names`, which gives the checksum of each. A generation
    /// that is replaced stays valid for the sessions that hold its regions.
    pub(super) fn publish(
        &self,
        mut draft: Draft,
        names: BTreeMap<String, u32>,
    ) -> Result<(), RefusedRequest> {
        let mut objects = BTreeMap::new();
        for (name, crc32c) in names {
            let Some(region) = draft.objects.remove(&name) else {
                return Err((Refusal::Missing, format!("{name}: was not written")));
            };
            objects.insert(name, (region, crc32c));
        }
        let mut published = self.published();
        if !draft.replace && published.contains_key(&draft.name) {
            return Err((Refusal::Exists, format!("{}: already exists", draft.name)));
        }
        let generation = Generation { id: self.number(), objects };
        let replaced = published.insert(draft.name, Arc::new(generation));
        drop(published);
        // Dropped outside the lock: freeing gigabytes takes a while.
        drop(replaced);
        Ok(())
    }

    pub(super) fn delete(&self, name: &str) -> Result<(), RefusedRequest> {
        let removed = self.published().remove(name);
        removed.map(drop).ok_or_else(|| (Refusal::Missing, format!("{name}: the node has no such index")))
    }
}

/// Returns true if `name` is valid for an index or an object.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && !name.contains(['/', '\0'])
}
