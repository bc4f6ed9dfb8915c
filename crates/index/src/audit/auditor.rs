//! Chooses queries, and answers them exactly on a thread of its own.

use super::ledger::{Ledger, Reaction};
use super::options::AuditOptions;
use super::pace::{Pace, Stop};
use super::stats::AuditStats;
use crate::error::IndexError;
use bathyal_tier::TierError;
use bathyal_tier::process::{Share, yield_to_others};
use bathyal_vectors::groundtruth::QueryRecall;
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Queries that one pass over the vectors answers: their comparisons take about as long as reading does.
const PASS_QUERIES: usize = 64;
/// The most queries that wait: those of a few passes.
const MOST_WAITING: usize = 4 * PASS_QUERIES;
/// The most bytes of the queries that wait.
const MOST_WAITING_BYTES: u64 = 16 << 20;
/// The most time that a query waits: its answer keeps the state of a collection alive.
const MOST_WAIT: Duration = Duration::from_secs(30);

/// The recall that a search asked for, and the level of its effort.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AskedRecall {
    /// `None` for another effort.
    recall: Option<f32>,
    /// Times that the miss was halved.
    level: u32,
}

/// The result of an exact answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The recall of the search.
    Recall(QueryRecall),
    /// The vectors have changed since the search, or the query has no neighbours.
    Discarded,
}

/// The results of a pass.
#[derive(Debug, Default)]
pub struct Audited {
    /// One for each query, in their order.
    pub verdicts: Vec<Verdict>,
    /// Bytes read.
    pub bytes: u64,
}

/// A query that waits for its exact answer.
struct SampledQuery<Answer> {
    asked: AskedRecall,
    since: Instant,
    bytes: u64,
    answer: Answer,
}

/// The queries that wait.
struct Waiting<Answer> {
    samples: VecDeque<SampledQuery<Answer>>,
    bytes: u64,
}

/// Counters of an audit.
#[derive(Default)]
struct AuditCounters {
    sampled: AtomicU64,
    dropped: AtomicU64,
    discarded: AtomicU64,
    bytes: AtomicU64,
    busy_ns: AtomicU64,
}

/// The state that searches share with the auditing thread.
struct Shared<Answer> {
    options: AuditOptions,
    /// Queries so far: each one's number decides if it is audited.
    queries: AtomicU64,
    waiting: Mutex<Waiting<Answer>>,
    arrived: Condvar,
    stop: Stop,
    ledger: Mutex<Ledger>,
    /// True if `reactions` has any.
    reacts: AtomicBool,
    reactions: RwLock<Vec<Reaction>>,
    counters: AuditCounters,
    trouble: Mutex<Option<String>>,
}

