//! Histories of rows: what clients wrote and read, with the times at which they asked and were answered, and
//! whether servers that lose and invent nothing could have answered so.
//!
//! Every write of a row has a value of its own, or deletes the row. A read at any server has to find a value
//! that was written, and one that is not older than servers may be: no other write of the row lies completely
//! between that write and the read, less the age that a server's rows may have.

use std::collections::HashMap;
use std::time::Duration;

/// The value of a row that is not there.
const ABSENT: Option<u64> = None;

/// A request, with its times since the beginning of the history.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Event {
    pub(super) row: u64,
    /// The value that was written or read; none of a row that was deleted or not found.
    pub(super) value: Option<u64>,
    pub(super) asked: Duration,
    /// The time of the answer. [`Duration::MAX`] of a write without one, which may happen at any later time.
    pub(super) answered: Duration,
}

/// Writes and reads.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) writes: Vec<Event>,
    pub(super) reads: Vec<Event>,
}

impl History {
    /// Adds the events of another history with the same beginning.
    pub(super) fn join(&mut self, other: History) {
        self.writes.extend(other.writes);
        self.reads.extend(other.reads);
    }

    /// Returns the reads that no order of the writes explains, if servers show rows that are `age` old at
    /// most.
    pub(super) fn contradictions(&self, age: Duration) -> Vec<String> {
        let mut by_row: HashMap<u64, Vec<Event>> = HashMap::new();
        for write in &self.writes {
            by_row.entry(write.row).or_default().push(*write);
        }
        self.reads.iter().filter_map(|read| contradiction(read, by_row.get(&read.row), age)).collect()
    }
}

/// Returns what is wrong with a read, given the writes of its row.
fn contradiction(read: &Event, writes: Option<&Vec<Event>>, age: Duration) -> Option<String> {
    // At first, there is no row.
    let start = Event { row: read.row, value: ABSENT, asked: Duration::ZERO, answered: Duration::ZERO };
    let writes = writes.map_or(&[][..], |writes| writes);
    let sources: Vec<&Event> = std::iter::once(&start)
        .chain(writes)
        .filter(|write| write.value == read.value && write.asked <= read.answered)
        .collect();
    if sources.is_empty() {
        return Some(format!("invented: {read:?} reads a value that nobody had written"));
    }
    let oldest_view = read.asked.saturating_sub(age);
    let later = |source: &Event| {
        writes.iter().find(|write| write.asked > source.answered && write.answered < oldest_view)
    };
    let hidden: Vec<&Event> = sources.iter().map_while(|source| later(source)).collect();
    let is_explained = hidden.len() < sources.len();
    (!is_explained).then(|| format!("lost or too old: {read:?} does not read {:?}", hidden[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(value: Option<u64>, asked: u64, answered: u64) -> Event {
        let time = |ms| if ms == u64::MAX { Duration::MAX } else { Duration::from_millis(ms) };
        Event { row: 7, value, asked: time(asked), answered: time(answered) }
    }

    fn wrong(writes: &[Event], read: Event) -> bool {
        let history = History { writes: writes.to_vec(), reads: vec![read] };
        !history.contradictions(Duration::from_millis(100)).is_empty()
    }

    #[test]
    fn possible_reads_are_told_from_impossible_ones() {
        let writes = [event(Some(1), 10, 20), event(Some(2), 30, 40)];
        // Before anything, during a write, and within the age of a view.
        assert!(!wrong(&writes, event(None, 0, 5)));
        assert!(!wrong(&writes, event(Some(1), 12, 15)));
        assert!(!wrong(&writes, event(Some(1), 139, 150)));
        assert!(!wrong(&writes, event(Some(2), 500, 510)));
        // Too old; a value of later; an unknown value; a row that is lost.
        assert!(wrong(&writes, event(Some(1), 141, 150)));
        assert!(wrong(&writes, event(Some(2), 5, 25)));
        assert!(wrong(&writes, event(Some(3), 500, 510)));
        assert!(wrong(&writes, event(None, 500, 510)));
    }

    #[test]
    fn writes_at_the_same_time_have_any_order_and_lost_answers_any_outcome() {
        let together = [event(Some(1), 10, 50), event(Some(2), 20, 40)];
        for value in [1, 2] {
            assert!(!wrong(&together, event(Some(value), 500, 510)), "{value}");
        }
        let unanswered = [event(Some(1), 10, 20), event(Some(2), 30, u64::MAX)];
        for value in [1, 2] {
            assert!(!wrong(&unanswered, event(Some(value), 500, 510)), "{value}");
        }
        assert!(wrong(&unanswered, event(None, 500, 510)));
    }

    #[test]
    fn deleted_rows_are_absent_and_may_not_come_back() {
        let writes = [event(Some(1), 10, 20), event(None, 30, 40), event(Some(2), 300, 310)];
        assert!(!wrong(&writes, event(None, 200, 210)));
        assert!(wrong(&writes, event(Some(1), 200, 210)));
        assert!(wrong(&writes, event(None, 500, 510)));
        assert!(!wrong(&writes, event(Some(2), 500, 510)));
    }
}
