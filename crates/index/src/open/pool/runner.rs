//! The part of a worker for one index: an engine, jobs, and the running queries.

use super::client::PoolClient;
use super::inbox::Inbox;
use super::job::{Answers, Job, JobHandle, QueryOutcome, Scratch};
use super::threads::Pool;
use crate::error::IndexError;
use bathyal_tier::{Cx, EngineWaker, RunError, RunningQueries, Step, TierError};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Steps of one index's queries before the worker reads its inbox and turns to other indexes.
const STEPS: usize = 64;

/// The part of a worker for one index: an engine, jobs, and the running queries.
pub(super) struct IndexRunner<F: Future> {
    pool: &'static Pool,
    inbox: Arc<Inbox>,
    pub(super) client: Arc<PoolClient>,
    running: Option<RunningQueries<RunningQuery<F>>>,
    /// By number; numbers are used again.
    parts: Vec<Option<JobPart>>,
    free_numbers: Vec<usize>,
    /// Numbers of the parts whose jobs have queries left, in turn.
    queue: VecDeque<usize>,
    scratches: Vec<Scratch>,
    /// The most queries in flight of any part, when queries last began.
    width: usize,
    /// Bytes reserved from the client's budget and not used by a query: for the next ones here.
    spare_bytes: u64,
    /// True if memory for the next query was refused.
    pub(super) refused: bool,
    pub(super) idle_since: Instant,
}

/// A worker's part of a job.
struct JobPart {
    job: JobHandle,
    /// Queries that are taken from the job and not begun.
    taken: Range<usize>,
    /// Number of its queries that run here.
    active: usize,
    /// Created when the first query is taken.
    answers: Option<Answers>,
    queued: bool,
}

impl JobPart {
    /// Returns true if there is no query left to begin.
    fn is_exhausted(&self) -> bool {
        self.job.is_stopped() || (self.taken.is_empty() && self.job.is_fully_taken())
    }

    /// Returns the next query.
    fn next_query(&mut self) -> Option<usize> {
        self.job.check_deadline(Instant::now);
        if self.job.is_stopped() {
            return None;
        }
        if self.taken.is_empty() {
            self.taken = self.job.take_queries();
        }
        self.taken.next()
    }
}

/// A running query.
struct RunningQuery<F> {
    job: JobHandle,
    /// The number of its [`JobPart`].
    part: usize,
    answer: F,
}

impl<F: Future> Future for RunningQuery<F> {
    type Output = (usize, F::Output);

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let part = self.part;
        // SAFETY: `answer` is pinned with the query: it is never moved out of it, and this type has no
        // `Drop`.
        let answer = unsafe { self.map_unchecked_mut(|query| &mut query.answer) };
        answer.poll(context).map(|outcome| (part, outcome))
    }
}

impl<F: Future> IndexRunner<F> {
    pub(super) fn new(pool: &'static Pool, inbox: Arc<Inbox>, client: Arc<PoolClient>) -> IndexRunner<F> {
        IndexRunner {
            pool,
            inbox,
            client,
            running: None,
            parts: Vec::new(),
            free_numbers: Vec::new(),
            queue: VecDeque::new(),
            scratches: Vec::new(),
            width: 0,
            spare_bytes: 0,
            refused: false,
            idle_since: Instant::now(),
        }
    }

    pub(super) fn active(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.active())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.parts.len() == self.free_numbers.len()
    }

    pub(super) fn add(&mut self, job: Arc<Job>) {
        let job = JobHandle::new(job);
        let part = Some(JobPart { job, taken: 0..0, active: 0, answers: None, queued: true });
        let number = match self.free_numbers.pop() {
            Some(number) => {
                self.parts[number] = part;
                number
            }
            None => {
                self.parts.push(part);
                self.parts.len() - 1
            }
        };
        self.queue.push_back(number);
    }

    /// Fails all jobs with `error`.
    pub(super) fn fail_all(&self, error: impl Fn() -> IndexError) {
        self.parts.iter().flatten().for_each(|part| part.job.fail(error()));
    }

    /// Closes the engine.
    pub(super) fn close(&mut self) {
        self.scratches.clear();
        self.release_spare();
        if let Some(running) = self.running.take() {
            drop(running);
            self.client.record_engine(&self.inbox.waker, false);
            self.client.release(self.client.engine_bytes);
        }
    }

    /// Ends a part of which nothing runs and nothing is left, and hands in its answers.
    fn end_part(&mut self, number: usize) {
        let done = |part: &mut JobPart| part.active == 0 && !part.queued;
        let Some(part) = self.parts[number].take_if(done) else { return };
        self.free_numbers.push(number);
        self.inbox.finish_job(&part.job);
        if let Some(answers) = part.answers {
            part.job.hand_in(answers);
        }
        if self.is_idle() {
            self.idle_since = Instant::now();
            self.release_spare();
        }
    }

    /// Keeps the memory of an ended query for the next one, so that a query does not lock the account of the
    /// memory, which all workers share.
    fn put_back(&mut self, bytes: u64) {
        if self.client.has_budget() {
            self.spare_bytes += bytes;
        }
        if self.client.is_short_of_memory() {
            self.release_spare();
        }
    }

    fn release_spare(&mut self) {
        self.client.release(std::mem::take(&mut self.spare_bytes));
    }

    /// Drops all jobs with `error`: the tier has failed, or the index is closed.
    pub(super) fn drop_all(&mut self, mut error: impl FnMut() -> IndexError) {
        self.queue.clear();
        for part in self.parts.iter_mut().flatten() {
            part.job.fail(error());
            self.spare_bytes += part.active as u64 * part.job.query_bytes;
            (part.active, part.queued) = (0, false);
        }
        if let Some(running) = &mut self.running {
            running.retain(|_| false);
        }
        (0..self.parts.len()).for_each(|number| self.end_part(number));
        self.release_spare();
    }
}

