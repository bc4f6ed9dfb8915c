//! A worker: a thread that runs the queries of many callers on an engine for each index that they ask.

use super::desk::{Desk, Order};
use super::job::{Ended, Held, Job, Scratch};
use super::post::Post;
use super::tenant::Tenant;
use super::threads::{Pool, cores};
use crate::error::IndexError;
use bathyal_tier::process::open_files_limit;
use bathyal_tier::{Cx, thread_waker};
use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The longest sleep: how soon what has been cancelled or is late is dropped.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// How long the device of one index is waited for while another one's may be done.
const TURN: Duration = Duration::from_micros(100);
/// How long an engine stands idle before it is closed.
const IDLE: Duration = Duration::from_secs(10);
/// Engines of a worker that stand idle at most: each has files open and buffers, and a process may have thousands of small indexes.
const MOST_IDLE: u64 = 16;
/// And of all workers together, no more than one of so many of the files that a process may have open.
const FILES_SHARE: u64 = 8;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is a worker, which must not wait for workers.
pub(super) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// The life of a worker.
pub(super) fn work(pool: &'static Pool, desk: Arc<Desk>) {
    IS_WORKER.set(true);
    let answer =
        |cx: &Cx, job: Held, query: usize, scratch: Scratch| Job::answer(job, cx.clone(), query, scratch);
    let worker = Worker {
        pool,
        desk,
        posts: Vec::new(),
        turn: 0,
        fruitless: false,
        bound: false,
        looked: Instant::now(),
    };
    worker.run(&thread_waker(), &answer);
}

struct Worker<F: Future> {
    pool: &'static Pool,
    desk: Arc<Desk>,
    posts: Vec<Post<F>>,
    turn: usize,
    /// Whether no query has gone on since the devices were last looked at.
    fruitless: bool,
    /// Whether it keeps to a NUMA node.
    bound: bool,
    looked: Instant,
}

impl<F: Future<Output = Ended>> Worker<F> {
    fn run(mut self, me: &Waker, answer: &impl Fn(&Cx, Held, usize, Scratch) -> F) {
        loop {
            self.receive();
            let mut went_on = false;
            for post in &mut self.posts {
                went_on |= post.go_on(answer);
            }
            self.turn = self.turn.wrapping_add(1);
            if went_on {
                self.fruitless = false;
            } else {
                self.sleep(me);
            }
            if self.turn.is_multiple_of(16) || !went_on {
                self.look_around();
            }
        }
    }

    fn receive(&mut self) {
        for order in self.desk.orders() {
            match order {
                Order::Answer(job) => {
                    self.bind(job.tenant());
                    self.post(job.tenant()).add(job);
                }
                Order::Dismiss { tenant, _ack } => {
                    for mut post in self.posts.extract_if(.., |post| post.tenant.number == tenant) {
                        post.give_up(|| IndexError::Cancelled);
                        post.close();
                    }
                }
            }
        }
    }

    /// Keeps to a NUMA node from the first index on that wants it, before anything is allocated for that.
    fn bind(&mut self, tenant: &Tenant) {
        if let (false, Some(nodes)) = (self.bound, tenant.nodes()) {
            self.bound = true;
            // Refused only where processors have been taken away since: then it runs where it may.
            let _ = nodes.bind_thread(nodes.of_thread(self.desk.number));
        }
    }

    fn post(&mut self, tenant: &Arc<Tenant>) -> &mut Post<F> {
        let known = self.posts.iter().position(|post| post.tenant.number == tenant.number);
        let at = known.unwrap_or_else(|| {
            self.make_room();
            self.posts.push(Post::new(self.pool, self.desk.clone(), tenant.clone()));
            self.posts.len() - 1
        });
        &mut self.posts[at]
    }

    /// Closes the engine that stands idle for the longest time, where there are so many that another one would be too much.
    fn make_room(&mut self) {
        let idle = self.posts.iter().enumerate().filter(|(_, post)| post.is_idle());
        let share = open_files_limit() / FILES_SHARE / cores() as u64;
        if idle.clone().count() as u64 >= share.clamp(1, MOST_IDLE)
            && let Some((at, _)) = idle.min_by_key(|(_, post)| post.idle_since)
        {
            self.posts.remove(at).close();
        }
    }

    /// Nothing can go on: waits for a device, for memory, or for work.
    fn sleep(&mut self, me: &Waker) {
        let active = self.posts.iter().filter(|post| post.active() > 0).count();
        let alarm = self.desk.alarm.clone();
        match active {
            0 if self.posts.iter().any(|post| post.refused) => alarm.idle(me, Some(LONGEST_SLEEP)),
            0 if self.posts.is_empty() => alarm.idle(me, None),
            0 => alarm.idle(me, Some(IDLE)),
            1 => self
                .posts
                .iter_mut()
                .filter(|post| post.active() > 0)
                .for_each(|post| post.wait(&alarm, LONGEST_SLEEP)),
            _ => {
                let turn = self.turn % active;
                for (i, post) in self.posts.iter_mut().filter(|post| post.active() > 0).enumerate() {
                    // All are looked at; where that brought nothing, they are waited for in turn.
                    let wait = if self.fruitless && i == turn { TURN } else { Duration::ZERO };
                    post.wait(&alarm, wait);
                }
                self.fruitless = true;
            }
        }
    }

    /// Drops what nobody waits for any more, and closes engines that nobody uses.
    fn look_around(&mut self) {
        let now = Instant::now();
        let short = |post: &Post<F>| post.refused || post.tenant.is_short();
        if now.duration_since(self.looked) < LONGEST_SLEEP / 2 && !self.posts.iter().any(short) {
            return;
        }
        self.looked = now;
        for post in &mut self.posts {
            post.sweep(now);
        }
        for mut post in
            self.posts.extract_if(.., |post| post.is_idle() && now.duration_since(post.idle_since) >= IDLE)
        {
            post.close();
        }
    }
}

impl<F: Future> Drop for Worker<F> {
    /// A worker ends only by a panic: whoever waits for it is told.
    fn drop(&mut self) {
        let panicked = || IndexError::Internal("a search thread panicked".into());
        for order in self.desk.close() {
            if let Order::Answer(job) = order {
                job.fail(panicked());
            }
        }
        self.posts.iter().for_each(|post| post.fail_all(panicked));
    }
}
