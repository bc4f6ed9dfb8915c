//! Worker threads: each owns an engine, and all take queries of one job from a shared counter.

use super::caller::Waiting;
use super::family::{Family, Scratch};
use super::range::RangePlan;
use super::stats::Counters;
use super::{RawQueries, cores};
use crate::error::IndexError;
use crate::query::{QueryStats, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_tier::{Control, Cx, Engine, EngineOptions, RunError, Tier, TierError};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a waiting caller passes its cancel flag on.
const CANCEL_POLL: Duration = Duration::from_millis(10);

/// A batch of queries, shared by the workers that answer it.
pub(super) struct Job {
    family: Arc<Family>,
    queries: RawQueries,
    row_bytes: usize,
    params: SearchParams,
    /// Of a range search: its rounds.
    plan: Option<RangePlan>,
    counters: Option<Arc<Counters>>,
    width: usize,
    deadline: Option<Instant>,
    next: AtomicUsize,
    stop: AtomicBool,
}

impl Job {
    pub(super) fn new(
        family: Arc<Family>,
        queries: RawQueries,
        params: SearchParams,
        width: usize,
        deadline: Option<Instant>,
    ) -> Job {
        let row_bytes = family.vector_bytes();
        Job {
            family,
            queries,
            row_bytes,
            params,
            plan: None,
            counters: None,
            width,
            deadline,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// The same as a range search.
    pub(super) fn within(self, plan: RangePlan) -> Job {
        Job { plan: Some(plan), ..self }
    }

    /// The same, its queries counted.
    pub(super) fn counted(self, counters: Arc<Counters>) -> Job {
        Job { counters: Some(counters), ..self }
    }

    /// What is known of the search if it is one for the nearest of a single query.
    pub(super) fn lone(&self) -> Option<&SearchParams> {
        (self.queries.count == 1 && self.plan.is_none()).then_some(&self.params)
    }

    fn take(&self) -> Option<usize> {
        let query = self.next.fetch_add(1, Ordering::Relaxed);
        (query < self.queries.count).then_some(query)
    }
}

/// What one worker answered.
#[derive(Default)]
pub(super) struct Answers {
    /// Query number, latency in nanoseconds, cost.
    pub(super) queries: Vec<(u32, u64, QueryStats)>,
    /// Neighbours of each of `queries`: always k, but of a range search any number.
    pub(super) counts: Vec<u32>,
    /// The neighbours of one query after the other.
    pub(super) neighbors: Vec<Neighbor>,
}

impl Answers {
    /// Room for all answers of a job, however few of them fall to this thread: what is not used is never touched, and
    /// lists that grow would be held twice while they are moved.
    fn with_room(job: &Job) -> Answers {
        let (count, k) = (job.queries.count, if job.plan.is_some() { 0 } else { job.params.k });
        Answers {
            queries: Vec::with_capacity(count),
            counts: Vec::with_capacity(count),
            neighbors: Vec::with_capacity(count.saturating_mul(k)),
        }
    }
}

pub(super) type Reply = Result<Answers, IndexError>;
type Order = (Arc<Job>, Sender<Reply>);

/// The threads of an index. They start when they are first needed and end with it.
pub(super) struct Workers {
    tier: Arc<dyn Tier>,
    options: EngineOptions,
    threads: Vec<Worker>,
}

struct Worker {
    orders: Sender<Order>,
    /// Jobs that it has been given and not yet answered.
    pending: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Workers {
    pub(super) fn new(tier: Arc<dyn Tier>, options: EngineOptions) -> Workers {
        Workers { tier, options, threads: Vec::new() }
    }

    /// Gives a job to the `threads` workers with the least to do. Idle ones are started before busy ones are
    /// given more, up to one a core, so that callers on several threads do not wait for each other.
    pub(super) fn send(&mut self, job: &Arc<Job>, threads: usize) -> Result<Replies, IndexError> {
        let load = |worker: &Worker| worker.pending.load(Ordering::Relaxed);
        while self.threads.len() < threads
            || (self.threads.len() < cores()
                && self.threads.iter().filter(|w| load(w) == 0).count() < threads)
        {
            self.start()?;
        }
        let mut order: Vec<&Worker> = self.threads.iter().collect();
        order.sort_by_key(|worker| load(worker));
        let (reply, inbox) = channel();
        for worker in &order[..threads] {
            let gone = |_| IndexError::Internal("a search thread has ended".into());
            worker.pending.fetch_add(1, Ordering::Relaxed);
            worker.orders.send((job.clone(), reply.clone())).map_err(gone)?;
        }
        Ok(Replies { job: job.clone(), inbox, threads })
    }

    fn start(&mut self) -> Result<(), IndexError> {
        let (orders, inbox) = channel::<Order>();
        let (tier, options) = (self.tier.clone(), self.options);
        let pending = Arc::new(AtomicUsize::new(0));
        let count = pending.clone();
        let thread = std::thread::Builder::new()
            .name("bathyal-search".into())
            .spawn(move || work(tier, options, &inbox, &count))
            .map_err(|source| TierError::System { operation: "start a search thread", source })?;
        self.threads.push(Worker { orders, pending, thread });
        Ok(())
    }
}

/// The answers to a job as they come.
pub(super) struct Replies {
    job: Arc<Job>,
    inbox: Receiver<Reply>,
    threads: usize,
}

impl Replies {
    /// Waits for all answers. On cancellation and at the deadline it returns at once; workers then drop the job
    /// when they next look at it.
    pub(super) fn wait(self, waiting: Waiting<'_>) -> Result<Vec<Answers>, IndexError> {
        let control = waiting.control;
        let mut answers = Vec::with_capacity(self.threads);
        let mut failure = None;
        loop {
            let next = self.inbox.recv_timeout(CANCEL_POLL);
            if matches!(next, Err(RecvTimeoutError::Timeout)) {
                (waiting.meanwhile)();
            }
            match next {
                Ok(Ok(part)) => answers.push(part),
                Ok(Err(error)) => {
                    // The first error is the cause; the others only say that they were stopped.
                    if failure.is_none() || matches!(failure, Some(IndexError::Cancelled)) {
                        failure = Some(error);
                    }
                    self.job.stop.store(true, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) if failure.is_none() => {
                    let cancelled = control.cancel.is_some_and(|c| c.load(Ordering::Relaxed));
                    let late = control.deadline.is_some_and(|d| Instant::now() >= d + CANCEL_POLL);
                    if cancelled || late {
                        self.job.stop.store(true, Ordering::Relaxed);
                        return Err(if cancelled { IndexError::Cancelled } else { IndexError::Deadline });
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match failure {
            Some(error) => Err(error),
            None if answers.len() < self.threads => {
                Err(IndexError::Internal("a search thread panicked".into()))
            }
            None => Ok(answers),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in self.threads.drain(..) {
            drop(worker.orders);
            // A worker that panicked has already failed its job.
            let _ = worker.thread.join();
        }
    }
}

/// The life of a worker: one engine, one job after another.
fn work(tier: Arc<dyn Tier>, options: EngineOptions, inbox: &Receiver<Order>, pending: &AtomicUsize) {
    let mut engine = None;
    let pool = RefCell::new(Vec::new());
    while let Ok((job, reply)) = inbox.recv() {
        let opened = match engine.take() {
            Some(engine) => Ok(engine),
            None => Engine::new(tier.clone(), options),
        };
        let outcome = match opened {
            Err(error) => Err(error.into()),
            Ok(mut opened) => {
                let control = Control { cancel: Some(&job.stop), deadline: job.deadline };
                let outcome = serve(&mut opened, &job, &pool, control);
                engine = Some(opened);
                outcome
            }
        };
        pending.fetch_sub(1, Ordering::Relaxed);
        // A caller that no longer listens needs no answer.
        let _ = reply.send(outcome);
    }
}

/// Answers queries of `job` until none is left.
pub(super) fn serve(
    engine: &mut Engine,
    job: &Job,
    pool: &RefCell<Vec<Scratch>>,
    control: Control<'_>,
) -> Reply {
    let mut answers = Answers::with_room(job);
    let mut failure = None;
    let next = |cx: &Cx| {
        let query = job.take()?;
        let mut scratch = pool.borrow_mut().pop().unwrap_or_else(|| Scratch::new(&job.family));
        let cx = cx.clone();
        Some(async move {
            let started = Instant::now();
            let row = &job.queries.bytes[query * job.row_bytes..(query + 1) * job.row_bytes];
            let outcome = match &job.plan {
                Some(plan) => plan.search(cx, &job.family, row, &mut scratch).await,
                None => job.family.search(cx, row, job.params, &mut scratch).await.map(|()| {
                    let mut found = Vec::with_capacity(job.params.k);
                    scratch.take_found(&mut found);
                    (found, scratch.stats())
                }),
            };
            (query as u32, started.elapsed().as_nanos() as u64, outcome, scratch)
        })
    };
    type Outcome = Result<(Vec<Neighbor>, QueryStats), IndexError>;
    let sink = |(query, latency_ns, outcome, scratch): (u32, u64, Outcome, Scratch)| {
        match outcome {
            Ok((found, cost)) if job.plan.is_some() || found.len() == job.params.k => {
                answers.queries.push((query, latency_ns, cost));
                answers.counts.push(found.len() as u32);
                answers.neighbors.extend_from_slice(&found);
                if let Some(counters) = &job.counters {
                    counters.answered(latency_ns, &cost);
                }
            }
            outcome => {
                let error = outcome.map_or_else(
                    |error| error,
                    |(found, _)| {
                        let wanted = job.params.k;
                        let reason =
                            format!("a search reached only {} vectors of the {wanted} wanted", found.len());
                        IndexError::damaged(job.family.file(), "what leads to its vectors", reason)
                    },
                );
                failure.get_or_insert(error);
                job.stop.store(true, Ordering::Relaxed);
            }
        }
        pool.borrow_mut().push(scratch);
    };
    let outcome = engine.run(job.width, next, sink, control);
    match (failure, outcome) {
        // Whatever a query made of bytes that were not there, this is the cause.
        (_, Err(RunError::Tier(lost @ TierError::Lost { .. }))) => Err(lost.into()),
        (Some(error), _) => Err(error),
        (None, outcome) => outcome.map(|()| answers).map_err(IndexError::from),
    }
}