impl<F: Future<Output = QueryOutcome>> IndexRunner<F> {
    /// Begins queries and steps those whose reads have arrived; returns true if any made progress.
    pub(super) fn advance(&mut self, answer: &impl Fn(&Cx, JobHandle, usize, Scratch) -> F) -> bool {
        let mut steps = 0;
        loop {
            let mut began = self.begin_queries(answer);
            let width = self.width;
            let Some(running) = &mut self.running else { return began };
            let before = steps;
            let outcome = loop {
                match running.step() {
                    Ok(Step::Answered(answered)) => {
                        steps += 1;
                        break Ok(Some(answered));
                    }
                    Ok(Step::Suspended) if steps < STEPS => steps += 1,
                    // The next turn begins more queries.
                    Ok(Step::Waiting) if running.begin_after_poll(width) => {
                        began = true;
                        break running.poll().map(|()| None);
                    }
                    // Loads from memory have arrived by now; a device is polled when no query can make
                    // progress.
                    Ok(_) if self.client.is_addressable() && steps < STEPS => {
                        break running.poll().map(|()| None);
                    }
                    Ok(_) => break Ok(None),
                    Err(error) => break Err(error.into()),
                }
            };
            match outcome {
                Ok(Some((part, outcome))) => self.finish_query(part, outcome),
                Ok(None) if steps == before || steps >= STEPS || !self.client.is_addressable() => {
                    return began || steps > 0;
                }
                Ok(None) => {}
                Err(error) => {
                    self.engine_failed(error);
                    return true;
                }
            }
        }
    }

    /// Waits for the device until a read arrives, `waker` is woken, or `limit` is over. A limit of zero
    /// polls.
    pub(super) fn wait(&mut self, waker: &EngineWaker, limit: Duration) {
        let Some(running) = &mut self.running else { return };
        let outcome = if limit.is_zero() { running.poll() } else { running.wait(Some(waker), limit) };
        if let Err(error) = outcome {
            self.engine_failed(error);
        }
    }

