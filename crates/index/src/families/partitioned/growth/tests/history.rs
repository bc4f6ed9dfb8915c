//! A check that a history is linearizable: there is an order of its operations, each at a moment between its
//! begin and its end, that explains the observations (Wing and Gong, 1993). Vectors are independent, so each
//! has a history of its own.

use std::collections::{BTreeMap, HashSet};

/// An operation on a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Insert,
    Delete,
    /// A search: true if it has found the vector.
    See(bool),
}

/// An operation on a vector, with the times of its begin and end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) act: Act,
    pub(super) begin: u64,
    /// `None` if it was killed: it may have happened at any moment after its begin, or not at all.
    pub(super) end: Option<u64>,
}

/// The events of each vector.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) built: Vec<u32>,
    pub(super) events: BTreeMap<u32, Vec<Event>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Absent,
    Present,
    Deleted,
}

impl History {
    pub(super) fn add(&mut self, id: u32, event: Event) {
        self.events.entry(id).or_default().push(event);
    }

    /// Returns the first vector whose history cannot be explained.
    pub(super) fn wrong(&self) -> Option<(u32, &[Event])> {
        let explained = |id: &u32, events: &[Event]| {
            let start = if self.built.contains(id) { State::Present } else { State::Absent };
            explains(events, start)
        };
        self.events.iter().find(|(id, events)| !explained(id, events)).map(|(id, events)| (*id, &events[..]))
    }
}

/// Returns the state after an operation; `None` if the operation is impossible in `state`.
fn after(state: State, act: Act) -> Option<State> {
    match (act, state) {
        (Act::Insert, State::Absent) => Some(State::Present),
        (Act::Insert, _) => None,
        (Act::Delete, State::Present) => Some(State::Deleted),
        (Act::Delete, other) => Some(other),
        (Act::See(seen), state) => (seen == (state == State::Present)).then_some(state),
    }
}

fn explains(events: &[Event], start: State) -> bool {
    assert!(events.len() <= 128, "{} events of one vector", events.len());
    let mut tried = HashSet::new();
    let mut waiting = vec![(0_u128, start)];
    while let Some((done, state)) = waiting.pop() {
        if !tried.insert((done, state)) {
            continue;
        }
        let left = || (0..events.len()).filter(|event| done >> event & 1 == 0);
        // An operation that has ended precedes all operations that begin later.
        let earliest = left().filter_map(|event| events[event].end).min();
        let Some(earliest) = earliest else { return true };
        for event in left().filter(|event| events[*event].begin <= earliest) {
            if let Some(state) = after(state, events[event].act) {
                waiting.push((done | 1 << event, state));
            }
        }
    }
    false
}

#[test]
fn inconsistent_histories_are_detected() {
    let event = |act, begin, end| Event { act, begin, end };
    let wrong = |built: bool, events: &[Event]| {
        let mut history = History { built: if built { vec![7] } else { vec![] }, ..History::default() };
        events.iter().for_each(|event| history.add(7, *event));
        history.wrong().is_some()
    };
    let insert = event(Act::Insert, 1, Some(10));
    // During the insertion a search may find the vector or not. After one search has found it, later ones
    // must.
    assert!(!wrong(false, &[insert, event(Act::See(false), 2, Some(5)), event(Act::See(true), 6, Some(8))]));
    assert!(wrong(false, &[insert, event(Act::See(true), 2, Some(5)), event(Act::See(false), 6, Some(8))]));
    assert!(!wrong(false, &[insert, event(Act::See(true), 2, Some(7)), event(Act::See(false), 6, Some(8))]));
    assert!(wrong(false, &[insert, event(Act::See(false), 11, Some(12))]));
    // A killed operation may have happened at any time after its begin, or never.
    let killed = event(Act::Insert, 1, None);
    assert!(!wrong(
        false,
        &[killed, event(Act::See(false), 100, Some(110)), event(Act::See(true), 120, Some(130))]
    ));
    assert!(wrong(
        false,
        &[killed, event(Act::See(true), 100, Some(110)), event(Act::See(false), 120, Some(130))]
    ));
    // A deleted vector never returns.
    let delete = event(Act::Delete, 20, Some(30));
    assert!(!wrong(true, &[event(Act::See(true), 1, Some(2)), delete, event(Act::See(false), 31, Some(32))]));
    assert!(wrong(true, &[delete, event(Act::See(true), 31, Some(32))]));
    assert!(wrong(
        true,
        &[delete, event(Act::See(false), 21, Some(22)), event(Act::See(true), 23, Some(24))]
    ));
    assert!(
        !wrong(false, &[event(Act::See(false), 1, Some(2))])
            && wrong(true, &[event(Act::See(false), 1, Some(2))])
    );
}
