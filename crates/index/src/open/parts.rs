//! The parts of an open index, which its background work shares with it.

use super::calibrations::Calibrations;
use super::card_fallback::CardTrouble;
use super::change_log::Changing;
use super::known_places::KnownPlaces;
use super::loaded::Loaded;
use super::memory_plan::SearchPlan;
use super::pool::{JobContext, Pool, process};
use super::store_traffic::StoreTraffic;
use super::stored::StoredIndex;
use bathyal_tier::lanes::Lanes;
use std::sync::Arc;

/// The parts of an open index. [`Index`](super::Index) is a handle of them.
pub struct IndexParts {
    /// The index as it is stored: its path, its manifest and its family.
    pub(super) stored: StoredIndex,
    /// The data in memory, and the tier from which the rest is read.
    pub(super) loaded: Loaded,
    /// The division of the memory, and what is left for searches.
    pub(super) plan: SearchPlan,
    /// The changes since the build; `None` if the index does not take changes.
    pub(super) changing: Option<Changing>,
    /// The calibrations with queries of the user.
    pub(super) calibrations: Calibrations,
    /// The state to which jobs refer, one for each lane of threads.
    pub(super) contexts: Lanes<Arc<JobContext>>,
    /// The requests to a remote store, if the index is in one.
    pub(super) traffic: Option<StoreTraffic>,
    /// The failures of the graphics card, and its replacement by the processor.
    pub(super) trouble: CardTrouble,
    /// The positions of vectors, and of the codes of row sets, that were found so far.
    pub(super) known_places: KnownPlaces,
    /// The process that opened it.
    pub(super) process: u32,
}

impl Drop for IndexParts {
    fn drop(&mut self) {
        if process() == self.process {
            Pool::of_this_process().close_engines(&self.contexts.here().client);
        }
    }
}
