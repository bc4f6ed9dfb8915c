//! What every job of an index refers to.

use super::counters::Counters;
use super::standby::Standby;
use super::tenant::Tenant;
use crate::family::Opened;
use bathyal_tier::lanes::Lanes;
use std::sync::Arc;

/// What every job of an index refers to. There is one for each lane of threads, so that threads which ask queries at the same
/// time do not all count their references in one place.
#[repr(align(128))]
pub(in crate::open) struct Known {
    pub(in crate::open) tenant: Arc<Tenant>,
    /// What stays in memory: one, or a copy for each node that the tenant knows.
    pub(in crate::open) opened: Arc<[Arc<dyn Opened>]>,
    pub(in crate::open) counters: Arc<Counters>,
    /// What goes on where a graphics card is lost.
    pub(in crate::open) standby: Option<Arc<Standby>>,
}

impl Known {
    /// What searches instead of a card that is lost, once it does.
    pub(super) fn lost_card(&self) -> Option<&Arc<dyn Opened>> {
        self.standby.as_ref()?.now()
    }

    /// One for each lane.
    pub(in crate::open) fn lanes(
        tenant: Arc<Tenant>,
        opened: Arc<[Arc<dyn Opened>]>,
        standby: Option<Arc<Standby>>,
    ) -> Lanes<Arc<Known>> {
        let counters = Arc::<Counters>::default();
        let known = || Known {
            tenant: tenant.clone(),
            opened: opened.clone(),
            counters: counters.clone(),
            standby: standby.clone(),
        };
        Lanes::new(|| Arc::new(known()))
    }
}
