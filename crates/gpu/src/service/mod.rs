//! How queries and a card meet: a query writes a letter and parks, and the card's thread answers whatever was written while it was busy
//! by one launch. There are no mini-batches of queries that wait for each other (GustANN, section 4.1.3): a query goes on when its own
//! page is there, and launches grow with the load.

mod conductor;
mod slot;

pub(crate) use conductor::Wave;
pub(crate) use slot::{Place, Shared};

use crate::error::GpuError;
use conductor::Conductor;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

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

/// A card's thread, and what it shares with queries.
#[derive(Debug)]
pub(crate) struct Service<W: Wave> {
    shared: Arc<Shared<W::Letter>>,
    thread: Option<JoinHandle<()>>,
}

impl<W: Wave> Service<W> {
    /// Begins to serve up to `slots` queries at a time.
    pub(crate) fn start(slots: u32, wave: W) -> Result<Service<W>, GpuError> {
        let shared = Arc::new(Shared::new(slots));
        let conductor = Conductor::new(shared.clone(), wave);
        let thread = std::thread::Builder::new().name("bathyal-card".into()).spawn(move || conductor.run());
        let thread =
            thread.map_err(|e| GpuError::Driver { operation: "start its thread", reason: e.to_string() })?;
        Ok(Service { shared, thread: Some(thread) })
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
        if let Some(thread) = self.thread.take() {
            // What it has panicked of was said.
            let _ = thread.join();
        }
    }
}
