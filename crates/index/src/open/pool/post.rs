//! A worker's post for one index: an engine, the jobs that ask it, and the queries that run there.

use super::desk::Desk;
use super::job::{Answers, Ended, Held, Job, Scratch};
use super::tenant::Tenant;
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

/// Steps of one index's queries before the worker looks at its orders and at other indexes.
const STEPS: usize = 64;

/// What a worker does for one index.
pub(super) struct Post<F: Future> {
    pool: &'static Pool,
    desk: Arc<Desk>,
    pub(super) tenant: Arc<Tenant>,
    running: Option<RunningQueries<Query<F>>>,
    /// By number; numbers are used again.
    shares: Vec<Option<Share>>,
    free: Vec<usize>,
    /// Shares whose jobs have queries left, in turn.
    line: VecDeque<usize>,
    scratches: Vec<Scratch>,
    /// Bytes of the index's memory that have been taken and that no query holds now: the next ones' here.
    purse: u64,
    /// Memory for the next query was refused.
    pub(super) refused: bool,
    pub(super) idle_since: Instant,
}

/// A worker's part of a job.
struct Share {
    job: Held,
    /// Queries that it has taken and not begun.
    taken: Range<usize>,
    /// Queries of it that run here.
    active: usize,
    /// Once it has taken a query.
    answers: Option<Answers>,
    in_line: bool,
}

impl Share {
    /// Whether it has no query left to begin.
    fn is_spent(&self) -> bool {
        self.job.is_stopped() || (self.taken.is_empty() && self.job.is_spent())
    }

    /// The next query.
    fn take(&mut self) -> Option<usize> {
        self.job.look_at(Instant::now);
        if self.job.is_stopped() {
            return None;
        }
        if self.taken.is_empty() {
            self.taken = self.job.take();
        }
        self.taken.next()
    }
}

/// A running query.
struct Query<F> {
    job: Held,
    share: usize,
    answer: F,
}

impl<F: Future> Future for Query<F> {
    type Output = (usize, F::Output);

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let share = self.share;
        // SAFETY: `answer` is pinned with the whole: it is never moved out of it, and this type has no `Drop`.
        let answer = unsafe { self.map_unchecked_mut(|query| &mut query.answer) };
        answer.poll(context).map(|ended| (share, ended))
    }
}

impl<F: Future> Post<F> {
    pub(super) fn new(pool: &'static Pool, desk: Arc<Desk>, tenant: Arc<Tenant>) -> Post<F> {
        Post {
            pool,
            desk,
            tenant,
            running: None,
            shares: Vec::new(),
            free: Vec::new(),
            line: VecDeque::new(),
            scratches: Vec::new(),
            purse: 0,
            refused: false,
            idle_since: Instant::now(),
        }
    }

    pub(super) fn active(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.active())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.shares.len() == self.free.len()
    }

    pub(super) fn add(&mut self, job: Arc<Job>) {
        let job = Held::of(job);
        let share = Some(Share { job, taken: 0..0, active: 0, answers: None, in_line: true });
        let at = match self.free.pop() {
            Some(at) => {
                self.shares[at] = share;
                at
            }
            None => {
                self.shares.push(share);
                self.shares.len() - 1
            }
        };
        self.line.push_back(at);
    }

    /// Tells all who wait for it why they wait in vain.
    pub(super) fn fail_all(&self, why: impl Fn() -> IndexError) {
        self.shares.iter().flatten().for_each(|share| share.job.fail(why()));
    }

    /// Closes the engine.
    pub(super) fn close(&mut self) {
        self.scratches.clear();
        self.empty_purse();
        if let Some(running) = self.running.take() {
            drop(running);
            self.tenant.hosted(&self.desk.alarm, false);
            self.tenant.give(self.tenant.engine_bytes);
        }
    }

    /// Hands in a share of which nothing runs and nothing is left.
    fn end(&mut self, at: usize) {
        let done = |share: &mut Share| share.active == 0 && !share.in_line;
        let Some(share) = self.shares[at].take_if(done) else { return };
        self.free.push(at);
        self.desk.relieve(&share.job);
        if let Some(answers) = share.answers {
            share.job.hand_in(answers);
        }
        if self.is_idle() {
            self.idle_since = Instant::now();
            self.empty_purse();
        }
    }

    /// Keeps the memory of queries that have ended for those that follow, so that the index's ledger, which is one for all
    /// workers, is not asked for each.
    fn put_back(&mut self, bytes: u64) {
        if self.tenant.has_budget() {
            self.purse += bytes;
        }
        if self.tenant.is_short() {
            self.empty_purse();
        }
    }

    fn empty_purse(&mut self) {
        self.tenant.give(std::mem::take(&mut self.purse));
    }

    /// Gives all jobs up: the tier has failed, or the index is closed.
    pub(super) fn give_up(&mut self, mut why: impl FnMut() -> IndexError) {
        self.line.clear();
        for share in self.shares.iter_mut().flatten() {
            share.job.fail(why());
            self.purse += share.active as u64 * share.job.query_bytes;
            (share.active, share.in_line) = (0, false);
        }
        if let Some(running) = &mut self.running {
            running.retain(|_| false);
        }
        (0..self.shares.len()).for_each(|at| self.end(at));
        self.empty_purse();
    }
}

