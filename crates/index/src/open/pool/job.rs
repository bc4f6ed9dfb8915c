//! What one caller asks, and how far it has been answered.

use super::asked::{RangePlan, RawQueries};
use super::known::Known;
use super::tenant::Tenant;
use crate::error::IndexError;
use crate::family::QueryState;
use crate::query::changes::Changes;
use crate::query::within::Among;
use crate::query::{Clock, NO_ID, QueryStats, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_tier::Cx;
use bathyal_tier::lanes::Padded;
use std::ops::{Deref, Range};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// Queries of lone callers that one thread interleaves at most: as many as its engine keeps reads in flight. Each has a
/// caller who waits for it, and on a slow device waiting is all that they do.
const LONE_IN_FLIGHT: usize = 128;

/// Queries that a worker takes of a batch at once, at most, so that workers seldom meet where they take them.
const MOST_TAKEN: usize = 16;
/// A worker takes so many times less than its part of what is left, so that all workers end together.
const TAKEN_SHARE: usize = 4;

/// One query or a batch, shared by the workers that answer it. What they write for each other is on cache lines apart from what
/// they all read.
pub(in crate::open) struct Job {
    known: Arc<Known>,
    queries: RawQueries,
    row_bytes: usize,
    params: SearchParams,
    /// Of a range search: its rounds.
    plan: Option<RangePlan>,
    /// What was changed since the index was built.
    changes: Option<Arc<Changes>>,
    /// The rows that it may find, where not all may.
    among: Option<Among>,
    in_flight: usize,
    /// Workers that it is for.
    threads: usize,
    /// Bytes that a running query takes.
    pub(in crate::open) query_bytes: u64,
    deadline: Option<Instant>,
    stop: AtomicBool,
    next: Padded<AtomicUsize>,
    state: Padded<Mutex<State>>,
}

/// A worker's hold on a job. Its clones are counted where no other worker writes.
#[derive(Clone)]
#[expect(
    clippy::redundant_allocation,
    reason = "two counts: one for the worker's clones, one for the workers"
)]
pub(super) struct Held(Rc<Arc<Job>>);

impl Held {
    pub(super) fn of(job: Arc<Job>) -> Held {
        Held(Rc::new(job))
    }
}

