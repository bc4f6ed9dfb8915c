//! What a machine with a graphics card and several disks would answer, from what a query asks of each of its parts: the slowest part
//! decides, since all of them work at the same time for different queries.
//!
//! It knows no launches, no queues and no queries that wait for each other, and is a bound from above: GustANN reaches 0.84 of what its
//! disks could read.

use serde::Serialize;

/// Nanoseconds of a processor for a read: to post it, to take it back and to pick the record. The paper's threads do 2 million a second
/// each (section 4.1.3).
const READ_NS: f64 = 500.0;
/// Nanoseconds for a byte of a vector that is compared.
const VECTOR_BYTE_NS: f64 = 0.03;

/// The machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) ssds: u32,
    /// Reads a second of each.
    pub(super) ssd_reads: f64,
    /// Bytes a second into the card.
    pub(super) link: f64,
    /// Bytes a second of its memory.
    pub(super) card_memory: f64,
    /// Whole-number operations a second.
    pub(super) card_operations: f64,
    pub(super) cores: u32,
    /// Microseconds that a read takes on an idle disk.
    pub(super) read_us: f64,
    /// Microseconds of a launch and the copies before and after it.
    pub(super) launch_us: f64,
    /// Dollars for all of it.
    pub(super) price: f64,
}

/// What a query asks for, in the mean.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Asks {
    /// Pages.
    pub(super) pages: f64,
    /// Bytes of vectors that the processor compares.
    pub(super) vector_bytes: f64,
    /// Bytes that are sent to the card.
    pub(super) sent_bytes: f64,
    /// Bytes that the card reads of its memory.
    pub(super) card_bytes: f64,
    /// Whole-number operations of the card.
    pub(super) card_operations: f64,
}

/// What is predicted.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Prediction {
    /// Always: nothing of it was measured.
    pub(super) predicted: bool,
    pub(super) qps: f64,
    /// What keeps it from being more.
    pub(super) bound: &'static str,
    pub(super) dollars_a_qps: f64,
}

impl Machine {
    /// Seconds that a query keeps each part busy.
    pub(super) fn demands(&self, asks: &Asks) -> [(&'static str, f64); 5] {
        let processor_ns = asks.pages * READ_NS + asks.vector_bytes * VECTOR_BYTE_NS;
        [
            ("disks", asks.pages / (f64::from(self.ssds) * self.ssd_reads)),
            ("link", asks.sent_bytes / self.link),
            ("card's memory", asks.card_bytes / self.card_memory),
            ("card", asks.card_operations / self.card_operations),
            ("processor", processor_ns / (f64::from(self.cores) * 1e9)),
        ]
    }

    pub(super) fn predict(&self, asks: &Asks) -> Prediction {
        let most = |a: (&'static str, f64), b: (&'static str, f64)| if b.1 > a.1 { b } else { a };
        let (bound, seconds) = self.demands(asks).into_iter().fold(("nothing", 0.0), most);
        let qps = 1.0 / seconds;
        Prediction { predicted: true, qps, bound, dollars_a_qps: self.price / qps }
    }

    /// Queries a second that its disks could read for.
    pub(super) fn disks_qps(&self, asks: &Asks) -> f64 {
        f64::from(self.ssds) * self.ssd_reads / asks.pages
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What the paper had.
    pub(in crate::gustann) fn paper_machine() -> Machine {
        Machine {
            ssds: 6,
            ssd_reads: 2.44e6,
            link: 24e9,
            card_memory: 1.555e12,
            card_operations: 9.7e12,
            cores: 8,
            read_us: 80.0,
            launch_us: 30.0,
            price: 30_789.0 + 6.0 * 1025.0,
        }
    }

    #[test]
    fn the_slowest_part_decides() {
        let machine = paper_machine();
        // What the paper says of SIFT100M at recall@10 0.9: 31.8 pages, records of 644 bytes.
        let paper = Asks {
            pages: 31.8,
            vector_bytes: 31.8 * 128.0,
            sent_bytes: 31.8 * 644.0,
            card_bytes: 31.8 * 128.0 * 32.0,
            card_operations: 31.8 * 128.0 * 64.0,
        };
        let predicted = machine.predict(&paper);
        // It reaches 380,793 of these, on disks that it fills to 84%.
        assert!(
            predicted.bound == "disks" && (440_000.0..480_000.0).contains(&predicted.qps),
            "{predicted:?}"
        );
        assert!((0.07..0.09).contains(&predicted.dollars_a_qps), "{predicted:?}");
        let whole = machine.predict(&Asks { sent_bytes: 31.8 * 4096.0, ..paper });
        assert!(whole.bound == "link" && whole.qps < 0.5 * predicted.qps, "{whole:?}");
        let more = Machine { ssds: 60, ..machine }.predict(&paper);
        assert_eq!(more.bound, "processor");
    }
}
