//! Searches that are awaited: a future that works under any executor.

use super::going_on::CardTrouble;
use super::options::Effort;
use super::pool::{Job, Known, Pending, Pool, RawQueries};
use super::result::Used;
use super::{Index, SearchOptions, SearchResult, collect};
use crate::calibrate::reach::Reach;
use crate::error::IndexError;
use crate::query::Counter;
use bathyal_vectors::VectorFile;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// A search on its way ([`Index::search_async`]). Nothing is done before it is first polled; from then on the search
/// threads of the process work at it, whoever polls. Dropped before its end, it is given up.
#[must_use = "a search begins when it is awaited"]
pub struct Searching {
    stage: Stage,
    shape: Shape,
    known: Arc<Known>,
}

enum Stage {
    /// Refused before anything was done; `None` once that has been said.
    Refused(Option<IndexError>),
    Ready {
        job: Arc<Job>,
        threads: usize,
    },
    Asked {
        pending: Pending,
        since: Instant,
    },
    Over,
}

/// What the result has to be like.
#[derive(Default)]
struct Shape {
    count: usize,
    own_counters: &'static [Counter],
    used: Used,
    notes: Vec<String>,
    /// What goes on where a graphics card is lost, and why there is none.
    card: CardTrouble,
    /// What was asked for, and how far the queries of the calibration are from their neighbours.
    promised: Option<(Effort, Vec<Reach>)>,
}

impl Index {
    /// As [`Index::search`], for callers that have better to do than to wait: any number of searches may be awaited by
    /// one thread. The queries are copied. A search that has not ended at `deadline` fails.
    ///
    /// # Errors
    /// The future gives those of [`Index::search`].
    pub fn search_async(
        &self,
        queries: &VectorFile,
        options: &SearchOptions,
        deadline: Option<Instant>,
    ) -> Searching {
        let known = self.known.here().clone();
        match self.prepare(queries, options, deadline) {
            Ok((job, shape)) => {
                Searching { stage: Stage::Ready { job, threads: shape.used.threads }, shape, known }
            }
            Err(error) => Searching { stage: Stage::Refused(Some(error)), shape: Shape::default(), known },
        }
    }

    fn prepare(
        &self,
        queries: &VectorFile,
        options: &SearchOptions,
        deadline: Option<Instant>,
    ) -> Result<(Arc<Job>, Shape), IndexError> {
        self.check_process()?;
        let rows = 0..queries.count();
        self.check_queries(queries, rows.clone())?;
        let changes = self.changes();
        let (params, notes) = self.params(options, changes.as_ref())?;
        let threads = self.suited_threads(options.threads, rows.len(), &params);
        let (count, used) = (rows.len(), self.used(&params, threads));
        let job =
            self.job(RawQueries::of(queries, rows), params, (threads, options.in_flight), deadline, changes)?;
        let own_counters = self.own_counters;
        let promised = Some((options.effort, self.stored.reach().to_vec()));
        let card = self.trouble.clone();
        Ok((job, Shape { count, own_counters, used, notes, card, promised }))
    }
}

fn over() -> IndexError {
    IndexError::Internal("a search was awaited once more after its end".into())
}

impl Future for Searching {
    type Output = Result<SearchResult, IndexError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Stage::Ready { job, threads } = &this.stage {
            let pending = Pending::new(Pool::of_this_process(), job.clone(), *threads);
            this.stage = Stage::Asked { pending, since: Instant::now() };
        }
        let outcome = match &mut this.stage {
            Stage::Refused(error) => Err(error.take().unwrap_or_else(over)),
            Stage::Asked { pending, since } => {
                ready!(Pin::new(pending).poll(cx)).map(|answers| (answers, since.elapsed().as_secs_f64()))
            }
            Stage::Ready { .. } | Stage::Over => Err(over()),
        };
        this.stage = Stage::Over;
        let Shape { count, own_counters, used, notes, card, promised } = std::mem::take(&mut this.shape);
        let result = outcome.and_then(|(answers, seconds)| {
            let mut result = collect(answers, (count, own_counters), used, seconds)?;
            result.notes = notes;
            result.notes.extend(card.note());
            result.note_short(this.known.opened[0].in_place().is_some());
            if let Some((effort, measured)) = promised {
                result.note_unlike(&measured, effort);
            }
            Ok(result)
        });
        if result.is_err() {
            this.known.counters.failed();
        }
        Poll::Ready(result)
    }
}
