//! The processor time of this process, and the share of a core that other programs leave to it.

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
        let (started, before) = (Instant::now(), thread_seconds());
        while started.elapsed() < LOOK {
            std::hint::spin_loop();
        }
        let used = thread_seconds().zip(before).map(|(after, before)| after - before);
        self.shares.extend(used.map(|used| used / started.elapsed().as_secs_f64()));
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

/// Returns the processor time of the calling thread so far, in seconds; `None` if the system does not report
/// it.
#[cfg(unix)]
fn thread_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

/// Returns `None`: this system does not report it.
#[cfg(not(unix))]
fn thread_seconds() -> Option<f64> {
    None
}

/// Returns the processor time of all threads of this process so far, in seconds; `None` if the system does
/// not report it.
#[cfg(unix)]
pub(crate) fn processor_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

/// Returns `None`: this system does not report it.
#[cfg(not(unix))]
pub(crate) fn processor_seconds() -> Option<f64> {
    None
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
