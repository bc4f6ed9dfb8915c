//! The counters of an audit, for a monitoring system.

use super::ledger::WatchedRecall;
use serde::Serialize;
use std::fmt::Write;

/// The counters of the audit of live searches, since the index or the collection was opened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditStats {
    /// The share of the queries that are audited.
    pub share: f64,
    /// Queries chosen.
    pub sampled: u64,
    /// Those that wait for their exact answers.
    pub waiting: u64,
    /// Those that the audit had no time for.
    pub dropped: u64,
    /// Those whose vectors had changed, whose effort has changed since, or whose exact answer failed.
    pub discarded: u64,
    /// Seconds that the auditing thread has worked.
    pub seconds: f64,
    /// Bytes read for exact answers.
    pub bytes: u64,
    /// Why the last exact answers failed; `None` if they did not.
    pub trouble: Option<String>,
    /// The recall found, by the recall asked for; searches by another effort are the last.
    pub recalls: Vec<WatchedRecall>,
}

impl AuditStats {
    /// Appends the counters in the text exposition format of Prometheus. The names begin with `prefix`, and
    /// `label` is the label of the index or the collection.
    pub fn write_prometheus(&self, prefix: &str, label: &str, text: &mut String) {
        // Writing to a string does not fail.
        let counters: [(&str, &str, &dyn std::fmt::Display); 5] = [
            ("sampled_total", "Queries chosen for the audit", &self.sampled),
            ("dropped_total", "Queries that the audit had no time for", &self.dropped),
            (
                "discarded_total",
                "Queries whose vectors or effort changed before their audit",
                &self.discarded,
            ),
            ("seconds_total", "Seconds that the audit has worked", &self.seconds),
            ("read_bytes_total", "Bytes read for exact answers", &self.bytes),
        ];
        for (name, help, value) in counters {
            let name = format!("{prefix}_audit_{name}");
            let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} counter\n{name}{{{label}}} {value}");
        }
        let mut rows = |name: &str, kind: &str, help: &str, value: fn(&WatchedRecall) -> Option<f64>| {
            if self.recalls.is_empty() {
                return;
            }
            let name = format!("{prefix}_audit_{name}");
            let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
            for watched in &self.recalls {
                let Some(value) = value(watched) else { continue };
                let asked = watched.asked.map_or_else(|| "none".to_owned(), |asked| asked.to_string());
                let _ = writeln!(text, "{name}{{{label},asked=\"{asked}\"}} {value}");
            }
        };
        rows("queries_total", "counter", "Queries audited, by the recall asked for", |watched| {
            Some(watched.audited as f64)
        });
        rows("recall", "gauge", "Recall found by the last audited queries", |watched| {
            Some(watched.estimate?.found)
        });
        rows("recall_low", "gauge", "Lower end of its 95% confidence interval", |watched| {
            Some(watched.estimate?.low)
        });
        rows("recall_high", "gauge", "Upper end of its 95% confidence interval", |watched| {
            Some(watched.estimate?.high)
        });
        rows("missed", "gauge", "1 if the recall asked for lies above that interval", |watched| {
            watched.asked.map(|_| f64::from(u8::from(watched.missed)))
        });
        rows("effort_for", "gauge", "Recall that is asked of the calibration instead", |watched| {
            // In decimal, since 0.95 as f32 is another f64.
            watched.effort_for?.to_string().parse().ok()
        });
    }
}
