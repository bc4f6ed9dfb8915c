//! Describes a cluster index for `bathyal inspect`.

use super::centroids::scope::MeasuredPrune;
use super::section::ClusterEntry;
use crate::family::{Description, Fact};
use crate::format::groups::GroupLayout;
use crate::format::manifest::Manifest;

/// Describes a cluster index.
pub(super) fn describe(manifest: &Manifest, entry: &ClusterEntry, layout: &GroupLayout) -> Description {
    let (groups, group_vectors) = (entry.groups, layout.group_vectors());
    let centroids = entry.centroid_memory();
    let groups_line =
        format!("{groups} of {group_vectors} vectors; centroids take {centroids} bytes of memory");
    let mut lines = vec![entry.codes.line(), ("groups", groups_line)];
    if !entry.shorter.is_empty() {
        let shorter: Vec<String> = entry.shorter.iter().map(|codes| codes.code_bytes.to_string()).collect();
        lines.push(("less memory", format!("codes of {} B, with more reads", shorter.join(", "))));
    }
    Description {
        kind: "index, codes in memory".into(),
        built_with: format!("groups of {} pages", entry.group_pages),
        read_bytes: layout.page_bytes(),
        records_per_page: layout.page_vectors(),
        // Each vector takes its bytes and those of its id; the rest is padding.
        padding_share: 1.0 - (manifest.data_bytes + 4 * manifest.vectors) as f64 / entry.file.bytes as f64,
        facts: vec![
            Fact::new("groups", groups),
            Fact::new("group_vectors", group_vectors),
            Fact::new("centroid_bytes", centroids),
            Fact::new("code_bytes", entry.codes.file.bytes),
        ],
        lines,
        histogram: Vec::new(),
        calibration: calibration(entry),
    }
}

/// Returns lines with the first and the last point of each curve, and with the range of prunes.
fn calibration(entry: &ClusterEntry) -> Vec<String> {
    let ends = entry.calibration.lines("groups").into_iter();
    ends.chain(entry.prunes.first().zip(entry.prunes.last()).map(prune_line)).collect()
}

/// Returns a line about the number of groups that single queries scan.
fn prune_line((fewest, most): (&MeasuredPrune, &MeasuredPrune)) -> String {
    format!(
        "a query scans a third to twice the average number of groups: those up to {:.3} times as far as its \
        near groups if the average is {}, up to {:.3} times if it is {}",
        1.0 + fewest.prune,
        fewest.probes,
        1.0 + most.prune,
        most.probes
    )
}
