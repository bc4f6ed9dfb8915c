//! The description of an index of partitions.

use super::section::PartitionedEntry;
use crate::family::{Description, Fact};
use crate::format::manifest::Manifest;

/// Describes an index of partitions. `counts` is given if the index takes inserts: the current number of
/// vectors, and the next id.
pub(super) fn describe(
    manifest: &Manifest,
    entry: &PartitionedEntry,
    counts: Option<(u64, u64)>,
) -> Description {
    let mean = entry.mean_bytes() as usize;
    let rows = entry.copies as f64 * manifest.data_bytes as f64 / manifest.vectors as f64;
    let mean_vectors = entry.copies as f64 / f64::from(entry.partitions);
    let partitions = format!(
        "{} of {mean_vectors:.0} vectors on average, {} at most; {mean} bytes, {} at most",
        entry.partitions, entry.most_vectors, entry.longest_bytes
    );
    let copies = format!(
        "{:.3} of each vector, {} at most",
        entry.copies as f64 / manifest.vectors as f64,
        entry.replicas
    );
    let growth = entry.growth.as_ref();
    let inserts = growth.zip(counts).map(|(growth, (vectors, next))| {
        let inserts = format!(
            "{vectors} vectors now, with room for about {} more; the overflow of two partitions holds {}",
            u64::from(growth.ids).saturating_sub(next),
            growth.overflow_vectors
        );
        ("inserts", inserts)
    });
    Description {
        kind: format!("partitions, each with an HNSW ({} pivots)", entry.pivots),
        built_with: format!(
            "partitions of {} vectors, links {}, construction list {}",
            entry.partition_vectors, entry.links, entry.construction_list
        ),
        read_bytes: mean,
        records_per_page: 0,
        // The rest, after vectors and ids, is links.
        padding_share: (1.0 - (rows + 4.0 * entry.copies as f64) / entry.read_bytes as f64).max(0.0),
        facts: vec![
            Fact::new("partitions", entry.partitions),
            Fact::new("copies", entry.copies),
            Fact::new("most_vectors", entry.most_vectors),
            Fact::new("longest_bytes", entry.longest_bytes),
            Fact::new("meta_bytes", entry.meta.bytes),
            Fact::new("vectors_now", counts.map_or(manifest.vectors, |(vectors, _)| vectors)),
            Fact::new("ids_at_most", growth.map_or(manifest.vectors, |growth| u64::from(growth.ids))),
        ],
        lines: [
            ("partitions", partitions),
            ("copies", copies),
            ("meta index", format!("{} bytes in memory while searching", entry.meta.bytes)),
        ]
        .into_iter()
        .chain(inserts)
        .collect(),
        histogram: Vec::new(),
        calibration: entry.calibration.lines("partitions"),
    }
}
