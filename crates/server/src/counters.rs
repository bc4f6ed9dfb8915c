//! Counts requests by operation, status and time.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use utoipa::ToSchema;

/// Upper bounds of the bars of the histogram of times, in microseconds.
const BOUNDS_US: [u64; 12] =
    [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000, 10_000_000];

/// Requests since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    by_operation: Mutex<BTreeMap<OperationKey, OperationCounts>>,
    /// Requests that are being answered.
    pub(crate) in_flight: AtomicU64,
    pub(crate) forwarded: ForwardCounters,
}

/// Forwarded requests since the start.
#[derive(Debug, Default)]
pub(crate) struct ForwardCounters {
    /// Those that the other server has answered.
    pub(crate) answered: AtomicU64,
    /// Those that no other server has answered.
    pub(crate) failed: AtomicU64,
}

/// An operation and the status of its answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OperationKey {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: u16,
}

/// The requests to an operation that were answered with a status.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct RequestCounts {
    method: String,
    /// The address, with `{name}` in place of a name.
    path: String,
    status: u16,
    requests: u64,
    /// The sum of their times.
    seconds: f64,
}

/// The counts of an operation.
#[derive(Debug, Clone, Default)]
struct OperationCounts {
    requests: u64,
    seconds: f64,
    bars: [u64; BOUNDS_US.len()],
}

impl Counters {
    fn operations(&self) -> MutexGuard<'_, BTreeMap<OperationKey, OperationCounts>> {
        self.by_operation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an answer.
    pub(crate) fn count(&self, key: OperationKey, elapsed: Duration) {
        let mut operations = self.operations();
        let counts = operations.entry(key).or_default();
        counts.requests += 1;
        counts.seconds += elapsed.as_secs_f64();
        let bar = BOUNDS_US.iter().position(|bound| elapsed <= Duration::from_micros(*bound));
        if let Some(bar) = bar {
            counts.bars[bar] += 1;
        }
    }

    /// Returns the requests since the start.
    pub(crate) fn requests(&self) -> Vec<RequestCounts> {
        let counts = |(key, counts): (&OperationKey, &OperationCounts)| RequestCounts {
            method: key.method.clone(),
            path: key.path.clone(),
            status: key.status,
            requests: counts.requests,
            seconds: counts.seconds,
        };
        self.operations().iter().map(counts).collect()
    }

    /// Writes the counters in the text format of Prometheus.
    pub(crate) fn write_prometheus(&self, text: &mut String) {
        // Writing to a string does not fail.
        let name = "bathyal_server_request_seconds";
        let _ = writeln!(text, "# HELP bathyal_server_requests_in_flight Requests that are being answered.");
        let _ = writeln!(text, "# TYPE bathyal_server_requests_in_flight gauge");
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let _ = writeln!(text, "bathyal_server_requests_in_flight {in_flight}");
        let forwarded = "bathyal_server_forwarded_requests_total";
        let _ = writeln!(text, "# HELP {forwarded} Changes that were sent to the server that writes.");
        let _ = writeln!(text, "# TYPE {forwarded} counter");
        let ForwardCounters { answered, failed } = &self.forwarded;
        for (outcome, count) in [("answered", answered), ("failed", failed)] {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(text, "{forwarded}{{outcome=\"{outcome}\"}} {count}");
        }
        let _ = writeln!(text, "# HELP {name} Times of requests, by operation and status.");
        let _ = writeln!(text, "# TYPE {name} histogram");
        for (OperationKey { method, path, status }, counts) in self.operations().iter() {
            let labels = format!("method=\"{method}\",path=\"{path}\",status=\"{status}\"");
            let mut sum = 0;
            for (bound, bar) in BOUNDS_US.iter().zip(counts.bars) {
                sum += bar;
                let bound = *bound as f64 / 1e6;
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {sum}");
            }
            let OperationCounts { requests, seconds, .. } = counts;
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {requests}");
            let _ = writeln!(text, "{name}_sum{{{labels}}} {seconds}");
            let _ = writeln!(text, "{name}_count{{{labels}}} {requests}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_bars_that_include_the_shorter_ones() {
        let counters = Counters::default();
        let key = OperationKey { method: "GET".into(), path: "/x".into(), status: 200 };
        for us in [100, 400, 20_000_000] {
            counters.count(key.clone(), Duration::from_micros(us));
        }
        let mut text = String::new();
        counters.write_prometheus(&mut text);
        let has = |row: &str| assert!(text.contains(row), "{row} in {text}");
        has("_bucket{method=\"GET\",path=\"/x\",status=\"200\",le=\"0.00025\"} 1\n");
        has("_bucket{method=\"GET\",path=\"/x\",status=\"200\",le=\"0.0005\"} 2\n");
        has("_bucket{method=\"GET\",path=\"/x\",status=\"200\",le=\"10\"} 2\n");
        has("_bucket{method=\"GET\",path=\"/x\",status=\"200\",le=\"+Inf\"} 3\n");
        has("_count{method=\"GET\",path=\"/x\",status=\"200\"} 3\n");
    }
}
