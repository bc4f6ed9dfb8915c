//! Threads of which one runs at a time. Whose turn comes next is drawn, so that a seed says all that happens: any of them can be held
//! up between any two operations, for as long as others need to take over, write and remove what it was about to use.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::Cell;
use std::fmt::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    static WHO: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Turns that are told of when something goes wrong.
const TOLD: usize = 400;

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    /// One for each thread.
    wakes: Vec<Condvar>,
}

#[derive(Debug)]
struct State {
    random: StdRng,
    now: Option<usize>,
    /// For how many turns each is held up; `None` of one that is not there yet, or no more.
    held: Vec<Option<u32>>,
    begun: usize,
    /// One turn in so many goes to another thread.
    moves: u32,
    /// In one turn of so many its thread is held up.
    holds: u32,
    /// The logarithm of the most turns for which a thread is held up.
    longest: u32,
    /// What was done, and by whom.
    done: Vec<(usize, &'static str, String, u64)>,
}

impl State {
    /// Draws whose turn it is: of those that are not held up, if there are any.
    fn draw(&mut self) {
        self.held.iter_mut().flatten().for_each(|turns| *turns = turns.saturating_sub(1));
        let least = self.held.iter().flatten().min().copied();
        let least = if least == Some(0) { 0 } else { u32::MAX };
        let ready = |turns: &Option<u32>| turns.is_some_and(|turns| turns <= least);
        let ready: Vec<usize> = (0..self.held.len()).filter(|who| ready(&self.held[*who])).collect();
        self.now = match ready.len() {
            0 => None,
            some => Some(ready[self.random.random_range(0..some)]),
        };
    }
}

impl Turns {
    /// Of so many threads, which begin when all of them are there.
    pub(super) fn new(seed: u64, threads: usize) -> Turns {
        let mut random = StdRng::seed_from_u64(seed);
        let (moves, holds, longest) =
            (random.random_range(1..8), random.random_range(8..200), random.random_range(4..12));
        let held = vec![None; threads];
        let state = State { random, now: None, held, begun: 0, moves, holds, longest, done: Vec::new() };
        Turns { state: Mutex::new(state), wakes: (0..threads).map(|_| Condvar::new()).collect() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a thread.
    fn wait<'a>(&'a self, who: usize, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if let Some(next) = state.now.filter(|next| *next != who) {
            self.wakes[next].notify_one();
        }
        let waited = self.wakes[who].wait_while(state, |state| state.now != Some(who));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this thread take part, until what is returned is dropped.
    pub(super) fn join(&self, who: usize) -> Leaves<'_> {
        WHO.set(Some(who));
        let mut state = self.state();
        state.held[who] = Some(0);
        state.begun += 1;
        if state.begun == state.held.len() {
            state.draw();
        }
        drop(self.wait(who, state));
        Leaves(self, who)
    }

    /// What a thread that takes part does next: others may come first.
    pub(super) fn turn(&self, what: &'static str, name: &str, more: u64) {
        let Some(who) = WHO.get() else { return };
        let mut state = self.state();
        let (moves, holds, longest) = (state.moves, state.holds, state.longest);
        let held = state.random.random_ratio(1, holds);
        if held {
            let turns = 1 << state.random.random_range(0..longest);
            state.held[who] = Some(turns);
        }
        if held || state.random.random_ratio(1, moves) {
            state.draw();
        }
        self.wait(who, state).done.push((who, what, name.into(), more));
    }

    /// The last turns, a line each.
    pub(super) fn told(&self) -> String {
        let done = &self.state().done;
        done[done.len().saturating_sub(TOLD)..].iter().fold(
            String::new(),
            |mut told, (who, what, name, more)| {
                let _ = writeln!(told, "{who} {what} {name} {more}");
                told
            },
        )
    }
}

/// Ends the part of a thread.
pub(super) struct Leaves<'a>(&'a Turns, usize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        WHO.set(None);
        let mut state = self.0.state();
        state.held[self.1] = None;
        state.draw();
        if let Some(next) = state.now {
            self.0.wakes[next].notify_one();
        }
    }
}
