//! The request of one caller, and the answers to it so far.

use super::client::PoolClient;
use super::context::JobContext;
use super::passes::Passes;
use super::queries::{RangePlan, RawQueries};
use crate::error::IndexError;
use crate::family::{Opened, QueryState};
use crate::query::changes::Changes;
use crate::query::pass::{PassFound, PassPart};
use crate::query::within::RowFilter;
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

/// The most lone queries that one thread interleaves: as many as its engine keeps reads in flight. A caller
/// waits for each of them, and on a slow device nearly all of their time is waiting.
const LONE_IN_FLIGHT: usize = 128;

/// The most queries of a batch that a worker takes at once. Taking several keeps workers from contending for
/// the counter.
const MOST_TAKEN: usize = 16;
/// A worker takes this fraction (1/4) of its part of the remaining queries, so that all workers end together.
const TAKEN_SHARE: usize = 4;

/// One query or a batch, shared by the workers that answer it. The fields that workers write are on cache
/// lines apart from those that they only read.
pub(in crate::open) struct Job {
    context: Arc<JobContext>,
    queries: RawQueries,
    row_bytes: usize,
    params: SearchParams,
    /// The rounds of a range search.
    range_plan: Option<RangePlan>,
    /// The changes since the index was built.
    changes: Option<Arc<Changes>>,
    /// The rows that it may find; `None` if it may find all.
    row_filter: Option<RowFilter>,
    /// The passes in which queries share what is read. The job then consists of their parts, not of queries.
    passes: Option<Passes>,
    in_flight: usize,
    /// Number of workers that answer it.
    threads: usize,
    /// Bytes of memory that a running query takes.
    pub(in crate::open) query_bytes: u64,
    deadline: Option<Instant>,
    stopped: AtomicBool,
    /// The first query that no worker has taken.
    next: Padded<AtomicUsize>,
    state: Padded<Mutex<JobState>>,
}

/// A worker's reference to a job. Its clones are counted in memory to which no other worker writes.
#[derive(Clone)]
#[expect(
    clippy::redundant_allocation,
    reason = "two counts: one for the worker's clones, one for the workers"
)]
pub(super) struct JobHandle(Rc<Arc<Job>>);

impl JobHandle {
    pub(super) fn new(job: Arc<Job>) -> JobHandle {
        JobHandle(Rc::new(job))
    }
}

impl Deref for JobHandle {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.0
    }
}

#[derive(Default)]
struct JobState {
    /// Number of workers that have joined the job and not yet handed in their answers.
    active_workers: usize,
    parts: Vec<Answers>,
    failure: Option<IndexError>,
    ended: bool,
    waker: Option<Waker>,
}

impl Job {
    pub(in crate::open) fn new(
        context: Arc<JobContext>,
        queries: RawQueries,
        params: SearchParams,
        (threads, in_flight): (usize, usize),
        deadline: Option<Instant>,
    ) -> Job {
        let row_bytes = queries.row_bytes();
        Job {
            context,
            queries,
            row_bytes,
            params,
            range_plan: None,
            changes: None,
            row_filter: None,
            passes: None,
            in_flight,
            threads,
            query_bytes: 0,
            deadline,
            stopped: AtomicBool::new(false),
            next: Padded::default(),
            state: Padded::default(),
        }
    }

    /// Makes it a range search with the rounds of `plan`.
    pub(in crate::open) fn with_range_plan(self, plan: RangePlan) -> Job {
        Job { range_plan: Some(plan), ..self }
    }

    /// Searches the index with these changes.
    pub(in crate::open) fn with_changes(self, changes: Option<Arc<Changes>>) -> Job {
        Job { changes, ..self }
    }

    /// Searches only the rows that `filter` admits. A query may then find fewer than k neighbours; [`NO_ID`]
    /// fills the remaining places.
    pub(in crate::open) fn with_row_filter(self, filter: RowFilter) -> Job {
        Job { row_filter: Some(filter), ..self }
    }