/// Chooses queries of live searches, and has them answered exactly by a thread. `Answer` is a query with what
/// its search found. The thread ends when the auditor is dropped.
pub struct Auditor<Answer> {
    shared: Arc<Shared<Answer>>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Answer: Send + 'static> Auditor<Answer> {
    /// Starts the thread. It calls `audit` with some answers at a time, which has to call [`Pace::step`]
    /// again and again.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for options out of range; [`IndexError::Tier`] if the system starts no
    /// thread.
    pub fn start<Failure: Display>(
        options: AuditOptions,
        audit: impl Fn(&[Answer], &Pace<'_>) -> Result<Audited, Failure> + Send + 'static,
    ) -> Result<Auditor<Answer>, IndexError> {
        options.check()?;
        let shared = Arc::new(Shared {
            options,
            queries: AtomicU64::new(0),
            waiting: Mutex::new(Waiting { samples: VecDeque::new(), bytes: 0 }),
            arrived: Condvar::new(),
            stop: Stop::default(),
            ledger: Mutex::new(Ledger::new(options.on_miss)),
            reacts: AtomicBool::new(false),
            reactions: RwLock::default(),
            counters: AuditCounters::default(),
            trouble: Mutex::default(),
        });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("bathyal-audit".into());
        let started = thread.spawn(move || of_thread.run(audit));
        let operation = "start the thread of an audit";
        let thread = started.map_err(|source| TierError::System { operation, source })?;
        Ok(Auditor { shared, thread: Some(thread), process: std::process::id() })
    }

    /// Returns the entry in the audit of searches for a recall (`None` for other efforts), and what they do
    /// differently because of it.
    pub fn reaction(&self, recall: Option<f32>) -> (AskedRecall, Option<Reaction>) {
        let nothing = (AskedRecall { recall, level: 0 }, None);
        if !self.shared.reacts.load(Relaxed) {
            return nothing;
        }
        let reactions = self.shared.reactions.read().unwrap_or_else(PoisonError::into_inner);
        match reactions.iter().find(|reaction| Some(reaction.asked) == recall) {
            Some(reaction) => (AskedRecall { recall, level: reaction.level }, Some(reaction.clone())),
            None => nothing,
        }
    }

    /// Returns the numbers of the queries of a batch of `count` that are audited. Costs one atomic addition
    /// if there are none.
    pub fn choose(&self, count: usize) -> impl Iterator<Item = usize> + use<Answer> {
        let first = self.shared.queries.fetch_add(count as u64, Relaxed);
        // 2^64 does not fit; a share of 1 is all but one in 2^64.
        let below = (self.shared.options.share * u64::MAX as f64) as u64;
        (0..count).filter(move |at| mixed(first + *at as u64) <= below)
    }

    /// Adds a chosen query to those that wait, if there is room. `answer` returns it with its answer, and the
    /// bytes that both take.
    pub fn add(&self, asked: AskedRecall, answer: impl FnOnce() -> (Answer, u64)) {
        let Shared { waiting, counters, arrived, .. } = &*self.shared;
        counters.sampled.fetch_add(1, Relaxed);
        let mut waiting = lock(waiting);
        if waiting.samples.len() >= MOST_WAITING || waiting.bytes >= MOST_WAITING_BYTES {
            counters.dropped.fetch_add(1, Relaxed);
            return;
        }
        let (answer, bytes) = answer();
        waiting.bytes += bytes;
        waiting.samples.push_back(SampledQuery { asked, since: Instant::now(), bytes, answer });
        drop(waiting);
        arrived.notify_one();
    }

    /// Returns the counters and the recall found.
    pub fn stats(&self) -> AuditStats {
        let Shared { options, counters, trouble, waiting, .. } = &*self.shared;
        AuditStats {
            share: options.share,
            sampled: counters.sampled.load(Relaxed),
            waiting: lock(waiting).samples.len() as u64,
            dropped: counters.dropped.load(Relaxed),
            discarded: counters.discarded.load(Relaxed),
            seconds: counters.busy_ns.load(Relaxed) as f64 / 1e9,
            bytes: counters.bytes.load(Relaxed),
            trouble: lock(trouble).clone(),
            recalls: lock(&self.shared.ledger).watched(),
        }
    }
}

impl<Answer> Drop for Auditor<Answer> {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A child made by fork has no such thread, and its locks may be held for ever.
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.stop.set();
        drop(lock(&self.shared.waiting));
        self.shared.arrived.notify_all();
        // A panic of the thread has no further consequences.
        self.thread.take().map(JoinHandle::join);
    }
}

