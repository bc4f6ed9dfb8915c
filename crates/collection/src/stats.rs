//! Size and counters of an open collection, for a monitoring system.

use crate::counters::SearchCounts;
use crate::description::Description;
use bathyal_index::AuditStats;
use serde::Serialize;
use std::fmt::Write;

/// The counters of an open collection.
#[derive(Debug, Clone, Serialize)]
pub struct CollectionStats {
    /// Its size and its segments.
    #[serde(flatten)]
    pub description: Description,
    /// The searches of this handle.
    #[serde(flatten)]
    pub searches: SearchCounts,
    /// The audit of the searches of this handle; absent in JSON without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditStats>,
}

impl CollectionStats {
    /// Returns the counters in the text exposition format of Prometheus, labelled with the collection's path.
    pub fn to_prometheus(&self) -> String {
        let CollectionStats { description, searches, audit } = self;
        let path = description.path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let rows = [
            ("rows", "gauge", "Live rows", description.rows),
            ("rows_in_memory", "gauge", "Live rows in memory and the log only", description.rows_in_memory),
            ("segments", "gauge", "Segments", description.segments.len() as u64),
            ("bytes", "gauge", "Bytes of all segments", description.bytes),
            ("memory_bytes", "gauge", "Bytes of memory of rows in memory", description.memory_bytes),
            ("held_bytes", "gauge", "Bytes of memory that open segments hold", description.held_bytes),
            ("batches_total", "counter", "Batches written, by all writers", description.sequence),
            ("searches_total", "counter", "Batches of queries answered", searches.searches),
            ("queries_total", "counter", "Queries answered", searches.queries),
            ("errors_total", "counter", "Batches of queries that failed", searches.errors),
            ("reads_total", "counter", "Reads of segments", searches.reads),
            ("read_bytes_total", "counter", "Bytes of these reads", searches.read_bytes),
            ("code_distances_total", "counter", "Distances estimated from codes", searches.code_distances),
            ("full_distances_total", "counter", "Distances of full vectors", searches.full_distances),
        ];
        let mut text = String::new();
        let mut row = |name: &str, kind: &str, help: &str, value: &dyn std::fmt::Display| {
            let name = format!("bathyal_collection_{name}");
            // Writing to a string does not fail.
            let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
            let _ = writeln!(text, "{name}{{collection=\"{path}\"}} {value}");
        };
        rows.iter().for_each(|(name, kind, help, value)| row(name, kind, help, value));
        row("search_seconds_total", "counter", "Seconds of all searches", &searches.search_seconds);
        if let Some(audit) = audit {
            audit.write_prometheus("bathyal_collection", &format!("collection=\"{path}\""), &mut text);
        }
        text
    }
}