    /// Answers the queries by passes, if there are any. The number is the bytes of memory of a running part.
    pub(in crate::open) fn with_passes(self, passes: Option<(Passes, u64)>) -> Job {
        let Some((passes, query_bytes)) = passes else { return self };
        Job { passes: Some(passes), in_flight: 1, query_bytes, ..self }
    }

    /// Returns the share of the work that is done, as a number of queries: a fraction of a pass counts as
    /// some of its queries.
    pub(in crate::open) fn progress(&self) -> u64 {
        let taken = || self.next.0.load(Ordering::Relaxed).min(self.queries.count) as u64;
        self.passes.as_ref().map_or_else(taken, Passes::progress)
    }

    /// Sets the bytes of memory that a running query takes.
    pub(in crate::open) fn with_query_bytes(self, query_bytes: u64) -> Job {
        Job { query_bytes, ..self }
    }

    /// Returns the parameters if it is a plain search for the nearest neighbours of a single query.
    pub(in crate::open) fn lone_params(&self) -> Option<&SearchParams> {
        let plain = self.range_plan.is_none() && self.row_filter.is_none() && self.passes.is_none();
        (self.queries.count == 1 && plain).then_some(&self.params)
    }

    /// Returns how many of its queries one thread interleaves at most.
    pub(super) fn in_flight(&self) -> usize {
        let lone = self.queries.count == 1 && self.passes.is_none();
        if lone { LONE_IN_FLIGHT.max(self.in_flight) } else { self.in_flight }
    }

    /// Returns the load that it adds to a worker, by which jobs are spread over workers.
    pub(super) fn weight(&self) -> usize {
        self.queries.count.min(self.in_flight)
    }

    /// Returns the index that it searches.
    pub(super) fn client(&self) -> &Arc<PoolClient> {
        &self.context.client
    }

    fn state(&self) -> MutexGuard<'_, JobState> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of tasks: of the queries, or of the parts of passes.
    fn tasks(&self) -> usize {
        self.passes.as_ref().map_or(self.queries.count, Passes::parts)
    }

    /// Takes the next queries for a worker: fewer if few are left, and none if all are taken.
    pub(super) fn take_queries(&self) -> Range<usize> {
        if self.is_fully_taken() {
            return 0..0;
        }
        let count = self.tasks();
        let most = if self.passes.is_some() { 1 } else { MOST_TAKEN };
        let left = count.saturating_sub(self.next.0.load(Ordering::Relaxed));
        let taken = (left / (TAKEN_SHARE * self.threads.max(1))).clamp(1, most);
        let first = self.next.0.fetch_add(taken, Ordering::Relaxed);
        first.min(count)..(first + taken).min(count)
    }

    /// Returns true if no query is left to take.
    pub(super) fn is_fully_taken(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.next.0.load(Ordering::Relaxed) >= self.tasks()
    }

    /// Returns true if it has failed or was cancelled. Its running queries are then dropped.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Fails the job if its deadline is over at `now`. `now` is called only if there is a deadline.
    pub(super) fn check_deadline(&self, now: impl FnOnce() -> Instant) {
        if self.deadline.is_some_and(|deadline| now() >= deadline) {
            self.fail(IndexError::Deadline);
        }
    }

    /// Records that a worker begins to take queries.
    pub(super) fn join(&self) {
        self.state().active_workers += 1;
    }

    /// Adds the answers of a worker that takes no more queries. The last worker ends the job.
    pub(super) fn hand_in(&self, answers: Answers) {
        let mut state = self.state();
        state.active_workers -= 1;
        if !state.ended {
            state.parts.push(answers);
        }
        if state.active_workers == 0 && self.is_fully_taken() {
            end(state);
        }
    }

    /// Ends the job with `error`. Its caller gets the first error.
    pub(in crate::open) fn fail(&self, error: IndexError) {
        self.stopped.store(true, Ordering::Relaxed);
        let mut state = self.state();
        if !state.ended {
            state.failure.get_or_insert(error);
            end(state);
        }
    }

    /// Takes the outcome if the job has ended. Otherwise `waker` is woken when it ends.
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

