//! Snapshots that clients hold: a collection as it was at a moment, for several requests.

use crate::failure::Refusal;
use crate::names::EntryName;
use bathyal_collection::Snapshot;
use bathyal_console::Kind;
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most snapshots of a server: each keeps the files and the rows in memory of its moment.
const MOST: usize = 64;
/// The time for which a snapshot is held, if the client does not say how long, and at most.
pub(crate) const USUAL_TIME: Duration = Duration::from_secs(600);
pub(crate) const LONGEST_TIME: Duration = Duration::from_secs(86_400);
const NAME_BYTES: usize = 16;

/// The snapshots of a server, by their names. They end with the server.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<HashMap<String, HeldSnapshot>>);

struct HeldSnapshot {
    collection: EntryName,
    snapshot: Snapshot,
    ends: Instant,
}

impl Snapshots {
    /// Returns the snapshots whose time is not over, after dropping the others.
    fn held(&self) -> MutexGuard<'_, HashMap<String, HeldSnapshot>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        held.retain(|_, one| one.ends > now);
        held
    }

    /// Drops the snapshots whose time is over.
    pub(crate) fn sweep(&self) {
        drop(self.held());
    }

    /// Holds a snapshot of a collection for some time, and returns its name, which nobody can guess.
    pub(crate) fn hold(
        &self,
        collection: EntryName,
        snapshot: Snapshot,
        time: Duration,
    ) -> Result<String, Refusal> {
        let mut random = [0_u8; NAME_BYTES];
        OsRng
            .try_fill_bytes(&mut random)
            .map_err(|error| Refusal::new(Kind::Failed, format!("no name for a snapshot: {error}")))?;
        let name = random.iter().fold(String::new(), |mut name, byte| {
            // Writing to a string does not fail.
            let _ = write!(name, "{byte:02x}");
            name
        });
        let mut held = self.held();
        if held.len() >= MOST {
            let message =
                format!("the server holds {MOST} snapshots; release one, or wait for the end of one");
            return Err(Refusal::new(Kind::Busy, message));
        }
        held.insert(name.clone(), HeldSnapshot { collection, snapshot, ends: Instant::now() + time });
        Ok(name)
    }

    /// Returns a snapshot of a collection.
    pub(crate) fn find(&self, collection: &EntryName, name: &str) -> Result<Snapshot, Refusal> {
        let held = self.held();
        let found = held.get(name).filter(|one| one.collection == *collection);
        Ok(found.ok_or_else(|| missing(collection, name))?.snapshot.clone())
    }

    /// Drops a snapshot before its time is over.
    pub(crate) fn release(&self, collection: &EntryName, name: &str) -> Result<(), Refusal> {
        let mut held = self.held();
        if held.get(name).is_none_or(|one| one.collection != *collection) {
            return Err(missing(collection, name));
        }
        held.remove(name);
        Ok(())
    }

    /// Drops the snapshots of a collection that is removed.
    pub(crate) fn forget(&self, collection: &EntryName) {
        self.held().retain(|_, one| one.collection != *collection);
    }
}

fn missing(collection: &EntryName, name: &str) -> Refusal {
    let message = format!(
        "this server has no snapshot {name} of {collection}: its time is over, it was released, or another \
         server has it; make a new one"
    );
    Refusal::new(Kind::NotFound, message)
}