    /// Begins as many queries as the jobs and their memory allow, one of each job in turn; returns true if it
    /// began any.
    fn begin_queries(&mut self, answer: &impl Fn(&Cx, JobHandle, usize, Scratch) -> F) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        self.refused = false;
        self.width = self.parts.iter().flatten().map(|part| part.job.in_flight()).max().unwrap_or(0);
        // `full` counts parts in a row that already have as many queries in flight as their jobs allow.
        let (mut began, mut full) = (false, 0);
        while full < self.queue.len() && self.may_begin() {
            let Some(number) = self.queue.pop_front() else { break };
            let Some(part) = &mut self.parts[number] else { continue };
            if part.is_exhausted() {
                part.queued = false;
                self.end_part(number);
                continue;
            }
            if part.active >= part.job.in_flight() {
                self.queue.push_back(number);
                full += 1;
                continue;
            }
            let job = part.job.clone();
            match self.reserve_for(&job) {
                Ok(true) => {}
                Ok(false) => {
                    self.queue.push_front(number);
                    self.refused = true;
                    break;
                }
                Err(error) => {
                    job.fail(error.into());
                    self.queue.push_back(number);
                    continue;
                }
            }
            began |= self.begin_query(number, job, answer);
            full = 0;
        }
        began
    }

    /// Returns true if another query may begin.
    fn may_begin(&self) -> bool {
        self.running.as_ref().map_or(self.width > 0, |running| running.may_begin(self.width))
    }

    /// Begins the next query of a part. Its memory is reserved already.
    fn begin_query(
        &mut self,
        number: usize,
        job: JobHandle,
        answer: &impl Fn(&Cx, JobHandle, usize, Scratch) -> F,
    ) -> bool {
        let (Some(part), Some(running)) = (&mut self.parts[number], &mut self.running) else { return false };
        let answers = &mut part.answers;
        answers.get_or_insert_with(|| {
            job.join();
            Answers::with_capacity_for(&job)
        });
        let taken = part.next_query();
        // A lone query leaves the queue at once, which keeps the queue short.
        part.queued = !part.is_exhausted();
        if part.queued {
            self.queue.push_back(number);
        }
        let Some(query) = taken else {
            self.put_back(job.query_bytes);
            self.end_part(number);
            return false;
        };
        part.active += 1;
        let scratch = self.scratches.pop().unwrap_or_else(|| job.new_scratch());
        let make = |cx: &Cx| RunningQuery {
            part: number,
            answer: answer(cx, job.clone(), query, scratch),
            job: job.clone(),
        };
        match running.start(make) {
            Ok(None) => {}
            Ok(Some((part, outcome))) => self.finish_query(part, outcome),
            Err(error) => self.engine_failed(error.into()),
        }
        true
    }

    /// Reserves the memory of one query of `job`, and of an engine if none is open. If the query's memory is
    /// refused and nothing runs, the idle engine is closed first: otherwise each worker could hold an engine,
    /// and none could get the memory of a query.
    fn reserve_for(&mut self, job: &Job) -> Result<bool, TierError> {
        let (query, engine) = (job.query_bytes, self.client.engine_bytes);
        if self.running.is_some() {
            if self.reserve_query(query) {
                return Ok(true);
            }
            if self.active() > 0 {
                return Ok(false);
            }
            self.close();
        }
        if !self.client.reserve(query + engine, &self.inbox.waker) {
            self.pool.close_spare_engines(&self.client);
            if !self.client.reserve(query + engine, &self.inbox.waker) {
                return Ok(false);
            }
        }
        match self.client.open_engine() {
            Ok(engine) => self.running = Some(RunningQueries::new(engine)),
            Err(error) => {
                self.client.release(query + engine);
                return Err(error);
            }
        }
        self.client.record_engine(&self.inbox.waker, true);
        Ok(true)
    }

    /// Takes the memory of a query from the spare bytes, and reserves what they lack.
    fn reserve_query(&mut self, bytes: u64) -> bool {
        let lacking = bytes.saturating_sub(self.spare_bytes);
        if lacking > 0 && !self.client.reserve(lacking, &self.inbox.waker) {
            // Spare engines of callers may hold enough memory.
            self.pool.close_spare_engines(&self.client);
            if !self.client.reserve(lacking, &self.inbox.waker) {
                return false;
            }
        }
        self.spare_bytes = (self.spare_bytes + lacking).saturating_sub(bytes);
        true
    }

    /// Records the outcome of a query, and ends its part if nothing else of that runs or is left.
    fn finish_query(&mut self, number: usize, outcome: QueryOutcome) {
        let Some(part) = &mut self.parts[number] else { return };
        part.active -= 1;
        let job = part.job.clone();
        let recorded = part.answers.as_mut().map(|answers| job.record(outcome, answers));
        self.put_back(job.query_bytes);
        let Some(recorded) = recorded else { return };
        match recorded {
            Ok(scratch) => self.scratches.push(scratch),
            Err(error) => job.fail(self.lost_bytes_error().unwrap_or(error)),
        }
        let Some(part) = &self.parts[number] else { return };
        if part.active > 0 || part.queued {
            return;
        }
        match self.lost_bytes_error() {
            Some(error) => self.drop_all_with(error),
            None => self.end_part(number),
        }
    }

    /// Returns the error of an addressable tier whose bytes were lost while queries used them.
    fn lost_bytes_error(&mut self) -> Option<IndexError> {
        let running = self.running.as_mut()?;
        if self.client.is_addressable() { running.check_lent().err().map(IndexError::Tier) } else { None }
    }

    fn engine_failed(&mut self, error: RunError) {
        self.drop_all_with(error.into());
    }

    fn drop_all_with(&mut self, error: IndexError) {
        let copy = || match &error {
            IndexError::Tier(error) => IndexError::Tier(error.again()),
            other => IndexError::Internal(other.to_string()),
        };
        self.drop_all(copy);
    }

    /// Drops the queries of jobs that are cancelled or past their deadline, and releases memory if it is
    /// short.
    pub(super) fn sweep(&mut self, now: Instant) {
        let mut stopped = false;
        for part in self.parts.iter().flatten() {
            part.job.check_deadline(|| now);
            stopped |= part.job.is_stopped();
        }
        if stopped && let Some(running) = &mut self.running {
            let (parts, spare_bytes) = (&mut self.parts, &mut self.spare_bytes);
            running.retain(|query| {
                let stays = !query.job.is_stopped();
                if !stays && let Some(part) = &mut parts[query.part] {
                    part.active -= 1;
                    *spare_bytes += query.job.query_bytes;
                }
                stays
            });
            (0..self.parts.len()).for_each(|number| self.end_part(number));
            self.release_spare();
        }
        if self.client.is_short_of_memory() {
            self.release_spare();
        }
        if self.client.is_short_of_memory() && self.active() == 0 && self.queue.is_empty() {
            self.close();
        }
    }
}