    /// Answers one query of `job`. If a graphics card fails it, the processor answers it where that is
    /// allowed.
    pub(in crate::open) async fn answer(
        job: impl Deref<Target = Job>,
        cx: Cx,
        query: usize,
        mut scratch: Scratch,
    ) -> QueryOutcome {
        if let Some(passes) = &job.passes {
            return Box::pin(job.run_part(passes, cx, query, scratch)).await;
        }
        let started = Instant::now();
        if scratch.replaces_card && job.context.card_replacement().is_none() {
            // The card could not answer the last query, but it is not lost: it may answer this one.
            scratch = job.new_scratch();
        }
        let mut outcome = job.search(&cx, query, &mut scratch).await;
        if let (Err(IndexError::Gpu(failure)), Some(standby)) = (&outcome, &job.context.standby) {
            outcome = match standby.opened(&cx, failure).await {
                Ok(opened) => {
                    (scratch.state, scratch.replaces_card) = (opened.query_state(), true);
                    job.search(&cx, query, &mut scratch).await
                }
                Err(error) => Err(error),
            };
        }
        QueryOutcome {
            query: query as u32,
            latency_ns: started.elapsed().as_nanos() as u64,
            outcome,
            scratch,
            pass: None,
        }
    }

    /// Runs a part of a pass. The outcome of the last part of a pass has the results of all.
    async fn run_part(&self, passes: &Passes, cx: Cx, part: usize, scratch: Scratch) -> QueryOutcome {
        let shared = passes.of_part(part);
        let started = shared.started();
        let run = async {
            let missing = || IndexError::Internal("a family without passes".into());
            let passes = self.opened().capabilities().passes.ok_or_else(missing)?;
            let rows = shared.queries().map(|query| self.row(query));
            let stopped = || self.is_stopped();
            let among = (self.changes.as_deref(), self.row_filter.as_ref());
            let (set, params) = (passes.set(), &self.params);
            let mut part = PassPart::new(shared, set, (rows, params.k), among, (&stopped, params.timed));
            passes.run(cx, &mut part).await?;
            Ok(shared.hand_in(part.found).map(Box::new))
        };
        let (outcome, pass) = match run.await {
            Ok(pass) => (Ok(QueryStats::default()), pass),
            Err(error) => (Err(error), None),
        };
        let latency_ns = started.elapsed().as_nanos() as u64;
        QueryOutcome { query: part as u32, latency_ns, outcome, scratch, pass }
    }

    /// Returns the query with this number.
    fn row(&self, query: usize) -> &[u8] {
        &self.queries.bytes[query * self.row_bytes..(query + 1) * self.row_bytes]
    }

    /// Searches for one query, without a second try.
    async fn search(
        &self,
        cx: &Cx,
        query: usize,
        Scratch { state, found, .. }: &mut Scratch,
    ) -> Result<QueryStats, IndexError> {
        let row = self.row(query);
        found.clear();
        state.query_mut().changes.clone_from(&self.changes);
        if let Some(plan) = &self.range_plan {
            return plan.search(cx.clone(), row, &mut **state, found).await;
        }
        state.query_mut().within.clone_from(&self.row_filter);
        let searched = state.search(cx.clone(), row, self.params).await;
        // The scratch may wait long for another query: it does not keep the row set alive.
        state.query_mut().within = None;
        searched?;
        state.query_mut().found.drain_sorted(found);
        Ok(state.query().stats)
    }

    /// Returns the part of the index that is in the memory of this NUMA node.
    fn opened(&self) -> &Arc<dyn Opened> {
        let copies = &self.context.opened;
        &copies[self.client().copy_of_this_node().min(copies.len() - 1)]
    }

    /// Allocates the memory of one query.
    pub(in crate::open) fn new_scratch(&self) -> Scratch {
        let opened = self.context.card_replacement().unwrap_or_else(|| self.opened());
        Scratch { state: opened.clone().query_state(), found: Vec::new(), replaces_card: false }
    }

