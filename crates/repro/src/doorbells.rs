//! How often searches of an index wait: round trips, counted by a layer before whatever is emulated.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bathyal_index::open::WrapTier;
use bathyal_tier::Tier;
use bathyal_tier::layer::doorbell::{DoorbellCounts, DoorbellTier};

/// Round trips of an open index, of all its copies.
#[derive(Clone, Default)]
pub(crate) struct Doorbells(Arc<Mutex<Vec<DoorbellTier>>>);

impl Doorbells {
    fn tiers(&self) -> MutexGuard<'_, Vec<DoorbellTier>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted so far.
    pub(crate) fn counts(&self) -> DoorbellCounts {
        let mut all = DoorbellCounts::default();
        for DoorbellCounts { doorbells, reads, bytes } in self.tiers().iter().map(DoorbellTier::counts) {
            all.doorbells += doorbells;
            all.reads += reads;
            all.bytes += bytes;
        }
        all
    }

    /// Doorbells of at most `reads` reads before the `device` that stands before a tier; without a limit each submission is one,
    /// which are as many as a query's rounds, or more where the buffers of a thread do not hold a whole round.
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