impl<F: Future<Output = Ended>> Post<F> {
    /// Begins queries and steps those whose reads have arrived; whether any went on.
    pub(super) fn go_on(&mut self, answer: &impl Fn(&Cx, Held, usize, Scratch) -> F) -> bool {
        let mut steps = 0;
        loop {
            let began = self.fill(answer);
            let Some(running) = &mut self.running else { return began };
            let before = steps;
            let outcome = loop {
                match running.step() {
                    Ok(Step::Answered(ended)) => {
                        steps += 1;
                        break Ok(Some(ended));
                    }
                    Ok(Step::Suspended) if steps < STEPS => steps += 1,
                    // Loads have arrived by now; a device is looked at when all is done that can be.
                    Ok(_) if self.tenant.is_addressable() && steps < STEPS => {
                        break running.poll().map(|()| None);
                    }
                    Ok(_) => break Ok(None),
                    Err(error) => break Err(error.into()),
                }
            };
            match outcome {
                Ok(Some((share, ended))) => self.answered(share, ended),
                Ok(None) if steps == before || steps >= STEPS || !self.tenant.is_addressable() => {
                    return began || steps > 0;
                }
                Ok(None) => {}
                Err(error) => {
                    self.broken(error);
                    return true;
                }
            }
        }
    }

    /// Sleeps in the device.
    pub(super) fn wait(&mut self, alarm: &EngineWaker, limit: Duration) {
        let Some(running) = &mut self.running else { return };
        let outcome = if limit.is_zero() { running.poll() } else { running.wait(Some(alarm), limit) };
        if let Err(error) = outcome {
            self.broken(error);
        }
    }

    /// Begins as many queries as its jobs and their memory allow, each job in turn; whether it began any.
    fn fill(&mut self, answer: &impl Fn(&Cx, Held, usize, Scratch) -> F) -> bool {
        if self.line.is_empty() {
            return false;
        }
        self.refused = false;
        let most = self.shares.iter().flatten().map(|share| share.job.in_flight()).max().unwrap_or(0);
        let (mut began, mut full) = (false, 0);
        while self.active() < most && full < self.line.len() {
            let Some(at) = self.line.pop_front() else { break };
            let Some(share) = &mut self.shares[at] else { continue };
            if share.is_spent() {
                share.in_line = false;
                self.end(at);
                continue;
            }
            if share.active >= share.job.in_flight() {
                self.line.push_back(at);
                full += 1;
                continue;
            }
            let job = share.job.clone();
            match self.afford(&job) {
                Ok(true) => {}
                Ok(false) => {
                    self.line.push_front(at);
                    self.refused = true;
                    break;
                }
                Err(error) => {
                    job.fail(error.into());
                    self.line.push_back(at);
                    continue;
                }
            }
            began |= self.begin(at, job, answer);
            full = 0;
        }
        began
    }

    /// Begins the next query of a share whose memory has been taken.
    fn begin(&mut self, at: usize, job: Held, answer: &impl Fn(&Cx, Held, usize, Scratch) -> F) -> bool {
        let (Some(share), Some(running)) = (&mut self.shares[at], &mut self.running) else { return false };
        let answers = &mut share.answers;
        answers.get_or_insert_with(|| {
            job.hold();
            Answers::with_room(&job)
        });
        let taken = share.take();
        // A lone query is taken out of the line at once, so that the line is no longer than it has to be.
        share.in_line = !share.is_spent();
        if share.in_line {
            self.line.push_back(at);
        }
        let Some(query) = taken else {
            self.put_back(job.query_bytes);
            self.end(at);
            return false;
        };
        share.active += 1;
        let scratch = self.scratches.pop().unwrap_or_else(|| job.scratch());
        let make =
            |cx: &Cx| Query { share: at, answer: answer(cx, job.clone(), query, scratch), job: job.clone() };
        match running.start(make) {
            Ok(None) => {}
            Ok(Some((share, ended))) => self.answered(share, ended),
            Err(error) => self.broken(error.into()),
        }
        true
    }