    /// Adds the outcome of a query to `answers`, and returns the query's memory for the next one.
    pub(in crate::open) fn record(
        &self,
        outcome: QueryOutcome,
        answers: &mut Answers,
    ) -> Result<Scratch, IndexError> {
        let QueryOutcome { mut scratch, outcome, query, latency_ns, pass } = outcome;
        let (found, cost) = (&mut scratch.found, outcome?);
        if let Some(passes) = &self.passes {
            let queries = passes.of_part(query as usize).queries();
            pass.into_iter().for_each(|pass| self.record_pass(*pass, queries.clone(), latency_ns, answers));
            return Ok(scratch);
        }
        if self.range_plan.is_none() {
            // Fewer than k are no damage: a row set or a changing index may hold fewer, and a graph's links
            // may not reach k.
            found.resize(self.params.k, Neighbor { distance: f32::INFINITY, id: NO_ID });
        }
        answers.queries.push(AnsweredQuery { query, latency_ns, cost });
        answers.counts.push(found.len() as u32);
        answers.neighbors.extend_from_slice(found);
        answers.clock.add(&scratch.state.query().clock);
        self.context.counters.count_query(latency_ns, &cost);
        Ok(scratch)
    }

    /// Adds the results of a pass to `answers`. The reads of all its queries are counted with the first.
    fn record_pass(&self, pass: PassFound, queries: Range<usize>, latency_ns: u64, answers: &mut Answers) {
        let PassFound { nearest, cost, clock } = pass;
        let others = QueryStats { full_distances: cost.full_distances, ..QueryStats::default() };
        // All reads are requested without waiting for one of them.
        let mut cost = QueryStats { hops: 1, ..cost };
        answers.clock.add(&clock);
        for (query, nearest) in queries.zip(nearest) {
            let mut found = nearest.into_sorted();
            found.resize(self.params.k, Neighbor { distance: f32::INFINITY, id: NO_ID });
            answers.queries.push(AnsweredQuery { query: query as u32, latency_ns, cost });
            answers.counts.push(found.len() as u32);
            answers.neighbors.extend_from_slice(&found);
            self.context.counters.count_query(latency_ns, &cost);
            cost = others;
        }
    }
}

fn end(mut state: MutexGuard<'_, JobState>) {
    state.ended = true;
    let waker = state.waker.take();
    drop(state);
    waker.into_iter().for_each(Waker::wake);
}

/// The outcome of a query: its cost and its neighbours (in `scratch`), or an error.
pub(in crate::open) struct QueryOutcome {
    query: u32,
    latency_ns: u64,
    outcome: Result<QueryStats, IndexError>,
    scratch: Scratch,
    /// The results of a pass whose last part this was; `query` is then the number of the part.
    pass: Option<Box<PassFound>>,
}

/// Memory of one running query, used by one query after the other.
pub(in crate::open) struct Scratch {
    state: Box<dyn QueryState>,
    /// The neighbours that the last query found.
    found: Vec<Neighbor>,
    /// True if `state` searches on the processor, for a query that a card has failed.
    replaces_card: bool,
}

/// One answered query.
pub(in crate::open) struct AnsweredQuery {
    /// The number of the query in its job.
    pub(in crate::open) query: u32,
    pub(in crate::open) latency_ns: u64,
    pub(in crate::open) cost: QueryStats,
}

/// The answers of one worker.
#[derive(Default)]
pub(in crate::open) struct Answers {
    pub(in crate::open) queries: Vec<AnsweredQuery>,
    /// Number of neighbours of each of `queries`: always k, except for range searches.
    pub(in crate::open) counts: Vec<u32>,
    /// The neighbours of one query after the other.
    pub(in crate::open) neighbors: Vec<Neighbor>,
    /// Time of all these queries by phase; zero unless the search is timed.
    pub(in crate::open) clock: Clock,
}

impl Answers {
    /// Allocates the space of all answers of a job, although this thread may give only a few of them: unused
    /// space is never touched, and a growing list would be in memory twice while it is moved.
    pub(in crate::open) fn with_capacity_for(job: &Job) -> Answers {
        let (count, k) = (job.queries.count, if job.range_plan.is_some() { 0 } else { job.params.k });
        Answers {
            queries: Vec::with_capacity(count),
            counts: Vec::with_capacity(count),
            neighbors: Vec::with_capacity(count.saturating_mul(k)),
            clock: Clock::default(),
        }
    }
}
