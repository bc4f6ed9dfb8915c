//! Describes a flat index: its parts, and its calibration.

use super::section::FlatEntry;
use crate::family::{Description, Fact};
use crate::format::groups::GroupLayout;
use crate::format::manifest::Manifest;

/// Describes a flat index.
pub(super) fn describe(manifest: &Manifest, entry: &FlatEntry, layout: &GroupLayout) -> Description {
    let scan = format!("{} reads of {} bytes", entry.reads, layout.group_bytes());
    let codes = entry.codes.as_ref().map(|codes| codes.codes.line());
    let calibration = &entry.calibration;
    Description {
        kind: "vectors, compared exactly".into(),
        built_with: format!("reads of {} pages", entry.read_pages),
        read_bytes: layout.group_bytes(),
        records_per_page: layout.page_vectors(),
        // Every vector has its bytes and its id.
        padding_share: 1.0 - (manifest.data_bytes + 4 * manifest.vectors) as f64 / entry.file.bytes as f64,
        facts: vec![
            Fact::new("scan_reads", entry.reads),
            Fact::new("code_bytes", entry.codes.as_ref().map_or(0, |codes| codes.codes.file.bytes)),
        ],
        lines: codes.into_iter().chain([("a scan", scan)]).collect(),
        histogram: Vec::new(),
        calibration: calibration
            .ends()
            .into_iter()
            .map(|(k, least, most)| {
                let (from, to) = (least.search_list, most.search_list);
                let measured_with = format!("({} {})", calibration.queries, calibration.source);
                format!(
                    "k {k}: recall {:.3} at {from} candidates to {:.3} at {to} {measured_with}",
                    least.recall, most.recall
                )
            })
            .collect(),
    }
}
