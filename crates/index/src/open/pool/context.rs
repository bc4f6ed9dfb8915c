//! The state of an open index to which its jobs refer.

use super::client::PoolClient;
use super::counters::IndexCounters;
use super::standby::Standby;
use crate::family::Opened;
use bathyal_tier::lanes::Lanes;
use std::sync::Arc;

/// The state of an open index to which its jobs refer. Each lane of threads has a `JobContext` of its own, so
/// that threads that search at the same time do not count their references in one place.
#[repr(align(128))]
pub(in crate::open) struct JobContext {
    pub(in crate::open) client: Arc<PoolClient>,
    /// The part of the index that is in memory: one copy, or one for each NUMA node of the client.
    pub(in crate::open) opened: Arc<[Arc<dyn Opened>]>,
    pub(in crate::open) counters: Arc<IndexCounters>,
    /// Searches in place of a graphics card that is lost.
    pub(in crate::open) standby: Option<Arc<Standby>>,
}

impl JobContext {
    /// Returns the searcher that replaces a lost card, once it is open.
    pub(super) fn card_replacement(&self) -> Option<&Arc<dyn Opened>> {
        self.standby.as_ref()?.replacement()
    }

    /// Creates a context for each lane.
    pub(in crate::open) fn lanes(
        client: Arc<PoolClient>,
        opened: Arc<[Arc<dyn Opened>]>,
        standby: Option<Arc<Standby>>,
    ) -> Lanes<Arc<JobContext>> {
        let counters = Arc::<IndexCounters>::default();
        let context = || JobContext {
            client: client.clone(),
            opened: opened.clone(),
            counters: counters.clone(),
            standby: standby.clone(),
        };
        Lanes::new(|| Arc::new(context()))
    }
}
