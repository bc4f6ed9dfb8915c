//! A worker: a thread that runs the queries of many callers, with an engine for each index.

use super::client::PoolClient;
use super::inbox::{Inbox, Message};
use super::job::{Job, JobHandle, QueryOutcome, Scratch};
use super::runner::IndexRunner;
use super::threads::{Pool, cores};
use crate::error::IndexError;
use bathyal_tier::process::open_files_limit;
use bathyal_tier::{Cx, thread_waker};
use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The longest sleep while queries run. It bounds the time until cancelled and late queries are dropped.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// The longest wait for the device of one index while queries of other indexes run, too.
const TURN: Duration = Duration::from_micros(100);
/// The time after which an idle engine is closed.
const IDLE: Duration = Duration::from_secs(10);
/// The most idle engines of a worker: each has open files and buffers, and a process may have thousands of
/// small indexes.
const MOST_IDLE: u64 = 16;
/// The idle engines of all workers together are at most this fraction (1/8) of the files that the process may
/// open.
const FILES_SHARE: u64 = 8;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the calling thread is a worker. A worker must not wait for workers.
pub(super) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// Runs a worker on the calling thread. It ends only by a panic.
pub(super) fn work(pool: &'static Pool, inbox: Arc<Inbox>) {
    IS_WORKER.set(true);
    let answer = |cx: &Cx, job: JobHandle, query: usize, scratch: Scratch| {
        Job::answer(job, cx.clone(), query, scratch)
    };
    let worker = Worker {
        pool,
        inbox,
        runners: Vec::new(),
        turn: 0,
        idle_poll: false,
        bound: false,
        swept: Instant::now(),
    };
    worker.run(&thread_waker(), &answer);
}

struct Worker<F: Future> {
    pool: &'static Pool,
    inbox: Arc<Inbox>,
    runners: Vec<IndexRunner<F>>,
    turn: usize,
    /// True if no query has made progress since the devices of several indexes were last polled.
    idle_poll: bool,
    /// True if the thread is bound to a NUMA node.
    bound: bool,
    /// The time of the last [`Worker::sweep`].
    swept: Instant,
}

impl<F: Future<Output = QueryOutcome>> Worker<F> {
    fn run(mut self, thread_waker: &Waker, answer: &impl Fn(&Cx, JobHandle, usize, Scratch) -> F) {
        loop {
            self.receive();
            let mut progress = false;
            for runner in &mut self.runners {
                progress |= runner.advance(answer);
            }
            self.turn = self.turn.wrapping_add(1);
            if progress {
                self.idle_poll = false;
            } else {
                self.sleep(thread_waker);
            }
            if self.turn.is_multiple_of(16) || !progress {
                self.sweep();
            }
        }
    }

    /// Handles the messages in the inbox.
    fn receive(&mut self) {
        for message in self.inbox.receive_all() {
            match message {
                Message::Run(job) => {
                    self.bind(job.client());
                    self.runner_of(job.client()).add(job);
                }
                Message::CloseEngine { client, _ack } => {
                    for mut runner in self.runners.extract_if(.., |runner| runner.client.number == client) {
                        runner.drop_all(|| IndexError::Cancelled);
                        runner.close();
                    }
                }
            }
        }
    }

    /// Binds the thread to a NUMA node for the first client with several nodes, before anything is allocated
    /// for it.
    fn bind(&mut self, client: &PoolClient) {
        if let (false, Some(nodes)) = (self.bound, client.nodes()) {
            self.bound = true;
            // This fails only if processors were taken from the process. The thread then runs unbound.
            let _ = nodes.bind_thread(nodes.of_thread(self.inbox.number));
        }
    }

    /// Returns the runner of a client. If there is none, adds one.
    fn runner_of(&mut self, client: &Arc<PoolClient>) -> &mut IndexRunner<F> {
        let existing = self.runners.iter().position(|runner| runner.client.number == client.number);
        let at = existing.unwrap_or_else(|| {
            self.limit_idle();
            self.runners.push(IndexRunner::new(self.pool, self.inbox.clone(), client.clone()));
            self.runners.len() - 1
        });
        &mut self.runners[at]
    }

    /// Closes the engine that has been idle longest if there are as many idle ones as allowed.
    fn limit_idle(&mut self) {
        let idle = self.runners.iter().enumerate().filter(|(_, runner)| runner.is_idle());
        let share = open_files_limit() / FILES_SHARE / cores() as u64;
        if idle.clone().count() as u64 >= share.clamp(1, MOST_IDLE)
            && let Some((at, _)) = idle.min_by_key(|(_, runner)| runner.idle_since)
        {
            self.runners.remove(at).close();
        }
    }

    /// Waits for a device, for memory or for a message. No query can make progress.
    fn sleep(&mut self, thread_waker: &Waker) {
        let active = self.runners.iter().filter(|runner| runner.active() > 0).count();
        let waker = self.inbox.waker.clone();
        match active {
            0 if self.runners.iter().any(|runner| runner.refused) => {
                waker.idle(thread_waker, Some(LONGEST_SLEEP))
            }
            0 if self.runners.is_empty() => waker.idle(thread_waker, None),
            0 => waker.idle(thread_waker, Some(IDLE)),
            1 => self
                .runners
                .iter_mut()
                .filter(|runner| runner.active() > 0)
                .for_each(|runner| runner.wait(&waker, LONGEST_SLEEP)),
            _ => {
                let turn = self.turn % active;
                for (i, runner) in self.runners.iter_mut().filter(|runner| runner.active() > 0).enumerate() {
                    // All devices are polled. If that brought no progress before, one of them in turn is
                    // waited for.
                    let wait = if self.idle_poll && i == turn { TURN } else { Duration::ZERO };
                    runner.wait(&waker, wait);
                }
                self.idle_poll = true;
            }
        }
    }

    /// Drops cancelled and late queries, and closes engines that have been idle for long.
    fn sweep(&mut self) {
        let now = Instant::now();
        let short = |runner: &IndexRunner<F>| runner.refused || runner.client.is_short_of_memory();
        if now.duration_since(self.swept) < LONGEST_SLEEP / 2 && !self.runners.iter().any(short) {
            return;
        }
        self.swept = now;
        for runner in &mut self.runners {
            runner.sweep(now);
        }
        let unused =
            |runner: &mut IndexRunner<F>| runner.is_idle() && now.duration_since(runner.idle_since) >= IDLE;
        for mut runner in self.runners.extract_if(.., unused) {
            runner.close();
        }
    }
}

impl<F: Future> Drop for Worker<F> {
    /// Fails the worker's jobs: it ends only by a panic.
    fn drop(&mut self) {
        let panicked = || IndexError::Internal("a search thread panicked".into());
        for message in self.inbox.close() {
            if let Message::Run(job) = message {
                job.fail(panicked());
            }
        }
        self.runners.iter().for_each(|runner| runner.fail_all(panicked));
    }
}