impl Deref for Held {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.0
    }
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
        known: Arc<Known>,
        queries: RawQueries,
        params: SearchParams,
        (threads, in_flight): (usize, usize),
        deadline: Option<Instant>,
    ) -> Job {
        let row_bytes = queries.row_bytes();
        Job {
            known,
            queries,
            row_bytes,
            params,
            plan: None,
            changes: None,
            among: None,
            in_flight,
            threads,
            query_bytes: 0,
            deadline,
            stop: AtomicBool::new(false),
            next: Padded::default(),
            state: Padded::default(),
        }
    }

    /// The same as a range search.
    pub(in crate::open) fn within(self, plan: RangePlan) -> Job {
        Job { plan: Some(plan), ..self }
    }

    /// The same over an index in this state of changes.
    pub(in crate::open) fn changed(self, changes: Option<Arc<Changes>>) -> Job {
        Job { changes, ..self }
    }

    /// The same over some of the rows. Answers may be fewer than it asks for, with [`NO_ID`] in place of what lacks.
    pub(in crate::open) fn among(self, among: Among) -> Job {
        Job { among: Some(among), ..self }
    }

    /// The same, each of whose running queries takes `query_bytes` of memory.
    pub(in crate::open) fn taking(self, query_bytes: u64) -> Job {
        Job { query_bytes, ..self }
    }

    /// What is known of the search if it is one for the nearest of a single query.
    pub(in crate::open) fn lone(&self) -> Option<&SearchParams> {
        (self.queries.count == 1 && self.plan.is_none() && self.among.is_none()).then_some(&self.params)
    }

    /// Queries of it that one thread interleaves at most.
    pub(super) fn in_flight(&self) -> usize {
        if self.queries.count == 1 { LONE_IN_FLIGHT.max(self.in_flight) } else { self.in_flight }
    }

    /// Its share of a worker's attention, for spreading jobs over workers.
    pub(super) fn weight(&self) -> usize {
        self.queries.count.min(self.in_flight)
    }

    /// The index that it is about.
    pub(super) fn tenant(&self) -> &Arc<Tenant> {
        &self.known.tenant
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next queries that nobody has taken: fewer the fewer are left.
    pub(super) fn take(&self) -> Range<usize> {
        if self.is_spent() {
            return 0..0;
        }
        let count = self.queries.count;
        let left = count.saturating_sub(self.next.0.load(Ordering::Relaxed));
        let taken = (left / (TAKEN_SHARE * self.threads.max(1))).clamp(1, MOST_TAKEN);
        let first = self.next.0.fetch_add(taken, Ordering::Relaxed);
        first.min(count)..(first + taken).min(count)
    }

    /// Whether there is no query left to take.
    pub(super) fn is_spent(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.next.0.load(Ordering::Relaxed) >= self.queries.count
    }

    /// Whether what still runs of it is of no use.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Fails if its time is over at `now`, which is asked for only where there is a deadline.
    pub(super) fn look_at(&self, now: impl FnOnce() -> Instant) {
        if self.deadline.is_some_and(|deadline| now() >= deadline) {
            self.fail(IndexError::Deadline);
        }
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

    /// Answers one query of `job`.
    pub(in crate::open) async fn answer(
        job: impl Deref<Target = Job>,
        cx: Cx,
        query: usize,
        mut scratch: Scratch,
    ) -> Ended {
        let started = Instant::now();
        if scratch.for_card && job.known.lost_card().is_none() {
            // What the last query wanted was too much for a card, which this one's need not be.
            scratch = job.scratch();
        }
        let mut outcome = job.search(&cx, query, &mut scratch).await;
        if let (Err(IndexError::Gpu(lost)), Some(standby)) = (&outcome, &job.known.standby) {
            outcome = match standby.opened(&cx, lost).await {
                Ok(opened) => {
                    (scratch.state, scratch.for_card) = (opened.query_state(), true);
                    job.search(&cx, query, &mut scratch).await
                }
                Err(error) => Err(error),
            };
        }
        Ended { query: query as u32, latency_ns: started.elapsed().as_nanos() as u64, outcome, scratch }
    }

    /// Answers one query once.
    async fn search(
        &self,
        cx: &Cx,
        query: usize,
        Scratch { state, found, .. }: &mut Scratch,
    ) -> Result<QueryStats, IndexError> {
        let row = &self.queries.bytes[query * self.row_bytes..(query + 1) * self.row_bytes];
        found.clear();
        state.query_mut().changes.clone_from(&self.changes);
        if let Some(plan) = &self.plan {
            return plan.search(cx.clone(), row, &mut **state, found).await;
        }
        state.query_mut().within.clone_from(&self.among);
        let answered = state.search(cx.clone(), row, self.params).await;
        // Its set is not kept for as long as this memory waits for another query.
        state.query_mut().within = None;
        answered?;
        state.query_mut().found.drain_sorted(found);
        Ok(state.query().stats)
    }

    /// Memory for one query.
    pub(in crate::open) fn scratch(&self) -> Scratch {
        let opened = &self.known.opened;
        let here = self.tenant().here().min(opened.len() - 1);
        let opened = self.known.lost_card().unwrap_or(&opened[here]);
        Scratch { state: opened.clone().query_state(), found: Vec::new(), for_card: false }
    }

    /// Adds an answer to `answers`, and gives the query's memory back for the next.
    pub(in crate::open) fn note(&self, ended: Ended, answers: &mut Answers) -> Result<Scratch, IndexError> {
        let Ended { mut scratch, outcome, query, latency_ns } = ended;
        let (found, cost) = (&mut scratch.found, outcome?);
        if self.plan.is_none() {
            // Fewer are no damage: a set of rows or a changing index has no more, and links may lead to no more.
            found.resize(self.params.k, Neighbor { distance: f32::INFINITY, id: NO_ID });
        }
        answers.queries.push((query, latency_ns, cost));
        answers.counts.push(found.len() as u32);
        answers.neighbors.extend_from_slice(found);
        answers.clock.add(&scratch.state.query().clock);
        self.known.counters.answered(latency_ns, &cost);
        Ok(scratch)
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
    outcome: Result<QueryStats, IndexError>,
    scratch: Scratch,
}

/// Memory of one running query, used by one after the other.
pub(in crate::open) struct Scratch {
    state: Box<dyn QueryState>,
    /// The neighbours of the last one.
    found: Vec<Neighbor>,
    /// Whether the state is that of the processor, for a query that a card has failed.
    for_card: bool,
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
