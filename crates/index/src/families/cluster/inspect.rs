//! What a cluster index is made of.

use super::scope::Pruned;
use super::section::ClusterEntry;
use crate::family::{Description, Fact};
use crate::format::groups::GroupLayout;
use crate::format::manifest::Manifest;

/// Describes a cluster index.
pub(super) fn describe(manifest: &Manifest, entry: &ClusterEntry, layout: &GroupLayout) -> Description {
    let (groups, group_vectors) = (entry.groups, layout.group_vectors());
    let centroids = entry.centroid_memory();
    let of_groups = format!("{groups} of {group_vectors} vectors, centroids {centroids} bytes in memory");
    let mut lines = vec![entry.codes.line(), ("groups", of_groups)];
    if !entry.shorter.is_empty() {
        let shorter: Vec<String> = entry.shorter.iter().map(|codes| codes.code_bytes.to_string()).collect();
        lines.push(("less memory", format!("codes of {} B, at more reads", shorter.join(", "))));
    }
    Description {
        kind: "index, codes in memory".into(),
        built_with: format!("groups of {} pages", entry.group_pages),
        read_bytes: layout.page_bytes(),
        records_per_page: layout.page_vectors(),
        // Every vector has its bytes and its id.
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

/// The ends of each curve, and where queries stop.
fn calibration(entry: &ClusterEntry) -> Vec<String> {
    let ends = entry.calibration.lines("groups").into_iter();
    ends.chain(entry.prunes.first().zip(entry.prunes.last()).map(by_query)).collect()
}

/// How the efforts of a calibration differ by query.
fn by_query((fewest, most): (&Pruned, &Pruned)) -> String {
    format!(
        "queries scan a third to twice as many groups, up to {:.3} times as far as their near ones where the average is {}, to {:.3} times where it is {}",
        1.0 + fewest.prune,
        fewest.probes,
        1.0 + most.prune,
        most.probes
    )
}