    /// Takes the memory of one query of `job`, and of an engine where there is none. An idle engine is given back if
    /// it stands in the way of its own index: it may be that all workers hold one and none has room for a query.
    fn afford(&mut self, job: &Job) -> Result<bool, TierError> {
        let (query, engine) = (job.query_bytes, self.tenant.engine_bytes);
        if self.running.is_some() {
            if self.pay(query) {
                return Ok(true);
            }
            if self.active() > 0 {
                return Ok(false);
            }
            self.close();
        }
        if !self.tenant.take(query + engine, &self.desk.alarm) {
            self.pool.clear(&self.tenant);
            if !self.tenant.take(query + engine, &self.desk.alarm) {
                return Ok(false);
            }
        }
        match self.tenant.open() {
            Ok(engine) => self.running = Some(RunningQueries::new(engine)),
            Err(error) => {
                self.tenant.give(query + engine);
                return Err(error);
            }
        }
        self.tenant.hosted(&self.desk.alarm, true);
        Ok(true)
    }

    /// Takes the memory of a query out of the purse or from the index.
    fn pay(&mut self, bytes: u64) -> bool {
        let lacking = bytes.saturating_sub(self.purse);
        if lacking > 0 && !self.tenant.take(lacking, &self.desk.alarm) {
            // What callers left of engines may be enough.
            self.pool.clear(&self.tenant);
            if !self.tenant.take(lacking, &self.desk.alarm) {
                return false;
            }
        }
        self.purse = (self.purse + lacking).saturating_sub(bytes);
        true
    }

    fn answered(&mut self, at: usize, ended: Ended) {
        let Some(share) = &mut self.shares[at] else { return };
        share.active -= 1;
        let job = share.job.clone();
        let outcome = share.answers.as_mut().map(|answers| job.note(ended, answers));
        self.put_back(job.query_bytes);
        let Some(outcome) = outcome else { return };
        match outcome {
            Ok(scratch) => self.scratches.push(scratch),
            Err(error) => job.fail(self.cause().unwrap_or(error)),
        }
        let Some(share) = &self.shares[at] else { return };
        if share.active > 0 || share.in_line {
            return;
        }
        match self.cause() {
            Some(lost) => self.give_up_for(lost),
            None => self.end(at),
        }
    }

    /// What the tier says about bytes that it lent, once they have been used.
    fn cause(&mut self) -> Option<IndexError> {
        let running = self.running.as_mut()?;
        if self.tenant.is_addressable() { running.check_lent().err().map(IndexError::Tier) } else { None }
    }

    fn broken(&mut self, error: RunError) {
        self.give_up_for(error.into());
    }

    fn give_up_for(&mut self, error: IndexError) {
        let again = || match &error {
            IndexError::Tier(error) => IndexError::Tier(error.again()),
            other => IndexError::Internal(other.to_string()),
        };
        self.give_up(again);
    }

    /// Drops queries whose callers have gone or whose time is over.
    pub(super) fn sweep(&mut self, now: Instant) {
        let mut stopped = false;
        for share in self.shares.iter().flatten() {
            share.job.look_at(|| now);
            stopped |= share.job.is_stopped();
        }
        if stopped && let Some(running) = &mut self.running {
            let (shares, purse) = (&mut self.shares, &mut self.purse);
            running.retain(|query| {
                let stays = !query.job.is_stopped();
                if !stays && let Some(share) = &mut shares[query.share] {
                    share.active -= 1;
                    *purse += query.job.query_bytes;
                }
                stays
            });
            (0..self.shares.len()).for_each(|at| self.end(at));
            self.empty_purse();
        }
        if self.tenant.is_short() {
            self.empty_purse();
        }
        if self.tenant.is_short() && self.active() == 0 && self.line.is_empty() {
            self.close();
        }
    }
}
