//! A deterministic scheduler: one thread runs at a time, and a seed decides which. Any thread can be paused
//! between any two operations, for as long as others need to take over, write, and remove the objects that it
//! was about to use.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::Cell;
use std::fmt::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Number of steps in the trace of a failed test.
const TRACED_STEPS: usize = 400;

/// Decides which thread runs.
#[derive(Debug)]
pub(super) struct Scheduler {
    state: Mutex<State>,
    /// One condition variable for each thread.
    condvars: Vec<Condvar>,
}

#[derive(Debug)]
struct State {
    random: StdRng,
    /// The running thread.
    now: Option<usize>,
    /// For each thread, the number of steps for which it is paused; `None` before it joins and after it
    /// leaves.
    paused: Vec<Option<u32>>,
    /// Number of threads that have joined.
    joined: usize,
    /// One step in `switch_ratio` switches to another thread.
    switch_ratio: u32,
    /// One step in `pause_ratio` pauses its thread.
    pause_ratio: u32,
    /// Logarithm of the longest pause, in steps.
    longest: u32,
    /// All steps: thread, operation, name, number.
    steps: Vec<(usize, &'static str, String, u64)>,
}

impl State {
    /// Chooses the next thread at random, from those that are not paused if there are any.
    fn choose(&mut self) {
        self.paused.iter_mut().flatten().for_each(|steps| *steps = steps.saturating_sub(1));
        let least = self.paused.iter().flatten().min().copied();
        let least = if least == Some(0) { 0 } else { u32::MAX };
        let ready = |steps: &Option<u32>| steps.is_some_and(|steps| steps <= least);
        let ready: Vec<usize> =
            (0..self.paused.len()).filter(|thread| ready(&self.paused[*thread])).collect();
        self.now = match ready.len() {
            0 => None,
            some => Some(ready[self.random.random_range(0..some)]),
        };
    }
}

impl Scheduler {
    /// Creates a scheduler for `threads` threads, which start when all have joined.
    pub(super) fn new(seed: u64, threads: usize) -> Scheduler {
        let mut random = StdRng::seed_from_u64(seed);
        let (switch_ratio, pause_ratio, longest) =
            (random.random_range(1..8), random.random_range(8..200), random.random_range(4..12));
        let paused = vec![None; threads];
        let state = State {
            random,
            now: None,
            paused,
            joined: 0,
            switch_ratio,
            pause_ratio,
            longest,
            steps: Vec::new(),
        };
        Scheduler { state: Mutex::new(state), condvars: (0..threads).map(|_| Condvar::new()).collect() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a thread may run.
    fn wait<'a>(&'a self, thread: usize, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if let Some(next) = state.now.filter(|next| *next != thread) {
            self.condvars[next].notify_one();
        }
        let waited = self.condvars[thread].wait_while(state, |state| state.now != Some(thread));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds this thread, until the returned guard is dropped.
    pub(super) fn join(&self, thread: usize) -> LeaveGuard<'_> {
        THREAD.set(Some(thread));
        let mut state = self.state();
        state.paused[thread] = Some(0);
        state.joined += 1;
        if state.joined == state.paused.len() {
            state.choose();
        }
        drop(self.wait(thread, state));
        LeaveGuard(self, thread)
    }

    /// Announces the next operation of this thread. Other threads may run first.
    pub(super) fn step(&self, operation: &'static str, name: &str, number: u64) {
        let Some(thread) = THREAD.get() else { return };
        let mut state = self.state();
        let (switch_ratio, pause_ratio, longest) = (state.switch_ratio, state.pause_ratio, state.longest);
        let paused = state.random.random_ratio(1, pause_ratio);
        if paused {
            let pause = 1 << state.random.random_range(0..longest);
            state.paused[thread] = Some(pause);
        }
        if paused || state.random.random_ratio(1, switch_ratio) {
            state.choose();
        }
        self.wait(thread, state).steps.push((thread, operation, name.into(), number));
    }

    /// Returns the last steps, one per line.
    pub(super) fn trace(&self) -> String {
        let steps = &self.state().steps;
        steps[steps.len().saturating_sub(TRACED_STEPS)..].iter().fold(
            String::new(),
            |mut trace, (thread, operation, name, number)| {
                let _ = writeln!(trace, "{thread} {operation} {name} {number}");
                trace
            },
        )
    }
}

/// Removes a thread from the scheduler when it is dropped.
pub(super) struct LeaveGuard<'a>(&'a Scheduler, usize);

impl Drop for LeaveGuard<'_> {
    fn drop(&mut self) {
        THREAD.set(None);
        let mut state = self.0.state();
        state.paused[self.1] = None;
        state.choose();
        if let Some(next) = state.now {
            self.0.condvars[next].notify_one();
        }
    }
}