impl<Answer> Shared<Answer> {
    /// Audits until the auditor is dropped.
    fn run<Failure: Display>(&self, audit: impl Fn(&[Answer], &Pace<'_>) -> Result<Audited, Failure>) {
        yield_to_others(Share::Rest);
        let pace = Pace::new(&self.stop, self.options.busy);
        while let Some(samples) = self.next() {
            if samples.is_empty() {
                continue;
            }
            let (asked, answers): (Vec<AskedRecall>, Vec<Answer>) =
                samples.into_iter().map(|sample| (sample.asked, sample.answer)).unzip();
            pace.begin();
            let outcome = audit(&answers, &pace);
            drop(answers);
            self.record(&asked, outcome);
            pace.settle();
            self.counters.busy_ns.store(pace.worked().as_nanos() as u64, Relaxed);
        }
    }

    /// Waits for queries, and takes some; `None` at the end. Drops those that have waited for too long.
    fn next(&self) -> Option<Vec<SampledQuery<Answer>>> {
        let waiting = lock(&self.waiting);
        let nothing = |waiting: &mut Waiting<Answer>| waiting.samples.is_empty() && !self.stop.is_set();
        let mut waiting = self.arrived.wait_while(waiting, nothing).unwrap_or_else(PoisonError::into_inner);
        if self.stop.is_set() {
            return None;
        }
        let count = waiting.samples.len().min(PASS_QUERIES);
        let mut taken: Vec<SampledQuery<Answer>> = waiting.samples.drain(..count).collect();
        waiting.bytes -= taken.iter().map(|sample| sample.bytes).sum::<u64>();
        drop(waiting);
        taken.retain(|sample| sample.since.elapsed() < MOST_WAIT);
        self.counters.dropped.fetch_add((count - taken.len()) as u64, Relaxed);
        Some(taken)
    }

    /// Records the results of a pass, and lets searches know what follows from them.
    fn record(&self, asked: &[AskedRecall], outcome: Result<Audited, impl Display>) {
        let audited = match outcome {
            Ok(audited) => audited,
            Err(error) => {
                self.counters.discarded.fetch_add(asked.len() as u64, Relaxed);
                if !self.stop.is_set() {
                    *lock(&self.trouble) = Some(error.to_string());
                }
                return;
            }
        };
        *lock(&self.trouble) = None;
        self.counters.bytes.fetch_add(audited.bytes, Relaxed);
        let mut ledger = lock(&self.ledger);
        for (asked, verdict) in asked.iter().zip(audited.verdicts) {
            match verdict {
                // Searches before the last change of the effort say nothing about the present one.
                Verdict::Recall(recall) if asked.level == ledger.level(asked.recall) => {
                    ledger.add(asked.recall, recall);
                }
                _ => drop(self.counters.discarded.fetch_add(1, Relaxed)),
            }
        }
        let reactions = ledger.reactions();
        drop(ledger);
        self.reacts.store(!reactions.is_empty(), Relaxed);
        *self.reactions.write().unwrap_or_else(PoisonError::into_inner) = reactions;
    }
}

/// Returns a number in which each bit depends on all bits of `number` (the finalizer of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::OnMiss;

    fn all(busy: f64) -> AuditOptions {
        AuditOptions { share: 1.0, busy, on_miss: OnMiss::RaiseEffort { most: 1 } }
    }

    /// Adds `count` answers; each is its number of hits among 2 neighbours.
    fn add(auditor: &Auditor<usize>, asked: AskedRecall, count: usize, hits: impl Fn(usize) -> usize) {
        (0..count).for_each(|number| auditor.add(asked, || (hits(number), 8)));
    }

    fn verdict(hits: &usize) -> Verdict {
        let all = QueryRecall { hits: *hits, wanted: 2 };
        if *hits > 2 { Verdict::Discarded } else { Verdict::Recall(all) }
    }

    fn audit(answers: &[usize], _: &Pace<'_>) -> Result<Audited, IndexError> {
        Ok(Audited { verdicts: answers.iter().map(verdict).collect(), bytes: 100 })
    }

