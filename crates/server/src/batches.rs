//! Answers searches that arrive together as one batch: an engine that has many queries at once reads and
//! compares for all of them together.
//!
//! A search waits only while other batches use all threads for searches. Those of the same kind that arrive
//! meanwhile form the next batch.

use crate::cancel::{Attendance, CancelFlag};
use crate::failure::Refusal;
use crate::places::Places;
use crate::work::panicked;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The most queries of a batch that has those of several requests.
const MAX_QUERIES: usize = 256;

/// A kind of searches that can be answered together.
pub(crate) trait BatchSearch: Send + Sync + 'static {
    /// The answers to the queries of a request.
    type Answer: Send + 'static;

    /// Answers all `queries`, and divides the answers among the requests: each range of `parts` has the
    /// queries of one.
    fn answer(
        &self,
        queries: &VectorFile,
        parts: &[Range<usize>],
        control: Control<'_>,
    ) -> Result<Vec<Self::Answer>, Refusal>;
}

/// Names a kind of searches: the handle that is searched, and everything else that its searches share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BatchKey {
    /// The address of the open collection or index.
    pub(crate) handle: usize,
    /// The options of the search, as text.
    pub(crate) options: String,
}

type AnswerSender<A> = oneshot::Sender<Result<A, Refusal>>;

/// A request that waits for its batch.
struct WaitingSearch<A> {
    queries: VectorFile,
    sender: AnswerSender<A>,
    attendance: WaitingAttendance,
}

/// Shared by a request and the batch that answers it: the batch attends its cancellation for the request.
type WaitingAttendance = Arc<Mutex<Option<Attendance>>>;

/// Requests of the same kind.
struct WaitingBatch<S: BatchSearch> {
    search: Arc<S>,
    requests: Vec<WaitingSearch<S::Answer>>,
}

/// Limits of the batches of all kinds.
#[derive(Debug, Clone)]
pub(crate) struct BatchLimits {
    /// Batches that are answered at the same time.
    pub(crate) threads: Arc<Semaphore>,
    /// The most requests that wait for each kind of handle.
    pub(crate) waiting: usize,
    /// The most time of a batch.
    pub(crate) time: Duration,
}

/// The searches that wait, by their kind.
pub(crate) struct Batches<S: BatchSearch>(Arc<BatchQueue<S>>);

struct BatchQueue<S: BatchSearch> {
    waiting: Mutex<HashMap<BatchKey, WaitingBatch<S>>>,
    places: Places,
    limits: BatchLimits,
}

impl<S: BatchSearch> Clone for Batches<S> {
    fn clone(&self) -> Batches<S> {
        Batches(self.0.clone())
    }
}

