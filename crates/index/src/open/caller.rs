//! Work of the thread that asks: a lone query that it answers itself, and what it does while others work.
//!
//! To wake a worker and to be woken by it takes about as long as a search in memory, so a lone query whose reads are
//! loads is not handed over. Where a device is waited for, the search threads keep their queues and registered buffers.

use super::family::Scratch;
use super::workers::{Answers, Job, Reply, serve};
use super::{Index, SearchOptions, SearchResult, cores};
use crate::error::IndexError;
use bathyal_tier::{Control, Engine, EngineOptions, Tier};
use bathyal_vectors::VectorFile;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// Most distances that a query may compute on the calling thread, about: some ten milliseconds' worth. What takes
/// longer is left to a search thread, so that the caller can look at its cancel flag meanwhile.
const MOST_DISTANCES: usize = 1 << 19;

/// How the calling thread waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(super) control: Control<'a>,
    /// Called now and then while search threads work.
    pub(super) meanwhile: &'a dyn Fn(),
}

impl<'a> From<Control<'a>> for Waiting<'a> {
    fn from(control: Control<'a>) -> Waiting<'a> {
        Waiting { control, meanwhile: &|| () }
    }
}

/// Memory of lone queries, used by one after the other.
#[derive(Default)]
pub(super) struct Spare {
    scratches: Mutex<Vec<Scratch>>,
}

impl Spare {
    /// Answers `job` on this thread. An engine is opened for it: over memory that is a few allocations.
    pub(super) fn serve(
        &self,
        tier: &Arc<dyn Tier>,
        options: EngineOptions,
        job: &Job,
        control: Control<'_>,
    ) -> Reply {
        let mut engine = Engine::new(tier.clone(), options)?;
        let taken = self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let pool = RefCell::new(Vec::from_iter(taken));
        let reply = serve(&mut engine, job, &pool, control);
        let mut scratches = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
        // As many as can be at work at once; a crowd of callers leaves no more behind.
        scratches.extend(pool.into_inner());
        scratches.truncate(cores());
        reply
    }
}

impl Index {
    /// As [`Index::search`]; while search threads work, the calling thread calls `meanwhile` about every 10 ms: a place
    /// to look for signals, and to raise the cancel flag of `control`. A lone query in memory is over before that.
    ///
    /// # Errors
    /// As [`Index::search`].
    pub fn search_attended(
        &self,
        queries: &VectorFile,
        options: &SearchOptions,
        control: Control<'_>,
        meanwhile: &dyn Fn(),
    ) -> Result<SearchResult, IndexError> {
        let rows = 0..queries.count();
        self.check_queries(queries, rows.clone())?;
        self.search_rows(queries, rows, options, Waiting { control, meanwhile })
    }

    /// Has a job done by `threads` workers, or by the calling thread if that is quicker.
    pub(super) fn answers<'a>(
        &self,
        job: &Arc<Job>,
        threads: usize,
        waiting: impl Into<Waiting<'a>>,
    ) -> Result<Vec<Answers>, IndexError> {
        let waiting = waiting.into();
        let answers = if self.is_for_caller(job) {
            let answer = self.spare.serve(&self.tier, self.engine, job, waiting.control);
            answer.map(|answer| vec![answer])
        } else {
            let workers = self.workers.lock();
            let mut workers = workers.map_err(|_| IndexError::Internal("a search panicked".into()))?;
            let replies = workers.send(job, threads)?;
            drop(workers);
            replies.wait(waiting)
        };
        if answers.is_err() {
            self.counters.failed();
        }
        answers
    }

    /// Whether the calling thread answers a job itself: a lone query in memory that is soon over.
    fn is_for_caller(&self, job: &Job) -> bool {
        job.lone().is_some_and(|params| {
            self.tier.profile().addressable && self.sizes.query_distances(params) <= MOST_DISTANCES
        })
    }
}
