//! The counters of a query of a whole index, which the laws of pilots predict.

use crate::interval::Interval;

/// The counters of a query of the whole index, or of several indexes that it searches together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counters {
    pub(crate) rounds: Interval,
    pub(crate) reads: Interval,
    pub(crate) bytes: Interval,
    pub(crate) code_distances: Interval,
    pub(crate) full_distances: Interval,
}

impl Counters {
    /// Returns the counters of no index.
    pub(crate) fn nothing() -> Counters {
        let zero = Interval::exactly(0.0);
        Counters { rounds: zero, reads: zero, bytes: zero, code_distances: zero, full_distances: zero }
    }

    /// Returns these counters and `number` times those of another index. Both are read at the same time, so
    /// that the rounds are those of the one that takes more.
    pub(crate) fn beside(&self, other: &Counters, number: f64) -> Counters {
        let add = |sum: Interval, each: Interval| sum.plus(&each.times(number));
        Counters {
            rounds: if other.rounds.value > self.rounds.value { other.rounds } else { self.rounds },
            reads: add(self.reads, other.reads),
            bytes: add(self.bytes, other.bytes),
            code_distances: add(self.code_distances, other.code_distances),
            full_distances: add(self.full_distances, other.full_distances),
        }
    }

    /// Returns these counters with intervals that are `factor` times as wide, but for the rounds.
    pub(crate) fn widened(&self, factor: f64) -> Counters {
        let wider = |number: Interval| number.widened(factor);
        Counters {
            rounds: self.rounds,
            reads: wider(self.reads),
            bytes: wider(self.bytes),
            code_distances: wider(self.code_distances),
            full_distances: wider(self.full_distances),
        }
    }
}
