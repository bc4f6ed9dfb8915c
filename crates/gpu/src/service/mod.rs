//! How queries and a card meet: a query writes a letter and parks, and the card's threads answer whatever was written while they were
//! busy by one launch. A query goes on when its own page is there, and launches grow with the load. Mini-batches of queries that wait
//! for each other (GustANN, section 4.1.3) are there for whoever wants to compare.

mod batch;
mod conductor;
mod slot;

pub(crate) use batch::{Batch, Blocks};
pub(crate) use conductor::Wave;
pub(crate) use slot::{Place, Shared, Terms};

use crate::card::CardProfile;
use crate::error::GpuError;
use conductor::Conductor;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Queries under way at least.
const LEAST_SLOTS: u32 = 1 << 12;
/// And at most: an H100 answers 4,000 in 2 ms, so that more would only wait for each other.
const MOST_SLOTS: u32 = 1 << 14;
/// Share of a card's memory that queries under way may take: one part in so many.
const SLOT_SHARE: u64 = 32;
/// Queries of a mini-batch at most: as many as a launch has room for on any card.
pub const MOST_MINI_BATCH: u32 = LEAST_SLOTS / LAUNCHES;
/// Launches under way at most: while the card works at one, the other is packed.
const LAUNCHES: u32 = 2;
/// How long a launch that is under way is waited for at the end. One takes a thousandth of that; one that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks whether it is over.
const LOOK: Duration = Duration::from_micros(100);

/// Queries of each launch at most where `slots` are under way at most, and how many launches: together they hold all.
pub(crate) fn launches(slots: u32) -> (u32, u32) {
    let launches = LAUNCHES.min(slots).max(1);
    (slots.div_ceil(launches), launches)
}

/// Queries that may be under way on a card, each of which takes `bytes` of its memory; more wait.
pub fn slots(profile: &CardProfile, bytes: u64) -> u32 {
    let fit = profile.memory_bytes / SLOT_SHARE / bytes.max(1);
    u32::try_from(fit).unwrap_or(u32::MAX).clamp(LEAST_SLOTS, MOST_SLOTS)
}

/// What a card has done for searches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// Launches.
    pub launches: u64,
    /// What queries have asked for, of which a launch answers many.
    pub asked: u64,
    /// Bytes that were copied to the card for that.
    pub bytes: u64,
}

/// A card's threads, and what they share with queries.
#[derive(Debug)]
pub(crate) struct Service<W: Wave> {
    shared: Arc<Shared<W::Letter>>,
    threads: Vec<JoinHandle<()>>,
}

impl<W: Wave> Service<W> {
    /// Begins to serve queries on `terms`, by as many launches under way as there are `waves`.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] for a mini-batch of none or of more than a launch has room for; [`GpuError::Driver`].
    pub(crate) fn start(terms: Terms, waves: Vec<W>) -> Result<Service<W>, GpuError> {
        if let Some(batch) = terms.mini_batch.filter(|batch| !(1..=terms.room).contains(batch)) {
            return Err(GpuError::Unsuited(format!(
                "a mini-batch of {batch} queries: it is of 1 to {} on a graphics card",
                terms.room
            )));
        }
        let shared = Arc::new(Shared::new(terms));
        // Dropped with those that have begun where one does not.
        let mut service = Service { shared: shared.clone(), threads: Vec::new() };
        for wave in waves {
            let conductor = Conductor::new(shared.clone(), wave);
            let thread = std::thread::Builder::new().name("bathyal-card".into()).spawn(|| conductor.run());
            let refused =
                |e: std::io::Error| GpuError::Driver { operation: "start its thread", reason: e.to_string() };
            service.threads.push(thread.map_err(refused)?);
        }
        Ok(service)
    }

    /// What both sides share.
    pub(crate) fn shared(&self) -> &Arc<Shared<W::Letter>> {
        &self.shared
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> CardCounters {
        let counted = &self.shared.counted;
        CardCounters {
            launches: counted[0].load(Ordering::Relaxed),
            asked: counted[1].load(Ordering::Relaxed),
            bytes: counted[2].load(Ordering::Relaxed),
        }
    }
}

impl<W: Wave> Drop for Service<W> {
    fn drop(&mut self) {
        self.shared.end();
        let until = Instant::now() + PATIENCE;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::park_timeout(LOOK);
            }
            // One that waits for the card still has all that it needs, and frees it when the card answers.
            if thread.is_finished() {
                // What it has panicked of was said.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests;
