//! Asynchronous search: a future that works under any executor.

use super::card_fallback::CardTrouble;
use super::live_audit::ChosenQueries;
use super::pool::{Job, JobContext, PendingJob, Pool, RawQueries};
use super::result::UsedParams;
use super::{Effort, Index, SearchOptions, SearchRequest, SearchResult, collect};
use crate::calibrate::reach::{QueryLengths, Reach};
use crate::error::IndexError;
use crate::query::Counter;
use bathyal_vectors::VectorFile;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// The future of a search ([`Index::search_async`]). The search begins when the future is first polled; from
/// then on the search threads of the process work on it. If the future is dropped before it is ready, the
/// search is cancelled.
#[must_use = "a search begins when it is awaited"]
pub struct Searching {
    stage: Stage,
    plan: ResultPlan,
    context: Arc<JobContext>,
}

enum Stage {
    /// Refused before it began; `None` once the error has been returned.
    Refused(Option<IndexError>),
    Ready {
        job: Arc<Job>,
        threads: usize,
    },
    Sent {
        pending: PendingJob,
        since: Instant,
    },
    Done,
}

/// The effort of a search, and what tells that its queries are unlike those of the calibration.
struct CalibratedEffort {
    effort: Effort,
    /// The distances of the calibration's queries to their neighbours.
    measured: Vec<Reach>,
    /// The lengths of the queries of the search.
    lengths: QueryLengths,
}

/// The parts of the result that do not depend on the answers.
#[derive(Default)]
struct ResultPlan {
    /// Number of queries.
    count: usize,
    own_counters: &'static [Counter],
    used: UsedParams,
    notes: Vec<String>,
    /// The replacement of a lost graphics card, and why there is no card.
    card: CardTrouble,
    calibrated: Option<CalibratedEffort>,
    /// The queries that are audited.
    chosen: ChosenQueries,
}

impl Index {
    /// Searches as [`Index::search`] does, without blocking the thread: one thread may await any number of
    /// searches. The queries are copied. A search that has not ended at `deadline` fails.
    ///
    /// # Errors
    /// The future returns those of [`Index::search`].
    pub fn search_async(
        &self,
        queries: &VectorFile,
        options: &SearchOptions,
        deadline: Option<Instant>,
    ) -> Searching {
        let context = self.contexts.here().clone();
        let (stage, plan) = match self.prepare(queries, options, deadline) {
            Ok((job, plan)) => (Stage::Ready { job, threads: plan.used.threads }, plan),
            Err(error) => (Stage::Refused(Some(error)), ResultPlan::default()),
        };
        Searching { stage, plan, context }
    }

    fn prepare(
        &self,
        queries: &VectorFile,
        options: &SearchOptions,
        deadline: Option<Instant>,
    ) -> Result<(Arc<Job>, ResultPlan), IndexError> {
        self.check_process()?;
        let rows = 0..queries.count();
        self.check_queries(queries, rows.clone())?;
        let changes = self.changes();
        let watched = self.watched(&SearchRequest::new(options)?);
        let (params, mut notes) = self.params(&watched.request, changes.as_ref())?;
        let chosen = self.choose(&watched, queries, rows.clone());
        notes.extend(watched.note);
        let threads = self.suited_threads(options.threads, rows.len(), &params);
        notes.extend(self.fewer_threads(options.threads, rows.len(), &params));
        let (count, used) = (rows.len(), self.stored.used(&params, threads));
        let raw = RawQueries::from_range(queries, rows);
        let lengths = self.lengths(&raw);
        let job = self.job(raw, params, (threads, options.in_flight), deadline, changes)?;
        let own_counters = self.stored.own_counters();
        let measured = self.chosen_reach(options.calibration);
        let calibrated = Some(CalibratedEffort { effort: options.effort, measured, lengths });
        let card = self.trouble.clone();
        Ok((job, ResultPlan { count, own_counters, used, notes, card, calibrated, chosen }))
    }
}

fn polled_after_end() -> IndexError {
    IndexError::Internal("a search was awaited again after its end".into())
}

impl Future for Searching {
    type Output = Result<SearchResult, IndexError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Stage::Ready { job, threads } = &this.stage {
            let pending = PendingJob::new(Pool::of_this_process(), job.clone(), *threads);
            this.stage = Stage::Sent { pending, since: Instant::now() };
        }
        let outcome = match &mut this.stage {
            Stage::Refused(error) => Err(error.take().unwrap_or_else(polled_after_end)),
            Stage::Sent { pending, since } => {
                ready!(Pin::new(pending).poll(cx)).map(|answers| (answers, since.elapsed().as_secs_f64()))
            }
            Stage::Ready { .. } | Stage::Done => Err(polled_after_end()),
        };
        this.stage = Stage::Done;
        let ResultPlan { count, own_counters, used, notes, card, calibrated, chosen } =
            std::mem::take(&mut this.plan);
        let result = outcome.and_then(|(answers, seconds)| {
            let mut result = collect(answers, (count, own_counters), used, seconds)?;
            result.notes = notes;
            result.notes.extend(card.note());
            result.note_short(this.context.opened[0].in_place().is_some());
            if let Some(CalibratedEffort { effort, measured, lengths }) = calibrated {
                result.note_unlike(&measured, &lengths, effort);
            }
            chosen.add(&result, None);
            Ok(result)
        });
        if result.is_err() {
            this.context.counters.count_failure();
        }
        Poll::Ready(result)
    }
}
