//! The layout of an index that suits a device: one whose queries are limited by the processor, and not by the
//! bytes that the device moves.

use super::demand::Execution;
use super::work::Estimate;
use bathyal_tier::TierProfile;
use serde::Serialize;

/// The gain in throughput from which a conversion is advised. Predictions differ from measurements by a third
/// at most in 19 of 20 cases, so half as much again is a gain even then.
pub const WORTH_CONVERTING: f64 = 1.5;

/// A layout, and what a query of an index in it is expected to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayoutEstimate {
    /// The name of the layout.
    pub layout: &'static str,
    /// The estimate of a query.
    pub estimate: Estimate,
}

/// The advice to convert an index into another layout.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LayoutAdvice {
    /// The layout of the index.
    pub layout: &'static str,
    /// The layout that suits the device.
    pub other: &'static str,
    /// Bytes that the device moves for a query now.
    pub bytes: f64,
    /// Bytes that it would move.
    pub other_bytes: f64,
    /// Queries per second of the other layout, divided by those of this one.
    pub times: f64,
}

impl LayoutAdvice {
    /// Returns the advice to convert an index from the layout of `own` to that of `other` for searches on
    /// `device`; `None` if its throughput would not be [`WORTH_CONVERTING`] times that of now.
    pub fn find(
        own: &LayoutEstimate,
        other: &LayoutEstimate,
        device: &TierProfile,
        execution: &Execution,
    ) -> Option<LayoutAdvice> {
        let qps = |layout: &LayoutEstimate| layout.estimate.demand.on(device, execution).qps;
        let times = qps(other) / qps(own);
        (times.is_finite() && times >= WORTH_CONVERTING).then_some(LayoutAdvice {
            layout: own.layout,
            other: other.layout,
            bytes: own.estimate.demand.moved_bytes,
            other_bytes: other.estimate.demand.moved_bytes,
            times,
        })
    }

    /// Returns a note for the user.
    pub fn note(&self) -> String {
        format!(
            "the layout {} does not suit this tier: it moves {:.0} bytes a query, and would move {:.0} of \
             the layout {}, enough for {:.1} times the queries a second; write a copy in the layout {}",
            self.layout, self.bytes, self.other_bytes, self.other, self.times, self.other
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::demand::Demand;
    use super::super::demand::tests::device;
    use super::super::work::Work;
    use super::*;

    /// A query of 36 reads: of a page each in the layout padded, and of 186 bytes in the layout csr.
    fn layout(layout: &'static str, moved_bytes: f64) -> LayoutEstimate {
        let work = Work { scan_ns: 30_000.0, ..Work::default() };
        let demand = Demand { rounds: 9.0, reads: 36.0, moved_bytes, compute_ns: 0.0 };
        LayoutEstimate { layout, estimate: Estimate::of(demand, work) }
    }

    fn run(threads: u32) -> Execution {
        Execution { threads, in_flight: 64, issue_ns: 0.0 }
    }

    #[test]
    fn another_layout_is_advised_where_the_bytes_of_this_one_limit_the_throughput() {
        let (padded, csr) = (layout("padded", 147_456.0), layout("csr", 6_700.0));
        let narrow = device(2_800, 1.0, 64, 0.0);
        let advice = LayoutAdvice::find(&padded, &csr, &narrow, &run(1)).unwrap();
        // A gigabyte a second takes 147 us for the pages of a query, and the processor 30 us.
        assert!((advice.times - 147_456.0 / 30_000.0).abs() < 1e-9, "{advice:?}");
        assert_eq!((advice.layout, advice.other), ("padded", "csr"));
        let note = advice.note();
        assert!(
            note.contains("147456 bytes") && note.contains("6700") && note.contains("4.9 times"),
            "{note}"
        );
        // More threads use all of the bandwidth, of which packed records need less.
        let many = LayoutAdvice::find(&padded, &csr, &narrow, &run(16)).unwrap();
        assert!((many.times - 147_456.0 / 6_700.0).abs() < 1e-9, "{many:?}");
    }

    #[test]
    fn nothing_is_advised_for_a_small_gain_or_where_the_processor_limits() {
        let (padded, csr) = (layout("padded", 147_456.0), layout("csr", 6_700.0));
        assert_eq!(LayoutAdvice::find(&padded, &csr, &device(300, 32.0, 64, 0.0), &run(1)), None);
        assert_eq!(LayoutAdvice::find(&padded, &csr, &device(0, 0.0, 64, 0.0), &run(64)), None);
        assert_eq!(LayoutAdvice::find(&csr, &padded, &device(2_800, 1.0, 64, 0.0), &run(1)), None);
        let close = layout("csr", 147_456.0 / 1.49);
        assert_eq!(LayoutAdvice::find(&padded, &close, &device(2_800, 1.0, 64, 0.0), &run(1)), None);
        // Reads of a disk limit both layouts alike.
        assert_eq!(LayoutAdvice::find(&padded, &csr, &device(80_000, 2.0, 64, 1e5), &run(4)), None);
    }
}
