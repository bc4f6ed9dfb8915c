//! The demand of a query of a whole index on its device and on the processor, with an interval.

use crate::interval::Interval;
use bathyal_index::cost::demand::Demand;

/// The demand of a query of the whole index, or of several indexes that it searches together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demands {
    /// Bytes that the device moves.
    pub(crate) moved: Interval,
    /// Nanoseconds of a processor.
    pub(crate) compute_ns: Interval,
    /// The expected demand, the least and the most.
    pub(crate) ends: [Demand; 3],
}

impl Demands {
    /// Returns the demand of no index.
    pub(crate) fn nothing() -> Demands {
        let (zero, none) =
            (Interval::exactly(0.0), Demand { rounds: 0.0, reads: 0.0, moved_bytes: 0.0, compute_ns: 0.0 });
        Demands { moved: zero, compute_ns: zero, ends: [none; 3] }
    }

    /// Returns this demand and `number` times that of another index. Both are read at the same time, so that
    /// the rounds are those of the one that takes more.
    pub(crate) fn beside(&self, other: &Demands, number: f64) -> Demands {
        let sum = |one: &Demand, other: &Demand| Demand {
            rounds: one.rounds.max(other.rounds),
            reads: one.reads + number * other.reads,
            moved_bytes: one.moved_bytes + number * other.moved_bytes,
            compute_ns: one.compute_ns + number * other.compute_ns,
        };
        let ([a, b, c], [x, y, z]) = (&self.ends, &other.ends);
        Demands {
            moved: self.moved.plus(&other.moved.times(number)),
            compute_ns: self.compute_ns.plus(&other.compute_ns.times(number)),
            ends: [sum(a, x), sum(b, y), sum(c, z)],
        }
    }

    /// Returns the demand with an interval that is `factor` times as wide, but for the rounds.
    pub(crate) fn widened(&self, factor: f64) -> Demands {
        let times = |one: &Demand, by: f64| Demand {
            reads: one.reads * by,
            moved_bytes: one.moved_bytes * by,
            compute_ns: one.compute_ns * by,
            ..*one
        };
        let [expected, least, most] = &self.ends;
        Demands {
            moved: self.moved.widened(factor),
            compute_ns: self.compute_ns.widened(factor),
            ends: [*expected, times(least, 1.0 / factor), times(most, factor)],
        }
    }

    /// Returns the demand with further processor time.
    pub(crate) fn with_compute(&self, more_ns: Interval) -> Demands {
        let with = |one: &Demand, ns: f64| Demand { compute_ns: one.compute_ns + ns, ..*one };
        let [expected, least, most] = &self.ends;
        let ends = [with(expected, more_ns.value), with(least, more_ns.low), with(most, more_ns.high)];
        Demands { moved: self.moved, compute_ns: self.compute_ns.plus(&more_ns), ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_of_indexes_that_are_searched_together_add_up_but_for_their_rounds() {
        let of = |rounds: f64, reads: f64| {
            let demand = Demand { rounds, reads, moved_bytes: 10.0 * reads, compute_ns: 100.0 * reads };
            Demands {
                moved: Interval::exactly(10.0 * reads),
                compute_ns: Interval::exactly(100.0 * reads),
                ends: [demand; 3],
            }
        };
        let all = Demands::nothing().beside(&of(3.0, 8.0), 1.0).beside(&of(2.0, 4.0), 5.0);
        let wide = all.widened(2.0).with_compute(Interval::within_factor(100.0, 2.0));
        let found = wide.ends.map(|one| [one.rounds, one.reads, one.moved_bytes, one.compute_ns]);
        assert_eq!(found[0], [3.0, 28.0, 280.0, 2_900.0]);
        assert_eq!(found[1], [3.0, 14.0, 140.0, 1_450.0]);
        assert_eq!(found[2], [3.0, 56.0, 560.0, 5_800.0]);
        assert_eq!((wide.moved.value, wide.compute_ns.high), (280.0, 5_800.0));
    }
}
