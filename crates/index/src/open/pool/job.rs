//! What one caller asks, and how far it has been answered.

use super::asked::{RangePlan, RawQueries};
use super::counters::Counters;
use super::tenant::Tenant;
use crate::error::IndexError;
use crate::family::{Opened, QueryState};
use crate::query::{Clock, QueryStats, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_tier::Cx;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// Queries of lone callers that one thread interleaves at most: as many as its engine keeps reads in flight. Each has a
/// caller who waits for it, and on a slow device waiting is all that they do.
const LONE_IN_FLIGHT: usize = 128;

/// One query or a batch, shared by the workers that answer it.
pub(in crate::open) struct Job {
    pub(super) tenant: Arc<Tenant>,
    index: Arc<dyn Opened>,
    queries: RawQueries,
    row_bytes: usize,
    params: SearchParams,
    /// Of a range search: its rounds.
    plan: Option<RangePlan>,
    counters: Option<Arc<Counters>>,
    in_flight: usize,
    /// Bytes that a running query takes.
    pub(in crate::open) query_bytes: u64,
    deadline: Option<Instant>,
    next: AtomicUsize,
    stop: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Workers that have taken queries and not yet handed in their answers.
    holders: usize,
    parts: Vec<Answers>,
    failure: Option<IndexError>,
    ended: bool,
    waker: Option<Waker>,
}

impl Job {
    pub(in crate::open) fn new(
        tenant: Arc<Tenant>,
        index: Arc<dyn Opened>,
        queries: RawQueries,
        params: SearchParams,
        in_flight: usize,
        deadline: Option<Instant>,
    ) -> Job {
        let row_bytes = queries.row_bytes();
        Job {
            tenant,
            index,
            queries,
            row_bytes,
            params,
            plan: None,
            counters: None,
            in_flight,
            query_bytes: 0,
            deadline,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// The same as a range search.
    pub(in crate::open) fn within(self, plan: RangePlan) -> Job {
        Job { plan: Some(plan), ..self }
    }

    /// The same, its queries counted.
    pub(in crate::open) fn counted(self, counters: Arc<Counters>) -> Job {
        Job { counters: Some(counters), ..self }
    }

    /// The same, each of whose running queries takes `query_bytes` of memory.
    pub(in crate::open) fn taking(self, query_bytes: u64) -> Job {
        Job { query_bytes, ..self }
    }

    /// What is known of the search if it is one for the nearest of a single query.
    pub(in crate::open) fn lone(&self) -> Option<&SearchParams> {
        (self.queries.count == 1 && self.plan.is_none()).then_some(&self.params)
    }

    /// Queries of it that one thread interleaves at most.
    pub(super) fn in_flight(&self) -> usize {
        if self.queries.count == 1 { LONE_IN_FLIGHT.max(self.in_flight) } else { self.in_flight }
    }

    /// Its share of a worker's attention, for spreading jobs over workers.
    pub(super) fn weight(&self) -> usize {
        self.queries.count.min(self.in_flight)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next query that nobody has taken.
    pub(super) fn take(&self) -> Option<usize> {
        if self.is_spent() {
            return None;
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.fail(IndexError::Deadline);
            return None;
        }
        let query = self.next.fetch_add(1, Ordering::Relaxed);
        (query < self.queries.count).then_some(query)
    }

    /// Whether there is no query left to take.
    pub(super) fn is_spent(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.next.load(Ordering::Relaxed) >= self.queries.count
    }

    /// Whether what still runs of it is of no use.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether its time is over at `now`.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// A worker begins to take queries of it.
    pub(super) fn hold(&self) {
        self.state().holders += 1;
    }

    /// A worker hands in what it has answered; it takes no more.
    pub(super) fn hand_in(&self, answers: Answers) {
        let mut state = self.state();
        state.holders -= 1;
        if !state.ended {
            state.parts.push(answers);
        }
        if state.holders == 0 && self.is_spent() {
            end(state);
        }
    }

    /// Ends it without an answer; the first reason is the one that its caller is told.
    pub(in crate::open) fn fail(&self, error: IndexError) {
        self.stop.store(true, Ordering::Relaxed);
        let mut state = self.state();
        if !state.ended {
            state.failure.get_or_insert(error);
            end(state);
        }
    }

    /// Its outcome, once; until then `waker` is woken when there is one.
    pub(super) fn outcome(&self, waker: &Waker) -> Option<Result<Vec<Answers>, IndexError>> {
        let mut state = self.state();
        if self.queries.count == 0 {
            return Some(Ok(Vec::new()));
        }
        if !state.ended {
            state.waker = Some(waker.clone());
            return None;
        }
        Some(match state.failure.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.parts)),
        })
    }

    /// Answers one query.
    pub(in crate::open) async fn answer(
        self: Arc<Job>,
        cx: Cx,
        query: usize,
        mut scratch: Box<dyn QueryState>,
    ) -> Ended {
        let started = Instant::now();
        let row = &self.queries.bytes[query * self.row_bytes..(query + 1) * self.row_bytes];
        let outcome = match &self.plan {
            Some(plan) => plan.search(cx, row, &mut *scratch).await,
            None => scratch.search(cx, row, self.params).await.map(|()| {
                let mut found = Vec::with_capacity(self.params.k);
                scratch.query_mut().found.drain_sorted(&mut found);
                (found, scratch.query().stats)
            }),
        };
        Ended { query: query as u32, latency_ns: started.elapsed().as_nanos() as u64, outcome, scratch }
    }

    /// Memory for one query.
    pub(in crate::open) fn scratch(&self) -> Box<dyn QueryState> {
        self.index.clone().query_state()
    }

    /// Adds an answer to `answers`, and gives the query's memory back for the next.
    pub(in crate::open) fn note(
        &self,
        ended: Ended,
        answers: &mut Answers,
    ) -> Result<Box<dyn QueryState>, IndexError> {
        let (found, cost) = ended.outcome?;
        if self.plan.is_none() && found.len() != self.params.k {
            let wanted = self.params.k;
            let reason = format!("a search reached only {} vectors of the {wanted} wanted", found.len());
            return Err(IndexError::damaged(self.tenant.file(), "what leads to its vectors", reason));
        }
        answers.queries.push((ended.query, ended.latency_ns, cost));
        answers.counts.push(found.len() as u32);
        answers.neighbors.extend_from_slice(&found);
        answers.clock.add(&ended.scratch.query().clock);
        if let Some(counters) = &self.counters {
            counters.answered(ended.latency_ns, &cost);
        }
        Ok(ended.scratch)
    }
}

fn end(mut state: MutexGuard<'_, State>) {
    state.ended = true;
    let waker = state.waker.take();
    drop(state);
    waker.into_iter().for_each(Waker::wake);
}

/// A query that has been answered or has failed.
pub(in crate::open) struct Ended {
    query: u32,
    latency_ns: u64,
    outcome: Result<(Vec<Neighbor>, QueryStats), IndexError>,
    scratch: Box<dyn QueryState>,
}

/// What one worker answered.
#[derive(Default)]
pub(in crate::open) struct Answers {
    /// Query number, latency in nanoseconds, cost.
    pub(in crate::open) queries: Vec<(u32, u64, QueryStats)>,
    /// Neighbours of each of `queries`: always k, but of a range search any number.
    pub(in crate::open) counts: Vec<u32>,
    /// The neighbours of one query after the other.
    pub(in crate::open) neighbors: Vec<Neighbor>,
    /// Where the time of all these queries went; zero where nobody asked.
    pub(in crate::open) clock: Clock,
}

impl Answers {
    /// Room for all answers of a job, however few of them fall to this thread: what is not used is never touched, and
    /// lists that grow would be held twice while they are moved.
    pub(in crate::open) fn with_room(job: &Job) -> Answers {
        let (count, k) = (job.queries.count, if job.plan.is_some() { 0 } else { job.params.k });
        Answers {
            queries: Vec::with_capacity(count),
            counts: Vec::with_capacity(count),
            neighbors: Vec::with_capacity(count.saturating_mul(k)),
            clock: Clock::default(),
        }
    }
}