impl<S: BatchSearch> Batches<S> {
    pub(crate) fn new(limits: BatchLimits) -> Batches<S> {
        Batches(Arc::new(BatchQueue {
            waiting: Mutex::default(),
            places: Places::new(limits.waiting, "searches"),
            limits,
        }))
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<BatchKey, WaitingBatch<S>>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers `queries`, together with those of other requests of the same kind.
    pub(crate) async fn answer(
        &self,
        key: BatchKey,
        search: impl FnOnce() -> S,
        queries: VectorFile,
    ) -> Result<S::Answer, Refusal> {
        let _place = self.0.places.take()?;
        let (sender, receiver) = oneshot::channel();
        let attendance = WaitingAttendance::default();
        let request = WaitingSearch { queries, sender, attendance: attendance.clone() };
        let _leaving = LeavingRequest(attendance);
        let is_first = match self.waiting().entry(key.clone()) {
            Entry::Occupied(mut batch) => {
                batch.get_mut().requests.push(request);
                false
            }
            Entry::Vacant(place) => {
                place.insert(WaitingBatch { search: Arc::new(search()), requests: vec![request] });
                true
            }
        };
        if is_first {
            // While a thread is free, the request begins its batch itself: a task of its own would only wake
            // another thread first.
            match self.0.limits.threads.clone().try_acquire_owned() {
                Ok(permit) => self.begin(&key, permit),
                Err(_) => drop(tokio::spawn(self.clone().run(key))),
            }
        }
        match tokio::time::timeout(self.0.limits.time, receiver).await {
            Ok(answer) => answer.map_err(|_| Refusal::stopping())?,
            Err(_) => Err(Refusal::late()),
        }
    }

    /// Answers the waiting requests of a kind, once a thread is free.
    async fn run(self, key: BatchKey) {
        if let Ok(permit) = self.0.limits.threads.clone().acquire_owned().await {
            self.begin(&key, permit);
        }
    }

    /// Answers the waiting requests of a kind on a thread, which wakes each of them.
    fn begin(&self, key: &BatchKey, permit: OwnedSemaphorePermit) {
        let Some(WaitingBatch { search, requests }) = self.take(key) else { return };
        let deadline = Instant::now() + self.0.limits.time;
        let (senders, work) = prepare(search, requests, deadline);
        tokio::task::spawn_blocking(move || {
            let senders = AnswerSenders(senders);
            let answered = work();
            drop(permit);
            senders.send(answered);
        });
    }

    /// Takes the requests of the next batch. If others remain, they get a batch of their own.
    fn take(&self, key: &BatchKey) -> Option<WaitingBatch<S>> {
        let mut waiting = self.waiting();
        let batch = waiting.get_mut(key)?;
        let mut queries = 0;
        let fitting = batch.requests.iter().take_while(|request| {
            queries += request.queries.count();
            queries <= MAX_QUERIES
        });
        let count = fitting.count().max(1);
        let rest = batch.requests.split_off(count.min(batch.requests.len()));
        let requests = std::mem::replace(&mut batch.requests, rest);
        let search = batch.search.clone();
        if batch.requests.is_empty() {
            waiting.remove(key);
        } else {
            tokio::spawn(self.clone().run(key.clone()));
        }
        Some(WaitingBatch { search, requests })
    }
}

/// The requests of a batch. If its work panics, they are told so.
struct AnswerSenders<A>(Vec<AnswerSender<A>>);

impl<A> AnswerSenders<A> {
    fn send(mut self, answers: Vec<Result<A, Refusal>>) {
        for (sender, answer) in self.0.drain(..).zip(answers) {
            // A request that is gone needs no answer.
            let _ = sender.send(answer);
        }
    }
}

impl<A> Drop for AnswerSenders<A> {
    fn drop(&mut self) {
        for sender in self.0.drain(..) {
            let _ = sender.send(Err(panicked()));
        }
    }
}

/// The answer to each request of a batch.
type BatchAnswers<S> = Vec<Result<<S as BatchSearch>::Answer, Refusal>>;

/// Joins the queries of requests. Returns the senders of their answers, and the work.
fn prepare<S: BatchSearch>(
    search: Arc<S>,
    requests: Vec<WaitingSearch<S::Answer>>,
    deadline: Instant,
) -> (Vec<AnswerSender<S::Answer>>, impl FnOnce() -> BatchAnswers<S> + Send) {
    let cancel = CancelFlag::default();
    let own = cancel.attend();
    let (mut senders, mut queries) = (Vec::new(), Vec::new());
    for WaitingSearch { queries: given, sender, attendance } in requests {
        // Its request has left already if nobody else holds it.
        if Arc::strong_count(&attendance) > 1 {
            *attendance.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel.attend());
            senders.push(sender);
            queries.push(given);
        }
    }
    let work = move || {
        drop(own);
        let control = Control { cancel: Some(cancel.flag()), deadline: Some(deadline) };
        let together = answer_together(&*search, &queries, control);
        match together {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(refusal) if queries.len() == 1 => vec![Err(refusal)],
            // The queries of one request may be invalid, which is not the fault of the others.
            Err(_) => queries.iter().map(|given| answer_alone(&*search, given, control)).collect(),
        }
    };
    (senders, work)
}

/// Answers the queries of several requests as one batch.
fn answer_together<S: BatchSearch>(
    search: &S,
    queries: &[VectorFile],
    control: Control<'_>,
) -> Result<Vec<S::Answer>, Refusal> {
    let mut parts: Vec<Range<usize>> = Vec::with_capacity(queries.len());
    for given in queries {
        let start = parts.last().map_or(0, |last| last.end);
        parts.push(start..start + given.count());
    }
    match joined(queries)? {
        Some(joined) => search.answer(&joined, &parts, control),
        None => Ok(Vec::new()),
    }
}

/// Answers the queries of one request.
fn answer_alone<S: BatchSearch>(
    search: &S,
    queries: &VectorFile,
    control: Control<'_>,
) -> Result<S::Answer, Refusal> {
    let answers = search.answer(queries, std::slice::from_ref(&(0..queries.count())), control)?;
    answers.into_iter().next().ok_or_else(Refusal::stopping)
}