    fn wait_for(auditor: &Auditor<usize>, until: impl Fn(&AuditStats) -> bool) -> AuditStats {
        let started = Instant::now();
        loop {
            let stats = auditor.stats();
            if until(&stats) {
                return stats;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{stats:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until no query waits or is being answered.
    fn settled(auditor: &Auditor<usize>) -> AuditStats {
        wait_for(auditor, |stats| {
            let audited: u64 = stats.recalls.iter().map(|one| one.audited).sum();
            stats.sampled == stats.dropped + stats.discarded + audited
        })
    }

    #[test]
    fn the_given_share_is_chosen_whatever_the_batches() {
        for share in [1.0, 0.1, 0.001] {
            let auditor = Auditor::start(AuditOptions { share, ..all(1.0) }, audit).unwrap();
            let batches = (0..2000).map(|number| 1 + number % 99);
            let queries = batches.clone().sum::<usize>() as f64;
            let chosen = batches.map(|batch| auditor.choose(batch).count()).sum::<usize>() as f64;
            let spread = 4.0 * (queries * share * (1.0 - share)).sqrt();
            assert!((chosen - queries * share).abs() <= spread, "{chosen} of {queries} for {share}");
        }
        for (options, reason) in [
            (AuditOptions { share: 0.0, ..all(1.0) }, "audit is 0; it is a share"),
            (AuditOptions { share: 1.5, ..all(1.0) }, "audit is 1.5"),
            (AuditOptions { share: f64::NAN, ..all(1.0) }, "audit is NaN"),
            (all(0.0), "the time of the audit is 0"),
        ] {
            let refusal = Auditor::start(options, audit).map(|_| ()).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }

    #[test]
    fn effort_follows_from_answers_of_the_present_effort_only() {
        let auditor = Auditor::start(all(1.0), audit).unwrap();
        let (before, reaction) = auditor.reaction(Some(0.9));
        assert_eq!(reaction, None);
        add(&auditor, before, 60, |number| number % 2);
        assert_eq!(settled(&auditor).recalls[0].effort_for, Some(0.95));
        // Searches learn of it after it is counted.
        wait_for(&auditor, |_| auditor.reaction(Some(0.9)).1.is_some());
        let (after, reaction) = auditor.reaction(Some(0.9));
        let reaction = reaction.unwrap();
        assert_eq!(reaction.effort_for, 0.95);
        assert!(reaction.note.contains("now make the effort for 0.95"));
        assert_eq!((auditor.reaction(Some(0.8)).1, auditor.reaction(None).1), (None, None));
        let known = settled(&auditor).discarded;
        add(&auditor, before, 20, |_| 2);
        add(&auditor, after, 5, |_| 9);
        assert_eq!(settled(&auditor).discarded, known + 25);
        add(&auditor, after, 10, |_| 2);
        let found = settled(&auditor).recalls[0].estimate.unwrap();
        assert_eq!((found.queries, found.found), (10, 1.0));
        let mut text = String::new();
        auditor.stats().write_prometheus("bathyal", "index=\"x\"", &mut text);
        assert!(text.contains("\nbathyal_audit_sampled_total{index=\"x\"} 95\n"), "{text}");
        assert!(text.contains("\nbathyal_audit_recall{index=\"x\",asked=\"0.9\"} 1\n"), "{text}");
    }

    #[test]
    fn a_failed_audit_is_counted_and_reported() {
        let fail = |_: &[usize], _: &Pace<'_>| Err(IndexError::Internal("no device".into()));
        let auditor = Auditor::start(all(1.0), fail).unwrap();
        add(&auditor, AskedRecall::default(), 3, |_| 2);
        let stats = settled(&auditor);
        assert_eq!(stats.discarded, 3);
        assert!(stats.trouble.is_some_and(|trouble| trouble.contains("no device")));
    }

    #[test]
    fn the_thread_rests_and_ends_when_its_auditor_is_dropped() {
        let work = |answers: &[usize], pace: &Pace<'_>| {
            let started = Instant::now();
            while !pace.control().cancel.is_some_and(|cancel| cancel.load(Relaxed)) {
                std::thread::sleep(Duration::from_millis(1));
                pace.step();
                if started.elapsed() > Duration::from_millis(200) && answers[0] == 0 {
                    break;
                }
            }
            audit(answers, pace)
        };
        let auditor = Auditor::start(all(0.1), work).unwrap();
        let started = Instant::now();
        add(&auditor, AskedRecall::default(), 1, |_| 0);
        let seconds = wait_for(&auditor, |stats| stats.seconds > 0.0).seconds;
        let passed = started.elapsed().as_secs_f64();
        assert!(passed > 9.0 * seconds, "{seconds} s of work in {passed} s, at a tenth");
        add(&auditor, AskedRecall::default(), 1000, |_| 1);
        let stats = auditor.stats();
        assert!(stats.waiting <= MOST_WAITING as u64 && stats.dropped >= 600, "{stats:?}");
        // The work never ends by itself.
        drop(auditor);
    }
}
