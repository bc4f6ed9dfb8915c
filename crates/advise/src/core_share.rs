//! The share of a core that other programs leave to this process.

use bathyal_tier::thread_ns;
use std::time::{Duration, Instant};

/// The time of a look at that share: several slices of the system's scheduler.
const LOOK: Duration = Duration::from_millis(20);
/// Below this share of a core, measured times are those of a machine that is busy with other work.
const BUSY_SHARE: f64 = 0.8;

/// Looks at the share of a core that this process gets, now and then.
#[derive(Debug, Default)]
pub(crate) struct CoreShare {
    shares: Vec<f64>,
}

impl CoreShare {
    /// Takes a look, which keeps the calling thread busy for some milliseconds.
    pub(crate) fn look(&mut self) {
        let (started, before) = (Instant::now(), thread_ns());
        while started.elapsed() < LOOK {
            std::hint::spin_loop();
        }
        let used = thread_ns().saturating_sub(before);
        self.shares.push(used as f64 / started.elapsed().as_nanos() as f64);
    }

    /// Returns a note if other programs have taken a part of the core.
    pub(crate) fn note(&self) -> Option<String> {
        let share = self.shares.iter().sum::<f64>() / self.shares.len().max(1) as f64;
        let is_busy = !self.shares.is_empty() && share < BUSY_SHARE;
        is_busy.then(|| {
            format!(
                "other programs kept this machine busy while small indexes were measured (a thread got \
                 {:.0}% of a core), so that predicted speeds may be far too low; ask again when it is idle",
                100.0 * share
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_noted() {
        let of = |shares: &[f64]| CoreShare { shares: shares.to_vec() }.note();
        assert_eq!((of(&[]), of(&[1.0, 0.9, 0.7])), (None, None));
        let note = of(&[0.2, 0.3]).unwrap();
        assert!(note.contains("got 25% of a core"), "{note}");
        let mut share = CoreShare::default();
        share.look();
        assert!(share.shares.iter().all(|share| (0.0..1.1).contains(share)), "{share:?}");
    }
}
