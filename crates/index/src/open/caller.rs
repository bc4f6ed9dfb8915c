//! The work of the calling thread: it answers a lone query itself, or waits while workers answer.
//!
//! Waking a worker and being woken by it takes longer than a search in memory, and a fifth of a search from a
//! disk. So a caller with a lone query borrows a spare engine and answers the query itself: always over
//! memory, and over a device while no more callers than cores do so. All other queries are answered by the
//! workers.

use super::control::Waiting;
use super::pool::{Answers, BorrowedEngine, Job, PendingJob, Pool, Scratch, process};
use super::{Index, SearchOptions, SearchRequest, SearchResult};
use crate::error::IndexError;
use bathyal_tier::{Control, Cx, Engine, RunError, RunningQueries, Step, TierError, thread_waker};
use bathyal_vectors::VectorFile;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// About the most distances that a query may compute on the calling thread: ten milliseconds of work. A
/// worker answers a longer query, and the caller checks its cancel flag meanwhile.
const MOST_DISTANCES: usize = 1 << 19;

/// The time between two checks of the cancel flag and the deadline by a waiting caller.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// Steps of a lone query in memory between two checks of its cancel flag and its deadline: tens of
/// microseconds.
const STEPS: u32 = 16;

/// Runs a lone query on `engine`, which runs nothing else. The query uses the memory in `scratch`, and leaves
/// it there.
fn run_alone(
    engine: Engine,
    scratch: &mut Option<Scratch>,
    job: &Job,
    waiting: Waiting<'_>,
) -> (Engine, Result<Vec<Answers>, IndexError>) {
    let mut answers = Answers::with_capacity_for(job);
    let mut running = RunningQueries::new(engine);
    let memory = scratch.take().unwrap_or_else(|| job.new_scratch());
    let make = |cx: &Cx| Job::answer(job, cx.clone(), 0, memory);
    let answered = drive(&mut running, make, waiting)
        .and_then(|outcome| job.record(outcome, &mut answers))
        .map(|memory| *scratch = Some(memory));
    let (engine, settled) = running.end();
    let answered = match settled {
        // If bytes were lost, that is the cause of every other error, and answers computed from them are
        // invalid.
        Err(RunError::Tier(lost @ TierError::Lost { .. })) => Err(lost.into()),
        _ => answered,
    };
    (engine, answered.map(|()| vec![answers]))
}

/// Starts the query that `make` returns, and runs it to its end.
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
            // A query in memory can always continue at once; every `STEPS` steps the cancel flag is checked
            // nevertheless.
            Step::Suspended => {
                steps = steps.wrapping_add(1);
                if !steps.is_multiple_of(STEPS) {
                    continue;
                }
            }
            Step::Waiting => running.wait(None, CHECK_EVERY)?,
        }
        (waiting.meanwhile)();
        if let Some(error) = waiting.end() {
            return Err(error);
        }
    }
}

/// Waits for the answers of workers.
fn wait_for(mut pending: PendingJob, waiting: Waiting<'_>) -> Result<Vec<Answers>, IndexError> {
    let waker = thread_waker();
    let mut checked = Instant::now();
    loop {
        if let Poll::Ready(outcome) = Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        std::thread::park_timeout(CHECK_EVERY);
        if checked.elapsed() >= CHECK_EVERY {
            checked = Instant::now();
            (waiting.meanwhile)();
            if let Some(error) = waiting.end() {
                return Err(error);
            }
        }
    }
}

impl Index {
    /// Searches as [`Index::search`] does. While search threads work, the calling thread calls `meanwhile`
    /// about every 10 ms, so that it can handle signals and set the cancel flag of `control`. A lone query in
    /// memory ends sooner.
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
        let (request, rows) = (SearchRequest::new(options)?, 0..queries.count());
        self.check_queries(queries, rows.clone())?;
        self.search_rows(queries, rows, &request, Waiting { control, meanwhile })
    }

    /// Runs a job on the calling thread if that is faster, and otherwise on `threads` workers.
    pub(super) fn answers<'a>(
        &self,
        job: &Arc<Job>,
        threads: usize,
        waiting: impl Into<Waiting<'a>>,
    ) -> Result<Vec<Answers>, IndexError> {
        self.check_process()?;
        let waiting = waiting.into();
        let on_this_thread = waiting.end().map_or_else(|| self.answer_on_this_thread(job, waiting), Err);
        let answers = on_this_thread.and_then(|answers| match answers {
            Some(answers) => Ok(answers),
            None => wait_for(PendingJob::new(Pool::of_this_process(), job.clone(), threads), waiting),
        });
        if answers.is_err() {
            self.contexts.here().counters.count_failure();
        }
        answers
    }

    /// Answers a lone query on the calling thread. Returns `None` if the workers have to run the job.
    fn answer_on_this_thread(
        &self,
        job: &Arc<Job>,
        waiting: Waiting<'_>,
    ) -> Result<Option<Vec<Answers>>, IndexError> {
        let Some(params) = job.lone_params() else { return Ok(None) };
        if self.stored.family().query_distances(params) > MOST_DISTANCES {
            return Ok(None);
        }
        let (pool, client) = (Pool::of_this_process(), &self.contexts.here().client);
        let Some(BorrowedEngine { engine, mut scratch, reservation }) =
            pool.borrow_engine(client, job.query_bytes)?
        else {
            return Ok(None);
        };
        let (engine, answers) = run_alone(engine, &mut scratch, job, waiting);
        pool.return_engine(client, BorrowedEngine { engine, scratch, reservation });
        answers.map(Some)
    }

    /// Refuses to work in a child made by fork: it has none of the threads, and they may hold locks.
    pub(super) fn check_process(&self) -> Result<(), IndexError> {
        let here = process();
        if here == self.process {
            return Ok(());
        }
        Err(IndexError::Forked { path: self.stored.path().to_path_buf(), opened_by: self.process, here })
    }
}
