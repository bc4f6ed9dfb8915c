//! Work of the thread that asks: a lone query that it answers itself, and what it does while others work.
//!
//! To wake a worker and to be woken by it takes longer than a search in memory, and a fifth of one from a disk. So a lone
//! query is not handed over: its caller borrows an engine that was kept, over memory whoever asks, over a device as long as no
//! more callers than there are cores do likewise. All others share the workers' threads.

use super::pool::{Answers, Job, Lent, Pending, Pool, Scratch, process};
use super::{Index, SearchOptions, SearchResult};
use crate::error::IndexError;
use bathyal_tier::{Control, Cx, Engine, RunError, RunningQueries, Step, TierError, thread_waker};
use bathyal_vectors::VectorFile;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Most distances that a query may compute on the calling thread, about: some ten milliseconds' worth. What takes
/// longer is left to a search thread, so that the caller can look at its cancel flag meanwhile.
const MOST_DISTANCES: usize = 1 << 19;

/// How often a waiting caller looks at its cancel flag and its deadline.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Steps of a lone query in memory between two looks at its cancel flag and its deadline: tens of microseconds.
const STEPS: u32 = 16;

/// How the calling thread waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(super) control: Control<'a>,
    /// Called now and then while it waits.
    pub(super) meanwhile: &'a dyn Fn(),
}

impl<'a> From<Control<'a>> for Waiting<'a> {
    fn from(control: Control<'a>) -> Waiting<'a> {
        Waiting { control, meanwhile: &|| () }
    }
}

impl Waiting<'_> {
    /// Why the caller waits no longer, if so.
    fn is_over(&self) -> Option<IndexError> {
        if self.control.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Some(IndexError::Cancelled);
        }
        self.control
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
            .then_some(IndexError::Deadline)
    }
}

/// Runs a lone query on `engine`, which is there for nothing else; `scratch` is its memory, and afterwards the next one's.
fn run_alone(
    engine: Engine,
    scratch: &mut Option<Scratch>,
    job: &Job,
    waiting: Waiting<'_>,
) -> (Engine, Result<Vec<Answers>, IndexError>) {
    let mut answers = Answers::with_room(job);
    let mut running = RunningQueries::new(engine);
    let memory = scratch.take().unwrap_or_else(|| job.scratch());
    let make = |cx: &Cx| Job::answer(job, cx.clone(), 0, memory);
    let answered = drive(&mut running, make, waiting)
        .and_then(|ended| job.note(ended, &mut answers))
        .map(|memory| *scratch = Some(memory));
    let (engine, settled) = running.end();
    let answered = match settled {
        // Whatever the query made of bytes that were not there, this is the cause.
        Err(RunError::Tier(lost @ TierError::Lost { .. })) => Err(lost.into()),
        _ => answered,
    };
    (engine, answered.map(|()| vec![answers]))
}

/// Runs the query that `make` makes to its end.
fn drive<F: Future>(
    running: &mut RunningQueries<F>,
    make: impl FnOnce(&Cx) -> F,
    waiting: Waiting<'_>,
) -> Result<F::Output, IndexError> {
    if let Some(answer) = running.start(make)? {
        return Ok(answer);
    }
    let mut steps = 0_u32;
    loop {
        match running.step()? {
            Step::Answered(answer) => return Ok(answer),
            // A query in memory always goes on at once; now and then its caller has to look up all the same.
            Step::Suspended => {
                steps = steps.wrapping_add(1);
                if !steps.is_multiple_of(STEPS) {
                    continue;
                }
            }
            Step::Waiting => running.wait(None, LOOK_EVERY)?,
        }
        (waiting.meanwhile)();
        if let Some(over) = waiting.is_over() {
            return Err(over);
        }
    }
}

/// Waits for the answers of workers.
fn wait_for(mut pending: Pending, waiting: Waiting<'_>) -> Result<Vec<Answers>, IndexError> {
    let waker = thread_waker();
    let mut looked = Instant::now();
    loop {
        if let Poll::Ready(outcome) = Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        std::thread::park_timeout(LOOK_EVERY);
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            (waiting.meanwhile)();
            if let Some(over) = waiting.is_over() {
                return Err(over);
            }
        }
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
        self.check_process()?;
        let waiting = waiting.into();
        let alone = waiting.is_over().map_or_else(|| self.answer_here(job, waiting), Err);
        let answers = alone.and_then(|alone| match alone {
            Some(answers) => Ok(answers),
            None => wait_for(Pending::new(Pool::of_this_process(), job.clone(), threads), waiting),
        });
        if answers.is_err() {
            self.known.here().counters.failed();
        }
        answers
    }

    /// Answers a lone query on the calling thread; `None` where that is left to the workers.
    fn answer_here(&self, job: &Arc<Job>, waiting: Waiting<'_>) -> Result<Option<Vec<Answers>>, IndexError> {
        let Some(params) = job.lone() else { return Ok(None) };
        if self.stored.query_distances(params) > MOST_DISTANCES {
            return Ok(None);
        }
        let pool = Pool::of_this_process();
        let Some(Lent { engine, mut scratch, lease }) = pool.lend(&self.tenant, job.query_bytes)? else {
            return Ok(None);
        };
        let (engine, answers) = run_alone(engine, &mut scratch, job, waiting);
        pool.take_back(&self.tenant, Lent { engine, scratch, lease });
        answers.map(Some)
    }

    /// Refuses to work in a child made by fork: it has none of the threads, and locks as they happened to be.
    pub(super) fn check_process(&self) -> Result<(), IndexError> {
        let here = process();
        if here == self.process {
            return Ok(());
        }
        Err(IndexError::Forked { path: self.directory.clone(), opened_by: self.process, here })
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if process() == self.process {
            Pool::of_this_process().leave(&self.tenant);
        }
    }
}
