//! The description of an index of posting lists.

use super::effort::ListPoint;
use super::section::SpannEntry;
use crate::family::reports::bars;
use crate::family::{Description, Fact};
use crate::format::manifest::Manifest;
use crate::format::postings::Postings;

/// Describes posting lists.
pub(super) fn describe(manifest: &Manifest, entry: &SpannEntry, postings: &Postings) -> Description {
    let mut lengths = Vec::new();
    let (mut shortest, mut longest, mut addresses, mut section_bytes) = (u32::MAX, 0, 0_u64, 0_u64);
    for list in 0..entry.list_count {
        let length = postings.vectors_of(list);
        if lengths.len() <= length as usize {
            lengths.resize(length as usize + 1, 0_u64);
        }
        lengths[length as usize] += 1;
        (shortest, longest) = (shortest.min(length), longest.max(length));
        let section = postings.members_range(list);
        addresses += u64::from(postings.members_of(list));
        section_bytes += section.end - section.start;
    }
    let lists = f64::from(entry.list_count);
    // Every stored copy has the bytes of a vector, and a coupled one also those of an id.
    let copies = entry.copies - addresses;
    let rows = if addresses > 0 { manifest.vectors } else { copies };
    let stored_bytes = manifest.stored_row_bytes().map_or(0, |bytes| bytes as u64);
    let row_bytes = stored_bytes + if addresses > 0 { 0 } else { 4 };
    let used = match &entry.list_codes {
        Some(codes) => copies * (4 + u64::from(codes.code_bytes)) + (stored_bytes + 4) * manifest.vectors,
        None => rows * row_bytes + section_bytes,
    };
    let (mean_replicas, mean_list) =
        (entry.copies as f64 / manifest.vectors as f64, entry.copies as f64 / lists);
    let address_bits = (addresses > 0).then(|| 8.0 * section_bytes as f64 / addresses as f64);
    let centroid_bytes = entry.centroids.bytes + entry.links.bytes;
    let histogram = bars(&lengths);
    let mut facts = vec![
        Fact::new("lists", entry.list_count),
        Fact::new("mean_replicas", mean_replicas),
        Fact::new("mean_list", mean_list),
        Fact::new("list_range", (shortest, longest)),
        Fact::new("list_histogram", &histogram),
        Fact::new("centroid_bytes", centroid_bytes),
    ];
    facts.extend(address_bits.map(|bits| Fact::new("address_bits", bits)));
    let lists_line = format!(
        "{} of {shortest} to {longest} vectors, mean {mean_list:.1}; centroids {centroid_bytes} bytes in \
         memory",
        entry.list_count
    );
    let address = address_bits.map_or(String::new(), |bits| format!(", {bits:.1} bits an address"));
    let mut lines = vec![
        ("entry point", format!("list {}", entry.entry_point)),
        entry.codes.line(),
        ("lists", lists_line),
        ("replicas", format!("a vector is in {mean_replicas:.2} lists{address}")),
    ];
    if let Some(codes) = &entry.list_codes {
        facts.push(Fact::new("list_codes", (&codes.kind, codes.code_bytes)));
        let codes_line = format!("{} of {} B each, vectors read to re-rank", codes.kind, codes.code_bytes);
        lines.push(("list codes", codes_line));
    }
    Description {
        kind: format!("index, {} posting lists", entry.layout),
        built_with: format!(
            "centroid_share {}, replicas {}, list_limit {}",
            entry.centroid_share, entry.replicas, entry.list_limit
        ),
        read_bytes: entry.list_bytes() as usize,
        records_per_page: 0,
        padding_share: (1.0 - used as f64 / entry.file.bytes as f64).max(0.0),
        facts,
        lines,
        histogram,
        calibration: calibration(entry),
    }
}

/// Describes the ends of each curve.
fn calibration(entry: &SpannEntry) -> Vec<String> {
    let calibration = &entry.calibration;
    let line = |(k, least, most): (u32, ListPoint, ListPoint)| {
        format!(
            "k {k}: recall {:.3} at {} lists to {:.3} at {} ({} {})",
            least.recall, least.probes, most.recall, most.probes, calibration.queries, calibration.source
        )
    };
    calibration.ends().into_iter().map(line).collect()
}
