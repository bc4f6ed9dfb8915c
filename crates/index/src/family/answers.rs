//! Searches of an unpublished index for its calibration, by the family's searcher and one engine a thread.

use super::{Buffers, Scratch, Searcher};
use crate::error::IndexError;
use crate::query::{ENGINE_DEPTH, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_tier::{Control, Cx, Engine, EngineOptions, Tier};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Queries interleaved on a thread: few, since reads come from the page cache and each query takes memory.
const WIDTH: usize = 4;
/// Interval at which a cancellation is passed on.
const CANCEL_POLL: Duration = Duration::from_millis(2);

/// Answers all `queries`: at most `params.k` neighbours of each.
pub(crate) fn answer_all<S: Searcher>(
    searcher: &S,
    tier: &Arc<dyn Tier>,
    buffers: Buffers,
    queries: &VectorFile,
    params: SearchParams,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<Vec<Neighbor>>, IndexError> {
    let frame_bytes = buffers.bytes(false);
    let options = EngineOptions {
        depth: ENGINE_DEPTH,
        frame_bytes,
        buffer_budget_bytes: u64::from(buffers.frames) * frame_bytes as u64,
        ..EngineOptions::default()
    };
    let (next, stop, ended) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
    let answers = Mutex::new((vec![Vec::new(); queries.count()], None));
    let threads = threads.clamp(1, queries.count().max(1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let outcome = answer_some(searcher, tier.clone(), options, queries, params, &next, &stop);
                if let Ok(mut answers) = answers.lock() {
                    match outcome {
                        Ok(found) => found.into_iter().for_each(|(query, found)| answers.0[query] = found),
                        Err(error) => {
                            stop.store(true, Ordering::Relaxed);
                            // Keep the first error: later ones only report that they were stopped.
                            answers.1 = answers.1.take().or(Some(error));
                        }
                    }
                }
                ended.fetch_add(1, Ordering::Release);
            });
        }
        while ended.load(Ordering::Acquire) < threads {
            if progress.cancelled() {
                stop.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(CANCEL_POLL);
        }
    });
    if progress.cancelled() {
        return Err(IndexError::Cancelled);
    }
    match answers.into_inner() {
        Ok((found, None)) => Ok(found),
        Ok((_, Some(error))) => Err(error),
        Err(_) => Err(IndexError::Internal("a calibration thread panicked".into())),
    }
}

/// Answers the next query until none is left.
fn answer_some<S: Searcher>(
    searcher: &S,
    tier: Arc<dyn Tier>,
    options: EngineOptions,
    queries: &VectorFile,
    params: SearchParams,
    next: &AtomicUsize,
    stop: &AtomicBool,
) -> Result<Vec<(usize, Vec<Neighbor>)>, IndexError> {
    let mut engine = Engine::new(tier, options)?;
    let pool = RefCell::new(Vec::new());
    let mut answers = Vec::new();
    let mut failure = None;
    let source = |cx: &Cx| {
        let query = next.fetch_add(1, Ordering::Relaxed);
        if query >= queries.count() {
            return None;
        }
        let mut scratch: S::Scratch = pool.borrow_mut().pop().unwrap_or_default();
        let cx = cx.clone();
        Some(async move {
            let outcome = searcher.search(cx, queries.row(query), params, &mut scratch).await;
            (query, outcome, scratch)
        })
    };
    let sink = |(query, outcome, mut scratch): (usize, Result<(), IndexError>, S::Scratch)| {
        match outcome {
            Ok(()) => {
                let mut found = Vec::with_capacity(params.k);
                scratch.query_mut().found.drain_sorted(&mut found);
                answers.push((query, found));
            }
            Err(error) => {
                failure.get_or_insert(error);
                stop.store(true, Ordering::Relaxed);
            }
        }
        pool.borrow_mut().push(scratch);
    };
    let outcome = engine.run(WIDTH, source, sink, Control { cancel: Some(stop), deadline: None });
    match failure {
        Some(error) => Err(error),
        None => outcome.map(|()| answers).map_err(IndexError::from),
    }
}