/// Joins vectors of the same element and dimension.
fn joined(all: &[VectorFile]) -> Result<Option<VectorFile>, Refusal> {
    if all.len() <= 1 {
        return Ok(all.first().cloned());
    }
    let (element, dim) = (all[0].element(), all[0].dim());
    let mut bytes = Vec::with_capacity(all.iter().map(|some| some.data_bytes() as usize).sum());
    for some in all {
        bytes.extend_from_slice(some.rows(0..some.count()).unwrap_or_default());
    }
    let joined = VectorFile::from_rows(element, dim, bytes);
    joined.map(Some).map_err(|error| Refusal::invalid(error.to_string()))
}

/// Ends the attendance of a request that leaves.
struct LeavingRequest(WaitingAttendance);

impl Drop for LeavingRequest {
    fn drop(&mut self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_console::Kind;
    use bathyal_kernels::Element;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Answers each query with its first component; batches wait until `open`.
    struct FirstComponents {
        open: Arc<AtomicBool>,
        sizes: Arc<Mutex<Vec<usize>>>,
    }

    impl BatchSearch for FirstComponents {
        type Answer = Vec<u8>;

        fn answer(
            &self,
            queries: &VectorFile,
            parts: &[Range<usize>],
            control: Control<'_>,
        ) -> Result<Vec<Vec<u8>>, Refusal> {
            self.sizes.lock().unwrap().push(queries.count());
            while !self.open.load(Ordering::Acquire) {
                if control.cancel.is_some_and(|flag| flag.load(Ordering::Acquire)) {
                    return Err(Refusal::stopping());
                }
                std::thread::yield_now();
            }
            Ok(parts.iter().map(|part| part.clone().map(|row| queries.row(row)[0]).collect()).collect())
        }
    }

    fn query(first: u8) -> VectorFile {
        VectorFile::from_rows(Element::U8, 2, vec![first, 0]).unwrap()
    }

    fn batches() -> Batches<FirstComponents> {
        let threads = Arc::new(Semaphore::new(1));
        Batches::new(BatchLimits { threads, waiting: 500, time: Duration::from_secs(60) })
    }

    fn key() -> BatchKey {
        BatchKey { handle: 1, options: String::new() }
    }

    #[test]
    fn searches_that_wait_become_one_batch_and_get_their_own_answers() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let (open, sizes) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let batches = batches();
        let ask = |first: u8| {
            let (batches, open, sizes) = (batches.clone(), open.clone(), sizes.clone());
            async move { batches.answer(key(), || FirstComponents { open, sizes }, query(first)).await }
        };
        runtime.block_on(async {
            let first = tokio::spawn(ask(0));
            while sizes.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            let others: Vec<_> = (1..=100).map(|number| tokio::spawn(ask(number))).collect();
            while batches.0.places.taken() < 101
                || batches.waiting().values().map(|batch| batch.requests.len()).sum::<usize>() < 100
            {
                tokio::task::yield_now().await;
            }
            open.store(true, Ordering::Release);
            assert_eq!(first.await.unwrap().unwrap(), [0]);
            for (number, other) in (1..).zip(others) {
                assert_eq!(other.await.unwrap().unwrap(), [number]);
            }
        });
        assert_eq!(*sizes.lock().unwrap(), [1, 100]);
        assert!(batches.waiting().is_empty());
    }

    #[test]
    fn a_panic_of_a_batch_is_a_failure_of_its_requests_and_frees_its_thread() {
        struct Panics;
        impl BatchSearch for Panics {
            type Answer = ();
            fn answer(&self, _: &VectorFile, _: &[Range<usize>], _: Control<'_>) -> Result<Vec<()>, Refusal> {
                panic!("expected by this test")
            }
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let threads = Arc::new(Semaphore::new(1));
        let limits = BatchLimits { threads, waiting: 500, time: Duration::from_secs(60) };
        let batches = Batches::new(limits);
        for _ in 0..2 {
            let asked = async { batches.answer(key(), || Panics, query(1)).await };
            assert_eq!(runtime.block_on(asked).unwrap_err().kind, Kind::Internal);
        }
    }

    #[test]
    fn a_batch_whose_requests_have_left_is_cancelled() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let (open, sizes) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let batches = batches();
        runtime.block_on(async {
            let asked = batches.answer(
                key(),
                || FirstComponents { open: open.clone(), sizes: sizes.clone() },
                query(1),
            );
            let begun = async {
                while sizes.lock().unwrap().is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                _ = asked => panic!("the batch ended although nobody opened it"),
                () = begun => {}
            }
            // The thread is free again only after the cancelled batch has ended.
            let _permit = batches.0.limits.threads.acquire().await.unwrap();
        });
        assert_eq!(batches.0.places.taken(), 0);
    }
}
