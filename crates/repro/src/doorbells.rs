//! Counts of the round trips of searches, by a layer above the emulated device.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bathyal_index::open::WrapTier;
use bathyal_tier::Tier;
use bathyal_tier::layer::doorbell::{DoorbellCounts, DoorbellTier};

/// Counts of the round trips of an open index, over all its copies.
#[derive(Clone, Default)]
pub(crate) struct Doorbells(Arc<Mutex<Vec<DoorbellTier>>>);

impl Doorbells {
    fn tiers(&self) -> MutexGuard<'_, Vec<DoorbellTier>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> DoorbellCounts {
        let mut all = DoorbellCounts::default();
        for DoorbellCounts { doorbells, reads, bytes } in self.tiers().iter().map(DoorbellTier::counts) {
            all.doorbells += doorbells;
            all.reads += reads;
            all.bytes += bytes;
        }
        all
    }

    /// Returns a wrapper that puts `device` in front of a tier and counts its doorbells, of at most `reads`
    /// reads each. Without a limit each submission is one doorbell. A query then has as many as it has
    /// rounds, or more if the buffers of a thread do not hold a whole round.
    pub(crate) fn wrap(
        &self,
        device: impl Fn(Arc<dyn Tier>) -> Arc<dyn Tier> + Send + Sync + 'static,
        reads: Option<NonZeroU32>,
    ) -> WrapTier {
        let all = self.clone();
        Arc::new(move |tier| {
            let card = device(tier);
            let tier = match reads {
                Some(reads) => DoorbellTier::new(card, reads),
                None => DoorbellTier::unlimited(card),
            };
            all.tiers().push(tier.clone());
            Ok(Arc::new(tier))
        })
    }
}
